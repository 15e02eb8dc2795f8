"""The parts that every format's parser is made of: lines to events, events to pieces, an end to its meaning. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final, Protocol

from iop import model as m
from iop.errors import Failure
from iop.node.adapters.cli.failures import ESCAPES, Said, ended, failure
from iop.node.adapters.cli.voice import Piece, Voice

Event = dict[str, Any]

#: What may stand around the JSON of a line. No text between quotes is touched: its escapes are the agent's words.
_AROUND: Final = re.compile(rf"(?:{ESCAPES.pattern}|[\s\ufeff\x00-\x1a\x1c-\x1f])*+")
_DECODER: Final = json.JSONDecoder(strict=False)

_SESSION: Final = re.compile(r"[A-Za-z0-9_][\w.:-]{0,199}", re.ASCII)
_COUNT_MAX: Final = 2**53


class Parser(Protocol):
    """One run's output, read line by line.

    :ivar session: the agent's own session id as it reported it first; "" while unknown.
    :ivar usage: what it counted, as far as it told.
    :ivar noise: lines that were nothing of its format.
    """

    session: str
    noise: int
    usage: m.Usage | None

    def line(self, line: bytes) -> Piece | None:
        """Take one line of stdout without its newline; return what is to be shown, if anything."""

    def end(self, exit_status: int | None, signal: int | None, stderr_tail: str) -> Piece | Failure | None:
        """Take the end of stdout and of the child; return what is still owed, or why the run failed."""


class JsonLines:
    """A parser of events, one JSON object a line. What is none, and an event of no known type, is noise.

    A subclass's ``handlers`` take the events by their type. The outcome is the last that was told: ``succeed`` or
    ``fail``; ``reopen`` forgets it. ``hint`` is what may explain an end without any.
    """

    handlers: ClassVar[Mapping[str, Callable[[Any, Event], None]]] = {}

    def __init__(self) -> None:
        self.session = ""
        self.noise = 0
        self.usage: m.Usage | None = None
        self.text = Voice()
        self.reasoning = Voice()
        self.hint = Said()
        self.done = False
        self.failed: Said | None = None
        self._pending: tuple[list[str], list[str]] = ([], [])

    def line(self, line: bytes) -> Piece | None:
        """See :meth:`Parser.line`."""
        found = False
        for event in events(line):
            found = True
            self.event(event)
        self.noise += not found and bool(line.strip())
        text, reasoning = ("".join(parts) for parts in self._pending)
        for parts in self._pending:
            parts.clear()
        return Piece(text, reasoning) if text or reasoning else None

    def event(self, event: Event) -> None:
        """Take an event."""
        handler = self.handlers.get(string(event.get("type")))
        if handler is not None:
            handler(self, event)

    def end(self, exit_status: int | None, signal: int | None, stderr_tail: str) -> Piece | Failure | None:
        """See :meth:`Parser.end`. A result outweighs the exit status: those lie in both directions."""
        if self.done:
            return None
        if self.failed is not None:
            return failure(self.failed, stderr_tail)
        return ended(self.hint, exit_status, signal, stderr_tail)

    def show(self, text: str = "", reasoning: str = "") -> None:
        """Put what a voice returned into the piece that is made."""
        self._pending[0].append(text)
        self._pending[1].append(reasoning)

    def fresh(self) -> None:
        """Another message begins."""
        self.text.fresh()
        self.reasoning.fresh()

    def apart(self) -> None:
        """A tool is used: what follows stands apart."""
        self.text.apart()
        self.reasoning.apart()

    def found_session(self, id: Any) -> None:
        """Keep the first id that may become an argument."""
        if not self.session and _SESSION.fullmatch(string(id)):
            self.session = id

    def succeed(self) -> None:
        """The agent says that all is well."""
        self.done, self.failed = True, None

    def fail(self, said: Said) -> None:
        """The agent says that it is not."""
        self.done, self.failed = False, said

    def reopen(self) -> None:
        """The agent goes on."""
        self.done, self.failed = False, None


def events(line: bytes) -> Iterator[Event]:
    """Yield the objects of a line: one, or those of an array (``qwen -o json``). Anything else is noise."""
    text = line.decode("utf-8", "replace")
    begin = _end_of_noise(text, 0)
    if text[begin : begin + 1] not in ("{", "["):
        return
    try:
        value, end = _DECODER.raw_decode(text, begin)
    except (ValueError, RecursionError):
        return
    if _end_of_noise(text, end) == len(text):
        yield from (each for each in (value if isinstance(value, list) else (value,)) if isinstance(each, dict))


def _end_of_noise(text: str, begin: int) -> int:
    match = _AROUND.match(text, begin)
    return match.end() if match else begin


def string(value: Any) -> str:
    """Return it if it is text, else ""."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> Mapping[str, Any]:
    """Return it if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def count(value: Any) -> int | None:
    """Return it if it is a number of tokens, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _COUNT_MAX else None


def total(*values: Any) -> int | None:
    """Return the sum of the counts among them, None where there is none."""
    counts = [number for value in values if (number := count(value)) is not None]
    return sum(counts) if counts else None
