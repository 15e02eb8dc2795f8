"""A node's link to its edge: dial, register, serve, lose it, dial again, leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from doubles import ScriptedAdapter, ScriptedFactory, complete, piece, start, wait
from memory_net import End, MemoryNet
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString
from twisted.internet.protocol import Factory

import iop
from iop import model as m
from iop.node.adapterset import AdapterSet
from iop.node.supervisor import Supervisor
from iop.node.uplink import LAST_DELAY, Uplink, backoff
from iop.services import Drain
from iop.wire.frames import PART
from iop.wire.peer import Side
from iop.wire.protocol import HANDLERS, Link

PAYLOAD = m.NodePayload("rev-1", (m.AdapterConfig("a", "scripted"),))
ACCEPTED = m.RegisterResponse(True, node_id="n", alias="n", heartbeat_ms=5000, config=PAYLOAD)
REFUSED = m.RegisterResponse(False, "unknown_token", "no node of this edge has this token")


class EdgeEnd:
    """One link seen from an edge that does as it is told."""

    def __init__(self, edge: FakeEdge) -> None:
        self.edge = edge
        self.got: list[Any] = []
        self.lost: list[str] = []
        self.wire: Link
        for name in HANDLERS[Side.EDGE].values():
            if name not in ("answer", "on_run_event", "on_register_request"):
                setattr(self, name, self.got.append)

    def link_made(self, link: Link) -> None:
        self.wire = link

    def on_register_request(self, request: m.RegisterRequest) -> None:
        self.got.append(request)
        if self.edge.response is not None:
            self.wire.send(self.edge.response)
            if not self.edge.response.accepted:
                self.wire.close(self.edge.response.reason)

    def on_run_event(self, run_id: str, seq: int, event: m.RunEvent) -> None:
        self.got.append((run_id, seq, event))

    def link_paused(self) -> None: ...

    def link_resumed(self) -> None: ...

    def link_lost(self, reason: str) -> None:
        self.lost.append(reason)

    def events(self, run_id: str = "r") -> list[m.RunEvent]:
        return [got[2] for got in self.got if type(got) is tuple and got[0] == run_id]

    def ask(self, request: m.RunRequest) -> None:
        self.wire.send_run(request, request.input[:PART])

    def question(self, make: Any) -> list[Any]:
        """Ask; return where the answer comes."""
        request_id, answer = self.wire.calls.ask(60)
        got: list[Any] = []
        answer.addBoth(got.append)
        self.wire.send(make(request_id))
        return got


class FakeEdge(Factory):
    """Listens for the node.

    :ivar response: what a registration is answered with; None for nothing.
    """

    noisy = False

    def __init__(self, net: MemoryNet) -> None:
        self._net = net
        self.response: m.RegisterResponse | None = ACCEPTED
        self.ends: list[EdgeEnd] = []
        self.times: list[float] = []
        self.port = net.listenTCP(4610, self)

    def buildProtocol(self, addr: Any) -> Link:
        end = EdgeEnd(self)
        self.ends.append(end)
        self.times.append(self._net.seconds())
        return Link(Side.EDGE, end, self._net, 5000)

    @property
    def last(self) -> EdgeEnd:
        return self.ends[-1]


class World:
    """A node with one scripted adapter, and an edge for it."""

    def __init__(self, *script: Any, **traits: Any) -> None:
        self.net = MemoryNet()
        self.edge = FakeEdge(self.net)
        self.adapter = ScriptedAdapter(*script, **traits)
        self.drain = Drain(self.net)
        self.adapters = AdapterSet(self.net, Path(), lambda kind: ScriptedFactory(self.adapter))
        self.supervisor = Supervisor(self.adapters, self.net)
        self.chance = 0.5
        self.uplink = Uplink(
            clientFromString(self.net, "tcp:127.0.0.1:4610"),
            "tok-A1",
            self.adapters,
            self.supervisor,
            self.drain,
            self.net,
            lambda: self.chance,
            ("openai_compat", "scripted"),
        )

    def up(self) -> EdgeEnd:
        self.uplink.startService()
        self.net.run()
        return self.edge.last

    def stop(self) -> list[Any]:
        stopped: list[Any] = []
        Deferred.fromCoroutine(self.uplink.stopService()).addBoth(stopped.append)
        self.net.run()
        return stopped


RUN = m.RunRequest("r", "a", "t")


# ---- registration


def test_it_says_who_it_is_and_acknowledges_its_payload(logged: Any) -> None:
    world = World()
    end = world.up()
    registered, acknowledged = end.got
    assert registered.token == "tok-A1"
    assert registered.protocol_version == m.PROTOCOL_VERSION
    assert registered.agent_version == iop.__version__
    assert registered.adapter_types == ("openai_compat", "scripted")
    assert len(registered.instance_id) == 16
    assert acknowledged == m.NodeConfigRefreshResponse("", "rev-1", m.RefreshStatus.APPLIED, "", ("a",), ())
    assert world.uplink.registered
    assert world.uplink.node_id == "n"
    assert not any("tok-A1" in line for line in logged.lines())


def test_it_acknowledges_only_when_its_adapters_are_up() -> None:
    world = World()
    world.adapter.start_with = Deferred()
    end = world.up()
    assert len(end.got) == 1
    world.adapter.start_with.callback(None)
    world.net.run()
    assert len(end.got) == 2


def test_an_adapter_that_failed_is_reported() -> None:
    world = World()
    broken = m.AdapterConfig("b", "scripted", True, {"word": "refuse"})
    world.edge.response = m.RegisterResponse(True, node_id="n", config=m.NodePayload("2", (broken,)))
    end = world.up()
    assert end.got[1].failed_adapters == ("b",)
    assert "cannot work" in end.got[1].message


def test_a_refusal_is_logged_once_and_tried_again_later_and_later(logged: Any) -> None:
    world = World()
    world.edge.response = REFUSED
    world.up()
    world.net.run(120)
    assert not world.uplink.registered
    assert len(logged.warnings()) == 1
    assert "unknown_token: no node of this edge has this token" in logged.warnings()[0]
    waits = [round(later - earlier, 3) for earlier, later in zip(world.edge.times, world.edge.times[1:], strict=False)]
    assert waits == sorted(waits)
    assert max(waits) <= LAST_DELAY
    assert len(waits) > 8


def test_another_reason_is_logged_again(logged: Any) -> None:
    world = World()
    world.edge.response = REFUSED
    world.up()
    world.edge.response = m.RegisterResponse(False, "draining", "the edge is draining")
    world.net.run(30)
    assert len(logged.warnings()) == 2


def test_a_refusal_over_a_transport_that_does_not_close_is_tried_again(monkeypatch: Any, logged: Any) -> None:
    """Over TLS a close waits for the other side's goodbye, which may never come."""
    monkeypatch.setattr(End, "loseConnection", lambda self: None)
    world = World()
    world.edge.response = REFUSED
    world.up()
    world.net.run(5)
    assert len(world.edge.ends) > 2
    world.edge.response = ACCEPTED
    world.net.run(30)
    assert world.uplink.registered


