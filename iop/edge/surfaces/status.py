"""Status: what an edge is doing, as one document. ``docs/contracts/console.md``, Status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from twisted.internet.defer import DeferredList

import iop
from iop.edge.config import EdgeConfig
from iop.edge.config.model import Node, Provider
from iop.edge.nodes.registry import Entry, Registry
from iop.edge.pool.admission import Resource
from iop.edge.pool.pool import Pool
from iop.edge.runs import Runs
from iop.model import CommandType, Health

PATIENCE: Final = 1.0
"""Seconds that a status waits for what nodes say: one that hangs must not hide how the others are."""


Reports = Mapping[str, Mapping[str, Any]]
"""What nodes say of themselves: by the node's id, then by the name of the query; what one did not answer is missing."""


async def reports_of(nodes: Registry) -> Reports:
    """Ask every node that is there everything that it can be asked."""
    there = [node_id for node_id, entry in nodes.entries.items() if entry.usable]
    questions = [(node_id, query) for node_id in there for query in CommandType]
    asked = await DeferredList([nodes.query(*each, PATIENCE) for each in questions], consumeErrors=True)
    reports: dict[str, dict[str, Any]] = {node_id: {} for node_id in there}
    for (node_id, query), (answered, report) in zip(questions, asked, strict=True):
        if answered:
            reports[node_id][query.lower()] = report
    return reports


def status(config: EdgeConfig, revision: str, uptime: float, runs: Runs, reports: Reports) -> dict[str, Any]:
    """The whole status; every list in the order of the configuration.

    :param uptime: in seconds.
    """
    return {
        "edge": {"id": config.edge.id, "name": config.edge.name},
        "version": iop.__version__,
        "uptime_ms": int(uptime * 1000),
        "revision": revision,
        "draining": runs.draining,
        "in_flight": len(runs.active) - runs.pool.queue.size,
        "queued": runs.pool.queue.size,
        "nodes": [_node(runs.nodes.entries[node.id], reports.get(node.id, {})) for node in config.nodes],
        "providers": snapshots(config, runs.pool),
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


def _node(entry: Entry, reports: Mapping[str, Any]) -> dict[str, Any]:
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
        **{query.lower(): reports.get(query.lower()) for query in CommandType},
        "sessions": _counted(reports.get("sessions")),
    }


def _counted(report: Mapping[str, Any] | None) -> dict[str, int] | None:
    """Sessions by their state: there may be thousands of them, and ``node ask`` shows each."""
    return None if report is None else dict(sorted(Counter(each["state"] for each in report["sessions"]).items()))


def pool_status(config: EdgeConfig, pool: Pool) -> dict[str, Any]:
    """The providers, and who waits for them, by model, the oldest first."""
    now = pool.now()
    waiting: dict[str, list[int]] = {}
    for claim in pool.queue:
        waiting.setdefault(claim.model, []).append(claim.waited + now - claim.since)
    return {
        "queued": pool.queue.size,
        "max_queue": pool.policy.max_queue,
        "queue_timeout_ms": pool.policy.queue_timeout_ms,
        "providers": snapshots(config, pool),
        "reasons": {r.name: why for r in pool.resources.values() if (why := _reason(r))},
        "models": [
            {
                "id": model.id,
                "queued": len(waiting.get(model.id, ())),
                "longest_wait_ms": max(waiting.get(model.id, ()), default=0),
                "service_ms": round(pool.groups[model.id].service_ms),
            }
            for model in config.models
        ],
    }


def snapshots(config: EdgeConfig, pool: Pool) -> list[dict[str, Any]]:
    """Every provider's ``ProviderSnapshot`` (``docs/contracts/wire.md``), in the order of the configuration."""
    return [
        _provider(node, provider, pool.resources[provider.id], pool)
        for node in config.nodes
        for provider in node.providers
    ]


def _provider(node: Node, provider: Provider, resource: Resource, pool: Pool) -> dict[str, Any]:
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
        "queued": pool.queued(resource),
        "long_context_capacity": resource.long_capacity if resource.enabled else 0,
        "long_in_flight": resource.long_in_flight,
        "long_queued": pool.queued(resource, long=True),
        "priority": resource.priority,
    }


def _availability(resource: Resource) -> str:
    if not resource.enabled:
        return "disabled"
    return "online" if resource.reachable else "offline"


def _reason(resource: Resource) -> str:
    """Why a provider is not well, in words; "" for one that is, or of which nobody knows."""
    if not resource.enabled or not resource.reachable:
        return ""
    if resource.connecting.shut:
        return "runs could not connect to its backend"
    if resource.health is Health.DOWN:
        return resource.said
    if resource.connecting.on_trial:
        return "runs could not connect to its backend; the next one tries"
    return "a cancelled run never ended" if resource.unconfirmed else resource.said


def _health(resource: Resource) -> Health:
    if not resource.enabled:
        return Health.DISABLED
    if resource.connecting.shut:
        return Health.DOWN
    if (resource.unconfirmed or resource.connecting.on_trial) and resource.health is not Health.DOWN:
        return Health.DEGRADED
    return resource.health
