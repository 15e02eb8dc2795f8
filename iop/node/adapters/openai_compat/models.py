"""What ``/v1/models`` says. Pure."""

from __future__ import annotations

import json


def model_ids(body: bytes) -> list[str]:
    """Return the ids in a ``/v1/models`` document, none when it is something else."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return []
    data = said.get("data") if isinstance(said, dict) else None
    entries = data if isinstance(data, list) else []
    ids = [entry.get("id") for entry in entries if isinstance(entry, dict)]
    return [id for id in ids if isinstance(id, str) and id]
