"""Cutting what is longer than a frame."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iop.wire import frames
from iop.wire.frames import PART, clean_text, parts, text_parts


def test_short_things_come_back_as_they_are() -> None:
    data, text = b"x" * PART, "x" * (PART // 4)
    assert [piece is data for piece in parts(data)] == [True]
    assert [piece is text for piece in text_parts(text)] == [True]
    assert list(parts(b"")) == [b""]
    assert list(text_parts("")) == [""]


def test_long_bytes_are_cut_at_the_part() -> None:
    data = bytes(range(256)) * (PART // 128)
    data += b"rest"
    pieces = list(parts(data))
    assert [len(piece) for piece in pieces] == [PART, PART, 4]
    assert b"".join(pieces) == data


def test_a_part_fits_a_frame_with_room_for_its_envelope() -> None:
    assert 2 * PART < frames.MAX_FRAME
    assert frames.MAX_FRAME == 1 << 20
    assert frames.MAX_FRAME_UNREGISTERED == 64 << 10


@given(st.sampled_from(["a", "é", "那", "🌍"]), st.integers(0, 3), st.integers(-2, 2))
def test_text_is_never_cut_inside_a_character(sign: str, lead: int, more: int) -> None:
    """UTF-01, the edge-node frame boundary: a character is whole on one side or the other."""
    text = "x" * lead + sign * (PART // len(sign.encode()) + more) + "end"
    pieces = list(text_parts(text))
    assert "".join(pieces) == text
    assert all(0 < len(piece.encode()) <= PART for piece in pieces)


def test_a_long_text_with_a_lone_surrogate_is_cut_and_cleaned() -> None:
    pieces = list(text_parts("x" * PART + "\ud83c" + "y"))
    assert "".join(pieces) == "x" * PART + "\N{REPLACEMENT CHARACTER}y"


def test_a_long_text_with_a_split_pair_is_joined_before_it_is_cut() -> None:
    pieces = list(text_parts("x" * (PART - 2) + "\ud83c\udf0d" + "y"))
    assert "".join(pieces) == "x" * (PART - 2) + "🌍y"
    assert all(len(piece.encode()) <= PART for piece in pieces)


@given(st.text(st.characters(codec=None)))
def test_clean_text_is_always_utf_8_and_changes_nothing_that_is(text: str) -> None:
    clean = clean_text(text)
    clean.encode()
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert clean == text


def test_split_surrogates_are_joined_and_lone_ones_replaced() -> None:
    assert clean_text("\ud83c\udf0d") == "🌍"
    assert clean_text("a\ud83cb") == "a\N{REPLACEMENT CHARACTER}b"
    assert clean_text("\udf0d") == "\N{REPLACEMENT CHARACTER}"
