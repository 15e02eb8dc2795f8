"""The older queue policy: per-provider values, promoted to the root when they are all the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from iop.edge.config.problems import Report
from iop.edge.config.tree import Path
from iop.edge.config.walk import each, entries, listed

#: What 0 and absence mean.
MAX_QUEUE: Final = 16
QUEUE_TIMEOUT_MS: Final = 30000

Pair = tuple[int, int]


def promoted(document: Mapping[str, Any], report: Report) -> dict[str, int] | None:
    """The root policy that the providers of the model groups agree on; None when there is nothing to promote.

    Read from a checked document without the key ``provider_pool``.
    """
    asked = _asked(document)
    pairs: list[tuple[str, Pair, Path]] = []
    for node, node_path in each(document.get("nodes"), ("nodes",)):
        for provider, path in each(node.get("providers"), (*node_path, "providers")):
            pair = _pair(provider)
            if provider["id"] in asked and pair is not None:
                pairs.append((provider["id"], pair, path))
    if not pairs:
        return None
    first, policy, _ = pairs[0]
    differing = [(name, path) for name, pair, path in pairs if pair != policy]
    if differing:
        report.error(
            differing[0][1],
            "queue_policy_conflict",
            f"max_queue and queue_timeout_ms must be the same at every provider of a model, and those of {first} are "
            f"not those of {', '.join(name for name, _ in differing)}: set provider_pool instead",
        )
        return None
    return {"max_queue": policy[0], "queue_timeout_ms": policy[1]}


def _asked(document: Mapping[str, Any]) -> frozenset[str]:
    """The providers any model group references."""
    named = [
        entry["id"] if isinstance(entry, dict) else entry
        for group in entries(document.get("models"))
        for entry in listed(group.get("providers"))
    ]
    return frozenset(name for name in named if isinstance(name, str))


def _pair(provider: Mapping[str, Any]) -> Pair | None:
    """A provider's effective pair; None when a value of it was refused."""
    queue = provider.get("max_queue", 0)
    timeout = provider.get("queue_timeout_ms", QUEUE_TIMEOUT_MS)
    if not isinstance(queue, int) or not isinstance(timeout, int):
        return None
    return queue or MAX_QUEUE, timeout
