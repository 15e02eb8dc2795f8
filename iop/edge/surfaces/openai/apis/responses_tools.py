"""The Responses API's tools as a chat request has them, and a chat's tool calls as its items. Pure.

Chat knows functions only. A custom (freeform) tool travels as a function of one string, ``input``, and a call of it is
turned back; the functions of a namespace ``ns`` travel as ``ns.name``. What the API's own host would run is left out.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from iop.document import JsonObject
from iop.edge.surfaces.openai.apis.members import must_be
from iop.errors import Failure

_FREEFORM: Final = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
"""The parameters that a custom tool has for a chat."""

_FUNCTION_MEMBERS: Final = ("description", "parameters", "strict")


class Tool(NamedTuple):
    """One tool that the model may call.

    :ivar name: inside its namespace.
    :ivar namespace: "" for none.
    :ivar custom: whether it is called with text instead of arguments.
    :ivar function: what chat has as ``function``.
    """

    name: str
    namespace: str
    custom: bool
    function: JsonObject

    def item(self, call: JsonObject) -> JsonObject:
        """Return a chat's call of it as an item, which has no id and no status yet."""
        made = _call_item(call, self.name, self.custom)
        return {**made, "namespace": self.namespace} if self.namespace else made


class Tools(NamedTuple):
    """The tools of one request.

    :ivar offered: by the name that chat has for each.
    :ivar choice: chat's ``tool_choice``; None where the request has none.
    """

    offered: dict[str, Tool]
    choice: str | JsonObject | None

    @classmethod
    def parse(cls, tools: list[Any] | None, choice: Any) -> Tools:
        """Read ``tools`` and ``tool_choice``; :raises Failure: ``invalid_value``, ``unsupported_parameter``."""
        offered: dict[str, Tool] = {}
        for number, tool in enumerate(tools or ()):
            for each in _read(tool, f"tools[{number}]"):
                offered[each.function["name"]] = each
        return _choose(offered, choice)

    @property
    def chat(self) -> JsonObject:
        """The members of a chat request: none where nothing is offered."""
        if not self.offered:
            return {}
        made: JsonObject = {
            "tools": [{"type": "function", "function": tool.function} for tool in self.offered.values()]
        }
        return made if self.choice is None else {**made, "tool_choice": self.choice}

    @property
    def schemas(self) -> JsonObject:
        """The JSON Schemas of the parameters, by the name that chat has."""
        return {name: tool.function.get("parameters") or {} for name, tool in self.offered.items()}

    def item(self, call: JsonObject) -> JsonObject:
        """Return a chat's call as an item: of the tool that it names, or of a function that nobody offered."""
        name = call["function"]["name"]
        tool = self.offered.get(name)
        return _call_item(call, name, False) if tool is None else tool.item(call)


def chat_name(item: JsonObject) -> str:
    """Return how chat calls the tool of a call, or of a choice."""
    name, namespace = str(item.get("name") or ""), item.get("namespace")
    return f"{namespace}.{name}" if namespace else name


def freeform(text: str) -> str:
    """Return the arguments by which chat calls a custom tool with a text."""
    return json.dumps({"input": text}, ensure_ascii=False)


def _call_item(call: JsonObject, name: str, custom: bool) -> JsonObject:
    arguments = call["function"]["arguments"]
    if custom:
        return {"type": "custom_tool_call", "call_id": call["id"], "name": name, "input": _text_of(arguments)}
    return {"type": "function_call", "call_id": call["id"], "name": name, "arguments": arguments}


def _text_of(arguments: str) -> str:
    """Return what a custom tool is called with; a model that forgot the object around it meant the same."""
    try:
        made = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    said = made.get("input") if isinstance(made, dict) else made
    return said if isinstance(said, str) else arguments


def _read(tool: Any, where: str, namespace: str = "") -> list[Tool]:
    """Return what is offered by an element of ``tools``: nothing by what the API's host would run."""
    if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
        raise must_be(where, "an object with a `type`")
    kind = tool["type"]
    if kind not in ("function", "custom", "namespace"):
        return []
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise must_be(f"{where}.name", "a non-empty string")
    if kind == "namespace":
        inner = tool.get("tools")
        if not isinstance(inner, list) or namespace:
            raise must_be(where, "a namespace with a list of tools")
        return [each for at, one in enumerate(inner) for each in _read(one, f"{where}.tools[{at}]", name)]
    known = _custom(tool) if kind == "custom" else {k: tool[k] for k in _FUNCTION_MEMBERS if tool.get(k) is not None}
    return [Tool(name, namespace, kind == "custom", {"name": f"{namespace}.{name}" if namespace else name, **known})]


def _custom(tool: JsonObject) -> JsonObject:
    """A grammar cannot be enforced here; the model is told it."""
    told = [tool["description"]] if isinstance(tool.get("description"), str) else []
    form = tool.get("format")
    if isinstance(form, dict) and isinstance(form.get("definition"), str):
        told.append(f"`input` is a text by this grammar ({form.get('syntax', 'lark')}):\n{form['definition']}")
    made: JsonObject = {"description": "\n\n".join(told)} if told else {}
    return {**made, "parameters": _FREEFORM}


def _choose(offered: dict[str, Tool], choice: Any) -> Tools:
    """Read ``tool_choice``."""
    if choice in (None, "auto", "none"):
        return Tools(offered, choice)
    if choice == "required":
        if not offered:
            raise _unsupported("a tool that the edge does not run itself, to be required")
        return Tools(offered, choice)
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind in ("function", "custom"):
        name = chat_name(choice)
        if name not in offered:
            raise Failure("invalid_value", "`tool_choice` names a tool that is not in `tools`", param="tool_choice")
        return Tools(offered, {"type": "function", "function": {"name": name}})
    if kind == "allowed_tools" and isinstance(choice.get("tools"), list):
        names = {chat_name(tool) for tool in choice["tools"] if isinstance(tool, dict)}
        return _choose({name: tool for name, tool in offered.items() if name in names}, choice.get("mode", "auto"))
    if isinstance(kind, str):
        raise _unsupported("a function or a custom tool")
    raise must_be("tool_choice", "auto, none, required, or an object with a `type`")


def _unsupported(what: str) -> Failure:
    return Failure("unsupported_parameter", f"`tool_choice` needs {what}", param="tool_choice")
