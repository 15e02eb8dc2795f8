"""Plan: what going from one configuration to another would do, as a value that can be printed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from iop.edge.config import ConfigError, Loaded, Problem, revision
from iop.edge.refresh.compare import compare
from iop.edge.refresh.model import Change, RefreshMode, RefreshResult
from iop.edge.refresh.path import Path, render
from iop.edge.refresh.structure import Difference

Side = Loaded | ConfigError

_MODES: Final = frozenset(mode.value for mode in RefreshMode)
_UNKNOWN_MODE: Final = Problem("mode", 1, "", "schema", f"must be one of {', '.join(sorted(_MODES))}")


def plan(old: Side, new: Side, mode: str = RefreshMode.DRY_RUN) -> RefreshResult:
    """What a refresh from ``old`` to ``new`` is: classified, its secrets hidden, every list sorted.

    Each side is a configuration that loads, or what is wrong with it. In mode ``apply`` this is the result before
    anything was asked of a node.
    """
    errors = [] if mode in _MODES else [_UNKNOWN_MODE]
    for side in (old, new):
        errors += side.problems if isinstance(side, ConfigError) else ()
    before, after = _revision(old), _revision(new)
    if errors or isinstance(old, ConfigError) or isinstance(new, ConfigError):
        return RefreshResult(
            mode=str(mode), errors=tuple(dict.fromkeys(errors)), revision_before=before, revision_after=after
        )
    differences = list(compare(old.config, new.config))
    paths = [each.path for each in differences]
    return RefreshResult(
        mode=str(mode),
        changes=tuple(sorted(map(_change, differences), key=lambda change: change.path)),
        changed_nodes=_sorted(_entries(paths, "nodes")),
        changed_providers=_sorted(_providers(paths)),
        changed_models=_sorted(_entries(paths, "models")),
        revision_before=before,
        revision_after=after,
    )


def _change(difference: Difference) -> Change:
    return Change(render(difference.path), *difference[1:])


def _entries(paths: Iterable[Path], key: str) -> Iterator[str]:
    """The entries of a list of the root that are, or hold, what differs."""
    return (path[1] for path in paths if path[0] == key)


def _providers(paths: Iterable[Path]) -> Iterator[str]:
    return (f"{path[1]}/{path[3]}" for path in paths if path[0] == "nodes" and path[2:3] == ("providers",))


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(map(str, names))))


def _revision(side: Side) -> str | None:
    return None if isinstance(side, ConfigError) else revision(side.config)
