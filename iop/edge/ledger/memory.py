"""A ledger's database in memory: the verified double of the real ones (``tests/contracts/usage_store.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zope.interface import implementer

from iop.edge.ledger.question import MOST_GROUPS, SPANS, Question, Sums
from iop.edge.ledger.row import Row
from iop.interfaces import IUsageStore


@implementer(IUsageStore)
class MemoryStore:
    """Rows in a dictionary.

    :ivar rows: by run id.
    """

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def open(self) -> None:
        """There is nothing to open."""

    def insert(self, rows: Sequence[Row]) -> int:
        """Keep the rows whose run is not there."""
        for row in rows:
            self.rows.setdefault(row.run_id, row)
        return 0

    def sums(self, question: Question) -> list[Sums]:
        """Return the sums of each group."""
        first, last = question.since_ms, question.until_ms
        found: dict[tuple[Any, ...], list[Row]] = {}
        for row in list(self.rows.values()):
            if (first is None or row.at_ms >= first) and (last is None or row.at_ms < last):
                found.setdefault(tuple(_value(row, name) for name in question.by), []).append(row)
        if not question.by:
            found.setdefault((), [])
        return [_sums(group, rows) for group, rows in found.items()][: MOST_GROUPS + 1]

    def close(self) -> None:
        """There is nothing to close."""


def _value(row: Row, name: str) -> Any:
    return row.at_ms // SPANS[name] if name in SPANS else getattr(row, name)


def _sums(group: tuple[Any, ...], rows: Sequence[Row]) -> Sums:
    return Sums(
        group=group,
        runs=len(rows),
        input_tokens=sum(row.input_tokens or 0 for row in rows),
        output_tokens=sum(row.output_tokens or 0 for row in rows),
        cached_tokens=sum(row.cached_tokens or 0 for row in rows),
        reasoning_tokens=sum(row.reasoning_tokens or 0 for row in rows),
        estimated=sum(row.estimated for row in rows),
        queue_ms=sum(row.queue_ms for row in rows),
        answered=sum(row.first_ms is not None for row in rows),
        first_ms=sum(row.first_ms or 0 for row in rows),
        total_ms=sum(row.total_ms for row in rows),
    )
