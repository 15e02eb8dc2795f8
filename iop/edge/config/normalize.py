"""Normalize: a checked document in its one normal form, every default filled in and older forms gone.

Works on plain data in which :data:`REFUSED` stands for what earlier stages took out. Normalizing twice is normalizing
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from iop import endpoints
from iop.edge.config import queue_policy, references
from iop.edge.config.document import plain
from iop.edge.config.model import EdgeConfig
from iop.edge.config.normalize_nodes import normalize_nodes
from iop.edge.config.problems import Report
from iop.edge.config.references import Fault
from iop.edge.config.setting import Field, fields
from iop.edge.config.tree import REFUSED, Path
from iop.edge.config.walk import each, entries, whole


def normalize(document: Mapping[str, Any], report: Report, *, state_dir: FilePath) -> dict[str, Any]:
    """The normal form of a checked document; references that lead nowhere are reported."""
    older = None if "provider_pool" in document else queue_policy.promoted(document, report)
    result = filled(EdgeConfig, document)
    _policy(result, older)
    _identity(result)
    _places(result, state_dir)
    normalize_nodes(result, report)
    _groups(result, report)
    _openai(result, report)
    return result


def filled(part: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """A part's document with every default that follows from no other setting, in the order of the model."""
    result: dict[str, Any] = {}
    for field in fields(part):
        if field.name in document:
            result[field.name] = _filled_value(field, document[field.name])
        elif field.part is not None and field.shape == "one" and field.default is not None:
            result[field.name] = filled(field.part, {})
        elif not field.declaration.derived:
            result[field.name] = plain(field.default)
    return result | {key: value for key, value in document.items() if key not in result}


def _filled_value(field: Field, value: Any) -> Any:
    if value is False and field.part is not None:
        return field.declaration.off
    if field.part is not None and isinstance(value, list):
        return [filled(field.part, entry) if isinstance(entry, dict) else entry for entry in value]
    return filled(field.part, value) if field.part is not None and isinstance(value, dict) else value


def _policy(document: dict[str, Any], older: dict[str, Any] | None) -> None:
    pool = document["provider_pool"]
    if older is not None and isinstance(pool, dict):
        pool.update(older)
    if isinstance(pool, dict) and pool["max_queue"] == 0:
        pool["max_queue"] = queue_policy.MAX_QUEUE


def _identity(document: dict[str, Any]) -> None:
    edge = document["edge"]
    if isinstance(edge, dict):
        edge.setdefault("name", edge["id"])


def _places(document: dict[str, Any], state_dir: FilePath) -> None:
    """What stands in the state directory unless a file says otherwise."""
    console, ledger = document["console"], document["ledger"]
    if isinstance(console, dict):
        console.setdefault("listen", f"unix:{endpoints.quote(str(state_dir / 'console.sock'))}:mode=600")
    if isinstance(ledger, dict) and ledger.get("url", "sqlite:") == "sqlite:":
        ledger["url"] = f"sqlite:{state_dir / 'ledger.sqlite3'}"


def _groups(document: dict[str, Any], report: Report) -> None:
    """Model groups: 0 as unset, and each provider with its node and target."""
    nodes = document["nodes"]
    known = {
        provider["id"]: (node, provider)
        for node in entries(nodes)
        for provider in entries(node["providers"])
        if isinstance(provider["id"], str)
    }
    complete = whole(nodes) and all(whole(node["providers"], "id") for node in nodes)
    for group, path in each(document["models"], ("models",)):
        for key in ("context_window_tokens", "default_max_tokens", "min_max_tokens"):
            group[key] = group[key] or None
        if isinstance(group["providers"], list):
            group["providers"] = [
                _group_provider(entry, group["id"], known, complete, (*path, "providers", place), report)
                for place, entry in enumerate(group["providers"])
            ]


def _group_provider(
    entry: Any, model: Any, known: Mapping[str, Any], complete: bool, path: Path, report: Report
) -> Any:
    reference = entry["id"] if isinstance(entry, dict) else entry
    given = entry if isinstance(entry, dict) else {}
    result = {"id": reference, "target": REFUSED, "node_id": REFUSED}
    if not isinstance(reference, str):
        return REFUSED if not given else result
    where = (*path, "id") if given else path
    if reference not in known:
        if complete:
            report.error(where, "unknown_reference", "must be the id of a provider of one of the nodes")
        return result
    node, provider = known[reference]
    if isinstance(given.get("node_id"), str) and isinstance(node["id"], str) and given["node_id"] != node["id"]:
        report.error((*path, "node_id"), "conflict", "must be the node of the provider; it may be left out")
    target = references.target(model, given.get("target"), provider["models"])
    if isinstance(target, Fault):
        report.error((*path, "target") if "target" in given else path, target.code, target.message)
    return {"id": reference, "target": target if isinstance(target, str) else REFUSED, "node_id": node["id"]}


def _openai(document: dict[str, Any], report: Report) -> None:
    openai = document["openai"]
    if not isinstance(openai, dict):
        return
    tokens = openai["principal_tokens"]
    for entry in entries(tokens):
        if isinstance(entry["token_hash_sha256"], str):
            entry["token_hash_sha256"] = entry["token_hash_sha256"].lower()
    if "allow_anonymous" not in openai:
        openai["allow_anonymous"] = tokens == [] and loopback(openai["listen"])
    for route, path in each(openai["model_routes"], ("openai", "model_routes")):
        _route(route, path, document["nodes"], report)


def _route(route: dict[str, Any], path: Path, nodes: Any, report: Report) -> None:
    candidates = entries(nodes)
    if isinstance(route["node"], str):
        candidates = [node for node in candidates if node["id"] == route["node"]]
        if not candidates:
            if whole(nodes, "id"):
                report.error((*path, "node"), "unknown_reference", "must be the id of a node")
            return
    if not isinstance(route["adapter"], str) or route["node"] is REFUSED or not whole(nodes):
        return
    name = references.routed(route["adapter"], candidates)
    if isinstance(name, Fault):
        report.error((*path, "adapter"), name.code, name.message)
    elif name is not None:
        route["adapter"] = name


def loopback(listen: Any) -> bool:
    """Whether only this machine can reach an endpoint; a bad one counts as reachable."""
    try:
        return isinstance(listen, str) and endpoints.server(listen).loopback
    except endpoints.BadEndpoint:
        return False
