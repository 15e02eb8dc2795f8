"""The story of a run, for whoever asks why it went where it went. Pure.

``docs/contracts/console.md`` (Runs). Nothing of a request or an answer is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from iop.edge.pool.admission import Considered, Resource, why_passed_over
from iop.edge.pool.queue import Attempted, Decided, Lane, Routed, Step


class Told(Protocol):
    """A run, as far as its story goes. Times are milliseconds of the pool's clock.

    :ivar outcome: how it ended; "" while it goes on.
    :ivar ended_at: when; 0 while it goes on.
    """

    id: str
    request_id: str
    model: str
    tokens: int
    long: bool
    arrived: int
    since: int
    waited: int
    lane: Lane | None
    outcome: str
    ended_at: int
    trail: list[Step]


class Story:
    """One run's, ended or not, as it is now.

    :param now: in ms of the pool's clock, which a reactor counts from 1970.
    """

    def __init__(self, run: Told, now: int) -> None:
        self._run = run
        self._now = now

    def as_document(self) -> dict[str, Any]:
        """As ``iop-edge run explain`` prints it; times in it count from the arrival."""
        run, waiting = self._run, self._run.lane is not None
        return {
            "id": run.id,
            "request_id": run.request_id,
            "model": run.model,
            "tokens": run.tokens,
            "long": run.long,
            "arrived": run.arrived / 1000,
            "outcome": run.outcome if run.ended_at else "waiting" if waiting else "running",
            "queued_ms": run.waited + (self._now - run.since if waiting else 0),
            "total_ms": (run.ended_at or self._now) - run.arrived,
            "steps": [self._step(step) for step in run.trail],
            "attempts": list(self._attempts()),
        }

    def _step(self, step: Step) -> dict[str, Any]:
        at = step.at - self._run.arrived
        if isinstance(step, Attempted):
            return {"at_ms": at, "step": "ended", "provider": step.name, "outcome": step.outcome}
        if isinstance(step, Routed):
            return {"at_ms": at, "step": "dispatched", "provider": step.name, "considered": []}
        chosen = next((each for each in step.considered if each[0] is step.chosen), None)
        return {
            "at_ms": at,
            "step": "dispatched" if chosen is not None else "waits",
            "provider": _name(step.chosen),
            "considered": [_considered(each, chosen) for each in step.considered],
        }

    def _attempts(self) -> Iterator[dict[str, Any]]:
        """Each time it was sent somewhere."""
        sent: Decided | Routed | None = None
        for step in self._run.trail:
            if isinstance(step, Routed) or (isinstance(step, Decided) and step.chosen is not None):
                sent = step
            elif isinstance(step, Attempted) and sent is not None:
                yield self._attempt(sent, step)
                sent = None
        if sent is not None:
            yield self._attempt(sent, None)

    def _attempt(self, sent: Decided | Routed, ended: Attempted | None) -> dict[str, Any]:
        return {
            "provider": sent.name if isinstance(sent, Routed) else _name(sent.chosen),
            "dispatched_ms": sent.at - self._run.arrived,
            "ended_ms": None if ended is None else ended.at - self._run.arrived,
            "outcome": "running" if ended is None else ended.outcome,
        }


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
