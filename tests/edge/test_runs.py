"""The life of a run at the edge: however it ends, its lease is released exactly once and its client is told once."""

from __future__ import annotations

from typing import Any

import pytest
from gateway_in_memory import document, node
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from memory_net import MemoryNet
from node_end import NodeEnd

from iop import model as m
from iop.edge.config import load_document
from iop.edge.nodes.registry import Registry
from iop.edge.pool.pool import Pool
from iop.edge.record import Record
from iop.edge.runs import Ask, Run, Runs, new_id
from iop.errors import Failure
from iop.wire.frames import MAX_FRAME, PART

pytestmark = pytest.mark.usefixtures("logged")

HTTP = m.HttpRequestHead("POST", "/v1/chat/completions")
HEAD = m.HttpResponseHead(200)


class Told:
    """An answer that keeps what it is told; after its end it is told nothing."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.ends: list[Any] = []
        self.waited = 0
        self.breaks_at: type | None = None

    def _take(self, event: Any) -> None:
        assert not self.ends
        self.said.append(event)
        if type(event) is self.breaks_at:
            raise ZeroDivisionError("a bug of the surface")

    status = 200
    called = False

    def waits(self) -> None:
        self.waited += 1

    def sent(self) -> None:
        self.waited += 1

    def again(self) -> bool:
        return not any(isinstance(event, m.Delta) for event in self.said)

    def started(self, start: m.Start) -> None:
        self._take(start)

    def delta(self, delta: m.Delta) -> None:
        self._take(delta)

    def completed(self, complete: m.Complete) -> None:
        assert not self.ends
        self.ends.append(complete)

    whole = completed

    def failed(self, failure: Failure, usage: m.Usage | None) -> None:
        assert not self.ends
        self.ends.append(failure)

    @property
    def end(self) -> Any:
        """The end, a failure as its code."""
        (end,) = self.ends
        return end.code if isinstance(end, Failure) else end


class World:
    """Runs, and a node `n1` that does as a test says."""

    def __init__(self, *nodes: dict[str, Any], window: int = 1 << 20, **rest: Any) -> None:
        self.net = MemoryNet()
        loaded = load_document(document(*(nodes or (node("n1", "p1"),)), **rest)).config
        self.nodes = Registry(loaded.nodes, heartbeat_ms=10_000, clock=self.net)
        self.pool = Pool(loaded, self.net)
        self.runs = Runs(loaded, self.pool, self.nodes, self.net, window, [self])
        self.records: list[Record] = []
        self.net.listenTCP(4610, self.nodes.factory())
        self.end = NodeEnd(self.net, "n1")

    def record(self, record: Record) -> None:
        self.records.append(record)

    def start(self, model: str = "m", native: Any = lambda target: b"{}", **ask: Any) -> tuple[Run, Told]:
        told = Told()
        run = self.runs.start(Ask(model, native, ask.pop("http", HTTP), chat=native, **ask), told)
        self.net.run()
        return run, told

    def say(self, run: Run, *events: m.RunEvent, seq: int = 0) -> None:
        self.end.say(run.id, *events, seq=seq)
        self.net.run()

    @property
    def idle(self) -> bool:
        return not self.runs.active and self.pool.in_flight == 0 and all(link.runs == 0 for link in self.nodes.links())


def refused(world: World, *args: Any, **ask: Any) -> Failure:
    with pytest.raises(Failure) as raised:
        world.start(*args, **ask)
    assert world.idle
    return raised.value


def test_what_a_node_is_asked() -> None:
    world = World()
    run, _ = world.start(
        native=lambda target: target.encode(), metadata={"k": "v"}, secret_headers=(("Authorization", "Bearer p"),)
    )
    (request,) = world.end.runs
    assert request == m.RunRequest(
        run.id, "a", "m", "p1", m.Mode.PASSTHROUGH, b"m", HTTP, (("Authorization", "Bearer p"),), metadata={"k": "v"}
    )


@pytest.mark.parametrize(
    "events",
    [
        [m.Start(HEAD), m.Delta(b"x"), m.Complete("stop", m.Usage(1, 2))],
        [m.Whole(HEAD, b"x")],
        [m.Error(Failure("upstream_error", "no"))],
        [m.Start(HEAD), m.Delta(b"x"), m.Error(Failure("upstream_error", "it broke"))],
        [m.Cancelled()],
        [m.Start(HEAD), m.Cancelled()],
    ],
)
def test_every_end_a_node_says(events: list[m.RunEvent]) -> None:
    world = World()
    run, told = world.start()
    assert world.pool.in_flight == 1
    world.say(run, *events)
    assert told.said == events[:-1]
    last = events[-1]
    if isinstance(last, m.Error):
        assert told.end == last.failure.code
    else:
        assert told.end == ("cancelled" if isinstance(last, m.Cancelled) else last)
    assert world.idle
    run.cancel()
    run.stop(Failure("draining", "x"))
    run.link_lost()
    run.taken(10)
    assert len(told.ends) == 1
    assert world.pool.in_flight == 0


# ---- what is recorded of an end


@pytest.mark.parametrize(
    ("failure", "outcome", "status"),
    [
        (Failure("upstream_error", "sk-secret"), "upstream_error", 502),
        (Failure("rate_limited", "prompt"), "rate_limited", 429),
        (Failure("", "prompt", http_status=422), "422", 422),
    ],
)
def test_a_failed_run_leaves_one_record(logged: Any, failure: Failure, outcome: str, status: int) -> None:
    world = World()
    run, told = world.start(request_id="req-7", native=lambda target: b"prompt", secret_headers=(("A", "sk-secret"),))
    told.status = 0
    world.say(run, m.Error(failure))
    assert told.ends
    (record,) = world.records
    assert (record.outcome, record.status, record.run_id, record.request_id) == (outcome, status, run.id, "req-7")
    assert (record.model, record.known, record.node, record.provider) == ("m", True, "n1", "p1")
    assert record.attempts == (("n1", "p1", outcome, status),)
    assert (record.usage, record.estimated, record.first_ms) == (m.Usage(0, 0), False, None)
    assert "sk-secret" not in repr(record)
    assert "prompt" not in repr(record)
    assert not any("sk-secret" in each or "prompt" in each for each in logged.lines())


def test_every_end_leaves_one_record(logged: Any) -> None:
    world = World()
    good, cancelled, broken, stopped, lost = (world.start() for _ in range(5))
    world.say(good[0], m.Start(HEAD), m.Delta(b"x"), m.Complete("stop", m.Usage(7, 3, 2, 1)))
    cancelled[0].cancel()
    world.say(cancelled[0], m.Cancelled())
    broken[1].status = stopped[1].status = lost[1].status = 0
    world.say(broken[0], m.Complete(), seq=1)
    world.say(broken[0], m.Cancelled())
    stopped[0].stop(Failure("draining", "the edge is shutting down"))
    world.end.wire.transport.cut()  # type: ignore[union-attr]
    told = {record.run_id: (record.outcome, record.status) for record in world.records}
    assert len(world.records) == 5
    assert told == {
        good[0].id: ("complete", 200),
        cancelled[0].id: ("cancelled", 499),
        broken[0].id: ("protocol_error", 502),
        stopped[0].id: ("draining", 503),
        lost[0].id: ("node_lost", 502),
    }
    assert world.records[0].usage == m.Usage(7, 3, 2, 1)
    assert not world.records[0].estimated
    assert any("event 1 where 0 was due" in line for line in logged.warnings())


def test_what_no_backend_counted_is_estimated_once_there_was_an_answer() -> None:
    world = World()
    run, _ = world.start(tokens=12)
    world.say(run, m.Start(HEAD), m.Delta(b"x"), m.Delta(b"y"))
    world.net.run(2)
    run.cancel()
    world.say(run, m.Cancelled())
    (record,) = world.records
    assert (record.usage, record.estimated, record.first_ms) == (m.Usage(12, 2), True, 0)
    assert record.total_ms >= 2000


def test_how_long_a_run_waited_for_its_slot_is_recorded() -> None:
    world = World(node("n1", "p1", capacity=1), provider_pool={"queue_timeout_ms": 4000})
    first, waited, left, _ = (world.start(request_id=id)[0] for id in ("first", "waited", "left", "in vain"))
    world.net.run(2)
    left.cancel()
    world.say(first, m.Whole(HEAD, b"x"))
    world.net.run(3)
    world.say(waited, m.Start(HEAD), m.Delta(b"x"))
    world.net.run(1)
    world.say(waited, m.Complete(), seq=2)
    assert [(each.request_id, each.outcome, each.queue_ms, each.first_ms, each.total_ms) for each in world.records] == [
        ("left", "cancelled", 2000, None, 2000),
        ("first", "complete", 0, 2000, 2000),
        ("in vain", "queue_timeout", 4000, None, 4000),
        ("waited", "complete", 2000, 5000, 6000),
    ]
    assert world.idle


def test_a_run_of_an_older_route_has_no_provider() -> None:
    world = routed()
    run, told = world.start("old")
    told.status = 0
    world.say(run, m.Error(Failure("upstream_timeout", "slow")))
    (record,) = world.records
    assert (record.outcome, record.status, record.model, record.node, record.provider) == (
        "upstream_timeout",
        504,
        "old",
        "n1",
        "a",
    )


# ---- cancelling


def test_a_cancelled_run_keeps_its_slot_until_its_backend_has_stopped() -> None:
    world = World()
    run, told = world.start()
    world.say(run, m.Start(HEAD), m.Delta(b"x"))
    run.cancel()
    run.cancel()
    world.net.run()
    (cancel,) = world.end.of(m.CancelRequest)
    assert cancel.run_id == run.id
    assert world.pool.in_flight == 1
    world.say(run, m.Delta(b"late"), seq=2)
    assert told.said == [m.Start(HEAD), m.Delta(b"x")]
    world.say(run, m.Cancelled(), seq=3)
    assert told.ends == []
    assert world.idle
    world.net.run(60)
    assert not world.pool.resources["p1"].unconfirmed


def test_a_cancel_that_crosses_the_end_is_an_end() -> None:
    world = World()
    run, _ = world.start()
    run.cancel()
    world.say(run, m.Start(HEAD), m.Complete())
    assert world.idle


def test_a_cancel_of_a_run_that_the_node_does_not_know() -> None:
    world = World()
    world.end.confirm_cancels = False
    run, _ = world.start()
    run.cancel()
    world.net.run()
    (cancel,) = world.end.of(m.CancelRequest)
    world.end.wire.send(m.CancelResponse(cancel.request_id, False))
    world.net.run()
    assert world.idle


@pytest.mark.parametrize("answered", [True, False])
def test_a_cancel_that_nobody_confirms_degrades_the_provider(logged: Any, answered: bool) -> None:
    world = World()
    world.end.confirm_cancels = answered
    run, _ = world.start()
    run.cancel()
    world.net.run(9.5)
    assert world.pool.in_flight == 1
    world.net.run(1)
    assert world.idle
    assert world.pool.resources["p1"].unconfirmed
    assert len(logged.warnings()) == 1
    world.say(run, m.Cancelled())
    link = world.nodes.entries["n1"].link
    assert link is not None
    assert link.late == 1


def test_the_next_good_run_clears_it() -> None:
    world = World()
    run, _ = world.start()
    run.cancel()
    world.net.run(11)
    run, _ = world.start()
    world.say(run, m.Error(Failure("upstream_error", "no")))
    assert world.pool.resources["p1"].unconfirmed
    run, _ = world.start()
    world.say(run, m.Start(HEAD), m.Complete())
    assert not world.pool.resources["p1"].unconfirmed


def test_the_edge_ends_a_run_and_says_why() -> None:
    world = World()
    run, told = world.start()
    run.stop(Failure("draining", "the edge is shutting down"))
    assert told.end == "draining"
    world.net.run()
    assert len(world.end.of(m.CancelRequest)) == 1
    world.say(run, m.Cancelled())
    assert world.idle


# ---- a node that breaks the rules


@pytest.mark.parametrize(
    "events",
    [
        [(1, m.Start(HEAD))],
        [(0, m.Start(HEAD)), (2, m.Delta(b"x"))],
        [(0, m.Start(HEAD)), (0, m.Start(HEAD))],
        [(0, m.Start(HEAD)), (1, m.Start(HEAD))],
        [(0, m.Delta(b"x"))],
        [(0, m.Complete())],
    ],
)
def test_a_gap_or_a_wrong_turn_ends_that_run_and_no_other(logged: Any, events: list[tuple[int, m.RunEvent]]) -> None:
    world = World()
    (bad, told), (good, other) = world.start(), world.start()
    for seq, event in events:
        world.say(bad, event, seq=seq)
    assert told.end == "protocol_error"
    world.say(good, m.Start(HEAD), m.Complete())
    assert other.end == m.Complete()
    assert len(logged.warnings()) == 1
    world.say(bad, m.Cancelled(), seq=9)
    assert world.idle
    assert not world.end.lost


def test_a_surface_that_breaks_harms_only_its_run(logged: Any) -> None:
    world = World()
    (bad, told), (good, other) = world.start(), world.start()
    told.breaks_at = m.Delta
    world.say(bad, m.Start(HEAD), m.Delta(b"x"))
    assert told.end == "internal"
    world.say(good, m.Start(HEAD), m.Complete())
    assert other.end == m.Complete()
    world.say(bad, m.Cancelled(), seq=2)
    assert world.idle
    assert [type(error) for error in logged.failures()] == [ZeroDivisionError]


# ---- loss


def test_a_lost_node_ends_its_runs() -> None:
    world = World()
    runs = [world.start() for _ in range(3)]
    world.say(runs[0][0], m.Start(HEAD), m.Delta(b"x"))
    runs[1][0].cancel()
    world.end.wire.transport.cut()  # type: ignore[union-attr]
    assert [told.end for _, told in (runs[0], runs[2])] == ["node_lost", "node_lost"]
    assert runs[1][1].ends == []
    assert world.idle
    world.net.run(11)
    assert not world.pool.resources["p1"].unconfirmed


def test_a_run_that_begins_while_a_lost_one_ends_finds_the_node_gone() -> None:
    world = World()
    seen: list[str] = []

    class Again(Told):
        def failed(self, failure: Failure, usage: m.Usage | None) -> None:
            try:
                world.runs.start(Ask("m", lambda target: b"", HTTP), Told())
            except Failure as refusal:
                seen.append(refusal.code)

    world.runs.start(Ask("m", lambda target: b"", HTTP), Again())
    world.end.wire.transport.cut()  # type: ignore[union-attr]
    assert seen == ["no_provider"]
    assert world.idle


# ---- refusals


def test_refusals_take_nothing() -> None:
    world = World(node("n1", "p1", capacity=1), provider_pool={"max_queue": 1})
    assert refused(world, "other").code == "model_not_found"
    run, _ = world.start()
    waiting, _ = world.start()
    with pytest.raises(Failure) as raised:
        world.start()
    assert raised.value.code == "queue_full"
    assert world.pool.in_flight == 1
    waiting.cancel()
    world.say(run, m.Cancelled())
    world.end.wire.send(m.NodeDraining())
    world.net.run()
    assert refused(world).code == "no_provider"
    world.runs.draining = True
    failure = refused(world)
    assert (failure.code, failure.retry_after_ms > 0) == ("draining", True)


def test_an_input_that_cannot_be_made_takes_nothing() -> None:
    def bad(target: str) -> bytes:
        raise Failure("invalid_value", "no")

    world = World()
    assert refused(world, native=bad).code == "invalid_value"
    with pytest.raises(ZeroDivisionError):
        world.start(native=lambda target: bytes(1 // 0))
    assert world.idle
    assert world.end.runs == []


def test_a_head_that_fits_no_frame_takes_nothing() -> None:
    world = World()
    assert refused(world, metadata={"k": "v" * MAX_FRAME}).code == "request_too_large"


def test_a_long_input() -> None:
    world = World()
    run, _ = world.start(native=lambda target: b"x" * (3 * PART))
    assert len(world.end.of(m.RunInput)) == 2
    world.say(run, m.Cancelled())
    assert world.idle


# ---- credit


def test_what_left_the_edge_comes_back_as_credit_in_quarters() -> None:
    world = World(window=1000)
    run, _ = world.start()
    for size in (100, 149, 1, 600, 10):
        run.taken(size)
    world.net.run()
    assert world.end.of(m.RunWindow) == [m.RunWindow(run.id, 250), m.RunWindow(run.id, 600)]
    assert world.end.runs[0].window_bytes == 1000


# ---- the older catalog

ROUTES = [
    {"model": "old", "adapter": "a", "target": "t"},
    {"model": "there", "adapter": "a", "target": "t", "node": "n2"},
    {"model": "nowhere", "adapter": "b", "target": "t"},
]


def routed() -> World:
    nodes = [node("n1", "p1"), node("n2", "p2"), node("n3")]
    nodes[2]["adapters"] = [{"name": "b", "type": "scripted"}]
    return World(*nodes, openai={"model_routes": ROUTES})


def test_a_route_goes_to_the_first_node_with_its_adapter_and_takes_no_slot() -> None:
    world = routed()
    run, told = world.start("old")
    assert world.pool.in_flight == 0
    assert (world.end.runs[0].adapter, world.end.runs[0].target, world.end.runs[0].provider_id) == ("a", "t", "")
    world.say(run, m.Start(HEAD), m.Complete())
    assert told.end == m.Complete()
    assert world.idle


def test_a_route_may_name_its_node() -> None:
    world = routed()
    assert refused(world, "there").code == "no_provider"
    other = NodeEnd(world.net, "n2")
    run, _ = world.start("there")
    assert [request.run_id for request in other.runs] == [run.id]
    assert refused_while_busy(world, "nowhere") == "no_provider"


def test_of_two_nodes_the_first_of_the_configuration_gets_a_routed_run() -> None:
    """Whichever came first; one that drains gets none."""
    world = routed()
    world.end.wire.transport.cut()  # type: ignore[union-attr]
    second = NodeEnd(world.net, "n2")
    first = NodeEnd(world.net, "n1")
    run, _ = world.start("old")
    assert ([each.run_id for each in first.runs], second.runs) == ([run.id], [])
    first.wire.send(m.NodeDraining())
    world.net.run()
    run, _ = world.start("old")
    assert (len(first.runs), [each.run_id for each in second.runs]) == (1, [run.id])


def test_a_route_to_a_disabled_adapter_leads_nowhere() -> None:
    nodes = [node("n1", "p1"), node("n2"), node("n3")]
    for number, enabled in ((1, False), (2, True)):
        nodes[number]["adapters"] = [{"name": "b", "type": "scripted", "enabled": enabled}]
    world = World(*nodes, openai={"model_routes": [ROUTES[2]]})
    disabled = NodeEnd(world.net, "n2")
    failure = refused(world, "nowhere")
    assert disabled.runs == []
    assert (failure.code, failure.http_status) == ("no_provider", 503)
    assert failure.retry_after_ms > 0


def refused_while_busy(world: World, model: str) -> str:
    with pytest.raises(Failure) as raised:
        world.start(model)
    return raised.value.code


def test_a_routed_run_may_be_cancelled_and_lost() -> None:
    world = routed()
    run, _ = world.start("old")
    run.cancel()
    world.net.run(11)
    assert world.idle
    _, told = world.start("old")
    world.end.wire.transport.cut()  # type: ignore[union-attr]
    assert told.end == "node_lost"
    assert world.idle


def test_ready() -> None:
    world = World()
    assert world.runs.ready
    world.runs.draining = True
    assert not world.runs.ready
    world.runs.draining = False
    world.end.wire.transport.cut()  # type: ignore[union-attr]
    assert not world.runs.ready
    world = routed()
    world.pool.groups.clear()
    assert world.runs.ready
    world.end.wire.transport.cut()  # type: ignore[union-attr]
    assert not world.runs.ready


def test_ids_are_never_given_twice() -> None:
    ids = {new_id("run") for _ in range(1000)}
    assert len(ids) == 1000
    assert all(each.startswith("run-") for each in ids)


class AnyRuns(RuleBasedStateMachine):
    """Whatever order things come in: a run that has not ended has a slot or waits, and each client is told one end."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(node("n1", "p1", capacity=2), provider_pool={"max_queue": 3, "queue_timeout_ms": 20_000})
        self.live: list[tuple[Run, Told]] = []
        self.seq: dict[str, int] = {}

    @rule(count=st.integers(1, 3))
    def start(self, count: int) -> None:
        for _ in range(count):
            if self.world.pool.queue.size < 3:
                self.live.append(self.world.start())
                continue
            with pytest.raises(Failure) as refused:
                self.world.start()
            assert refused.value.code == "queue_full"

    @precondition(lambda self: self.live)
    @rule(
        data=st.data(),
        event=st.sampled_from(
            [m.Start(HEAD), m.Delta(b"x"), m.Complete(), m.Cancelled(), m.Error(Failure("upstream_error", "no"))]
        ),
    )
    def say(self, data: st.DataObject, event: m.RunEvent) -> None:
        run, _ = data.draw(st.sampled_from(self.live))
        seq = self.seq.get(run.id, 0)
        self.seq[run.id] = seq + 1
        if not self.world.end.lost:
            self.world.say(run, event, seq=seq)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), how=st.sampled_from(["cancel", "stop"]))
    def leave(self, data: st.DataObject, how: str) -> None:
        run, _ = data.draw(st.sampled_from(self.live))
        run.cancel() if how == "cancel" else run.stop(Failure("draining", "x"))

    @rule()
    def lose_the_node(self) -> None:
        self.world.end.wire.transport.cut()  # type: ignore[union-attr]
        self.world.net.run()
        self.world.end = NodeEnd(self.world.net, "n1")

    @rule(seconds=st.sampled_from([1.0, 11.0]))
    def time(self, seconds: float) -> None:
        self.world.net.run(seconds)

    @invariant()
    def leases_are_runs(self) -> None:
        active, pool = self.world.runs.active, self.world.pool
        assert pool.in_flight == sum(run.lease is not None for run in active) <= 2
        assert {id(claim) for claim in pool.queue} == {id(run) for run in active if run.lease is None}
        assert {run for run, _ in self.live if not run.ended} == self.world.runs.active
        for run, told in self.live:
            assert len(told.ends) <= 1
            if told.ends:
                assert run.ended or run._answer is None

    def teardown(self) -> None:
        for run, _ in self.live:
            run.cancel()
        self.world.net.run(30)
        assert self.world.idle


