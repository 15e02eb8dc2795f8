"""Who may connect, and who is connected."""

from __future__ import annotations

from typing import Any

import pytest
from gateway_in_memory import document, node
from memory_net import MemoryNet
from node_end import NodeEnd
from twisted.internet.endpoints import clientFromString
from twisted.internet.protocol import Factory, Protocol

from iop import model as m
from iop.edge.config import load_document
from iop.edge.nodes.payload import payload_of
from iop.edge.nodes.registry import Registry

pytestmark = pytest.mark.usefixtures("logged")


class World:
    """A registry of the nodes n1 (providers p1, p2) and n2."""

    def __init__(self) -> None:
        self.net = MemoryNet()
        settings = load_document(document(node("n1", "p1", "p2"), node("n2", "q1"))).config
        self.nodes = Registry(settings.nodes, heartbeat_ms=10_000, clock=self.net)
        self.changes: list[str] = []
        self.nodes.changed = self.changes.append
        self.net.listenTCP(4610, self.nodes.factory())

    def end(self, token: str = "n1", **how: Any) -> NodeEnd:
        return NodeEnd(self.net, token, **how)

    @property
    def entry(self) -> Any:
        return self.nodes.entries["n1"]


def test_a_token_says_who_it_is() -> None:
    world = World()
    end = world.end()
    response = end.response
    assert response is not None
    assert (response.accepted, response.node_id, response.alias) == (True, "n1", "n1")
    assert response.config == world.entry.payload
    assert response.heartbeat_ms == 10_000
    assert [p.id for p in response.config.providers] == ["p1", "p2"]
    assert world.entry.usable
    assert (world.entry.hostname, world.entry.agent_version) == ("host", "9")
    assert not world.nodes.entries["n2"].usable


def test_it_is_no_candidate_before_its_payload_is_acknowledged() -> None:
    world = World()
    end = world.end(acknowledge=False)
    assert not world.entry.usable
    assert world.changes == []
    end.acknowledge()
    world.net.run()
    assert world.entry.usable
    assert world.changes == ["n1"]


def test_an_adapter_that_failed_takes_its_providers_down(logged: Any) -> None:
    world = World()
    end = world.end(acknowledge=False)
    end.acknowledge("a")
    world.net.run()
    assert world.entry.usable
    assert [world.entry.health_of(id)[0] for id in ("p1", "p2")] == [m.Health.DOWN, m.Health.DOWN]
    assert any("it could not make a: it broke" in line for line in logged.lines())


def test_what_a_node_said_before_it_took_its_payload_is_forgotten() -> None:
    """It was said of an older one, perhaps."""
    world = World()
    end = world.end(acknowledge=False)
    end.wire.send(m.ProviderStatus("p1", "down", "refused"))
    world.net.run()
    assert world.entry.health_of("p1")[0] is m.Health.DOWN
    end.acknowledge()
    world.net.run()
    assert world.entry.health_of("p1") == (m.Health.UNKNOWN, "")


def test_a_node_that_could_not_take_its_payload_serves_nothing() -> None:
    world = World()
    world.end(acknowledge=False).acknowledge(status=m.RefreshStatus.FAILED)
    world.net.run()
    assert {health for health, _ in world.entry.health.values()} == {m.Health.DOWN}


@pytest.mark.parametrize("token", ["sk-another", "", "N1", "n1 ", "\N{SNOWMAN}"])
def test_an_unknown_token_is_told_so_and_left(logged: Any, token: str) -> None:
    world = World()
    end = world.end(token)
    response = end.response
    assert response is not None
    assert (response.accepted, response.reason) == (False, "unknown_token")
    assert response.config == m.NodePayload()
    assert end.lost
    assert world.nodes.links() == []
    assert len(logged.warnings()) == 1
    assert not token.strip() or token not in logged.warnings()[0]


def test_another_protocol_version_is_told_so() -> None:
    world = World()
    end = world.end(register=False)
    end.wire.send(m.RegisterRequest("n1", protocol_version=99))
    world.net.run()
    response = end.response
    assert response is not None
    assert (response.accepted, response.reason) == (False, "protocol_version")
    assert "99" in response.message
    assert end.lost