def test_a_refusal_that_was_mended_is_forgotten(logged: Any) -> None:
    world = World()
    world.edge.response = REFUSED
    world.up()
    world.edge.response = ACCEPTED
    world.net.run(30)
    assert world.uplink.registered
    world.edge.last.wire.drop("x")
    world.edge.response = REFUSED
    world.net.run(30)
    assert len([line for line in logged.warnings() if "unknown_token" in line]) == 2


def test_an_edge_that_is_not_there_is_logged_once(logged: Any) -> None:
    world = World()
    world.edge.port.stopListening()
    world.uplink.startService()
    world.net.run(60)
    assert len(logged.warnings()) == 1
    assert "the edge cannot be reached" in logged.warnings()[0]
    world.net.listenTCP(4610, world.edge)
    world.net.run(20)
    assert world.uplink.registered


def test_an_edge_that_does_not_answer_is_left_and_logged_once(logged: Any) -> None:
    world = World()
    world.edge.response = None
    world.up()
    world.net.run(100)
    assert len(world.edge.ends) > 2
    assert [line for line in logged.warnings() if "did not register" in line] == [
        "the edge did not register this node: the edge did not answer; trying again and again"
    ]


def test_somebody_else_at_the_edges_address(logged: Any) -> None:
    """What is no edge is dropped, and the log says what happened."""

    class Other(Factory):
        noisy = False

        def buildProtocol(self, addr: Any) -> Any:
            from twisted.internet.protocol import Protocol

            class Http(Protocol):
                def dataReceived(self, data: bytes) -> None:
                    assert self.transport is not None
                    self.transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

            return Http()

    world = World()
    world.net.listenTCP(4610, Other())
    world.uplink.startService()
    world.net.run(30)
    assert any("did not register this node" in line for line in logged.warnings())
    world.stop()


