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


def warn_literal_secrets(checked: Document, report: Report) -> None:
    """Secrets in the text of a file. Looks at the document as written, before normalization moves anything."""
    for value, path in _secrets(checked):
        if isinstance(value, str) and not isinstance(value, Interpolated):
            report.warning(path, "literal_secret", _LITERAL)


def _secrets(document: Document) -> Iterator[tuple[Any, Path]]:
    for node, path in each(document.get("nodes"), ("nodes",)):
        yield node.get("token"), (*path, "token")
        for key in ("adapters", "providers"):
            for entry, where in each(node.get(key), (*path, key)):
                headers = entry.get("headers")
                for name, value in headers.items() if isinstance(headers, dict) else ():
                    yield value, (*where, "headers", name)


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
