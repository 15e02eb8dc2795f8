"""The queue: pending runs in order of arrival, kept by what they wait for. Pure.

Runs of one model, one length class and the same providers ruled out wait for the same slots, so only the oldest of
them is ever looked at. ``docs/contracts/pool.md`` (Queue). Times are milliseconds of the pool's clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

from iop.edge.pool.admission import Considered, Group, Resource
from iop.edge.pool.lease import Lease
from iop.errors import Failure

NOBODY: Final[frozenset[str]] = frozenset()
"""No provider."""


class Decided(NamedTuple):
    """A look at the providers: how each stood, and the one that was taken, or None."""

    at: int
    considered: list[Considered]
    chosen: Resource | None


class Routed(NamedTuple):
    """A run was sent where an older route leads, past the pool."""

    at: int
    node: str
    adapter: str

    @property
    def name(self) -> str:
        """As people and documents write it."""
        return f"{self.node}/{self.adapter}"


class Attempted(NamedTuple):
    """An attempt's end: where it was, and "complete", "cancelled" or the code of its failure, with its HTTP status."""

    at: int
    node: str
    provider: str
    outcome: str
    status: int = 0

    @property
    def name(self) -> str:
        """As people and documents write it."""
        return f"{self.node}/{self.provider}"


Step = Decided | Routed | Attempted


class Claim(ABC):
    """A run's standing with the pool, from its arrival on: what it asks for, and how long it has waited.

    Whoever runs it is told what becomes of a wait by :meth:`granted` or :meth:`refused`.

    :param tokens: of its input; ``exact`` ones are counted, others estimated.
    :ivar seq: its place in the order of arrival.
    :ivar arrived: when it came.
    :ivar since: when its present wait began; ``waited`` is how long those before it took together.
    :ivar long: whether it counts as long.
    :ivar tried: providers it was sent to in vain.
    :ivar ruled_out: providers it may not go to: those, and the ones that :meth:`unfit` names.
    :ivar first_failure: how the first of these failed.
    :ivar lane: where it waits; None while it does not. ``deadline`` is when that must end, if it must.
    :ivar trail: what the pool decided and what came of it, for ``iop-edge run explain``.
    """

    __slots__ = (
        "arrived",
        "deadline",
        "exact",
        "first_failure",
        "lane",
        "long",
        "model",
        "ruled_out",
        "seq",
        "since",
        "tokens",
        "trail",
        "tried",
        "waited",
    )

    def __init__(self, model: str, tokens: int, *, exact: bool = False) -> None:
        self.model = model
        self.tokens = tokens
        self.exact = exact
        self.seq = 0
        self.arrived = 0
        self.since = 0
        self.waited = 0
        self.long = False
        self.tried = self.ruled_out = NOBODY
        self.first_failure: Failure | None = None
        self.lane: Lane | None = None
        self.deadline = 0
        self.trail: list[Step] = []

    def unfit(self, group: Group) -> frozenset[str]:
        """Return the providers of its model that cannot serve it whatever happens; :raises Failure: where none can.

        Asked whenever it is judged: a refresh may have put others into the group.
        """
        return NOBODY

    @abstractmethod
    def granted(self, lease: Lease) -> None:
        """Its wait is over: it holds this."""

    @abstractmethod
    def refused(self, failure: Failure) -> None:
        """Its wait is over: it gets no slot."""


class Lane:
    """Pending runs that wait for the same slots, oldest first.

    :ivar bare_since: since when no provider of theirs is a candidate; None while one is.
    """

    __slots__ = ("bare_since", "claims", "long", "model", "ruled_out")

    def __init__(self, model: str, long: bool, ruled_out: frozenset[str]) -> None:
        self.model = model
        self.long = long
        self.ruled_out = ruled_out
        self.claims: OrderedDict[int, Claim] = OrderedDict()
        self.bare_since: int | None = None

    @property
    def first(self) -> Claim:
        """The oldest; there is one."""
        return next(iter(self.claims.values()))

    def _add(self, claim: Claim) -> None:
        """Last, unless it was running in between: then where its arrival puts it."""
        late = bool(self.claims) and claim.seq < next(reversed(self.claims))
        self.claims[claim.seq] = claim
        if late:
            self.claims = OrderedDict(sorted(self.claims.items()))


class Queue:
    """Every pending run of an edge.

    :ivar size: how many there are.
    """

    def __init__(self) -> None:
        self._lanes: dict[str, dict[tuple[bool, frozenset[str]], Lane]] = {}
        self._deadlines: list[tuple[int, int, Claim]] = []
        self.size = 0

    def __iter__(self) -> Iterator[Claim]:
        """From the oldest."""
        everyone = [claim for lane in self.lanes() for claim in lane.claims.values()]
        return iter(sorted(everyone, key=lambda claim: claim.seq))

    def lanes(self) -> Iterable[Lane]:
        """Every lane; none is empty."""
        return [lane for of_model in self._lanes.values() for lane in of_model.values()]

    def lanes_of(self, model: str) -> Collection[Lane]:
        """The lanes of a model."""
        of_model = self._lanes.get(model)
        return () if of_model is None else of_model.values()

    def add(self, claim: Claim) -> Lane:
        """Let a run wait; return where."""
        of_model = self._lanes.setdefault(claim.model, {})
        key = claim.long, claim.ruled_out
        lane = of_model.get(key)
        if lane is None:
            lane = of_model[key] = Lane(claim.model, *key)
        lane._add(claim)
        claim.lane = lane
        self.size += 1
        return lane

    def remove(self, claim: Claim) -> None:
        """Let it wait no longer; one that does not is none the wiser."""
        lane = claim.lane
        if lane is None:
            return
        claim.lane = None
        del lane.claims[claim.seq]
        self.size -= 1
        if not lane.claims:
            of_model = self._lanes[lane.model]
            del of_model[lane.long, lane.ruled_out]
            if not of_model:
                del self._lanes[lane.model]

    # ---- how long each may wait ---------------------------------------------------------------------------------

    def limit(self, claim: Claim, timeout_ms: int) -> None:
        """Let a pending run's waiting, what it waited before included, last so long at most; 0 means for ever."""
        claim.deadline = 0
        if timeout_ms:
            claim.deadline = claim.since + timeout_ms - claim.waited
            heappush(self._deadlines, (claim.deadline, claim.seq, claim))
            if len(self._deadlines) > 2 * self.size + 64:
                self._deadlines = sorted(entry for entry in self._deadlines if _stands(entry))

    def unlimit(self) -> None:
        """Forget every limit: others follow."""
        self._deadlines = []

    def next_deadline(self) -> int | None:
        """When the first pending run has waited for as long as it may."""
        while self._deadlines and not _stands(self._deadlines[0]):
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def overdue(self, now: int, most: float) -> list[Claim]:
        """Return at most so many runs that have waited for as long as they may, oldest first; each is returned once."""
        late: list[Claim] = []
        while len(late) < most and (due := self.next_deadline()) is not None and due <= now:
            late.append(heappop(self._deadlines)[2])
        return sorted(late, key=lambda claim: claim.seq)


def _stands(entry: tuple[int, int, Claim]) -> bool:
    due, _, claim = entry  # one that waits again has another deadline
    return claim.lane is not None and claim.deadline == due
