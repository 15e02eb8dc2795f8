"""Compare: how two effective configurations differ, each difference at the place where it was written.

What is more than its declared settings is here: a node's secret, which may be spelled in two ways, an adapter's own
settings, and the instance that a provider's inline settings make, whose differences are the provider's.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from iop.edge.config import EdgeConfig
from iop.edge.config.document import plain
from iop.edge.config.model import Adapter, Node, Provider
from iop.edge.config.model_nodes import INLINE
from iop.edge.config.setting import Effect, Field, fields
from iop.edge.refresh.model import Kind
from iop.edge.refresh.path import Entry, Path
from iop.edge.refresh.structure import Difference, Differences, Seen, entries, keyed, parts, seen, setting, values
from iop.settings import SETTINGS

#: What a setting costs that the edge has no declaration of, as an adapter's own and all of a drop-in's.
UNFORESEEN: Final = Effect.RESTART

_SECRET: Final = ("token", "token_hash_sha256")

#: An adapter instance in both configurations, as far as it is there.
Pair = tuple[Adapter | None, Adapter | None]


def compare(old: EdgeConfig, new: EdgeConfig) -> Differences:
    """Every difference, in no particular order, no path twice."""
    return parts(old, new, ())


@parts.register(Node)
def _node(old: Node, new: Node, path: Path) -> Differences:
    inline = _inline_instances(old, new)
    for field in fields(Node):
        here = (*path, field.name)
        if field.name in _SECRET:
            yield from _secret(field, old, new, here)
        elif field.part is Adapter:
            was, now = ([each for each in side.adapters if each.name not in inline] for side in (old, new))
            yield from entries(field, was, now, here)
        elif field.part is Provider:
            yield from _providers(field, old, new, inline, here)
        else:
            yield from setting(field, getattr(old, field.name), getattr(new, field.name), here)


def _secret(field: Field, old: Node, new: Node, path: Path) -> Differences:
    """A token and its hash are one secret: spelled in another way it is the same one."""
    if old.token_hash_sha256 != new.token_hash_sha256:
        yield from setting(field, _spelled(old, field.name), _spelled(new, field.name), path)


def _spelled(node: Node, key: str) -> Any:
    """As the file has it: the hash of a token that is given is not a setting."""
    return None if key == "token_hash_sha256" and node.token is not None else getattr(node, key)


def _providers(field: Field, old: Node, new: Node, inline: dict[str, Pair], path: Path) -> Differences:
    """The providers, each with the settings it carries itself."""
    for each in entries(field, old.providers, new.providers, path):
        was, now = inline.get(each.path[len(path)], (None, None))
        if each.kind is Kind.ADDED:
            yield each._replace(after=each.after | _carried(now))
        elif each.kind is Kind.REMOVED:
            yield each._replace(before=each.before | _carried(was))
        else:
            yield each
    staying = {each.id for each in old.providers} & {each.id for each in new.providers}
    for name in inline.keys() & staying:
        yield from _settings(*inline[name], (*path, Entry(name)), only=INLINE.keys())


def _inline_instances(old: Node, new: Node) -> dict[str, Pair]:
    """The instances that stand for a provider's own settings wherever they are, by the provider.

    One that the other configuration lists as an adapter is an adapter to both: only its own path can show it whole.
    """
    was, now = ({each.name: each for each in side.adapters} for side in (old, new))
    pairs = {name: (was.get(name), now.get(name)) for name in was.keys() | now.keys()}
    return {name: pair for name, pair in pairs.items() if all(each is None or each.of_provider for each in pair)}


def _carried(instance: Adapter | None) -> dict[str, Any]:
    """What a provider carries itself, as others may see it."""
    return {each.path[0]: each.after for each in _settings(None, instance, (), only=INLINE.keys())}


@parts.register(Adapter)
def _adapter(old: Adapter, new: Adapter, path: Path) -> Differences:
    for field in fields(Adapter):
        yield from setting(field, getattr(old, field.name), getattr(new, field.name), (*path, field.name))
    yield from _settings(old, new, path)


def _settings(old: Adapter | None, new: Adapter | None, path: Path, only: Collection[str] | None = None) -> Differences:
    """Two instances' settings: those their types know are fields, a drop-in's are entries of a free map.

    A field that only one of the two types has is no difference where it has its default: the type says that already.

    :param only: the keys that count; without it, all.
    """
    was, now = _seen(old), _seen(new)
    known_before, known_after = _defaults(old), _defaults(new)
    for key in was.value.keys() | now.value.keys():
        if only is not None and key not in only:
            continue
        if key in was.value and key in now.value:
            yield from values(was.at(key), now.at(key), (*path, key), UNFORESEEN)
        elif key not in known_before and key not in known_after:
            yield from keyed(was, now, [key], path, UNFORESEEN)
        elif key in was.value and was.value[key] != known_before.get(key):
            yield Difference((*path, key), Kind.MODIFIED, UNFORESEEN, was.at(key).shown, None)
        elif key in now.value and now.value[key] != known_after.get(key):
            yield Difference((*path, key), Kind.MODIFIED, UNFORESEEN, None, now.at(key).shown)


def _seen(instance: Adapter | None) -> Seen:
    """An instance's settings, hidden as its type says."""
    if instance is None:
        return Seen({}, {})
    whole = seen(instance, ("nodes", Entry(), "adapters", Entry(instance.name)))
    return Seen(plain(instance.settings), whole.shown)


def _defaults(instance: Adapter | None) -> dict[str, Any]:
    """Every setting that an instance's type knows, with its default; of a drop-in, what providers may carry."""
    if instance is None:
        return {}
    known = SETTINGS.get(instance.type, {}).get("properties", INLINE if instance.of_provider else {})
    return {key: keywords.get("default") for key, keywords in known.items()}
