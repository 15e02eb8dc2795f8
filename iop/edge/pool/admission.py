"""Which provider serves a run: the decision alone. ``docs/contracts/pool.md`` (Admission). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iop.model import Health


@dataclass(slots=True)
class Resource:
    """A provider as the pool counts it; every model group that names it shares these slots.

    :ivar long_capacity: how many slots may be long; shown, and not counted yet.
    :ivar reachable: its node is registered, has acknowledged its payload and is not draining.
    :ivar cancel_patience: seconds until a cancelled run without an end counts as lost.
    :ivar unconfirmed: a cancelled run of it never ended; cleared by its next good run.
    """

    node_id: str
    provider_id: str
    adapter: str
    capacity: int
    long_capacity: int = 0
    priority: int = 0
    enabled: bool = True
    reachable: bool = False
    health: Health = Health.UNKNOWN
    unconfirmed: bool = False
    cancel_patience: float = 10.0
    in_flight: int = 0

    @property
    def candidate(self) -> bool:
        """Whether it may serve at all."""
        return self.enabled and self.reachable and self.health is not Health.DOWN

    @property
    def free(self) -> bool:
        """Whether it may serve one more now."""
        return self.in_flight < self.capacity


def choose(candidates: Sequence[Resource], order: Sequence[str], last: str | None) -> Resource | None:
    """Return the one to dispatch to, or None when none is free.

    Lowest ``in_flight``, then lowest ``priority`` number, then round robin: the first after ``last`` (a provider id)
    in ``order``, the group's own list, cyclic.
    """
    free = [resource for resource in candidates if resource.free]
    if len(free) < 2:
        return free[0] if free else None
    best = min((resource.in_flight, resource.priority) for resource in free)
    equal = {r.provider_id: r for r in free if (r.in_flight, r.priority) == best}
    start = order.index(last) + 1 if last in order else 0
    return next(equal[id] for id in (*order[start:], *order[:start]) if id in equal)
