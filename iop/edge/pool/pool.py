"""The slots of every provider, and the leases on them. Admission belongs to the edge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from zope.interface import implementer

from iop.edge.config import model as config
from iop.edge.pool.admission import Resource, choose
from iop.errors import Failure
from iop.interfaces import IRefreshable
from iop.model import Health

_RETRY_AFTER_MS = 1000


@dataclass(slots=True)
class Group:
    """A model and the providers that may serve it, in the order of the configuration."""

    model: str
    resources: tuple[Resource, ...]
    order: tuple[str, ...]
    targets: dict[str, str]
    last: str | None = None


class Lease:
    """The right to one slot, from admission until :meth:`release`; a second release is nothing."""

    __slots__ = ("_held", "resource", "target")

    def __init__(self, resource: Resource, target: str) -> None:
        self.resource = resource
        self.target = target
        self._held = True
        resource.in_flight += 1

    def release(self) -> None:
        """Give the slot back."""
        if self._held:
            self._held = False
            self.resource.in_flight -= 1


class Prepared(NamedTuple):
    """What another configuration makes of the pool: settings by provider, and model groups."""

    settings: dict[str, dict[str, Any]]
    groups: dict[str, Group]


@implementer(IRefreshable)
class Pool:
    """Admits runs to providers.

    :param models: the model groups.
    :param nodes: whose providers are the resources.
    """

    def __init__(self, models: Iterable[config.ModelGroup], nodes: Iterable[config.Node]) -> None:
        self.resources = {
            provider.id: Resource(node_id=node.id, provider_id=provider.id, **_settings(node, provider))
            for node in nodes
            for provider in node.providers
        }
        self.groups = self._grouped(models)

    def _grouped(self, models: Iterable[config.ModelGroup]) -> dict[str, Group]:
        return {
            model.id: Group(
                model.id,
                tuple(self.resources[provider.id] for provider in model.providers),
                tuple(provider.id for provider in model.providers),
                {provider.id: provider.target for provider in model.providers},
            )
            for model in models
        }

    def admit(self, model: str) -> Lease:
        """Take a slot for a run of ``model``.

        :raises Failure: ``model_not_found``, ``no_provider`` or ``queue_full``.
        """
        group = self.groups.get(model)
        if group is None:
            raise Failure("model_not_found", "the model does not exist", param="model")
        candidates = [resource for resource in group.resources if resource.candidate]
        if not candidates:
            raise Failure("no_provider", "no provider of the model is up", retry_after_ms=_RETRY_AFTER_MS)
        chosen = choose(candidates, group.order, group.last)
        if chosen is None:
            raise Failure("queue_full", "every slot of the model is taken", retry_after_ms=_RETRY_AFTER_MS)
        group.last = chosen.provider_id
        return Lease(chosen, group.targets[chosen.provider_id])

    # ---- IRefreshable: resources stay, so that leases in hand do ------------------------------------------------

    def prepare(self, config: config.EdgeConfig) -> Prepared:
        """Make the new groups; :raises Failure: for providers that come or go, which a restart alone can do."""
        settings = {provider.id: _settings(node, provider) for node in config.nodes for provider in node.providers}
        if settings.keys() != self.resources.keys():
            raise Failure("internal", "providers come and go with a restart only")
        return Prepared(settings, self._grouped(config.models))

    def commit(self, token: Prepared) -> None:
        """Go over; a capacity may now be less than what is in flight, and who was served last is remembered."""
        for id, settings in token.settings.items():
            for name, value in settings.items():
                setattr(self.resources[id], name, value)
        for id in token.groups.keys() & self.groups.keys():
            token.groups[id].last = self.groups[id].last
        self.groups = token.groups

    def abandon(self, token: Prepared) -> None:
        """Forget it."""

    def node_changed(self, node_id: str, reachable: bool, health: Callable[[str], Health]) -> None:
        """A node came, went, drains, or said how its providers are."""
        for resource in self.resources.values():
            if resource.node_id == node_id:
                resource.reachable = reachable
                resource.health = health(resource.provider_id)

    @property
    def ready(self) -> bool:
        """Whether any provider of any model group can serve."""
        return any(resource.candidate for group in self.groups.values() for resource in group.resources)

    @property
    def in_flight(self) -> int:
        """Leases held, all providers together."""
        return sum(resource.in_flight for resource in self.resources.values())


def _settings(node: config.Node, provider: config.Provider) -> dict[str, Any]:
    """What a configuration says of a resource."""
    return {
        "adapter": provider.adapter,
        "capacity": provider.capacity,
        "long_capacity": provider.long_context_capacity,
        "priority": provider.priority,
        "enabled": provider.enabled,
        "cancel_patience": _cancel_patience(node, provider),
    }


def _cancel_patience(node: config.Node, provider: config.Provider) -> float:
    """The longer of 10 s and the adapter's grace time and 5 s more."""
    settings = next((adapter.settings for adapter in node.adapters if adapter.name == provider.adapter), {})
    grace_ms = settings.get("grace_ms") or 0
    return max(10.0, grace_ms / 1000 + 5.0)
