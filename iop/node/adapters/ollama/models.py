"""What ``/api/tags`` says. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

_NEWEST: Final = ":latest"
"""What a name without a tag stands for."""


def model_names(body: bytes) -> list[str]:
    """Return the names in an ``/api/tags`` document, none when it is something else."""
    return [entry["name"] for entry in _entries(body)]


def tools_of(body: bytes) -> dict[str, bool]:
    """Return whether models know tools, by each name that they are asked for; older servers say it of none."""
    told = {
        entry["name"]: "tools" in entry["capabilities"]
        for entry in _entries(body)
        if isinstance(entry.get("capabilities"), list)
    }
    return told | {name.removesuffix(_NEWEST): knows for name, knows in told.items()}


def _entries(body: bytes) -> list[dict[str, Any]]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return []
    models = said.get("models") if isinstance(said, dict) else None
    entries = [entry for entry in models if isinstance(entry, dict)] if isinstance(models, list) else []
    return [entry for entry in entries if isinstance(entry.get("name"), str) and entry["name"]]
