"""The settings of built-in adapter types, checked and filled at the edge, and what a provider may carry of them.

A type that is not built in is a drop-in: its settings go to the node as they are, which checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from iop.edge.config.check import check
from iop.edge.config.document import Made
from iop.edge.config.model_nodes import INLINE
from iop.edge.config.problems import Report
from iop.edge.config.tree import REFUSED, Path
from iop.settings import SETTINGS

#: What a header configured on an adapter must not be: they belong to one connection or frame the message.
FRAMING = frozenset(
    [
        "host",
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "content-length",
    ]
)


def with_defaults(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """An instance's settings with its type's defaults, those without one as null."""
    known = SETTINGS.get(kind, {}).get("properties", {})
    return {name: keywords.get("default") for name, keywords in known.items()} | dict(settings)


def inline(provider: Mapping[str, Any]) -> dict[str, Any]:
    """The settings a provider carries itself, by the keys it writes them with."""
    return {key: provider[key] for key in INLINE if key in provider}


def made(provider: Mapping[str, Any], kind: str, label: Any, path: Path, report: Report) -> Made:
    """The instance that a provider's inline settings stand for. What is wrong is said at the provider's own keys."""
    written = inline(provider)
    settings = _translated(written, kind, path, report)
    known = SETTINGS.get(kind)
    if known is not None:
        for key in known.get("required", ()):
            if key not in settings:
                report.error((*path, key), "schema", f"is required for a provider that runs as {kind}")
                settings[key] = REFUSED
        if "provider" in known["properties"]:
            settings["provider"] = label
    instance = {"name": provider["id"], "type": kind, "enabled": True, **with_defaults(kind, settings)}
    return Made(str(provider["id"]), instance)


def _translated(written: Mapping[str, Any], kind: str, path: Path, report: Report) -> dict[str, Any]:
    """Inline settings as the type calls them; those it does not have are reported."""
    known = SETTINGS.get(kind)
    if known is None:
        return dict(written)
    settings: dict[str, Any] = {}
    for key, value in written.items():
        name = "base_url" if key == "endpoint" else key
        if name not in known["properties"]:
            report.error((*path, key), "schema", f"is no setting of a provider that runs as {kind}")
        elif name in settings:
            report.error((*path, key), "conflict", "endpoint and base_url are one setting: give one of them")
        else:
            settings[name] = check(known["properties"][name], value, report, (*path, key))
            check_settings({key: settings[name]}, path, report)
    return settings


def check_settings(settings: Mapping[str, Any], path: Path, report: Report) -> None:
    """What a schema cannot say of an instance's or a provider's settings."""
    for key in ("base_url", "endpoint"):
        if isinstance(settings.get(key), str) and not _reachable(settings[key]):
            report.error((*path, key), "schema", "must be a URL whose host and port (up to 65535) exist")
    headers = settings.get("headers")
    seen: set[str] = set()
    for name in headers if isinstance(headers, dict) else ():
        if name.lower() in FRAMING:
            message = "belongs to the connection or frames the message: it cannot be configured"
            report.error((*path, "headers", name), "conflict", message)
        elif name.lower() in seen:
            report.error((*path, "headers", name), "conflict", "the header stands twice, in another case")
        seen.add(name.lower())


def _reachable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
