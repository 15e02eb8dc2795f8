"""What keeps a text from being YAML, in words that hold none of it.

Both of PyYAML's parsers are understood: libyaml's sentences are fixed, those of the one in Python quote the text.
"""

from __future__ import annotations

import re
from typing import Any, Final

#: What the parser says it was doing, or has found; and what is meant. The first that fits counts.
_MEANT: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"tab character|character '\\t'", "a tab is used for indentation; use spaces"),
        (r"flow sequence: .*expected ',' or '\]'", "a bracket `[` is not closed, or a comma is missing"),
        (r"flow mapping: .*expected ',' or '\}'", "a brace `{` is not closed, or a comma is missing"),
        (r"escape|hexdecimal", "a bad escape in double quotes; write \\\\ for a backslash, or use single quotes"),
        (r"quoted scalar: .*end of stream", "a quote is not closed"),
        (r"mapping values are not allowed", "a `key: value` pair has no place here; quote a text that holds `: `"),
        (r"sequence entries are not allowed", "a list entry `- ` has no place here; quote a text that begins with it"),
        (r"could not find expected ':'", "a key lacks its colon"),
        (r"cannot start any token", "an unquoted text begins with a character that has a meaning in YAML; quote it"),
        (
            r"block (mapping|collection|sequence): .*expected",
            "what stands here belongs to nothing; is it indented right?",
        ),
        (r"node: .*expected (the )?node content", "a value is missing, or a bracket closes none"),
        (r"tag handle", "a tag that is not declared"),
    )
)
#: A sentence that quotes nothing.
_QUOTES_NOTHING: Final = re.compile(r"[a-z ,-]{1,100}")


def not_yaml(error: Any, text: str) -> tuple[int, str]:
    """Return the line, from 1, and a sentence that says what is wrong there, for a ``yaml.YAMLError``."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        position = getattr(error, "position", None)
        line = text.count("\n", 0, position) + 1 if isinstance(position, int) else 1
        return line, "not YAML: a control character has no place in the file"
    opened = getattr(error, "context_mark", None)
    meant = _meant(error, text)
    since = f" (it is opened at line {opened.line + 1})" if "not closed" in meant and opened is not None else ""
    return mark.line + 1, f"not YAML, at column {mark.column + 1}: {meant}{since}"


def _meant(error: Any, text: str) -> str:
    lines = text.splitlines()
    line, column = error.problem_mark.line, error.problem_mark.column
    if line < len(lines) and "\t" in lines[line][: column + 1] and not lines[line][:column].strip():
        return "a tab is used for indentation; use spaces"
    said = f"{error.context or ''}: {error.problem or ''}"
    for pattern, words in _MEANT:
        if pattern.search(said):
            return words
    problem = error.problem or ""
    return problem if _QUOTES_NOTHING.fullmatch(problem) else "the file cannot be understood from here on"
