"""Which provider serves a run: the decision alone. ``docs/contracts/pool.md`` (Admission). Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from iop.edge.pool.backoff import Connecting
from iop.model import Health

#: How many tokens an estimate may be off before a request is refused for its length alone.
_CERTAIN: Final = 0.8


_MOST_KEPT: Final = 1024
"""Sets of a group's providers that are kept; each may have a thousand."""

Place = tuple[str, str]
"""A node and an adapter of it: several providers may share one."""


@dataclass(slots=True, eq=False)
class Resource:
    """A provider as the pool counts it; every model group that names it shares these slots.

    :ivar long_capacity: how many of the slots may be long.
    :ivar sessions: it may keep conversations that go on.
    :ivar native: APIs of which its runs travel as bytes; those of others as a document, answered by events.
    :ivar once: a run that was sent there may have changed something: it is not sent anywhere again.
    :ivar reachable: its node is registered, has acknowledged its payload and is not draining.
    :ivar said: what its node said of its health, in words.
    :ivar cancel_patience: seconds until a cancelled run without an end counts as lost.
    :ivar unconfirmed: a cancelled run of it never ended; cleared by its next good run.
    :ivar groups: the model groups that name it.
    """

    node_id: str
    provider_id: str
    adapter: str
    capacity: int
    long_capacity: int = 0
    priority: int = 0
    enabled: bool = True
    sessions: bool = False
    native: frozenset[str] = frozenset({"chat"})
    once: bool = False
    reachable: bool = False
    health: Health = Health.UNKNOWN
    said: str = ""
    unconfirmed: bool = False
    cancel_patience: float = 10.0
    in_flight: int = 0
    long_in_flight: int = 0
    connecting: Connecting = field(default_factory=Connecting)
    groups: list[Group] = field(default_factory=list)
    _told: bool = field(default=False, init=False)

    def tell_groups(self) -> bool:
        """Let its groups know whether it is a candidate; return whether that is news to them."""
        candidate = self.candidate
        if candidate is self._told:
            return False
        self._told = candidate
        for group in self.groups:
            if candidate:
                group.candidates.add(self.provider_id)
            else:
                group.candidates.discard(self.provider_id)
        return True

    @property
    def candidate(self) -> bool:
        """Whether it may serve at all."""
        return self.enabled and self.reachable and self.health is not Health.DOWN and not self.connecting.shut

    def why_not(self, long: bool) -> str:
        """Say in a word why it cannot serve one more now; "" when it can."""
        if not self.enabled:
            return "disabled"
        if not self.reachable:
            return "node_away"
        if self.health is Health.DOWN:
            return "down"
        if self.in_flight >= self.capacity:
            return "full"
        if long and self.long_in_flight >= self.long_capacity:
            return "long_full" if self.long_capacity else "no_long_slots"
        return self.connecting.why_not

    @property
    def name(self) -> str:
        """As people and documents write it."""
        return f"{self.node_id}/{self.provider_id}"


