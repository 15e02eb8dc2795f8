"""Asking a backend over HTTP for one run: an attempt, and what asks again before anybody was told of the first."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred

from iop import model as m
from iop.errors import Failure
from iop.http.client import Call
from iop.node.adapters.errors import failure_of

MAX_ERROR: Final = 1 << 20
"""Bytes of an error's body that are read."""

Again = Callable[[Failure], bool]
"""Told how an attempt failed that the sink knows nothing of; answers whether another is made instead."""


class Attempt(ABC):
    """One request's answer on its way to the sink; also what flow control pauses.

    A subclass says what becomes of an answer with a good status, and may read a bad one its own way.
    """

    __slots__ = ("_again", "_collected", "_error_headers", "_sink", "_started", "_status", "call", "done")

    def __init__(self, sink: Any, again: Again | None) -> None:
        self._sink = sink
        self._again = again
        self._status = 0
        self._error_headers: dict[bytes, bytes] = {}
        self._collected = bytearray()
        self._started = False
        self.call: Call | None = None
        self.done: Deferred[None] = Deferred(self._cancelled)

    # ---- what a subclass says

    def _headed(self, headers: list[tuple[bytes, bytes]]) -> None:  # noqa: B027 most have no use for them
        """The answer's headers."""

    @abstractmethod
    def _take(self, data: bytes) -> None:
        """What a read brought of a good answer."""

    @abstractmethod
    def _finish(self) -> None:
        """The body has ended, or all was said."""

    def _refusal(self, status: int, headers: Mapping[bytes, bytes], body: bytes) -> Failure:
        """Return what an answer with another status stands for."""
        return failure_of(status, headers, body)

    @property
    @abstractmethod
    def _all_said(self) -> bool:
        """Whether it does not matter any more how the connection ends."""

    @property
    @abstractmethod
    def usage(self) -> m.Usage | None:
        """What was counted until now."""

    # ---- flow control

    def pause(self) -> None:
        if self.call is not None:
            self.call.pause()

    def resume(self) -> None:
        if self.call is not None:
            self.call.resume()

    def _cancelled(self, _: Deferred[None]) -> None:
        if self.call is not None:
            self.call.cancel()

    # ---- iop.http.client.Answer

    def head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._status = status
        if 200 <= status < 300:
            self._headed(headers)
        else:
            self._error_headers = dict(headers)

    def block(self, data: bytes) -> None:
        if self.done.called:
            return
        if 200 <= self._status < 300:
            self._take(data)
            return
        self._collected += data
        if len(self._collected) > MAX_ERROR:
            self._refused()

    def ended(self) -> None:
        if self.done.called:
            return
        if 200 <= self._status < 300:
            self._finish()
        else:
            self._refused()

    def failed(self, failure: Failure) -> None:
        if self.done.called:
            return
        if self._all_said:
            self._finish()
        elif self._status and not 200 <= self._status < 300:
            self._refused()
        else:
            self._fail(failure)

    # ---- the end

    def _refused(self) -> None:
        self._fail(self._refusal(self._status, self._error_headers, bytes(self._collected)))

    def _fail(self, failure: Failure) -> None:
        if self._started or self._again is None or not self._again(failure):
            self._sink.fail(failure, self.usage)
        self._close(self.call)

    def _too_large(self) -> None:
        self._fail(Failure("answer_too_large", "the answer is larger than the node may put together"))

    def _close(self, call: Call | None) -> None:
        if call is not None:
            call.cancel()
        self.call = None
        if not self.done.called:
            self.done.callback(None)


class TextAttempt(Attempt):
    """An answer that is told as text, reasoning and tool calls.

    :param metadata: goes with its start and its end.
    """

    __slots__ = ("_metadata",)

    def __init__(self, sink: Any, again: Again | None, metadata: Mapping[str, str]) -> None:
        super().__init__(sink, again)
        self._metadata = metadata

    @property
    @abstractmethod
    def _began(self) -> bool:
        """Whether there was anything of an answer yet."""

    def _say(self, pieces: Iterable[tuple[str, str]]) -> None:
        """Tell pieces of text and reasoning; the sink may end the run at each."""
        if self._began and not self._started and not self.done.called:
            self._started = True
            self._sink.start(None, self._metadata)
        for text, reasoning in pieces:
            if not self.done.called:
                self._sink.delta(text=text, reasoning=reasoning)

    def _complete(self, finish_reason: str, usage: m.Usage | None, calls: list[dict[str, Any]]) -> None:
        said = {m.TOOL_CALLS: json.dumps(calls, separators=(",", ":"))} if calls else {}
        self._sink.complete(finish_reason, usage, {**self._metadata, **said})
        self._close(None)


class Attempts:
    """A run's attempts, one after another: to the run they are one source, and one end.

    :param begin: makes the next attempt, its request under way.
    :param refused: whether there is another way to ask, after such a failure.
    """

    __slots__ = ("_begin", "_current", "_more", "_paused", "_refused", "done")

    def __init__(self, begin: Callable[[Again], Attempt], refused: Again) -> None:
        self._begin = begin
        self._refused = refused
        self._current: Attempt | None = None
        self._more = self._paused = False
        self.done: Deferred[None] = Deferred(self._cancelled)

    def start(self) -> None:
        """Make the first; :raises Failure: when there is none to make."""
        self._next()

    @property
    def usage(self) -> m.Usage | None:
        """What the one under way has counted until now."""
        return None if self._current is None else self._current.usage

    def pause(self) -> None:
        self._paused = True
        if self._current is not None:
            self._current.pause()

    def resume(self) -> None:
        self._paused = False
        if self._current is not None:
            self._current.resume()

    def _cancelled(self, _: Deferred[None]) -> None:
        if self._current is not None:
            self._current.done.cancel()

    def _again(self, failure: Failure) -> bool:
        self._more = self._refused(failure)
        return self._more

    def _next(self) -> None:
        self._more = False
        attempt = self._current = self._begin(self._again)
        if self._paused:
            attempt.pause()
        attempt.done.addCallbacks(self._ended, self.done.errback)

    def _ended(self, _: None) -> None:
        if not self._more:
            self.done.callback(None)
            return
        try:
            self._next()
        except Exception:
            self.done.errback()
