"""A JSON object: scanned once, changed by splicing.

What IOP does not change of a request must reach the backend with the same value, numbers digit for digit; so the text
is never printed anew. The scan is the standard library's C scanner, a top-level member at a time. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple

from iop.errors import Failure

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_PLAIN_NAME: Final = re.compile(r'[ \t\n\r]*"([A-Za-z0-9_.-]*)"[ \t\n\r]*:[ \t\n\r]*')
_COLON: Final = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_SIGN: Final = re.compile(r"[ \t\n\r]*([,}])")


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


_SCAN: Final[Any] = json.JSONDecoder(parse_constant=_no_constant).scan_once  # type: ignore[attr-defined]


def _name(text: str, at: int) -> tuple[str, int]:
    """Return the member name that begins at or after ``at``, and where its value begins."""
    plain = _PLAIN_NAME.match(text, at)
    if plain is not None:
        return plain[1], plain.end()
    at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
    if text[at : at + 1] != '"':
        raise json.JSONDecodeError("", text, at)
    name, at = scanstring(text, at + 1, True)
    colon = _COLON.match(text, at)
    if colon is None:
        raise json.JSONDecodeError("", text, at)
    return name, colon.end()


class Member(NamedTuple):
    """A top-level member: its value, and where the value stands in the text."""

    value: Any
    start: int
    end: int


class Document:
    """One JSON object.

    :ivar members: by name; a name given twice is refused.
    """

    __slots__ = ("_end", "_text", "members")

    def __init__(self, text: str, members: dict[str, Member], end: int) -> None:
        self._text = text
        self.members = members
        self._end = end

    @classmethod
    def parse(cls, body: bytes) -> Document:
        """Read a body as JSON whatever its content type says; :raises Failure: ``invalid_json``, ``invalid_value``."""
        try:
            text = body.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise Failure("invalid_json", "the request body is not UTF-8") from None
        try:
            return cls._scan(text)
        except StopIteration as stop:
            raise Failure("invalid_json", f"the request body is not JSON, at character {stop.value}") from None
        except RecursionError:
            raise Failure("invalid_json", "the request body is nested too deeply") from None
        except ValueError as error:
            where = f", at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
            raise Failure("invalid_json", f"the request body is not JSON{where}") from None

    @classmethod
    def _scan(cls, text: str) -> Document:
        skip = _SPACE.match
        at = skip(text, 0).end()  # type: ignore[union-attr]
        if text[at : at + 1] != "{":
            if text[at:]:
                json.loads(text)
                raise Failure("invalid_value", "the request body must be a JSON object")
            raise Failure("invalid_json", "the request body is empty; a JSON object is needed")
        members: dict[str, Member] = {}
        at = skip(text, at + 1).end()  # type: ignore[union-attr]
        if text[at : at + 1] == "}":
            return cls._closed(text, members, at)
        while True:
            name, start = _name(text, at)
            try:
                value, end = _SCAN(text, start)
            except StopIteration as stop:
                raise json.JSONDecodeError("", text, stop.value) from None
            if name in members:
                raise Failure("invalid_value", "a top-level member is given twice", param=name[:64])
            members[name] = Member(value, start, end)
            sign = _SIGN.match(text, end)
            if sign is None:
                raise json.JSONDecodeError("", text, end)
            at = sign.end()
            if sign[1] == "}":
                return cls._closed(text, members, at - 1)

    @classmethod
    def _closed(cls, text: str, members: dict[str, Member], at: int) -> Document:
        if _SPACE.match(text, at + 1).end() != len(text):  # type: ignore[union-attr]
            raise json.JSONDecodeError("", text, at + 1)
        return cls(text, members, at)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a member's value."""
        member = self.members.get(name)
        return default if member is None else member.value

    def inner(self, name: str) -> Document | None:
        """Return a member that is an object as a document of its own."""
        member = self.members.get(name)
        if member is None or not isinstance(member.value, dict):
            return None
        return self._scan(self._text[member.start : member.end])

    def with_raw(self, changes: Mapping[str, str]) -> str:
        """Return the text with members set to given JSON texts; new ones come last."""
        pieces, at = [], 0
        present = sorted((self.members[name].start, name) for name in changes if name in self.members)
        for start, name in present:
            pieces += [self._text[at:start], changes[name]]
            at = self.members[name].end
        pieces.append(self._text[at : self._end])
        comma = bool(self.members)
        for name, raw in changes.items():
            if name not in self.members:
                pieces.append(f"{', ' if comma else ''}{json.dumps(name)}: {raw}")
                comma = True
        pieces.append(self._text[self._end :])
        return "".join(pieces)
