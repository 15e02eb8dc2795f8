"""Flow control of one run, both ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iop.wire.window import Credit, Window

SIZES = st.integers(0, 400)


def taken(window: Window, size: int) -> int:
    """So many bytes left the edge; return the credit that is given back for them."""
    window.taken += size
    return window.give() if window.taken >= window.step else 0


def test_one_event_may_overdraw() -> None:
    credit = Credit(10)
    credit.left -= 9
    assert credit.left > 0
    credit.left -= 25
    assert credit.left == -24


def test_credit_comes_back_in_quarters() -> None:
    window = Window(100)
    assert taken(window, 24) == 0
    assert taken(window, 1) == 25
    assert taken(window, 0) == 0
    assert taken(window, 250) == 250


def test_a_tiny_window_gives_back_byte_by_byte() -> None:
    assert taken(Window(1), 1) == 1
    assert taken(Window(0), 1) == 1


@given(st.integers(1, 1000), st.lists(SIZES))
def test_nothing_given_is_lost_and_a_quarter_at_most_is_kept(size: int, sizes: list[int]) -> None:
    window = Window(size)
    given_back = sum(taken(window, each) for each in sizes)
    kept = sum(sizes) - given_back
    assert 0 <= kept < max(1, size // 4)


@given(st.integers(1, 1000), st.integers(1, 400), st.integers(1, 50))
def test_a_client_that_takes_everything_never_starves_the_node(size: int, piece: int, pieces: int) -> None:
    """Whatever the sizes: once all that was sent is taken, credit is positive again."""
    credit, window = Credit(size), Window(size)
    for _ in range(pieces):
        sent = 0
        while credit.left > 0:
            credit.left -= piece
            sent += piece
        assert sent < size + piece + size // 4 + 1
        for _ in range(sent // piece):
            give = taken(window, piece)
            if give:
                credit.add(give)
        assert credit.left > 0
