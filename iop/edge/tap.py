"""What ``twistd iop-edge`` runs: the only place that puts an edge together."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.logger import ILogObserver
from twisted.python import usage

from iop import logs
from iop.edge.accesslog import AccessLog
from iop.edge.config import STATE_DIR_WORDS, ConfigError, default_state_dir, load
from iop.edge.config import model as config
from iop.edge.ledger.ledger import Ledger, make_ledger
from iop.edge.listeners import ConsoleListener, MetricsListener, NodeListener, OpenAIListener
from iop.edge.metrics.lag import Lag
from iop.edge.metrics.recorder import Metrics
from iop.edge.nodes.registry import Registry
from iop.edge.pool.pool import Pool
from iop.edge.refresh.apply import Refresher
from iop.edge.runs import Runs
from iop.edge.surfaces import console, metrics
from iop.edge.surfaces.console import Console
from iop.edge.surfaces.gauges import readings
from iop.edge.surfaces.metrics import MetricsPage
from iop.edge.surfaces.openai.surface import OpenAISurface
from iop.edge.surfaces.status import pool_status, reports_of, status
from iop.errors import Failure
from iop.http.server import Limits, Server
from iop.interfaces import IRecorder
from iop.process import fatal, reload_on_hangup, settle, stop_on_signals
from iop.reactor import install as install_reactor
from iop.services import Drain, OrderedServices


class Edge(OrderedServices):
    """An edge: its parts, started in order, stopped from the surfaces down.

    :param settings: a configuration that :func:`iop.edge.config.load` has accepted.
    :param failed: told why it could not start.
    :param files: what it was loaded from, which a refresh loads again.
    :param state_dir: what it was loaded with.
    :ivar observer: writes the log of the application that it is given to; None leaves that to the application.
    :ivar recorders: every :class:`iop.interfaces.IRecorder`: told of each request when it is over.
    """

    def __init__(
        self,
        settings: config.EdgeConfig,
        reactor: Any,
        failed: Any = fatal,
        *,
        files: Sequence[str] = (),
        state_dir: Path | None = None,
    ) -> None:
        self.drain = Drain(reactor)
        self.observer: Any = None
        self.nodes = Registry(settings.nodes, heartbeat_ms=settings.heartbeat_ms, clock=reactor)
        self.pool = Pool(settings, reactor)
        self.recorders: list[IRecorder] = [AccessLog()]
        self.runs = Runs(settings, self.pool, self.nodes, reactor, recorders=self.recorders)
        self.ledger: Ledger | None = None
        if settings.ledger.url != "none":
            where = state_dir or default_state_dir(os.environ)
            self.ledger = make_ledger(settings.ledger.url, where, reactor, time.time, random.random)
            self.recorders.append(self.ledger)
        self.node_listener = NodeListener(settings.listen, self.nodes, reactor)
        self.openai: OpenAIListener | None = None
        surfaces: list[OpenAISurface] = []
        if settings.openai is not None:
            limits = Limits(body=settings.openai.max_body_bytes, stall_timeout=settings.openai.stall_timeout_ms / 1000)
            surfaces.append(OpenAISurface(settings, self.runs, reactor))
            server = Server(surfaces[0], reactor, limits)
            self.openai = OpenAIListener(
                settings.openai.listen, server, self.runs, self.drain, settings.drain_timeout_ms, reactor
            )
        self.refresher = Refresher(
            settings,
            files=files,
            load=partial(load, environ=os.environ, state_dir=state_dir),
            nodes=self.nodes,
            parts=[self.pool, *surfaces],
            judge=self.runs.judge_pending,
            elsewhere=partial(_in_thread, reactor),
        )
        self._begun = reactor.seconds()
        self._reactor = reactor
        asked = Console(
            lambda: Deferred.fromCoroutine(self.status()),
            self.pool_status,
            self.runs.explain,
            self.nodes.query,
            self.nodes.end_session,
            self.refresher,
            self.usage,
        )
        operators = Server(asked, reactor, console.LIMITS)
        self.console = ConsoleListener(settings.console.listen, operators, reactor)
        # the console is first: that nobody answers there shows that the state directory is no other edge's
        children = [self.console, self.ledger, *self._measured(settings), self.node_listener, self.openai]
        super().__init__([each for each in children if each is not None], failed)

    def _measured(self, settings: config.EdgeConfig) -> list[Service]:
        """Count and measure, and show it, if that is configured."""
        if settings.metrics is None:
            return []
        counted = Metrics(time.time)
        counted.read = lambda: readings(self.refresher.running, self.runs, self.ledger)
        self.recorders.append(counted)
        self.refresher.told = lambda result: counted.refreshed(result.status.value)
        page = MetricsPage(counted, partial(_in_thread, self._reactor))
        server = Server(page, self._reactor, metrics.LIMITS)
        return [
            MetricsListener(settings.metrics.listen, server, self._reactor),
            Lag(self._reactor, counted.lagged),
        ]

    # Called by Twisted.

    def setServiceParent(self, parent: Any) -> None:
        super().setServiceParent(parent)
        if self.observer is not None:
            parent.setComponent(ILogObserver, self.observer)

    async def status(self) -> dict[str, Any]:
        """What it is doing now, its nodes asked how they are."""
        uptime = self._reactor.seconds() - self._begun
        reports = await reports_of(self.nodes)
        return status(self.refresher.running, self.refresher.revision, uptime, self.runs, reports)

    def usage(self, since: str, until: str, by: str) -> Deferred[dict[str, Any]]:
        """What finished runs used, in an operator's words."""
        if self.ledger is None:
            message = "this edge keeps no usage: its configuration has `ledger.url: none`"
            raise Failure("ledger_off", message, http_status=409)
        return Deferred.fromCoroutine(self.ledger.usage(since, until, by))

    def pool_status(self) -> dict[str, Any]:
        """How its providers are, and who waits for them."""
        return pool_status(self.refresher.running, self.pool)


