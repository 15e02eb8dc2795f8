"""Walks over a document of which parts may have been refused: they yield what is left, with its path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from iop.edge.config.problems import Report
from iop.edge.config.tree import Path, render


def at(document: Any, path: Path) -> Any:
    """The value at a path of keys; None when there is none."""
    value = document
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def listed(value: Any) -> list[Any]:
    """The list, or none at all."""
    return value if isinstance(value, list) else []


def entries(value: Any) -> list[dict[str, Any]]:
    """The mappings of a list."""
    return [entry for entry in listed(value) if isinstance(entry, dict)]


def each(value: Any, path: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """The mappings of a list, each with its path."""
    for index, entry in enumerate(listed(value)):
        if isinstance(entry, dict):
            yield entry, (*path, index)


def whole(value: Any, *keys: str) -> bool:
    """Whether nothing of a list, nor any of these keys of its entries, was refused."""
    return isinstance(value, list) and all(
        isinstance(entry, dict) and all(isinstance(entry.get(key, ""), str | bool) for key in keys) for entry in value
    )


def unique(values: Iterable[tuple[Any, Path]], report: Report, message: str) -> None:
    """Report each text that stands twice, at its second place; ``message`` is given the path of the first."""
    seen: dict[str, Path] = {}
    for value, path in values:
        if not isinstance(value, str):
            continue
        if value in seen:
            report.error(path, "duplicate_id", message.format(render(seen[value])))
        else:
            seen[value] = path
