"""What a configuration says of the pool: its resources, its model groups, its policy. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from iop.edge.config import model as config
from iop.edge.pool.admission import Group, Resource
from iop.settings import BESIDE_EVENTS, NATIVE_APIS, NORMALIZED, WITHOUT_SESSIONS


class Policy(NamedTuple):
    """What holds for every run; ``queue_timeout_ms`` 0 is no limit."""

    max_queue: int
    queue_timeout_ms: int
    long_threshold: int


class Prepared(NamedTuple):
    """What another configuration makes of a running pool: settings by provider, model groups, and the policy."""

    settings: dict[str, dict[str, Any]]
    groups: dict[str, Group]
    policy: Policy


def resources_of(settings: config.EdgeConfig) -> dict[str, Resource]:
    """Return a resource for every provider."""
    return {
        provider.id: Resource(node_id=node.id, provider_id=provider.id, **_settings(node, provider))
        for node in settings.nodes
        for provider in node.providers
    }


def prepared(settings: config.EdgeConfig, resources: Mapping[str, Resource]) -> Prepared:
    """Return what a configuration with these very providers makes of a pool.

    :raises KeyError: for a provider without a resource.
    """
    return Prepared(
        {provider.id: _settings(node, provider) for node in settings.nodes for provider in node.providers},
        {
            model.id: Group(
                model.id,
                tuple(resources[provider.id] for provider in model.providers),
                {provider.id: provider.target for provider in model.providers},
                model.context_window_tokens or 0,
            )
            for model in settings.models
        },
        Policy(
            settings.provider_pool.max_queue,
            settings.provider_pool.queue_timeout_ms,
            settings.long_context_threshold_tokens,
        ),
    )


def _settings(node: config.Node, provider: config.Provider) -> dict[str, Any]:
    """What a configuration says of a resource."""
    return {
        "adapter": provider.adapter,
        "capacity": provider.capacity,
        "long_capacity": provider.long_context_capacity,
        "priority": provider.priority,
        "enabled": provider.enabled,
        "sessions": _keeps_sessions(node, provider),
        "native": native_apis(provider.runtime_type, _apis(provider)),
        "once": provider.runtime_type == "cli",
        "cancel_patience": _cancel_patience(node, provider),
    }


def native_apis(runtime_type: str, apis: Iterable[str] = ()) -> frozenset[str]:
    """Return the APIs of which runs travel as bytes to a provider; what is not there is answered by events."""
    if runtime_type in NORMALIZED:
        return BESIDE_EVENTS.get(runtime_type, frozenset())
    return _PASSING | frozenset(apis)


def _apis(provider: config.Provider) -> Iterable[str]:
    """The translated APIs that a provider has itself."""
    if provider.apis is not None or provider.runtime_type != "openai_compat":
        return provider.apis or ()
    return NATIVE_APIS.get(provider.type) or NATIVE_APIS.get(provider.provider, ())


_PASSING: Final = frozenset({"chat", "completion", "embedding", "passthrough"})
"""What every backend of the OpenAI HTTP API may have."""


def _keeps_sessions(node: config.Node, provider: config.Provider) -> bool:
    """Whether its adapter may keep conversations; a drop-in may."""
    if provider.runtime_type == "cli":
        return bool(_adapter_settings(node, provider).get("mode") == "session")
    return provider.runtime_type not in WITHOUT_SESSIONS


def _adapter_settings(node: config.Node, provider: config.Provider) -> Mapping[str, Any]:
    return next((adapter.settings for adapter in node.adapters if adapter.name == provider.adapter), {})


def _cancel_patience(node: config.Node, provider: config.Provider) -> float:
    """The longer of 10 s and the adapter's grace time and 5 s more."""
    grace_ms = _adapter_settings(node, provider).get("grace_ms") or 0
    return max(10.0, grace_ms / 1000 + 5.0)
