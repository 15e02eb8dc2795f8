"""Applying a refresh: all or nothing, the nodes asked first. docs/contracts/refresh.md, Apply."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from gateway_in_memory import document, node
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_claims import ask
from refreshing import BAD, CUT, FAIL, RESTART, SILENT, TAKE, Part, ScriptedNode, World, load, reports, two_nodes
from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from iop.edge.config import revision
from iop.edge.nodes.payload import payload_of
from iop.edge.refresh import RefreshResult, Status
from iop.edge.refresh.apply import MOST_WAITING
from iop.interfaces import IRefreshable

pytestmark = pytest.mark.usefixtures("logged")


def capacity(world: World) -> int:
    return world.pool.resources["p1"].capacity


def test_the_parts_provide_the_interface() -> None:
    world = World()
    for part in (world.nodes, world.pool, world.surface, Part([], "one")):
        assert verifyObject(IRefreshable, part)


# ---- what asks nobody


def test_a_dry_run_changes_nothing() -> None:
    world = World()
    end = world.node("n1")
    result = world.refresh(two_nodes(2, capacity=7), "dry_run")
    assert (result.status, result.reports) == (Status.APPLIED, ())
    assert [change.path for change in result.changes] == [
        "nodes[n1].providers[p1].capacity",
        "nodes[n1].runtime.concurrency",
        "nodes[n2].providers[p2].capacity",
    ]
    assert (capacity(world), end.asked, world.said) == (10_000, [], [])
    assert world.refresher.revision == result.revision_before


def test_what_no_node_is_told_is_the_edges_alone() -> None:
    world = World()
    end = world.node("n1")
    result = world.refresh(two_nodes(capacity=7))
    assert result.status is Status.APPLIED
    assert reports(result) == {"n1": "unchanged", "n2": "unchanged"}
    assert (capacity(world), end.asked) == (7, [])
    assert world.refresher.revision == result.revision_after == revision(load(two_nodes(capacity=7)).config)


def test_all_prepare_then_all_commit_then_pending_runs_are_judged() -> None:
    world = World()
    world.refresh(two_nodes(capacity=7))
    assert world.said == ["one prepares", "two prepares", "one commits", "two commits", "judge"]


def test_no_change_at_all_judges_pending_runs_all_the_same() -> None:
    world = World()
    result = world.refresh(two_nodes())
    assert (result.status, result.changes, world.said[-1]) == (Status.APPLIED, (), "judge")


def test_a_part_that_cannot_leaves_everything_as_it_was() -> None:
    world = World(failing=True)
    end = world.node("n1")
    before = world.refresher.running
    result = world.refresh(two_nodes(2, capacity=7))
    assert result.status is Status.REJECTED
    assert [(error.code, error.message) for error in result.errors] == [("apply_failed", "two cannot")]
    assert world.said == ["one prepares", "one abandons"]
    assert (capacity(world), end.asked, world.refresher.running) == (10_000, [], before)


def restart() -> dict[str, Any]:
    made = two_nodes(2, capacity=7)
    made["heartbeat_ms"] = 5
    return made


@pytest.mark.parametrize(("made", "status"), [(restart(), Status.RESTART_REQUIRED), (BAD, Status.REJECTED)])
def test_what_cannot_be_applied_is_not_applied_in_part(made: Any, status: Status) -> None:
    world = World()
    end = world.node("n1")
    result = world.refresh(made)
    assert (result.status, result.reports) == (status, ())
    assert (capacity(world), end.asked, world.said) == (10_000, [], [])


def test_an_unknown_mode_is_rejected() -> None:
    world = World()
    result = world.refresh(two_nodes(capacity=7), "now")
    assert (result.status, result.mode, capacity(world)) == (Status.REJECTED, "now", 10_000)


def test_without_files_those_of_the_start() -> None:
    world = World()
    world.candidates["start"] = two_nodes(capacity=7)
    got: list[Any] = []
    world.refresher.hang_up()
    assert capacity(world) == 7
    world.refresher._files = ()
    Deferred.fromCoroutine(world.refresher.refresh("apply")).addCallback(got.append)
    assert [(error.path, error.code) for error in got[0].errors] == [("", "file")]


# ---- nodes


def test_a_node_is_asked_and_takes_it() -> None:
    world = World()
    one, two = world.node("n1"), world.node("n2")
    result = world.refresh(two_nodes(7))
    assert reports(result) == {"n1": "applied", "n2": "unchanged"}
    payload = payload_of(load(two_nodes(7)).config.nodes[0])
    assert [request.payload for request in one.asked] == [payload]
    assert two.asked == []
    assert world.entry("n1").payload == payload
    assert world.entry("n1").node.runtime.concurrency == 7
    link = world.entry("n1").link
    assert link is not None
    assert (link.revision, link.ready) == (payload.revision, True)


def test_nothing_is_swapped_before_the_last_node_has_answered() -> None:
    world = World()
    world.node("n1")
    slow = world.node("n2", SILENT)
    got = world.start(two_nodes(7, 7, capacity=7))
    world.net.run(5)
    assert (got, capacity(world)) == ([], 10_000)
    slow.answer(slow.asked[0], TAKE)
    world.net.run()
    assert reports(got[0]) == {"n1": "applied", "n2": "applied"}
    assert capacity(world) == 7


def test_a_node_that_is_away_gets_it_when_it_registers() -> None:
    world = World()
    result = world.refresh(two_nodes(7))
    assert reports(result) == {"n1": "offline", "n2": "unchanged"}
    assert world.node("n1").payload.concurrency == 7


def test_a_node_that_is_lost_while_it_is_asked_is_away() -> None:
    world = World()
    world.node("n1", CUT)
    result = world.refresh(two_nodes(7, capacity=7))
    assert (result.status, reports(result)["n1"], capacity(world)) == (Status.APPLIED, "offline", 7)
    assert world.node("n1").payload.concurrency == 7


@pytest.mark.parametrize(("word", "said"), [(FAIL, "FAILED"), (RESTART, "RESTART_REQUIRED")])
def test_a_node_that_refuses_rolls_all_back(word: str, said: str) -> None:
    world = World()
    one, two = world.node("n1"), world.node("n2", word)
    before = world.refresher.running
    result = world.refresh(two_nodes(7, 7, capacity=7))
    assert result.status is Status.REJECTED
    assert reports(result) == {"n1": "rolled_back", "n2": "failed"}
    assert [(e.path, e.code, e.message) for e in result.errors] == [
        ("nodes[n2]", "apply_failed", f"{said}: no: http://***@backend/")
    ]
    assert [request.payload.concurrency for request in one.asked] == [7, 1]
    assert (one.payload, two.payload) == (world.entry("n1").payload, world.entry("n2").payload)
    assert one.payload.concurrency == 1
    assert (capacity(world), world.refresher.running, world.said[-1]) == (10_000, before, "two abandons")
    assert world.entry("n1").usable
    assert result.revision_after != world.refresher.revision


def test_a_node_that_does_not_answer_is_waited_for_ten_seconds() -> None:
    world = World()
    one, two = world.node("n1"), world.node("n2", SILENT, TAKE)
    got = world.start(two_nodes(7, 7))
    world.net.run(9.9)
    assert got == []
    world.net.run(0.1)
    assert reports(got[0]) == {"n1": "rolled_back", "n2": "failed"}
    assert "no answer within 10 s" in got[0].errors[0].message
    assert [request.payload.concurrency for request in two.asked] == [7, 1], "the old one is sent behind the new one"
    assert one.payload.concurrency == two.payload.concurrency == 1
    assert two.lost == []


def test_a_silent_node_that_then_refuses_its_old_payload_is_dropped() -> None:
    world = World()
    world.node("n1")
    two = world.node("n2", SILENT, FAIL)
    world.refresh(two_nodes(7, 7), seconds=10)
    world.net.run(1)
    assert two.lost


def test_a_node_that_stays_silent_is_the_heartbeats_business() -> None:
    world = World()
    two = world.node("n2", SILENT)
    world.refresh(two_nodes(1, 7), seconds=10)
    world.net.run(11)
    assert two.lost == []


def test_a_node_that_cannot_go_back_is_dropped_and_registers_anew() -> None:
    world = World()
    one = world.node("n1", TAKE, FAIL)
    world.node("n2", FAIL)
    result = world.refresh(two_nodes(7, 7))
    assert reports(result) == {"n1": "failed", "n2": "failed"}
    assert [error.path for error in result.errors] == ["nodes[n2]"]
    world.net.run(1)
    assert one.lost
    assert world.node("n1").payload.concurrency == 1


def test_a_node_that_is_lost_while_it_goes_back_is_away() -> None:
    world = World()
    world.node("n1", TAKE, CUT)
    world.node("n2", FAIL)
    assert reports(world.refresh(two_nodes(7, 7))) == {"n1": "offline", "n2": "failed"}
    assert world.node("n1").payload.concurrency == 1


def test_a_node_whose_adapters_are_still_being_made_is_asked_too() -> None:
    world = World()
    one = world.node("n1", acknowledge=False)
    assert reports(world.refresh(two_nodes(7)))["n1"] == "applied"
    one.acknowledge()
    world.net.run()
    assert world.entry("n1").usable


def test_a_node_that_hangs_delays_no_refresh_that_does_not_concern_it() -> None:
    world = World()
    world.node("n1")
    world.node("n2", SILENT)
    assert world.refresh(two_nodes(7, 1)).status is Status.APPLIED
    assert world.refresh(two_nodes(7, 1, capacity=3)).status is Status.APPLIED


# ---- who registers meanwhile


@pytest.mark.parametrize(("word", "told"), [(TAKE, 7), (FAIL, 1)])
def test_who_registers_meanwhile_is_told_what_was_decided(word: str, told: int) -> None:
    world = World()
    decides = world.node("n1", SILENT, TAKE)
    got = world.start(two_nodes(7, 7))
    late = world.node("n2")
    assert late.response is None
    decides.answer(decides.asked[0], word)
    world.net.run()
    assert late.payload.concurrency == told
    assert world.entry("n2").usable
    assert reports(got[0])["n2"] == "offline"


def test_whom_it_does_not_concern_registers_at_once() -> None:
    world = World()
    world.node("n1", SILENT)
    world.start(two_nodes(7))
    assert world.node("n2").response is not None


def test_who_registers_meanwhile_and_leaves_is_forgotten() -> None:
    world = World()
    decides = world.node("n1", SILENT)
    world.start(two_nodes(7, 7))
    world.node("n2").wire.close("bye")
    world.net.run()
    decides.answer(decides.asked[0], TAKE)
    world.net.run()
    assert world.entry("n2").link is None
    assert world.nodes._waiting == []


def test_a_second_link_of_a_dead_node_waits_too() -> None:
    world = World()
    first = world.node("n1")
    first.wire.transport.pauseProducing()  # type: ignore[union-attr]
    second = world.node("n1")
    world.start(two_nodes(7))
    world.net.run(2.1)
    assert reports(world.start(two_nodes(7), "dry_run")[0]) == {}
    world.net.run()
    assert second.payload.concurrency == 7
    assert world.entry("n1").usable


# ---- runs and clients


def test_leases_in_hand_stay() -> None:
    world = World(document(node("n1", "p1", capacity=3)))
    world.node("n1")
    runs = [ask(world.pool) for _ in range(3)]
    assert world.refresh(document(node("n1", "p1", capacity=1))).status is Status.APPLIED
    assert world.pool.in_flight == 3
    late = ask(world.pool)
    for run in runs[:2]:
        assert late.waiting
        run.end()
    assert late.waiting
    runs[2].end()
    assert late.provider == "p1"
    assert world.pool.in_flight == 1


def test_who_was_served_last_is_remembered() -> None:
    world = World(document(node("n1", "p1", "p2", "p3")))
    world.node("n1")
    run = ask(world.pool)
    assert run.provider == "p1"
    run.end()
    made = document(node("n1", "p1", "p2", "p3"))
    made["models"][0]["providers"] = ["p2", "p1", "p3"]
    world.refresh(made)
    assert ask(world.pool).provider == "p3"


def test_a_provider_that_is_switched_off_is_no_candidate() -> None:
    world = World(document(node("n1", "p1")))
    world.node("n1")
    run = ask(world.pool)
    world.refresh(document(node("n1", "p1", enabled=False)))
    assert ask(world.pool).code == "no_provider"
    run.end()
    world.refresh(document(node("n1", "p1")))
    assert ask(world.pool).provider == run.provider


def test_models_come_go_and_change_their_target() -> None:
    made = document(node("n1", "p1", models=["a", "b"]))
    made["models"] = [{"id": "m", "providers": [{"id": "p1", "target": "a"}]}, {"id": "old", "providers": []}]
    world = World(made)
    world.node("n1")
    lease = ask(world.pool).lease
    world.net.run(100)
    made = copy.deepcopy(made)
    made["models"] = [
        {"id": "m", "providers": [{"id": "p1", "target": "b"}], "context_window_tokens": 9},
        {"id": "new", "providers": [{"id": "p1", "target": "a"}]},
    ]
    assert world.refresh(made).status is Status.APPLIED
    leases = [lease, ask(world.pool, tokens=1).lease, ask(world.pool, "new").lease]
    assert [each.target for each in leases if each is not None] == ["a", "b", "a"]
    assert ask(world.pool, "old").code == "model_not_found"
    shown = world.surface._models
    assert {id: (each["created"], each.get("max_model_len")) for id, each in shown.items()} == {
        "m": (0, 9),
        "new": (100, None),
    }


# ---- one after the other


def test_two_refreshes_never_interleave() -> None:
    world = World()
    hangs = world.node("n1", SILENT, TAKE)
    first = world.start(two_nodes(7))
    second = world.start(two_nodes(8, capacity=5))
    world.net.run(9)
    assert (first, second) == ([], [])
    assert len(hangs.asked) == 1
    assert world.refresh(two_nodes(9), "dry_run").status is Status.APPLIED, "asking waits for nobody"
    world.net.run(1)
    assert first[0].status is Status.REJECTED
    assert second[0].status is Status.APPLIED
    assert (hangs.payload.concurrency, capacity(world)) == (8, 5)


def test_ten_at_once_end_in_the_last_ones_configuration() -> None:
    world = World(slow=0.3)
    end = world.node("n1")
    got = [world.start(two_nodes(number, capacity=number)) for number in range(1, 11)]
    world.net.run(10)
    assert [result[0].status for result in got] == [Status.APPLIED] * 10
    assert [a[0].revision_after for a in got[:-1]] == [b[0].revision_before for b in got[1:]]
    assert (capacity(world), end.payload.concurrency) == (10, 10)
    assert world.refresher.revision == revision(load(two_nodes(10, capacity=10)).config)


def test_only_so_many_wait() -> None:
    world = World()
    world.node("n1", SILENT)
    for _ in range(MOST_WAITING + 1):
        world.start(two_nodes(7))
    (refused,) = world.start(two_nodes(7))
    assert refused.value.code == "queue_full"


# ---- the log


def test_a_hangup_is_told_in_a_line(logged: Any) -> None:
    world = World()
    world.node("n2", FAIL)
    for made in (two_nodes(capacity=7), restart(), BAD, two_nodes(1, 7, capacity=7)):
        world.candidates["start"] = made
        world.refresher.hang_up()
        world.net.run()
    assert [line for line in logged.lines() if line.startswith("SIGHUP")] == [
        "SIGHUP: applied, 2 changes",
        "SIGHUP: restart_required, 2 changes: heartbeat_ms",
        "SIGHUP: rejected, 0 changes: bad.yaml:2: heartbeat_ms: must be 1 or more [range]",
        "SIGHUP: rejected, 1 change: nodes[n2]: FAILED: no: http://***@backend/ [apply_failed]",
    ]
    assert not any("marker" in line for line in logged.lines())


def test_a_long_story_is_cut(logged: Any) -> None:
    world = World()
    made = two_nodes()
    made["a2a"] = {"listen": "tcp:1", "card": {}}
    made["openai"]["model_routes"] = [{"model": f"r{n}", "adapter": "a", "target": "t"} for n in range(12)]
    world.refresh(made)
    assert logged.warnings()[0].endswith("and 3 more")


def test_a_hangup_with_a_full_queue_is_told_in_a_line(logged: Any) -> None:
    world = World()
    world.node("n1", SILENT)
    for _ in range(MOST_WAITING + 1):
        world.start(two_nodes(7))
    world.refresher.hang_up()
    assert logged.warnings() == ["SIGHUP: too many refreshes wait already"]


def test_a_bug_is_logged_and_the_next_refresh_has_its_turn(logged: Any) -> None:
    world = World()
    world.refresher._load = lambda files: 1 // 0  # type: ignore[assignment,return-value]
    world.refresher.hang_up()
    world.refresher._load = world.load
    assert len(logged.failures()) == 1
    assert world.refresh(two_nodes(capacity=7)).status is Status.APPLIED


# ---- whatever happens


WORDS = st.sampled_from([TAKE, TAKE, FAIL, RESTART, SILENT, CUT])
STEPS = st.tuples(st.integers(1, 4), st.integers(1, 4), st.lists(WORDS, max_size=3), st.lists(WORDS, max_size=3))


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=5), st.booleans())
def test_nodes_and_edge_end_in_the_same_configuration(steps: list[Any], at_once: bool) -> None:
    """Whatever nodes do, in the end each runs what the edge believes it runs, and the edge one whole configuration."""
    world = World()
    ends = {token: world.node(token) for token in ("n1", "n2")}
    results: list[RefreshResult] = []
    for number, (one, two, first, second) in enumerate(steps):
        for end, script in zip(ends.values(), (first, second), strict=True):
            end.script = [*script, TAKE]
        got = world.start(two_nodes(one, two, capacity=number + 1))
        world.net.run(0 if at_once else 60)
        results += got
        _come_back(world, ends)
    world.net.run(60 * len(steps))
    _come_back(world, ends)
    running = world.refresher.running
    assert world.refresher.revision == revision(running)
    for node_ in running.nodes:
        entry = world.entry(node_.id)
        assert entry.payload == payload_of(node_) == ends[node_.id].payload
        assert entry.usable
        assert entry.link is not None
        assert entry.link.revision == entry.payload.revision
        assert world.pool.resources[node_.providers[0].id].capacity == node_.providers[0].capacity
    assert (world.nodes._waiting, world.nodes._held) == ([], ())


def _come_back(world: World, ends: dict[str, ScriptedNode]) -> None:
    for token, end in ends.items():
        if end.lost:
            ends[token] = world.node(token)
    world.net.run()
