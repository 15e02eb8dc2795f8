"""A pool in which much happens at once, and runs that are judged anew."""

from __future__ import annotations

from heapq import heappop
from typing import Any

import pytest
from gateway_in_memory import document, node
from pool_claims import Asked, ask

from iop.edge.config import load_document
from iop.edge.pool import admission, pool
from iop.edge.pool.admission import TOLD
from iop.edge.pool.lease import Verdict
from iop.edge.pool.pool import Pool
from iop.edge.pool.queue import Decided
from iop.edge.pool.simulate import VirtualClock
from iop.edge.pool.turns import AT_ONCE
from iop.errors import Failure
from iop.model import Health

FOREVER = {"queue_timeout_ms": 0}


def provider(id: str, **settings: Any) -> dict[str, Any]:
    return {"id": id, "capacity": 1, **settings}


def configuration(nodes: dict[str, list[dict[str, Any]]], models: dict[str, list[str]], **rest: Any) -> dict[str, Any]:
    """Return a configuration of these nodes' providers and these models."""
    made = [node(node_id, *[each["id"] for each in providers]) for node_id, providers in nodes.items()]
    for each in made:
        settings = {provider["id"]: provider for provider in nodes[each["id"]]}
        each["providers"] = [provider | settings[provider["id"]] for provider in each["providers"]]
    shown = document(*made, **rest)
    shown["models"] = [{"id": model, "providers": ids} for model, ids in models.items()]
    return shown


class World:
    """A pool on a clock of its own."""

    def __init__(self, made: dict[str, Any]) -> None:
        self.clock = VirtualClock()
        self.pool = Pool(load_document(made).config, self.clock)

    def node(self, node_id: str, up: bool = True, health: Health = Health.UP) -> None:
        self.pool.node_changed(node_id, up, lambda _: (health, ""))

    def refresh(self, made: dict[str, Any]) -> None:
        self.pool.commit(self.pool.prepare(load_document(made).config))
        self.pool.judge()

    def pass_time(self, seconds: float) -> None:
        until = self.clock.now + round(seconds * 1000)
        while self.clock.next_call() <= until:
            self.clock.now = int(self.clock.next_call())
            self.clock.make_calls()
        self.clock.now = until

    def turn(self) -> None:
        """Make the one call that is due first."""
        assert self.clock.next_call() <= self.clock.now
        call = heappop(self.clock._calls)[2].call
        assert call is not None
        call()


# ---- many at once, and who comes meanwhile


def test_who_comes_while_others_are_served_does_not_wait_for_nothing() -> None:
    """Its own provider is idle: there is nobody that it could overtake."""
    made = configuration(
        {"n1": [provider("a", capacity=300)], "n2": [provider("b")]},
        {"m": ["a"], "other": ["b"]},
        provider_pool={"max_queue": 1000},
    )
    world = World(made)
    world.node("n1")
    world.node("n2")
    served, waiting = [ask(world.pool) for _ in range(300)], [ask(world.pool) for _ in range(300)]
    with world.pool.together():
        for claim in served:
            claim.end()
    assert sum(claim.waiting for claim in waiting) >= 300 - AT_ONCE, "the rest is served in the next turn"
    between = ask(world.pool, "other")
    while any(claim.waiting for claim in waiting):
        world.turn()
    assert between.provider == "b"


def test_who_asks_again_when_it_gets_a_slot_is_served_too() -> None:
    world = World(configuration({"n1": [provider("a"), provider("b", capacity=4)]}, {"m": ["a"], "other": ["b"]}))
    world.node("n1")
    first = ask(world.pool)
    asked: list[Asked] = []

    class Eager(Asked):
        def granted(self, lease: Any) -> None:
            super().granted(lease)
            asked.append(ask(world.pool, "other"))

    second = Eager("m", 10)
    assert world.pool.admit(second) is None
    first.end()
    assert second.provider == "a"
    assert asked[0].provider == "b"


