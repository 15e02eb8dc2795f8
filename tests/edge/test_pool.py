"""Which provider serves a run, who holds its slots, and who waits."""

from __future__ import annotations

from typing import Any

import pytest
from gateway_in_memory import document, node
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pool_claims import Asked, ask, check

from iop.edge.config import load_document
from iop.edge.pool.admission import Resource, choose, too_large
from iop.edge.pool.backoff import Connecting
from iop.edge.pool.lease import Verdict
from iop.edge.pool.pool import Pool
from iop.edge.pool.simulate import VirtualClock
from iop.errors import Failure
from iop.model import Health


def resource(id: str, in_flight: int = 0, priority: int = 0, capacity: int = 2, **more: Any) -> Resource:
    made = Resource("n", id, "a", capacity, priority=priority, reachable=True, **more)
    made.in_flight = in_flight
    return made


@pytest.mark.parametrize(
    ("resources", "chosen"),
    [
        # free only
        ([], None),
        ([("a", 2, 0)], None),
        ([("a", 2, 0), ("b", 1, 0)], "b"),
        # lowest in_flight
        ([("a", 1, 0), ("b", 0, 9)], "b"),
        # then lowest priority number
        ([("a", 1, 5), ("b", 1, 4), ("c", 1, 6)], "b"),
        ([("a", 0, 5), ("b", 1, 4)], "a"),
        # then the first whose turn it is
        ([("a", 0, 0), ("b", 0, 0), ("c", 0, 0)], "a"),
        ([("a", 1, 0), ("b", 0, 0), ("c", 0, 0)], "b"),
    ],
)
def test_choose(resources: list[tuple[str, int, int]], chosen: str | None) -> None:
    got, considered = choose([resource(*each) for each in resources])
    assert (got.provider_id if got is not None else None) == chosen
    assert len(considered) == len(resources)


IDS = ["a", "b", "c", "d"]


@given(
    st.lists(
        st.tuples(st.sampled_from(IDS), st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)),
        unique_by=lambda each: each[0],
        max_size=4,
    ),
    st.booleans(),
    st.sets(st.sampled_from(IDS)),
)
def test_choose_is_the_contracts_order(made: list[tuple[str, int, int, int]], long: bool, ruled_out: set[str]) -> None:
    """The same rule, written the slow way."""
    turn = [resource(id, flying, priority, long_capacity=slots) for id, flying, priority, slots in made]
    free = [
        each
        for each in turn
        if each.in_flight < each.capacity
        and (not long or each.long_in_flight < each.long_capacity)
        and each.provider_id not in ruled_out
    ]
    expected = min(free, key=lambda r: (r.in_flight, r.priority, turn.index(r)), default=None)
    assert choose(turn, long, ruled_out)[0] is expected


def test_who_is_a_candidate() -> None:
    assert resource("a").candidate
    for health in (Health.UNKNOWN, Health.UP, Health.DEGRADED):
        assert resource("a", health=health).candidate
    assert not resource("a", health=Health.DOWN).candidate
    assert not resource("a", enabled=False).candidate
    away = resource("a")
    away.reachable = False
    assert not away.candidate


@pytest.mark.parametrize(
    ("tokens", "exact", "window", "refused"),
    [
        (9, True, 10, False),
        (10, True, 10, True),
        (12, False, 10, False),
        (13, False, 10, True),
        (99, True, 0, False),
        # four fifths of an estimate, to the token
        (124_999, False, 100_000, False),
        (125_000, False, 100_000, True),
    ],
)
def test_too_large(tokens: int, exact: bool, window: int, refused: bool) -> None:
    assert too_large(tokens, exact, window) is refused


# ---- connecting


def test_three_failures_in_a_row_shut_it_for_a_second_doubling_to_thirty() -> None:
    connecting = Connecting()
    assert [connecting.failed(connecting.sent(), 0) for _ in range(3)] == [False, False, True]
    now, delays = 0, []
    for _ in range(7):
        assert connecting.until is not None
        delays.append(connecting.until - now)
        now = connecting.until
        connecting.try_again()
        probe = connecting.sent()
        assert probe
        assert connecting.why_not == "on_trial"
        assert connecting.failed(probe, now)
    assert delays == [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]


