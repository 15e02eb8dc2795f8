"""A provider that cannot be connected to is left alone for a while, then one run tries it. Pure.

``docs/contracts/pool.md`` (Failover). Times are milliseconds of one clock.
"""

from __future__ import annotations

from typing import Final

IN_A_ROW: Final = 3
FIRST_MS: Final = 1_000
LONGEST_MS: Final = 30_000


class Connecting:
    """How connecting to one provider went lately.

    :ivar until: when it may be tried again; None while nothing keeps runs away.
    :ivar on_trial: it was away, and the next run shows whether it is back.
    """

    __slots__ = ("_delay", "_failures", "_probe_out", "on_trial", "until")

    def __init__(self) -> None:
        self._failures = 0
        self._delay = 0
        self._probe_out = False
        self.on_trial = False
        self.until: int | None = None

    @property
    def shut(self) -> bool:
        """Whether no run may go there at the moment."""
        return self.until is not None

    @property
    def why_not(self) -> str:
        """In a word; "" when a run may go there."""
        if self.until is not None:
            return "not_connecting"
        return "on_trial" if self._probe_out else ""

    def sent(self) -> bool:
        """A run goes there: whether it is the one that tries."""
        if self.on_trial:
            self._probe_out = True
        return self.on_trial

    def failed(self, probe: bool, now: int) -> bool:
        """A run could not connect: whether that shuts it until :attr:`until`."""
        if self.until is not None or (self.on_trial and not probe):
            return False  # it left before the ones that shut it
        self._failures += 1
        if not probe and self._failures < IN_A_ROW:
            return False
        self._delay = min(2 * self._delay, LONGEST_MS) or FIRST_MS
        self.until = now + self._delay
        self.on_trial = self._probe_out = False
        return True

    def reached(self, probe: bool) -> bool:
        """A run got an answer, whatever it was: whether that ends a trial."""
        if not probe and (self.until is not None or self.on_trial):
            return False
        self._failures = 0
        if probe:
            self.clear()
        return probe

    def returned(self, probe: bool) -> bool:
        """A run ended and showed nothing: whether another one may try now."""
        if probe:
            self._probe_out = False
        return probe

    def try_again(self) -> None:
        """The time has come: one run may try."""
        self.until, self.on_trial, self._probe_out = None, True, False

    def clear(self) -> None:
        """It connects: forget everything."""
        self._failures = self._delay = 0
        self.until, self.on_trial, self._probe_out = None, False, False
