"""What changes of nodes and of the configuration do to runs that wait, and what they cost. docs/contracts/pool.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from doubles import wait
from gateway_in_memory import Gateway, document, node
from node_end import NodeEnd
from pool_claims import Asked
from test_failover import unreached
from test_runs import HEAD, HTTP, Told, World

from iop import model as m
from iop.edge.config import EdgeConfig, load_document
from iop.edge.pool import admission, pool
from iop.edge.pool.lease import Verdict
from iop.edge.pool.pool import Pool
from iop.edge.pool.simulate import VirtualClock
from iop.edge.pool.turns import Turns
from iop.edge.runs import Ask
from iop.errors import Failure

pytestmark = pytest.mark.usefixtures("logged")


def refresh(pool: Pool, config: EdgeConfig) -> None:
    pool.commit(pool.prepare(config))
    pool.judge()


# ---- connecting


def test_a_stream_that_began_has_connected() -> None:
    """Failover: three in a row at connecting; a stream says so when it begins, not when it ends."""
    world = World()
    unreached(world)
    unreached(world)
    run, _ = world.start()
    world.say(run, m.Start(HEAD))
    unreached(world)
    assert world.pool.resources["p1"].candidate
    unreached(world)
    unreached(world)
    assert not world.pool.resources["p1"].candidate


# ---- a refresh puts another provider into the group


@pytest.fixture
def grown() -> Callable[..., tuple[World, NodeEnd, Callable[[], None]]]:
    """Return a world of `p1` with one slot, the node of `q1`, and what puts `q1` into the group."""

    def make(**second: Any) -> tuple[World, NodeEnd, Callable[[], None]]:
        nodes = [node("n1", "p1", capacity=1), {**node("n2", "q1"), **second}]
        world = World(*nodes, models=[{"id": "m", "providers": ["p1"]}])

        def refreshed() -> None:
            refresh(world.pool, load_document(document(*nodes)).config)
            world.net.run()

        return world, NodeEnd(world.net, "n2"), refreshed

    return make


def test_a_session_that_waits_stays_where_it_is(grown: Any) -> None:
    world, other, refreshed = grown()
    first, _ = world.start(session_id="s")
    world.say(first, m.Whole(HEAD, b"x"))
    busy, _ = world.start()
    waiting, _ = world.start(session_id="s")
    refreshed()
    assert (other.runs, waiting.lane is None) == ([], False)
    world.say(busy, m.Whole(HEAD, b"x"))
    assert world.end.runs[-1].run_id == waiting.id


def test_a_new_session_may_begin_at_the_new_provider(grown: Any) -> None:
    world, other, refreshed = grown()
    world.start()
    waiting, _ = world.start(session_id="s")
    refreshed()
    assert [run.run_id for run in other.runs] == [waiting.id]


def test_a_session_whose_provider_left_the_group_is_told_so() -> None:
    nodes = [node("n1", "p1", capacity=1), node("n2", "q1", capacity=1)]
    world = World(*nodes)
    NodeEnd(world.net, "n2")
    first, _ = world.start(session_id="s")
    world.say(first, m.Whole(HEAD, b"x"))
    for _ in range(2):
        world.start()
    waiting, told = world.start(session_id="s")
    assert waiting.lane is not None
    refresh(world.pool, load_document(document(*nodes, models=[{"id": "m", "providers": ["q1"]}])).config)
    assert told.end == "invalid_value"


def test_what_only_some_providers_understand_waits_for_them(grown: Any) -> None:
    """An API that no chat says in other words goes to no provider that lacks it."""
    second = node("n2", "q1", type="ollama", category="local_inference")
    second["adapters"] = [{"name": "a", "type": "ollama", "base_url": "http://127.0.0.1:1"}]
    world, other, refreshed = grown(**second)
    busy, _ = world.start()
    told = Told()
    waiting = world.runs.start(Ask("m", lambda _: b"{}", HTTP, api="passthrough", operation="passthrough"), told)
    refreshed()
    assert (told.ends, other.runs, waiting.lane is None) == ([], [], False)
    world.say(busy, m.Whole(HEAD, b"x"))
    assert world.end.runs[-1].run_id == waiting.id


def of_kind(kind: str, node_id: str, provider_id: str) -> dict[str, Any]:
    """A node of an agent that keeps sessions, or of a model server, with one slot."""
    if kind == "agent":
        made = node(node_id, provider_id, type="cli", category="cli", capacity=1)
        settings: dict[str, Any] = {"type": "cli", "command": "x", "mode": "session", "resume_args": ["-r"]}
    else:
        made = node(node_id, provider_id, type="vllm", capacity=1)
        settings = {"type": "openai_compat", "base_url": "http://127.0.0.1:1"}
    return {**made, "adapters": [{"name": "a", **settings}]}


@pytest.mark.parametrize(("before", "after", "session"), [("agent", "server", ""), ("server", "agent", "s")])
def test_a_session_is_one_where_the_model_has_an_agent_by_now(before: str, after: str, session: str) -> None:
    """As if it came now: elsewhere a session id is the caller's own word, and there nobody else may have it."""
    nodes = [of_kind(before, "n1", "p1"), of_kind(after, "n2", "q1")]
    world = World(*nodes, models=[{"id": "m", "providers": ["p1"]}])
    other = NodeEnd(world.net, "n2")
    world.net.run()
    world.start()
    waiting, told = world.start(session_id="s")
    refresh(world.pool, load_document(document(*nodes, models=[{"id": "m", "providers": ["q1"]}])).config)
    world.net.run()
    assert [(run.run_id, run.session_id) for run in other.runs] == [(waiting.id, session)]
    if session:
        with pytest.raises(Failure) as busy:
            world.start(session_id="s")
        assert busy.value.code == "session_busy"
    other.say(waiting.id, m.Cancelled())
    world.net.run()
    assert len(told.ends) == 1
    world.start(session_id="s")  # it is free again