def test_an_answer_in_between_begins_the_row_anew() -> None:
    connecting = Connecting()
    for _ in range(5):
        assert not connecting.failed(0, 0)
        assert not connecting.failed(0, 0)
        connecting.reached(0)


def test_a_probe_that_shows_nothing_lets_another_try() -> None:
    connecting = Connecting()
    for _ in range(3):
        connecting.failed(0, 0)
    assert not connecting.failed(0, 0), "those sent before it was shut say nothing new"
    connecting.reached(0)
    assert connecting.shut
    connecting.try_again()
    connecting.returned(connecting.sent())
    assert connecting.why_not == ""
    assert connecting.reached(connecting.sent())
    assert not connecting.sent()


def test_a_trial_that_something_has_overtaken_says_nothing() -> None:
    connecting = Connecting()
    for _ in range(3):
        connecting.failed(0, 0)
    connecting.try_again()
    stale = connecting.sent()
    connecting.clear()  # its node says that it is up
    assert not connecting.failed(stale, 0)
    assert not connecting.shut
    for _ in range(3):
        connecting.failed(0, 0)
    connecting.try_again()
    assert connecting.sent()
    connecting.returned(stale)
    assert connecting.why_not == "on_trial"
    assert not connecting.reached(stale)
    assert not connecting.failed(0, 0), "it left before the trial"


# ---- the pool


class World:
    """A pool on a clock of its own: nodes `n1` with `p1` and `p2`, `n2` with `q1`; all of them serve `m`."""

    def __init__(self, capacity: int = 2, threshold: int = 1000, **rest: Any) -> None:
        self.clock = VirtualClock()
        self.made = document(
            node("n1", "p1", "p2", capacity=capacity, long_context_capacity=1),
            node("n2", "q1", capacity=1),
            long_context_threshold_tokens=threshold,
            **rest,
        )
        self.pool = Pool(load_document(self.made).config, self.clock)
        for node_id in ("n1", "n2"):
            self.node(node_id)

    def node(self, node_id: str, up: bool = True, health: Health = Health.UP) -> None:
        self.pool.node_changed(node_id, up, lambda _: (health, ""))

    def pass_time(self, ms: int) -> None:
        until = self.clock.now + ms
        while self.clock.next_call() <= until:
            self.clock.now = int(self.clock.next_call())
            self.clock.make_calls()
        self.clock.now = until

    def refresh(self, **changes: Any) -> None:
        self.made = {**self.made, **changes}
        self.pool.commit(self.pool.prepare(load_document(self.made).config))
        self.pool.judge()

    def fill(self) -> list[Asked]:
        runs = []
        while all(not run.waiting for run in runs):
            runs.append(ask(self.pool))
        self.pool.withdraw(runs.pop())
        return runs


def test_slots_are_taken_and_given_back_once() -> None:
    world = World()
    runs = world.fill()
    assert sorted(str(run.provider) for run in runs) == ["p1", "p1", "p2", "p2", "q1"]
    assert world.pool.in_flight == 5
    for run in runs:
        run.end()
        run.end()
    assert world.pool.in_flight == 0
    assert world.clock.next_call() == float("inf")


def test_it_takes_turns_and_remembers_whose_it_was() -> None:
    world = World()
    turns = []
    for _ in range(6):
        run = ask(world.pool)
        turns.append(run.provider)
        run.end()
    assert turns == ["p1", "p2", "q1"] * 2
    ask(world.pool).end()
    world.refresh()
    assert ask(world.pool).provider == "p2"


