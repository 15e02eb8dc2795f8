"""One end of a link over a string transport: frames, rules, liveness, back-pressure, and all that can go wrong."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from socket_doubles import PlainWire
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure as TwistedFailure

from iop import model as m
from iop.errors import Failure
from iop.wire import translate
from iop.wire.frames import MAX_FRAME, MAX_FRAME_UNREGISTERED
from iop.wire.peer import LinkState, Side, Violation
from iop.wire.protocol import HANDLERS, Link

REGISTER = m.RegisterRequest("token")
ACCEPTED = m.RegisterResponse(True, node_id="n", heartbeat_ms=1000)
RUN = m.RunRequest("r", "a", "t")


class Recorder:
    """A receiver that keeps what it is told; it may be told to break."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.told: list[str] = []
        self.lost: list[str] = []
        self.breaks = 0
        for side in Side:
            for name in HANDLERS[side].values():
                if name not in ("answer", "on_run_event"):
                    setattr(self, name, self._take)

    def _take(self, message: Any) -> None:
        if self.breaks:
            self.breaks -= 1
            raise ZeroDivisionError("a bug of the receiver")
        self.got.append(message)

    def on_run_event(self, run_id: str, seq: int, event: m.RunEvent) -> None:
        self._take((run_id, seq, event))

    def link_made(self, link: Link) -> None:
        self.told.append("made")

    def link_lost(self, reason: str) -> None:
        self.lost.append(reason)

    def link_paused(self) -> None:
        self.told.append("paused")

    def link_resumed(self) -> None:
        self.told.append("resumed")


class OneEnd:
    """A link on a string transport."""

    def __init__(self, side: Side = Side.EDGE, *, registered: bool = True, heartbeat_ms: int = 1000) -> None:
        self.clock = Clock()
        self.receiver = Recorder()
        self.link = Link(side, self.receiver, self.clock, heartbeat_ms)
        self.transport = StringTransport()
        self.link.makeConnection(self.transport)
        if registered and side is Side.EDGE:
            self.hear(REGISTER)
            self.link.send(ACCEPTED)
        elif registered:
            self.link.send(REGISTER)
            self.hear(ACCEPTED)
        self.receiver.got.clear()
        self.transport.clear()

    def hear(self, *messages: Any) -> None:
        self.link.dataReceived(b"".join(framed(translate.encode(message)) for message in messages))

    def hear_event(self, run_id: str, seq: int, event: m.RunEvent) -> None:
        self.link.dataReceived(framed(translate.encode_event(run_id, seq, event)))

    def said(self) -> list[tuple[str, Any]]:
        """Return what was sent, as pairs of kind and envelope, and forget it."""
        data, found = self.transport.value(), []
        self.transport.clear()
        while data:
            size = int.from_bytes(data[:4], "big")
            kind, envelope = translate.parse(data[4 : 4 + size])
            found.append((str(kind), envelope))
            data = data[4 + size :]
        return found

    @property
    def dropped(self) -> bool:
        return bool(self.transport.disconnecting or self.transport.disconnected)

    def lose(self) -> None:
        self.link.connectionLost(TwistedFailure(ConnectionDone()))


def framed(envelope: bytes) -> bytes:
    return len(envelope).to_bytes(4, "big") + envelope


# ---- frames


@given(st.lists(st.integers(0, 400), max_size=12))
def test_frames_split_anywhere(cuts: list[int]) -> None:
    end = OneEnd()
    events = [m.Start(), m.Delta("那🌍é".encode()), m.Delta(text="那🌍é"), m.Complete("stop")]
    data = b"".join(framed(translate.encode_event("r", seq, event)) for seq, event in enumerate(events))
    data += framed(translate.encode(m.NodeDraining()))
    places = [0, *sorted(cut % len(data) for cut in cuts), len(data)]
    for start, stop in pairwise(places):
        end.link.dataReceived(data[start:stop])
    assert end.receiver.got == [*(("r", seq, event) for seq, event in enumerate(events)), m.NodeDraining()]
    assert not end.dropped


def test_a_byte_at_a_time_and_counted() -> None:
    end = OneEnd()
    before = end.link.bytes_in
    data = framed(translate.encode(m.NodeDraining())) * 3
    for byte in data:
        end.link.dataReceived(bytes([byte]))
    assert end.receiver.got == [m.NodeDraining()] * 3
    assert end.link.bytes_in - before == len(data)


