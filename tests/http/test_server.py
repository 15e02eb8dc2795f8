"""The server: turn, framing, refusals, disconnects. RFC 9112."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import pytest
from http_doubles import House, read_answers
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.python.failure import Failure as TwistedFailure

GET = b"GET /now HTTP/1.1\r\nHost: h\r\n\r\n"
LATER = b"GET /later HTTP/1.1\r\nHost: h\r\n\r\n"
STREAM = b"GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"
NEXT = b"GET /second HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"POST /now HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;ext=1\r\nllo\r\n0\r\n\r\n"


# ---- one request ------------------------------------------------------------------------------------------------


def test_a_request_is_answered_and_the_connection_stays(house: House) -> None:
    wire, out = house.ask(GET)
    assert out == (
        b"HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\nx-path: /now\r\ncontent-length: 2\r\n\r\nok"
    )
    wire.feed(POST)
    assert read_answers(wire.take())[0].body == b"hello"
    assert not wire.disconnecting


@pytest.mark.parametrize("request_bytes", [GET, POST, CHUNKED])
def test_byte_by_byte_is_the_same_as_whole(house: House, request_bytes: bytes) -> None:
    _, whole = house.ask(request_bytes)
    _, pieces = house.ask(request_bytes, range(len(request_bytes)))
    assert whole == pieces
    assert house.app.handled[0] == house.app.handled[1]


def test_bodies_fixed_and_chunked(house: House) -> None:
    house.ask(POST + CHUNKED)
    assert house.app.handled == [(b"POST", b"/now", b"hello")] * 2


def test_trailers_are_ignored(house: House) -> None:
    trailers = b"X-Extra: 1\r\nHost: other\r\nAuthorization: Bearer stolen\r\n\r\n"
    seen: list[dict[bytes, bytes]] = []
    handle = house.app.handle
    house.app.handle = lambda exchange: (seen.append(dict(exchange.headers)), handle(exchange))
    _, out = house.ask(CHUNKED[:-2] + trailers + GET)
    assert [a.status for a in read_answers(out)] == [200, 200]
    assert seen[0] == {b"host": b"h", b"transfer-encoding": b"chunked"}


def test_header_names_in_any_case_values_without_white_space(house: House) -> None:
    seen: list[Any] = []
    house.app.handle = lambda exchange: (seen.append(exchange), exchange.respond(200, [], b""))
    house.ask(b"GET / HTTP/1.1\r\nHOST:h\r\nAUTHORIZATION: \t Bearer x \t\r\nA:1\r\na: 2\r\n\r\n")
    assert seen[0].headers == {b"host": b"h", b"authorization": b"Bearer x", b"a": b"1, 2"}
    assert seen[0].header(b"authorization") == b"Bearer x"
    assert seen[0].repeated == {b"a"}


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/v1/models?x=/y", b"/v1/models"),
        (b"http://h:80/v1/models?q", b"/v1/models"),
        (b"http://h", b"/"),
        (b"*", b"*"),
        (b"/a?b=http://c/d", b"/a"),
    ],
)
def test_the_path_of_a_target(house: House, target: bytes, path: bytes) -> None:
    house.ask(b"OPTIONS " + target + b" HTTP/1.1\r\nHost: h\r\n\r\n")
    assert house.app.admitted == [path]


def test_a_body_in_many_small_pieces_is_whole(house: House) -> None:
    body = bytes(range(256)) * 20
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    house.ask(b"POST /now HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
    assert house.app.handled[0][2] == body


def test_head_has_the_length_and_no_body(house: House) -> None:
    _, out = house.ask(GET.replace(b"GET", b"HEAD") + GET)
    head, get = read_answers(out, ["HEAD", "GET"])
    assert head.headers[b"content-length"] == b"2"
    assert (head.body, get.body) == (b"", b"ok")


def test_head_of_a_stream_has_no_body(house: House) -> None:
    wire, _ = house.ask(STREAM.replace(b"GET", b"HEAD"))
    exchange = house.app.waiting[0]
    assert exchange.write(b"data")
    exchange.finish()
    wire.feed(GET)
    head, get = read_answers(wire.take(), ["HEAD", "GET"])
    assert (head.status, head.body, get.body) == (200, b"", b"ok")


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("streamed", [True, False])
def test_a_status_without_body_has_no_framing(house: House, status: int, streamed: bool) -> None:
    wire, _ = house.ask(LATER)
    exchange = house.app.waiting[0]
    if streamed:
        exchange.start(status, [])
        exchange.write(b"never")
        exchange.finish()
    else:
        exchange.respond(status, [], b"never")
    wire.feed(GET)
    out = wire.take()
    assert [a.status for a in read_answers(out)] == [status, 200]
    assert b"content-length" not in out.split(b"\r\n\r\n")[0]
    assert b"transfer-encoding" not in out.split(b"\r\n\r\n")[0]
    assert b"never" not in out


def test_an_unknown_status_is_sent(house: House) -> None:
    wire, _ = house.ask(LATER)
    house.app.waiting[0].respond(599, [], b"")
    assert wire.take().startswith(b"HTTP/1.1 599 Unknown\r\n")


# ---- streams ----------------------------------------------------------------------------------------------------


def test_a_stream_is_chunked_and_its_head_goes_with_the_first_piece(house: House) -> None:
    wire, out = house.ask(STREAM)
    exchange = house.app.waiting[0]
    assert out == b""
    assert exchange.write(b"one")
    first = wire.take()
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert first.endswith(b"\r\n\r\n3\r\none\r\n")
    assert exchange.write(b"")
    exchange.write(b"two")
    exchange.finish()
    assert wire.take() == b"3\r\ntwo\r\n0\r\n\r\n"
    wire.feed(GET)
    assert read_answers(wire.take())[0].status == 200


def test_an_empty_stream_is_whole(house: House) -> None:
    wire, _ = house.ask(STREAM)
    house.app.waiting[0].finish()
    assert read_answers(wire.take())[0].body == b""


def test_what_is_said_after_the_end_goes_nowhere(house: House) -> None:
    wire, _ = house.ask(STREAM)
    exchange = house.app.waiting[0]
    exchange.write(b"x")
    exchange.finish()
    wire.take()
    assert exchange.write(b"more")
    exchange.finish()
    exchange.respond(500, [], b"")
    exchange.start(500, [])
    exchange.abort()
    assert wire.take() == b""
    assert not wire.disconnecting


def test_finish_before_start_is_nothing(house: House) -> None:
    wire, _ = house.ask(LATER)
    house.app.waiting[0].finish()
    house.app.waiting[0].respond(200, [], b"here")
    assert read_answers(wire.take())[0].body == b"here"


def test_abort_breaks_the_connection_and_nothing_makes_it_whole(house: House) -> None:
    wire, _ = house.ask(STREAM + GET)
    exchange = house.app.waiting[0]
    exchange.write(b"half")
    exchange.abort()
    exchange.write(b"more")
    exchange.finish()
    house.clock.advance(0)
    assert wire.aborted
    assert b"0\r\n\r\n" not in wire.take()
    assert house.app.gone == []
    assert house.app.admitted == [b"/stream"]


# ---- keep-alive, versions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "connection", "stays"),
    [
        (b"GET /now HTTP/1.1\r\nHost: h\r\n", None, True),
        (b"GET /now HTTP/1.1\r\nHost: h\r\nConnection: close\r\n", b"close", False),
        (b"GET /now HTTP/1.1\r\nHost: h\r\nConnection: foo, Close\r\n", b"close", False),
        (b"GET /now HTTP/1.0\r\n", b"close", False),
        (b"GET /now HTTP/1.0\r\nConnection: Keep-Alive\r\n", b"keep-alive", True),
        (b"GET /now HTTP/1.0\r\nHost: h\r\nConnection: close\r\n", b"close", False),
    ],
)
def test_who_stays(house: House, head: bytes, connection: bytes | None, stays: bool) -> None:
    wire, out = house.ask(head + b"\r\n")
    assert read_answers(out)[0].headers.get(b"connection") == connection
    assert wire.disconnecting is not stays


def test_a_stream_to_http_1_0_ends_with_the_connection(house: House) -> None:
    wire, _ = house.ask(b"GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    exchange = house.app.waiting[0]
    exchange.write(b"one")
    exchange.write(b"two")
    exchange.finish()
    out = wire.take()
    assert b"chunked" not in out
    assert read_answers(out, closed=True)[0].body == b"onetwo"
    assert wire.disconnecting
    assert not wire.aborted


def test_what_follows_a_close_is_not_answered(house: House) -> None:
    wire, out = house.ask(b"GET /now HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" + NEXT)
    assert len(read_answers(out)) == 1
    assert wire.disconnecting
    assert house.app.admitted == [b"/now"]


# ---- pipelining -------------------------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order_the_first_slow(house: House) -> None:
    wire, out = house.ask(LATER + NEXT + POST)
    assert out == b""
    assert house.app.admitted == [b"/later"]
    house.app.waiting[0].respond(200, [], b"first")
    assert [a.body for a in read_answers(wire.take())] == [b"first", b"ok", b"hello"]


def test_a_request_is_handled_once_whatever_comes_behind_it(house: House) -> None:
    wire, _ = house.ask(LATER)
    for byte in NEXT + NEXT:
        wire.feed(bytes([byte]))
    assert len(house.app.handled) == 1
    house.app.waiting[0].respond(200, [], b"first")
    assert [a.body for a in read_answers(wire.take())] == [b"first", b"ok", b"ok"]


def test_what_was_whole_before_a_bad_request_is_answered(house: House) -> None:
    wire, out = house.ask(GET + POST + b"BAD\r\n\r\n" + NEXT)
    assert [a.status for a in read_answers(out)] == [200, 200, 400]
    assert [a.closes for a in read_answers(out)] == [False, False, True]
    assert wire.disconnecting
    assert b"/second" not in house.app.admitted


def test_a_bad_request_waits_for_the_slow_one_before_it(house: House) -> None:
    wire, out = house.ask(LATER + b"BAD\r\n\r\n")
    assert out == b""
    wire.feed(NEXT)
    house.app.waiting[0].respond(200, [], b"first")
    assert [a.status for a in read_answers(wire.take())] == [200, 400]
    assert wire.disconnecting


@settings(deadline=None)
@given(
    order=st.lists(st.sampled_from([GET, POST, CHUNKED, NEXT, LATER]), min_size=1, max_size=8),
    bad=st.sampled_from([b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n", b"BAD / HTTP/1.1\r\n\r\n"]),
    data=st.data(),
)
def test_any_split_gives_what_one_piece_gives(order: list[bytes], bad: bytes, data: st.DataObject) -> None:
    stream = b"".join(order) + bad
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=20))

    def outcome(cuts: list[int]) -> Any:
        house = House()
        wire, out = house.ask(stream, cuts)
        while house.app.waiting:
            house.app.waiting.pop(0).respond(200, [], b"late")
        out += wire.take()
        result = out, wire.disconnecting, house.app.handled, [f.code for f in house.app.refused]
        house.close()
        return result

    assert outcome(cuts) == outcome([])


# ---- refusals ---------------------------------------------------------------------------------------------------

AMBIGUOUS = {
    "two lengths": b"POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 0\r\n\r\nabc",
    "the same length twice": b"POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a list of lengths": b"POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: 3, 3\r\n\r\nabc",
    "length and chunked": b"POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"0\r\n\r\n",
    "chunked and length": b"POST /now HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n"
    b"0\r\n\r\n",
    "length +3": b"POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: +3\r\n\r\nabc",
    "length -1": b"POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\nabc",
    "length 0x3": b"POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: 0x3\r\n\r\nabc",
    "length too long": b"POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999999\r\n\r\nabc",
    "no length": b"POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: \r\n\r\nabc",
    "xchunked": b"POST /now HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "gzip, chunked": b"POST /now HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "gzip and chunked": b"POST /now HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "identity": b"POST /now HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n",
    "chunked twice": b"POST /now HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked in HTTP/1.0": b"POST /now HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunk size 0x3": b"POST /now HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
    "chunk size +3": b"POST /now HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n",
    "chunk longer than it says": b"POST /now HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabcd\r\n0\r\n\r\n",
    "chunk size ends in LF": b"POST /now HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
    "length in a trailer": b"POST /now HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"0\r\nContent-Length: 44\r\n\r\n",
    "bare LF in a value": b"GET /now HTTP/1.1\r\nHost: h\r\nFoo: x\nContent-Length: 44\r\n\r\n",
    "bare LF line": b"GET /now HTTP/1.1\nHost: h\n\n",
    "bare CR in a value": b"GET /now HTTP/1.1\r\nHost: h\r\nFoo: x\rContent-Length: 44\r\n\r\n",
    "NUL in a value": b"GET /now HTTP/1.1\r\nHost: h\r\nFoo: x\0y\r\n\r\n",
    "folded header": b"GET /now HTTP/1.1\r\nHost: h\r\nFoo: x\r\n y\r\n\r\n",
    "space before the first header": b"GET /now HTTP/1.1\r\n Host: h\r\n\r\n",
    "space before the colon": b"GET /now HTTP/1.1\r\nHost : h\r\n\r\n",
    "no name": b"GET /now HTTP/1.1\r\nHost: h\r\n: x\r\n\r\n",
    "no host": b"GET /now HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /now HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
    "two hosts in HTTP/1.0": b"GET /now HTTP/1.0\r\nHost: h\r\nHost: i\r\n\r\n",
    "unknown method": b"FETCH /now HTTP/1.1\r\nHost: h\r\n\r\n",
    "HTTP/1.2": b"GET /now HTTP/1.2\r\nHost: h\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "not ASCII in the target": b"GET /\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n",
}


@pytest.mark.parametrize("split", [False, True], ids=["whole", "bytes"])
@pytest.mark.parametrize("name", AMBIGUOUS)
def test_ambiguous_framing_is_refused_and_what_follows_is_never_processed(house: House, name: str, split: bool) -> None:
    stream = AMBIGUOUS[name] + NEXT
    wire, out = house.ask(stream, range(len(stream)) if split else ())
    (answer,) = read_answers(out)
    assert (answer.status, answer.headers[b"x-code"]) == (400, b"invalid_request")
    assert answer.closes
    wire.feed(NEXT)
    house.clock.advance(0)
    assert wire.disconnecting
    assert wire.take() == b""
    assert house.app.handled == []
    assert b"/second" not in house.app.admitted


@pytest.mark.parametrize("version", [b"0.9", b"2.0"])
def test_other_versions_are_505(house: House, version: bytes) -> None:
    _, out = house.ask(b"GET /now HTTP/" + version + b"\r\nHost: h\r\n\r\n" + NEXT)
    assert [a.status for a in read_answers(out)] == [505]


def test_a_broken_body_is_admitted_first_in_one_piece_as_in_two(house: House) -> None:
    head = b"POST /deny HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    for cuts in [], [len(head)]:
        _, out = house.ask(head + b"zz\r\n", cuts)
        assert [a.status for a in read_answers(out)] == [401]


# ---- Expect -----------------------------------------------------------------------------------------------------

EXPECT = b"POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\n"


def test_expect_is_answered_before_the_body(house: House) -> None:
    wire, out = house.ask(EXPECT)
    assert out == b"HTTP/1.1 100 Continue\r\n\r\n"
    wire.feed(b"hello")
    (answer,) = read_answers(out + wire.take(), ["POST"])
    assert (answer.informational, answer.body) == ([100], b"hello")


def test_expect_is_said_once(house: House) -> None:
    wire, out = house.ask(EXPECT + b"hel")
    wire.feed(b"l")
    wire.feed(b"o")
    assert (out + wire.take()).count(b"100 Continue") == 1


def test_expect_behind_a_slow_request_waits_its_turn(house: House) -> None:
    wire, out = house.ask(LATER + EXPECT)
    assert out == b""
    house.app.waiting[0].respond(200, [], b"")
    assert wire.take().endswith(b"HTTP/1.1 100 Continue\r\n\r\n")


def test_no_100_when_the_body_is_there(house: House) -> None:
    _, out = house.ask(EXPECT + b"hello")
    assert out.startswith(b"HTTP/1.1 200")


def test_no_100_after_a_refusal(house: House) -> None:
    wire, out = house.ask(EXPECT.replace(b"/now", b"/deny"))
    (answer,) = read_answers(out, ["POST"])
    assert (answer.status, answer.informational, answer.closes) == (401, [], True)
    wire.feed(b"hello" + NEXT)
    assert house.app.admitted == [b"/deny"]


def test_no_100_to_http_1_0(house: House) -> None:
    wire, out = house.ask(EXPECT.replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert out == b""
    wire.feed(b"hello")
    assert read_answers(wire.take(), ["POST"])[0].body == b"hello"


def test_an_unknown_expectation_is_417(house: House) -> None:
    wire, out = house.ask(EXPECT.replace(b"100-Continue", b"200-ok") + b"hello")
    assert read_answers(out, ["POST"])[0].status == 417
    assert wire.disconnecting


# ---- other protocols offered ------------------------------------------------------------------------------------

H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n"
OFFERS = [
    (b"GET /now HTTP/1.1\r\nHost: h\r\n" + H2C + b"\r\n", b"ok"),
    (b"POST /now HTTP/1.1\r\nHost: h\r\n" + H2C + b"Content-Length: 5\r\n\r\nhello", b"hello"),
    (b"POST /now HTTP/1.1\r\nHost: h\r\n" + H2C + b"Content-Length: 0\r\n\r\n", b"ok"),
    (
        b"POST /now HTTP/1.1\r\nHost: h\r\n"
        + H2C
        + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n",
        b"hello",
    ),
    (b"GET /now HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", b"ok"),
]


@pytest.mark.parametrize(("offer", "body"), OFFERS)
def test_an_upgrade_is_not_taken_and_the_body_is_read(house: House, offer: bytes, body: bytes) -> None:
    stream = offer + NEXT
    for cuts in (range(0), range(len(stream)), range(0, len(stream), 7)):
        _, out = house.ask(stream, cuts)
        assert [(a.status, a.body) for a in read_answers(out)] == [(200, body), (200, b"ok")]
    assert {path for _, path, _ in house.app.handled} == {b"/now", b"/second"}
    assert len(house.app.handled) == 6


def test_an_upgrade_with_close_closes(house: House) -> None:
    offer = OFFERS[1][0].replace(b"Upgrade, ", b"Upgrade, close, ")
    wire, out = house.ask(offer + NEXT)
    assert [(a.body, a.closes) for a in read_answers(out)] == [(b"hello", True)]
    assert wire.disconnecting


def test_an_upgrade_whose_body_looks_like_a_request_is_a_body(house: House) -> None:
    offer = OFFERS[1][0].replace(b"Content-Length: 5", b"Content-Length: %d" % len(NEXT))[:-5]
    house.ask(offer + NEXT)
    assert house.app.handled == [(b"POST", b"/now", NEXT)]


def test_connect_is_answered_and_ends_the_connection(house: House) -> None:
    wire, out = house.ask(b"CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n" + NEXT)
    assert out.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in out
    assert wire.disconnecting
    assert house.app.admitted == [b"h:1"]


# ---- an application that fails ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [b"/raise", b"/raise-admit"])
def test_an_application_that_raises_is_a_500(house: House, path: bytes) -> None:
    wire, out = house.ask(GET.replace(b"/now", path) + NEXT)
    assert [a.status for a in read_answers(out)] == [500, 200]
    assert b"RuntimeError" not in out
    assert not wire.disconnecting


def test_an_application_that_raises_when_it_has_begun_breaks_the_connection(house: House) -> None:
    wire, out = house.ask(GET.replace(b"/now", b"/raise-late") + NEXT)
    assert wire.aborted
    assert b"0\r\n\r\n" not in out
    assert b"/second" not in house.app.admitted


def test_an_application_that_cannot_even_refuse_breaks_the_connection(house: House) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("refuse")

    house.app.refuse = refuse
    assert house.ask(b"BAD\r\n\r\n")[0].aborted
    assert house.ask(GET.replace(b"/now", b"/raise"))[0].aborted


def test_an_exception_in_time_leaves_the_other_deadlines(house: House) -> None:
    half = b"GET /now HTTP/1.1\r\n"
    wires = [house.ask(half)[0] for _ in range(3)]
    house.app.refuse = lambda *_: 1 / 0
    house.pass_time(25)
    assert all(wire.aborted for wire in wires)


# ---- clients that leave -----------------------------------------------------------------------------------------

PHASES = {
    "before a byte": b"",
    "in the head": b"GET /later HTTP/1.1\r\nHo",
    "before the body": b"POST /later HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n",
    "in the body": b"POST /later HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe",
    "waiting": LATER,
    "waiting, with another behind": LATER + NEXT,
    "streaming": STREAM,
    "idle": GET,
    "refused": b"BAD\r\n\r\n",
}


@pytest.mark.parametrize("why", [None, ConnectionLost()], ids=["closed", "broken"])
@pytest.mark.parametrize("phase", PHASES)
def test_a_client_that_leaves_is_noticed_at_once_and_once(house: House, phase: str, why: Exception | None) -> None:
    wire, _ = house.ask(PHASES[phase])
    for exchange in house.app.waiting:
        exchange.write(b"some")
    wire.take()
    wire.lose(why)
    admitted = {"before the body", "in the body", "waiting", "waiting, with another behind", "streaming"}
    assert len(house.app.gone) == (phase in admitted)
    for exchange in house.app.waiting:
        assert exchange.write(b"more")
        exchange.finish()
        exchange.respond(200, [], b"")
        exchange.abort()
        exchange.gone()
    assert len(house.app.gone) == (phase in admitted)
    assert house.server.connections == set()
    house.clock.advance(0)
    assert house.clock.getDelayedCalls() == []
    assert wire.take() == b""


def test_nobody_is_gone_after_the_end(house: House) -> None:
    wire, _ = house.ask(STREAM)
    house.app.waiting[0].finish()
    wire.lose()
    assert house.app.gone == []


def test_a_client_that_ends_its_side_has_left(house: House) -> None:
    """Twisted tells of a half-close as of a loss; so do we, because a gateway cannot know which it is."""
    plain = house.connect_plain()
    plain.feed(LATER)
    plain.transport.readConnectionLost(TwistedFailure(ConnectionDone()))
    assert house.app.gone == [b"/later"]


def test_an_abort_from_outside_tells_the_application(house: House) -> None:
    wires = [house.ask(LATER)[0] for _ in range(3)]
    house.server.abort_all()
    house.clock.advance(0)
    assert all(wire.aborted for wire in wires)
    assert len(house.app.gone) == 3


def test_a_thousand_vanishing_clients_leave_nothing(house: House) -> None:
    chance = random.Random(1)
    phases = list(PHASES.values())
    wires = []
    for _ in range(1000):
        request = chance.choice(phases)
        wires.append(house.ask(request[: chance.randint(0, len(request))])[0])
        if chance.random() < 0.3:
            house.clock.advance(0.01)
        if len(wires) > 50:
            wires.pop(chance.randrange(len(wires))).lose(chance.choice([None, ConnectionLost()]))
        if house.app.waiting and chance.random() < 0.5:
            exchange = house.app.waiting.pop(chance.randrange(len(house.app.waiting)))
            exchange.write(b"data") if exchange.started else exchange.respond(200, [], b"")
            exchange.finish()
    assert house.server.connections
    for wire in wires:
        wire.lose()
    assert house.server.connections == set()
    for exchange in house.app.waiting:
        exchange.write(b"late")
        exchange.finish()
    house.clock.advance(0)
    assert house.clock.getDelayedCalls() == []


def test_a_connection_leaves_no_cycle(house: House) -> None:
    gc.collect()
    gc.disable()
    try:
        wire, _ = house.ask(POST + STREAM)
        house.app.waiting.pop().finish()
        seen = weakref.ref(wire.protocol)
        wire.lose()
        house.wires.clear()
        house.clock.advance(0)
        del wire
        assert seen() is None
    finally:
        gc.enable()


# ---- drain ------------------------------------------------------------------------------------------------------


def test_drain_closes_the_idle_and_lets_the_others_end(house: House) -> None:
    idle, fresh = house.ask(GET)[0], house.connect()
    waiting, streaming = house.ask(LATER)[0], house.ask(STREAM)[0]
    house.app.waiting[1].write(b"begun")
    half_head, half_body = house.ask(GET[:10])[0], house.ask(POST[:-2])[0]
    wires = [idle, fresh, waiting, streaming, half_head, half_body]
    for wire in wires:
        wire.take()
    house.server.close_idle()
    house.server.close_idle()
    assert [wire.disconnecting for wire in wires] == [True, True, False, False, False, False]

    house.app.waiting[0].respond(200, [], b"")
    house.app.waiting[1].finish()
    half_head.feed(GET[10:])
    half_body.feed(POST[-2:])
    assert all(wire.disconnecting for wire in wires)
    for wire in waiting, half_head, half_body:
        assert read_answers(wire.take())[0].closes
    house.clock.advance(0)
    assert house.server.connections == set()


def test_a_stream_begun_before_the_drain_closes_at_its_end(house: House) -> None:
    wire, _ = house.ask(STREAM)
    house.app.waiting[0].write(b"begun")
    assert b"connection: close" not in wire.take()
    house.server.close_idle()
    house.app.waiting[0].finish()
    assert wire.disconnecting


def test_nothing_is_taken_from_a_connection_that_is_closing(house: House) -> None:
    wire, _ = house.ask(GET)
    house.server.close_idle()
    wire.protocol.dataReceived(NEXT)
    assert len(house.app.handled) == 1