@dataclass(slots=True, eq=False)
class Group:
    """A model and the providers that may serve it, in the order of the configuration.

    :ivar candidates: those of them that may serve, by id, and ``with_long_slots`` those enabled that may ever serve a
        long run: a pool asks for them whenever a run comes or fails, and there may be a thousand.
    :ivar keeps_sessions: whether any of them may keep conversations that go on.
    :ivar window: tokens that a request may have; 0 when nobody set it.
    :ivar service_ms: how long its runs took lately; 0 when none has ended.
    """

    model: str
    resources: tuple[Resource, ...]
    targets: dict[str, str]
    window: int = 0
    service_ms: float = 0.0
    order: tuple[str, ...] = ()
    candidates: set[str] = field(default_factory=set)
    with_long_slots: frozenset[str] = frozenset()
    keeps_sessions: bool = False
    _kept: dict[Place | str | None, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.order = tuple(resource.provider_id for resource in self.resources)
        self.look()

    def look(self) -> None:
        """Look at every provider anew."""
        self.candidates = {r.provider_id for r in self.resources if r.candidate}
        self.with_long_slots = frozenset([r.provider_id for r in self.resources if r.enabled and r.long_capacity])
        self.keeps_sessions = any(r.sessions for r in self.resources)
        self._kept.clear()

    def without(self, api: str) -> frozenset[str]:
        """Return its providers that do not have an API themselves."""
        return self._keep(api, lambda each: api not in each.native)

    def elsewhere(self, place: Place | None) -> frozenset[str]:
        """Return its providers that are not at a place; for None those that keep no sessions."""
        if place is None:
            return self._keep(None, lambda each: not each.sessions)
        return self._keep(place, lambda each: (each.node_id, each.adapter) != place)

    def _keep(self, key: Place | str | None, is_one: Callable[[Resource], bool]) -> frozenset[str]:
        """Return some of its providers: the same set for every run that asks, as a queue knows runs by it."""
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            found = self._kept[key] = frozenset([each.provider_id for each in self.resources if is_one(each)])
        return found

    def has_candidate(self, ruled_out: Set[str] = frozenset()) -> bool:
        """Whether any of its providers, those ruled out apart, may serve at all."""
        return _more_than(self.candidates, ruled_out)

    def has_long_slots(self, ruled_out: Set[str] = frozenset()) -> bool:
        """Whether any enabled provider of it, up or down, those ruled out apart, may ever serve a long run."""
        return _more_than(self.with_long_slots, ruled_out)

    def turn(self, last: str | None) -> Sequence[Resource]:
        """Return its providers from the first after ``last`` on, cyclic."""
        if last is None or last not in self.order:
            return self.resources
        start = self.order.index(last) + 1
        return self.resources[start:] + self.resources[:start]


#: Providers of which is kept how they stood when a choice was made: of a model with more, the first and the chosen.
TOLD: Final = 16

#: A provider as it stood when a choice was made: itself, its runs, its priority, and why it could not serve.
Considered = tuple[Resource, int, int, str]


def choose(
    turn: Sequence[Resource], long: bool = False, ruled_out: Set[str] = frozenset()
) -> tuple[Resource | None, list[Considered]]:
    """Return the provider to dispatch to, None when none is free, and how each stood, :data:`TOLD` of many.

    Lowest ``in_flight``, then lowest ``priority`` number, then the first in ``turn``.
    """
    chosen: Resource | None = None
    considered: list[Considered] = []
    for resource in turn:
        why = "ruled_out" if ruled_out and resource.provider_id in ruled_out else resource.why_not(long)
        if len(considered) < TOLD:
            considered.append((resource, resource.in_flight, resource.priority, why))
        if not why and (
            chosen is None
            or resource.in_flight < chosen.in_flight
            or (resource.in_flight == chosen.in_flight and resource.priority < chosen.priority)
        ):
            chosen = resource
    if chosen is not None and len(turn) > TOLD and all(each[0] is not chosen for each in considered):
        considered.append((chosen, chosen.in_flight, chosen.priority, ""))
    return chosen, considered


def _more_than(those: Set[str], ruled_out: Set[str]) -> bool:
    """Whether there are any but those ruled out."""
    return len(those) > len(ruled_out) or not those <= ruled_out


def too_large(tokens: int, exact: bool, window: int) -> bool:
    """Whether a request of so many tokens, counted or estimated, cannot fit a context window; 0: no window."""
    return window > 0 and (tokens if exact else _CERTAIN * tokens) >= window


def why_passed_over(considered: Considered, chosen: Considered) -> str:
    """Say in a word why one was not taken where another was; "" for the one that was."""
    if considered[3]:
        return considered[3]
    if considered[0] is chosen[0]:
        return ""
    if considered[1] != chosen[1]:
        return "more_in_flight"
    return "later_priority" if considered[2] != chosen[2] else "not_its_turn"
