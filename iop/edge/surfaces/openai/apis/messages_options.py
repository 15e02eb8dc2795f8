"""What a Messages request asks for besides its conversation, as members of a chat request. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from iop import model as m
from iop.document import JsonObject
from iop.edge.surfaces.openai.apis.members import must_be
from iop.edge.surfaces.openai.apis.messages_errors import unsupported

_ELSEWHERE: Final = {
    "mcp_servers": "this gateway connects to no MCP server on a model's behalf",
    "container": "this gateway runs no containers",
    "thread": "this gateway keeps no conversations; send all messages",
}
"""Members that say what Anthropic's servers are to do; an answer without it would be another one."""

_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")

_USUAL_EFFORT: Final = "high"
"""As good as none, says the API; Claude Code sends it to every model, and one that cannot think may refuse it."""

_MOST_TOKENS: Final = (1 << 63) - 1
"""What a run has room for."""


def chat_options(asked: JsonObject) -> JsonObject:
    """Return the members of the chat request; :raises Failure: ``invalid_value``, ``unsupported_parameter``.

    What is not named here says nothing to a model: ``service_tier``, ``cache_control``, ``context_management`` (what it
    clears, a window would have to be too small for) and whatever is new.
    """
    for name, why in _ELSEWHERE.items():
        if asked.get(name):
            raise unsupported(name, why)
    made: JsonObject = {}
    if asked.get("max_tokens") is not None:
        made["max_tokens"] = asked["max_tokens"]
    for name in ("temperature", "top_p", "top_k"):
        if asked.get(name) is not None:
            made[name] = _number(asked[name], name)
    stop = asked.get("stop_sequences")
    if stop is not None and not (isinstance(stop, list) and all(isinstance(each, str) for each in stop)):
        raise must_be("stop_sequences", "a list of strings")
    if stop:
        made["stop"] = stop
    user = _object(asked, "metadata").get("user_id")
    if isinstance(user, str) and user:
        made["user"] = user
    return made | _output(asked) | _tools(asked)


def thinking_of(asked: Mapping[str, Any]) -> m.Thinking:
    """Return the wish for thinking; unset where the request leaves it to the model; :raises Failure:.

    No member of a chat request says it to every backend: the node has to.
    """
    wish = _object(asked, "thinking")
    kind = wish.get("type")
    if kind == "disabled":
        return m.Thinking("off")
    if kind == "enabled":
        budget = wish.get("budget_tokens")
        if type(budget) is not int or not 0 < budget <= _MOST_TOKENS:
            raise must_be("thinking.budget_tokens", f"a whole number from 1 to {_MOST_TOKENS}")
        return m.Thinking("on", budget)
    if wish and kind not in ("adaptive", "between_tools"):
        raise must_be("thinking.type", "enabled, disabled, adaptive or between_tools")
    return m.UNSET


def schemas_of(tools: Any) -> JsonObject:
    """Return the JSON Schemas of a request's tools, by name; whatever is none is left out."""
    custom = [tool for tool in tools if isinstance(tool, dict) and _custom(tool)] if isinstance(tools, list) else []
    return {tool["name"]: tool.get("input_schema") or {} for tool in custom if isinstance(tool.get("name"), str)}


def _output(asked: JsonObject) -> JsonObject:
    made: JsonObject = {}
    config = _object(asked, "output_config")
    effort = config.get("effort")
    if effort is not None and effort not in _EFFORTS:
        raise must_be("output_config.effort", f"one of {', '.join(_EFFORTS)}")
    if effort not in (None, _USUAL_EFFORT) and thinking_of(asked).mode != "off":
        made["reasoning_effort"] = effort
    path, wanted = "output_config.format", config.get("format")
    if wanted is None:
        path, wanted = "output_format", asked.get("output_format")  # its name before
    if wanted is not None:
        if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
            raise must_be(f"{path}.type", "json_schema")
        if not isinstance(wanted.get("schema"), dict):
            raise must_be(f"{path}.schema", "a JSON Schema")
        schema = {"name": "answer", "schema": wanted["schema"], "strict": True}
        made["response_format"] = {"type": "json_schema", "json_schema": schema}
    return made


# ---- tools ----------------------------------------------------------------------------------------------------------


def _tools(asked: JsonObject) -> JsonObject:
    """Return the tools that a model can be told of. Those that Anthropic's models know by their type are dropped."""
    tools = asked.get("tools")
    if tools is None:
        tools = []
    if not isinstance(tools, list):
        raise must_be("tools", "a list")
    functions: list[JsonObject] = []
    dropped: set[str] = set()
    for number, tool in enumerate(tools):
        path = f"tools[{number}]"
        if not isinstance(tool, dict):
            raise must_be(path, "an object")
        if _custom(tool):
            functions.append(_function(tool, path))
        elif isinstance(tool.get("name"), str):
            dropped.add(tool["name"])
    choice = _object(asked, "tool_choice")
    chosen = _choice(choice, {function["name"] for function in functions}, dropped)
    if not functions:
        return {}
    made: JsonObject = {"tools": [{"type": "function", "function": function} for function in functions]}
    if chosen is not None:
        made["tool_choice"] = chosen
    if choice.get("disable_parallel_tool_use") is True:
        made["parallel_tool_calls"] = False
    return made


def _custom(tool: JsonObject) -> bool:
    return tool.get("type") in (None, "custom")


def _function(tool: JsonObject, path: str) -> JsonObject:
    name, schema = tool.get("name"), tool.get("input_schema")
    if not isinstance(name, str) or not name:
        raise must_be(f"{path}.name", "a non-empty string")
    if not isinstance(schema, dict):
        raise must_be(f"{path}.input_schema", "a JSON Schema")
    made: JsonObject = {"name": name}
    if isinstance(tool.get("description"), str):
        made["description"] = tool["description"]
    made["parameters"] = schema
    if isinstance(tool.get("strict"), bool):
        made["strict"] = tool["strict"]
    return made


def _choice(choice: JsonObject, names: set[str], dropped: set[str]) -> Any:
    kind, name = choice.get("type"), choice.get("name")
    if not choice:
        return None
    if kind == "any" and not names:
        raise unsupported("tool_choice", "there is no tool in `tools` that a model here can call")
    if kind in ("auto", "any", "none"):
        return "required" if kind == "any" else kind
    if kind != "tool":
        raise must_be("tool_choice.type", "auto, any, tool or none")
    if not isinstance(name, str) or name not in names | dropped:
        raise must_be("tool_choice.name", "the name of one of `tools`")
    if name not in names:
        raise unsupported("tool_choice.name", "this tool is Anthropic's own, and no model here has it")
    return {"type": "function", "function": {"name": name}}


# ---- values ---------------------------------------------------------------------------------------------------------


def _object(asked: Mapping[str, Any], name: str) -> JsonObject:
    """Return a member that is an object; empty where it is not there."""
    value = asked.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise must_be(name, "an object")
    return value


def _number(value: Any, name: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise must_be(name, "a number")
    return value