def test_waits_that_end_together_end_in_parts() -> None:
    """Each end tells a client: thousands in one go would keep everybody else waiting."""
    world = World(
        configuration({"n1": [provider("a")]}, {"m": ["a"]}, provider_pool={"max_queue": 1000, "queue_timeout_ms": 50})
    )
    world.node("n1")
    claims = [ask(world.pool) for _ in range(401)][1:]
    world.clock.now += 50
    world.turn()
    first = sum(claim.failure is not None for claim in claims)
    assert first <= AT_ONCE
    assert [claim.failure is not None for claim in claims[:first]] == [True] * first, "the oldest first"
    world.clock.make_calls()
    assert {claim.code for claim in claims} == {"queue_timeout"}
    more = [ask(world.pool) for _ in range(400)]
    shorter = configuration({"n1": [provider("a")]}, {"other": ["a"]})
    world.refresh(shorter)
    told = sum(claim.failure is not None for claim in more)
    assert told <= AT_ONCE
    assert world.pool.queue.size == 0
    world.clock.make_calls()
    assert {claim.code for claim in more} == {"model_not_found"}


def test_of_many_providers_the_story_keeps_a_few() -> None:
    ids = [f"p{number}" for number in range(100)]
    providers = [provider(id, priority=int(id != "p50")) for id in ids]
    world = World(configuration({"n1": providers}, {"m": ids}))
    world.node("n1")
    claim = ask(world.pool)
    (decided,) = claim.trail
    assert isinstance(decided, Decided)
    assert claim.provider == "p50"
    assert len(decided.considered) == TOLD + 1
    assert decided.considered[-1][0].provider_id == "p50"


# ---- going elsewhere, and what a refresh makes of it


def test_a_trial_that_has_an_answer_lets_the_others_in_before_it_ends() -> None:
    world = World(configuration({"n1": [provider("a", capacity=10)]}, {"m": ["a"]}))
    world.node("n1")
    for claim in [ask(world.pool) for _ in range(3)]:
        claim.end(Verdict.UNREACHED)
    world.pass_time(1)
    trial, others = ask(world.pool), [ask(world.pool) for _ in range(3)]
    assert trial.lease is not None
    assert all(claim.waiting for claim in others)
    world.pool.reached(trial.lease)
    assert not any(claim.waiting for claim in others)


def test_a_run_that_goes_back_after_a_refresh_is_judged_by_it() -> None:
    nodes = {"n1": [provider("a", long_context_capacity=1)], "n2": [provider("b", long_context_capacity=1)]}
    world = World(configuration(nodes, {"m": ["a", "b"]}, long_context_threshold_tokens=1000))
    for name in nodes:
        world.node(name)
    claim = ask(world.pool, tokens=500)
    world.refresh(configuration(nodes, {"m": ["a", "b"]}, long_context_threshold_tokens=100))
    assert claim.lease is not None
    lease = claim.lease
    assert world.pool.again(claim, lease, Failure("node_lost", "gone"), Verdict.NOTHING)
    assert (claim.provider, claim.long) == ("b", True)
    small = configuration(nodes, {"m": ["a", "b"]}, long_context_threshold_tokens=100)
    small["models"][0]["context_window_tokens"] = 200
    world.refresh(small)
    assert not world.pool.again(claim, claim.lease, Failure("node_lost", "gone"), Verdict.NOTHING)


def test_a_long_run_whose_long_slots_have_failed_is_told_how() -> None:
    nodes = {"n1": [provider("a", long_context_capacity=1)], "n2": [provider("b", long_context_capacity=1)]}
    world = World(configuration(nodes, {"m": ["a", "b"]}, long_context_threshold_tokens=100))
    for name in nodes:
        world.node(name)
    claim, busy = ask(world.pool, tokens=500), ask(world.pool, tokens=500)
    assert (claim.provider, busy.provider) == ("a", "b")
    assert claim.lease is not None
    assert world.pool.again(claim, claim.lease, Failure("rate_limited", "slow down"), Verdict.REACHED)
    assert claim.waiting
    without = {"n1": nodes["n1"], "n2": [provider("b")]}
    world.refresh(configuration(without, {"m": ["a", "b"]}, long_context_threshold_tokens=100))
    assert claim.code == "rate_limited"


def test_retry_after_learns_from_runs_that_a_refresh_found_under_way() -> None:
    settings = configuration({"n1": [provider("a")]}, {"m": ["a"]}, provider_pool={"max_queue": 1})
    world = World(settings)
    world.node("n1")
    claim = ask(world.pool)
    world.refresh(settings)
    world.pass_time(20)
    claim.end()
    assert world.pool.groups["m"].service_ms == 20_000
    refused = [ask(world.pool) for _ in range(3)][-1]
    assert refused.failure is not None
    assert (refused.code, refused.failure.retry_after_ms) == ("queue_full", 40_000)


