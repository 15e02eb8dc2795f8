"""Frames of one turn leave together, in order, none twice; and a link over a reactor that has ends of turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_link import ACCEPTED, REGISTER, Recorder, framed
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure as TwistedFailure

from iop import model as m
from iop.wire import translate
from iop.wire.outbox import MOST_BYTES, MOST_FRAMES, Outbox
from iop.wire.peer import Side
from iop.wire.protocol import Link


class Turning(Clock):
    """A clock with ends of turns, as the reactor of edge and node has them."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[Callable[[], None]] = []

    def at_turn_end(self, call: Callable[[], None]) -> None:
        self.ends.append(call)

    def turn(self) -> None:
        while self.ends:
            self.ends.pop(0)()


class Writes(StringTransport):
    """Keeps each write apart."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


def outbox() -> tuple[Outbox, Writes, Turning]:
    turning, transport = Turning(), Writes()
    return Outbox(transport, turning.at_turn_end), transport, turning


def test_frames_of_a_turn_are_one_write() -> None:
    out, transport, turning = outbox()
    for frame in (b"one", b"two", b"three"):
        out.write(frame)
    assert (transport.written, out.size) == ([], 11)
    turning.turn()
    assert (transport.written, out.size) == ([b"onetwothree"], 0)
    out.write(b"four")
    turning.turn()
    assert transport.written == [b"onetwothree", b"four"]


def test_without_ends_of_turns_nothing_waits() -> None:
    transport = Writes()
    out = Outbox(transport, None)
    out.write(b"one")
    out.write(b"two")
    assert (transport.written, out.size) == ([b"one", b"two"], 0)


def test_the_other_side_begins_with_the_first_before_there_are_many() -> None:
    out, transport, turning = outbox()
    for _ in range(MOST_FRAMES + 1):
        out.write(b"x")
    assert transport.written == [b"x" * MOST_FRAMES]
    turning.turn()
    assert transport.written[1:] == [b"x"]


def test_a_long_frame_is_not_copied_and_does_not_wait() -> None:
    out, transport, turning = outbox()
    long = b"x" * MOST_BYTES
    out.write(long)
    assert transport.written[0] is long
    out.write(b"before")
    out.write(long)
    assert transport.written[1] == b"before" + long
    turning.turn()
    assert len(transport.written) == 2


def test_what_is_cleared_never_leaves() -> None:
    out, transport, turning = outbox()
    out.write(b"one")
    out.clear()
    turning.turn()
    assert (transport.written, out.size) == ([], 0)


@given(st.lists(st.one_of(st.integers(1, 3 * MOST_BYTES // 2), st.just("turn"), st.just("flush")), max_size=40))
def test_every_byte_once_and_in_order(steps: list[Any]) -> None:
    out, transport, turning = outbox()
    sent, number = b"", 0
    for step in steps:
        if step == "turn":
            turning.turn()
            assert out.size == 0
        elif step == "flush":
            out.flush()
            assert out.size == 0
        else:
            number += 1
            frame = bytes([number]) * step
            sent += frame
            out.write(frame)
            assert 0 <= out.size < MOST_BYTES
        assert len(b"".join(transport.written)) + out.size == len(sent)
    turning.turn()
    assert b"".join(transport.written) == sent


# ---- a link


class Turned:
    """A registered link, edge's side, whose reactor has ends of turns."""

    def __init__(self) -> None:
        self.clock = Turning()
        self.transport = Writes()
        self.link = Link(Side.EDGE, Recorder(), self.clock, 1000)
        self.link.makeConnection(self.transport)
        self.link.dataReceived(framed(translate.encode(REGISTER)))
        self.link.send(ACCEPTED)
        self.clock.turn()
        self.transport.written.clear()


def events(count: int) -> list[bytes]:
    return [framed(translate.encode_event("r", seq, m.Delta(b"x"))) for seq in range(count)]


def test_what_many_runs_say_in_a_turn_leaves_together() -> None:
    one = Turned()
    for seq in range(3):
        one.link.send_event("r", seq, m.Delta(b"x"))
    one.link.send(m.Ping(1))
    assert one.transport.written == []
    one.clock.turn()
    assert one.transport.written == [b"".join([*events(3), framed(translate.encode(m.Ping(1)))])]


def test_a_link_that_closes_says_first_what_it_had_to_say() -> None:
    one = Turned()
    one.link.send_event("r", 0, m.Delta(b"x"))
    one.link.close("enough")
    assert one.transport.written == events(1)
    assert one.transport.disconnecting


@pytest.mark.parametrize("how", ["dropped", "lost"])
def test_a_link_that_is_broken_says_no_more(how: str) -> None:
    one = Turned()
    one.link.send_event("r", 0, m.Delta(b"x"))
    if how == "dropped":
        one.link.drop("enough")
    else:
        one.link.connectionLost(TwistedFailure(ConnectionDone()))
    one.clock.turn()
    assert one.transport.written == []
