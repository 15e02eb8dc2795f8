"""Text that comes in pieces, as JSON strings that may each hold half of a character. Pure."""

from __future__ import annotations

from iop.wire.frames import clean_text


class Pieces:
    """The pieces of one text; a pair of surrogates that is cut between two of them is joined."""

    __slots__ = ("_half",)

    def __init__(self) -> None:
        self._half = ""

    def take(self, piece: str) -> str:
        """Return what is whole of the next piece and of what was held back; a half without its other is U+FFFD."""
        if not piece:
            return ""
        if piece.isascii():
            if self._half:
                piece, self._half = f"\ufffd{piece}", ""
            return piece
        piece = self._half + piece
        half = "\ud800" <= piece[-1] <= "\udbff"
        self._half = piece[-1] if half else ""
        return clean_text(piece[:-1] if half else piece)

    def end(self) -> str:
        """Nothing more comes: return what was held back."""
        half, self._half = self._half, ""
        return "\ufffd" if half else ""
