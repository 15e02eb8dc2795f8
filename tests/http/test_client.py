"""The client: pool, retry, framing, timers, cancel, pause."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from http_doubles import Heard, Yard
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.error import (
    ConnectionDone,
    ConnectionLost,
    ConnectionRefusedError,
    DNSLookupError,
    TimeoutError,
)

from iop.errors import Failure
from iop.http.client import Timers

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\nX-Trailer: 1\r\n\r\n"
BEGUN = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\nhello"
Lay = Callable[..., Yard]


def failed(heard: Heard) -> Failure:
    assert heard.failure is not None
    assert heard.ends == 0
    return heard.failure


# ---- one call ---------------------------------------------------------------------------------------------------


def test_a_request_as_it_is_sent(yard: Yard) -> None:
    yard.ask(body=b'{"a":1}')
    assert yard.wire.take() == (
        b'POST /v1/x HTTP/1.1\r\nhost: backend:8000\r\na: b\r\ncontent-length: 7\r\n\r\n{"a":1}'
    )


@pytest.mark.parametrize(("method", "length"), [("GET", False), ("HEAD", False), ("POST", True), ("DELETE", True)])
def test_a_request_without_body(yard: Yard, method: str, length: bool) -> None:
    yard.ask(method=method, body=b"")
    sent = yard.wire.take()
    assert (b"content-length: 0\r\n" in sent) == length
    assert sent.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("step", [0, 1, 2, 7])
@pytest.mark.parametrize(("answer", "body"), [(OK, b"ok"), (CHUNKED, b"hello")])
def test_an_answer_in_any_pieces(yard: Yard, answer: bytes, body: bytes, step: int) -> None:
    _, heard = yard.ask()
    yard.wire.feed_split(answer, range(0, len(answer), step) if step else ())
    assert (heard.status, heard.body, heard.ends, heard.heads) == (200, body, 1, 1)


def test_one_read_is_one_block(yard: Yard) -> None:
    _, heard = yard.ask()
    yard.wire.feed(CHUNKED)
    assert heard.blocks == [b"hello"]


def test_header_names_are_lower_and_trailers_left_out(yard: Yard) -> None:
    _, heard = yard.ask()
    yard.wire.feed(CHUNKED)
    assert heard.headers == [(b"transfer-encoding", b"chunked")]


def test_preliminary_answers_are_skipped(yard: Yard) -> None:
    _, heard = yard.ask()
    yard.wire.feed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
    assert heard.heads == 0
    yard.wire.feed(b"HTTP/1.1 102 P\r\n\r\n" + OK)
    assert (heard.heads, heard.status, heard.headers, heard.body) == (1, 200, [(b"content-length", b"2")], b"ok")


@pytest.mark.parametrize("status", [204, 304])
def test_a_status_without_body_ends_with_its_head(yard: Yard, status: int) -> None:
    _, heard = yard.ask()
    yard.wire.feed(b"HTTP/1.1 %d X\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\n" % status)
    assert (heard.status, heard.body, heard.ends) == (status, b"", 1)
    assert not yard.wire.disconnecting


def test_head_ends_with_its_head(yard: Yard) -> None:
    _, heard = yard.ask(method="HEAD", body=b"")
    yard.wire.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
    assert (heard.status, heard.body, heard.ends) == (200, b"", 1)


def test_an_offer_to_upgrade_in_an_answer_is_nothing(yard: Yard) -> None:
    _, heard = yard.ask()
    yard.wire.feed(b"HTTP/1.1 200 OK\r\nConnection: Upgrade\r\nUpgrade: h2c\r\ncontent-length: 2\r\n\r\nok")
    assert (heard.body, heard.ends) == (b"ok", 1)


# ---- bodies that end with the connection ------------------------------------------------------------------------


def test_a_body_until_close_ends_with_a_clean_close(yard: Yard) -> None:
    _, heard = yard.ask()
    yard.wire.feed(UNTIL_CLOSE)
    assert not heard.over
    yard.wire.lose(ConnectionDone())
    assert (heard.body, heard.ends) == (b"hello", 1)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (UNTIL_CLOSE, ConnectionLost()),
        (BEGUN, ConnectionDone()),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", ConnectionDone()),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", ConnectionLost()),
    ],
)
def test_a_body_that_is_cut_is_a_failure(yard: Yard, answer: bytes, why: Exception) -> None:
    _, heard = yard.ask()
    yard.wire.feed(answer)
    yard.wire.lose(why)
    assert failed(heard).code == "upstream_error"
    assert "in the middle" in failed(heard).message


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nA: b\r\n", b"HTTP/1.1 100 C\r\n\r\n"])
def test_a_close_without_an_answer_is_a_failure(yard: Yard, answer: bytes) -> None:
    _, heard = yard.ask()
    yard.wire.feed(answer)
    yard.wire.lose(ConnectionDone())
    assert "without an answer" in failed(heard).message
    assert heard.heads == 0


@pytest.mark.parametrize(
    "answer",
    [
        b"garbage\r\n\r\n",
        b"\x15\x03\x03\x00\x02\x02\x16",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nxx\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
    ],
)
@pytest.mark.parametrize("split", [False, True])
def test_an_answer_that_is_not_http_is_a_failure(yard: Yard, answer: bytes, split: bool) -> None:
    _, heard = yard.ask()
    yard.wire.feed_split(answer, range(len(answer)) if split else ())
    assert failed(heard).code == "upstream_error"
    assert heard.body == b""
    assert yard.wire.aborted


def test_what_came_before_the_damage_is_handed_over(yard: Yard) -> None:
    _, heard = yard.ask()
    yard.wire.feed(BEGUN + b"zz\r\n")
    assert heard.blocks == [b"begun"]
    assert "not well-formed" in failed(heard).message


def test_a_head_without_end_is_a_failure(yard: Yard) -> None:
    _, heard = yard.ask()
    yard.wire.feed(b"HTTP/1.1 200 OK\r\nx: ")
    for _ in range(20):
        yard.wire.feed(b"v" * 65536)
    assert "no end" in failed(heard).message
    assert yard.wire.aborted


# ---- the pool ---------------------------------------------------------------------------------------------------


def test_a_connection_is_used_again(yard: Yard) -> None:
    for _ in range(3):
        _, heard = yard.ask()
        yard.wire.feed(OK)
        assert heard.ends == 1
    assert yard.backend.dialled == 1


def test_a_call_may_be_made_from_the_end_of_another(yard: Yard) -> None:
    first = Heard()
    seconds: list[Heard] = []
    first.ended = lambda: seconds.append(yard.ask()[1])  # type: ignore[method-assign]
    yard.ask(heard=first)
    yard.wire.feed(OK)
    yard.wire.feed(OK)
    assert seconds[0].ends == 1
    assert yard.backend.dialled == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nintruder!",
        OK + b"H",
        OK + b"\0",
        CHUNKED + b"junk",
    ],
)
def test_a_connection_that_may_not_be_used_again_is_not(yard: Yard, answer: bytes) -> None:
    _, heard = yard.ask()
    yard.wire.feed(answer)
    assert (heard.heads, heard.ends) == (1, 1)
    assert b"intruder" not in heard.body
    assert yard.wire.disconnecting
    first = yard.wire
    _, heard = yard.ask()
    assert yard.wire is not first
    yard.wire.feed(OK)
    assert heard.body == b"ok"


def test_an_http_1_0_answer_that_asks_for_it_keeps_the_connection(yard: Yard) -> None:
    yard.ask()
    yard.wire.feed(b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok")
    assert not yard.wire.disconnecting


def test_an_idle_connection_that_speaks_is_dropped(yard: Yard) -> None:
    yard.ask()
    first = yard.wire
    first.feed(OK)
    first.feed(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert first.aborted
    _, heard = yard.ask()
    assert yard.wire is not first
    yard.wire.feed(OK)
    assert heard.status == 200


def test_the_newest_idle_connection_goes_first(yard: Yard) -> None:
    yard.ask()
    yard.ask()
    old, new = yard.backend.wires
    old.feed(OK)
    new.feed(OK)
    old.take()
    new.take()
    yard.ask()
    assert (old.take(), new.take() != b"") == (b"", True)


def test_calls_beyond_the_bound_wait_their_turn(lay: Lay) -> None:
    yard = lay(max_connections=2)
    heard = [yard.ask(body=b"%d" % i)[1] for i in range(5)]
    assert yard.backend.dialled == 2
    one, two = yard.backend.wires
    two.take()
    two.feed(OK)
    assert two.take().endswith(b"\r\n\r\n2")
    one.lose(ConnectionLost())
    assert yard.backend.dialled == 3
    assert yard.wire.take().endswith(b"\r\n\r\n3")
    two.feed(OK)
    two.feed(OK)
    yard.wire.feed(OK)
    assert [h.ends for h in heard] == [0, 1, 1, 1, 1]
    assert failed(heard[0]).code == "upstream_error"


def test_a_waiting_call_that_is_cancelled_is_forgotten(lay: Lay) -> None:
    yard = lay(max_connections=1)
    yard.ask()
    call, heard = yard.ask(body=b"cancelled")
    _, third = yard.ask(body=b"third")
    call.cancel()
    call.cancel()
    yard.wire.take()
    yard.wire.feed(OK)
    assert yard.wire.take().endswith(b"third")
    yard.wire.feed(OK)
    assert (heard.over, third.ends, yard.backend.dialled) == (False, 1, 1)


@pytest.mark.parametrize(("timers", "at"), [(Timers(first_byte=10), 10), (Timers(first_byte=0, total=7), 7)])
def test_a_waiting_call_does_not_wait_for_ever(lay: Lay, timers: Timers, at: float) -> None:
    yard = lay(max_connections=1)
    yard.ask(Timers(first_byte=0))
    _, heard = yard.ask(timers)
    yard.pass_time(at - 0.5)
    assert not heard.over
    yard.pass_time(1)
    assert (failed(heard).code, failed(heard).http_status) == ("upstream_busy", 504)
    yard.wire.feed(OK)
    assert not yard.wire.disconnecting


def test_no_more_than_max_idle_are_kept(lay: Lay) -> None:
    yard = lay(max_idle=1)
    yard.ask()
    yard.ask()
    for wire in yard.backend.wires:
        wire.feed(OK)
    assert [wire.disconnecting for wire in yard.backend.wires] == [False, True]


def test_an_idle_connection_is_closed_after_a_while(lay: Lay) -> None:
    yard = lay(idle_timeout=4)
    yard.ask()
    yard.wire.feed(OK)
    yard.pass_time(3.75)
    assert not yard.wire.disconnecting
    yard.pass_time(0.75)
    assert yard.wire.disconnecting
    assert not yard.wire.aborted
    yard.ask()
    assert yard.backend.dialled == 2


def test_a_connection_whose_backend_does_not_let_go_is_aborted(lay: Lay) -> None:
    yard = lay(idle_timeout=4)
    yard.ask()
    yard.wire.loseConnection = lambda: None  # type: ignore[method-assign]
    yard.wire.feed(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok")
    assert not yard.wire.aborted
    yard.pass_time(5)
    assert yard.wire.aborted


def test_an_idle_connection_that_the_backend_closes_is_not_used(yard: Yard) -> None:
    yard.ask()
    yard.wire.feed(OK)
    yard.wire.lose()
    yard.ask()
    assert yard.backend.dialled == 2


def test_a_thousand_calls_leave_nothing(lay: Lay) -> None:
    yard = lay(max_connections=10, max_idle=5)
    calls = [yard.ask(body=b"%d" % i) for i in range(1000)]
    for number, (call, _) in enumerate(calls):
        if number % 3 == 0:
            call.cancel()
        elif call.connection is not None:
            wire: Any = call.connection.transport
            wire.feed(OK if number % 3 == 1 else b"HTTP/1.1 2")
            if number % 3 == 2:
                wire.lose(ConnectionLost())
        yard.clock.advance(0)
    assert sum(heard.over for _, heard in calls) == 666
    assert yard.backend.dialled < 1000


# ---- the one repetition -----------------------------------------------------------------------------------------


def stale(yard: Yard, **more: Any) -> tuple[Any, Heard]:
    """A call on a pooled connection."""
    yard.ask()
    yard.wire.feed(OK)
    yard.wire.take()
    return yard.ask(body=b"again", **more)


@pytest.mark.parametrize("why", [ConnectionDone(), ConnectionLost()])
def test_a_call_on_a_stale_connection_is_repeated_once(yard: Yard, why: Exception) -> None:
    _, heard = stale(yard)
    yard.wire.lose(why)
    assert not heard.over
    assert yard.backend.dialled == 2
    assert yard.wire.take().endswith(b"again")
    yard.wire.lose(why)
    assert "without an answer" in failed(heard).message
    assert yard.backend.dialled == 2


@pytest.mark.parametrize("byte", [b"H", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"\r\n"])
def test_there_is_no_repetition_after_a_byte(yard: Yard, byte: bytes) -> None:
    _, heard = stale(yard)
    yard.wire.feed(byte)
    yard.wire.lose()
    assert failed(heard).code == "upstream_error"
    assert yard.backend.dialled == 1


def test_there_is_no_repetition_of_a_call_nobody_wants(yard: Yard) -> None:
    call, heard = stale(yard)
    call.cancel()
    yard.clock.advance(0)
    assert (heard.over, yard.backend.dialled) == (False, 1)


def test_there_is_no_repetition_after_a_timeout(yard: Yard) -> None:
    _, heard = stale(yard, timers=Timers(first_byte=5))
    yard.pass_time(6)
    assert failed(heard).code == "upstream_timeout"
    assert yard.backend.dialled == 1


def test_a_repetition_keeps_to_the_bound_and_to_its_turn(lay: Lay) -> None:
    yard = lay(max_connections=1)
    _, heard = stale(yard)
    _, other = yard.ask(body=b"other")
    yard.wire.lose()
    assert yard.backend.dialled == 2
    assert yard.wire.take().endswith(b"again")
    yard.wire.feed(OK)
    yard.wire.feed(OK)
    assert (heard.ends, other.ends, yard.backend.dialled) == (1, 1, 2)


def test_a_repetition_stays_paused(yard: Yard) -> None:
    call, heard = stale(yard)
    call.pause()
    yard.wire.lose()
    assert yard.wire.producerState == "paused"
    call.resume()
    yard.wire.feed(OK)
    assert heard.ends == 1


# ---- connecting -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("why", "message"),
    [
        (ConnectionRefusedError("10.1.2.3"), "refused the connection"),
        (DNSLookupError("secret.internal"), "name is not known"),
        (TimeoutError("10.1.2.3"), "in time"),
        (OSError("10.1.2.3"), "refused"),
        (RuntimeError("10.1.2.3"), "could not be reached"),
    ],
)
def test_why_a_connection_cannot_be_had(lay: Lay, why: Exception, message: str) -> None:
    yard = lay(waits=True, max_connections=1)
    _, heard = yard.ask()
    _, second = yard.ask()
    yard.backend.refuse(why)
    assert failed(heard).code == "upstream_connect"
    assert failed(heard).retryable
    assert message in failed(heard).message
    assert "10.1.2.3" not in failed(heard).message
    assert "internal" not in failed(heard).message
    yard.backend.accept().feed(OK)
    assert second.ends == 1


@pytest.mark.parametrize(("timers", "at"), [(Timers(connect=5), 5), (Timers(connect=5, total=2), 2)])
def test_connecting_has_its_time(lay: Lay, timers: Timers, at: float) -> None:
    yard = lay(waits=True)
    _, heard = yard.ask(timers)
    yard.pass_time(at - 0.25)
    assert not heard.over
    yard.pass_time(0.5)
    assert (failed(heard).code, failed(heard).http_status) == ("upstream_connect", 504)
    assert yard.backend.cancelled == 1


def test_connecting_without_patience_of_its_own_still_ends(lay: Lay) -> None:
    yard = lay(waits=True)
    _, heard = yard.ask(Timers(connect=0))
    yard.pass_time(301, 10)
    assert failed(heard).code == "upstream_connect"


def test_a_connection_that_is_lost_at_once(lay: Lay) -> None:
    yard = lay(waits=True, max_connections=1)
    _, heard = yard.ask()
    factory, connecting = yard.backend.dials.pop()
    protocol = factory.buildProtocol(None)
    protocol.connectionLost(None)
    connecting.callback(protocol)
    assert failed(heard).code == "upstream_connect"
    yard.ask()
    assert yard.backend.dialled == 2


# ---- timers -----------------------------------------------------------------------------------------------------


def test_first_byte(yard: Yard) -> None:
    _, heard = yard.ask(Timers(first_byte=10))
    yard.pass_time(5)
    yard.wire.feed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 2")  # not yet an answer
    yard.pass_time(4.75)
    assert not heard.over
    yard.pass_time(0.75)
    assert (failed(heard).code, failed(heard).http_status) == ("upstream_timeout", 504)
    assert "did not begin" in failed(heard).message
    assert yard.wire.aborted


def test_gap(yard: Yard) -> None:
    _, heard = yard.ask(Timers(first_byte=10, gap=5))
    yard.wire.feed(BEGUN)
    for _ in range(40):  # slow but alive
        yard.pass_time(4)
        yard.wire.feed(b"1\r\nx\r\n")
    assert not heard.over
    yard.pass_time(5.5)
    assert failed(heard).code == "upstream_timeout"
    assert "in the middle" in failed(heard).message
    assert heard.body == b"begun" + b"x" * 40


def test_gap_after_headers_alone(yard: Yard) -> None:
    _, heard = yard.ask(Timers(first_byte=10, gap=5))
    yard.wire.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    yard.pass_time(5.5)
    assert "in the middle" in failed(heard).message


def test_total_ends_what_only_pings(yard: Yard) -> None:
    _, heard = yard.ask(Timers(total=60))
    yard.wire.feed(BEGUN)
    for _ in range(29):
        yard.pass_time(2)
        yard.wire.feed(b"8\r\n: ping\n\n\r\n")
    assert not heard.over
    yard.pass_time(2.5)
    assert "request_timeout_ms" in failed(heard).message


def test_zero_is_without_end(yard: Yard) -> None:
    _, heard = yard.ask(Timers(first_byte=0, gap=0, total=0))
    yard.pass_time(100_000, 1000)
    yard.wire.feed(BEGUN)
    yard.pass_time(100_000, 1000)
    assert not heard.over


def test_a_paused_call_has_no_gap_but_a_total(yard: Yard) -> None:
    call, heard = yard.ask(Timers(gap=5, total=100))
    yard.wire.feed(BEGUN)
    call.pause()
    yard.pass_time(90)
    assert not heard.over
    call.resume()
    yard.pass_time(4)
    assert not heard.over
    yard.pass_time(2)
    assert "in the middle" in failed(heard).message


def test_a_call_paused_before_the_answer_has_its_first_byte_time_after(yard: Yard) -> None:
    call, heard = yard.ask(Timers(first_byte=10, gap=1))
    call.pause()
    yard.pass_time(60)
    call.resume()
    yard.pass_time(9)
    assert not heard.over
    yard.pass_time(2)
    assert "did not begin" in failed(heard).message


# ---- cancel and close -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200", BEGUN, UNTIL_CLOSE])
@pytest.mark.parametrize("paused", [False, True])
def test_cancel_closes_the_connection_at_once(yard: Yard, answer: bytes, paused: bool) -> None:
    call, heard = yard.ask()
    if paused:
        call.pause()
    yard.wire.feed(answer)
    call.cancel()
    assert yard.wire.aborted
    call.cancel()
    call.pause()
    call.resume()
    yard.wire.lose()
    assert not heard.over
    yard.ask()
    assert yard.backend.dialled == 2


def test_cancel_while_connecting(lay: Lay) -> None:
    yard = lay(waits=True, max_connections=1)
    call, heard = yard.ask()
    call.cancel()
    assert yard.backend.cancelled == 1
    assert not heard.over
    yard.ask()
    assert yard.backend.dialled == 2


def test_cancel_after_the_end_is_nothing(yard: Yard) -> None:
    call, _ = yard.ask()
    yard.wire.feed(OK)
    _, other = yard.ask()
    call.cancel()
    call.pause()
    yard.wire.feed(OK)
    assert (other.ends, yard.backend.dialled) == (1, 1)


@pytest.mark.parametrize("where", ["head", "block"])
def test_cancel_from_within_the_answer(yard: Yard, where: str) -> None:
    heard = Heard()
    call, _ = yard.ask(heard=heard)
    setattr(heard, where, lambda *_: call.cancel())
    yard.wire.feed(CHUNKED)
    assert yard.wire.aborted
    assert not heard.over
    assert heard.body == b""


def test_an_answer_that_fails_fails_its_call(yard: Yard) -> None:
    heard = Heard()

    def refuse(data: bytes) -> None:
        raise Failure("answer_too_large", "too much")

    heard.block = refuse  # type: ignore[method-assign]
    yard.ask(heard=heard)
    yard.wire.feed(CHUNKED)
    assert failed(heard).code == "answer_too_large"
    assert yard.wire.aborted


def test_an_answer_that_raises_is_not_hidden(yard: Yard) -> None:
    heard = Heard()
    heard.head = lambda *_: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    yard.ask(heard=heard)
    with pytest.raises(Exception, match="callback"):
        yard.wire.feed(CHUNKED)
    assert failed(heard).code == "internal"


def test_close_ends_everything_and_dials_nothing(lay: Lay) -> None:
    yard = lay(max_connections=3)
    yard.ask()
    yard.wire.feed(OK)
    busy = [yard.ask()[1] for _ in range(2)]
    yard.backend.waits = True
    dialling = yard.ask()[1]
    waiting = yard.ask()[1]
    yard.client.close()
    yard.clock.advance(0)
    assert {failed(heard).message for heard in (*busy, dialling, waiting)} == {"the gateway is stopping"}
    assert (yard.backend.dialled, yard.backend.cancelled) == (3, 1)
    assert all(wire.closed for wire in yard.backend.wires)
    assert failed(yard.ask()[1]).code == "upstream_error"
    assert yard.backend.dialled == 3


def test_a_connection_leaves_no_cycle(yard: Yard) -> None:
    gc.collect()
    gc.disable()
    try:
        _, heard = yard.ask()
        yard.wire.feed(OK)
        seen = weakref.ref(yard.wire.protocol)
        yard.wire.lose()
        yard.backend.wires.clear()
        assert heard.ends == 1
        assert seen() is None
    finally:
        gc.enable()


# ---- pause ------------------------------------------------------------------------------------------------------


def test_pause_stops_reading_and_holds_what_has_come(yard: Yard) -> None:
    call, heard = yard.ask()
    yard.wire.feed(BEGUN)
    call.pause()
    assert yard.wire.producerState == "paused"
    yard.wire.feed(b"3\r\nabc\r\n")
    yard.wire.feed(b"3\r\ndef\r\n0\r\n\r\n")
    assert heard.body == b"begun"
    call.resume()
    assert yard.wire.producerState == "producing"
    assert (heard.body, heard.ends) == (b"begunabcdef", 1)


@pytest.mark.parametrize(
    ("rest", "ends"), [(b"3\r\nabc\r\n0\r\n\r\n", 1), (b"3\r\nabc\r\n", 0), (b"3\r\nabc\r\nzz", 0), (b"zz", 0)]
)
def test_what_came_before_the_loss_of_a_paused_connection_is_handed_over(yard: Yard, rest: bytes, ends: int) -> None:
    call, heard = yard.ask()
    yard.wire.feed(BEGUN)
    call.pause()
    yard.wire.feed(rest)
    yard.wire.lose()
    assert heard.body == b"begun"
    call.resume()
    assert heard.body == (b"begunabc" if b"abc" in rest else b"begun")
    assert heard.ends == ends
    assert (heard.failure is None) == bool(ends)


def test_a_paused_call_with_nothing_held_is_told_of_the_loss(yard: Yard) -> None:
    call, heard = yard.ask()
    yard.wire.feed(BEGUN)
    call.pause()
    yard.wire.lose()
    assert failed(heard).code == "upstream_error"


def test_cancel_of_a_paused_and_lost_call_is_silent(yard: Yard) -> None:
    call, heard = yard.ask()
    call.pause()
    yard.wire.feed(BEGUN)
    yard.wire.lose()
    call.cancel()
    call.resume()
    assert not heard.over


def test_pause_before_the_connection(lay: Lay) -> None:
    yard = lay(waits=True)
    call, heard = yard.ask()
    call.pause()
    wire = yard.backend.accept()
    assert wire.producerState == "paused"
    call.resume()
    wire.feed(OK)
    assert heard.ends == 1


def test_the_end_within_a_block_that_pauses_and_resumes_comes_after_it(yard: Yard) -> None:
    events: list[str] = []
    heard = Heard()

    def block(data: bytes) -> None:
        call.pause()
        call.resume()
        events.append("block done")

    heard.block = block  # type: ignore[method-assign]
    heard.ended = lambda: events.append("ended")  # type: ignore[method-assign]
    call, _ = yard.ask(heard=heard)
    yard.wire.feed(CHUNKED)
    assert events == ["block done", "ended"]


FRAMES = st.sampled_from(["length", "chunked", "close"])


@settings(deadline=None)
@given(
    pieces=st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=8),
    framing=FRAMES,
    data=st.data(),
    within=st.lists(st.sampled_from(["", "pause", "pause resume", "resume"]), max_size=8),
)
def test_pauses_anywhere_lose_nothing_and_reorder_nothing(
    pieces: list[bytes], framing: str, data: st.DataObject, within: list[str]
) -> None:
    body = b"".join(pieces)
    if framing == "length":
        stream = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    elif framing == "chunked":
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
        stream = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    else:
        stream = b"HTTP/1.1 200 OK\r\n\r\n" + body
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10), label="cuts"))
    actions = data.draw(
        st.lists(st.sampled_from(["", "pause", "resume"]), min_size=len(cuts) + 1, max_size=len(cuts) + 1)
    )

    yard = Yard()
    todo = list(within)

    def then(_: bytes) -> None:
        for action in todo.pop(0).split() if todo else ():
            getattr(call, action)()

    heard = Heard(then)
    call, _ = yard.ask(heard=heard)
    wire = yard.wire
    start = 0
    for cut, action in zip([*cuts, len(stream)], actions, strict=True):
        if cut > start:
            wire.feed(stream[start:cut])
        start = max(start, cut)
        if action:
            getattr(call, action)()
        assert body.startswith(heard.body)
    if framing == "close":
        wire.lose()
    for _ in range(len(pieces) + len(within) + 2):
        call.resume()
    assert (heard.body, heard.ends) == (body, 1)
    yard.close()
