"""The edge's end of one link: runs, long inputs that take turns, and what comes for nobody."""

from __future__ import annotations

from typing import Any

import pytest
from gateway_in_memory import document, node
from memory_net import MemoryNet
from node_end import NodeEnd

from iop import model as m
from iop.edge.config import load_document
from iop.edge.nodes.registry import Registry
from iop.errors import Failure
from iop.wire.frames import MAX_FRAME, PART

pytestmark = pytest.mark.usefixtures("logged")


class Told:
    """A run that keeps what the link brings it, and may break."""

    def __init__(self, breaks: Exception | None = None) -> None:
        self.events: list[tuple[int, m.RunEvent]] = []
        self.stopped: list[Failure] = []
        self.lost = 0
        self._breaks = breaks

    def event(self, seq: int, event: m.RunEvent) -> None:
        if self._breaks is not None:
            raise self._breaks
        self.events.append((seq, event))

    def stop(self, failure: Failure) -> None:
        self.stopped.append(failure)

    def link_lost(self) -> None:
        self.lost += 1
        if self._breaks is not None:
            raise self._breaks


class World:
    def __init__(self) -> None:
        self.net = MemoryNet()
        settings = load_document(document(node("n1", "p1"))).config
        nodes = Registry(settings.nodes, heartbeat_ms=10_000, clock=self.net)
        self.net.listenTCP(4610, nodes.factory())
        self.end = NodeEnd(self.net)
        link = nodes.entries["n1"].link
        assert link is not None
        self.link = link

    def start(self, run_id: str, size: int = 0, run: Any = None) -> Any:
        run = run or Told()
        body = run_id.encode()[:1] * size
        self.link.start(m.RunRequest(run_id, "a", "t", input=body), run)
        return run

    def inputs(self) -> list[str]:
        """Return whose bytes came, one entry a frame."""
        return [got[0].run_id if type(got) is tuple else got.run_id for got in self.end.got[1:]]

    def whole(self, run_id: str) -> bytes:
        """Return the input of a run as the node would put it together."""
        (request,) = [request for request in self.end.runs if request.run_id == run_id]
        rest = [part.data for part in self.end.of(m.RunInput) if part.run_id == run_id]
        return b"".join([request.input, *rest])


def test_a_short_run_is_one_frame() -> None:
    world = World()
    world.start("a", PART)
    world.net.run()
    assert world.inputs() == ["a"]
    assert world.end.got[1][1] == PART
    assert len(world.end.runs[0].input) == PART


def test_a_long_input_says_its_whole_size_and_comes_in_parts() -> None:
    world = World()
    world.start("a", 3 * PART + 7)
    world.net.run()
    assert world.inputs() == ["a"] * 4
    assert world.end.got[1][1] == 3 * PART + 7
    assert world.whole("a") == b"a" * (3 * PART + 7)
    assert [len(part.data) for part in world.end.of(m.RunInput)] == [PART, PART, 7]


def test_inputs_stop_while_the_link_takes_nothing_and_take_turns_then() -> None:
    """UTF-01's neighbour: a long body neither fills memory nor stands in the way of a short one."""
    world = World()
    transport: Any = world.end.wire.transport
    transport.pauseProducing()
    world.start("a", 20 * PART)
    assert transport.unread < 3 * PART
    for run_id in ("b", "c"):
        world.start(run_id, 3 * PART)
    world.start("d", 10)
    assert transport.unread < 6 * PART
    transport.resumeProducing()
    world.net.run()
    order = world.inputs()
    assert order.index("d") <= 6, "the short one passes"
    first_parts = order[order.index("d") + 1 :][:6]
    assert sorted(first_parts) == ["a", "a", "b", "b", "c", "c"], "one part a run in turn"
    for run_id, size in (("a", 20 * PART), ("b", 3 * PART), ("c", 3 * PART), ("d", 10)):
        assert world.whole(run_id) == run_id.encode() * size


@pytest.mark.parametrize("how", ["cancel", "forget"])
def test_the_rest_of_an_input_that_nobody_wants_is_not_sent(how: str) -> None:
    world = World()
    transport: Any = world.end.wire.transport
    transport.pauseProducing()
    world.start("a", 20 * PART)
    world.start("b", 2 * PART)
    getattr(world.link, how)("a")
    transport.resumeProducing()
    world.net.run()
    assert len([part for part in world.end.of(m.RunInput) if part.run_id == "a"]) < 5
    assert world.whole("b") == b"b" * 2 * PART


def test_a_head_that_fits_no_frame_is_refused() -> None:
    world = World()
    with pytest.raises(Failure) as raised:
        world.link.start(m.RunRequest("a", "a", "t" * MAX_FRAME), Told())
    assert raised.value.code == "request_too_large"


def test_events_go_to_their_run_and_late_ones_are_dropped_and_counted() -> None:
    world = World()
    one, other = world.start("one"), world.start("other")
    world.end.say("one", m.Start())
    world.end.say("other", m.Start())
    world.end.say("nobody", m.Start())
    world.net.run()
    assert (one.events, other.events) == ([(0, m.Start())], [(0, m.Start())])
    assert world.link.late == 1
    world.link.forget("one")
    world.end.say("one", m.Delta(b"x"), m.Complete(), seq=1)
    world.net.run()
    assert len(one.events) == 1
    assert world.link.late == 3
    assert world.link.runs == 1


def test_a_run_that_cannot_handle_its_event_harms_no_other(logged: Any) -> None:
    world = World()
    bad, good = world.start("bad", run=Told(ZeroDivisionError("a bug"))), world.start("good")
    world.end.say("bad", m.Start())
    world.end.say("good", m.Start())
    world.net.run()
    assert [failure.code for failure in bad.stopped] == ["internal"]
    assert len(good.events) == 1
    assert [type(error) for error in logged.failures()] == [ZeroDivisionError]


def test_a_run_that_refuses_its_event_says_why() -> None:
    world = World()
    bad = world.start("bad", run=Told(Failure("upstream_error", "no form")))
    world.end.say("bad", m.Start())
    world.net.run()
    assert [failure.message for failure in bad.stopped] == ["no form"]


def test_on_loss_every_run_is_told_even_after_one_that_breaks(logged: Any) -> None:
    world = World()
    runs = [world.start("a", run=Told(ZeroDivisionError("a bug"))), world.start("b"), world.start("c", 9 * PART)]
    world.end.wire.transport.cut()  # type: ignore[union-attr]
    assert [run.lost for run in runs] == [1, 1, 1]
    assert world.link.runs == 0
    assert not world.link.ready
    assert logged.failures()


def test_credit_and_cancel_travel() -> None:
    world = World()
    world.start("a")
    world.link.give("a", 1234)
    got: list[Any] = []
    world.link.cancel("a").addBoth(got.append)
    world.net.run()
    assert world.end.of(m.RunWindow) == [m.RunWindow("a", 1234)]
    (cancel,) = world.end.of(m.CancelRequest)
    assert (cancel.action, cancel.run_id) == (m.CancelAction.CANCEL_RUN, "a")
    assert got[0].found
