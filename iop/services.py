"""What a tree of services is built from: an ordered parent, a deadline sweep, something that happens once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure as TwistedFailure

NEVER = float("inf")


class Latch:
    """Something that happens once; whoever waits has a Deferred of their own."""

    def __init__(self) -> None:
        self.happened = False
        self._waiting: list[Deferred[None]] = []

    def wait(self) -> Deferred[None]:
        """Return a Deferred that fires when it has happened; cancelling it is no one else's loss."""
        if self.happened:
            return succeed(None)
        waiting: Deferred[None] = Deferred(lambda d: self._waiting.remove(d))
        self._waiting.append(waiting)
        return waiting

    def fire(self) -> None:
        """It happens. A second time is nothing."""
        self.happened = True
        while self._waiting:
            self._waiting.pop(0).callback(None)


class Due(Protocol):
    """Something with a deadline, in the clock's seconds; :data:`NEVER` for none now."""

    deadline: float

    def expired(self) -> None:
        """The deadline has passed."""


class Sweep:
    """Watches many deadlines with one timer.

    A delayed call per request and per chunk would cost more than parsing the request; a deadline here is an
    attribute that its owner moves freely, looked at every ``interval`` seconds. So it fires late by up to that.
    """

    log = Logger()

    def __init__(self, clock: IReactorTime, interval: float = 0.25) -> None:
        self._clock = clock
        self._interval = interval
        self._watched: dict[int, Due] = {}
        self._call: IDelayedCall | None = None

    def __len__(self) -> int:
        return len(self._watched)

    def add(self, one: Due) -> None:
        """Watch it until it is discarded."""
        self._watched[id(one)] = one
        if self._call is None:
            self._call = self._clock.callLater(self._interval, self._look)

    def discard(self, one: Due) -> None:
        """Watch it no more."""
        self._watched.pop(id(one), None)
        if not self._watched and self._call is not None:
            self._call.cancel()
            self._call = None

    def _look(self) -> None:
        self._call = None
        now = self._clock.seconds()
        for one in [one for one in self._watched.values() if one.deadline <= now]:
            if id(one) not in self._watched:
                continue
            try:
                one.expired()
            except Exception:  # the others' deadlines hold all the same
                self.log.failure("a deadline could not be kept")
        if self._watched and self._call is None:
            self._call = self._clock.callLater(self._interval, self._look)


class Drain:
    """Waits until work has ended, or time is up, or somebody is in a hurry."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._hurry = Latch()

    def hurry(self) -> None:
        """Wait no longer, now and in future."""
        self._hurry.fire()

    def wait(self, idle: Callable[[], bool], seconds: float, interval: float = 0.05) -> Deferred[bool]:
        """Return a Deferred of whether ``idle()`` came true within ``seconds``."""
        until = self._clock.seconds() + seconds
        next_look: IDelayedCall | None = None

        def look() -> None:
            nonlocal next_look
            if idle():
                done.callback(True)
            elif self._hurry.happened or self._clock.seconds() >= until:
                done.callback(False)
            else:
                next_look = self._clock.callLater(interval, look)

        def cancelled(_: Deferred[bool]) -> None:
            if next_look is not None:
                next_look.cancel()

        done: Deferred[bool] = Deferred(cancelled)
        look()
        return done


class OrderedServices(Service):
    """Starts its children in order and stops them in reverse, one at a time, waiting for each.

    The stock ``MultiService`` stops all at once and does not wait for a child's ``startService``. A child whose
    start fails stops the whole: ``failed`` is called with the reason, after those already up are down again.
    """

    log = Logger()

    def __init__(self, children: Iterable[Service], failed: Callable[[BaseException], None]) -> None:
        self._children = list(children)
        self._failed = failed
        self._up: list[Service] = []
        self._stopping: Latch | None = None
        self.ready = Latch()

    def startService(self) -> None:
        """Start the children; readiness and failure come later (:attr:`ready`, ``failed``)."""
        super().startService()
        Deferred.fromCoroutine(self._start()).addErrback(self._not_started)

    def _not_started(self, reason: TwistedFailure) -> None:
        assert reason.value is not None
        self._failed(reason.value)

    async def _start(self) -> None:
        for child in self._children:
            self._up.append(child)
            try:
                await maybeDeferred(child.startService)
            except BaseException:
                if not self.running:  # it was told to stop before it was up, and that is how it says so
                    return
                self._up.pop()
                await self._stop()
                raise
            if not self.running:
                return
        self.ready.fire()

    def stopService(self) -> Deferred[None]:
        """Stop what is up, last started first; the Deferred holds the reactor open."""
        super().stopService()
        return self._stop()

    def _stop(self) -> Deferred[None]:
        stopping = self._stopping
        if stopping is None:
            stopping = self._stopping = Latch()
            Deferred.fromCoroutine(self._stop_all(stopping))
        return stopping.wait()

    async def _stop_all(self, done: Latch) -> None:
        while self._up:
            child = self._up.pop()
            try:
                await maybeDeferred(child.stopService)
            except Exception:
                self.log.failure("{child} did not stop cleanly", child=type(child).__name__)
        self._stopping = None
        done.fire()
