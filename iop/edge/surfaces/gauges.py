"""How an edge is at this moment, as readings of its gauges. ``docs/metrics.md``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from iop.edge.config import EdgeConfig
from iop.edge.ledger.ledger import Ledger
from iop.edge.metrics import names
from iop.edge.metrics.live import Reading
from iop.edge.nodes.registry import Entry
from iop.edge.pool.pool import Pool
from iop.edge.runs import Runs

_STATES: Final = ("online", "draining", "pending", "offline")


def readings(config: EdgeConfig, runs: Runs, ledger: Ledger | None = None) -> Iterator[Reading]:
    """Read every gauge.

    :param config: the one in force.
    """
    if ledger is not None:
        yield Reading(names.LEDGER_AWAY, (), ledger.away)
        yield Reading(names.LEDGER_DROPPED, (), ledger.dropped)
    yield from _of_runs(config, runs)
    yield from _of_models(runs.pool)
    entries = [runs.nodes.entries[node.id] for node in config.nodes]
    states = Counter(map(_state, entries))
    for state in _STATES:
        yield Reading(names.NODES, (state,), states[state])
    taken, slots = _slots(runs.pool)
    for entry in entries:
        node = (entry.node.id,)
        yield Reading(names.NODE_UP, node, entry.usable)
        yield Reading(names.NODE_IN_FLIGHT, node, taken[entry.node.id])
        yield Reading(names.NODE_CAPACITY, node, slots[entry.node.id])
        if entry.link is not None and entry.link.wire is not None:
            yield Reading(names.LINK_BYTES, (*node, "in"), entry.link.wire.bytes_in)
            yield Reading(names.LINK_BYTES, (*node, "out"), entry.link.wire.bytes_out)


def _of_runs(config: EdgeConfig, runs: Runs) -> Iterator[Reading]:
    """The runs of every model that there is, and of those that a refresh took away while they ran."""
    waiting: Counter[str] = Counter()
    for lane in runs.pool.queue.lanes():
        waiting[lane.model] += len(lane.claims)
    there = Counter(run.model for run in runs.active)
    routes = config.openai.model_routes if config.openai is not None else ()
    models = dict.fromkeys([*(model.id for model in config.models), *(route.model for route in routes), *there])
    for model in models:
        yield Reading(names.IN_FLIGHT, (model,), there[model] - waiting[model])
        yield Reading(names.QUEUED, (model,), waiting[model])


def _of_models(pool: Pool) -> Iterator[Reading]:
    for model, group in pool.groups.items():
        enabled = [resource.candidate for resource in group.resources if resource.enabled]
        yield Reading(names.REPLICAS, (model, "ready"), sum(enabled))
        yield Reading(names.REPLICAS, (model, "down"), len(enabled) - sum(enabled))


def _slots(pool: Pool) -> tuple[Counter[str], Counter[str]]:
    """Slots taken, and slots that there are, by node."""
    taken: Counter[str] = Counter()
    slots: Counter[str] = Counter()
    for resource in pool.resources.values():
        taken[resource.node_id] += resource.in_flight
        slots[resource.node_id] += resource.capacity if resource.enabled else 0
    return taken, slots


def _state(entry: Entry) -> str:
    """``pending``: connected, but its payload is not acknowledged, or it does not read."""
    if entry.link is None:
        return "offline"
    if entry.link.draining:
        return "draining"
    return "online" if entry.usable else "pending"