@pytest.mark.parametrize("how", ["away", "down", "disabled"])
def test_retry_after_counts_the_models_own_runs_and_the_slots_of_its_candidates(how: str) -> None:
    """Neither the three of another model that wait for its one slot, nor the three slots that nobody can have."""
    nodes = {
        "n1": [provider("a", capacity=2)],
        "n2": [provider("b", capacity=3, enabled=how != "disabled")],
        "n3": [provider("c")],
    }
    policy = {"max_queue": 4, **FOREVER}
    world = World(configuration(nodes, {"m": ["a", "b"], "other": ["c"]}, provider_pool=policy))
    world.node("n1")
    world.node("n2", up=how != "away", health=Health.DOWN if how == "down" else Health.UP)
    world.node("n3")
    measured = ask(world.pool)
    world.pass_time(10)
    measured.end()
    claims = [ask(world.pool, model) for model in ("other",) * 4 + ("m",) * 3]
    assert sum(claim.waiting for claim in claims) == 4
    refused = ask(world.pool)
    assert refused.failure is not None
    assert (refused.code, refused.failure.retry_after_ms) == ("queue_full", 10_000), "two of 10 s on two slots"


@pytest.mark.parametrize("refreshed", [False, True])
def test_retry_after_of_a_wait_that_lasted_too_long_is_measured_too(refreshed: bool) -> None:
    nodes, models = {"n1": [provider("a")]}, {"m": ["a"]}
    world = World(configuration(nodes, models, provider_pool={"queue_timeout_ms": 1000}))
    world.node("n1")
    measured = ask(world.pool)
    world.pass_time(70)
    measured.end()
    ask(world.pool)
    claims = [ask(world.pool) for _ in range(3)]
    if refreshed:
        world.pass_time(0.5)
        world.refresh(configuration(nodes, models, provider_pool={"queue_timeout_ms": 500}))
    else:
        world.pass_time(1)
    told = [(claim.code, claim.failure and claim.failure.retry_after_ms) for claim in claims]
    assert told == [("queue_timeout", 60_000)] * 3, "a slot is free in 70 s; nobody is told more than a minute"


def test_retry_after_of_a_wait_that_lasted_too_long_leaves_out_those_that_leave() -> None:
    world = World(configuration({"n1": [provider("a")]}, {"m": ["a"]}, provider_pool={"queue_timeout_ms": 1000}))
    world.node("n1")
    measured = ask(world.pool)
    world.pass_time(10)
    measured.end()
    ask(world.pool)
    first = [ask(world.pool) for _ in range(2)]
    world.pass_time(0.5)
    later = [ask(world.pool) for _ in range(3)]
    world.pass_time(0.5)
    assert [claim.failure and claim.failure.retry_after_ms for claim in first] == [40_000] * 2, "behind three of 10 s"
    world.pass_time(0.5)
    assert [claim.failure and claim.failure.retry_after_ms for claim in later] == [10_000] * 3, "nobody else is left"


# ---- what is told, and when


@pytest.mark.parametrize(
    ("took", "told"),
    [([0.001], 1_000), ([36_000], 60_000), ([10, 20], 12_000), ([20, 10], 18_000)],
)
def test_retry_after_is_bounded_and_a_moving_average(took: list[float], told: int) -> None:
    """A new run is a fifth of it; two ahead on two slots wait for one's time."""
    world = World(
        configuration({"n1": [provider("a", capacity=2)]}, {"m": ["a"]}, provider_pool={"max_queue": 1, **FOREVER})
    )
    world.node("n1")
    for seconds in took:
        claim = ask(world.pool)
        world.pass_time(seconds)
        claim.end()
    refused = [ask(world.pool) for _ in range(4)][-1]
    assert refused.failure is not None
    assert (refused.code, refused.failure.retry_after_ms) == ("queue_full", told)


class Ordered(Asked):
    """Keeps the order in which runs are refused."""

    def __init__(self, said: list[Asked], model: str) -> None:
        super().__init__(model)
        self._said = said

    def refused(self, failure: Failure) -> None:
        super().refused(failure)
        self._said.append(self)


def arrive(world: World, said: list[Asked], model: str) -> Ordered:
    claim = Ordered(said, model)
    lease = world.pool.admit(claim)
    if lease is not None:
        claim.granted(lease)
    return claim


def go_back(world: World, claim: Asked, code: str = "rate_limited") -> bool:
    assert claim.lease is not None
    return world.pool.again(claim, claim.lease, Failure(code, "no"), Verdict.REACHED)