def test_an_edge_that_proves_to_be_nobody_is_logged_once(logged: Any) -> None:
    """Over TLS nothing is said, the token least of all, before the edge has shown who it is."""
    world = World()
    world.uplink._tls_host = "edge.example"
    world.uplink.startService()
    world.net.run(25)
    assert world.edge.last.got == []
    assert len(world.edge.ends) >= 2
    assert [line for line in logged.warnings() if "did not register" in line] == [
        "the edge did not register this node: no TLS handshake in time; trying again and again"
    ]
    world.stop()


def test_backoff_grows_and_is_spread() -> None:
    for attempt in range(12):
        low, high = backoff(attempt, 0.0), backoff(attempt, 1.0)
        assert 0.2 <= low < high <= 15.0
    assert backoff(0, 0.5) < 0.5
    assert backoff(3, 0.5) > 2 * backoff(1, 0.5)
    assert backoff(10_000, 1.0) == 15.0


def test_chance_is_asked_anew_at_each_attempt() -> None:
    world = World()
    world.edge.response = REFUSED
    world.chance = 0.0
    world.up()
    world.chance = 1.0
    world.net.run(10)
    first, second = (later - earlier for earlier, later in zip(world.edge.times, world.edge.times[1:3], strict=False))
    assert first == backoff(0, 0.0)
    assert second == backoff(1, 1.0)


# ---- runs over the link


def test_a_run() -> None:
    world = World(start(), piece(b"x"), complete())
    end = world.up()
    end.ask(RUN._replace(input=b"{}"))
    world.net.run()
    assert [type(event) for event in end.events()] == [m.Start, m.Delta, m.Complete]


def test_a_long_input_and_its_parts() -> None:
    world = World(start(), complete())
    end = world.up()
    body = b"x" * (2 * PART + 5)
    end.ask(RUN._replace(input=body))
    for begin in (PART, 2 * PART):
        end.wire.send(m.RunInput("r", body[begin : begin + PART]))
    world.net.run()
    assert world.adapter.runs[0].request.input == body


def test_credit_comes_over_the_link() -> None:
    world = World(start(), piece(b"x" * 10), piece(b"y" * 10), complete())
    end = world.up()
    end.ask(RUN._replace(window_bytes=10))
    world.net.run()
    assert len(end.events()) == 2
    end.wire.send(m.RunWindow("r", 20))
    world.net.run()
    assert len(end.events()) == 4


def test_cancel_is_answered_before_the_end_comes() -> None:
    world = World(start(), wait)
    end = world.up()
    end.ask(RUN)
    got = end.question(lambda id: m.CancelRequest(id, m.CancelAction.CANCEL_RUN, "r"))
    world.net.run()
    assert [response.found for response in got] == [True]
    assert isinstance(end.events()[-1], m.Cancelled)
    again = end.question(lambda id: m.CancelRequest(id, m.CancelAction.CANCEL_RUN, "r"))
    world.net.run()
    assert [response.found for response in again] == [False]


def test_terminating_a_session() -> None:
    world = World()
    world.adapter.known_sessions = {"s": {"session_id": "s"}}
    end = world.up()
    asked = [
        end.question(lambda id, which=which: m.CancelRequest(id, m.CancelAction.TERMINATE_SESSION, "", *which))
        for which in (("a", "s"), ("a", "s"), ("b", "s"))
    ]
    world.net.run()
    assert [got[0].found for got in asked] == [True, False, False]
    assert "no such adapter" in asked[2][0].message


def test_a_session_that_cannot_be_terminated_is_an_answer_too() -> None:
    world = World()
    end = world.up()
    world.adapter.terminate_session = lambda session_id: 1 / 0  # type: ignore[method-assign,assignment]
    got = end.question(lambda id: m.CancelRequest(id, m.CancelAction.TERMINATE_SESSION, "", "a", "s"))
    world.net.run()
    assert [response.found for response in got] == [False]


def test_a_refresh() -> None:
    world = World()
    end = world.up()
    changed = m.NodePayload("rev-2", (m.AdapterConfig("b", "scripted"),))
    end.wire.send(m.NodeConfigRefreshRequest("1", m.NodePayload("rev-2", PAYLOAD.adapters, (), 7)))
    end.wire.send(m.NodeConfigRefreshRequest("2", changed))
    world.net.run()
    assert [(got.request_id, got.revision, got.status.value) for got in end.got[2:]] == [
        ("1", "rev-2", "APPLIED"),
        ("2", "rev-2", "RESTART_REQUIRED"),
    ]


