"""Flow control of one run: bytes the node may still send, bytes the edge may ask for again.

``docs/contracts/wire.md`` (Flow control). Units are bytes of ``body``, ``text`` and ``reasoning``.
"""

from __future__ import annotations


class Credit:
    """The node's end: it sends while credit is positive; one event may overdraw it."""

    __slots__ = ("left",)

    def __init__(self, window: int) -> None:
        self.left = window

    def spend(self, size: int) -> bool:
        """Take ``size`` off; return whether the source may go on."""
        self.left -= size
        return self.left > 0

    def add(self, size: int) -> bool:
        """Put ``size`` on; return whether this made credit positive again."""
        was = self.left
        self.left += size
        return was <= 0 < self.left


class Window:
    """The edge's end: gives credit back in steps of a quarter window, so that few frames carry it."""

    __slots__ = ("_step", "_taken")

    def __init__(self, window: int) -> None:
        self._step = max(1, window // 4)
        self._taken = 0

    def taken(self, size: int) -> int:
        """Note that ``size`` more bytes left the edge; return the credit to give back now, often 0."""
        self._taken += size
        if self._taken < self._step:
            return 0
        give, self._taken = self._taken, 0
        return give
