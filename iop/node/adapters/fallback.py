"""Tools as text: a chat request for a backend without the native tool API. Pure.

``docs/contracts/adapters.md`` (Tool fallback). The answer's text is never read here: the surface does that, and only on
a run that is marked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from iop.errors import Failure
from iop.model import TEXT_TOOL_FALLBACK

MARK: Final = {TEXT_TOOL_FALLBACK: "true"}
"""The metadata of such a run's START and COMPLETE."""

_INSTRUCTION: Final = """\
# Tools
You may call functions. Available functions, as JSON Schema:
<tools>
%s
</tools>
To call a function, output exactly this and then stop:
<tool_call>
{"name": "<function name>", "arguments": {<arguments as JSON>}}
</tool_call>
Use one <tool_call> block per call; several blocks are allowed. Do not invent results; they will be given to you in
<tool_response> blocks. If no function is needed, answer normally without any <tool_call>."""

_STOP: Final = "</tool_call>"
_MOST_STOPS: Final = 4
"""What backends take as stop strings."""

_TAG: Final = re.compile(r"<(?=\s*/?\s*tool_(?:call|response)\b)", re.IGNORECASE)
_TEXT_PARTS: Final = ("text", "refusal")
_RESULTS: Final = ("tool", "function")


def rewritten(document: dict[str, Any]) -> dict[str, Any]:
    """Return a chat request as one without tools: they are described in the leading system message.

    Earlier calls and results become text, and a developer message a system one, since templates know no other. With
    ``tool_choice: none`` nothing is described. The document given is not changed.

    :raises Failure: ``invalid_value`` for messages or tools that cannot be text.
    """
    messages = document.get("messages")
    if not isinstance(messages, list):
        raise Failure("invalid_value", "messages must be a list", param="messages")
    left_out = ("tools", "tool_choice", "parallel_tool_calls")
    made = {name: value for name, value in document.items() if name not in left_out}
    made["messages"] = list(_as_text(messages))
    instruction = _instruction(document)
    if instruction:
        made["messages"] = _instructed(made["messages"], instruction)
        if document.get("parallel_tool_calls") is False:
            made["stop"] = _stopping(document.get("stop"))
    return made


def describes(document: dict[str, Any]) -> bool:
    """Whether :func:`rewritten` tells the model of tools."""
    return bool(document.get("tools")) and document.get("tool_choice") != "none"


# ---- what the model is told -------------------------------------------------------------------------------------


def _instruction(document: dict[str, Any]) -> str:
    if not describes(document):
        return ""
    tools, choice = document["tools"], document.get("tool_choice")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise Failure("invalid_value", "tools must be a list of objects", param="tools")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        tools, choice = _allowed(tools, choice.get("allowed_tools"))
    lines = [_INSTRUCTION % "\n".join(_json(tool) for tool in tools)]
    if choice in ("required", "any"):
        lines.append("You must call at least one function.")
    elif isinstance(choice, dict):
        lines.append(f"You must call `{_name(choice)}`.")
    if document.get("parallel_tool_calls") is False:
        lines.append("Call at most one function.")
    return "\n".join(lines)


def _allowed(tools: list[Any], choice: Any) -> tuple[list[Any], Any]:
    """Return the tools that a choice of some of them leaves, and how it chooses among these."""
    among = choice.get("tools") if isinstance(choice, dict) else None
    if not isinstance(among, list):
        raise Failure("invalid_value", "allowed_tools must have a list of tools", param="tool_choice")
    names = {_name(tool) for tool in among}
    return [tool for tool in tools if _name(tool) in names], choice.get("mode")


def _name(tool: Any) -> str:
    """Return the name in a tool, or in what stands for one; a flat one too."""
    if not isinstance(tool, dict):
        return ""
    inner = tool.get("function", tool.get("custom"))
    return str((inner if isinstance(inner, dict) else tool).get("name", ""))


