"""``iop up``: the main job in one command, on embedded defaults.

An edge and a node in one process, joined by a real link over loopback, in front of what this machine serves.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import (
    FilteringLogObserver,
    LogLevel,
    LogLevelFilterPredicate,
    globalLogBeginner,
    textFileLogObserver,
)
from twisted.python.failure import Failure as TwistedFailure

from iop.cli.demo import MODEL, DemoBackend
from iop.cli.detect import USUAL, Found, Usual, detect, public_name
from iop.edge.config import load_document
from iop.edge.tap import Edge
from iop.errors import Failure
from iop.http.client import Client, Origin
from iop.http.fetch import fetch
from iop.http.server import Server
from iop.node.config import NodeSettings
from iop.node.tap import Node
from iop.process import settle, stop_on_signals
from iop.reactor import install as install_reactor
from iop.sockets import CannotListen, listen

DEFAULT_PORT = 4600
READY_SECONDS = 10.0

_JSON = [(b"content-type", b"application/json")]


def add_parser(commands: Any) -> None:
    """Add the command to ``iop``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "up",
        help="serve what runs on this machine, on one OpenAI endpoint",
        description="Start an edge and a node in one process, find the model servers of this machine, and serve them "
        "on one OpenAI-compatible endpoint. With nothing found, a built-in demo model answers. Ctrl-C stops.",
    )
    parser.add_argument(
        "--port", type=_port, default=DEFAULT_PORT, help=f"of the endpoint (default {DEFAULT_PORT}; 0: any)"
    )
    parser.add_argument("--state-dir", type=Path, help="where its token, its configuration and its log are kept")
    parser.add_argument("--no-detect", action="store_true", help="do not look for model servers: serve the demo")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text, once it is up")
    parser.set_defaults(run=run)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError("a port is a number from 0 to 65535")
    return int(text)


