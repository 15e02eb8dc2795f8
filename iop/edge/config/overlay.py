"""Overlay: several documents merged to one, lists of objects by the identity of their entries."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from iop.edge.config.model import EdgeConfig
from iop.edge.config.problems import Report
from iop.edge.config.setting import fields
from iop.edge.config.tree import REFUSED, Map, Path, Seq

#: Keys without the indexes between them.
Names = tuple[str, ...]


@functools.cache
def identities() -> Mapping[Names, str]:
    """Where the lists with an identity stand, and the key that is it."""
    return dict(_identities(EdgeConfig, ()))


def _identities(part: type[Any], names: Names) -> list[tuple[Names, str]]:
    found: list[tuple[Names, str]] = []
    for field in fields(part):
        if field.part is None:
            continue
        here = (*names, field.name)
        if field.shape == "list" and hasattr(field.part, "IDENTITY"):
            found.append((here, field.part.IDENTITY))
        found += _identities(field.part, here)
    return found


def merge(documents: Sequence[Map], report: Report) -> Map:
    """The documents as one, each laid over those before it."""
    merged = Map()
    for index, document in enumerate(documents):
        prepared = _with_adapter_lists(document, report)
        _refuse_twins(prepared, (), (), report)
        merged = prepared if index == 0 else _over(merged, prepared, ())
    if merged.get("provider_pool", REFUSED) is None:
        # The one section whose bare key means something: it is there, so older per-provider values are not read.
        merged["provider_pool"] = Map()
    return merged


def _over(base: Map, overlay: Map, names: Names) -> Map:
    result = Map()
    for key, value in base.items():
        result.put(key, value, base.marks[key])
    for key, value in overlay.items():
        here = (*names, key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Map) and isinstance(result.get(key), Map):
            result.put(key, _over(result[key], value, here), overlay.marks[key])
        elif isinstance(value, Seq) and isinstance(result.get(key), Seq) and _mergeable(result[key], value, here):
            result.put(key, _over_list(result[key], value, here), overlay.marks[key])
        else:
            result.put(key, _bare(value), overlay.marks[key])
    return result


def _bare(value: Any) -> Any:
    """What an overlay adds, without the keys it deletes: there is nothing under it to delete them from."""
    if isinstance(value, Map):
        return _over(Map(), value, ())
    if isinstance(value, Seq):
        items = Seq()
        for item, mark in zip(value, value.marks, strict=True):
            items.put(_bare(item), mark)
        return items
    return value


def _mergeable(base: Seq, overlay: Seq, names: Names) -> bool:
    key = identities().get(names)
    return key is not None and all(isinstance(entry, Map) and key in entry for entry in [*base, *overlay])


def _over_list(base: Seq, overlay: Seq, names: Names) -> Seq:
    key = identities()[names]
    result = Seq()
    places: dict[str, int] = {}
    for entry, mark in zip(base, base.marks, strict=True):
        if isinstance(entry[key], str):
            places.setdefault(entry[key], len(result))
        result.put(entry, mark)
    for entry, mark in zip(overlay, overlay.marks, strict=True):
        place = places.get(entry[key]) if isinstance(entry[key], str) else None
        if place is None:
            result.put(_bare(entry), mark)
        else:
            result[place] = _over(result[place], entry, names)
    return result


def _refuse_twins(value: Any, path: Path, names: Names, report: Report) -> None:
    """Report an identity that stands twice in one list of one file, at the second."""
    if isinstance(value, Map):
        for key, item in value.items():
            if isinstance(item, Map | Seq):
                _refuse_twins(item, (*path, key), (*names, key), report)
    elif isinstance(value, Seq):
        seen: dict[str, int] = {}
        for index, entry in enumerate(value):
            if isinstance(entry, Map):
                _refuse_twins(entry, (*path, index), names, report)
                _refuse_twin(entry, (*path, index), identities().get(names), seen, report)


def _refuse_twin(entry: Map, path: Path, identity: str | None, seen: dict[str, int], report: Report) -> None:
    name = entry.get(identity) if identity is not None else None
    if identity is None or not isinstance(name, str):
        return
    if name in seen:
        message = f"must be unique in its list; entry {seen[name]} has it already"
        report.error((*path, identity), "duplicate_id", message, entry.marks[identity])
        entry[identity] = REFUSED
    else:
        seen[name] = int(path[-1])


_OLDER: Final = "an entry of the older `adapters` mapping is named by its type: drop the key, or write a list"


def _with_adapter_lists(document: Map, report: Report) -> Map:
    """The older `adapters: {TYPE: {…}}` of each node as a list of instances named like their types."""
    nodes = document.get("nodes")
    for index, node in enumerate(nodes if isinstance(nodes, Seq) else ()):
        adapters = node.get("adapters") if isinstance(node, Map) else None
        if isinstance(adapters, Map):
            node["adapters"] = _listed(adapters, ("nodes", index, "adapters"), report)
    return document


def _listed(adapters: Map, path: Path, report: Report) -> Seq:
    instances = Seq()
    for index, (kind, settings) in enumerate(adapters.items()):
        mark = adapters.marks[kind]
        instance = settings if isinstance(settings, Map) else Map()
        for key in ("name", "type"):
            if instance.setdefault(key, kind) != kind:
                report.error((*path, index, key), "conflict", _OLDER, instance.marks.get(key, mark))
                instance[key] = REFUSED
            instance.marks.setdefault(key, mark)
        instances.put(instance if isinstance(settings, Map) or settings is None else settings, mark)
    return instances
