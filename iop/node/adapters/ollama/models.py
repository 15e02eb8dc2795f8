"""What ``/api/tags`` says. Pure."""

from __future__ import annotations

import json


def model_names(body: bytes) -> list[str]:
    """Return the names in an ``/api/tags`` document, none when it is something else."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return []
    models = said.get("models") if isinstance(said, dict) else None
    entries = models if isinstance(models, list) else []
    names = [entry.get("name") for entry in entries if isinstance(entry, dict)]
    return [name for name in names if isinstance(name, str) and name]