def test_an_edge_that_drains_takes_nobody() -> None:
    world = World()
    first = world.end()
    world.nodes.closing = True
    second = world.end("n2")
    assert second.response is not None
    assert second.response.reason == "draining"
    assert not first.lost


def test_who_says_nothing_in_ten_seconds_is_left() -> None:
    world = World()
    end = world.end(register=False)
    world.net.run(9.9)
    assert not end.lost
    world.net.run(0.2)
    assert end.lost
    assert world.nodes.links() == []
    assert world.net.waiting == []


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x05hello", b"\x16\x03\x01\x02\x00\x01\x00"])
def test_garbage_on_the_node_port(logged: Any, garbage: bytes) -> None:
    world = World()
    lost: list[Any] = []

    class Stranger(Protocol):
        def connectionMade(self) -> None:
            assert self.transport is not None
            self.transport.write(garbage)

        def connectionLost(self, reason: Any = None) -> None:
            lost.append(reason)

    clientFromString(world.net, "tcp:127.0.0.1:4610").connect(Factory.forProtocol(Stranger))
    world.net.run(11)
    assert len(lost) == 1
    assert world.nodes.links() == []
    assert len(logged.warnings()) <= 1
    assert world.net.waiting == []


# ---- a second link of the same node


def test_a_first_link_that_lives_is_kept() -> None:
    world = World()
    first, second = world.end(), world.end()
    world.net.run(2.1)
    assert second.response is not None
    assert (second.response.accepted, second.response.reason) == (False, "already_connected")
    assert second.lost
    assert not first.lost
    assert world.entry.usable


def test_a_first_link_that_is_dead_is_replaced() -> None:
    world = World()
    first = world.end()
    first.wire.transport.pauseProducing()  # type: ignore[union-attr]
    second = world.end()
    assert second.response is None
    world.net.run(1.9)
    assert second.response is None
    world.net.run(0.2)
    assert second.response is not None
    assert second.response.accepted
    assert world.entry.usable
    assert first.lost
    assert not second.lost
    assert world.changes == ["n1", "n1", "n1"]


def test_a_first_link_that_is_in_the_middle_of_a_frame_lives() -> None:
    """Any byte counts: on a slow line a long frame takes longer than the patience."""
    world = World()
    first = world.end()
    first.wire.transport.pauseProducing()  # type: ignore[union-attr]
    second = world.end()
    first.wire.transport.write((500_000).to_bytes(4, "big") + b"x" * 1000)  # type: ignore[union-attr]
    world.net.run(2.1)
    assert second.response is not None
    assert (second.response.accepted, second.response.reason) == (False, "already_connected")
    assert world.entry.usable


def test_a_first_link_that_leaves_while_it_is_asked_makes_room() -> None:
    world = World()
    first, second = world.end(), world.end()
    first.wire.close("bye")
    world.net.run(2.1)
    assert second.response is not None
    assert second.response.accepted
    assert world.entry.usable


def test_a_newcomer_that_leaves_while_it_waits_changes_nothing() -> None:
    world = World()
    first, second = world.end(), world.end()
    second.wire.close("bye")
    world.net.run(2.1)
    assert not first.lost
    assert world.entry.usable
    assert len(world.nodes.links()) == 1


def test_of_two_newcomers_one_gets_the_place() -> None:
    world = World()
    first = world.end()
    first.wire.transport.pauseProducing()  # type: ignore[union-attr]
    second, third = world.end(), world.end()
    world.net.run(2.1)
    assert second.response is not None
    assert third.response is not None
    assert sorted([second.response.accepted, third.response.accepted]) == [False, True]
    assert world.entry.usable


def test_a_late_loss_of_a_replaced_link_is_not_the_new_ones() -> None:
    world = World()
    first = world.end()
    first.wire.transport.pauseProducing()  # type: ignore[union-attr]
    world.end()
    world.net.run(2.1)
    world.net.run(1)
    assert first.lost
    assert world.entry.usable


