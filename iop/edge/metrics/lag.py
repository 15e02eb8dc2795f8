"""How late the timers of an event loop are: what every stream of the edge waits for when something holds it up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.application.service import Service
from twisted.internet.interfaces import IDelayedCall, IReactorTime

INTERVAL: Final = 0.25
"""Seconds between two looks."""


class Lag(Service):
    """Sets a timer again and again and tells how many seconds late it was."""

    def __init__(self, clock: IReactorTime, late: Callable[[float], None]) -> None:
        self._clock = clock
        self._late = late
        self._call: IDelayedCall | None = None
        self._due = 0.0

    def startService(self) -> None:
        super().startService()
        self._again()

    def stopService(self) -> None:
        super().stopService()
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _again(self) -> None:
        self._due = self._clock.seconds() + INTERVAL
        self._call = self._clock.callLater(INTERVAL, self._look)

    def _look(self) -> None:
        self._late(max(0.0, self._clock.seconds() - self._due))  # a clock may be set back
        self._again()
