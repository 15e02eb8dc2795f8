"""What a node is told: its part of the edge's configuration, as the payload of the wire. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from iop import model as m
from iop.edge.config import model as config


def payload_of(node: config.Node) -> m.NodePayload:
    """Return a node's payload; its revision is the SHA-256 of its canonical JSON."""
    payload = m.NodePayload(
        adapters=tuple(
            m.AdapterConfig(adapter.name, adapter.type, adapter.enabled, _thawed(adapter.settings))
            for adapter in sorted(node.adapters, key=lambda a: a.name)
        ),
        providers=tuple(_provider(provider) for provider in sorted(node.providers, key=lambda p: p.id)),
        concurrency=node.runtime.concurrency or 0,
    )
    canonical = json.dumps(asdict(payload), sort_keys=True, separators=(",", ":"), default=str)
    return replace(payload, revision=hashlib.sha256(canonical.encode()).hexdigest())


def _thawed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A frozen mapping as the plain JSON it came from."""
    plain: dict[str, Any] = json.loads(json.dumps(settings, default=dict))
    return plain


def _provider(provider: config.Provider) -> m.ProviderConfig:
    health = provider.health
    return m.ProviderConfig(
        id=provider.id,
        adapter=provider.adapter,
        type=provider.type,
        provider=provider.provider,
        models=tuple(sorted(provider.models)),
        health=m.HealthCheck(health.interval_ms, health.path or "", health.timeout_ms),
        lifecycle=m.Lifecycle(provider.lifecycle.managed),
    )
