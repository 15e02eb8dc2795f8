"""Runs as the pool sees them: they keep what they are told."""

from __future__ import annotations

from itertools import count
from typing import Any

from iop.edge.pool.lease import Lease, Verdict
from iop.edge.pool.pool import Pool
from iop.edge.pool.queue import Claim
from iop.errors import Failure

_grants = count(1)


class Asked(Claim):
    """A run that keeps what it is told.

    :ivar lease: what it holds, or held last.
    :ivar failure: why it got none.
    :ivar served: the place of its newest grant in the order of all.
    """

    def __init__(self, model: str = "m", tokens: int = 10, *, exact: bool = True) -> None:
        super().__init__(model, tokens, exact=exact)
        self.lease: Lease | None = None
        self.failure: Failure | None = None
        self.grants = self.served = 0

    def granted(self, lease: Lease) -> None:
        assert self.failure is None
        assert self.lease is None or not self.lease.held
        self.lease = lease
        self.grants += 1
        self.served = next(_grants)

    def refused(self, failure: Failure) -> None:
        assert self.failure is None
        self.failure = failure

    @property
    def provider(self) -> str | None:
        """The provider it holds a slot of, or held last."""
        return None if self.lease is None else self.lease.resource.provider_id

    @property
    def code(self) -> str | None:
        """Of its refusal."""
        return None if self.failure is None else self.failure.code

    @property
    def waiting(self) -> bool:
        return self.lane is not None

    def end(self, verdict: Verdict = Verdict.SERVED) -> None:
        """Its answer is whole, or it ended otherwise."""
        assert self.lease is not None
        self.lease.release(verdict)


def ask(pool: Pool, model: str = "m", tokens: int = 10, **how: Any) -> Asked:
    """Return a run that has arrived; one that is refused at once keeps why."""
    claim = Asked(model, tokens, **how)
    try:
        lease = pool.admit(claim)
    except Failure as failure:
        claim.refused(failure)
        return claim
    if lease is not None:
        claim.granted(lease)
    return claim


def check(pool: Pool, claims: list[Asked]) -> None:
    """What holds after every step, whatever happened (``docs/contracts/pool.md``, Leases and Queue)."""
    for resource in pool.resources.values():
        held = [c.lease for c in claims if c.lease is not None and c.lease.held and c.lease.resource is resource]
        assert resource.in_flight == len(held)
        assert resource.long_in_flight == sum(lease.long for lease in held)
    for group in pool.groups.values():
        assert group.candidates == {each.provider_id for each in group.resources if each.candidate}
        assert group.with_long_slots == {r.provider_id for r in group.resources if r.enabled and r.long_capacity}
    for model in {claim.model for claim in claims if claim.served}:
        newest = max((claim for claim in claims if claim.model == model), key=lambda claim: claim.served)
        assert pool.last[model] == newest.provider, "whose turn it was is forgotten"
    waiting = [claim for claim in claims if claim.waiting]
    assert sorted(claim.seq for claim in pool.queue) == sorted(claim.seq for claim in waiting)
    assert pool.queue.size == len(waiting)
    for lane in pool.queue.lanes():
        places = [claim.seq for claim in lane.claims.values()]
        assert places == sorted(places), "somebody stands before an older one"
    for claim in waiting:
        assert claim.failure is None
        assert claim.lease is None or not claim.lease.held
        for resource in pool.groups[claim.model].resources:
            free = resource.candidate and not resource.why_not(claim.long)
            assert not free or resource.provider_id in claim.ruled_out, "a run waits that could run"
