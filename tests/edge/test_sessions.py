"""Where a conversation goes on, and that it does so once at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from doubles import complete, fail, piece, start, wait
from gateway_in_memory import Gateway, document, node
from node_end import NodeEnd
from test_runs import World

from iop import model as m
from iop.edge.runs.sessions import MOST, Sessions
from iop.errors import Failure

pytestmark = pytest.mark.usefixtures("logged")


def agents(**rest: Any) -> dict[str, Any]:
    """Return a configuration of two providers that keep sessions and one that does not, all for the model `m`."""
    other = node("n3", "p3", type="openai_compat", models=["m"])
    other["adapters"] = [{"name": "a", "type": "openai_compat", "base_url": "http://127.0.0.1:1"}]
    return document(node("n1", "p1"), node("n2", "p2"), other, **rest)


def served_by(gateway: Gateway) -> list[str]:
    """Return the providers that were asked, in order."""
    runs = [run for machine in gateway.machines.values() for run in machine.adapter.runs]
    return [run.request.provider_id for run in sorted(runs, key=lambda run: run.request.run_id)]


def test_a_session_goes_on_where_it_is() -> None:
    gateway = Gateway(start(None), piece(text="Hi"), complete(), configuration=agents())
    for session_id in ("s1", "s2", "s1", "s2", "s1"):
        assert gateway.chat(metadata={"session_id": session_id}).answer.status == 200
    assert served_by(gateway) == ["p1", "p2", "p1", "p2", "p1"]
    gateway.assert_idle()


def test_it_waits_for_its_own_provider_though_another_is_free() -> None:
    configuration = document(node("n1", "p1", capacity=1), node("n2", "p2", capacity=1))
    gateway = Gateway(start(None), complete(), configuration=configuration)
    gateway.chat(metadata={"session_id": "s"})
    for machine in gateway.machines.values():
        machine.adapter.script = (wait,)
    gateway.chat()  # goes to the other one
    busy = gateway.chat()
    waiting = gateway.chat(metadata={"session_id": "s"})
    free = gateway.machines["n2"].adapter.runs[-1]
    assert gateway.pool.queue.size == 1
    assert waiting.data == b""
    gateway.machines["n1"].adapter.script = (start(None), complete())
    busy.leave()
    gateway.net.run()
    assert waiting.answer.status == 200
    assert not free.over


def test_one_run_of_a_session_at_a_time() -> None:
    """CL-11: the first run of a new session too, and one that still waits for a slot."""
    gateway = Gateway(wait, configuration=document(node("n1", "p1", capacity=1)))
    first = gateway.chat(metadata={"session_id": "s"})
    second = gateway.chat(metadata={"session_id": "s"}).answer
    assert (second.status, second.code) == (409, "session_busy")
    waiting = gateway.chat(metadata={"session_id": "t"})
    assert gateway.chat(metadata={"session_id": "t"}).answer.code == "session_busy"
    waiting.leave()
    first.leave()
    gateway.net.run()
    gateway.adapter.script = (start(None), complete())
    for session_id in ("s", "t"):
        assert gateway.chat(metadata={"session_id": session_id}).answer.status == 200
    gateway.assert_idle()


def test_a_refused_run_leaves_its_session_free() -> None:
    gateway = Gateway(start(None), complete(), configuration=document(node("n1", "p1"), provider_pool={"max_queue": 0}))
    gateway.machine.end.cut()
    gateway.net.run()
    assert gateway.chat(metadata={"session_id": "s"}).answer.code == "no_provider"
    gateway.net.run(5)
    assert gateway.chat(metadata={"session_id": "s"}).answer.status == 200


def test_a_session_id_is_the_callers_own_word_where_no_provider_keeps_sessions() -> None:
    other = node("n1", "p1", type="openai_compat")
    other["adapters"] = [{"name": "a", "type": "openai_compat", "base_url": "http://127.0.0.1:1"}]
    gateway = Gateway(wait, configuration=document(other))
    for _ in range(2):
        gateway.chat(metadata={"session_id": "the same trace"})
    assert len(gateway.adapter.runs) == 2


def test_what_did_not_run_may_begin_elsewhere_and_is_there_from_then_on() -> None:
    gateway = Gateway(start(None), complete(), configuration=agents())
    gateway.machines["n1"].adapter.script = (fail(Failure("adapter_unavailable", "not here")),)
    for _ in range(2):
        assert gateway.chat(metadata={"session_id": "s"}).answer.status == 200
    assert served_by(gateway) == ["p1", "p2", "p2"]


def test_a_session_of_another_model_is_told_so() -> None:
    configuration = document(node("n1", "p1"), node("n2", "p2"))
    configuration["models"] = [{"id": "one", "providers": ["p1"]}, {"id": "two", "providers": ["p2"]}]
    gateway = Gateway(start(None), complete(), configuration=configuration)
    gateway.chat(model="one", metadata={"session_id": "s"})
    answer = gateway.chat(model="two", metadata={"session_id": "s"}).answer
    assert (answer.status, answer.json["error"]["param"]) == (400, "metadata.session_id")
    assert gateway.chat(model="one", metadata={"session_id": "s"}).answer.status == 200


def test_a_node_that_registers_says_what_it_has() -> None:
    """An edge that was started again knows no session."""
    world = World(node("n1", "p1"), node("n2", "p2"))
    held = json.dumps(["", "s"], separators=(",", ":"))
    second = NodeEnd(world.net, "n2", sessions=[{"session_id": held, "adapter": "a", "state": "expired"}])
    world.net.run()
    for _ in range(2):
        run, _ = world.start(session_id=held)
        assert [request.provider_id for request in second.runs if request.run_id == run.id] == ["p2"]
        run.cancel()
        world.net.run()
        second.say(run.id, m.Cancelled())
        world.net.run()


def test_what_the_edge_knows_goes_before_what_a_node_says() -> None:
    """Also where several providers share an adapter, and models part them."""
    sessions = Sessions()
    sessions.keep("s", "n1", "a")
    sessions.learn("n2", [{"session_id": "s", "adapter": "b"}, {"session_id": "t", "adapter": "b"}])
    assert sessions._places == {"s": ("n1", "a"), "t": ("n2", "b")}
    shared = document(node("n1", "p1", "p2"))
    shared["models"] = [{"id": "one", "providers": ["p1"]}, {"id": "two", "providers": ["p2"]}]
    gateway = Gateway(start(None), complete(), configuration=shared)
    for model in ("two", "one", "two"):
        assert gateway.chat(model=model, metadata={"session_id": "s"}).answer.status == 200
        gateway.machine.end.cut()
        gateway.net.run(5)


def test_an_older_route_has_no_sessions() -> None:
    route = {"model": "old", "adapter": "a", "target": "t"}
    gateway = Gateway(start(None), complete(), configuration=document(openai={"model_routes": [route]}))
    answer = gateway.chat(model="old", metadata={"session_id": "s"}).answer
    assert (answer.status, answer.json["error"]["param"]) == (400, "metadata.session_id")
    assert gateway.chat(model="old").answer.status == 200
    gateway.assert_idle()


def test_only_so_many_places_are_remembered() -> None:
    sessions = Sessions()
    for number in range(MOST + 1):
        sessions.keep(str(number), "n1", "a")
    assert len(sessions._places) == MOST
    assert "0" not in sessions._places
