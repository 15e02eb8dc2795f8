"""Where a failed run goes, what its end says of its provider, and whose turn it is then.

``docs/contracts/pool.md``, Failover.
"""

from __future__ import annotations

from typing import Any

import pytest
from doubles import JSON, complete, fail, piece, start, wait
from gateway_in_memory import Gateway, document, node
from node_end import NodeEnd
from test_runs import HEAD, World
from test_waiting import ANSWER, two_nodes

from iop import model as m
from iop.edge.config import load_document
from iop.edge.runs import Run
from iop.edge.surfaces.status import snapshots
from iop.errors import Failure
from iop.node.adapters.errors import failure_of

pytestmark = pytest.mark.usefixtures("logged")

CUT = "the link is cut"


# ---- only before a byte


def test_a_stream_that_has_begun_fails_where_it_is() -> None:
    gateway = two_nodes(start(), piece(b"data: 1\n\n"), fail(Failure("upstream_connect", "no")), second=(wait,))
    answer = gateway.chat(stream=True).answer
    assert (answer.status, answer.whole) == (200, True)
    assert answer.events[0] == "1"
    assert '"upstream_error"' in answer.events[1]
    assert gateway.machines["n2"].adapter.runs == []
    gateway.assert_idle()


def test_nothing_of_an_attempt_is_left_in_the_next() -> None:
    sound, text = m.HttpResponseHead(200, (("content-type", "audio/mpeg"),)), piece(b'{"half')
    broken = fail(Failure("upstream_error", "it broke"))
    gateway = two_nodes(start(sound), fail(Failure("rate_limited", "no")), second=(start(JSON), text, broken))
    answer = gateway.chat().answer
    assert (answer.status, answer.whole, answer.code) == (429, True, "rate_limit_exceeded"), "and no broken connection"
    gateway.assert_idle()


def test_a_fallback_of_an_attempt_is_not_the_next_ones() -> None:
    marked = start(None, {m.TEXT_TOOL_FALLBACK: "true"})
    native = complete("tool_calls", metadata={m.TOOL_CALLS: '[{"id":"c","function":{"name":"f","arguments":"{}"}}]'})
    gateway = two_nodes(marked, fail(Failure("rate_limited", "no")), second=(start(None), native))
    assert gateway.chat().answer.status == 200
    (record,) = gateway.records
    assert (record.fallback, len(record.attempts)) == ("", 2)


def test_a_comment_is_no_byte_of_the_answer() -> None:
    made = document(node("n1", "p1", capacity=1), node("n2", "q1", capacity=1))
    gateway = Gateway(wait, configuration=made)
    gateway.chat()
    gateway.chat()
    stream = gateway.chat(stream=True)
    gateway.net.run(6)
    gateway.machines["n1"].adapter.script = (fail(Failure("rate_limited", "slow down")),)
    gateway.clients[0].leave()
    gateway.net.run()
    assert len(gateway.adapter.runs) == 2, "it was there, in vain"
    gateway.machines["n2"].adapter.script = (start(), piece(b"data: 1\n\n"), complete())
    gateway.clients[1].leave()
    gateway.net.run()
    answer = stream.answer
    assert (answer.status, answer.whole) == (200, True)
    assert answer.body == b": waiting for a free slot\n\ndata: 1\n\n"
    gateway.assert_idle()
    gateway.close()


def test_of_a_document_that_was_held_nothing_is_left_in_the_next_ones() -> None:
    broken = Failure("node_lost", "no")
    gateway = two_nodes(
        start(JSON),
        piece(b'{"half'),
        fail(broken),
        second=(start(JSON), piece(ANSWER[:9]), piece(ANSWER[9:]), complete()),
    )
    answer = gateway.chat().answer
    assert (answer.status, answer.whole, answer.body) == (200, True, ANSWER)
    gateway.assert_idle()


# ---- which failures go on


def pair(**provider: Any) -> tuple[World, NodeEnd]:
    """Return runs on two nodes, and the second node; the first is where they go first."""
    world = World(node("n1", "p1", **provider), node("n2", "q1", **provider))
    return world, NodeEnd(world.net, "n2")


def answered(status: int) -> Failure:
    return failure_of(status, {}, b'{"error": {"message": "no"}}')


@pytest.mark.parametrize(
    ("failure", "goes_on"),
    [
        (answered(429), True),
        (answered(502), True),
        (answered(503), True),
        (answered(504), True),
        (Failure("upstream_connect", "refused"), True),
        (Failure("adapter_unavailable", "none"), True),
        (Failure("session_busy", "in use"), True),
        (Failure("upstream_busy", "no connection is free"), True),
        (CUT, True),
        (answered(500), False),
        (answered(400), False),
        (Failure("upstream_timeout", "silent"), False),
        (Failure("upstream_error", "closed without an answer"), False),
        (None, False),
    ],
)
def test_which_failures_another_provider_may_do_better(failure: Failure | str | None, goes_on: bool) -> None:
    world, second = pair()
    run, told = world.start()
    if failure == CUT:
        world.end.wire.transport.cut()  # type: ignore[union-attr]
        world.net.run()
    else:
        world.say(run, m.Error(failure) if isinstance(failure, Failure) else m.Cancelled())
    assert [request.run_id for request in second.runs] == [run.id] * goes_on
    assert (told.ends == []) is goes_on
    if goes_on:
        second.say(run.id, m.Whole(HEAD, b"x"))
        world.net.run()
        assert told.end == m.Whole(HEAD, b"x")
    assert world.idle


