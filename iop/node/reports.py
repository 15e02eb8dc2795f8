"""What a node says when its edge asks how it is. Queries only: none of them runs anything.

``docs/contracts/wire.md`` (Queries).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import iop
from iop import model as m
from iop.interfaces import MOST_SESSIONS
from iop.node.adapterset import AdapterSet
from iop.node.health import Checks
from iop.node.supervisor import Supervisor
from iop.wire.protocol import Link


class Transport(NamedTuple):
    """The link a question came over.

    :ivar since: when it was made, in seconds of the node's clock.
    :ivar reconnects: links made before it.
    :ivar last_loss: why the one before ended; "" for the first.
    """

    link: Link
    since: float
    reconnects: int
    last_loss: str


class Reports:
    """Answers to queries.

    :param adapter_types: names of the plugins found on this machine.
    :param now: returns seconds.
    """

    def __init__(
        self,
        adapters: AdapterSet,
        supervisor: Supervisor,
        checks: Checks,
        adapter_types: tuple[str, ...],
        now: Callable[[], float],
    ) -> None:
        self._adapters = adapters
        self._supervisor = supervisor
        self._checks = checks
        self._adapter_types = adapter_types
        self._now = now
        self._begun = now()

    def answer(self, request: m.NodeCommandRequest, transport: Transport) -> m.NodeCommandResponse:
        """Return the report that is asked for, or an error for a query that nobody knows."""
        make = {
            m.CommandType.USAGE: self._usage,
            m.CommandType.CAPABILITIES: self._capabilities,
            m.CommandType.SESSIONS: self._sessions,
            m.CommandType.TRANSPORT: lambda: self._transport(transport),
            m.CommandType.PROVIDERS: self._providers,
        }.get(request.type)  # type: ignore[call-overload]
        if make is None:
            return m.NodeCommandResponse(request.request_id, error="this node answers no such query")
        report, truncated = make(), False
        if len(report.get("sessions", ())) > MOST_SESSIONS:
            report, truncated = {"sessions": report["sessions"][-MOST_SESSIONS:]}, True
        return m.NodeCommandResponse(request.request_id, "", truncated, {request.type.lower(): report})

    def _usage(self) -> dict[str, Any]:
        supervisor = self._supervisor
        return {
            "uptime_ms": round((self._now() - self._begun) * 1000),
            "runs_total": supervisor.total,
            "runs_active": len(supervisor.runs),
            "runs_failed": supervisor.failed,
            "input_tokens": supervisor.input_tokens,
            "output_tokens": supervisor.output_tokens,
            "resident_bytes": _resident(),
        }

    def _capabilities(self) -> dict[str, Any]:
        adapters = []
        for config in self._adapters.payload.adapters:
            can = self._adapters.capabilities(config.instance)
            if can is not None:
                adapters.append(
                    {
                        "name": config.instance,
                        "type": config.type,
                        "title": can.title,
                        "modes": sorted(can.modes),
                        "endpoints": list(can.endpoints),
                        "sessions": can.sessions,
                        "embeddings": can.embeddings,
                    }
                )
        return {
            "agent_version": iop.__version__,
            "protocol_version": m.PROTOCOL_VERSION,
            "adapters": adapters,
            "adapter_types": list(self._adapter_types),
        }

    def _sessions(self) -> dict[str, Any]:
        return {
            "sessions": [
                {
                    "session_id": each["session_id"],
                    "adapter": each["adapter"],
                    "state": each["state"],
                    "workspace": each["workspace"],
                    "created_ms": round(each["created"] * 1000),
                    "last_used_ms": round(each["last_used"] * 1000),
                }
                for each in sorted(self._adapters.sessions(), key=lambda each: float(each["last_used"]))
            ]
        }

    def _transport(self, transport: Transport) -> dict[str, Any]:
        link = transport.link
        return {
            "connected_ms": round((self._now() - transport.since) * 1000),
            "bytes_in": link.bytes_in,
            "bytes_out": link.bytes_out,
            "frames_in": link.frames_in,
            "frames_out": link.frames_out,
            "reconnects": transport.reconnects,
            "last_loss": transport.last_loss,
        }

    def _providers(self) -> dict[str, Any]:
        """What the node knows of its providers; slots and queues are the edge's."""
        return {
            "providers": [
                {
                    "provider_id": each.id,
                    "type": each.type,
                    "health": self._checks.health_of(each.id).value,
                    "models": list(each.models),
                    "in_flight": self._supervisor.of_provider(each.id),
                }
                for each in self._adapters.payload.providers
            ]
        }


def _resident() -> int:
    """Return bytes of memory that the process holds now; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
