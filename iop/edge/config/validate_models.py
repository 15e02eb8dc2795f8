"""Validate, the model groups: unique names, limits in order, and windows their providers can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iop.edge.config.problems import Report
from iop.edge.config.tree import Path, render
from iop.edge.config.walk import each, unique

Document = Mapping[str, Any]


def validate_models(document: Document, report: Report) -> None:
    """Report every rule that the model groups break."""
    groups = list(each(document["models"], ("models",)))
    for group, path in groups:
        _once(group, path, report)
        _limits(group, path, report)
    _budgets(document, groups, report)


def _once(group: Document, path: Path, report: Report) -> None:
    """Each provider once. The entry's own path also when it was written as ``{id, target}``."""
    members = [(entry["id"], where) for entry, where in each(group["providers"], (*path, "providers"))]
    unique(members, report, "a group names each provider once; it stands already at {}")


def _limits(group: Document, path: Path, report: Report) -> None:
    window, default, least = (
        group[key] if isinstance(group[key], int) else None
        for key in ("context_window_tokens", "default_max_tokens", "min_max_tokens")
    )
    if default is not None and least is not None and least > default:
        report.error((*path, "min_max_tokens"), "range", "must be no more than default_max_tokens")
    for key, limit in (("default_max_tokens", default), ("min_max_tokens", least)):
        if window is not None and limit is not None and limit > window:
            report.error((*path, key), "range", "must be no more than context_window_tokens")


def _budgets(document: Document, groups: list[tuple[dict[str, Any], Path]], report: Report) -> None:
    """What a provider can hold covers its long slots, each with the largest window of its groups."""
    largest: dict[str, tuple[int, Path]] = {}
    for group, path in groups:
        window = group["context_window_tokens"]
        for entry, _ in each(group["providers"], path) if isinstance(window, int) else ():
            if isinstance(entry["id"], str) and window > largest.get(entry["id"], (0, path))[0]:
                largest[entry["id"]] = (window, path)
    for node, node_path in each(document["nodes"], ("nodes",)):
        for provider, path in each(node["providers"], (*node_path, "providers")):
            total, long = provider["total_context_tokens"], provider["long_context_capacity"]
            window, group_path = largest.get(provider["id"], (0, ())) if isinstance(provider["id"], str) else (0, ())
            if isinstance(total, int) and isinstance(long, int) and total < window * long:
                report.error(
                    (*path, "total_context_tokens"),
                    "context_budget",
                    f"must be at least context_window_tokens × long_context_capacity, also for {render(group_path)}",
                )