def test_waits_that_are_over_at_one_time_end_in_order_of_arrival() -> None:
    """The oldest first, though its own time was up later: it ran in between."""
    nodes = {"n1": [provider("a"), provider("b")]}
    world = World(configuration(nodes, {"m": ["a", "b"], "other": ["b"]}, provider_pool={"queue_timeout_ms": 1000}))
    world.node("n1")
    said: list[Asked] = []
    older = arrive(world, said, "m")
    assert ask(world.pool, "other").provider == "b"
    younger = arrive(world, said, "other")
    world.pass_time(0.5)
    assert go_back(world, older)
    assert younger.deadline < older.deadline
    world.clock.now = 2000
    world.clock.make_calls()
    assert said == [older, younger]
    assert [claim.code for claim in said] == ["queue_timeout"] * 2


def test_a_run_that_was_elsewhere_is_told_its_first_failure_after_sixty_seconds() -> None:
    nodes = {"n1": [provider("a")], "n2": [provider("b")]}
    world = World(configuration(nodes, {"m": ["a", "b"]}, provider_pool=FOREVER))
    world.node("n1")
    world.node("n2")
    claim, _ = ask(world.pool), ask(world.pool)
    assert go_back(world, claim)
    assert claim.waiting
    world.node("n2", up=False)
    world.pass_time(59.999)
    assert claim.waiting
    world.pass_time(0.001)
    assert claim.code == "rate_limited"


def test_sixty_seconds_end_in_order_of_arrival_whatever_the_model() -> None:
    world = World(
        configuration({"n1": [provider("a")]}, {"m": ["a"], "other": ["a"], "third": ["a"]}, provider_pool=FOREVER)
    )
    world.node("n1")
    ask(world.pool)
    said: list[Asked] = []
    claims = [arrive(world, said, model) for model in ("other", "m", "third", "m", "other")]
    world.node("n1", up=False)
    world.pass_time(60)
    assert said == claims
    assert {claim.code for claim in claims} == {"no_provider"}


# ---- since when nobody can serve


def shut(world: World, claims: list[Asked]) -> None:
    """None of them could connect."""
    with world.pool.together():
        for claim in claims:
            claim.end(Verdict.UNREACHED)


def busy_world() -> tuple[World, list[Asked], Asked]:
    """Return a provider of four slots, the runs that hold them, and one that waits."""
    world = World(configuration({"n1": [provider("a", capacity=4)]}, {"m": ["a"]}, provider_pool=FOREVER))
    world.node("n1")
    held = [ask(world.pool) for _ in range(4)]
    return world, held, ask(world.pool)


def test_the_sixty_seconds_begin_when_the_last_provider_cannot_be_connected_to() -> None:
    world, held, waiting = busy_world()
    world.pass_time(10)
    shut(world, held[:3])
    world.pass_time(0.5)
    world.node("n1", up=False)
    world.pass_time(59.499)
    assert waiting.waiting, "the end of the backoff, at a node that is away, is no news"
    world.pass_time(0.001)
    assert waiting.code == "no_provider"


def test_and_not_when_one_could_not_meanwhile() -> None:
    """It was shut for a second; then it was full, and a candidate."""
    world, held, first = busy_world()
    second = ask(world.pool)
    shut(world, held[:3])
    world.pass_time(1)
    assert (first.provider, second.waiting) == ("a", True)
    world.pass_time(4)
    world.node("n1", up=False)
    world.pass_time(59.999)
    assert second.waiting
    world.pass_time(0.001)
    assert second.code == "no_provider"


def test_only_a_new_up_ends_a_backoff() -> None:
    world, held, waiting = busy_world()
    shut(world, held[:3])
    world.node("n1")
    assert world.pool.resources["a"].connecting.shut
    assert waiting.waiting
    world.node("n1", health=Health.DEGRADED)
    world.node("n1")
    assert waiting.provider == "a"


def test_nothing_of_a_backoff_is_left_after_a_new_up() -> None:
    """When it would have ended nobody is on trial: any number may go there."""
    world, held, waiting = busy_world()
    shut(world, held[:3])
    world.node("n1", health=Health.DEGRADED)
    world.node("n1")
    assert waiting.provider == "a"
    world.pass_time(1)
    assert [ask(world.pool).provider for _ in range(2)] == ["a", "a"]
    assert not world.pool.resources["a"].connecting.on_trial


# ---- going elsewhere, in turn


