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
from iop.node.adapters.openai_compat.errors import failure_in_stream

LONGEST_EVENT: Final = 8 << 20
_TAIL: Final = 64 << 10

_USAGE: Final = re.compile(rb'"usage"\s*:\s*\{')
_SAYS_USAGE: Final = re.compile(rb'"usage"\s*:\s*(?!null)')
_SAYS_ERROR: Final = re.compile(rb'"error"\s*:\s*(?!null)')


def usage_of(said: Any) -> m.Usage | None:
    """Return a ``usage`` object of the OpenAI API as tokens."""
    if not isinstance(said, dict):
        return None
    prompt, completion = said.get("prompt_tokens_details"), said.get("completion_tokens_details")
    return m.Usage(
        _count(said.get("prompt_tokens")),
        _count(said.get("completion_tokens")),
        _count(prompt.get("cached_tokens")) if isinstance(prompt, dict) else None,
        _count(completion.get("reasoning_tokens")) if isinstance(completion, dict) else None,
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 1 << 63 and not isinstance(value, bool) else None


class Stream:
    """A chat completion stream on its way through.

    :param strip_usage: the client did not ask for usage: it sees no usage and no chunk without choices.
    :ivar failure: what the backend said went wrong; nothing after it is forwarded.
    """

    __slots__ = ("_carry", "_strip", "done", "failure", "finish_reason", "usage")

    def __init__(self, strip_usage: bool) -> None:
        self._strip = strip_usage
        self._carry = b""
        self.done = False
        self.failure: Failure | None = None
        self.finish_reason = ""
        self.usage: m.Usage | None = None

    def feed(self, data: bytes) -> bytes:
        """Take what a read brought; return what goes on to the client, often the same bytes."""
        if self._carry:
            data = self._carry + data
            self._carry = b""
        end = sse.whole(data)
        if end != len(data):
            data, self._carry = data[:end], data[end:]
            if len(self._carry) > LONGEST_EVENT:
                self.failure = Failure("upstream_error", "the backend sent an event without an end")
                self._carry = b""
        if not data or _plain(data):
            return data
        return b"".join(map(self._block, sse.blocks(data)))

    def end(self) -> bytes:
        """The body has ended; return what is left for the client. A stream without an ending becomes a failure."""
        left = b""
        if self._carry.strip():
            rest, self._carry = self._carry, b""
            left = self._block(rest.rstrip(b"\r\n") + b"\n\n") if _complete(rest) else b""
        if self.failure is None and not self.done:
            if not self.finish_reason:
                self.failure = Failure("upstream_error", "the backend's stream ended before its answer did")
            else:
                self.done = True
                left += sse.DONE
        return left

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
        except ValueError:
            return block
        return self._chunk(chunk, block) if isinstance(chunk, dict) else block

    def _chunk(self, chunk: dict[str, Any], block: bytes) -> bytes:
        error = chunk.get("error")
        if error:
            self.failure = failure_in_stream(error)
            return b""
        usage = usage_of(chunk.get("usage"))
        self.usage = usage or self.usage
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            reason = choice.get("finish_reason") if isinstance(choice, dict) else None
            self.finish_reason = reason if isinstance(reason, str) and reason else self.finish_reason
        if not self._strip:
            return block
        if choices == []:
            return b""
        if usage is not None:
            del chunk["usage"]
            return sse.event(chunk)
        return block


def _plain(data: bytes) -> bool:
    """Whether whole blocks hold nothing but pieces of an answer: the case of nearly every read."""
    return (
        data.startswith(b"data:")
        and b'"finish_reason":"' not in data
        and b"[DONE]" not in data
        and b'"finish_reason": "' not in data
        and data.count(b"\n\n") == data.count(b"\n\ndata: {") + 1
        and b"\r" not in data
        and not (b'"usage"' in data and _SAYS_USAGE.search(data))
        and not (b'"error"' in data and _SAYS_ERROR.search(data))
        and not (b'"choices":[]' in data or b'"choices": []' in data)
    )


def _complete(block: bytes) -> bool:
    """Whether a last block without its blank line is whole all the same."""
    data = sse.data_of(block)
    if data is None or data.strip() == b"[DONE]":
        return True
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


class Whole:
    """One JSON document on its way through."""

    __slots__ = ("_begun", "_tail", "failure")

    def __init__(self) -> None:
        self._begun = False
        self._tail = b""
        self.failure: Failure | None = None

    def feed(self, data: bytes) -> bytes:
        """Take what a read brought; return it, unless the document is an error under status 200."""
        self._tail = (self._tail + data)[-_TAIL:] if self._tail else data[-_TAIL:]
        if not self._begun:
            self._begun = True
            start = data.lstrip()[:64]
            if start.startswith(b"{") and start[1:].lstrip().startswith(b'"error"') and _SAYS_ERROR.search(start):
                self.failure = _failure_in(data)
        return b"" if self.failure is not None else data

    @property
    def usage(self) -> m.Usage | None:
        """What the document says of tokens."""
        for match in reversed(list(_USAGE.finditer(self._tail))):
            text = self._tail[match.end() - 1 :].decode("utf-8", "replace")
            try:
                return usage_of(json.JSONDecoder().raw_decode(text)[0])
            except ValueError:
                continue
        return None


def _failure_in(data: bytes) -> Failure:
    try:
        said = json.loads(data)
    except ValueError:
        said = None
    return failure_in_stream(said.get("error") if isinstance(said, dict) else None)
