"""A document as it was read: mappings and lists that remember where each of their values stood."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

Path = tuple[str | int, ...]


class Mark(NamedTuple):
    """A place in a file; lines count from 1."""

    file: str
    line: int


#: Where a document stands that was made in memory.
NOWHERE: Final = Mark("", 1)


class Map(dict[str, Any]):
    """A mapping, with the mark of each key."""

    __slots__ = ("marks",)

    def __init__(self) -> None:
        super().__init__()
        self.marks: dict[str, Mark] = {}

    def put(self, key: str, value: Any, mark: Mark) -> None:
        self[key] = value
        self.marks[key] = mark


class Seq(list[Any]):
    """A list, with the mark of each item."""

    __slots__ = ("marks",)

    def __init__(self) -> None:
        super().__init__()
        self.marks: list[Mark] = []

    def put(self, value: Any, mark: Mark) -> None:
        self.append(value)
        self.marks.append(mark)


class Refused:
    """Stands where a value was refused, so that later stages say nothing more about it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "REFUSED"


REFUSED: Final = Refused()


def locate(root: Any, path: Path, start: Mark) -> Mark:
    """The mark of the value at ``path``, or of the nearest thing above it that exists."""
    mark, value = start, root
    for step in path:
        if isinstance(value, Map) and isinstance(step, str) and step in value.marks:
            mark, value = value.marks[step], value.get(step)
        elif isinstance(value, Seq) and isinstance(step, int) and step < len(value.marks):
            mark, value = value.marks[step], value[step]
        else:
            break
    return mark


def marked(value: Any, mark: Mark = NOWHERE) -> Any:
    """Plain data as a tree, every value at the same place."""
    if isinstance(value, Mapping):
        tree = Map()
        for key, item in value.items():
            tree.put(str(key), marked(item, mark), mark)
        return tree
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        items = Seq()
        for item in value:
            items.put(marked(item, mark), mark)
        return items
    return value


_PLAIN_KEY: Final = re.compile(r"[^\s.\[\]\"']{1,100}")


def render(path: Path) -> str:
    """A path as people and tools read it: ``nodes[0].providers[1].capacity``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step) and step.isprintable():
            text += f".{step}" if text else step
        else:
            text += f"[{step[:100]!a}]"
    return text
