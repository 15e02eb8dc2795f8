"""The pool seen from outside: snapshots, the console's answers, and the stories of runs. ``docs/contracts/pool.md``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from gateway_in_memory import document, node
from node_end import NodeEnd
from pool_claims import ask
from test_console import Operator, error
from test_pool_crowded import World as PoolWorld
from test_pool_crowded import configuration, provider
from test_runs import HEAD, HTTP, Told, World

from iop import model as m
from iop.edge.config import load_document
from iop.edge.pool.lease import Verdict
from iop.edge.runs import Ask, Run
from iop.edge.runs.runs import REMEMBERED
from iop.edge.surfaces.status import pool_status, snapshots
from iop.errors import Failure

pytestmark = pytest.mark.usefixtures("logged")

COUNTED = ("capacity", "in_flight", "queued", "long_context_capacity", "long_in_flight", "long_queued")


# ---- snapshots


def shown(made: dict[str, Any], world: PoolWorld) -> dict[str, tuple[int, ...]]:
    """Return what is counted of each provider."""
    found = snapshots(load_document(made).config, world.pool)
    return {each["provider_id"]: tuple(each[name] for name in COUNTED) for each in found}


def shared(**first: Any) -> dict[str, Any]:
    """A configuration of two models that share provider `a`; `b` is at another node."""
    nodes = {
        "n1": [provider("a", capacity=2, long_context_capacity=1, **first)],
        "n2": [provider("b", long_context_capacity=1)],
    }
    return configuration(
        nodes,
        {"m": ["a", "b"], "other": ["a"]},
        long_context_threshold_tokens=100,
        provider_pool={"queue_timeout_ms": 0},
    )


def test_who_waits_is_counted_for_every_provider_that_could_serve() -> None:
    made = shared()
    world = PoolWorld(made)
    for name in ("n1", "n2"):
        world.node(name)
    long, failed = ask(world.pool, tokens=100), ask(world.pool)
    ask(world.pool, "other")
    assert (long.provider, failed.provider) == ("a", "b")
    assert shown(made, world) == {"a": (2, 2, 0, 1, 1, 0), "b": (1, 1, 0, 1, 0, 0)}
    ask(world.pool, "other", tokens=100)
    ask(world.pool, "other")
    assert shown(made, world) == {"a": (2, 2, 2, 1, 1, 1), "b": (1, 1, 0, 1, 0, 0)}
    assert failed.lease is not None
    assert world.pool.again(failed, failed.lease, Failure("rate_limited", "slow down"), Verdict.REACHED)
    assert failed.waiting
    assert shown(made, world) == {"a": (2, 2, 3, 1, 1, 1), "b": (1, 0, 0, 1, 0, 0)}, "it has been at b"
    ask(world.pool, tokens=100)
    assert shown(made, world) == {"a": (2, 2, 3, 1, 1, 1), "b": (1, 1, 0, 1, 1, 0)}
    ask(world.pool, tokens=100)
    assert shown(made, world) == {"a": (2, 2, 4, 1, 1, 2), "b": (1, 1, 1, 1, 1, 1)}
    world.node("n2", up=False)
    assert shown(made, world)["b"] == (1, 1, 0, 1, 1, 0), "nobody waits for who is away"


def test_a_disabled_provider_offers_nothing() -> None:
    made = shared()
    world = PoolWorld(made)
    for name in ("n1", "n2"):
        world.node(name)
    for _ in range(3):
        ask(world.pool)
    ask(world.pool)
    off = shared(enabled=False)
    world.refresh(off)
    assert shown(off, world) == {"a": (0, 2, 0, 0, 0, 0), "b": (1, 1, 1, 1, 0, 0)}


# ---- the console


def test_the_console_shows_who_waits_and_for_how_long() -> None:
    made = document(node("n1", "p1", capacity=1), provider_pool={"max_queue": 7, "queue_timeout_ms": 9000})
    operator = Operator(made)
    operator.world.node("n1")
    ask(operator.world.pool)
    ask(operator.world.pool)
    operator.world.net.run(1.5)
    ask(operator.world.pool)
    answer = operator.ask("/v1/pool")
    assert answer.status == 200
    assert {name: answer.json[name] for name in ("queued", "max_queue", "queue_timeout_ms", "reasons")} == {
        "queued": 2,
        "max_queue": 7,
        "queue_timeout_ms": 9000,
        "reasons": {},
    }
    assert answer.json["models"] == [{"id": "m", "queued": 2, "longest_wait_ms": 1500, "service_ms": 0}]
    (provider,) = answer.json["providers"]
    assert (provider["capacity"], provider["in_flight"], provider["queued"]) == (1, 1, 2)


def test_the_console_explains_a_run() -> None:
    operator = Operator(document(node("n1", "p1", capacity=1)))
    operator.world.node("n1")
    asked = Ask("m", lambda target: b"{}", HTTP, request_id="req 1/2")
    operator.world.runs.start(asked, Told())
    run = operator.world.runs.start(asked._replace(request_id="second"), Told())
    operator.world.net.run(2)
    answer = operator.ask(f"/v1/runs/{run.id}")
    assert (answer.status, answer.json) == (200, operator.world.runs.explain(run.id))
    assert (answer.json["outcome"], answer.json["queued_ms"]) == ("waiting", 2000)
    assert operator.ask("/v1/runs/req%201%2F2").json["outcome"] == "running"
    assert error(operator.ask("/v1/runs/nobody")) == (404, "unknown_url")
    assert error(operator.ask("/v1/runs/")) == (404, "unknown_url")


# ---- stories


def explained(world: World, id: str) -> dict[str, Any]:
    story = world.runs.explain(id)
    assert story is not None
    return story


def words(step: dict[str, Any]) -> Sequence[str]:
    return [each["passed_over"] for each in step["considered"]]


def test_why_each_provider_was_passed_over() -> None:
    first = node("n1", "busy", "later", "chosen", "off", "turn", capacity=2)
    first["providers"][1]["priority"] = 5
    first["providers"][3]["enabled"] = False
    world = World(first)
    world.pool.resources["busy"].in_flight = 1
    run, _ = world.start()
    (step,) = explained(world, run.id)["steps"]
    assert (step["step"], step["provider"]) == ("dispatched", "n1/chosen")
    assert words(step) == ["more_in_flight", "later_priority", "", "disabled", "not_its_turn"]
    assert [each["in_flight"] for each in step["considered"]] == [1, 0, 0, 0, 0]


def test_the_story_of_a_wait() -> None:
    world = World(
        node("n1", "p1", "p2", capacity=3, long_context_capacity=1),
        node("n2", "q1"),
        long_context_threshold_tokens=100,
    )
    world.pool.resources["p2"].long_capacity = 0
    world.net.run(1)
    held, _ = world.start(tokens=100)
    run, _ = world.start(tokens=100)
    world.net.run(2)
    story = explained(world, run.id)
    assert [(step["step"], step["provider"], step["at_ms"]) for step in story["steps"]] == [("waits", None, 0)]
    assert words(story["steps"][0]) == ["no_long_slots", "node_away", "long_full"]
    assert (story["outcome"], story["queued_ms"], story["total_ms"]) == ("waiting", 2000, 2000)
    world.say(held, m.Whole(HEAD, b"x"))
    world.net.run(3)
    story = explained(world, run.id)
    assert (story["outcome"], story["queued_ms"], story["total_ms"], story["long"]) == ("running", 2000, 5000, True)
    world.say(run, m.Whole(HEAD, b"x"))
    world.net.run(4)
    story = explained(world, run.id)
    assert (story["outcome"], story["queued_ms"], story["total_ms"]) == ("complete", 2000, 5000)
    assert [(step["step"], step["at_ms"]) for step in story["steps"]] == [
        ("waits", 0),
        ("dispatched", 2000),
        ("ended", 5000),
    ]
    assert story["attempts"] == [
        {"provider": "n1/p1", "dispatched_ms": 2000, "ended_ms": 5000, "outcome": "complete"},
    ]


def waits_again() -> tuple[dict[str, Any], World, NodeEnd, list[Run]]:
    """Return runs on two nodes of one slot each, the second node, and the run there and one that waits again.

    That one has waited for 2 s, run for 5 s on the first node, in vain, and waited for 1 s since.
    """
    made = document(node("n1", "p1", capacity=1), node("n2", "q1", capacity=1))
    world = World(*made["nodes"])
    second = NodeEnd(world.net, "n2")
    first, other, again = (world.start()[0] for _ in range(3))
    world.net.run(2)
    world.say(first, m.Whole(HEAD, b"x"))
    assert [request.run_id for request in world.end.runs] == [first.id, again.id]
    world.net.run(5)
    world.say(again, m.Error(Failure("rate_limited", "slow down")))
    world.net.run(1)
    return made, world, second, [other, again]


def test_all_that_a_run_waited_is_told_while_it_waits_again() -> None:
    made, world, _, (_, again) = waits_again()
    story = explained(world, again.id)
    assert (story["outcome"], story["queued_ms"], story["total_ms"]) == ("waiting", 3000, 8000)
    (model,) = pool_status(load_document(made).config, world.pool)["models"]
    assert (model["queued"], model["longest_wait_ms"]) == (1, 3000)


def test_all_that_a_run_waited_is_told_when_it_has_ended() -> None:
    _, world, second, (other, again) = waits_again()
    second.say(other.id, m.Whole(HEAD, b"x"))
    world.net.run(4)
    assert explained(world, again.id)["queued_ms"] == 3000
    second.say(again.id, m.Whole(HEAD, b"x"))
    world.net.run()
    story = explained(world, again.id)
    assert (story["outcome"], story["queued_ms"], story["total_ms"]) == ("complete", 3000, 12_000)
    record = world.records[-1]
    assert (record.run_id, record.queue_ms, record.total_ms) == (again.id, 3000, 12_000)


def test_of_two_runs_of_one_request_id_the_newest_is_explained() -> None:
    world = World()
    runs = [world.start(request_id="again")[0] for _ in range(2)]
    for run in runs:
        world.say(run, m.Whole(HEAD, b"x"))
    assert explained(world, "again")["id"] == runs[1].id
    runs += [world.start(request_id="again")[0] for _ in range(4)]
    assert explained(world, "again")["id"] == runs[-1].id, "of those that go on, too"
    world.say(runs[-1], m.Whole(HEAD, b"x"))
    assert explained(world, "again")["id"] == runs[-1].id, "though others go on"


def test_the_story_of_a_run_whose_session_is_in_use() -> None:
    world = World()
    world.net.run(100)
    world.start(session_id="s")
    with pytest.raises(Failure):
        world.start(session_id="s", request_id="req-1")
    story = explained(world, "req-1")
    assert (story["outcome"], story["arrived"], story["total_ms"]) == ("session_busy", 100, 0)


def test_the_oldest_of_many_is_forgotten() -> None:
    world = World()
    runs = []
    for _ in range(REMEMBERED + 1):
        run = world.runs.start(Ask("m", lambda target: b"", HTTP), Told())
        run.link_lost()
        runs.append(run)
    assert world.runs.explain(runs[0].id) is None
    assert explained(world, runs[1].id)["outcome"] == explained(world, runs[-1].id)["outcome"] == "node_lost"