def checked(**health: Any) -> m.NodePayload:
    """Return a payload with a provider whose backend is checked."""
    return m.NodePayload(
        "rev-3",
        PAYLOAD.adapters,
        (m.ProviderConfig("p", "a", health=m.HealthCheck(**{"interval_ms": 1000, **health})),),
    )


def test_backends_are_checked_while_there_is_a_link_to_tell_of_them() -> None:
    world = World()
    world.edge.response = m.RegisterResponse(True, node_id="n", config=checked())
    end = world.up()
    assert [type(got) for got in end.got[1:]] == [m.NodeConfigRefreshResponse] + [m.ProviderStatus] * 2
    assert end.got[-1] == m.ProviderStatus("p", "up", "", ("m",))
    world.adapter.health = m.Health.DOWN
    world.net.run(1.5)
    assert end.got[-1].health == "down"
    end.wire.drop("the cable")
    asked = world.edge.times[-1]
    world.net.run(3)
    assert world.edge.times[-1] > asked
    assert [got.health for got in world.edge.last.got if type(got) is m.ProviderStatus] == ["down"]
    world.stop()
    assert world.net.waiting == []


def counted(world: World) -> list[float]:
    """Have a provider checked; return when its backend is asked."""
    asked: list[float] = []
    world.edge.response = m.RegisterResponse(True, node_id="n", config=checked())
    probe = world.adapter.probe

    def at(path: str = "") -> Any:
        asked.append(world.net.seconds())
        return probe(path)

    world.adapter.probe = at  # type: ignore[method-assign]
    return asked


def test_no_backend_is_checked_before_a_lost_node_is_back() -> None:
    world = World()
    asked = counted(world)
    end = world.up()
    world.net.run(3)
    assert asked == [0, 1, 2, 3]
    accepted, world.edge.response = world.edge.response, None
    end.wire.transport.cut()  # type: ignore[union-attr]
    world.net.run(14)
    assert (len(world.edge.ends), len(asked)) == (2, 4), "dialled, and not registered"
    world.edge.response = accepted
    world.edge.last.wire.transport.cut()  # type: ignore[union-attr]
    world.net.run(2)
    assert len(asked) > 4
    world.stop()


def test_a_payload_of_a_lost_link_begins_no_checks() -> None:
    world = World()
    asked = counted(world)
    world.adapter.start_with = Deferred()
    end = world.up()
    world.edge.response = None
    end.wire.transport.cut()  # type: ignore[union-attr]
    world.adapter.start_with.callback(None)
    world.net.run(10)
    assert world.adapters.revision == "rev-3"
    assert asked == []
    world.stop()


def test_a_refresh_begins_and_ends_checks() -> None:
    world = World()
    end = world.up()
    for request_id, payload in (("1", checked()), ("2", PAYLOAD)):
        end.wire.send(m.NodeConfigRefreshRequest(request_id, payload))
        world.net.run(1)
    world.adapter.health = m.Health.DOWN
    world.net.run(5)
    assert {got.health for got in end.got if type(got) is m.ProviderStatus} == {"up"}


def test_a_backend_that_works_on_a_run_is_not_down_for_being_silent() -> None:
    world = World(wait)
    world.adapter.probe = lambda path="": Deferred()  # type: ignore[method-assign]
    world.edge.response = m.RegisterResponse(True, node_id="n", config=checked(timeout_ms=500))
    end = world.up()
    end.ask(m.RunRequest("r", "a", "t", provider_id="p"))
    world.net.run(30)
    assert [got.health for got in end.got if type(got) is m.ProviderStatus] == ["degraded"]
    end.wire.send(m.CancelRequest("1", m.CancelAction.CANCEL_RUN, "r"))
    world.net.run(3)
    assert [got.health for got in end.got if type(got) is m.ProviderStatus] == ["degraded", "down"]


def test_a_query_is_answered() -> None:
    world = World()
    end = world.up()
    got = end.question(lambda id: m.NodeCommandRequest(id, m.CommandType.CAPABILITIES.value))
    world.net.run()
    assert len(got) == 1


