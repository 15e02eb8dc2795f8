"""What an unquoted YAML scalar means: the YAML 1.2 core schema, less what has no business in a configuration.

Numbers are decimal. What YAML 1.1 would read as something else (``on``, ``12:30``, ``0600``) stays text.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(([Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}.*)?")
_STARTS: Final = frozenset("+-.0123456789~ntfNTF")

#: More digits than this are no number anybody means.
_MAX_DIGITS: Final = 400


class NotPlain(ValueError):
    """An unquoted scalar that is refused; the message says what would be right."""


def plain(text: str) -> Any:
    """The value of an unquoted scalar."""
    if text and text[0] not in _STARTS:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _MAX_DIGITS:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NOT_FINITE.fullmatch(text):
        raise NotPlain("infinity and NaN are no values of a configuration; quote the text if it is a name")
    if _DATE.fullmatch(text):
        raise NotPlain("dates are no values of a configuration; quote the text if it is a name")
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise NotPlain("the number is too large; quote the text if it is a name")
        return number
    return text
