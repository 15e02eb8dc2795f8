"""What ``twistd iop-node`` runs: the only place that puts a node together."""

from __future__ import annotations

import fcntl
import os
import random
from pathlib import Path
from typing import IO, Any

from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.logger import Logger
from twisted.python import usage

from iop.errors import Failure
from iop.node.adapters import plugin
from iop.node.adapters.cli.processes import reap_orphans
from iop.node.adapterset import AdapterSet
from iop.node.config import NodeSettings, edge_endpoint, read_token, roots
from iop.node.sessions import SessionStore
from iop.node.supervisor import Supervisor
from iop.node.uplink import Uplink
from iop.process import fatal, settle, stop_on_signals
from iop.reactor import install as install_reactor
from iop.services import Drain, OrderedServices
from iop.sockets import dialler, tls_host

DEFAULT_STATE_DIR = "~/.local/state/iop/node"


class Node(OrderedServices):
    """A node: its adapters, its runs, its link.

    :param failed: told why it could not start.
    """

    _log = Logger()

    def __init__(self, settings: NodeSettings, reactor: Any, failed: Any = fatal) -> None:
        """Take the state directory; :raises Failure: when another node has it, or its files are none of ours."""
        self.drain = Drain(reactor)
        self._lock = alone(settings.state_dir)
        sessions = SessionStore(settings.state_dir / "sessions.sqlite3", reactor.seconds)
        self.adapters = AdapterSet(reactor, settings.state_dir, plugin.factory, sessions, settings.workspace_roots)
        self.supervisor = Supervisor(self.adapters, reactor)
        endpoint: IStreamClientEndpoint = dialler(reactor, settings.edge)
        self.uplink = Uplink(
            endpoint,
            settings.token,
            self.adapters,
            self.supervisor,
            self.drain,
            reactor,
            random.random,
            tuple(sorted(plugin.found())),
            tls_host(settings.edge),
            where=settings.edge,
        )
        self._state_dir = settings.state_dir
        super().__init__([self.uplink], failed)

    def startService(self) -> None:
        """Start, but end first what a node before this one left, whether its adapters are still configured or not."""
        left = sum(map(reap_orphans, self._state_dir.glob("adapters/*/children")))
        if left:
            self._log.warn("children of {count} runs were left behind; they are killed", count=left)
        super().startService()


def alone(state_dir: Path) -> IO[str]:
    """Return a lock on a state directory, which its process holds until it ends.

    :raises Failure: when another process has it: two nodes would end each other's children.
    """
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = open(state_dir / "lock", "w", encoding="utf-8")  # noqa: SIM115 - it is held for as long as it is open
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        message = f"another node uses the state directory {state_dir}: give each its own with --state-dir"
        raise Failure("invalid_value", message) from None
    except OSError as error:
        raise Failure("invalid_value", f"the state directory {state_dir} cannot be used: {error.strerror}") from None
    return lock


class Options(usage.Options):
    """The command line of ``twistd iop-node``. Adapters and models are the edge's to say."""

    synopsis = "--edge ENDPOINT [options]"
    optParameters = [
        ["edge", None, None, "The edge's node listener, as in tcp:edge.example:4610 or tls:edge.example:4610."],
        ["token-file", None, None, "A file that holds this node's token and nothing else."],
        ["state-dir", None, DEFAULT_STATE_DIR, "Where the node keeps what must outlive it."],
    ]

    def __init__(self) -> None:
        install_reactor()  # before anything can import another one
        super().__init__()
        self["workspace-root"] = []

    def opt_workspace_root(self, path: str) -> None:
        """A directory under which runs may name their workspace; may be given again."""
        self["workspace-root"].append(path)

    def parseArgs(self, *words: str) -> None:
        if words:
            raise usage.UsageError(f"did you mean --edge {words[0]}?")

    def postOptions(self) -> None:
        """Check everything before anything opens or daemonises."""
        from twisted.internet import reactor

        if not self["edge"]:
            raise usage.UsageError("--edge ENDPOINT is needed, as in tcp:edge.example:4610")
        state_dir = Path(os.path.expanduser(self["state-dir"])).absolute()
        try:
            state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            dialler(reactor, edge_endpoint(self["edge"]))
            self["settings"] = NodeSettings(
                edge=self["edge"],
                token=read_token(self["token-file"], os.environ),
                state_dir=state_dir,
                workspace_roots=roots(self["workspace-root"]),
            )
        except Failure as failure:
            raise usage.UsageError(failure.message) from None
        except OSError as error:
            raise usage.UsageError(f"--state-dir cannot be made: {error.strerror}") from None


def makeService(options: Options) -> Node:
    """Return the node that the options describe."""
    from twisted.internet import reactor

    try:
        node = Node(options["settings"], reactor)
    except Failure as failure:
        raise SystemExit(f"error: {failure.message}") from None
    stop_on_signals(reactor, node.drain.hurry)
    settle(reactor)
    return node
