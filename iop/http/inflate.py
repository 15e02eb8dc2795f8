"""gzip and deflate undone a piece at a time, so that nobody gets more than asked for. No I/O."""

from __future__ import annotations

import zlib
from typing import Final

from iop.errors import Failure

CODINGS: Final = frozenset({b"gzip", b"x-gzip", b"deflate"})
PIECE: Final = 256 << 10


class Inflate:
    """One body in one of :data:`CODINGS`."""

    def __init__(self) -> None:
        self._stream = _stream()
        self._begun = False

    @property
    def whole(self) -> bool:
        """Whether the body may end here."""
        return self._stream.eof or not self._begun

    def take(self, data: bytes) -> tuple[bytes, bytes | None]:
        """Return at most :data:`PIECE` bytes of what ``data`` holds, and what is to be taken next; None for nothing.

        :raises Failure: ``upstream_error`` for damaged data.
        """
        if self._stream.eof:  # another member follows (RFC 1952 2.2)
            self._stream = _stream()
        self._begun = self._begun or bool(data)
        try:
            made = self._stream.decompress(data, PIECE)
        except zlib.error:
            raise Failure("upstream_error", "the backend's compressed answer is damaged") from None
        rest = self._stream.unconsumed_tail or self._stream.unused_data
        return made, rest if rest or (len(made) == PIECE and not self._stream.eof) else None


def _stream() -> zlib._Decompress:
    return zlib.decompressobj(zlib.MAX_WBITS | 32)  # by its header, gzip or zlib