class NotHere(Asked):
    """A run that one of the providers does not understand."""

    def unfit(self, group: admission.Group) -> frozenset[str]:
        return frozenset({"q1"}) & set(group.order)


@pytest.mark.parametrize("kinds", [(NotHere, Asked), (Asked, NotHere)], ids=["the bare one first", "and last"])
def test_nobody_inherits_the_time_of_another_without_a_candidate(kinds: Any) -> None:
    """One has had none since 0 s, the other since a refresh at 50 s, which makes them wait for the same."""
    nodes = [node("n1", "p1", capacity=1), node("n2", "q1", capacity=1)]

    def configured(*providers: str) -> EdgeConfig:
        models = [{"id": "m", "providers": list(providers)}]
        return load_document(document(*nodes, models=models, provider_pool={"queue_timeout_ms": 0})).config

    clock = VirtualClock()

    def until(now: int) -> None:
        while (due := clock.next_call()) <= now:
            clock.now = int(due)
            clock.make_calls()
        clock.now = now

    made = Pool(configured("p1", "q1"), clock)
    for each in ("n1", "n2"):
        made.node_changed(each, True, up)
    for claim in (Asked(), Asked()):
        lease = made.admit(claim)
        assert lease is not None
        claim.granted(lease)
    waiting = [kind() for kind in kinds]
    for claim in waiting:
        assert made.admit(claim) is None
    made.node_changed("n1", False, up)
    until(50_000)
    refresh(made, configured("p1"))
    until(109_999)
    spared = next(claim for claim in waiting if type(claim) is Asked)
    assert spared.waiting, "it had a candidate until 50 s"
    until(110_000)
    assert [claim.code for claim in waiting] == ["no_provider"] * 2


# ---- a policy is that of the moment of dispatch (docs/contracts/refresh.md, Apply)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/messages"])
def test_what_waits_goes_by_the_policy_that_it_meets(path: str) -> None:
    made = document(node("n1", "p1", capacity=1))
    made["models"][0] |= {"default_max_tokens": 100, "min_max_tokens": 7}
    gateway = Gateway(wait, configuration=made)
    body: dict[str, Any] = (
        {"prompt": "hello"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "hello"}]}
    )
    if path == "/v1/messages":
        body["max_tokens"] = 3
    first = gateway.ask(path, {"model": "m", **body})
    gateway.ask(path, {"model": "m", **body})
    made["models"][0] |= {"default_max_tokens": 200, "min_max_tokens": 9}
    config = load_document(made).config
    surface = gateway.server.application
    surface.commit(surface.prepare(config))
    refresh(gateway.pool, config)
    first.leave()
    gateway.net.run()
    limits = [json.loads(run.request.input)["max_tokens"] for run in gateway.adapter.runs]
    assert limits == ([7, 9] if path == "/v1/messages" else [100, 200])


def test_what_a_new_policy_cannot_ask_of_a_chat_ends_with_its_slot_free() -> None:
    """A default for thinking makes a chat of a message, and this one says what no chat does."""
    server = of_kind("server", "n1", "p1")
    made = document(server)
    gateway = Gateway(wait, configuration=made)
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 10}
    first = gateway.ask("/v1/messages", body)
    second = gateway.ask("/v1/messages", {**body, "mcp_servers": [{"name": "x"}]})
    assert gateway.pool.queue.size == 1
    made["models"][0]["default_thinking_token_budget"] = 512
    config = load_document(made).config
    surface = gateway.server.application
    surface.commit(surface.prepare(config))
    refresh(gateway.pool, config)
    first.leave()
    gateway.net.run()
    assert second.answer.status == 400
    gateway.net.run(1)
    assert sorted((record.outcome, record.status) for record in gateway.records) == [
        ("cancelled", 499),
        ("unsupported_parameter", 400),
    ]
    gateway.assert_idle()


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_what_cannot_be_asked_is_told_before_it_waits(path: str) -> None:
    made = document(node("n1", "p1", capacity=1))
    made["models"][0]["default_thinking_token_budget"] = 512
    gateway = Gateway(wait, configuration=made)
    gateway.chat()
    said = '"prompt": "hi"' if path == "/v1/completions" else '"messages": []'
    asked = f'{{"model": "m", {said}, "temperature": 1e999, "stream": true}}'
    answer = gateway.ask(path, asked.encode()).data
    assert gateway.pool.queue.size == (0 if path == "/v1/completions" else 1)
    assert b"400" in answer.partition(b"\r\n")[0] or path == "/v1/chat/completions"


