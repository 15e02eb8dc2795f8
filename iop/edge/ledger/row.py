"""One row of the ledger, and its line in the spool. Pure.

Texts and numbers are made such that every database takes them: a row that none takes would block all behind it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from iop.document import compact
from iop.edge.record import Record

LONGEST: Final = 400
"""Characters of one text."""

LARGEST: Final = 10**12
"""Of one number that is summed: a million of the largest still fit 64 bits."""

_LATEST: Final = 253_402_300_799_999  # the year 9999 ends


class Row(NamedTuple):
    """One finished run, as the columns of the table ``iop_usage``.

    :ivar at_ms: when it ended, in milliseconds since 1970.
    :ivar provider: the last it was sent to; "" for a run that went to none.
    :ivar input_tokens: None where nobody counted; the same of the others.
    :ivar cached_tokens: part of the input; ``reasoning_tokens`` are part of the output.
    :ivar estimated: 1 where the edge had to guess a count, else 0.
    :ivar first_ms: until the first piece of the answer; None where none came.
    """

    run_id: str
    at_ms: int
    surface: str
    operation: str
    token_ref: str
    principal_ref: str
    principal_alias: str
    model: str
    provider: str
    outcome: str
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None
    estimated: int
    queue_ms: int
    first_ms: int | None
    total_ms: int

    def line(self) -> bytes:
        """Return its line in the spool."""
        return compact(self._asdict()) + b"\n"


COLUMNS: Final = Row._fields
"""The names of its columns, in the order of the table."""

_TEXTS: Final = frozenset(
    ("run_id", "surface", "operation", "token_ref", "principal_ref", "principal_alias", "model", "provider", "outcome")
)
_OPTIONAL: Final = frozenset(("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "first_ms"))


def of_record(record: Record) -> Row:
    """Return what is kept of a request."""
    usage = record.usage
    return Row(
        _text(record.run_id),
        min(max(round(record.at * 1000), 0), _LATEST),
        _text(record.surface),
        _text(record.operation),
        _text(record.token_ref),
        _text(record.principal_ref),
        _text(record.principal_alias),
        _text(record.model),
        _text(record.provider),
        _text(record.outcome),
        _optional(usage.input_tokens),
        _optional(usage.output_tokens),
        _optional(usage.cached_input_tokens),
        _optional(usage.reasoning_tokens),
        int(record.estimated),
        _number(record.queue_ms),
        _optional(record.first_ms),
        _number(record.total_ms),
    )


def of_line(line: bytes) -> Row | None:
    """Read a line of the spool; None for one that is none, such as one that was being written at a crash."""
    try:
        found = json.loads(line)
        if not isinstance(found, Mapping) or not isinstance(found["run_id"], str) or not found["run_id"]:
            return None
        at_ms = min(max(int(found["at_ms"]), 0), _LATEST)
        values = {name: _value(name, found.get(name)) for name in COLUMNS}
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return Row(**{**values, "at_ms": at_ms})


def _value(name: str, found: Any) -> Any:
    if name in _TEXTS:
        return _text(str(found or ""))
    return _optional(found) if name in _OPTIONAL else _number(found or 0)


def _text(words: str) -> str:
    if words.isascii() and words.isprintable() and len(words) <= LONGEST:
        return words
    return words[:LONGEST].encode("utf-8", "replace").decode().replace("\0", "?")


def _number(number: Any) -> int:
    return min(max(int(number), 0), LARGEST)


def _optional(number: Any) -> int | None:
    return None if number is None else _number(number)