def test_the_queue_is_served_in_order_and_bounded() -> None:
    world = World(provider_pool={"max_queue": 2})
    runs = world.fill()
    first, second = ask(world.pool), ask(world.pool)
    late = ask(world.pool)
    assert (late.code, late.failure.http_status if late.failure else 0) == ("queue_full", 429)
    assert first.waiting
    assert second.waiting
    world.pool.withdraw(first)
    world.pool.withdraw(first)
    assert ask(world.pool).waiting
    runs[0].end()
    assert (first.grants, second.provider) == (0, runs[0].provider)


def test_retry_after_is_measured() -> None:
    world = World(provider_pool={"max_queue": 1})
    runs = world.fill()
    world.pass_time(50_000)
    for run in runs:
        run.end()
    world.fill()
    assert ask(world.pool).waiting
    failure = ask(world.pool).failure
    assert failure is not None
    assert failure.retry_after_ms == 20_000  # two that take 50 s each, on five slots


def test_a_wait_ends_with_its_timeout_which_zero_lifts() -> None:
    world = World(provider_pool={"queue_timeout_ms": 500})
    world.fill()
    waiting = ask(world.pool)
    world.pass_time(499)
    assert waiting.waiting
    world.pass_time(1)
    assert (waiting.code, waiting.waited) == ("queue_timeout", 500)
    endless = ask(world.pool)
    world.refresh(provider_pool={"queue_timeout_ms": 0})
    world.pass_time(10_000_000)
    assert endless.waiting


def test_sixty_seconds_without_any_candidate() -> None:
    world = World(provider_pool={"queue_timeout_ms": 0})
    world.fill()
    waiting = ask(world.pool)
    world.node("n1", up=False)
    world.node("n2", up=False)
    assert ask(world.pool).code == "no_provider"
    world.pass_time(59_999)
    world.refresh()
    assert waiting.waiting
    world.pass_time(1)
    assert waiting.code == "no_provider"


def test_a_long_run_waits_for_its_slot_in_its_turn_under_saturating_short_load() -> None:
    world = World(capacity=2)
    longs = [ask(world.pool, tokens=1000) for _ in range(2)]
    assert [run.provider for run in longs] == ["p1", "p2"]
    shorts = [ask(world.pool) for _ in range(3)]
    late = ask(world.pool, tokens=2000)
    waiting = [ask(world.pool) for _ in range(5)]
    shorts[0].end()
    assert late.waiting, "a short slot is no long slot"
    assert waiting[0].provider is not None
    longs[1].end()
    assert late.provider == "p2", "it is the oldest that can have the slot"
    assert waiting[1].waiting
    assert ask(world.pool, tokens=1000).waiting


def test_a_long_run_where_no_enabled_provider_has_long_slots() -> None:
    world = World()
    made = world.made["nodes"]
    for provider in made[0]["providers"]:
        provider["long_context_capacity"] = 0
    pending = [ask(world.pool, tokens=1000) for _ in range(3)][-1]
    assert pending.waiting
    world.refresh(nodes=made)
    assert pending.code == "long_context_unavailable"
    assert ask(world.pool, tokens=1000).code == "long_context_unavailable"


def test_a_refresh_judges_those_that_wait() -> None:
    world = World()
    world.fill()
    pending = ask(world.pool, tokens=900, exact=False)
    models = [{**world.made["models"][0], "context_window_tokens": 700}]
    world.refresh(models=models)
    assert pending.code == "context_length_exceeded"
    other = ask(world.pool)
    world.refresh(models=[])
    assert other.code == "model_not_found"


# ---- failover


def again(world: World, run: Asked, code: str = "upstream_connect", verdict: Verdict = Verdict.UNREACHED) -> bool:
    assert run.lease is not None
    return world.pool.again(run, run.lease, Failure(code, "no"), verdict)


def test_failover_goes_through_those_not_tried_then_tells_the_first_failure() -> None:
    world = World()
    run = ask(world.pool)
    assert again(world, run, "rate_limited", Verdict.REACHED)
    assert run.provider == "p2"
    assert again(world, run)
    assert run.provider == "q1"
    assert not again(world, run)
    assert run.first_failure is not None
    assert run.first_failure.code == "rate_limited"
    assert world.pool.in_flight == 0


