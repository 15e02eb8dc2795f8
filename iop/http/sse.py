"""Server-sent events as bytes: where one ends, what it holds, how one is written. WHATWG HTML 9.2.

A *block* is what stands between blank lines. No I/O.
"""

from __future__ import annotations

import re
from typing import Any, Final

from iop.document import compact

DONE: Final = b"data: [DONE]\n\n"

_END: Final = re.compile(rb"(?>\r\n|\n|\r){2}")  # atomic: a CRLF is one line end, not two
_LINE: Final = re.compile(rb"\r\n|\n|\r")


def event(document: Any, name: str = "") -> bytes:
    """Return an event whose data is ``document`` as JSON; ``name`` is its type, one word, "" for none."""
    head = f"event: {name}\ndata: ".encode() if name else b"data: "
    return head + compact(document) + b"\n\n"


def comment(text: str) -> bytes:
    """Return a comment block: keeps proxies awake, and no client sees it."""
    return f": {text}\n\n".encode()


def whole(data: bytes | bytearray, start: int = 0) -> int:
    """Return how many leading bytes of ``data`` are whole blocks; no block ends before ``start``."""
    if data.endswith((b"\n\n", b"\r\n\r\n")):
        return len(data)
    if b"\r" not in data:  # nearly always; a regular expression would cost more than all else on this path
        at = data.rfind(b"\n\n", start)
        return at + 2 if at >= 0 else 0
    end = 0
    for match in _END.finditer(data, start):
        if match.end() != len(data) or not data.endswith(b"\r"):  # else a LF may follow, and be part of it
            end = match.end()
    return end


def blocks(data: bytes) -> list[bytes]:
    """Cut whole blocks apart; each keeps its blank line."""
    found, start = [], 0
    for match in _END.finditer(data):
        found.append(data[start : match.end()])
        start = match.end()
    if start < len(data):
        found.append(data[start:])
    return found


def data_of(block: bytes) -> bytes | None:
    """Return a block's data, its ``data`` lines joined; None for one that dispatches nothing."""
    lines = [line[5:].removeprefix(b" ") for line in _LINE.split(block) if line.startswith(b"data:")]
    return b"\n".join(lines) or None
