"""A chat request as an agent's prompt. Pure.

An agent with a session of its own gets the last turn, any other the whole conversation as plain text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from iop.errors import Failure, printable
from iop.wire.frames import clean_text

_INSTRUCTIONS: Final = "System"
_TOOL: Final = "Tool result"

_HEADINGS: Final[Mapping[str, str]] = {
    "system": _INSTRUCTIONS,
    "developer": _INSTRUCTIONS,
    "user": "User",
    "assistant": "Assistant",
    "tool": _TOOL,
    "function": _TOOL,
}
_TEXT_PARTS: Final = {"text": "text", "refusal": "refusal"}


class _Turn(NamedTuple):
    """A message: who speaks and what."""

    heading: str
    text: str
    about: str = ""


def render(document: Mapping[str, Any], *, whole: bool) -> str:
    """Return the prompt of a chat request.

    :param whole: the whole conversation, instructions first, roles as headings (a lone user message is just its
        text); else what came after the agent's last answer.
    :raises Failure: ``invalid_value`` for what an agent cannot be told, and for a prompt without any words.
    """
    messages = document.get("messages")
    if not isinstance(messages, list):
        raise _wrong("`messages` must be a list", "messages")
    turns = _turns(messages if whole else messages[_last_turn(messages) :], 0 if whole else _last_turn(messages))
    if whole:
        turns.sort(key=lambda turn: turn.heading != _INSTRUCTIONS)  # stable: each in its order
    else:
        turns = [turn for turn in turns if turn.heading in ("User", _TOOL)]
    turns = [turn for turn in turns if turn.text.strip()]
    if not any(turn.heading != _INSTRUCTIONS for turn in turns):
        raise _wrong("the conversation has nothing to answer: its messages are empty", "messages")
    if all(turn.heading == "User" for turn in turns) and (not whole or len(turns) == 1):
        return clean_text("\n\n".join(turn.text for turn in turns))
    return clean_text("\n\n".join(f"{turn.heading}{turn.about}:\n{turn.text}" for turn in turns))


def _last_turn(messages: list[Any]) -> int:
    """Return where the last turn begins: after the last answer that something follows."""
    begin = len(messages)
    spoken = False
    while begin > 0:
        role = _role(messages[begin - 1])
        if role == "assistant" and spoken:
            break
        spoken = spoken or role in ("user", "tool", "function")
        begin -= 1
    return begin


def _turns(messages: list[Any], first: int) -> list[_Turn]:
    names: dict[str, str] = {}
    turns = []
    for index, message in enumerate(messages, first):
        where = f"messages[{index}]"
        if not isinstance(message, dict):
            raise _wrong(f"`{where}` must be an object", where)
        heading = _HEADINGS.get(_role(message))
        if heading is None:
            raise _wrong(f"`{where}.role` is no role that is known", f"{where}.role")
        text, about = _content(message, f"{where}.content"), ""
        if heading == "Assistant":
            text = "\n".join(filter(None, [text, *_calls(message, names)]))
        elif heading == _TOOL:
            id = message.get("tool_call_id")
            name = message.get("name") or (names.get(id) if isinstance(id, str) else None)
            about = f" of {printable(name)}" if isinstance(name, str) else ""
            text = text or "(empty)"
        turns.append(_Turn(heading, text, about))
    return turns


def _role(message: Any) -> str:
    role = message.get("role") if isinstance(message, dict) else None
    return role if isinstance(role, str) else ""


def _content(message: Mapping[str, Any], where: str) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_part(part, f"{where}[{index}]") for index, part in enumerate(content))
    if content is not None or message.get("role") == "user":
        raise _wrong(f"`{where}` must be text, or a list of parts", where)
    refusal = message.get("refusal")
    return refusal if isinstance(refusal, str) else ""


def _part(part: Any, where: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    key = _TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    if key is None:
        named = f" of type `{printable(kind[:40])}`" if isinstance(kind, str) else ""
        raise _wrong(f"`{where}` is a part{named}, and this model takes text only", where)
    text = part.get(key)
    if not isinstance(text, str):
        raise _wrong(f"`{where}.{key}` must be text", where)
    return text


def _calls(message: Mapping[str, Any], names: dict[str, str]) -> Iterable[str]:
    """Yield the tools that an answer called, and remember their names for the results."""
    calls = message.get("tool_calls")
    made = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    for call in [*made, {"function": message.get("function_call")}]:
        function = call.get("function") or call.get("custom")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            continue
        name, id = function["name"], call.get("id")
        arguments = function.get("arguments", function.get("input", ""))
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        if isinstance(id, str):
            names[id] = name
        yield f"[called {printable(name)} with {arguments or '{}'}]"


def _wrong(message: str, param: str) -> Failure:
    return Failure("invalid_value", message, param=param)
