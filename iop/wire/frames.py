"""What fits into a frame, and how longer things are cut so that they fit.

Sizes are bytes and come from ``docs/contracts/wire.md`` (Framing). No I/O.
"""

from __future__ import annotations

from collections.abc import Iterator

MAX_FRAME = 1 << 20
"""The longest frame of a registered link."""

MAX_FRAME_UNREGISTERED = 64 << 10
"""The longest frame of a stranger."""

PART = 256 << 10
"""Where ``body``, ``text``, ``reasoning`` and a run's input are cut."""


def parts(data: bytes) -> Iterator[bytes]:
    """Cut ``data`` into pieces of at most :data:`PART`; a short one comes back as it is."""
    if len(data) <= PART:
        yield data
        return
    for start in range(0, len(data), PART):
        yield data[start : start + PART]


def text_parts(text: str) -> Iterator[str]:
    """Cut ``text`` into pieces of at most :data:`PART` bytes of UTF-8, never inside a character.

    A long one is made clean first (:func:`clean_text`): a cut must not part a pair of surrogates.
    """
    if len(text) * 4 <= PART:
        yield text
        return
    encoded = clean_text(text).encode()
    start = 0
    while start < len(encoded):
        end = min(start + PART, len(encoded))
        while end < len(encoded) and encoded[end] & 0xC0 == 0x80:
            end -= 1
        yield encoded[start:end].decode()
        start = end


def clean_text(text: str) -> str:
    """Return ``text`` as UTF-8 can carry it: split surrogate pairs joined, lone surrogates as U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
