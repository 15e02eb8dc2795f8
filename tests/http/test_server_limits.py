"""The server's limits: sizes, time, and clients that do not read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from http_doubles import House, read_answers
from socket_doubles import PlainWire

from iop.http.server import Limits
from iop.sockets import unsent

GET = b"GET /now HTTP/1.1\r\nHost: h\r\n\r\n"
NEXT = b"GET /second HTTP/1.1\r\nHost: h\r\n\r\n"
STREAM = b"GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"
LATER = b"GET /later HTTP/1.1\r\nHost: h\r\n\r\n"
Build = Callable[..., House]


def head_of(size: int, headers: int = 5) -> bytes:
    """A head of exactly so many bytes."""
    lines = [b"GET /now HTTP/1.1\r\nHost: h\r\n"] + [b"x-%d: %b\r\n" % (i, b"v" * 20) for i in range(headers)]
    short = b"".join(lines) + b"pad: "
    return short + b"p" * (size - len(short) - 4) + b"\r\n\r\n"


# ---- the head ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [0, 1, 7, 500, 999, 1000, 1001])
@pytest.mark.parametrize("before", [b"", GET], ids=["first", "pipelined"])
def test_the_head_limit_is_exact_in_any_pieces(build: Build, step: int, before: bytes) -> None:
    house = build(Limits(head=1000))
    for size, status in [(999, 200), (1000, 200), (1001, 431), (1400, 431)]:
        stream = before + head_of(size)
        wire, out = house.ask(stream + NEXT, range(0, len(stream), step) if step else ())
        statuses = [a.status for a in read_answers(out)][bool(before) :]
        assert statuses == ([200, 200] if status == 200 else [431]), size
        assert wire.disconnecting == (status == 431)


@pytest.mark.parametrize("step", [1, 64, 4096, 65536])
def test_the_usual_limit_is_64_kib(house: House, step: int) -> None:
    for size, status in [(65536, 200), (65537, 431)]:
        _, out = house.ask(head_of(size), range(0, size, step))
        assert read_answers(out)[0].status == status


def test_a_head_without_end_is_refused_at_the_limit(build: Build) -> None:
    house = build(Limits(head=1000))
    wire = house.connect()
    stream = b"GET /now HTTP/1.1\r\nHost: h\r\nx: " + b"v" * 2000
    for i in range(1001):
        assert wire.take() == b""
        wire.feed(stream[i : i + 1])
    assert read_answers(wire.take())[0].status == 431
    assert wire.disconnecting


def test_a_repeated_header_counts_whole(build: Build) -> None:
    house = build(Limits(head=1000))
    start = b"GET /now HTTP/1.1\r\nHost: h\r\n"
    lines = start + b"a-long-name: b\r\n" * 64
    _, out = house.ask(lines + b"\r\n", [500])
    assert len(lines) > 1000
    assert read_answers(out)[0].status == 431


def test_a_long_target_is_refused(build: Build) -> None:
    house = build(Limits(head=1000))
    _, out = house.ask(b"GET /" + b"a" * 1000 + b" HTTP/1.1\r\nHost: h\r\n\r\n")
    assert read_answers(out)[0].status == 431


@pytest.mark.parametrize("step", [1, 100])
def test_a_trailer_without_end_is_refused(build: Build, step: int) -> None:
    house = build(Limits(head=1000))
    wire = house.connect()
    wire.feed(b"POST /now HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    stream = b"0\r\nx: " + b"v" * 5000
    wire.feed_split(stream, range(0, len(stream), step))
    assert read_answers(wire.take())[0].status == 431
    assert wire.disconnecting


def test_a_body_in_reads_larger_than_a_head_may_be_is_no_trailer(build: Build) -> None:
    house = build(Limits(head=100))
    wire = house.connect()
    wire.feed(b"POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: 5000\r\n\r\n")
    for _ in range(5):
        wire.feed(b"b" * 1000)
    assert len(read_answers(wire.take())[0].body) == 5000


# ---- the body ---------------------------------------------------------------------------------------------------


def test_the_body_limit_is_exact_by_length(build: Build) -> None:
    house = build(Limits(body=1000))
    post = b"POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
    _, out = house.ask(post % 1000 + b"b" * 1000)
    assert read_answers(out)[0].status == 200
    wire, out = house.ask(post % 1001)
    (answer,) = read_answers(out, ["POST"])
    assert (answer.status, answer.headers[b"x-code"], answer.closes) == (413, b"request_too_large", True)
    wire.feed(b"b" * 1001 + NEXT)
    assert b"/second" not in house.app.admitted


def test_the_body_limit_is_exact_by_counting(build: Build) -> None:
    house = build(Limits(body=1000))
    post = b"POST /now HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    for size, status in [(1000, 200), (1001, 413)]:
        stream = post + b"1\r\nb\r\n" * size + b"0\r\n\r\n" + NEXT
        for cuts in range(0), range(len(stream)):
            _, out = house.ask(stream, cuts)
            statuses = [a.status for a in read_answers(out)]
            assert statuses == ([200, 200] if status == 200 else [413])


def test_413_comes_before_the_body_and_instead_of_100(build: Build) -> None:
    house = build(Limits(body=1000))
    _, out = house.ask(b"POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n")
    assert (read_answers(out, ["POST"])[0].informational, read_answers(out, ["POST"])[0].status) == ([], 413)


def test_who_may_not_come_in_is_told_that_first(build: Build) -> None:
    house = build(Limits(body=10))
    post = b"POST /deny HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n"
    for stream in (post, post + b"b" * 100):
        assert read_answers(house.ask(stream)[1], ["POST"])[0].status == 401


def test_after_an_early_answer_the_rest_of_the_body_is_read_off(build: Build) -> None:
    house = build(Limits(body=1000, linger_timeout=2, linger_total=10))
    plain = house.connect_plain()
    plain.feed(b"POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n")
    plain.turn()
    assert b"413" in plain.socket.sent
    assert plain.socket.ended
    assert not plain.socket.closed
    for _ in range(4):  # a slow sender keeps it open
        house.pass_time(1.5)
        plain.feed(b"b" * 100)
    assert not plain.socket.closed
    house.pass_time(3)
    assert plain.socket.closed
    assert house.server.connections == set()


def test_reading_off_ends(build: Build) -> None:
    house = build(Limits(body=1000, linger_timeout=2, linger_total=10))
    plain = house.connect_plain()
    plain.feed(b"POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n")
    plain.turn()
    for _ in range(11):
        house.pass_time(1)
        plain.feed(b"b")
    assert plain.socket.closed


def test_a_plain_close_when_nothing_is_unread(house: House) -> None:
    plain = house.connect_plain()
    plain.feed(b"GET /now HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    plain.turn()
    assert plain.socket.closed
    assert not plain.socket.reset


# ---- what waits on a connection ---------------------------------------------------------------------------------


def test_too_many_pipelined_requests_are_cut_and_the_rest_is_answered(build: Build) -> None:
    house = build(Limits(pipelined=4))
    wire, _ = house.ask(LATER + NEXT * 9)
    house.app.waiting[0].respond(200, [], b"first")
    answers = read_answers(wire.take())
    assert [a.body for a in answers] == [b"first", b"ok", b"ok", b"ok"]
    assert [a.closes for a in answers] == [False, False, False, True]
    assert wire.disconnecting


def test_too_many_pipelined_behind_a_stream_that_has_begun(build: Build) -> None:
    house = build(Limits(pipelined=1))
    wire, _ = house.ask(STREAM)
    house.app.waiting[0].write(b"begun")
    wire.feed(NEXT + NEXT)
    assert not wire.disconnecting
    house.app.waiting[0].finish()
    assert [a.body for a in read_answers(wire.take())] == [b"begun"]
    assert wire.disconnecting
    assert house.app.admitted == [b"/stream"]


def test_a_large_body_behind_a_slow_request_is_not_kept(build: Build) -> None:
    house = build(Limits(head=1000))
    wire, _ = house.ask(LATER)
    wire.feed(b"POST /second HTTP/1.1\r\nHost: h\r\nContent-Length: 5000\r\n\r\n")
    for _ in range(5):
        wire.feed(b"b" * 1000)
    wire.feed(NEXT)
    house.app.waiting[0].respond(200, [], b"first")
    (answer,) = read_answers(wire.take())
    assert (answer.body, answer.closes) == (b"first", True)
    assert wire.disconnecting
    assert house.app.admitted == [b"/later"]


# ---- time -------------------------------------------------------------------------------------------------------

TIMES = Limits(head_timeout=20, body_timeout=60, idle_timeout=75, stall_timeout=30, linger_timeout=2)


@pytest.mark.parametrize("sent", [b"", GET], ids=["fresh", "used"])
def test_an_idle_connection_is_closed_without_a_word(build: Build, sent: bytes) -> None:
    house = build(TIMES)
    wire, _ = house.ask(sent)
    wire.take()
    house.pass_time(74.5)
    assert not wire.disconnecting
    house.pass_time(1)
    assert wire.disconnecting
    assert wire.take() == b""
    assert house.server.connections == set()


def test_a_slow_head_is_408_however_it_dribbles(build: Build) -> None:
    house = build(TIMES)
    wire = house.connect()
    for i in range(19):
        wire.feed(GET[i : i + 1])
        house.pass_time(1)
    assert wire.take() == b""
    house.pass_time(1.5)
    (answer,) = read_answers(wire.take())
    assert (answer.status, answer.closes) == (408, True)
    assert wire.disconnecting


def test_a_head_that_began_behind_a_slow_request_has_its_time_too(build: Build) -> None:
    house = build(TIMES)
    wire, _ = house.ask(LATER + NEXT[:10])
    house.pass_time(100)
    assert wire.take() == b""
    house.app.waiting[0].respond(200, [], b"first")
    house.pass_time(19)
    assert not wire.disconnecting
    house.pass_time(2)
    assert [a.status for a in read_answers(wire.take())] == [200, 408]


def test_a_slow_body_is_408_and_a_steady_one_is_not(build: Build) -> None:
    house = build(TIMES)
    wire, _ = house.ask(b"POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n")
    for _ in range(4):
        house.pass_time(50)
        wire.feed(b"b")
    assert wire.take() == b""
    house.pass_time(61)
    assert read_answers(wire.take(), ["POST"])[0].status == 408
    assert house.app.handled == []


@pytest.mark.parametrize("request_bytes", [LATER, STREAM])
def test_an_answer_may_take_its_time(build: Build, request_bytes: bytes) -> None:
    house = build(TIMES)
    wire, _ = house.ask(request_bytes)
    house.pass_time(1000, 10)
    assert not wire.disconnecting


def test_after_a_long_answer_the_idle_time_begins_anew(build: Build) -> None:
    house = build(TIMES)
    wire, _ = house.ask(LATER)
    house.pass_time(200)
    house.app.waiting[0].respond(200, [], b"")
    house.pass_time(70)
    assert not wire.disconnecting
    house.pass_time(6)
    assert wire.disconnecting


def test_an_application_that_never_answers_a_refusal_does_not_keep_the_connection(build: Build) -> None:
    house = build(TIMES)
    house.app.refuse = lambda *_: None
    wire, _ = house.ask(b"BAD\r\n\r\n")
    house.pass_time(61)
    assert wire.aborted


def test_an_answer_that_began_before_its_request_was_whole_is_not_cut(build: Build) -> None:
    house = build(TIMES)
    house.app.admit = lambda exchange: (
        exchange.start(200, []),
        exchange.write(b"begun"),
        house.app.waiting.append(exchange),
    )
    wire, out = house.ask(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n")
    house.pass_time(100)
    wire.feed(b"hello" + NEXT)
    house.pass_time(100)
    house.app.waiting[0].finish()
    (answer,) = read_answers(out + wire.take(), ["POST"])
    assert (answer.body, answer.closes) == (b"begun", True)
    assert wire.disconnecting
    assert house.app.handled == []


# ---- clients that do not read -----------------------------------------------------------------------------------


def stalled(house: House, size: int = 100_000) -> PlainWire:
    plain = house.connect_plain(room=1000)
    plain.feed(STREAM)
    assert not house.app.waiting[0].write(b"d" * size)
    return plain


def test_a_client_that_takes_nothing_is_cut(build: Build) -> None:
    house = build(TIMES)
    plain = stalled(house)
    house.pass_time(29)
    assert not plain.socket.closed
    house.pass_time(2)
    assert plain.socket.closed
    assert plain.socket.reset
    assert house.app.gone == [b"/stream"]
    assert house.server.connections == set()


def test_a_client_that_takes_a_little_is_not(build: Build) -> None:
    house = build(TIMES)
    plain = stalled(house)
    for _ in range(10):
        house.pass_time(25)
        plain.read(10)
        house.app.waiting[0].write(b"more" * 10)  # more than it takes
    assert not plain.socket.closed
    house.pass_time(61)
    assert plain.socket.closed


def test_a_client_that_takes_all_is_told_of_and_watched_no_more(build: Build) -> None:
    house = build(TIMES)
    plain = stalled(house)
    assert house.app.drained == []
    plain.read(1 << 20)
    assert house.app.drained == [b"/stream"]
    house.pass_time(500, 5)
    assert not plain.socket.closed
    assert house.app.waiting[0].write(b"on")
    house.app.waiting[0].finish()
    assert read_answers(bytes(plain.socket.sent))[0].body == b"d" * 100_000 + b"on"


def test_the_stall_begins_anew_after_each_drain(build: Build) -> None:
    house = build(TIMES)
    plain = stalled(house)
    house.pass_time(29)
    plain.read(1 << 20)
    plain.socket.room = 10
    house.pass_time(29)
    assert not house.app.waiting[0].write(b"d" * 100)
    house.pass_time(29)
    assert not plain.socket.closed
    house.pass_time(2)
    assert plain.socket.closed


@pytest.mark.parametrize("close", [b"", b"Connection: close\r\n"])
def test_a_whole_answer_that_is_read_slowly_arrives(build: Build, close: bytes) -> None:
    house = build(TIMES)
    plain = house.connect_plain(room=1000)
    plain.feed(LATER[:-2] + close + b"\r\n")
    house.app.waiting[0].respond(200, [], b"d" * 20_000)
    for _ in range(21):
        house.pass_time(20)
        plain.read(1000)
    assert read_answers(bytes(plain.socket.sent))[0].body == b"d" * 20_000
    assert plain.socket.closed == bool(close)
    assert not plain.socket.reset


@pytest.mark.parametrize("close", [b"", b"Connection: close\r\n"])
def test_a_whole_answer_that_is_not_read_is_cut(build: Build, close: bytes) -> None:
    house = build(TIMES)
    plain = house.connect_plain(room=1000)
    plain.feed(LATER[:-2] + close + b"\r\n")
    house.app.waiting[0].respond(200, [], b"d" * 20_000)
    house.pass_time(31)
    assert plain.socket.reset
    assert house.app.gone == []


def test_an_early_answer_that_is_read_slowly_arrives(build: Build) -> None:
    house = build(TIMES)
    house.app.admit = lambda exchange: exchange.respond(401, [], b"d" * 5000)
    plain = house.connect_plain(room=1000)
    plain.feed(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 50\r\n\r\n")
    for _ in range(6):
        house.pass_time(10)
        plain.feed(b"b")
        plain.read(1000)
    assert len(read_answers(bytes(plain.socket.sent), ["POST"])[0].body) == 5000
    assert plain.socket.ended


def test_a_client_that_asks_on_and_reads_nothing_holds_one_answer(build: Build) -> None:
    """The next exchange is begun only when the client has taken the answer before it."""
    size = 100_000
    house = build(TIMES)
    house.app.handle = lambda exchange: exchange.respond(200, [(b"x-path", exchange.target)], b"d" * size)
    plain = house.connect_plain(room=1000)
    for number in range(40):
        plain.feed(b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n" % number)
        assert len(house.app.admitted) == 1
        assert unsent(plain.transport) < size + 1000
    plain.read(size // 2)
    assert len(house.app.admitted) == 1
    plain.read(size // 2)
    assert len(house.app.admitted) == 2
    for _ in range(60):
        plain.read(size)
        assert unsent(plain.transport) < size + 1000
    answers = read_answers(bytes(plain.socket.sent))
    assert [answer.headers[b"x-path"] for answer in answers] == [b"/%d" % number for number in range(40)]
    assert not plain.socket.closed


def test_a_bad_request_behind_an_answer_that_is_not_read_waits_its_turn(build: Build) -> None:
    house = build(TIMES)
    house.app.handle = lambda exchange: exchange.respond(200, [], b"d" * 5000)
    plain = house.connect_plain(room=1000)
    plain.feed(GET + b"GET / HTTP/1.1\r\n\r\n")
    assert house.app.refused == []
    plain.read(1 << 20)
    assert [answer.status for answer in read_answers(bytes(plain.socket.sent))] == [200, 400]


def test_a_stalled_client_among_others_is_alone(build: Build) -> None:
    house = build(TIMES)
    stalled(house)
    wire, out = house.ask(GET)
    house.pass_time(40)
    assert read_answers(out)[0].status == 200
    assert not wire.disconnecting


def test_a_transport_that_hides_its_buffer_is_watched_too(build: Build) -> None:
    house = build(TIMES)
    wire, _ = house.ask(STREAM)
    wire.producer.pauseProducing()
    assert not house.app.waiting[0].write(b"x")
    house.pass_time(29)
    wire.producer.resumeProducing()
    assert house.app.drained == [b"/stream"]
    house.pass_time(40)
    assert not wire.disconnecting
    wire.producer.pauseProducing()
    house.app.waiting[0].write(b"x")
    house.pass_time(31)
    assert wire.aborted


def test_a_broken_socket_is_noticed(build: Build) -> None:
    house = build(TIMES)
    plain = house.connect_plain()
    plain.feed(STREAM)
    plain.socket.broken = True
    assert not house.app.waiting[0].write(b"x")
    plain.turn()
    assert house.app.gone == [b"/stream"]
