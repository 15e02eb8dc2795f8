"""A lease: the right to a slot, from admission to the end of its run. ``docs/contracts/pool.md`` (Leases). Pure."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from iop.edge.pool.admission import Group, Resource


class Verdict(Enum):
    """What a run's end says of its provider."""

    SERVED = "the answer was whole"
    REACHED = "the backend answered, with an error"
    UNREACHED = "the backend could not be connected to"
    UNCONFIRMED = "it was cancelled and never ended"
    NOTHING = "nothing"


class Lease:
    """The right to one slot, and to one long slot if ``long``, from admission until it is released.

    :param since: when it was taken, in ms.
    :param released: called when it is.
    :ivar target: what the provider is asked for.
    :ivar trial: the number of the trial of a provider that could not be connected to, which this run is; 0 for none.
    """

    __slots__ = ("_released", "group", "held", "long", "resource", "since", "target", "trial")

    def __init__(
        self, resource: Resource, group: Group, long: bool, since: int, released: Callable[[Lease, Verdict], None]
    ) -> None:
        self.resource = resource
        self.group = group
        self.target = group.targets[resource.provider_id]
        self.long = long
        self.since = since
        self.trial = resource.connecting.sent()
        self.held = True
        self._released = released
        resource.in_flight += 1
        resource.long_in_flight += long

    def release(self, verdict: Verdict = Verdict.NOTHING) -> None:
        """Give the slot back; a second time is nothing."""
        if self.held:
            self.held = False
            self.resource.in_flight -= 1
            self.resource.long_in_flight -= self.long
            self._released(self, verdict)
