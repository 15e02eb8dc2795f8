"""What may be asked of the ledger, in an operator's words, and the answer as a document. Pure.

``docs/contracts/ledger.md`` (Reading). Times without an offset are UTC, as days and hours are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from iop.edge.ledger.row import COLUMNS
from iop.errors import printable

GROUPS: Final = (
    "token_ref",
    "principal_ref",
    "principal_alias",
    "model",
    "provider",
    "outcome",
    "surface",
    "operation",
    "day",
    "hour",
)
"""What usage may be split by."""

SPANS: Final = {"day": 86_400_000, "hour": 3_600_000}
"""Groups that are stretches of time, with their length in milliseconds."""

MOST_GROUPS: Final = 10_000
"""Groups in one answer; what is beyond is left out, and the answer says so."""

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGO: Final = re.compile(r"(\d{1,9})([smhdw])")


class WrongWords(ValueError):
    """Words that are no question; the message says what would be right."""


class Question(NamedTuple):
    """What is summed: runs that ended from ``since_ms`` on and before ``until_ms``, in milliseconds since 1970.

    :ivar since_ms: None for no limit; the same of ``until_ms``.
    :ivar by: a sum for every combination of these, of :data:`GROUPS`; empty for one sum of all.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    by: tuple[str, ...] = ()


class Sums(NamedTuple):
    """One group of an answer, its sums as the database made them.

    :ivar group: the values of ``Question.by``; of a stretch of time, its number since 1970.
    :ivar answered: how many runs have a ``first_ms``.
    """

    group: tuple[Any, ...]
    runs: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    estimated: int
    queue_ms: int
    answered: int
    first_ms: int
    total_ms: int


def ask(since: str, until: str, by: str, now: float) -> Question:
    """Read a question.

    :param since: as ``7d`` or a date; "" for no limit. ``until`` is the same.
    :param by: names with commas between them.
    :param now: seconds since 1970.
    :raises WrongWords:
    """
    question = Question(_time("since", since, now), _time("until", until, now), groups(by))
    first, last = question.since_ms, question.until_ms
    if first is not None and last is not None and first >= last:
        raise WrongWords("`since` is not before `until`")
    return question


def groups(words: str) -> tuple[str, ...]:
    """Read names with commas between them; :raises WrongWords:."""
    names = tuple(each.strip() for each in words.split(",")) if words.strip() else ()
    for each in names:
        if each not in GROUPS:
            raise WrongWords(f"`by` knows no {printable(each)[:40] or 'empty name'}; it knows {', '.join(GROUPS)}")
    if len(set(names)) != len(names):
        raise WrongWords("`by` names one thing twice")
    return names


def time(words: str, now: float) -> float:
    """Read a time: ``30m``, ``24h``, ``7d`` or ``4w`` before now, or an ISO date with or without a time.

    :return: in seconds since 1970.
    :raises WrongWords: without the name of what was asked.
    """
    ago = _AGO.fullmatch(words)
    if ago is not None:
        return max(now - int(ago[1]) * _UNITS[ago[2]], 0.0)
    try:
        when = datetime.fromisoformat(words)
        return max((when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp(), 0.0)
    except (ValueError, OverflowError):
        raise WrongWords("is 30m, 24h, 7d or 4w, or a date as 2026-07-31 or 2026-07-31T14:00 (UTC)") from None


def _time(name: str, words: str, now: float) -> int | None:
    try:
        return int(time(words, now) * 1000) if words else None
    except WrongWords as wrong:
        raise WrongWords(f"`{name}` {wrong}") from None


def document(question: Question, found: Sequence[Sums]) -> dict[str, Any]:
    """Return the answer to a question, its groups in order."""
    kept = sorted(found[:MOST_GROUPS], key=lambda sums: sums.group)
    return {
        "since": _iso(question.since_ms),
        "until": _iso(question.until_ms),
        "by": list(question.by),
        "usage": [_shown(question.by, sums) for sums in kept],
        "truncated": len(found) > MOST_GROUPS,
    }


def _shown(by: Sequence[str], sums: Sums) -> dict[str, Any]:
    named = {name: _named(name, value) for name, value in zip(by, sums.group, strict=True)}
    return named | {
        "runs": sums.runs,
        "input_tokens": sums.input_tokens,
        "output_tokens": sums.output_tokens,
        "cached_tokens": sums.cached_tokens,
        "reasoning_tokens": sums.reasoning_tokens,
        "estimated": sums.estimated,
        "mean_queue_ms": _mean(sums.queue_ms, sums.runs),
        "mean_first_ms": _mean(sums.first_ms, sums.answered),
        "mean_total_ms": _mean(sums.total_ms, sums.runs),
    }


def _named(name: str, value: Any) -> str:
    if name not in SPANS:
        return str(value)
    began = datetime.fromtimestamp(value * SPANS[name] / 1000, UTC)
    return began.strftime("%Y-%m-%d" if name == "day" else "%Y-%m-%dT%H:00Z")


def _mean(total: int, count: int) -> float | None:
    return round(total / count, 1) if count else None


def _iso(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


assert set(GROUPS) - SPANS.keys() <= set(COLUMNS)
