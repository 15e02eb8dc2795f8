"""Where an edge listens: for nodes, operators, Prometheus and clients. Each opens and closes with its service."""

from __future__ import annotations

import os
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger

from iop import endpoints
from iop.edge.nodes.registry import Registry
from iop.edge.runs import Runs
from iop.errors import Failure
from iop.http.server import Server
from iop.services import Drain
from iop.sockets import listen
from iop.unixsocket import listen_privately


class NodeListener(Service):
    """Where nodes connect."""

    log = Logger()

    def __init__(self, endpoint: str, nodes: Registry, reactor: Any) -> None:
        self._endpoint = endpoint
        self._nodes = nodes
        self._reactor = reactor
        self.port: IListeningPort | None = None

    async def startService(self) -> None:
        super().startService()
        self.port = await listen(self._reactor, self._endpoint, self._nodes.factory())
        self.log.info("nodes connect to {where}", where=self._endpoint)

    async def stopService(self) -> None:
        super().stopService()
        if self.port is not None:
            await maybeDeferred(self.port.stopListening)
        self._nodes.close()


class ConsoleListener(Service):
    """Where this machine's operators connect."""

    log = Logger()

    def __init__(self, endpoint: str, server: Server, reactor: Any) -> None:
        parameters = endpoints.server(endpoint).parameters
        self._path, self._mode = parameters["address"], int(parameters.get("mode", "600"), 8)
        self._server = server
        self._reactor = reactor
        self._file = (0, 0)
        self.port: Any = None

    async def startService(self) -> None:
        super().startService()
        self.port = await listen_privately(self._reactor, self._path, self._mode, self._server)
        self._file = _identity(self._path)
        self.log.info("the console is at {where}", where=self._path)

    async def stopService(self) -> None:
        super().stopService()
        if self.port is not None and _identity(self._path) == self._file:
            await maybeDeferred(self.port.stopListening)
        elif self.port is not None:  # its file is gone, or another edge's by now: leave that alone
            self.port.stopReading()
            self.port.socket.close()
        self._server.abort_all()


def _identity(path: str) -> tuple[int, int]:
    """Return what tells a file from another one of its name; zeros for none."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


class MetricsListener(Service):
    """Where Prometheus scrapes."""

    log = Logger()

    def __init__(self, endpoint: str, server: Server, reactor: Any) -> None:
        self._endpoint = endpoint
        self._server = server
        self._reactor = reactor
        self.port: IListeningPort | None = None

    async def startService(self) -> None:
        super().startService()
        self.port = await listen(self._reactor, self._endpoint, self._server)
        self.log.info("the metrics are at {where}", where=self._endpoint)

    async def stopService(self) -> None:
        super().stopService()
        if self.port is not None:
            await maybeDeferred(self.port.stopListening)
        self._server.abort_all()


class OpenAIListener(Service):
    """Where OpenAI clients connect; stopping it lets running requests finish."""

    log = Logger()

    def __init__(self, endpoint: str, server: Server, runs: Runs, drain: Drain, drain_ms: int, reactor: Any) -> None:
        self._endpoint = endpoint
        self._server = server
        self._runs = runs
        self._drain = drain
        self._drain_ms = drain_ms
        self._reactor = reactor
        self.port: IListeningPort | None = None

    async def startService(self) -> None:
        super().startService()
        self.port = await listen(self._reactor, self._endpoint, self._server)
        self.log.info("the OpenAI surface is at {where}", where=self._endpoint)

    async def stopService(self) -> None:
        super().stopService()
        self._runs.draining = True
        if self.port is not None:
            await maybeDeferred(self.port.stopListening)
        self._server.close_idle()
        await self._drain.wait(lambda: not self._server.connections, self._drain_ms / 1000)
        for run in list(self._runs.active):
            run.stop(Failure("draining", "the edge is shutting down", retry_after_ms=1000))
        self._server.close_idle()
        await self._drain.wait(lambda: not self._server.connections, 1.0)
        self._server.abort_all()