def test_an_edge_that_does_not_read_pauses_the_runs() -> None:
    """Back-pressure of the link, beside the credit of each run."""
    world = World(start(), *[piece(b"x" * 20_000)] * 40, complete())
    end = world.up()
    end.wire.transport.pauseProducing()  # type: ignore[union-attr]
    for number in range(3):
        world.supervisor.run(world.uplink._link, RUN._replace(run_id=f"r{number}"), 0)
    world.net.run()
    assert all(run.paused for run in world.adapter.runs)
    unread = max(end_.unread for end_ in world.net.ends)
    assert unread < 3 * 80_000
    end.wire.transport.resumeProducing()  # type: ignore[union-attr]
    world.net.run()
    assert all(len(end.events(f"r{number}")) == 42 for number in range(3))


# ---- loss


def test_on_loss_its_runs_are_cancelled_and_it_dials_again(logged: Any) -> None:
    world = World(start(), wait)
    end = world.up()
    end.ask(RUN)
    world.net.run()
    end.wire.transport.cut()  # type: ignore[union-attr]
    assert world.adapter.runs[0].cancelled
    assert world.supervisor.runs == {}
    world.net.run(1)
    assert len(world.edge.ends) == 2
    assert world.uplink.registered
    assert len([line for line in logged.warnings() if "is lost" in line]) == 1


def test_adapters_are_kept_over_a_loss() -> None:
    world = World(start(), wait)
    end = world.up()
    end.wire.transport.cut()  # type: ignore[union-attr]
    world.net.run(1)
    assert world.adapter.started == 1
    assert world.edge.last.got[1].changed_adapters == ()


def test_an_edge_that_died_without_a_word_is_noticed(logged: Any) -> None:
    world = World(start(), wait)
    end = world.up()
    end.ask(RUN)
    world.net.run()
    end.wire.transport.pauseProducing()  # type: ignore[union-attr]
    end.wire.heartbeat_ms = 10**9
    world.net.run(60)
    assert world.adapter.runs[0].cancelled
    assert len(world.edge.ends) >= 2


def test_the_backoff_starts_anew_after_an_accepted_registration() -> None:
    world = World()
    world.edge.response = REFUSED
    world.up()
    world.net.run(60)
    world.edge.response = ACCEPTED
    world.net.run(20)
    before = len(world.edge.times)
    world.edge.last.wire.drop("x")
    world.net.run(backoff(0, 0.5) + 0.01)
    assert len(world.edge.times) == before + 1


# ---- leaving


def test_it_drains_and_leaves() -> None:
    world = World(start(), wait, complete())
    end = world.up()
    end.ask(RUN)
    world.net.run()
    stopped = world.stop()
    assert isinstance(end.got[-1], m.NodeDraining)
    assert stopped == []
    world.net.run(5)
    world.adapter.runs[0].go()
    world.net.run(1)
    assert isinstance(end.events()[-1], m.Complete)
    assert stopped == [None]
    assert end.lost
    assert world.adapter.stopped == 1
    world.net.run(60)
    assert world.net.waiting == []
    assert len(world.edge.ends) == 1


def test_the_drain_time_has_an_end() -> None:
    world = World(start(), wait)
    end = world.up()
    end.ask(RUN)
    world.net.run()
    stopped = world.stop()
    world.net.run(29)
    assert stopped == []
    world.net.run(2)
    assert stopped == [None]
    assert world.adapter.runs[0].cancelled


def test_a_second_stop_leaves_at_once() -> None:
    world = World(start(), wait)
    end = world.up()
    end.ask(RUN)
    world.net.run()
    stopped = world.stop()
    world.drain.hurry()
    world.net.run(0.2)
    assert stopped == [None]
    assert world.adapter.runs[0].cancelled


def test_leaving_before_the_edge_answered() -> None:
    world = World()
    world.edge.response = None
    world.up()
    assert world.stop() == [None]
    world.net.run(60)
    assert world.net.waiting == []
    assert not world.net.ends


def test_leaving_while_it_dials_or_waits_to() -> None:
    for silent in (True, False):
        world = World()
        world.edge.port.stopListening()
        if silent:
            world.net.silent.add(4610)
        world.uplink.startService()
        world.net.run(0.05)
        assert world.stop() == [None]
        world.net.run(60)
        assert world.net.waiting == []


def test_an_adapter_that_does_not_end_does_not_keep_the_node() -> None:
    world = World(start(), wait, stubborn=True)
    end = world.up()
    end.ask(RUN)
    world.net.run()
    world.drain.hurry()
    stopped = world.stop()
    world.net.run(6)
    assert stopped == [None]
