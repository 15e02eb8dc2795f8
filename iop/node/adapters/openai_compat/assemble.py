"""A stream put together into the answer that the backend would have given without streaming. Pure.

Some backends (llama.cpp, measured) stop generating within milliseconds when a *streaming* connection closes, and
often not at all when another does; so a non-streaming run is streamed upstream and put together here, field for field.
"""

from __future__ import annotations

import json
from typing import Any


class Assembly:
    """A chat completion made of chunks, in the order they came.

    :param no_content: what the backend says in a message without text (one that calls tools, say): null, or nothing.
    """

    __slots__ = ("_choices", "_no_content", "_top")

    def __init__(self, no_content: str | None = None) -> None:
        self._no_content = no_content
        self._top: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    def add(self, chunk: dict[str, Any]) -> None:
        """Take a chunk."""
        for key, value in chunk.items():
            if key == "object":
                self._top[key] = "chat.completion"
            elif key != "choices" and (value is not None or key not in self._top):
                self._top[key] = value
        choices = chunk.get("choices")
        for part in choices if isinstance(choices, list) else ():
            if isinstance(part, dict):
                self._choice(part)

    def _choice(self, part: dict[str, Any]) -> None:
        index = part.get("index")
        index = index if isinstance(index, int) else 0
        choice = self._choices.get(index)
        if choice is None:
            message = {"role": "assistant", "content": self._no_content}
            choice = self._choices[index] = {"index": index, "message": message}
        delta = part.get("delta")
        if isinstance(delta, dict):
            _merge_message(choice["message"], delta)
        for key, value in part.items():
            if key == "logprobs":
                _merge_logprobs(choice, value)
            elif key not in ("index", "delta") and (value is not None or key not in choice):
                choice[key] = value

    def document(self) -> dict[str, Any]:
        """Return the whole answer."""
        for choice in self._choices.values():
            calls = choice["message"].get("tool_calls")
            if calls:
                choice["message"]["tool_calls"] = [_without_index(call) for call in calls]
        made = {"object": "chat.completion", **self._top}
        made["choices"] = [self._choices[index] for index in sorted(self._choices)]
        return made


def _merge_message(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for key, value in delta.items():
        if key == "tool_calls":
            for call in value if isinstance(value, list) else ():
                if isinstance(call, dict):
                    _merge_call(message.setdefault("tool_calls", []), call)
        elif key == "role":
            message[key] = value or message[key]
        elif (isinstance(value, str) and isinstance(message.get(key), str)) or (
            isinstance(value, list) and isinstance(message.get(key), list)
        ):
            message[key] += value
        elif value is not None or key not in message:
            message[key] = value


def _merge_call(calls: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """Only arguments are appended; id, type and name are set once."""
    index = part.get("index")
    call = next((call for call in calls if call.get("index") == index), None) if index is not None else None
    if call is None:
        call = {"index": index if index is not None else len(calls), "function": {"name": "", "arguments": ""}}
        calls.append(call)
    for key, value in part.items():
        if key == "function" and isinstance(value, dict):
            function = call["function"]
            function["name"] = function["name"] or value.get("name") or ""
            arguments = value.get("arguments") or ""
            function["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)
        elif key != "index" and value is not None and not call.get(key):
            call[key] = value


def _without_index(call: dict[str, Any]) -> dict[str, Any]:
    function = {**call["function"], "arguments": call["function"]["arguments"] or "{}"}
    rest = {key: value for key, value in call.items() if key not in ("index", "function")}
    return {"type": "function", "function": function, **rest}


def _merge_logprobs(choice: dict[str, Any], part: Any) -> None:
    had = choice.get("logprobs")
    if not isinstance(part, dict):
        choice.setdefault("logprobs", part)
    elif not isinstance(had, dict):
        choice["logprobs"] = {k: list(v) if isinstance(v, list) else v for k, v in part.items()}
    else:
        for key, value in part.items():
            if isinstance(value, list) and isinstance(had.get(key), list):
                had[key] += value
            elif value is not None or key not in had:
                had[key] = value