# ---- its life


def test_a_node_that_drains_is_no_candidate() -> None:
    world = World()
    end = world.end()
    end.wire.send(m.NodeDraining())
    world.net.run()
    assert not world.entry.usable
    assert world.changes == ["n1", "n1"]


def test_a_node_that_is_lost_is_no_candidate_and_may_come_back() -> None:
    world = World()
    world.end().wire.transport.cut()  # type: ignore[union-attr]
    assert not world.entry.usable
    world.end()
    assert world.entry.usable
    assert world.changes == ["n1", "n1", "n1"]


def test_a_node_that_does_not_read_for_a_heartbeat_is_no_candidate_until_it_does() -> None:
    """A link that is full at the moment, with somebody's long input say, is no reason to refuse anybody."""
    world = World()
    end = world.end()
    end.wire.transport.pauseProducing()  # type: ignore[union-attr]
    link = world.entry.link
    link.wire.send_run(m.RunRequest("r", "a", "t"), b"x" * 200_000)
    assert link.wire.full
    assert world.entry.usable
    world.net.run(10)
    assert not world.entry.usable
    seen = len(world.changes)
    end.wire.transport.resumeProducing()  # type: ignore[union-attr]
    world.net.run()
    assert world.entry.usable
    assert len(world.changes) > seen


def test_provider_status() -> None:
    world = World()
    end = world.end()
    end.wire.send(m.ProviderStatus("p1", "down", "refused"))
    end.wire.send(m.ProviderStatus("p2", "degraded"))
    end.wire.send(m.ProviderStatus("q1", "down"))
    end.wire.send(m.ProviderStatus("p2", "purple"))
    world.net.run()
    assert [world.entry.health_of(id)[0] for id in ("p1", "p2")] == [m.Health.DOWN, m.Health.DEGRADED]
    assert world.nodes.entries["q1" if "q1" in world.nodes.entries else "n2"].health == {}
    assert world.changes == ["n1"] * 3
    end.wire.drop("the cable")
    world.net.run()
    assert world.entry.health_of("p1") == (m.Health.UNKNOWN, ""), "nobody knows any more"


def test_a_node_does_not_disable_a_provider() -> None:
    """That is the configuration's to say; a provider that a node calls so would be neither up nor down."""
    world = World()
    end = world.end()
    end.wire.send(m.ProviderStatus("p1", "up", "it answers"))
    world.net.run()
    changes = list(world.changes)
    end.wire.send(m.ProviderStatus("p1", "disabled", "no"))
    end.wire.send(m.ProviderStatus("p2", "disabled", "no"))
    world.net.run()
    assert world.entry.health_of("p1") == (m.Health.UP, "it answers")
    assert world.entry.health_of("p2") == (m.Health.UNKNOWN, "")
    assert world.changes == changes
    assert not end.lost


def test_closing_closes_every_link_registered_or_not() -> None:
    world = World()
    ends = [world.end(), world.end("n2"), world.end(register=False)]
    world.nodes.close()
    world.net.run(1)
    assert all(end.lost for end in ends)
    assert world.nodes.links() == []
    assert world.net.waiting == []
    assert not world.net.ends


# ---- payloads


def test_a_payload_does_not_depend_on_the_order_it_was_written_in() -> None:
    one = load_document(document(node("n1", "p1", "p2"))).config.nodes[0]
    other = load_document(document(node("n1", "p2", "p1"))).config.nodes[0]
    assert payload_of(one) == payload_of(other)


def test_a_revision_is_of_the_content() -> None:
    one = payload_of(load_document(document(node("n1", "p1"))).config.nodes[0])
    same = payload_of(load_document(document(node("n1", "p1", capacity=2))).config.nodes[0])
    other = payload_of(load_document(document(node("n1", "p1", models=["other", "m"]))).config.nodes[0])
    assert len(one.revision) == 64
    assert one.revision == same.revision, "slots are the edge's business"
    assert one.revision != other.revision