def _in_thread(reactor: Any, pure: Any, *arguments: Any) -> Deferred[Any]:
    return deferToThreadPool(reactor, reactor.getThreadPool(), pure, *arguments)


class Options(usage.Options):
    """The command line of ``twistd iop-edge``."""

    synopsis = "[options]"
    optParameters = [
        ["state-dir", None, None, f"Where the edge keeps what must outlive it [default: {STATE_DIR_WORDS}]."],
    ]

    def __init__(self) -> None:
        install_reactor()  # before anything can import another one
        super().__init__()
        self["config"] = []

    def opt_config(self, path: str) -> None:
        """A configuration file; may be given again, later files overlay earlier ones."""
        self["config"].append(path)

    def parseArgs(self, *words: str) -> None:
        if words:
            raise usage.UsageError(f"did you mean --config {words[0]}?")

    def postOptions(self) -> None:
        """Load the configuration before anything opens or daemonises."""
        if not self["config"]:
            raise usage.UsageError("--config FILE is needed")
        chosen = self["state-dir"]
        self["state-dir"] = Path(os.path.expanduser(chosen)).absolute() if chosen else default_state_dir(os.environ)
        try:
            loaded = load(self["config"], environ=os.environ, state_dir=self["state-dir"])
        except ConfigError as error:
            raise usage.UsageError("the configuration is refused:\n" + str(error)) from None
        for warning in loaded.warnings:
            print(f"warning: {warning}", file=sys.stderr)  # noqa: T201 - logging is not up yet
        self["settings"] = loaded.config
        self["files"] = [os.path.abspath(file) for file in self["config"]]  # twistd may leave this directory
        try:
            self["state-dir"].mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise usage.UsageError(f"--state-dir cannot be made: {error.strerror}") from None


def makeService(options: Options) -> Edge:
    """Return the edge that the options describe."""
    from twisted.internet import reactor

    settings: config.EdgeConfig = options["settings"]
    edge = Edge(settings, reactor, files=options["files"], state_dir=options["state-dir"])
    if options.parent is not None:
        edge.observer = logs.of_twistd(options.parent, settings.logging.level, settings.logging.format)
    stop_on_signals(reactor, edge.drain.hurry)
    reload_on_hangup(reactor, edge.refresher.hang_up)
    settle(reactor)
    return edge
