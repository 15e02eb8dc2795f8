"""Compressed answers: whole, flushed per event, in members, damaged, cut, and bombs."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import pytest
from http_doubles import Heard, Yard
from hypothesis import given, settings
from hypothesis import strategies as st

from iop.errors import Failure
from iop.http.inflate import PIECE, Inflate

BODY = b"".join(b'data: {"n": %d}\n\n' % i for i in range(200))


def encoded(coding: bytes, body: bytes, headers: bytes = b"") -> bytes:
    """An answer in this coding."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n%b\r\n%b" % (
        coding,
        len(body),
        headers,
        body,
    )


PACKERS = [
    (b"gzip", gzip.compress),
    (b"x-gzip", gzip.compress),
    (b" GZip\t", gzip.compress),
    (b"deflate", zlib.compress),
]


@pytest.mark.parametrize(("coding", "pack"), PACKERS)
@pytest.mark.parametrize("step", [0, 1, 10])
def test_a_whole_answer(yard: Yard, coding: bytes, pack: Any, step: int) -> None:
    stream = encoded(coding, pack(BODY))
    _, heard = yard.ask()
    yard.wire.feed_split(stream, range(0, len(stream), step) if step else ())
    assert (heard.body, heard.ends) == (BODY, 1)
    assert heard.headers == [(b"content-type", b"text/plain")]
    assert not yard.wire.disconnecting


@pytest.mark.parametrize("coding", [b"br", b"zstd", b"identity", b"gzip, br"])
def test_another_coding_is_passed_on_with_its_label(yard: Yard, coding: bytes) -> None:
    _, heard = yard.ask()
    yard.wire.feed(encoded(coding, b"whatever"))
    assert (heard.body, heard.ends) == (b"whatever", 1)
    assert (b"content-encoding", coding) in heard.headers


@pytest.mark.parametrize("wbits", [zlib.MAX_WBITS, zlib.MAX_WBITS | 16])
def test_each_event_comes_out_when_it_came_in(yard: Yard, wbits: int) -> None:
    _, heard = yard.ask()
    coding = b"gzip" if wbits & 16 else b"deflate"
    yard.wire.feed(b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % coding)
    packer = zlib.compressobj(wbits=wbits)
    for i in range(20):
        event = b"data: %d\n\n" % i
        piece = packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)
        yard.wire.feed(b"%x\r\n%b\r\n" % (len(piece), piece))
        assert heard.blocks[-1] == event
    end = packer.flush()
    yard.wire.feed(b"%x\r\n%b\r\n0\r\n\r\n" % (len(end), end))
    assert heard.ends == 1


def test_members_follow_each_other(yard: Yard) -> None:
    packed = gzip.compress(b"one") + gzip.compress(b"") + gzip.compress(b"two")
    for step in (1, 5, len(packed)):
        stream = encoded(b"gzip", packed)
        _, heard = yard.ask()
        yard.wire.feed_split(stream, range(0, len(stream), step))
        assert (heard.body, heard.ends) == (b"onetwo", 1)


def test_an_empty_body_is_empty(yard: Yard) -> None:
    _, heard = yard.ask()
    yard.wire.feed(encoded(b"gzip", b""))
    assert (heard.body, heard.ends) == (b"", 1)


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (b"not gzip at all", "damaged"),
        (gzip.compress(BODY)[:50] + b"\xff" * 50, "damaged"),
        (gzip.compress(BODY)[:-8] + b"\0" * 8, "damaged"),
        (gzip.compress(BODY) + b"junk", "damaged"),
        (gzip.compress(BODY)[:-1], "cut short"),
        (gzip.compress(BODY)[:20], "cut short"),
        (gzip.compress(BODY) + b"\x1f", "cut short"),
    ],
    # A gzip head holds the time of day: two processes would name the same test differently.
    ids=["no gzip", "body", "trailer", "junk", "last byte", "head only", "half a second head"],
)
def test_what_is_damaged_or_cut_is_a_failure(yard: Yard, packed: bytes, message: str) -> None:
    _, heard = yard.ask()
    yard.wire.feed(encoded(b"gzip", packed))
    assert heard.failure is not None
    assert heard.failure.code == "upstream_error"
    assert message in heard.failure.message
    assert yard.wire.aborted
    assert BODY.startswith(heard.body)


def test_damage_found_on_resume_is_a_failure_and_no_exception(yard: Yard) -> None:
    call, heard = yard.ask()
    call.pause()
    yard.wire.feed(encoded(b"gzip", b"not gzip at all"))
    assert not heard.over
    call.resume()
    assert heard.failure is not None
    assert yard.wire.aborted


def test_damage_found_after_the_close_is_a_failure_and_no_exception(yard: Yard) -> None:
    call, heard = yard.ask()
    call.pause()
    yard.wire.feed(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nnot gzip at all")
    yard.wire.lose()
    call.resume()
    assert heard.failure is not None


@pytest.mark.parametrize("until_close", [False, True])
def test_a_bomb_comes_in_bounded_pieces_and_a_pause_stops_it(yard: Yard, until_close: bool) -> None:
    size = 50 * PIECE + 7
    packed = gzip.compress(b"\0" * size)
    heard = Heard(lambda data: call.pause())
    call, _ = yard.ask(heard=heard)
    if until_close:
        call.pause()
        yard.wire.feed(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + packed)
        yard.wire.lose()
    else:
        yard.wire.feed(encoded(b"gzip", packed))
    for number in range(1, 51):
        if until_close or number > 1:
            call.resume()
        assert len(heard.blocks) == number
        assert len(heard.blocks[-1]) <= PIECE
    while not heard.over:
        call.resume()
    assert (len(heard.body), heard.ends) == (size, 1)


def test_a_bomb_can_be_cancelled(yard: Yard) -> None:
    heard = Heard(lambda data: call.cancel())
    call, _ = yard.ask(heard=heard)
    yard.wire.feed(encoded(b"gzip", gzip.compress(b"\0" * 10 * PIECE)))
    assert len(heard.blocks) == 1
    assert not heard.over


@settings(deadline=None, max_examples=60)
@given(
    members=st.lists(st.one_of(st.binary(max_size=100), st.sampled_from([b"\0" * PIECE, b"ab" * PIECE])), max_size=3),
    level=st.integers(0, 9),
    step=st.sampled_from([1, 3, 100, 100_000]),
)
def test_any_pieces_give_the_whole(members: list[bytes], level: int, step: int) -> None:
    packed = b"".join(gzip.compress(member, level) for member in members)
    if step < 100 and len(packed) > 5000:
        step = 1000
    inflate, made = Inflate(), b""
    for start in range(0, len(packed), step):
        rest: bytes | None = packed[start : start + step]
        while rest is not None:
            out, rest = inflate.take(rest)
            assert len(out) <= PIECE
            made += out
    assert made == b"".join(members)
    assert inflate.whole


@given(st.binary(max_size=200))
def test_junk_is_a_failure_or_nothing(junk: bytes) -> None:
    inflate, codes = Inflate(), set()
    rest: bytes | None = junk
    try:
        while rest:
            _, rest = inflate.take(rest)
    except Failure as failure:
        codes.add(failure.code)
    assert codes <= {"upstream_error"}
