"""What may be asked of the ledger. docs/contracts/ledger.md (Reading)."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.edge.ledger.question import GROUPS, Question, WrongWords, ask, groups, time

NOW = 1_785_499_200.0
"""2026-07-31T12:00:00Z."""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("30m", NOW - 1800),
        ("24h", NOW - 86_400),
        ("7d", NOW - 7 * 86_400),
        ("4w", NOW - 28 * 86_400),
        ("90s", NOW - 90),
        ("0d", NOW),
        ("999999999w", 0),
        ("2026-07-31", NOW - 43_200),
        ("2026-07-31T12:00", NOW),
        ("2026-07-31 12:00:00.5", NOW + 0.5),
        ("2026-07-31T14:00+02:00", NOW),
        ("2026-07-31T12:00:00Z", NOW),
        ("0001-01-01", 0),
    ],
)
def test_times(words: str, expected: float) -> None:
    assert time(words, NOW) == expected


@pytest.mark.parametrize(
    "words", ["7", "d", "-7d", "7y", "7d ", "1.5h", "yesterday", "2026-13-01", "31.7.2026", "٣d x"]
)
def test_times_that_are_none(words: str) -> None:
    with pytest.raises(WrongWords, match="30m, 24h, 7d or 4w, or a date as"):
        time(words, NOW)


def test_questions() -> None:
    assert ask("", "", "", NOW) == Question()
    assert ask("1h", "30m", "model, day", NOW) == Question(
        int((NOW - 3600) * 1000), int((NOW - 1800) * 1000), ("model", "day")
    )
    assert groups(",".join(GROUPS)) == GROUPS


@pytest.mark.parametrize(
    ("since", "until", "by", "message"),
    [
        ("x", "", "", "`since` is 30m"),
        ("", "x", "", "`until` is 30m"),
        ("1h", "2h", "", "`since` is not before `until`"),
        ("1h", "1h", "", "`since` is not before `until`"),
        ("", "", "prompt", "`by` knows no prompt; it knows token_ref, principal_ref"),
        ("", "", "model,", "`by` knows no empty name"),
        ("", "", "at_ms", "`by` knows no at_ms"),
        ("", "", "day,model,day", "`by` names one thing twice"),
    ],
)
def test_questions_that_are_none(since: str, until: str, by: str, message: str) -> None:
    with pytest.raises(WrongWords, match=message):
        ask(since, until, by, NOW)


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_any_words_are_a_question_or_a_sentence(since: str, until: str, by: str) -> None:
    with suppress(WrongWords):
        ask(since, until, by, NOW)