def test_what_the_client_is_told_is_what_is_recorded() -> None:
    """The first failure, though another one was the last; each attempt has its own."""
    world, second = pair()
    run, told = world.start()
    told.status = 0
    world.say(run, m.Error(answered(429)))
    second.say(run.id, m.Error(Failure("upstream_error", "closed without an answer")))
    world.net.run()
    (record,) = world.records
    assert told.end == record.outcome == "rate_limited"
    assert record.status == 429
    assert record.attempts == (("n1", "p1", "rate_limited", 429), ("n2", "q1", "upstream_error", 502))
    assert record.provider == "q1"
    assert world.idle


AGENT = {"type": "cli", "category": "cli"}


def agents() -> tuple[World, NodeEnd]:
    nodes = [node("n1", "p1", **AGENT), node("n2", "q1", **AGENT)]
    for each in nodes:
        each["adapters"][0] |= {"type": "cli", "command": "agent"}
    world = World(*nodes)
    return world, NodeEnd(world.net, "n2")


@pytest.mark.parametrize(
    ("failure", "goes_on"),
    [
        (answered(429), False),
        (CUT, False),
        (Failure("upstream_connect", "no"), False),
        (Failure("adapter_unavailable", "none"), True),
        (Failure("session_busy", "in use"), True),
    ],
)
def test_what_may_have_changed_a_workspace_is_sent_once(failure: Failure | str, goes_on: bool) -> None:
    world, second = agents()
    run, told = world.start()
    if isinstance(failure, Failure):
        world.say(run, m.Error(failure))
    else:
        world.end.wire.transport.cut()  # type: ignore[union-attr]
        world.net.run()
    assert [request.run_id for request in second.runs] == [run.id] * goes_on
    assert (told.ends == []) is goes_on


def test_each_attempt_is_asked_for_its_providers_own_target() -> None:
    nodes = [node("n1", "p1", models=["one"]), node("n2", "q1", models=["two"])]
    providers = [{"id": "p1", "target": "one"}, {"id": "q1", "target": "two"}]
    world = World(*nodes, models=[{"id": "m", "providers": providers}])
    second = NodeEnd(world.net, "n2")
    run, _ = world.start(native=lambda target: target.encode())
    assert [(each.target, each.input) for each in world.end.runs] == [("one", b"one")]
    world.say(run, m.Error(Failure("upstream_connect", "no")))
    assert [(each.target, each.input, each.provider_id) for each in second.runs] == [("two", b"two", "q1")]


# ---- what an end says of a provider


def attempt(world: World, *events: m.RunEvent) -> Run:
    run, _ = world.start()
    world.say(run, *events)
    return run


def unreached(world: World) -> Run:
    return attempt(world, m.Error(Failure("upstream_connect", "refused")))


def health(world: World) -> str:
    settings = load_document(document()).config
    (shown,) = snapshots(settings, world.pool)
    return str(shown["health"])


def refusal(world: World) -> str:
    with pytest.raises(Failure) as raised:
        world.start()
    return raised.value.code


def test_three_that_do_not_connect_shut_a_provider_until_one_tries() -> None:
    world = World()
    world.end.wire.send(m.ProviderStatus("p1", "up"))
    for _ in range(3):
        assert health(world) != "down"
        unreached(world)
    assert refusal(world) == "no_provider"
    assert health(world) == "down"
    world.net.run(1)
    assert health(world) == "degraded"
    attempt(world, m.Start(HEAD), m.Complete())
    assert health(world) == "up"
    assert world.idle


@pytest.mark.parametrize(
    "end",
    [
        m.Error(answered(400)),
        m.Error(answered(429)),
        m.Error(Failure("upstream_timeout", "silent")),
        m.Error(Failure("upstream_busy", "no connection is free")),
        m.Error(Failure("adapter_unavailable", "none")),
        m.Error(Failure("deadline_exceeded", "it took too long")),
        m.Cancelled(),
        m.Error(failure_of(429, {}, b'{"error": {"message": "no", "code": "upstream_connect"}}')),
    ],
)
def test_three_that_fail_otherwise_do_not(end: m.RunEvent) -> None:
    """A backend is no part of ours: its words are not taken for our codes."""
    world = World()
    for _ in range(3):
        attempt(world, end)
    assert world.pool.resources["p1"].candidate
    attempt(world, m.Start(HEAD), m.Complete())