def default_state_dir() -> Path:
    """Return where state is kept when nobody says: the XDG state directory."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(base) / "iop" / "up"


def run(options: argparse.Namespace) -> int:
    """Serve until stopped; return the exit status."""
    install_reactor()
    from twisted.internet import reactor as installed

    reactor: Any = installed
    state_dir = (options.state_dir or default_state_dir()).absolute()
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        _log_to(state_dir / "iop.log")
    except OSError as error:
        print(f"error: the state directory {state_dir} cannot be used: {error.strerror}", file=sys.stderr)
        return 1
    up = Up(reactor, state_dir, port=options.port, look=not options.no_detect)
    status = 0

    def failed(reason: TwistedFailure) -> None:
        nonlocal status
        status = 1
        if reason.check(CannotListen, Failure):
            hint = "; try --port 0 for any free one" if reason.check(CannotListen) else ""
            print(f"error: {reason.value}{hint}", file=sys.stderr)
        else:
            print(f"error: {reason.getErrorMessage()} (see {state_dir / 'iop.log'})", file=sys.stderr)
        reactor.callLater(0, reactor.stop)

    def start() -> None:
        starting = Deferred.fromCoroutine(up.start())
        starting.addCallback(lambda _: print(up.as_json() if options.json else up.as_text(), flush=True))
        starting.addErrback(failed)

    reactor.addSystemEventTrigger("before", "shutdown", up.stop)
    stop_on_signals(reactor, up.hurry)
    settle(reactor)
    reactor.callWhenRunning(start)
    reactor.run()
    return status


def _log_to(path: Path) -> None:
    file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - open for as long as the process runs
    predicate = LogLevelFilterPredicate(defaultLogLevel=LogLevel.info)
    observer = FilteringLogObserver(textFileLogObserver(file), [predicate])
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False, discardBuffer=True)


class Up:
    """An edge, a node, and what they serve.

    :param port: of the OpenAI endpoint on loopback; 0 for any.
    :param look: whether to look for model servers.
    """

    def __init__(self, reactor: Any, state_dir: Path, *, port: int, look: bool) -> None:
        self._reactor = reactor
        self._state_dir = state_dir
        self._port = port
        self._look = look
        self._found: list[Found] = []
        self._services: list[Service] = []
        self._edge: Edge | None = None
        self._node: Node | None = None
        self._listeners: list[Any] = []
        self._first_answer = ""
        self.demo = False

    async def start(self) -> None:
        """Bring everything up; :raises CannotListen, Failure:."""
        self._found = await detect(self._reactor) if self._look else []
        if not self._found:
            self.demo = True
            self._found = [await self._start_demo()]
        token = self._token()
        document = configuration(self._found, hashlib.sha256(token.encode()).hexdigest(), self._port)
        file = self._state_dir / "edge.yaml"
        file.write_text(_HEADER + yaml.safe_dump(document, sort_keys=False))
        settings = load_document(document, environ=os.environ, state_dir=self._state_dir).config
        edge = self._edge = await self._run_service(
            lambda failed: Edge(settings, self._reactor, failed, files=[str(file)], state_dir=self._state_dir)
        )
        assert edge.node_listener.port is not None
        where: Any = edge.node_listener.port.getHost()
        node_settings = NodeSettings(
            edge=f"tcp:127.0.0.1:{where.port}", token=token, state_dir=self._state_dir / "node"
        )
        self._node = await self._run_service(lambda failed: Node(node_settings, self._reactor, failed))
        if not await edge.drain.wait(lambda: edge.runs.ready, READY_SECONDS, 0.01):
            raise Failure("no_provider", "the node did not come up")
        if self.demo:
            self._first_answer = await self._ask("Hello, is anybody there?")

    async def _run_service(self, make: Callable[[Callable[[BaseException], None]], Any]) -> Any:
        """Make a service, start it, and return it when it is ready; :raises Exception: what it failed with."""
        waiting: Deferred[None] = Deferred()
        service = make(waiting.errback)
        self._services.append(service)
        service.startService()
        service.ready.wait().chainDeferred(waiting)
        await waiting
        return service

    async def _start_demo(self) -> Found:
        port = await listen(
            self._reactor, "tcp:0:interface=127.0.0.1", Server(DemoBackend(self._reactor), self._reactor)
        )
        self._listeners.append(port)
        host: Any = port.getHost()
        return Found(Usual("openai_compat", "built-in demo", host.port, 64), f"http://127.0.0.1:{host.port}", (MODEL,))

    def _token(self) -> str:
        """The node's token, made once, whole or not at all, and kept from other users."""
        path = self._state_dir / "node.token"
        kept = path.read_text().strip() if path.exists() else ""
        if kept:
            return kept
        token = secrets.token_urlsafe(32)
        new = self._state_dir / f"node.token.{os.getpid()}"
        with open(os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
            file.write(token + "\n")
        new.replace(path)
        return token

    async def _ask(self, question: str) -> str:
        """Ask the demo once, the whole way."""
        client = Client(self._reactor, Origin.of(self.base_url))
        body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": question}]}).encode()
        status, answer = await fetch(client, "POST", "/v1/chat/completions", _JSON, body)
        client.close()
        if status != 200:
            raise Failure("upstream_error", f"the demo model answers with status {status}")
        return str(json.loads(answer)["choices"][0]["message"]["content"])

    # ---- the end ------------------------------------------------------------------------------------------------

    def hurry(self) -> None:
        """A second Ctrl-C: wait for nobody."""
        for part in (self._edge, self._node):
            if part is not None:
                part.drain.hurry()

    async def _stop(self) -> None:
        if self._edge is not None and self._edge.runs.active:
            print("finishing what runs; Ctrl-C again to leave at once", file=sys.stderr)
        for service in self._services:  # the surface first: its runs need the node
            await maybeDeferred(service.stopService)
        for listener in self._listeners:
            await maybeDeferred(listener.stopListening)

    def stop(self) -> Deferred[None]:
        """Drain and stop; the Deferred holds the reactor open."""
        return Deferred.fromCoroutine(self._stop())

    # ---- what it says -------------------------------------------------------------------------------------------

    @property
    def base_url(self) -> str:
        """What an OpenAI client is pointed at."""
        assert self._edge is not None
        assert self._edge.openai is not None
        assert self._edge.openai.port is not None
        host: Any = self._edge.openai.port.getHost()
        return f"http://127.0.0.1:{host.port}/v1"

    @property
    def models(self) -> list[str]:
        """The names that clients may ask for."""
        assert self._edge is not None
        return list(self._edge.pool.groups)

    def as_json(self) -> str:
        """Return everything on one line, for programs."""
        providers = [{"provider": f.usual.title, "base_url": f.base_url, "models": list(f.models)} for f in self._found]
        return json.dumps(
            {
                "base_url": self.base_url,
                "models": self.models,
                "demo": self.demo,
                "providers": providers,
                "state_dir": str(self._state_dir),
                "pid": os.getpid(),
            }
        )

    def as_text(self) -> str:
        """Return what a person needs."""
        model = self.models[0]
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello"}]})
        lines = [f"IOP is up at {self.base_url}", ""]
        if self.demo:
            lines += [
                "No model server was found on this machine" if self._look else "No model server was looked for",
                f"({', '.join(f'{usual.title} {usual.port}' for usual in USUAL)}), so this is a DEMO:",
                "a built-in model that knows nothing answers. Start one of them and run `iop up` again.",
                "",
                f"  its first answer: {self._first_answer}",
                "",
            ]
        for found in self._found:
            lines.append(f"  {found.usual.title:<14} {', '.join(public_name(m) for m in found.models)}")
        lines += [
            "",
            f"  curl {self.base_url}/chat/completions -H 'Content-Type: application/json' -d '{body}'",
            "",
            f"State (token, edge.yaml, log) is kept in {self._state_dir}",
            "Ctrl-C stops: running requests are finished first.",
        ]
        return "\n".join(lines)


_HEADER = "# What `iop up` runs, written at each start. A beginning for an edge of your own: see etc/edge.yaml.\n"


def configuration(found: Sequence[Found], token_hash: str, port: int) -> dict[str, Any]:
    """Return the edge's configuration for what was found. Models of one name form one group."""
    adapters, providers = [], []
    groups: dict[str, list[dict[str, str]]] = {}
    for number, server in enumerate(found, 1):
        name = f"{server.usual.type.replace('_', '-')}-{number}"
        adapters.append({"name": name, "type": "openai_compat", "base_url": f"{server.base_url}/v1"})
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
    return {
        "edge": {"id": "up", "name": "iop up"},
        "listen": "tcp:0:interface=127.0.0.1",
        "openai": {"listen": f"tcp:{port}:interface=127.0.0.1"},
        "nodes": [{"id": "local", "token_hash_sha256": token_hash, "adapters": adapters, "providers": providers}],
        "models": [{"id": id, "providers": group} for id, group in groups.items()],
    }


def _literal(text: str) -> str:
    """Keep a stranger's words from being taken for ``${env:…}`` or ``${file:…}``."""
    return text.replace("${", "$${")
