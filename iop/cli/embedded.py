"""The configuration that ``iop up`` runs on: made of what was found, never of what it calls itself. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iop.cli.detect import AGENT_CAPACITY, Agent, Found, public_name


def configuration(
    found: Sequence[Found], token_hash: str, port: int, node_port: int, agents: Sequence[Agent] = ()
) -> dict[str, Any]:
    """Return the edge's configuration for what was found. Models of one name form one group.

    :param port: of the OpenAI endpoint.
    :param node_port: where the node connects.
    """
    adapters: list[dict[str, Any]] = []
    providers: list[dict[str, Any]] = []
    groups: dict[str, list[dict[str, str]]] = {}
    for number, server in enumerate(found, 1):
        name = f"{server.usual.type.replace('_', '-')}-{number}"
        version = "/v1" if server.usual.adapter == "openai_compat" else ""
        adapters.append({"name": name, "type": server.usual.adapter, "base_url": server.base_url + version})
        providers.append(
            {
                "id": name,
                "type": server.usual.type,
                "category": "local_inference",
                "adapter": name,
                "models": sorted(map(_literal, server.models)),
                "capacity": server.usual.capacity,
            }
        )
        for target in server.models:
            group = groups.setdefault(public_name(target), [])
            if all(entry["id"] != name for entry in group):
                group.append({"id": name, "target": _literal(target)})
    for agent in agents:
        adapters.append(
            {
                "name": agent.command,
                "type": "cli",
                "command": agent.command,
                "args": list(agent.args),
                "mode": "session",
                "resume_args": list(agent.resume_args),
                "output_format": agent.output_format,
            }
        )
        providers.append(
            {
                "id": agent.command,
                "type": "cli",
                "category": "cli",
                "adapter": agent.command,
                "models": [agent.model],
                "capacity": AGENT_CAPACITY,
            }
        )
        groups.setdefault(agent.model, []).append({"id": agent.command, "target": agent.model})
    return {
        "edge": {"id": "up", "name": "iop up"},
        "listen": f"tcp:{node_port}:interface=127.0.0.1",
        "openai": {"listen": f"tcp:{port}:interface=127.0.0.1"},
        "nodes": [{"id": "local", "token_hash_sha256": token_hash, "adapters": adapters, "providers": providers}],
        "models": [{"id": id, "providers": group} for id, group in groups.items()],
    }


def _literal(text: str) -> str:
    """Keep a stranger's words from being taken for ``${env:…}`` or ``${file:…}``."""
    return text.replace("${", "$${")
