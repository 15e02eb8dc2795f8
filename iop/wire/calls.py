"""Questions that wait for an answer: each has a request id, a deadline and a canceller."""

from __future__ import annotations

from itertools import count
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime


class Unanswered(Exception):
    """No answer came: in time, or before the link was lost."""


class Calls:
    """Open questions of one link."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._numbers = count(1)
        self._open: dict[str, Deferred[Any]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def ask(self, timeout: float) -> tuple[str, Deferred[Any]]:
        """Return a new request id and a Deferred of its answer.

        It fails with :class:`Unanswered` after ``timeout`` seconds or with the link.
        """
        request_id = str(next(self._numbers))
        answer: Deferred[Any] = Deferred()
        self._open[request_id] = answer

        def forget(result: Any) -> Any:
            self._open.pop(request_id, None)
            return result

        def late(_: Any, __: float) -> None:
            raise Unanswered(f"no answer within {timeout:g} s")

        answer.addBoth(forget)
        answer.addTimeout(timeout, self._clock, onTimeoutCancel=late)
        return request_id, answer

    def answered(self, request_id: str, answer: Any) -> bool:
        """Hand over an answer; return False when nobody waits for it (any more)."""
        waiting = self._open.pop(request_id, None)
        if waiting is None:
            return False
        waiting.callback(answer)
        return True

    def lost(self) -> None:
        """The link is gone: fail everything that waits."""
        for waiting in list(self._open.values()):
            waiting.errback(Unanswered("the link was lost"))
