"""Server-sent events as bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.http import sse

ENDS = st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"])
LINES = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1, max_size=12).map(
    str.encode
)


def test_an_event_is_one_line_of_json() -> None:
    made = sse.event({"error": {"message": "a\nb\r\u2028é"}})
    assert made.startswith(b"data: {")
    assert made.endswith(b"\n\n")
    assert made.count(b"\n") == 2
    assert b"\r" not in made
    assert json.loads(made[6:]) == {"error": {"message": "a\nb\r\u2028é"}}


def test_done() -> None:
    assert sse.DONE == b"data: [DONE]\n\n"
    assert sse.data_of(sse.DONE) == b"[DONE]"


def test_a_comment_says_nothing() -> None:
    assert sse.comment("waiting: 3 before you") == b": waiting: 3 before you\n\n"
    assert sse.data_of(sse.comment("x")) is None


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (b"", 0),
        (b"data: 1", 0),
        (b"data: 1\n", 0),
        (b"data: 1\n\n", 9),
        (b"data: 1\n\ndata: 2", 9),
        (b"data: 1\r\n\r\ndata: 2\r\n", 11),
        (b"data: 1\r\rx", 9),
        (b"data: 1\n\n\n", 10),
        (b"data: 1\r\n\r\n\r\n", 13),
        (b"data: 1\n\ndata: 2\r\n\r\nid: 3\r\r:", 27),
    ],
)
def test_how_much_is_whole(data: bytes, size: int) -> None:
    assert sse.whole(data) == size


@pytest.mark.parametrize(
    ("block", "data"),
    [
        (b"data: 1\n\n", b"1"),
        (b"data:1\n\n", b"1"),
        (b"data:  1\n\n", b" 1"),
        (b"data: 1\ndata: 2\n\n", b"1\n2"),
        (b"data: 1\rdata: 2\r\r", b"1\n2"),
        (b"data: 1\r\ndata: 2\r\n\r\n", b"1\n2"),
        (b"id: 9\nevent: x\ndata: 1\nretry: 4\n\n", b"1"),
        (b": comment\ndata: 1\n\n", b"1"),
        (b": warming up\n\n", None),
        (b":\n\n", None),
        (b"retry: 4000\n\n", None),
        (b"event: ping\n\n", None),
        (b"data\n\n", None),
        (b"data:\n\n", None),
        (b"database: 1\n\n", None),
        (b"\n\n", None),
    ],
)
def test_what_a_block_holds(block: bytes, data: bytes | None) -> None:
    assert sse.data_of(block) == data


@given(st.lists(st.tuples(st.lists(LINES, min_size=1, max_size=3), ENDS), max_size=6), st.binary(max_size=5))
def test_blocks_are_the_whole_and_nothing_but(made: list[tuple[list[bytes], bytes]], tail: bytes) -> None:
    tail = tail.replace(b"\n", b"").replace(b"\r", b"")
    stream = b"".join(end[: len(end) // 2].join(lines) + end for lines, end in made)
    if tail or not stream.endswith(b"\r"):  # after a CR at the end a LF may still belong to it
        assert sse.whole(stream + tail) == len(stream)
    assert b"".join(sse.blocks(stream)) == stream
    assert len(sse.blocks(stream)) == len(made)
    assert sse.blocks(stream + tail) == sse.blocks(stream) + ([tail] if tail else [])


@pytest.mark.parametrize("blank", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\r\n\n", b"\n\r"])
def test_any_two_line_ends_end_a_block(blank: bytes) -> None:
    data = b"data: 1" + blank + b"data: 2\r\ndata: 3" + blank + b"x"
    assert sse.whole(data) == len(data) - 1
    assert len(sse.blocks(data)) == 3


def test_a_line_end_at_the_end_may_be_half_of_one() -> None:
    assert sse.whole(b"data: 1\r\n\r") == 0
    assert sse.whole(b"data: 1\r\n\r\n") == 11
    assert sse.whole(b"data: 1\r\n") == 0


@given(st.lists(LINES, min_size=1, max_size=5), st.data())
def test_a_stream_in_pieces_gives_the_same_blocks(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(b"data: " + line + b"\n\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    rest, found, start = b"", [], 0
    for cut in [*cuts, len(stream)]:
        rest += stream[start:cut]
        start = cut
        size = sse.whole(rest)
        found += sse.blocks(rest[:size])
        rest = rest[size:]
    assert rest == b""
    assert [sse.data_of(block) for block in found] == lines