def test_a_client_that_leaves_says_nothing_of_the_provider() -> None:
    world = World()
    for _ in range(3):
        run, _ = world.start()
        run.cancel()
        world.say(run, m.Cancelled())
    assert world.pool.resources["p1"].candidate
    assert health(world) == "unknown"


def test_an_answer_between_them_begins_the_row_anew() -> None:
    world = World()
    unreached(world)
    unreached(world)
    attempt(world, m.Error(answered(400)))
    unreached(world)
    assert world.pool.resources["p1"].candidate
    unreached(world)
    unreached(world)
    assert not world.pool.resources["p1"].candidate


def test_the_start_of_a_trial_lets_the_others_in() -> None:
    world = World()
    for _ in range(3):
        unreached(world)
    world.net.run(1)
    trial, _ = world.start()
    others = [world.start()[0] for _ in range(2)]
    assert all(run.lane is not None for run in others)
    world.say(trial, m.Start(HEAD))
    assert all(run.lane is None for run in others)
    assert not trial.ended


# ---- whose turn it is


def served(end: NodeEnd) -> list[str]:
    return [request.run_id for request in end.runs]


def test_the_runs_of_a_lost_link_are_served_in_order_of_arrival() -> None:
    """Not in the order in which they were sent: the first of these waited for its long slot."""
    world = World(
        node("n1", "p1", capacity=4, long_context_capacity=1),
        node("n2", "q1", capacity=1, long_context_capacity=1),
        long_context_threshold_tokens=100,
    )
    before, _ = world.start(tokens=100)
    first, _ = world.start(tokens=100)
    second, _ = world.start()
    begun, told = world.start()
    assert first.lane is not None
    world.say(begun, m.Start(HEAD), m.Delta(b"x"))
    world.say(before, m.Whole(HEAD, b"x"))
    assert served(world.end) == [each.id for each in (before, second, begun, first)]
    other = NodeEnd(world.net, "n2")
    world.end.wire.transport.cut()  # type: ignore[union-attr]
    world.net.run()
    assert told.end == "node_lost"
    assert served(other) == [first.id]
    assert second.lane is not None
    other.say(first.id, m.Whole(HEAD, b"x"))
    world.net.run()
    assert served(other) == [first.id, second.id]


@pytest.mark.parametrize(
    ("error", "code"), [(Failure("invalid_value", "no"), "invalid_value"), (KeyError(), "internal")]
)
def test_a_wait_for_nothing_is_told_and_its_slot_goes_on(error: Exception, code: str, logged: Any) -> None:
    """QU-02: an exception in translation, with somebody waiting."""

    def bad(target: str) -> bytes:
        raise error

    world = World(node("n1", "p1", capacity=1))
    busy, _ = world.start()
    waiting, told = world.start(native=bad)
    third, answer = world.start()
    world.say(busy, m.Whole(HEAD, b"x"))
    assert told.end == code
    assert waiting.ended
    assert served(world.end) == [busy.id, third.id]
    world.say(third, m.Whole(HEAD, b"x"))
    assert answer.end == m.Whole(HEAD, b"x")
    assert world.idle
    assert logged.failures() == [error] * (code == "internal")


@pytest.mark.parametrize(
    "end",
    [m.Error(Failure("upstream_error", "no")), m.Error(Failure("upstream_timeout", "silent")), m.Cancelled()],
)
def test_every_end_gives_the_slot_to_who_waits(end: m.RunEvent) -> None:
    """QU-02: an upstream error, a timeout, a cancel."""
    world = World(node("n1", "p1", capacity=1))
    busy, told = world.start()
    waiting, answer = world.start()
    world.say(busy, end)
    assert len(told.ends) == 1
    assert served(world.end) == [busy.id, waiting.id]
    assert world.pool.in_flight == 1
    world.say(waiting, m.Whole(HEAD, b"x"))
    assert answer.end == m.Whole(HEAD, b"x")
    assert world.idle


def test_a_surface_that_breaks_gives_the_slot_on(logged: Any) -> None:
    """QU-02: an exception, with somebody waiting."""
    world = World(node("n1", "p1", capacity=1))
    busy, told = world.start()
    told.breaks_at = m.Start
    waiting, _ = world.start()
    world.say(busy, m.Start(HEAD))
    assert (told.end, waiting.lane is None) == ("internal", False)
    world.say(busy, m.Cancelled(), seq=1)
    assert served(world.end) == [busy.id, waiting.id]
    assert len(logged.failures()) == 1


def test_a_patient_adapter_has_its_grace_time() -> None:
    """`grace_ms` of 20 s and 5 s more: until then a cancelled run keeps its slot."""
    patient = node("n1", "p1")
    patient["adapters"][0]["grace_ms"] = 20_000
    world = World(patient)
    run, _ = world.start()
    world.end.confirm_cancels = False
    run.cancel()
    world.net.run(24)
    assert world.pool.in_flight == 1
    world.net.run(2)
    assert world.idle
    assert world.pool.resources["p1"].unconfirmed
