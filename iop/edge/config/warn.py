"""Warnings: what loads, and is probably not meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from iop.edge.config.interpolate import Interpolated
from iop.edge.config.problems import Report
from iop.edge.config.tree import Path
from iop.edge.config.walk import at, each, entries

Document = Mapping[str, Any]

_LITERAL = "a secret written literally: take it from ${env:NAME} or ${file:PATH}"
_UNREPLACED = "is sent as it stands: of ${…} only ${env:NAME} and ${file:PATH} are replaced"


def warn_literal_secrets(checked: Document, report: Report) -> None:
    """Secrets in the text of a file. Looks at the document as written, before normalization moves anything."""
    for value, path in _secrets(checked):
        if isinstance(value, str) and not isinstance(value, Interpolated):
            report.warning(path, "literal_secret", _UNREPLACED if "${" in value else _LITERAL)
    for value, path in _variables(checked):
        if isinstance(value, str) and "${" in value and not isinstance(value, Interpolated):
            report.warning(path, "literal_secret", _UNREPLACED)


def _secrets(document: Document) -> Iterator[tuple[Any, Path]]:
    for node, path in each(document.get("nodes"), ("nodes",)):
        yield node.get("token"), (*path, "token")
        yield from _values(node, path, "headers")


def _variables(document: Document) -> Iterator[tuple[Any, Path]]:
    """What children get in their environment: most of it is no secret, but none of it is expanded by a shell."""
    for node, path in each(document.get("nodes"), ("nodes",)):
        yield from _values(node, path, "env")


def _values(node: Document, path: Path, name: str) -> Iterator[tuple[Any, Path]]:
    """The values of one mapping of every adapter and provider of a node."""
    for key in ("adapters", "providers"):
        for entry, where in each(node.get(key), (*path, key)):
            mapping = entry.get(name)
            for word, value in mapping.items() if isinstance(mapping, dict) else ():
                yield value, (*where, name, word)


def warn_unused(normal: Document, report: Report) -> None:
    """Enabled providers that no model group names, and enabled adapters that no provider and no route names."""
    groups = entries(normal["models"])
    members = {entry["id"] for group in groups for entry in entries(group["providers"]) if isinstance(entry["id"], str)}
    routes = entries(at(normal, ("openai", "model_routes")))
    for node, path in each(normal["nodes"], ("nodes",)):
        for provider, where in each(node["providers"], (*path, "providers")):
            if provider["enabled"] is True and isinstance(provider["id"], str) and provider["id"] not in members:
                report.warning(where, "unused_provider", "no model names this provider: no run will reach it")
        used = [entry["adapter"] for entry in entries(node["providers"])]
        used += [route["adapter"] for route in routes if route["node"] in (None, node["id"])]
        for adapter, where in each(node["adapters"], (*path, "adapters")):
            if adapter["enabled"] is True and isinstance(adapter["name"], str) and adapter["name"] not in used:
                report.warning(where, "unused_adapter", "no provider and no route names this adapter")
