"""What became of runs: the newest of them, for whoever asks why one went where it went. Pure.

``docs/contracts/console.md`` (Runs). Nothing of a request or an answer is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from iop.edge.pool.admission import Considered, Resource, why_passed_over
from iop.edge.pool.queue import Attempted, Claim, Decided

KEPT: Final = 4096
"""Ended runs that are remembered."""


class Record(NamedTuple):
    """One run, ended or not. Times are milliseconds of the pool's clock, but for ``came``.

    :ivar came: when it arrived, in seconds since 1970.
    :ivar queued: how long it has waited.
    :ivar ended: when it ended; None while it goes on.
    """

    id: str
    request_id: str
    model: str
    tokens: int
    long: bool
    came: float
    arrived: int
    queued: int
    ended: int | None
    outcome: str
    trail: Sequence[Decided | Attempted]

    def as_document(self, now: int) -> dict[str, Any]:
        """As ``iop-edge run explain`` prints it; times in it count from the arrival."""
        return {
            "id": self.id,
            "request_id": self.request_id,
            "model": self.model,
            "tokens": self.tokens,
            "long": self.long,
            "arrived": self.came,
            "outcome": self.outcome,
            "queued_ms": self.queued,
            "total_ms": (now if self.ended is None else self.ended) - self.arrived,
            "steps": [self._step(step) for step in self.trail],
            "attempts": list(self._attempts()),
        }

    def _step(self, step: Decided | Attempted) -> dict[str, Any]:
        at = step.at - self.arrived
        if isinstance(step, Attempted):
            return {"at_ms": at, "step": "ended", "provider": _name(step.resource), "outcome": step.outcome}
        chosen = next((each for each in step.considered if each[0] is step.chosen), None)
        return {
            "at_ms": at,
            "step": "dispatched" if chosen is not None else "waits",
            "provider": _name(step.chosen),
            "considered": [_considered(each, chosen) for each in step.considered],
        }

    def _attempts(self) -> Iterator[dict[str, Any]]:
        """Each time it was sent somewhere."""
        sent: Decided | None = None
        for step in self.trail:
            if isinstance(step, Decided):
                sent = step if step.chosen is not None else sent
            elif sent is not None:
                yield self._attempt(sent, step)
                sent = None
        if sent is not None:
            yield self._attempt(sent, None)

    def _attempt(self, sent: Decided, ended: Attempted | None) -> dict[str, Any]:
        return {
            "provider": _name(sent.chosen),
            "dispatched_ms": sent.at - self.arrived,
            "ended_ms": None if ended is None else ended.at - self.arrived,
            "outcome": "running" if ended is None else ended.outcome,
        }


class Records:
    """The newest runs that have ended."""

    def __init__(self) -> None:
        self._ended: OrderedDict[str, Record] = OrderedDict()

    def keep(self, record: Record) -> None:
        """Remember a run; the oldest is forgotten for it."""
        self._ended[record.id] = record
        if len(self._ended) > KEPT:
            self._ended.popitem(last=False)

    def find(self, id: str) -> Record | None:
        """Return a run by its own id, or the newest one of a request."""
        found = self._ended.get(id)
        if found is None and id:
            found = next((each for each in reversed(self._ended.values()) if each.request_id == id), None)
        return found


def record_of(
    claim: Claim, id: str, request_id: str, now: int, wall: float, *, outcome: str = "", ended: bool = True
) -> Record:
    """Return what there is to say of a run.

    :param wall: the time, in seconds since 1970, at ``now``.
    """
    waiting = claim.lane is not None
    return Record(
        id,
        request_id,
        claim.model,
        claim.tokens,
        claim.long,
        wall - (now - claim.arrived) / 1000,
        claim.arrived,
        claim.waited + (now - claim.since if waiting else 0),
        now if ended else None,
        outcome or ("waiting" if waiting else "running"),
        claim.trail,
    )


def _name(resource: Resource | None) -> str | None:
    return None if resource is None else resource.name


def _considered(each: Considered, chosen: Considered | None) -> dict[str, Any]:
    resource, in_flight, priority, why = each
    return {
        "provider": resource.name,
        "in_flight": in_flight,
        "priority": priority,
        "passed_over": (why or "not_its_turn") if chosen is None else why_passed_over(each, chosen),
    }
