"""Validate, the nodes: who they are, their adapters and providers, and that each node's payload fits a frame."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from iop.edge.config.adapters import check_settings
from iop.edge.config.document import Made
from iop.edge.config.problems import Report
from iop.edge.config.tree import REFUSED, Path
from iop.edge.config.walk import each, entries, unique
from iop.settings import SETTINGS

Document = Mapping[str, Any]

#: What of the link's 1 MiB frame a node's payload may take. It is measured as JSON, which is longer than the wire's
#: form but for a byte or two a header; the rest is for the envelope around it.
MAX_PAYLOAD: Final = 1024 * 1024 - 16 * 1024


def validate_nodes(document: Document, report: Report) -> None:
    """Report every rule that the nodes break, each alone and all together."""
    nodes = list(each(document["nodes"], ("nodes",)))
    _aliases(nodes, report)
    providers = [pair for node, path in nodes for pair in each(node["providers"], (*path, "providers"))]
    message = "must be unique in the whole configuration; {} has it already"
    unique([(provider["id"], (*path, "id")) for provider, path in providers], report, message)
    for node, path in nodes:
        _secret(node, path, report)
        _adapters(node, path, report)
        _payload(node, path, report)
    for provider, path in providers:
        _provider(provider, path, report)


def _aliases(nodes: list[tuple[dict[str, Any], Path]], report: Report) -> None:
    """Aliases are unique; a written one gives way to an id that stands for its own."""
    ordered = sorted(nodes, key=lambda pair: pair[0]["alias"] != pair[0]["id"])
    values = [(node["alias"], (*path, "alias")) for node, path in ordered if node["id"] is not REFUSED]
    unique(values, report, "must be unique; {} has it already (an alias defaults to the id)")


def _secret(node: Document, path: Path, report: Report) -> None:
    given = [key for key in ("token", "token_hash_sha256") if node.get(key) is not None]
    if len(given) == 1:
        return
    right = "give exactly one of token and token_hash_sha256"
    report.error((*path, "token"), "conflict", f"{right}, not both" if given else right)


def _adapters(node: Document, path: Path, report: Report) -> None:
    for instance, where in each(node["adapters"], (*path, "adapters")):
        if not isinstance(instance, Made) and instance["type"] in SETTINGS:
            check_settings(instance, where, report)


def _provider(provider: Document, path: Path, report: Report) -> None:
    capacity, long = provider["capacity"], provider["long_context_capacity"]
    if isinstance(capacity, int) and isinstance(long, int) and long > capacity:
        report.error((*path, "long_context_capacity"), "range", "must be no more than capacity")
    runs_as = provider["runtime_type"]
    if provider["category"] == "cli" and provider["enabled"] is True and runs_as not in ("cli", REFUSED):
        report.error((*path, "category"), "conflict", "cli needs an enabled adapter of type cli")


def _payload(node: Document, path: Path, report: Report) -> None:
    payload = [node["adapters"], [_sent(provider) for provider in entries(node["providers"])]]
    try:
        size = len(json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode())
    except TypeError:  # holds something refused, which was reported
        return
    if size > MAX_PAYLOAD:
        message = "what is sent to this node must fit one frame of 1 MiB: shorten its adapters' settings or models"
        report.error(path, "payload_too_large", message)


def _sent(provider: Document) -> list[Any]:
    return [provider[key] for key in ("id", "adapter", "provider", "models", "health", "lifecycle")]