def test_failover_keeps_its_place_and_only_waiting_counts() -> None:
    world = World(provider_pool={"max_queue": 1, "queue_timeout_ms": 1000})
    runs = world.fill()
    waiting = ask(world.pool)
    world.pass_time(600)
    assert again(world, runs[0], "node_lost", Verdict.NOTHING)
    assert waiting.provider == "p1", "the slot it left is no use to it"
    assert runs[0].waiting, "whatever the length of the queue"
    world.pass_time(400)
    assert runs[0].waiting
    late = ask(world.pool)
    assert late.code == "queue_full"
    runs[1].end()
    assert runs[0].provider == runs[1].provider


def test_a_provider_that_does_not_connect_is_down_and_comes_back_by_one_run() -> None:
    world = World(models=[{"id": "m", "providers": ["p1"]}], provider_pool={"queue_timeout_ms": 0})
    for _ in range(3):
        ask(world.pool).end(Verdict.UNREACHED)
    assert ask(world.pool).code == "no_provider"
    world.pass_time(1000)
    probe, second = ask(world.pool), ask(world.pool)
    assert probe.provider == "p1"
    assert second.waiting
    probe.end(Verdict.UNREACHED)
    world.pass_time(1999)
    assert second.waiting
    world.pass_time(1)
    assert second.provider == "p1"
    third = ask(world.pool)
    second.end(Verdict.REACHED)
    assert third.provider == "p1"


def test_a_node_that_says_up_ends_the_backoff() -> None:
    world = World(models=[{"id": "m", "providers": ["p1"]}])
    for _ in range(3):
        ask(world.pool).end(Verdict.UNREACHED)
    world.node("n1", health=Health.DOWN)
    assert ask(world.pool).code == "no_provider"
    world.node("n1", health=Health.UP)
    assert ask(world.pool).provider == "p1"


def test_many_that_wait_do_not_all_start_in_one_turn() -> None:
    world = World(capacity=10_000, provider_pool={"max_queue": 1000})
    world.node("n2", up=False)
    world.refresh(
        nodes=[{**n, "providers": [{**p, "capacity": 1} for p in n["providers"]]} for n in world.made["nodes"]]
    )
    runs = [ask(world.pool) for _ in range(600)]
    nodes = [{**n, "providers": [{**p, "capacity": 10_000} for p in n["providers"]]} for n in world.made["nodes"]]
    world.refresh(nodes=nodes)
    assert world.pool.queue.size == 600 - 2 - 128
    late = ask(world.pool)
    assert late.waiting, "nobody overtakes those that will have their turn"
    world.pass_time(0)
    assert world.pool.queue.size == 0
    assert [run.lease.resource.provider_id for run in runs if run.lease].count("p1") == 300
    assert late.provider is not None


@pytest.mark.parametrize(("grace_ms", "patience"), [(None, 10.0), (1000, 10.0), (20_000, 25.0)])
def test_patience_after_a_cancel_covers_the_adapters_grace(grace_ms: int | None, patience: float) -> None:
    configuration = document(node("n1", "p1"))
    if grace_ms is not None:
        configuration["nodes"][0]["adapters"][0]["grace_ms"] = grace_ms
    assert Pool(load_document(configuration).config, VirtualClock()).resources["p1"].cancel_patience == patience


