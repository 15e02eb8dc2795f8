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
    """The edge's end: gives credit back in steps of a quarter window, so that few frames carry it.

    :ivar taken: bytes that left the edge and were not given back yet; whoever adds to it calls :meth:`give` when
        ``taken >= step``.
    """

    __slots__ = ("step", "taken")

    def __init__(self, window: int) -> None:
        self.step = max(1, window // 4)
        self.taken = 0

    def give(self) -> int:
        """Return the credit to give back now."""
        credit, self.taken = self.taken, 0
        return credit
