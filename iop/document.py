"""A JSON object: scanned once, changed by splicing; and JSON of our own, printed.

What IOP does not change of a request must reach the backend with the same value, numbers digit for digit; so the text
is never printed anew. The scan is the standard library's C scanner, a top-level member at a time. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Final

from iop.errors import Failure

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_PLAIN_NAME: Final = re.compile(r'[ \t\n\r]*"([A-Za-z0-9_.-]*)"[ \t\n\r]*:[ \t\n\r]*')
_COLON: Final = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_SIGN: Final = re.compile(r"[ \t\n\r]*([,}])")


JsonObject = dict[str, Any]
"""A JSON object as plain values."""

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode  # made once: json.dumps makes one at each call


def compact(value: Any) -> bytes:
    """Return a value as JSON without a space; ASCII, so that a lone surrogate in it cannot break anything."""
    return _encode(value).encode()


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


_SCAN: Final[Any] = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=tuple).scan_once  # type: ignore[attr-defined]


def _name(text: str, at: int) -> tuple[str, int]:
    """Return the member name that begins at or after ``at``, and where its value begins."""
    plain = _PLAIN_NAME.match(text, at)
    if plain is not None:
        return plain[1], plain.end()
    name, at = scanstring(text, text.index('"', at) + 1, True)
    return name, _COLON.match(text, at).end()  # type: ignore[union-attr]


def _twice(pairs: Iterable[tuple[str, Any]]) -> str:
    """Return the first name that stands a second time."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    return ""


def too_deep() -> Failure:
    """Return what refuses a body whose nesting the stack has no room for: here, or where it is read once more."""
    return Failure("invalid_json", "the request body is nested too deeply")


class Document:
    """One JSON object. Objects inside it are seen as tuples of pairs, so that reading it stays in C."""

    __slots__ = ("_text", "_values")

    def __init__(self, text: str, values: dict[str, Any]) -> None:
        self._text = text
        self._values = values

    @classmethod
    def parse(cls, body: bytes) -> Document:
        """Read a body as JSON whatever its content type says; :raises Failure: ``invalid_json``, ``invalid_value``."""
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise Failure("invalid_json", "the request body is not UTF-8") from None
        if text.startswith("\ufeff"):
            text = text[1:]
        return cls.of(text)

    @classmethod
    def of(cls, text: str) -> Document:
        """Read a text; :raises Failure: as :meth:`parse`."""
        skip = _SPACE.match
        try:
            pairs, end = _SCAN(text, skip(text, 0).end())  # type: ignore[union-attr]
        except StopIteration as stop:
            what = f"not JSON, at character {stop.value}" if text.strip() else "empty; a JSON object is needed"
            raise Failure("invalid_json", f"the request body is {what}") from None
        except RecursionError:
            raise too_deep() from None
        except ValueError as error:
            where = f", at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
            if not where and "digits" in str(error):  # Python reads no longer ones
                raise Failure("invalid_json", "a number of the request body has too many digits") from None
            raise Failure("invalid_json", f"the request body is not JSON{where}") from None
        if end != len(text) and skip(text, end).end() != len(text):  # type: ignore[union-attr]
            raise Failure("invalid_json", f"the request body goes on after its end, at character {end}")
        if type(pairs) is not tuple:
            raise Failure("invalid_value", "the request body must be a JSON object")
        values = dict(pairs)
        if len(values) != len(pairs):
            raise Failure("invalid_value", "a top-level member is given twice", param=_twice(pairs)[:64])
        return cls(text, values)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str, default: Any = None) -> Any:
        """Return a member's value; an object as a tuple of pairs."""
        return self._values.get(name, default)

    def inner(self, name: str) -> Document | None:
        """Return a member that is an object as a document of its own; :raises Failure: as :meth:`with_raw`."""
        if type(self._values.get(name)) is not tuple:
            return None
        start, end = self._spans()[0][name]
        return self.of(self._text[start:end])

    def with_raw(self, changes: Mapping[str, str], without: Iterable[str] = ()) -> str:
        """Return the text with members set to given JSON texts, and some left out; new ones come last.

        :raises Failure: ``invalid_json``, where the stack has less room than when the text was read.
        """
        gone = {name for name in without if name in self._values}
        if not changes and not gone:
            return self._text
        spans, close = self._spans()
        if gone:
            kept = {name: self._text[start:end] for name, (start, end) in spans.items() if name not in gone}
            return "{" + ", ".join(f"{json.dumps(name)}: {raw}" for name, raw in {**kept, **changes}.items()) + "}"
        pieces, at = [], 0
        for start, name in sorted((spans[name][0], name) for name in changes if name in spans):
            pieces += [self._text[at:start], changes[name]]
            at = spans[name][1]
        pieces.append(self._text[at:close])
        comma = bool(spans)
        for name, raw in changes.items():
            if name not in spans:
                pieces.append(f"{', ' if comma else ''}{json.dumps(name)}: {raw}")
                comma = True
        pieces.append(self._text[close:])
        return "".join(pieces)

    def _spans(self) -> tuple[dict[str, tuple[int, int]], int]:
        """Return where each top-level value stands, and where the object closes. The text is known to be sound."""
        text, spans = self._text, {}
        at = text.index("{") + 1
        while self._values:
            name, start = _name(text, at)
            try:
                _, end = _SCAN(text, start)
            except RecursionError:  # the stack is fuller than it was when the text was found to be sound
                raise too_deep() from None
            spans[name] = start, end
            sign = _SIGN.match(text, end)
            assert sign is not None
            at = sign.end()
            if sign[1] == "}":
                return spans, at - 1
        return spans, text.index("}", at)
