"""Text for people: problems of a configuration, and the plan of a refresh, in lines."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TextIO

from iop.edge.config import Problem
from iop.edge.config.redact import HIDDEN
from iop.edge.config.setting import Effect
from iop.edge.refresh import Change, Kind, RefreshMode, RefreshResult, Status

#: Puts words into a colour, or leaves them.
Paint = Callable[[str, str], str]

_COLOURS: Final = {"red": "31", "green": "32", "yellow": "33", "bold": "1"}

#: Values longer than this are cut: the whole is in the JSON.
_LONGEST: Final = 60


def paint(stream: TextIO | None) -> Paint:
    """Colours for a terminal that wants them; anything else gets plain words, a closed stream (None) too."""
    if stream is None or not stream.isatty() or os.environ.get("NO_COLOR"):
        return lambda words, colour: words
    return lambda words, colour: f"\x1b[{_COLOURS[colour]}m{words}\x1b[0m"


def problem(found: Problem, word: str, coloured: Paint) -> str:
    """One ``error`` or ``warning``, its code coloured."""
    body, bracket, code = str(found).rpartition("[")
    return body + coloured(bracket + code, {"error": "red", "warning": "yellow"}[word])


def check(errors: Sequence[Problem], warnings: Sequence[Problem], coloured: Paint) -> Iterator[str]:
    """Everything that was found, and the verdict."""
    for word, problems in (("error", errors), ("warning", warnings)):
        for each in problems:
            yield problem(each, word, coloured)
    counted = ((errors, "error"), (warnings, "warning"))
    counts = ", ".join(_count(problems, word) for problems, word in counted if problems)
    yield ("refused" if errors else "valid") + (f": {counts}" if counts else "")


def refresh(result: RefreshResult, coloured: Paint) -> Iterator[str]:
    """The plan of a refresh, path by path, and what it comes to."""
    for each in result.errors:
        yield problem(each, "error", coloured)
    for change in result.changes:
        yield _change(change, coloured)
    for report in result.reports:
        words = f"{report.node_id}: {report.status.value.replace('_', ' ')}"
        yield f"{words}: {report.message}" if report.message else words
    yield coloured(_verdict(result), "bold")


_SIGNS: Final = {Kind.ADDED: ("+", "green"), Kind.REMOVED: ("-", "red"), Kind.MODIFIED: ("~", "yellow")}
_COSTS: Final = {Effect.LIVE: ("live", "green"), Effect.RESTART: ("restart required", "red")}


def _change(change: Change, coloured: Paint) -> str:
    words = [coloured(*_SIGNS[change.kind]), change.path]
    if change.kind is Kind.MODIFIED:
        words += [_value(change.before), "→", _value(change.after)]
    else:
        value = change.after if change.kind is Kind.ADDED else change.before
        words += [_value(value)] if not isinstance(value, dict) else []
    return " ".join([*words, coloured(*_COSTS[change.effect])])


def _value(value: Any) -> str:
    """JSON on one line, nothing in it that moves a cursor; null where there is nothing."""
    if value == HIDDEN:
        return HIDDEN
    line = json.dumps(_brief(value), ensure_ascii=False)
    if not line.isprintable():
        line = json.dumps(_brief(value))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _brief(value: Any) -> Any:
    """The providers of a model each as one word, ``node/provider=target``; anything else as it is."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        return value
    return [
        "{node_id}/{id}={target}".format_map(each) if {"node_id", "id", "target"} <= each.keys() else each
        for each in value
    ]


def _verdict(result: RefreshResult) -> str:
    changes = _count(result.changes, "change")
    was = "was" if result.mode == RefreshMode.APPLY else "would be"
    if result.status is Status.REJECTED:
        return f"rejected: {_count(result.errors, 'error')}; nothing {was} applied"
    if result.status is Status.RESTART_REQUIRED:
        costly = sum(change.effect is not Effect.LIVE for change in result.changes)
        return f"restart required by {costly} of {changes}; nothing {was} applied until the edge is restarted"
    if not result.changes:
        return "no change"
    verb = "were" if was == "was" and len(result.changes) > 1 else was
    return f"{changes} {verb} applied live, without dropping a run"


def _count(things: Sequence[Any], word: str) -> str:
    return f"{len(things)} {word}{'' if len(things) == 1 else 's'}"
