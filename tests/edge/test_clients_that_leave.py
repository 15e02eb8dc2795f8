"""Clients that leave, in every phase: the backend is stopped, the slot is free, nothing is written after."""

from __future__ import annotations

from typing import Any

import pytest
from doubles import JSON, complete, piece, start, wait
from gateway_in_memory import CHAT, Gateway, document, node

from iop import model as m

pytestmark = pytest.mark.usefixtures("logged")

PIECE = b"data: 1\n\n"

PHASES: dict[str, tuple[list[Any], bool]] = {
    "before the first byte": ([wait], True),
    "before the first byte, not streaming": ([wait], False),
    "after the start": ([start(), wait], True),
    "mid-stream": ([start(), piece(PIECE), piece(PIECE), piece(PIECE), wait], True),
    "in a held answer": ([start(JSON), piece(b"{"), wait], False),
    "in a long answer": ([start(JSON), piece(b"x" * (2 << 20)), wait], False),
}


@pytest.mark.parametrize("phase", sorted(PHASES))
def test_leaving_stops_the_backend(phase: str) -> None:
    """DC-01: at once, and the slot is free for the next."""
    script, stream = PHASES[phase]
    gateway = Gateway(*script, configuration=document(node("n1", "p1", capacity=1)))
    client = gateway.chat(stream=stream)
    assert gateway.pool.in_flight == 1
    client.leave()
    gateway.net.run(0.01)
    assert gateway.run.cancelled
    gateway.assert_idle()
    assert not gateway.chat(stream=stream).lost
    gateway.close()


@pytest.mark.parametrize("phase", sorted(PHASES))
def test_leaving_at_the_moment_of_the_end_is_no_trouble(phase: str, logged: Any) -> None:
    """DC-02"""
    script, stream = PHASES[phase]
    gateway = Gateway(*script, *([] if len(script) > 1 else [start()]), complete())
    client = gateway.chat(stream=stream)
    gateway.run.go()
    client.leave()
    gateway.net.run(20)
    gateway.assert_idle()
    assert logged.warnings() == []
    gateway.close()


def test_leaving_before_the_body_is_whole() -> None:
    gateway = Gateway(wait)
    client = gateway.connect()
    client.transport.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\n{")
    gateway.net.run()
    client.leave()
    gateway.net.run()
    assert gateway.adapter.runs == []
    assert [(each.operation, each.outcome, each.status) for each in gateway.records] == [("chat", "cancelled", 499)]
    gateway.assert_idle()
    gateway.close()


def test_leaving_while_a_request_waits_behind_another() -> None:
    gateway = Gateway(start(), piece(PIECE), wait)
    client = gateway.connect()
    client.ask(body={**CHAT, "stream": True})
    client.ask(body=CHAT)
    gateway.net.run()
    client.leave()
    gateway.net.run()
    assert len(gateway.adapter.runs) == 1
    gateway.assert_idle()
    gateway.close()


def test_leaving_while_a_long_input_is_on_its_way() -> None:
    gateway = Gateway(wait)
    client = gateway.connect()
    gateway.machine.end.pauseProducing()
    client.ask(body={**CHAT, "x": "y" * (4 << 20)})
    gateway.net.run()
    client.leave()
    gateway.net.run()
    gateway.machine.end.resumeProducing()
    gateway.net.run()
    assert gateway.adapter.runs == []
    gateway.assert_idle()
    gateway.close()


def test_leaving_while_the_node_is_lost() -> None:
    gateway = Gateway(start(), piece(PIECE), wait)
    client = gateway.chat(stream=True)
    client.leave()
    gateway.machine.end.cut()
    gateway.net.run(20)
    gateway.assert_idle()
    gateway.close()


def test_an_answer_to_who_has_left_is_written_nowhere(logged: Any) -> None:
    """DC-02: 200 clients that leave before their answers come, and nothing is logged, nothing is left."""
    gateway = Gateway(wait, start(), piece(PIECE), complete())
    gateway.net.run()
    gateway.adapter.stubborn = True
    clients = [gateway.chat(stream=number % 2 == 0) for number in range(200)]
    for client in clients:
        client.leave()
    gateway.net.run()
    for run in gateway.adapter.runs:
        run.gave_in.callback(None)
    gateway.net.run()
    gateway.assert_idle()
    assert logged.warnings() == []
    gateway.close()


def test_a_backend_that_does_not_stop_is_given_up_after_a_while(logged: Any) -> None:
    gateway = Gateway(start(), wait)
    gateway.adapter.stubborn = True
    gateway.chat(stream=True).leave()
    gateway.net.run(9)
    assert gateway.pool.in_flight == 1
    gateway.net.run(2)
    assert gateway.pool.in_flight == 0
    assert gateway.pool.resources["p1"].unconfirmed
    assert len(logged.warnings()) == 1
    gateway.run.gave_in.callback(None)
    gateway.net.run()
    assert gateway.entry.link is not None
    assert gateway.entry.link.late == 1
    gateway.assert_idle()


def test_two_thousand_cancelled_streams_leave_nothing(logged: Any) -> None:
    """Both ends in one test, edge, link and node: cancelled before, at and after their first piece."""
    gateway = Gateway(start(), piece(PIECE), wait, piece(PIECE), wait)
    for batch in range(20):
        clients = [gateway.connect() for _ in range(100)]
        for client in clients:
            client.ask(body={**CHAT, "stream": True})
        if batch % 3 == 0:  # the edge knows of them, the node does not yet
            for connection in list(gateway.server.connections):
                connection.transport.deliver()
        else:
            gateway.net.run()
            assert len(gateway.machine.supervisor.runs) == 100
        if batch % 3 == 2:
            for run in gateway.adapter.runs[-100:]:
                run.go()
        assert gateway.pool.in_flight == len(gateway.runs.active) == 100
        for client in clients:
            client.leave()
        gateway.net.run(0.1)
        gateway.clients.clear()
        gateway.assert_idle()
    runs = gateway.adapter.runs
    assert len(runs) == gateway.machine.supervisor.total == 2000
    assert all(run.cancelled for run in runs)
    assert len(gateway.server.connections) == 0
    assert len(gateway.net.ends) == 2, "the link"
    assert logged.warnings() == []
    gateway.close()


def test_a_drained_edge_has_told_everybody() -> None:
    gateway = Gateway(start(), piece(PIECE), wait)
    client = gateway.chat(stream=True)
    for run in list(gateway.runs.active):
        run.stop(m.Failure("draining", "the edge is shutting down"))
    gateway.net.run()
    assert client.answer.whole
    assert '"draining"' in client.answer.events[-1]
    gateway.assert_idle()