TestAnyRuns = AnyRuns.TestCase
TestAnyRuns.settings = settings(max_examples=40, stateful_step_count=30)


def test_a_bug_before_admission_leaves_no_run(logged: Any) -> None:
    world = World()

    def bug(target: str) -> bytes:
        raise KeyError(target)

    ask = Ask("m", bug, HTTP, chat=bug, api="responses", operation="responses", translated=lambda: True)
    with pytest.raises(KeyError):
        world.runs.start(ask, Told())
    assert world.runs.active == set()
    assert [(record.outcome, record.status) for record in world.records] == [("internal", 500)]
    assert world.idle


def test_runs_end_with_their_closed_link_and_not_later(logged: Any) -> None:
    """What ends when the edge stops is recorded before whoever records it stops."""
    world = World()
    run, told = world.start()
    world.say(run, m.Start(HEAD), m.Delta(b"x"))
    run.stop(Failure("draining", "the edge is shutting down"))
    assert world.records == [], "its node has not said that it stopped"
    world.nodes.close()
    assert [(record.outcome, record.status) for record in world.records] == [("draining", 200)]
    assert world.runs.active == set()
    assert told.end == "draining"


def test_who_cannot_count_a_request_keeps_nobody_from_it(logged: Any) -> None:
    class Broken:
        def record(self, record: Record) -> None:
            raise ZeroDivisionError

    world = World()
    world.runs.recorders = [Broken(), world]
    run, told = world.start()
    world.say(run, m.Start(HEAD), m.Complete())
    assert told.ends
    assert len(world.records) == 1
    assert [type(each) for each in logged.failures()] == [ZeroDivisionError]
