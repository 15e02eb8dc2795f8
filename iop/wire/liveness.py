"""Whether the other end still lives: when to ask, when to give up.

``docs/contracts/wire.md`` (Liveness and loss): ask after a silence of one heartbeat; three unanswered close.
"""

from __future__ import annotations

from enum import Enum

PATIENCE = 3
"""How many questions in a row may stay unanswered."""


class Check(Enum):
    """What a look at the clock asks for."""

    FINE = "fine"
    ASK = "ask"
    LOST = "lost"


class Liveness:
    """Counts silence in heartbeats. Any byte heard clears it."""

    __slots__ = ("_asked", "_heard")

    def __init__(self) -> None:
        self._heard = True
        self._asked = 0

    def heard(self) -> None:
        """Bytes came."""
        self._heard = True

    def beat(self) -> Check:
        """Called once a heartbeat."""
        if self._heard:
            self._heard = False
            self._asked = 0
            return Check.FINE
        if self._asked == PATIENCE:
            return Check.LOST
        self._asked += 1
        return Check.ASK
