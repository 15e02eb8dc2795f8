"""A chat answer read as text, reasoning and tool calls: from a stream, or from one document. Pure."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from iop import model as m
from iop.errors import Failure
from iop.http import sse
from iop.node.adapters.errors import failure_in_stream
from iop.node.adapters.openai_compat.toolcalls import ToolCalls
from iop.node.adapters.openai_compat.watch import usage_of
from iop.node.adapters.pieces import Pieces

_FINISHES: Final = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "function_call": "tool_calls",
    "max_tokens": "length",
    "tool_use": "tool_calls",
}
"""What backends call an ending; any other word is a stop."""

_BROKEN: Final = frozenset({"abort", "error"})


class Piece(NamedTuple):
    """What was said next, on one channel."""

    text: str = ""
    reasoning: str = ""


class Reader:
    """Reads one answer.

    :ivar began: something of an answer came, be it empty.
    :ivar calls: the native tool calls so far.
    :ivar held: bytes that the calls took.
    :ivar failure: what the backend said went wrong, or why it cannot be read.
    """

    __slots__ = ("_channels", "_pieces", "began", "calls", "failure", "finish_reason", "held", "usage")

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._channels = {"text": Pieces(), "reasoning": Pieces()}
        self.began = False
        self.calls = ToolCalls()
        self.held = 0
        self.failure: Failure | None = None
        self.finish_reason = ""
        self.usage: m.Usage | None = None

    def feed(self, events: bytes) -> list[Piece]:
        """Take whole events of a stream; return what they say."""
        for block in sse.blocks(events):
            data = sse.data_of(block)
            if data is not None and data.strip() != b"[DONE]" and self.failure is None:
                self._take(data, "delta")
        return self._said()

    def document(self, body: bytes) -> list[Piece]:
        """Take an answer that is one document, whole; return what it says."""
        self._take(body, "message")
        return [*self._said(), *self.end()]

    def end(self) -> list[Piece]:
        """Nothing more comes: return what was held back."""
        for channel, text in self._channels.items():
            left = text.end()
            if left:
                self._pieces.append(Piece(**{channel: left}))
        return self._said()

    def _said(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def _take(self, data: bytes, member: str) -> None:
        try:
            said = json.loads(data.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            self.failure = Failure("upstream_error", "the backend's answer cannot be read")
            return
        if said.get("error"):
            self.failure = failure_in_stream(said["error"])
            return
        self.usage = usage_of(said.get("usage")) or self.usage
        choices = said.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and not choice.get("index"):
                self.began = True
                self._message(choice.get(member), len(data))
                self._finish(choice.get("finish_reason"))

    def _message(self, said: Any, size: int) -> None:
        if not isinstance(said, dict):
            return
        self._say("reasoning", said.get("reasoning_content") or said.get("reasoning"))
        self._say("text", said.get("content"))
        self._say("text", said.get("refusal"))
        if said.get("tool_calls"):
            self.calls.add(said["tool_calls"])
            self.held += size

    def _finish(self, reason: Any) -> None:
        if not isinstance(reason, str) or not reason:
            return
        if reason in _BROKEN:
            self.failure = Failure("upstream_error", "the backend gave up in the middle of its answer")
        self.finish_reason = _FINISHES.get(reason, "stop")

    def _say(self, channel: str, said: Any) -> None:
        if isinstance(said, list):
            said = "".join(_texts(said))
        if not isinstance(said, str):
            return
        said = self._channels[channel].take(said)
        if not said:
            return
        last = self._pieces[-1] if self._pieces else None
        if last is not None and getattr(last, channel):
            self._pieces[-1] = Piece(**{channel: getattr(last, channel) + said})
        else:
            self._pieces.append(Piece(**{channel: said}))


def _texts(parts: list[Any]) -> list[str]:
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return [text for text in texts if isinstance(text, str)]
