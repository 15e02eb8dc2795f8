"""A stream put together into the answer that the backend would have given without streaming. Pure.

Some backends (llama.cpp, measured) stop generating within milliseconds when a *streaming* connection closes, and
often not at all when another does; so a non-streaming run is streamed upstream and put together here, field for field.
"""

from __future__ import annotations

import json
from typing import Any

from iop.errors import Failure
from iop.http import sse
from iop.node.adapters.openai_compat.toolcalls import ToolCalls


class Assembly:
    """A chat completion made of chunks, in the order they came.

    :param no_content: what the backend says in a message without text (one that calls tools, say): null, or nothing.
    """

    __slots__ = ("_choices", "_no_content", "_top")

    def __init__(self, no_content: str | None = None) -> None:
        self._no_content = no_content
        self._top: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    def feed(self, data: bytes) -> Failure | None:
        """Take whole events; return why they cannot be put together, if they cannot."""
        for block in sse.blocks(data):
            said = sse.data_of(block)
            if said is not None and said.strip() != b"[DONE]":
                try:
                    self.add(json.loads(said))
                except (ValueError, TypeError, AttributeError, RecursionError):
                    return Failure("upstream_error", "the backend's stream cannot be put together")
        return None

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

    @property
    def whole(self) -> bool:
        """Whether a choice came, and each came to its end."""
        return bool(self._choices) and all(choice.get("finish_reason") for choice in self._choices.values())

    def document(self) -> dict[str, Any]:
        """Return the whole answer."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        for choice in choices:
            message = choice["message"]
            message.update({key: _joined(value) for key, value in message.items()})
        return {"object": "chat.completion", **self._top, "choices": choices}


class _Pieces(list[str]):
    """A text that grows: joined once, at the end."""


def _grown(had: str | _Pieces, piece: str) -> _Pieces:
    pieces = had if isinstance(had, _Pieces) else _Pieces([had])
    pieces.append(piece)
    return pieces


def _joined(value: Any) -> Any:
    if isinstance(value, ToolCalls):
        return value.whole()
    return "".join(value) if isinstance(value, _Pieces) else value


def _merge_message(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for key, value in delta.items():
        if key == "tool_calls":
            if value:
                message.setdefault(key, ToolCalls()).add(value)
        elif key == "role":
            message[key] = value or message[key]
        elif isinstance(value, str) and isinstance(message.get(key), (str, _Pieces)):
            message[key] = _grown(message[key], value)
        elif isinstance(value, list) and isinstance(message.get(key), list):
            message[key] += value
        elif value is not None or key not in message:
            message[key] = value


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
