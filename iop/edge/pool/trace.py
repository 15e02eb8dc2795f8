"""A trace: what a simulation lives through, as JSON lines. ``docs/contracts/pool.md`` (Simulator). Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from iop.errors import printable


class Arrival(NamedTuple):
    """A request comes; ``service_ms`` counts from its dispatch."""

    at: int
    id: str
    model: str
    tokens: int
    service_ms: int


class Cancel(NamedTuple):
    """A client leaves."""

    at: int
    id: str


class NodeDown(NamedTuple):
    """A node is lost."""

    at: int
    node: str


class NodeUp(NamedTuple):
    """A node is back."""

    at: int
    node: str


class Refresh(NamedTuple):
    """Another configuration takes over; ``config`` is its file, relative to the trace."""

    at: int
    config: str


Event = Arrival | Cancel | NodeDown | NodeUp | Refresh

_OPERATIONS: Final[Mapping[str, type[Event]]] = {
    "cancel": Cancel,
    "node_down": NodeDown,
    "node_up": NodeUp,
    "refresh": Refresh,
}
_LEAST: Final = {"at": 0, "tokens": 0, "service_ms": 1}
_LARGEST: Final = 2**53 - 1


class TraceError(ValueError):
    """What is wrong with a trace, and in which line; the first is 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


def parse(lines: Iterable[str], nodes: Collection[str]) -> list[Event]:
    """Read a trace; empty lines are skipped.

    :param nodes: the ids of the nodes there are.
    :raises TraceError: at the first line that is wrong.
    """
    events: list[Event] = []
    ids: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            event = _event(line)
            if events and event.at < events[-1].at:
                raise ValueError(f"at is {event.at}, less than {events[-1].at} before it: a trace is sorted")
            if isinstance(event, Arrival):
                if event.id in ids:
                    raise ValueError("this id has come before")
                ids.add(event.id)
            if isinstance(event, NodeDown | NodeUp) and event.node not in nodes:
                raise ValueError("there is no such node")
        except ValueError as error:
            raise TraceError(number, str(error)) from None
        events.append(event)
    return events


def _event(line: str) -> Event:
    try:
        document = json.loads(line.removeprefix("\ufeff"), object_pairs_hook=_members)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON, at character {error.pos}") from None
    except _Twice as error:
        raise ValueError(f"{printable(error.args[0])[:64]} is given twice") from None
    except (ValueError, RecursionError):
        raise ValueError("not JSON that can be read") from None
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    kind: type[Event] | None = Arrival
    if "op" in document:
        word = document.pop("op")
        kind = _OPERATIONS.get(word) if isinstance(word, str) else None
    if kind is None:
        raise ValueError(f"op is one of {', '.join(_OPERATIONS)}")
    for name in kind._fields:
        _check(document, name)
    unknown = sorted(document.keys() - set(kind._fields))
    if unknown:
        raise ValueError(f"{printable(unknown[0])[:64]} is not known here")
    return kind(**document)


class _Twice(Exception):
    """A member stands twice; its name is the argument."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise _Twice(name)
    return dict(pairs)


def _check(document: Mapping[str, Any], name: str) -> None:
    if name not in document:
        raise ValueError(f"{name} is missing")
    value = document[name]
    if name in _LEAST:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not _LEAST[name] <= value <= _LARGEST:
            raise ValueError(f"{name} is a whole number of at least {_LEAST[name]} and at most {_LARGEST}")
    elif not isinstance(value, str) or not value:
        raise ValueError(f"{name} is a text that is not empty")
