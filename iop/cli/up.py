"""``iop up``: the main job in one command, on embedded defaults.

An edge and a node in one process, joined by a real link over loopback, in front of what this machine serves.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import secrets
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml
from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import globalLogBeginner
from twisted.python.failure import Failure as TwistedFailure

from iop import logs
from iop.cli.demo import MODEL, DemoBackend
from iop.cli.detect import AGENT_CAPACITY, USUAL, Agent, Found, Usual, agents, detect, public_name
from iop.cli.embedded import configuration
from iop.cli.lock import AlreadyRunning, Lock
from iop.edge.config import load_document
from iop.edge.tap import Edge
from iop.errors import Failure
from iop.http.client import Client, Origin
from iop.http.fetch import fetch
from iop.http.server import Server
from iop.node.config import NodeSettings, token_in
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
        description="Start an edge and a node in one process, find the model servers and coding agents of this "
        "machine, and serve them on one OpenAI-compatible endpoint. Without a model server, a built-in demo model "
        "answers. Ctrl-C stops.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--port", type=_port, default=DEFAULT_PORT, help=f"of the endpoint (default {DEFAULT_PORT}; 0: any)"
    )
    parser.add_argument(
        "--state-dir",
        type=Path,
        metavar="DIR",
        help="where its token, its configuration and its log are kept (default ~/.local/state/iop/up)",
    )
    parser.add_argument(
        "--no-detect", action="store_true", help="do not look for model servers and agents: serve the demo"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text, once it is up")
    parser.set_defaults(run=run, parser=parser)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError("a port is a number from 0 to 65535")
    return int(text)


def default_state_dir() -> Path:
    """Return where state is kept when nobody says: the XDG state directory, which counts only if it is absolute."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.local/state")) / "iop" / "up"


def run(options: argparse.Namespace) -> int:
    """Serve until stopped; return the exit status."""
    install_reactor()
    from twisted.internet import reactor as installed

    reactor: Any = installed
    state_dir = (options.state_dir or default_state_dir()).absolute()
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = Lock(state_dir / "lock")
        _log_to(state_dir / "iop.log")
    except AlreadyRunning as running:
        print(f"error: {running}; it has the state directory {state_dir}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: the state directory {_trouble(state_dir, error)}", file=sys.stderr)
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

    def started(_: None) -> None:
        lock.say(up.base_url)
        print(up.as_json() if options.json else up.as_text(), flush=True)

    def start() -> None:
        starting = Deferred.fromCoroutine(up.start())
        starting.addCallback(started)
        starting.addErrback(failed)

    reactor.addSystemEventTrigger("before", "shutdown", up.stop)
    stop_on_signals(reactor, up.hurry)
    settle(reactor)
    reactor.callWhenRunning(start)
    reactor.run()
    return status


def _trouble(state_dir: Path, error: OSError) -> str:
    """Say why a directory cannot hold state."""
    file = next((path for path in (state_dir, *state_dir.parents) if path.exists() and not path.is_dir()), None)
    if file is not None:
        return f"{state_dir} is not a directory" if file == state_dir else f"{state_dir}: {file} is not a directory"
    return f"{state_dir} cannot be used: {error.strerror}: {error.filename}"


def _log_to(path: Path) -> None:
    file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - open for as long as the process runs
    observer = logs.observer(file, "info", "text")
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False, discardBuffer=True)


class Up:
    """An edge, a node, and what they serve.

    :param port: of the OpenAI endpoint on loopback; 0 for any.
    :param look: whether to look for model servers and agents.
    """

    def __init__(self, reactor: Any, state_dir: Path, *, port: int, look: bool) -> None:
        self._reactor = reactor
        self._state_dir = state_dir
        self._port = port
        self._look = look
        self._found: list[Found] = []
        self._agents: list[Agent] = []
        self._services: list[Service] = []
        self._edge: Edge | None = None
        self._node: Node | None = None
        self._listeners: list[Any] = []
        self._first_answer = ""
        self.demo = False

    async def start(self) -> None:
        """Bring everything up; :raises CannotListen, Failure:."""
        if self._look:
            self._found, self._agents = await detect(self._reactor), agents()
        if not self._found:
            self.demo = True
            self._found = [await self._start_demo()]
        token = self._token()
        node_port, any_port = free_ports(2)
        port = self._port or any_port
        token_hash = hashlib.sha256(token.encode()).hexdigest()
        document = configuration(self._found, token_hash, port, node_port, self._agents)
        file = self._state_dir / "edge.yaml"
        settings = load_document(document, environ=os.environ, state_dir=self._state_dir).config
        edge = self._edge = await self._run_service(
            lambda failed: Edge(settings, self._reactor, failed, files=[str(file)], state_dir=self._state_dir)
        )
        dialled = f"tcp:127.0.0.1:{node_port}"
        header = _HEADER.format(node=dialled) + (_HEADER_OF_DEMO if self.demo else "")
        _write(file, header + yaml.safe_dump(document, sort_keys=False))
        node_settings = NodeSettings(edge=dialled, token=token, state_dir=self._state_dir / "node")
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
        if path.exists() and (path.is_dir() or path.stat().st_size):
            try:
                return token_in(str(path), "the node's token")
            except Failure as failure:
                raise Failure(failure.code, f"{failure.message}; remove it, and a new one is made") from None
        token = secrets.token_urlsafe(32)
        _write(path, token + "\n")
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
        providers = [
            {
                "provider": found.usual.title,
                "base_url": found.base_url,
                "models": list(found.models),
                "capacity": found.usual.capacity,
            }
            for found in self._found
        ]
        return json.dumps(
            {
                "base_url": self.base_url,
                "models": self.models,
                "demo": self.demo,
                "providers": providers,
                "agents": [{"command": each.command, "model": each.model} for each in self._agents],
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
            asked = ", ".join(f"{usual.title} {usual.port}" for usual in USUAL)
            lines += [
                "This is a DEMO: a built-in model that knows nothing answers.",
                f"No model server was found on this machine ({asked}): start one, and `iop up` again."
                if self._look
                else "No model server was looked for.",
                "",
                f"  its first answer: {self._first_answer}",
                "",
            ]
        for found in self._found:
            names = ", ".join(map(public_name, found.models))
            lines.append(f"  {found.usual.title:<14} {names}  ({found.usual.capacity} at a time)")
        for agent in self._agents:
            lines.append(f"  {agent.command:<14} {agent.model}  ({AGENT_CAPACITY} at a time, as this user)")
        lines += [
            "",
            f"  curl {self.base_url}/chat/completions -H 'Content-Type: application/json' -d '{body}'",
            "",
            f"State (token, edge.yaml, log) is kept in {self._state_dir}",
            *(["What edge.yaml calls a backend, the demo, is there only while this runs."] if self.demo else []),
            "Ctrl-C stops: running requests are finished first.",
        ]
        return "\n".join(lines)


_HEADER = """\
# What `iop up` runs, written at each start: copy it before you change it. Without `iop up` the same is
#   iop-edge run --config edge.yaml
#   iop-node run --edge {node} --token-file node.token
"""
_HEADER_OF_DEMO = """\
# The demo's backend lives in `iop up` and nowhere else: put the base_url and the models of your server in its place.
"""


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody has; written into a configuration, they are the same after a restart."""
    with ExitStack() as open_ones:
        probes = [open_ones.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all, and keep it from other users."""
    new = path.with_name(f"{path.name}.{os.getpid()}")
    with open(os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    try:
        new.replace(path)
    except OSError as error:
        new.unlink()
        raise Failure("internal", f"{path} cannot be written: {error.strerror}") from None
