"""What a link writes in one turn of the reactor leaves together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from iop.sockets import send_now

MOST_FRAMES: Final = 16
"""Frames that wait for the turn's end: the other side is to begin with the first while the last is made."""

MOST_BYTES: Final = 1 << 16
"""Bytes of them."""


class Outbox:
    """Frames for one transport.

    All runs of a node share its link, so a busy turn has frames of many: one ``send`` for them costs what it costs for
    one. In a quiet turn the only frame leaves as the turn ends, which is at once.

    :param at_turn_end: has something called before the reactor waits again
        (:meth:`iop.reactor.LeanReactor.at_turn_end`); None: nothing waits.
    :ivar size: bytes that wait here.
    """

    __slots__ = ("_at_turn_end", "_frames", "_transport", "size")

    def __init__(self, transport: Any, at_turn_end: Callable[[Callable[[], None]], None] | None) -> None:
        self._transport = transport
        self._at_turn_end = at_turn_end
        self._frames: list[bytes] = []
        self.size = 0

    def write(self, frame: bytes) -> None:
        """Write a frame, in its turn."""
        frames = self._frames
        if not frames:
            if self._at_turn_end is None or len(frame) >= MOST_BYTES:
                send_now(self._transport, frame)
                return
            self._at_turn_end(self.flush)
        frames.append(frame)
        self.size += len(frame)
        if self.size >= MOST_BYTES or len(frames) == MOST_FRAMES:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        frames = self._frames
        if frames:
            self._frames, self.size = [], 0
            send_now(self._transport, frames[0] if len(frames) == 1 else b"".join(frames))

    def clear(self) -> None:
        """Nobody will read what waits."""
        self._frames, self.size = [], 0