class AnyPool(RuleBasedStateMachine):
    """Whatever happens: no lease is lost or counts twice, and nobody waits who could run."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(capacity=1, provider_pool={"max_queue": 4, "queue_timeout_ms": 3000})
        self.world.refresh(
            models=[*self.world.made["models"], {"id": "alias", "providers": ["p2", {"id": "q1", "target": "m"}]}]
        )
        self.runs: list[Asked] = []

    @property
    def holding(self) -> list[Asked]:
        return [run for run in self.runs if run.lease is not None and run.lease.held]

    @rule(
        model=st.sampled_from(["m", "m", "alias", "nope"]),
        tokens=st.sampled_from([10, 999, 1000, 5000]),
        times=st.integers(1, 4),
    )
    def arrive(self, model: str, tokens: int, times: int) -> None:
        for _ in range(times):
            waiting = self.world.pool.queue.size
            run = ask(self.world.pool, model, tokens)
            self.runs.append(run)
            assert (run.code == "queue_full") <= (waiting >= self.world.pool.policy.max_queue)

    @precondition(lambda self: self.holding)
    @rule(data=st.data(), verdict=st.sampled_from(Verdict))
    def end(self, data: st.DataObject, verdict: Verdict) -> None:
        data.draw(st.sampled_from(self.holding)).end(verdict)

    @precondition(lambda self: any(run.lease and not run.lease.held for run in self.runs))
    @rule(data=st.data())
    def end_again(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from([run for run in self.runs if run.lease and not run.lease.held])).end()

    @precondition(lambda self: self.holding)
    @rule(data=st.data(), verdict=st.sampled_from([Verdict.UNREACHED, Verdict.REACHED, Verdict.NOTHING]))
    def fail_over(self, data: st.DataObject, verdict: Verdict) -> None:
        run = data.draw(st.sampled_from(self.holding))
        went_on = again(self.world, run, verdict=verdict)
        assert went_on or not run.waiting

    @precondition(lambda self: self.world.pool.queue.size)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.world.pool.withdraw(data.draw(st.sampled_from([run for run in self.runs if run.waiting])))

    @rule(node_id=st.sampled_from(["n1", "n2"]), up=st.booleans(), health=st.sampled_from(Health))
    def node(self, node_id: str, up: bool, health: Health) -> None:
        self.world.node(node_id, up, health)

    @rule(node_id=st.sampled_from(["n1", "n2"]))
    def lose(self, node_id: str) -> None:
        """All its runs at once; they look for another provider."""
        with self.world.pool.together():
            self.world.node(node_id, up=False)
            for run in self.holding:
                if run.lease is not None and run.lease.resource.node_id == node_id:
                    again(self.world, run, "node_lost", Verdict.NOTHING)

    @rule(ms=st.sampled_from([0, 1, 500, 3000, 61_000]))
    def time(self, ms: int) -> None:
        self.world.pass_time(ms)

    @rule(
        capacity=st.integers(1, 3),
        long=st.integers(0, 1),
        enabled=st.booleans(),
        queue=st.integers(1, 4),
        timeout=st.sampled_from([0, 100, 3000]),
        threshold=st.sampled_from([500, 1000]),
        order=st.permutations(["p1", "p2", "q1"]),
        alias=st.booleans(),
    )
    def refresh(
        self, capacity: int, long: int, enabled: bool, queue: int, timeout: int, threshold: int,
        order: list[str], alias: bool,
    ) -> None:  # fmt: skip
        nodes = [
            node("n1", "p1", "p2", capacity=capacity, long_context_capacity=long, enabled=enabled),
            node("n2", "q1", capacity=capacity),
        ]
        models: list[dict[str, Any]] = [{"id": "m", "providers": order}]
        if alias:
            models.append({"id": "alias", "providers": [{"id": each, "target": "m"} for each in order[:2]]})
        self.world.refresh(
            nodes=nodes,
            models=models,
            provider_pool={"max_queue": queue, "queue_timeout_ms": timeout},
            long_context_threshold_tokens=threshold,
        )

    @precondition(lambda self: self.world.pool.queue.size)
    @rule(more=st.integers(1, 2))
    def more_slots(self, more: int) -> None:
        """A refresh that helps those who wait."""
        nodes = [
            {
                **each,
                "providers": [
                    {**provider, "enabled": True, "capacity": provider["capacity"] + more, "long_context_capacity": 1}
                    for provider in each["providers"]
                ],
            }
            for each in self.world.made["nodes"]
        ]
        self.world.refresh(nodes=nodes)

    @invariant()
    def holds(self) -> None:
        self.world.pass_time(0)
        check(self.world.pool, self.runs)


TestAnyPool = AnyPool.TestCase
TestAnyPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
