"""Normalize, the nodes: aliases, adapter instances with their settings, and providers that name theirs."""

from __future__ import annotations

from typing import Any

from iop.edge.config import adapters, references
from iop.edge.config.model_nodes import INLINE, OLDER_QUEUE, runtime_type
from iop.edge.config.problems import Report
from iop.edge.config.references import Fault
from iop.edge.config.tree import REFUSED, Path
from iop.edge.config.walk import each, entries


def normalize_nodes(document: dict[str, Any], report: Report) -> None:
    """Every node of the document, in place."""
    for node, path in each(document["nodes"], ("nodes",)):
        _node(node, path, report)


def _node(node: dict[str, Any], path: Path, report: Report) -> None:
    node.setdefault("alias", node["id"])
    if isinstance(node.get("token_hash_sha256"), str):
        node["token_hash_sha256"] = node["token_hash_sha256"].lower()
    if isinstance(node["adapters"], list):
        node["adapters"] = [_adapter(entry) for entry in node["adapters"]]
    providers = list(each(node["providers"], (*path, "providers")))
    named = {entry["name"] for entry in entries(node["adapters"]) if isinstance(entry["name"], str)}
    for provider, where in providers:
        _kind(provider, where, report)
        _own_instance(provider, node, named, where, report)
    for provider, where in providers:
        _reference(provider, node["adapters"], where, report)
        for key in (*INLINE, *OLDER_QUEUE):
            provider.pop(key, None)


def _adapter(entry: Any) -> Any:
    if not isinstance(entry, dict) or not isinstance(entry["type"], str):
        return entry
    return {key: entry[key] for key in ("name", "type", "enabled")} | adapters.with_defaults(entry["type"], entry)


def _kind(provider: dict[str, Any], path: Path, report: Report) -> None:
    """The runtime type and the label that follow from the type; lists whose order means nothing, once each."""
    known = isinstance(provider["type"], str)
    kind = runtime_type(provider["type"]) if known else REFUSED
    if known and isinstance(provider.get("runtime_type"), str) and provider["runtime_type"] != kind:
        message = "must be the runtime type that follows from the provider's type; it may be left out"
        report.error((*path, "runtime_type"), "conflict", message)
    provider["runtime_type"] = kind
    provider.setdefault("provider", provider["type"])
    provider["total_context_tokens"] = provider["total_context_tokens"] or None
    if isinstance(provider["models"], list):
        provider["models"] = list(dict.fromkeys(provider["models"]))


def _own_instance(provider: dict[str, Any], node: dict[str, Any], named: set[str], path: Path, report: Report) -> None:
    """Inline execution: an instance made of the provider's own settings, and named after it."""
    if not adapters.inline(provider):
        return
    if "adapter" in provider:
        message = "a provider either names an adapter or carries its own settings"
        if provider["adapter"] is not REFUSED:
            report.error((*path, "adapter"), "conflict", message)
        provider["adapter"] = REFUSED
        return
    provider["adapter"] = REFUSED
    if not isinstance(provider["id"], str) or not isinstance(provider["runtime_type"], str):
        return
    if provider["id"] in named:
        message = "its own settings make an adapter of this name, and the node has one already"
        report.error((*path, "id"), "conflict", message)
        return
    instance = adapters.made(provider, provider["runtime_type"], provider["provider"], path, report)
    if isinstance(node["adapters"], list):
        node["adapters"].append(instance)
    provider["adapter"] = provider["id"]


def _reference(provider: dict[str, Any], instances: Any, path: Path, report: Report) -> None:
    """The adapter's name. A disabled provider's need not lead anywhere."""
    kind = provider["runtime_type"]
    reference = provider.setdefault("adapter", kind)
    if not isinstance(reference, str) or not isinstance(kind, str):
        return
    found = references.adapter(reference, instances, kind)
    if isinstance(found, str):
        provider["adapter"] = found
    elif isinstance(found, Fault) and provider["enabled"] is True:
        report.error((*path, "adapter"), found.code, found.message)
