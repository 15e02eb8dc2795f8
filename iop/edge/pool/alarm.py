"""One timer for everything that is due some time. Pure: time is an argument.

Times are whole milliseconds, so that the simulator's clock and a reactor's agree on what is due at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that will be made."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time, as Twisted's ``IReactorTime`` has it."""

    def seconds(self) -> float: ...

    def callLater(self, delay: float, callable: Callable[[], None], /) -> Timer: ...


class Alarm:
    """Calls ``ring`` when the first thing is due; too early is no harm, and it is set again then."""

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._set: tuple[int, Timer] | None = None

    def now(self) -> int:
        """In milliseconds of the clock."""
        return round(self._clock.seconds() * 1000)

    def at(self, due: int) -> None:
        """Something is due."""
        if self._set is not None:
            if self._set[0] <= due:
                return
            self._set[1].cancel()
        self._set = due, self._clock.callLater(max(0, due - self.now()) / 1000, self._call)

    def off(self) -> None:
        """Nothing is due any more."""
        if self._set is not None:
            self._set[1].cancel()
            self._set = None

    def _call(self) -> None:
        self._set = None
        self._ring()
