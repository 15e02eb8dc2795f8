"""How two values of one declared structure differ, walked along the declarations of their settings.

Lists whose entries have an identity are matched by it, free maps by key, and every other value is one value. What
differs takes the effect its setting declares.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from iop.edge.config import redact
from iop.edge.config.document import plain
from iop.edge.config.setting import Effect, Field, fields
from iop.edge.refresh.model import Kind
from iop.edge.refresh.path import Entry, Path


class Difference(NamedTuple):
    """One place where two configurations differ; ``before`` and ``after`` are as others may see them."""

    path: Path
    kind: Kind
    effect: Effect
    before: Any = None
    after: Any = None


Differences = Iterator[Difference]


class Seen(NamedTuple):
    """A JSON value, and the same as others may see it."""

    value: Any
    shown: Any

    def at(self, key: str) -> Seen:
        """What stands under a key; what is inside something hidden is hidden too."""
        return Seen(self.value[key], self.shown[key] if isinstance(self.shown, Mapping) else self.shown)


@functools.singledispatch
def parts(old: Any, new: Any, path: Path) -> Differences:
    """Two parts of one type, setting by setting; a part that is more than its settings registers its own way."""
    for field in fields(type(old)):
        yield from setting(field, getattr(old, field.name), getattr(new, field.name), (*path, field.name))


def _in_order(values: Any) -> Any:
    """A list whose order means nothing, or None where nobody gave one."""
    return None if values is None else sorted(values)


def setting(field: Field, old: Any, new: Any, path: Path) -> Differences:
    """One setting's two values."""
    effect = field.declaration.effect
    if field.shape == "list" and hasattr(field.part, "IDENTITY"):
        yield from entries(field, old, new, path)
    elif field.part is not None and field.shape == "one" and old is not None and new is not None:
        yield from parts(old, new, path)
    elif field.shape == "map":
        yield from values(seen(old, path), seen(new, path), path, effect)
    elif field.declaration.unordered:
        yield from _one_value(effect, _in_order(old), _in_order(new), path)
    elif old != new:
        off = field.declaration.off
        yield from _one_value(effect, off if old is None else old, off if new is None else new, path)


def _one_value(effect: Effect, old: Any, new: Any, path: Path) -> Differences:
    if old != new:
        yield Difference(path, Kind.MODIFIED, effect, seen(old, path).shown, seen(new, path).shown)


def entries(field: Field, old: Sequence[Any], new: Sequence[Any], path: Path) -> Differences:
    """Two lists matched by identity. An entry that came or went is one difference, shown whole."""
    key, effect = getattr(field.part, "IDENTITY", ""), field.declaration.effect
    was, now = ({getattr(entry, key): entry for entry in side} for side in (old, new))
    for name in was.keys() | now.keys():
        here = (*path, Entry(name))
        if name not in was:
            yield Difference(here, Kind.ADDED, effect, None, seen(now[name], here).shown)
        elif name not in now:
            yield Difference(here, Kind.REMOVED, effect, seen(was[name], here).shown, None)
        else:
            yield from parts(was[name], now[name], here)


def values(old: Seen, new: Seen, path: Path, effect: Effect) -> Differences:
    """Two JSON values: maps by key at any depth, everything else as one value."""
    if isinstance(old.value, Mapping) and isinstance(new.value, Mapping):
        yield from keyed(old, new, old.value.keys() | new.value.keys(), path, effect)
    elif _text(old.value) != _text(new.value):
        yield Difference(path, Kind.MODIFIED, effect, old.shown, new.shown)


def keyed(old: Seen, new: Seen, keys: Collection[str], path: Path, effect: Effect) -> Differences:
    """These entries of two free maps."""
    for key in keys:
        here = (*path, key)
        if key not in old.value:
            yield Difference(here, Kind.ADDED, effect, None, new.at(key).shown)
        elif key not in new.value:
            yield Difference(here, Kind.REMOVED, effect, old.at(key).shown, None)
        else:
            yield from values(old.at(key), new.at(key), here, effect)


def seen(value: Any, path: Path) -> Seen:
    """A value of the configuration that stands at a path, also as others may see it."""
    document = plain(value)
    return Seen(document, redact(document, tuple(0 if isinstance(step, Entry) else step for step in path)))


def _text(value: Any) -> str:
    """JSON text: 1, 1.0 and true are three values there, and one to Python."""
    return json.dumps(value, sort_keys=True)
