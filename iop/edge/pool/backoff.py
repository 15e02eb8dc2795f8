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

    __slots__ = ("_delay", "_failures", "_probe_out", "_trial", "on_trial", "until")

    def __init__(self) -> None:
        self._failures = 0
        self._delay = 0
        self._trial = 1
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

    def sent(self) -> int:
        """A run goes there: return the number of the trial that it is, 0 for none."""
        if not self.on_trial:
            return 0
        self._probe_out = True
        return self._trial

    def failed(self, trial: int, now: int) -> bool:
        """A run could not connect: whether that shuts it until :attr:`until`."""
        if self._is_news(trial):
            self._failures += 1
            if trial or self._failures >= IN_A_ROW:
                self._delay = min(2 * self._delay, LONGEST_MS) or FIRST_MS
                self.until = now + self._delay
                self.on_trial = self._probe_out = False
                return True
        return False

    def reached(self, trial: int) -> bool:
        """A run got an answer, whatever it was: whether that ends a trial."""
        if not self._is_news(trial):
            return False
        self._failures = 0
        if trial:
            self.clear()
        return trial > 0

    def returned(self, trial: int) -> None:
        """A run ended and showed nothing: another one may try now."""
        if trial and self._is_news(trial):
            self._probe_out = False

    def try_again(self) -> None:
        """The time has come: one run may try."""
        self._trial += 1
        self.until, self.on_trial, self._probe_out = None, True, False

    def clear(self) -> None:
        """It connects: forget everything."""
        self._trial += 1
        self._failures = self._delay = 0
        self.until, self.on_trial, self._probe_out = None, False, False

    def _is_news(self, trial: int) -> bool:
        """Whether a run shows how it is now: of a trial the one that goes on, else one that nothing has overtaken."""
        if trial:
            return self.on_trial and trial == self._trial
        return self.until is None and not self.on_trial
