"""Status: what an edge is doing, as one document. ``docs/contracts/console.md``, Status."""

from __future__ import annotations

from typing import Any

import iop
from iop.edge.config import EdgeConfig
from iop.edge.config.model import Node, Provider
from iop.edge.nodes.registry import Entry
from iop.edge.pool.admission import Resource
from iop.edge.runs import Runs
from iop.model import Health


def status(config: EdgeConfig, revision: str, uptime: float, runs: Runs) -> dict[str, Any]:
    """The whole status; every list in the order of the configuration.

    :param uptime: in seconds.
    """
    resources = runs.pool.resources
    return {
        "edge": {"id": config.edge.id, "name": config.edge.name},
        "version": iop.__version__,
        "uptime_ms": int(uptime * 1000),
        "revision": revision,
        "draining": runs.draining,
        "in_flight": len(runs.active),
        "nodes": [_node(runs.nodes.entries[node.id]) for node in config.nodes],
        "providers": [
            _provider(node, provider, resources[provider.id]) for node in config.nodes for provider in node.providers
        ],
        "models": [
            {
                "id": model.id,
                "display_name": model.display_name,
                "providers": [
                    {"id": each.id, "node_id": each.node_id, "target": each.target} for each in model.providers
                ],
            }
            for model in config.models
        ],
    }


def _node(entry: Entry) -> dict[str, Any]:
    link = entry.link
    return {
        "id": entry.node.id,
        "alias": entry.node.alias,
        "connected": link is not None,
        "ready": link is not None and link.ready,
        "draining": link is not None and link.draining,
        "hostname": entry.hostname,
        "agent_version": entry.agent_version,
        "revision": "" if link is None else link.revision,
    }


def _provider(node: Node, provider: Provider, resource: Resource) -> dict[str, Any]:
    """A provider's ``ProviderSnapshot`` (``docs/contracts/wire.md``)."""
    return {
        "node_id": node.id,
        "provider_id": provider.id,
        "type": provider.type,
        "category": provider.category,
        "status": _availability(resource),
        "health": _health(resource).value,
        "models": sorted(provider.models),
        "capacity": resource.capacity if resource.enabled else 0,
        "in_flight": resource.in_flight,
        "queued": 0,
        "long_context_capacity": resource.long_capacity if resource.enabled else 0,
        "long_in_flight": 0,
        "long_queued": 0,
        "priority": resource.priority,
    }


def _availability(resource: Resource) -> str:
    if not resource.enabled:
        return "disabled"
    return "online" if resource.reachable else "offline"


def _health(resource: Resource) -> Health:
    if not resource.enabled:
        return Health.DISABLED
    if resource.unconfirmed and resource.health is not Health.DOWN:
        return Health.DEGRADED
    return resource.health