def test_those_that_go_elsewhere_stand_where_their_arrival_puts_them() -> None:
    """Their failures come in another order."""
    world = World(configuration({"n1": [provider("a", capacity=2)], "n2": [provider("b")]}, {"m": ["a", "b"]}))
    world.node("n1")
    world.node("n2")
    older, last, younger = ask(world.pool), ask(world.pool), ask(world.pool)
    assert (older.provider, last.provider, younger.provider) == ("a", "b", "a")
    assert go_back(world, younger)
    assert go_back(world, older)
    assert older.lane is younger.lane
    last.end()
    assert (older.provider, younger.waiting) == ("b", True)


@pytest.mark.parametrize("refreshed", [False, True])
def test_all_that_was_waited_counts_and_nothing_else(refreshed: bool) -> None:
    nodes = {"n1": [provider("a")], "n2": [provider("b")]}
    settings = configuration(nodes, {"m": ["a", "b"]}, provider_pool={"queue_timeout_ms": 1000})
    world = World(settings)
    world.node("n1")
    world.node("n2")
    first, _ = ask(world.pool), ask(world.pool)
    claim = ask(world.pool)
    world.pass_time(0.6)
    first.end()
    assert claim.provider == "a"
    world.pass_time(5)
    assert go_back(world, claim)
    world.pass_time(0.2)
    if refreshed:
        world.refresh(settings)
    world.pass_time(0.199)
    assert claim.waiting
    world.pass_time(0.001)
    assert (claim.code, claim.waited) == ("queue_timeout", 1000)


@pytest.mark.parametrize(("timeout_ms", "code"), [(801, None), (800, "queue_timeout")])
def test_all_that_was_waited_counts_at_the_refresh_itself(timeout_ms: int, code: str | None) -> None:
    """It has waited for 600 ms, run elsewhere, and waited for 200 ms again."""
    nodes, models = {"n1": [provider("a")], "n2": [provider("b")]}, {"m": ["a", "b"]}
    world = World(configuration(nodes, models, provider_pool={"queue_timeout_ms": 1000}))
    world.node("n1")
    world.node("n2")
    first, _ = ask(world.pool), ask(world.pool)
    claim = ask(world.pool)
    world.pass_time(0.6)
    first.end()
    world.pass_time(5)
    assert go_back(world, claim)
    world.pass_time(0.2)
    world.refresh(configuration(nodes, models, provider_pool={"queue_timeout_ms": timeout_ms}))
    assert (claim.code, claim.waiting) == (code, code is None), "before any time passes"
    world.pass_time(0.001)
    assert (claim.code, claim.waited) == ("queue_timeout", timeout_ms)


def test_a_long_run_with_nowhere_left_to_go_is_told_its_first_failure_at_once() -> None:
    nodes = {"n1": [provider("a", long_context_capacity=1)], "n2": [provider("b")]}
    world = World(configuration(nodes, {"m": ["a", "b"]}, long_context_threshold_tokens=100))
    world.node("n1")
    world.node("n2")
    claim = ask(world.pool, tokens=100)
    assert claim.provider == "a"
    assert not go_back(world, claim)
    assert not claim.waiting
    assert claim.first_failure is not None
    assert claim.first_failure.code == "rate_limited"


# ---- what a change costs


def looked(monkeypatch: pytest.MonkeyPatch, waiting: int) -> int:
    """Return how often a provider is looked at when one run ends and so many wait."""
    made = configuration(
        {"n1": [provider("a", capacity=2)], "n2": [provider("b")]},
        {"m": ["a"], "other": ["b"]},
        provider_pool={"max_queue": 100_000},
    )
    world = World(made)
    world.node("n1")
    world.node("n2")
    held = [ask(world.pool), ask(world.pool), ask(world.pool, "other")]
    claims = [ask(world.pool, model) for model in ("m", "other") for _ in range(waiting)]
    calls = 0

    def counted(function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            return function(*arguments)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(admission.Group, "has_candidate", counted(admission.Group.has_candidate))
        patched.setattr(admission.Resource, "why_not", counted(admission.Resource.why_not))
        patched.setattr(pool, "choose", counted(pool.choose))
        held[0].end()
    assert [claim for claim in claims if claim.provider] == claims[:1]
    return calls


def test_what_a_release_costs_does_not_grow_with_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract, Queue: 10,000 pending runs must not stall the reactor."""
    few = looked(monkeypatch, 10)
    assert 0 < few < 20
    assert looked(monkeypatch, 10_000) == few
