"""Answers that pass through: looked at a block at a time, never taken apart per token. Pure.

A :class:`Stream` forwards whole events only, so that a break never leaves half of one with a client; takes usage and
the ending; drops what would break an SDK. A :class:`Whole` takes usage from the tail of one JSON document.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from iop import model as m
from iop.errors import Failure
from iop.http import sse
from iop.node.adapters.errors import failure_in_stream

LONGEST_EVENT: Final = 8 << 20
_TAIL: Final = 64 << 10
_LONGEST_USAGE: Final = 4 << 10
_DECODER: Final = json.JSONDecoder()

_USAGE: Final = re.compile(rb'"usage"\s*:\s*\{')
_ERROR_DOCUMENT: Final = re.compile(rb'\{\s*"error"\s*:\s*(?!null)\S')
_SAYS_ERROR: Final = re.compile(rb'"error"\s*:\s*(?!null)\S')

_MARKS: Final = (b'"finish_reason":"', b'"finish_reason": "', b"data: [DONE]", b"[]")
"""What makes a block worth a look; ``[]`` stands for a chunk without choices."""

_NULLABLE: Final = (
    (b'"usage"', re.compile(rb'"usage"\s*:\s*(?!null)\S')),
    (b'"error"', _SAYS_ERROR),
)
"""The same, unless null follows."""


def usage_of(said: Any) -> m.Usage | None:
    """Return a ``usage`` object as tokens: of chat and its kin, of the Responses API, or of the Messages API."""
    if not isinstance(said, dict):
        return None
    if "input_tokens" in said or "output_tokens" in said:
        return _usage_of_input(said)
    prompt, completion = said.get("prompt_tokens_details"), said.get("completion_tokens_details")
    return m.Usage(
        _count(said.get("prompt_tokens")),
        _count(said.get("completion_tokens")),
        _count(prompt.get("cached_tokens")) if isinstance(prompt, dict) else None,
        _count(completion.get("reasoning_tokens")) if isinstance(completion, dict) else None,
    )


def _usage_of_input(said: dict[str, Any]) -> m.Usage:
    """The same of the younger APIs. The Messages API counts what was cached beside the input, not as a part of it."""
    given, cached = said.get("input_tokens_details"), _count(said.get("cache_read_input_tokens"))
    made, tokens = said.get("output_tokens_details"), _count(said.get("input_tokens"))
    if cached is None:
        cached = _count(given.get("cached_tokens")) if isinstance(given, dict) else None
    elif tokens is not None:
        tokens += cached + (_count(said.get("cache_creation_input_tokens")) or 0)
    reasoning = _count(made.get("reasoning_tokens")) if isinstance(made, dict) else None
    return m.Usage(tokens, _count(said.get("output_tokens")), cached, reasoning)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 1 << 63 and not isinstance(value, bool) else None


class Stream:
    """A chat completion stream on its way through.

    :param strip_usage: the client did not ask for usage: it sees no usage and no chunk without choices.
    :ivar failure: what the backend said went wrong; nothing after it is forwarded.
    """

    __slots__ = ("_carry", "_counted", "_events", "_strip", "done", "failure", "finish_reason")

    def __init__(self, strip_usage: bool = False) -> None:
        self._strip = strip_usage
        self._carry = bytearray()
        self._counted: m.Usage | None = None
        self._events = 0
        self.done = False
        self.failure: Failure | None = None
        self.finish_reason = ""

    @property
    def usage(self) -> m.Usage | None:
        """What the backend counted; until it has, as many tokens of output as there were events, and none of input."""
        if self._counted is not None or not self._events:
            return self._counted
        return m.Usage(None, self._events)

    def feed(self, data: bytes) -> bytes:
        """Take what a read brought; return what goes on to the client, often the same bytes."""
        if self._carry:
            data = self._complete_carry(data)
        elif not data.endswith(b"\n\n"):
            end = sse.whole(data)
            self._carry += data[end:]
            data = data[:end]
        plain = self._plain(data) if data and not self.done else 0
        if plain == len(data):
            return data
        return data[:plain] + b"".join(map(self._block, sse.blocks(data[plain:])))

    def _plain(self, data: bytes) -> int:
        """Return how many bytes of whole blocks are nothing but pieces of an answer: for nearly every read, all.

        One search per mark over the whole read, which costs 0.1 µs a token; a JSON parser would cost 10.
        """
        end = len(data)
        for mark in _MARKS:
            at = data.find(mark, 0, end)
            if at >= 0:
                end = at
        for mark, says in _NULLABLE:
            if data.find(mark, 0, end) >= 0:
                match = says.search(data, 0, end + len(mark))
                end = min(end, match.start()) if match is not None else end
        if end != len(data):
            end = data.rfind(b"\n\n", 0, end) + 2
            if end == 1:
                return 0
        events = data.count(b"\n\n", 0, end)
        framed = data.startswith(b"data: {") and events == data.count(b"\n\ndata: {", 0, end) + 1
        if not framed or data.find(b"\r", 0, end) >= 0:
            return 0
        self._events += events
        return end

    def _complete_carry(self, data: bytes) -> bytes:
        """Add to the event that is not whole yet; return what is whole now. A long event is searched once."""
        carry = self._carry
        searched = max(0, len(carry) - 3)
        carry += data
        end = sse.whole(carry, searched)
        whole = bytes(carry[:end])
        del carry[:end]
        if len(carry) > LONGEST_EVENT:
            self.failure = Failure("upstream_error", "the backend sent an event without an end")
            carry.clear()
        return whole

    def end(self, framed: bool) -> bytes:
        """The body has ended; return what is left for the client. A stream without an ending becomes a failure.

        :param framed: whether HTTP itself says that the body is whole; one that ends with its connection may be cut
            anywhere, so that it needs its ``[DONE]``.
        """
        left = b""
        if self._carry.strip():
            rest = bytes(self._carry)
            self._carry.clear()
            left = self._block(rest.rstrip(b"\r\n") + b"\n\n") if _complete(rest) else b""
        if self.failure is None and not self.done:
            left += self._last(framed)
        return left

    def _last(self, framed: bool) -> bytes:
        """Nothing said that the answer is whole: return what says so, or see that it is not."""
        if not self.finish_reason or not framed:
            self.failure = Failure("upstream_error", "the backend's stream ended before its answer did")
            return b""
        self.done = True
        return sse.DONE

    def _block(self, block: bytes) -> bytes:
        if self.done or self.failure is not None:
            return b""
        data = sse.data_of(block)
        if data is None:
            return b""
        if data.strip() == b"[DONE]":
            self.done = True
            return sse.DONE
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            return block
        return self._chunk(chunk, block) if isinstance(chunk, dict) else block

    def _chunk(self, chunk: dict[str, Any], block: bytes) -> bytes:
        error = chunk.get("error")
        if error:
            self.failure = failure_in_stream(error)
            return b""
        usage = usage_of(chunk.get("usage"))
        self._counted = usage or self._counted
        choices, finished = chunk.get("choices"), self.finish_reason
        for choice in choices if isinstance(choices, list) else ():
            reason = choice.get("finish_reason") if isinstance(choice, dict) else None
            self.finish_reason = reason if isinstance(reason, str) and reason else self.finish_reason
        self._events += bool(choices) and usage is None and self.finish_reason == finished
        if not self._strip:
            return block
        if choices == []:
            return b""
        if usage is not None:
            del chunk["usage"]
            return sse.event(chunk)
        return block


def _complete(block: bytes) -> bool:
    """Whether a last block without its blank line is whole all the same."""
    data = sse.data_of(block)
    if data is None or data.strip() == b"[DONE]":
        return True
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


class EventStream(Stream):
    """A stream of the Responses or of the Messages API on its way through: each event says what it is."""

    __slots__ = ("_begun",)

    _marks: tuple[bytes, ...] = (
        b"response.completed",
        b"response.incomplete",
        b"response.failed",
        b"message_st",  # both its start and its stop
        b"message_delta",
        b'"error"',
    )

    def __init__(self) -> None:
        super().__init__()
        self._begun = m.Usage()  # what a message's start counted: the input; its output is yet to come

    def _plain(self, data: bytes) -> int:
        if any(mark in data for mark in self._marks):
            return 0
        self._events += data.count(b"\n\n")
        return len(data)

    def _chunk(self, chunk: dict[str, Any], block: bytes) -> bytes:
        kind = chunk.get("type")
        if kind == "error":
            self.failure = failure_in_stream(chunk.get("error") or chunk)
            return b""
        response, message = chunk.get("response"), chunk.get("message")
        if kind == "message_start" and isinstance(message, dict):
            self._begun = usage_of(message.get("usage")) or self._begun
        elif kind == "message_delta":
            self._count(usage_of(chunk.get("usage")))
        elif kind in _ENDS and isinstance(response, dict):
            self._count(usage_of(response.get("usage")))
        else:
            self._events += 1
        if kind == "response.failed":
            self.failure = failure_in_stream(response.get("error") if isinstance(response, dict) else None)
            return b""
        self.done = kind in _ENDS or kind == "message_stop"
        return block

    def _count(self, usage: m.Usage | None) -> None:
        """Take what an end counted, and the rest from the start."""
        if usage is not None:
            whole = [was if now is None else now for was, now in zip(self._begun, usage, strict=True)]
            self._counted = m.Usage(*whole)

    def _last(self, framed: bool) -> bytes:
        self.failure = Failure("upstream_error", "the backend's stream ended before its answer did")
        return b""


_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


class OpaqueStream(Stream):
    """A stream of an API that nobody here knows: HTTP alone says where it ends."""

    __slots__ = ()

    def _plain(self, data: bytes) -> int:
        return len(data)

    def _last(self, framed: bool) -> bytes:
        if framed:
            self.done = True
        else:
            self.failure = Failure("upstream_error", "the backend closed the connection in the middle of its answer")
        return b""


def stream_of(path: str, *, strip_usage: bool) -> Stream:
    """Return what watches a stream that answers a request at a path."""
    if path in ("/v1/chat/completions", "/v1/completions"):
        return Stream(strip_usage)
    return EventStream() if path in ("/v1/responses", "/v1/messages") else OpaqueStream()


class Whole:
    """One JSON document on its way through.

    :ivar failure: at the :meth:`end`, what the document says went wrong.
    """

    __slots__ = ("_begun", "_is_error", "_is_object", "_tail", "failure", "finish_reason")

    def __init__(self) -> None:
        self._begun = self._is_error = self._is_object = False
        self._tail = b""
        self.failure: Failure | None = None
        self.finish_reason = ""

    def feed(self, data: bytes) -> bytes:
        """Take what a read brought; return it, unless the document is an error under status 200."""
        if not self._begun:
            start = (self._tail + data[:_TAIL]).lstrip()[:64]
            self._is_object = start[:1] == b"{"
            self._begun = len(start) == 64 or start[:1] not in (b"", b"{")
            self._is_error = _ERROR_DOCUMENT.match(start) is not None
        self._tail = (self._tail + data)[-_TAIL:] if self._tail else data[-_TAIL:]
        return b"" if self._is_error else data

    def end(self, framed: bool) -> bytes:
        """The body has ended; nothing is left for the client. See :meth:`Stream.end` for ``framed``."""
        if self._is_error:
            self.failure = _failure_in(self._tail)
        elif not framed and self._is_object and not self._tail.rstrip().endswith(b"}"):
            self.failure = Failure("upstream_error", "the backend closed the connection in the middle of its answer")
        return b""

    @property
    def usage(self) -> m.Usage | None:
        """What the document says of tokens: the last ``usage`` object in its tail."""
        tail = self._tail
        at = tail.rfind(b'"usage"')
        while at >= 0:
            begin = _USAGE.match(tail, at)
            if begin is not None:
                text = tail[begin.end() - 1 : begin.end() + _LONGEST_USAGE].decode("utf-8", "replace")
                try:
                    return usage_of(_DECODER.raw_decode(text)[0])
                except (ValueError, RecursionError):
                    pass
            at = tail.rfind(b'"usage"', 0, at)
        return None


def _failure_in(data: bytes) -> Failure:
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        said = None
    return failure_in_stream(said.get("error") if isinstance(said, dict) else None)