def _instructed(messages: list[Any], instruction: str) -> list[Any]:
    first = messages[0] if messages else None
    if not isinstance(first, dict) or first.get("role") != "system":
        return [{"role": "system", "content": instruction}, *messages]
    text = text_of(first.get("content"), "messages[0].content")
    return [{**first, "content": f"{text}\n\n{instruction}" if text else instruction}, *messages[1:]]


def _stopping(stop: Any) -> Any:
    stops = [stop] if isinstance(stop, str) else stop or []
    return [*stops, _STOP] if isinstance(stops, list) and len(stops) < _MOST_STOPS else stop


# ---- what was said so far ---------------------------------------------------------------------------------------


def _as_text(messages: list[Any]) -> Iterator[Any]:
    """Yield the messages as ones without calls and results; results side by side are one message of the user."""
    results: list[str] = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise Failure("invalid_value", "a message must be an object", param=f"messages[{index}]")
        role, where = message.get("role"), f"messages[{index}].content"
        if role in _RESULTS:
            said = _harmless(text_of(message.get("content"), where))
            results.append(f"<tool_response>\n{said}\n</tool_response>")
            continue
        if role == "user":
            yield _asked(message, results)
            results = []
            continue
        if results:
            yield {"role": "user", "content": "\n".join(results)}
            results = []
        if role == "assistant" and (message.get("tool_calls") or message.get("function_call")):
            yield _called(message, where)
        else:
            yield {**message, "role": "system"} if role == "developer" else message
    if results:
        yield {"role": "user", "content": "\n".join(results)}


def _asked(message: dict[str, Any], results: list[str]) -> dict[str, Any]:
    """Return a user's message, after the results right before it: templates want roles to alternate."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": "\n".join([*results, _harmless(content)])}
    if not isinstance(content, list):
        content = []
        if not results:
            return message
    before = [{"type": "text", "text": "\n".join(results)}] if results else []
    return {**message, "content": [*before, *map(_harmless_part, content)]}


def _harmless_part(part: Any) -> Any:
    text = part.get("text") if isinstance(part, dict) else None
    return {**part, "text": _harmless(text)} if isinstance(text, str) else part


def _harmless(text: str) -> str:
    """Break what looks like a call or a result: nobody but the model calls, nobody but the client answers."""
    return _TAG.sub("<\u200b", text)


def _called(message: dict[str, Any], where: str) -> dict[str, Any]:
    calls = message.get("tool_calls") or [{"function": message.get("function_call")}]
    text = text_of(message.get("content"), where)
    rest = {name: value for name, value in message.items() if name not in ("tool_calls", "function_call", "refusal")}
    blocks = map(_block, calls) if isinstance(calls, list) else ()
    return {**rest, "content": "\n".join([text, *blocks] if text else blocks)}


def _block(call: Any) -> str:
    function = call.get("function", call.get("custom")) if isinstance(call, dict) else None
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments", function.get("input"))
    name = _json(function.get("name") or "")
    return f'<tool_call>\n{{"name": {name}, "arguments": {_arguments(arguments)}}}\n</tool_call>'


def _arguments(arguments: Any) -> str:
    """Return a call's arguments as JSON: what is JSON already as it stands, numbers digit for digit."""
    if not isinstance(arguments, str):
        return _json({} if arguments is None else arguments)
    if not arguments.strip():
        return "{}"
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return _json(arguments)
    return _TAG.sub(r"\\u003c", arguments)


def _json(value: Any) -> str:
    """Return JSON that closes none of the blocks it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<tool", r"\u003ctool").replace("</tool", r"\u003c/tool")


def text_of(content: Any, where: str) -> str:
    """Return a content, a string or a list of parts, as one string.

    :param where: the content, for who is told what is wrong with it.
    :raises Failure: ``invalid_value``.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Failure("invalid_value", "content must be a string or a list of parts", param=where)
    return "\n".join(_texts(content, where))


def _texts(parts: Iterable[Any], where: str) -> Iterator[str]:
    for index, part in enumerate(parts):
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get(kind) if kind in _TEXT_PARTS else None
        if not isinstance(text, str):
            raise Failure("invalid_value", "only text can stand here", param=f"{where}[{index}]")
        yield text
