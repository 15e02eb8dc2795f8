"""Threads of the ledger's own: a database that hangs holds up nobody else's work, nor the end of the process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Any, Final, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool


class Elsewhere(Protocol):
    """Calls functions elsewhere, one at a time and in order."""

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """Return a Deferred of what the function returns. One that is cancelled before its turn is not called."""

    def stop(self) -> None:
        """End it; what hangs is left behind."""


class _Pool(ThreadPool):
    """One thread, which a process that ends does not wait for."""

    threadFactory: Any = staticmethod(partial(Thread, daemon=True))


class OneThread:
    """Calls functions in a thread of its own, one at a time and in order. It begins with the first.

    :param reactor: hears the results.
    :param name: of the thread.
    """

    def __init__(self, reactor: Any, name: str) -> None:
        self._reactor = reactor
        self._pool: Final = _Pool(0, 1, name)
        self._busy = 0

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """Return a Deferred of what the function returns. One that is cancelled before its turn is not called."""
        if not self._pool.started:
            self._pool.start()
        given_up = False

        def call() -> Any:
            if given_up:
                raise CancelledError
            return function(*arguments)

        def ended(result: Any) -> Any:
            nonlocal given_up
            given_up = True
            return result

        self._busy += 1
        working = deferToThreadPool(self._reactor, self._pool, self._counted, call)
        return working.addBoth(ended)

    def _counted(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        finally:
            self._reactor.callFromThread(self._one_less)

    def _one_less(self) -> None:
        self._busy -= 1

    def stop(self) -> None:
        """End the thread; one that hangs is left to the end of the process."""
        if self._pool.started and not self._busy:
            self._pool.stop()
