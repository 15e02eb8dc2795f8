"""Which provider serves a run, and who holds its slots."""

from __future__ import annotations

import contextlib

import pytest
from gateway_in_memory import document, node
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from iop.edge.config import load_document
from iop.edge.pool.admission import Resource, choose
from iop.edge.pool.pool import Lease, Pool
from iop.errors import Failure
from iop.model import Health


def resource(id: str, in_flight: int = 0, priority: int = 0, capacity: int = 2, **more: object) -> Resource:
    made = Resource("n", id, "a", capacity, priority=priority, reachable=True, **more)  # type: ignore[arg-type]
    made.in_flight = in_flight
    return made


@pytest.mark.parametrize(
    ("resources", "last", "chosen"),
    [
        # free only
        ([], None, None),
        ([("a", 2, 0)], None, None),
        ([("a", 2, 0), ("b", 1, 0)], None, "b"),
        # lowest in_flight
        ([("a", 1, 0), ("b", 0, 9)], None, "b"),
        # then lowest priority number
        ([("a", 1, 5), ("b", 1, 4), ("c", 1, 6)], None, "b"),
        ([("a", 0, 5), ("b", 1, 4)], None, "a"),
        # then the first after the last, in the group's order, cyclic
        ([("a", 0, 0), ("b", 0, 0), ("c", 0, 0)], None, "a"),
        ([("a", 0, 0), ("b", 0, 0), ("c", 0, 0)], "a", "b"),
        ([("a", 0, 0), ("b", 0, 0), ("c", 0, 0)], "c", "a"),
        ([("a", 0, 0), ("b", 1, 0), ("c", 0, 0)], "a", "c"),
        ([("a", 0, 0), ("b", 2, 0), ("c", 0, 0)], "c", "a"),
        # a provider that is away still marks its place; one that is not in the list does not
        ([("a", 0, 0), ("c", 0, 0)], "b", "c"),
        ([("a", 0, 0), ("b", 0, 0)], "gone", "a"),
    ],
)
def test_choose(resources: list[tuple[str, int, int]], last: str | None, chosen: str | None) -> None:
    made = [resource(*each) for each in resources]
    got = choose(made, ("a", "b", "c"), last)
    assert (got.provider_id if got is not None else None) == chosen


IDS = ["a", "b", "c", "d"]


@given(
    st.lists(
        st.tuples(st.sampled_from(IDS), st.integers(0, 3), st.integers(0, 2)),
        unique_by=lambda each: each[0],
        max_size=4,
    ),
    st.permutations(IDS),
    st.none() | st.sampled_from([*IDS, "gone"]),
)
def test_choose_is_the_contracts_order(
    resources: list[tuple[str, int, int]], order: list[str], last: str | None
) -> None:
    """The same rule, written the slow way."""
    made = [resource(*each) for each in resources]
    start = order.index(last) + 1 if last in order else 0
    turn = [*order[start:], *order[:start]]
    free = [each for each in made if each.in_flight < each.capacity]
    expected = min(free, key=lambda r: (r.in_flight, r.priority, turn.index(r.provider_id)), default=None)
    assert choose(made, order, last) is expected


def test_who_is_a_candidate() -> None:
    assert resource("a").candidate
    for health in (Health.UNKNOWN, Health.UP, Health.DEGRADED):
        assert resource("a", health=health).candidate
    assert not resource("a", health=Health.DOWN).candidate
    assert not resource("a", enabled=False).candidate
    away = resource("a")
    away.reachable = False
    assert not away.candidate


def pool(capacity: int = 2) -> Pool:
    settings = load_document(document(node("n1", "p1", "p2", capacity=capacity), node("n2", "q1", capacity=1))).config
    made = Pool(settings.models, settings.nodes)
    for node_id in ("n1", "n2"):
        made.node_changed(node_id, True, lambda _: Health.UP)
    return made


def refused(made: Pool, model: str = "m") -> Failure:
    with pytest.raises(Failure) as raised:
        made.admit(model)
    return raised.value


def test_slots_are_taken_and_given_back_once() -> None:
    made = pool()
    leases = [made.admit("m") for _ in range(5)]
    assert sorted(lease.resource.provider_id for lease in leases) == ["p1", "p1", "p2", "p2", "q1"]
    assert made.in_flight == 5
    failure = refused(made)
    assert (failure.code, failure.http_status, failure.retry_after_ms > 0) == ("queue_full", 429, True)
    for lease in leases:
        lease.release()
        lease.release()
    assert made.in_flight == 0


def test_it_takes_turns() -> None:
    made = pool()
    turns = []
    for _ in range(6):
        lease = made.admit("m")
        turns.append(lease.resource.provider_id)
        lease.release()
    assert turns == ["p1", "p2", "q1"] * 2


def test_refusals() -> None:
    made = pool()
    failure = refused(made, "other")
    assert (failure.code, failure.http_status, failure.param) == ("model_not_found", 404, "model")
    assert made.ready
    for node_id in ("n1", "n2"):
        made.node_changed(node_id, False, lambda _: Health.UP)
    failure = refused(made)
    assert (failure.code, failure.http_status, failure.retry_after_ms > 0) == ("no_provider", 503, True)
    assert not made.ready


def test_a_provider_that_is_down_is_passed_over() -> None:
    made = pool()
    made.node_changed("n1", True, lambda id: Health.DOWN if id == "p1" else Health.UP)
    assert {made.admit("m").resource.provider_id for _ in range(3)} == {"p2", "q1"}


def test_a_lease_knows_its_target() -> None:
    configuration = document(node("n1", "p1", models=["m", "served"]))
    configuration["models"] = [{"id": "m", "providers": [{"id": "p1", "target": "served"}]}]
    settings = load_document(configuration).config
    made = Pool(settings.models, settings.nodes)
    made.node_changed("n1", True, lambda _: Health.UNKNOWN)
    assert made.admit("m").target == "served"


@pytest.mark.parametrize(("grace_ms", "patience"), [(None, 10.0), (1000, 10.0), (20_000, 25.0)])
def test_patience_after_a_cancel_covers_the_adapters_grace(grace_ms: int | None, patience: float) -> None:
    configuration = document(node("n1", "p1"))
    if grace_ms is not None:
        configuration["nodes"][0]["adapters"][0]["grace_ms"] = grace_ms
    settings = load_document(configuration).config
    assert Pool(settings.models, settings.nodes).resources["p1"].cancel_patience == patience


class AnyPool(RuleBasedStateMachine):
    """Whatever happens: no lease is lost, none counts twice, and no provider holds more than its slots."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = pool()
        self.leases: list[Lease] = []
        self.released: list[Lease] = []

    @rule()
    def admit(self) -> None:
        with contextlib.suppress(Failure):
            self.leases.append(self.pool.admit("m"))

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        lease = self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))
        lease.release()
        self.released.append(lease)

    @precondition(lambda self: self.released)
    @rule(data=st.data())
    def release_again(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.released)).release()

    @rule(node_id=st.sampled_from(["n1", "n2"]), up=st.booleans(), health=st.sampled_from(Health))
    def node(self, node_id: str, up: bool, health: Health) -> None:
        self.pool.node_changed(node_id, up, lambda _: health)

    @invariant()
    def counts(self) -> None:
        assert self.pool.in_flight == len(self.leases)
        for each in self.pool.resources.values():
            assert 0 <= each.in_flight <= each.capacity
            assert each.in_flight == sum(lease.resource is each for lease in self.leases)


TestAnyPool = AnyPool.TestCase