# ---- what it costs


def crowd(waiting: int, clock: VirtualClock | None = None) -> tuple[Pool, list[Asked]]:
    """Two nodes of 50 providers each with one slot, all of them for each of 4 models, all busy; so many wait."""
    nodes = [node(f"n{each}", *[f"p{each}-{k}" for k in range(50)], capacity=1) for each in range(2)]
    providers = [provider["id"] for each in nodes for provider in each["providers"]]
    models = [{"id": f"m{each}", "providers": [{"id": p, "target": "m"} for p in providers]} for each in range(4)]
    config = load_document(document(*nodes, models=models, provider_pool={"max_queue": 100_000})).config
    made = Pool(config, clock or VirtualClock())
    for each in range(2):
        made.node_changed(f"n{each}", True, up)
    claims = [Asked(f"m{number % 4}", 10) for number in range(100 + waiting)]
    for claim in claims:
        lease = made.admit(claim)
        if lease is not None:
            claim.granted(lease)
    assert made.queue.size == waiting
    return made, claims


def up(_: str) -> tuple[m.Health, str]:
    return m.Health.UP, ""


def counted(patch: pytest.MonkeyPatch, act: Callable[[], None]) -> int:
    """Return how many providers and lanes were looked at meanwhile."""
    calls = 0

    def count(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            return original(*arguments)

        patch.setattr(owner, name, property(call) if isinstance(original, property) else call)

    with patch.context() as inside:
        patch = inside
        count(admission.Group, "has_candidate")
        count(admission.Resource, "why_not")
        count(pool, "choose")
        act()
    return calls


@pytest.mark.parametrize("waiting", [100, 2000])
def test_a_node_that_goes_unused_costs_a_look_at_each_lane(waiting: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = crowd(waiting)
    assert len(list(made.queue.lanes())) == 4
    assert counted(monkeypatch, lambda: made.node_changed("n0", False, up)) == 4


def test_a_node_that_is_lost_with_its_runs_is_not_looked_at_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    made, claims = crowd(1000, clock)
    lost = [claim for claim in claims if claim.lease is not None and claim.lease.resource.node_id == "n0"]
    assert len(lost) == 50

    def lose() -> None:
        with made.together():
            made.node_changed("n0", False, up)
            for claim in lost:
                assert claim.lease is not None
                assert made.again(claim, claim.lease, Failure("node_lost", "gone"), Verdict.NOTHING)

    looks = counted(monkeypatch, lose)
    assert looks < 4 + 50 * 2 + 50 + 4 * 100 + 100, "each run twice, each provider of each model once"
    assert made.queue.size == 1050
    lanes = len(list(made.queue.lanes()))
    assert lanes == 4 + 50

    def return_() -> None:
        made.node_changed("n0", True, up)
        clock.make_calls()  # some are served at once, the others when somebody else was heard

    looks = counted(monkeypatch, return_)
    assert made.queue.size == 1000
    turns = 5
    assert looks < turns * (50 + 2 * lanes) + 3 * 50 * 100, "each provider and lane a few times; all to choose from"


def test_news_that_change_nothing_make_nobody_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scanning is done only when something can have changed."""
    world = World(node("n1", "p1", capacity=1), node("n2", "q1", capacity=1))
    world.end.wire.send(m.ProviderStatus("p1", "up"))
    world.net.run()
    world.start()
    world.start()
    scans: list[Any] = []
    give = Turns._give
    monkeypatch.setattr(Turns, "_give", lambda turns, left: scans.append(left) or give(turns, left))
    for status in (
        m.ProviderStatus("p1", "up", "", ("m",)),
        m.ProviderStatus("p1", "degraded", "it is warm"),
        m.ProviderStatus("p1", "down"),
    ):
        world.end.wire.send(status)
        world.net.run()
    assert scans == []
    world.end.wire.send(m.ProviderStatus("p1", "up"))
    world.net.run()
    assert len(scans) == 1


def test_who_fails_over_takes_a_free_slot_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else is asked again: those that found none still find none."""
    made, _ = crowd(0)
    made.resources["p1-7"].capacity = 2
    claim = Asked("m0", 10)
    waiting = [Asked("m1", 10, exact=True) for _ in range(3)]
    lease = made.admit(claim)
    assert lease is not None
    claim.granted(lease)
    for each in waiting:
        assert made.admit(each) is None
    made.resources["p0-3"].capacity = 2  # as nobody is told
    assert made.again(claim, lease, Failure("upstream_busy", "full"), Verdict.NOTHING)
    assert waiting[0].provider == "p1-7", "the oldest of those that may have the slot that was left"
    assert claim.provider == "p0-3"
