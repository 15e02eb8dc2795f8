"""References: which adapter a provider or a route means, and which target a model group asks a provider for.

Pure answers. ``None`` is "no answer, and nothing to say": what would decide it was refused already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iop.edge.config.model_nodes import runtime_type
from iop.edge.config.walk import entries, whole


@dataclass(frozen=True, slots=True)
class Fault:
    """A reference that leads nowhere, or to the wrong thing."""

    code: str
    message: str


Entry = Mapping[str, Any]


def adapter(reference: str, adapters: Any, runtime: str | None = None) -> str | Fault | None:
    """The instance a reference means, of a node's adapter entries: by its name, or by its type if that is enough.

    :param runtime: the type the instance must have.
    """
    found = _adapter(reference, entries(adapters), runtime)
    if isinstance(found, Fault) and not whole(adapters, "name", "type", "enabled"):
        return None
    return found


def _adapter(reference: str, adapters: Sequence[Entry], runtime: str | None) -> str | Fault:
    for entry in adapters:
        if entry.get("name") == reference:
            return _usable(entry, runtime)
    kind = runtime_type(reference)
    enabled = [entry for entry in adapters if entry.get("type") == kind and entry.get("enabled", True) is True]
    if not enabled:
        return Fault("unknown_adapter", "must name an enabled adapter instance of the node")
    if len(enabled) > 1:
        return Fault(
            "ambiguous_adapter", "the node has several enabled instances of this type: name one of the instances"
        )
    return _usable(enabled[0], runtime)


def _usable(entry: Entry, runtime: str | None) -> str | Fault:
    if entry.get("enabled", True) is not True:
        return Fault("unknown_adapter", "must name an enabled adapter instance; the one of this name is disabled")
    if runtime is not None and entry.get("type") != runtime:
        return Fault("conflict", "must name an instance of the provider's runtime type")
    return str(entry["name"])


def routed(reference: str, nodes: Iterable[Entry]) -> str | Fault | None:
    """The instance name a route's adapter means, over the nodes it may go to."""
    answers = [adapter(reference, node.get("adapters", [])) for node in nodes]
    names = list(dict.fromkeys(answer for answer in answers if isinstance(answer, str)))
    if reference in names or len(names) == 1:
        return reference if reference in names else names[0]
    if names:
        return Fault("ambiguous_adapter", "its nodes name their instances of this type differently: name the instance")
    if None in answers:
        return None
    faults = [answer for answer in answers if isinstance(answer, Fault)]
    ambiguous = next((fault for fault in faults if fault.code == "ambiguous_adapter"), None)
    return ambiguous or Fault("unknown_adapter", "must name an adapter instance that is enabled on a node")


def target(model: Any, explicit: Any, served: Any) -> str | Fault | None:
    """What a provider that serves these names is asked for on behalf of a model."""
    names = served if isinstance(served, list) else [None]
    if isinstance(explicit, str) and explicit in names:
        return explicit
    if explicit is None and isinstance(model, str) and model in names:
        return model
    if not all(isinstance(name, str) for name in names):
        return None
    if isinstance(explicit, str):
        return Fault("unknown_reference", "must be one of the provider's models")
    if explicit is not None or (not isinstance(model, str) and len(names) != 1):
        return None
    if len(names) == 1:
        return str(names[0])
    return Fault("unknown_reference", "the provider does not serve this model: give the target, one of its models")