@pytest.mark.parametrize(
    ("registered", "limit"), [(False, MAX_FRAME_UNREGISTERED), (True, MAX_FRAME)], ids=["before", "after"]
)
def test_an_over_long_frame_drops_the_link_at_once_with_a_logged_reason(
    logged: Any, registered: bool, limit: int
) -> None:
    end = OneEnd(registered=registered)
    end.link.dataReceived((limit + 1).to_bytes(4, "big"))
    assert end.dropped
    assert logged.warnings() == [f"closing a link: a frame of {limit + 1} bytes, more than {limit}"]
    end.lose()
    assert end.receiver.lost == [f"a frame of {limit + 1} bytes, more than {limit}"]


def test_a_frame_of_the_limit_is_no_trouble_yet() -> None:
    for registered, limit in ((False, MAX_FRAME_UNREGISTERED), (True, MAX_FRAME)):
        end = OneEnd(registered=registered)
        end.link.dataReceived(limit.to_bytes(4, "big") + b"x" * 100)
        assert not end.dropped


def test_a_nodes_first_answer_may_be_a_whole_payload() -> None:
    """What a node has dialled is no stranger: its configuration may be as long as a frame."""
    models = tuple(f"model-{number:05}" for number in range(20_000))
    payload = m.NodePayload("r", (), (m.ProviderConfig("p", "a", models=models),))
    response = m.RegisterResponse(True, node_id="n", config=payload)
    assert len(translate.encode(response)) > 3 * MAX_FRAME_UNREGISTERED
    end = OneEnd(Side.NODE, registered=False)
    end.link.send(REGISTER)
    end.hear(response)
    assert end.receiver.got == [response]


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("garbage", [framed(b"garbage"), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\xff" * 64])
def test_garbage_closes_the_link(logged: Any, garbage: bytes, registered: bool) -> None:
    end = OneEnd(registered=registered)
    end.link.dataReceived(garbage)
    assert end.dropped
    assert len(logged.warnings()) == 1
    end.link.dataReceived(framed(translate.encode(m.NodeDraining())))
    assert end.receiver.got == []


@pytest.mark.parametrize("body", [b"", b"\xa2\x06\x00"])
def test_an_empty_or_unknown_body_before_registration_closes_the_link(logged: Any, body: bytes) -> None:
    end = OneEnd(registered=False)
    end.link.dataReceived(framed(body))
    assert end.dropped
    assert "before registration" in logged.warnings()[0]


def test_an_unknown_body_after_registration_is_skipped_and_logged_once_a_kind(logged: Any) -> None:
    end = OneEnd()
    for body in (b"\xa2\x06\x00", b"\xa2\x06\x00", b"", b"\xaa\x06\x00", b""):
        end.link.dataReceived(framed(body))
    assert [line.rpartition(": ")[2] for line in logged.warnings()] == ["field 100", "empty", "field 101"]
    assert not end.dropped
    end.hear(m.NodeDraining())
    assert end.receiver.got == [m.NodeDraining()]


def test_kinds_without_end_do_not_fill_the_log(logged: Any) -> None:
    end = OneEnd()
    for number in range(100, 300):
        tag = number << 3 | 2
        end.link.dataReceived(framed(bytes([tag & 0x7F | 0x80, tag >> 7, 0])))
    assert len(logged.warnings()) == 32


def test_a_value_that_means_nothing_closes_the_link(logged: Any) -> None:
    end = OneEnd()
    end.link.dataReceived(framed(translate.pb.Envelope(run_event={"run_id": "r", "type": 77}).SerializeToString()))
    assert end.dropped
    assert "without a type" in logged.warnings()[0]


# ---- the rules


@pytest.mark.parametrize("message", [m.NodeDraining(), m.Ping(1), m.CancelResponse("1", True)])
def test_anything_before_registration_closes_the_link(logged: Any, message: Any) -> None:
    end = OneEnd(registered=False)
    end.hear(message)
    assert end.dropped
    assert "received on a link that is open" in logged.warnings()[0]


def test_a_run_event_before_registration_closes_the_link(logged: Any) -> None:
    end = OneEnd(registered=False)
    end.hear_event("r", 0, m.Start())
    assert end.dropped
    assert end.receiver.got == []


def test_a_message_of_the_wrong_direction_closes_the_link(logged: Any) -> None:
    end = OneEnd()
    end.link.dataReceived(framed(translate.encode_run(RUN, b"")))
    assert end.dropped
    node = OneEnd(Side.NODE)
    node.hear_event("r", 0, m.Start())
    assert node.dropped


def test_saying_what_has_no_place_is_our_own_bug() -> None:
    end = OneEnd(registered=False)
    with pytest.raises(Violation):
        end.link.send(m.Ping(1))
    assert end.said() == []


def test_a_handler_that_raises_harms_nothing_else(logged: Any) -> None:
    end = OneEnd()
    end.receiver.breaks = 2
    end.hear(m.NodeDraining())
    end.hear_event("r", 0, m.Start())
    assert [type(error) for error in logged.failures()] == [ZeroDivisionError] * 2
    assert not end.dropped
    end.hear(m.NodeDraining())
    assert end.receiver.got == [m.NodeDraining()]


def test_answers_find_their_questions() -> None:
    end = OneEnd()
    request_id, answer = end.link.calls.ask(5)
    got: list[Any] = []
    answer.addCallback(got.append)
    end.hear(m.CancelResponse("nobody", True), m.CancelResponse(request_id, True))
    assert got == [m.CancelResponse(request_id, True)]
    assert end.clock.getDelayedCalls() == [end.link._beating]


# ---- sending


def test_a_message_longer_than_a_frame_is_never_sent(logged: Any) -> None:
    end = OneEnd()
    long = m.Start(m.HttpResponseHead(200, (("x", "y" * MAX_FRAME),)))
    assert end.link.send_event("r", 0, long) is False
    assert end.link.send_run(RUN._replace(target="t" * MAX_FRAME), b"") is False
    assert end.said() == []
    assert not end.dropped


def test_a_question_longer_than_a_frame_is_not_swallowed(logged: Any) -> None:
    """Who waits for an answer to it would wait for ever: the link is dropped, with a reason."""
    end = OneEnd()
    end.link.send(m.CancelRequest("1", m.CancelAction.CANCEL_RUN, "r" * MAX_FRAME))
    assert end.dropped
    assert logged.warnings() == ["closing a link: cancel_request to send is longer than a frame"]


def test_a_lost_link_swallows_what_is_sent() -> None:
    end = OneEnd()
    end.lose()
    end.link.send(m.Ping(1))
    assert end.link.send_event("r", 0, m.Start()) is True
    assert end.link.send_run(RUN, b"") is True
    assert end.said() == []


def test_a_link_that_closes_says_nothing_more_and_hears_nothing() -> None:
    end = OneEnd()
    end.link.close("enough")
    end.link.send(m.Ping(1))
    end.hear(m.NodeDraining())
    assert end.said() == []
    assert end.receiver.got == []
    assert end.transport.disconnecting
    assert end.transport.producer is None
    end.lose()
    assert end.receiver.lost == ["enough"]


def test_the_first_reason_is_the_reason() -> None:
    end = OneEnd()
    end.link.drop("first")
    end.link.drop("second")
    end.lose()
    end.lose()
    assert end.receiver.lost == ["first"]


# ---- liveness


def test_a_ping_is_answered_with_its_nonce() -> None:
    end = OneEnd()
    end.hear(m.Ping(77))
    ((kind, envelope),) = end.said()
    assert (kind, envelope.pong.nonce) == ("pong", 77)


def test_silence_is_asked_about_and_an_answer_is_enough(logged: Any) -> None:
    end = OneEnd()
    for _ in range(20):
        end.clock.advance(1)
        for kind, envelope in end.said():
            assert kind == "ping"
            end.hear(m.Pong(envelope.ping.nonce))
    assert not end.dropped
    assert logged.warnings() == []


def test_three_unanswered_pings_close_the_link(logged: Any) -> None:
    end = OneEnd()
    asked = []
    for _ in range(10):
        end.clock.advance(1)
        asked += [envelope.ping.nonce for kind, envelope in end.said()]
        if end.dropped:
            break
    assert asked == [1, 2, 3]
    (line,) = logged.warnings()
    assert line.startswith("closing a link: the other side")
    end.lose()
    assert end.clock.getDelayedCalls() == []


def test_half_a_frame_is_a_sign_of_life() -> None:
    end = OneEnd()
    end.link.dataReceived(MAX_FRAME.to_bytes(4, "big"))
    for _ in range(12):
        end.clock.advance(1)
        end.link.dataReceived(b"slow")
    assert not end.dropped


def test_a_link_that_is_not_registered_has_no_heartbeat() -> None:
    for side in Side:
        assert OneEnd(side, registered=False).clock.getDelayedCalls() == []


def test_the_heartbeat_is_the_one_that_was_agreed() -> None:
    """The node learns it with its registration, and keeps to it from the first beat."""
    end = OneEnd(Side.NODE, registered=False, heartbeat_ms=10_000)

    def take(response: m.RegisterResponse) -> None:
        end.link.heartbeat_ms = response.heartbeat_ms

    end.link._handlers["register_response"] = take
    end.link.send(REGISTER)
    end.hear(ACCEPTED)
    (beat,) = end.clock.getDelayedCalls()
    assert beat.getTime() == 1.0


def test_a_lost_link_leaves_no_timer_and_fails_its_questions() -> None:
    end = OneEnd()
    got: list[Any] = []
    end.link.calls.ask(5)[1].addBoth(got.append)
    end.lose()
    assert len(got) == 1
    assert end.clock.getDelayedCalls() == []


# ---- back-pressure


def test_a_peer_that_does_not_read_pauses_and_resumes_the_sender() -> None:
    end = OneEnd()
    producer = end.transport.producer
    producer.pauseProducing()
    assert end.link.full
    producer.resumeProducing()
    assert not end.link.full
    assert end.receiver.told == ["made", "paused", "resumed"]
    producer.stopProducing()
    assert end.link.full


def test_a_sender_that_is_paused_still_hears() -> None:
    """Credit, cancels and pongs come while the peer does not read; Twisted's own ``paused`` would hold them back."""
    end = OneEnd()
    end.transport.producer.pauseProducing()
    end.hear(m.NodeDraining())
    assert end.receiver.got == [m.NodeDraining()]


def test_a_peer_that_does_not_read_for_long_is_left(logged: Any) -> None:
    end = OneEnd()
    end.transport.producer.pauseProducing()
    for nonce in range(10):
        end.hear(m.Pong(nonce))
        end.clock.advance(1)
    assert end.dropped
    (line,) = logged.warnings()
    assert line == "closing a link: the other side does not read"


def test_a_peer_that_reads_slowly_is_not_left() -> None:
    end = OneEnd()
    for nonce in range(20):
        end.transport.producer.pauseProducing()
        end.hear(m.Pong(nonce))
        end.clock.advance(1)
        end.transport.producer.resumeProducing()
        end.transport.producer.pauseProducing()
    assert not end.dropped


class Slow:
    """A link on Twisted's own TCP transport, whose peer reads so many bytes a heartbeat."""

    def __init__(self) -> None:
        self.reactor = MemoryReactorClock()
        self.link = Link(Side.NODE, Recorder(), self.reactor, 1000)
        self.plain = PlainWire(self.link, self.reactor, room=1000)
        self.link.send(REGISTER)
        self.hear(ACCEPTED)
        self.link.send_event("r", 0, m.Delta(b"x" * 600_000))
        assert self.link.full

    def hear(self, message: Any) -> None:
        self.plain.feed(framed(translate.encode(message)))

    def beat(self, reads: int, said: int = 0) -> None:
        if said:
            self.link.send_event("r", 1, m.Delta(b"x" * said))
        self.hear(m.Pong(1))
        self.plain.read(reads)
        self.reactor.advance(1)

    @property
    def left(self) -> bool:
        return self.plain.socket.closed or self.link.peer.state is LinkState.CLOSED


@pytest.mark.parametrize("said", [0, 30_000], ids=["and is sent no more", "and is sent more than it reads"])
def test_a_peer_that_takes_a_little_each_heartbeat_is_not_left(said: int) -> None:
    """It never drains what waits for it, so that the transport never says ``resumeProducing``."""
    slow = Slow()
    slow.beat(10_000)
    for _ in range(30):
        slow.beat(10_000, said)
        assert not slow.left
        assert slow.link.full
        assert not slow.link.stuck
    slow.plain.read(1 << 30)
    assert not slow.link.full
    slow.link.drop("enough")


def test_a_peer_that_stops_taking_is_left_after_the_heartbeats_patience(logged: Any) -> None:
    slow = Slow()
    slow.beat(10_000)
    for _ in range(3):
        slow.beat(0, said=1000)
        assert not slow.left
    assert slow.link.stuck
    slow.beat(0)
    slow.beat(0)
    assert slow.left
    assert logged.warnings() == ["closing a link: the other side does not read"]


def test_a_failure_crosses_the_link() -> None:
    node, edge = OneEnd(Side.NODE), OneEnd()
    node.link.send_event("r", 0, m.Error(Failure("rate_limited", "slow down", retry_after_ms=7000)))
    edge.link.dataReceived(node.transport.value())
    ((run_id, seq, event),) = edge.receiver.got
    assert (run_id, seq) == ("r", 0)
    assert (event.failure.code, event.failure.http_status, event.failure.retry_after_ms) == ("rate_limited", 429, 7000)


def test_peer_states_follow_the_messages() -> None:
    assert OneEnd(registered=False).link.peer.state is LinkState.OPEN
    assert OneEnd(Side.NODE).link.peer.state is LinkState.REGISTERED
    assert OneEnd(Side.EDGE).link.peer.state is LinkState.REGISTERED
