"""A whole gateway on a memory net: clients, surface, runs, pool, link, uplink, supervisor, and scripted adapters.

Everything between the client's bytes and the adapter is the real thing, the node's link included.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import h11
from doubles import ScriptedAdapter, ScriptedFactory, ScriptedRun, Step, wait
from memory_net import End, MemoryNet
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString
from twisted.internet.protocol import Factory, Protocol

from iop.edge.config import load_document
from iop.edge.nodes.registry import Entry, Registry
from iop.edge.pool.pool import Pool
from iop.edge.record import Record
from iop.edge.runs import WINDOW, Runs
from iop.edge.surfaces.openai.surface import OpenAISurface
from iop.http.server import Limits, Server
from iop.node.adapterset import AdapterSet
from iop.node.supervisor import Supervisor
from iop.node.uplink import Uplink
from iop.services import Drain

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}

ODD: dict[str, Any] = {
    "temperature": 0,
    "top_p": 0,
    "seed": 0,
    "frequency_penalty": 0.0,
    "n": 1,
    "stop": [],
    "logit_bias": {},
    "user": "",
    "parallel_tool_calls": False,
    "top_k": 0,
    "min_p": 0.0,
    "chat_template_kwargs": {"enable_thinking": False},
    "x_vendor": {"a": [None, 0, ""]},
}
"""PA-01: values that a careless gateway takes for absent, and members it does not know."""


def sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def node(node_id: str, *provider_ids: str, **provider: Any) -> dict[str, Any]:
    """Return a node with scripted providers; its token is its id."""
    made = {"type": "scripted", "category": "api", "adapter": "a", "models": ["m"], "capacity": 10_000, **provider}
    return {
        "id": node_id,
        "token": node_id,
        "adapters": [{"name": "a", "type": "scripted"}],
        "providers": [{"id": provider_id, **made} for provider_id in provider_ids],
    }


def document(*nodes: dict[str, Any], openai: dict[str, Any] | None = None, **rest: Any) -> dict[str, Any]:
    """Return a configuration in which model `m` is served by every provider, as target `m`."""
    nodes = nodes or (node("n1", "p1"),)
    providers = [provider["id"] for each in nodes for provider in each["providers"]]
    models = [{"id": "m", "providers": providers}] if providers else []
    return {
        "edge": {"id": "e"},
        "ledger": {"url": "none"},
        "openai": {"allow_anonymous": True, **(openai or {})},
        "models": models,
        "nodes": list(nodes),
        **rest,
    }


class Answer(NamedTuple):
    """What a client got for one request.

    :ivar whole: it ended as HTTP says that it ends.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> Any:
        """The code of an error in OpenAI's shape, which is checked."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert isinstance(error["message"], str)
        assert error["message"]
        assert isinstance(error["type"], str)
        assert error["code"] is None or (isinstance(error["code"], str) and error["code"])
        assert self.headers["content-type"] == "application/json"
        return error["code"]

    @property
    def events(self) -> list[str]:
        """The data of a stream's events."""
        assert self.headers["content-type"].startswith("text/event-stream")
        assert self.body == b"" or self.body.endswith(b"\n\n")
        blocks = [block.split("\n") for block in self.body.decode("utf-8", "replace").split("\n\n") if block]
        return ["\n".join(line[6:] for line in block if line.startswith("data: ")) for block in blocks]


class Client(Protocol):
    """An HTTP client; h11 reads its answers."""

    transport: End

    def __init__(self) -> None:
        self.data = b""
        self.lost = False
        self._sent: list[h11.Request] = []

    def ask(
        self,
        target: str = "/v1/chat/completions",
        body: Any = None,
        *,
        method: str | None = None,
        headers: dict[str, str] | list[tuple[str, str]] | None = None,
    ) -> None:
        """Send a request; a body that is no bytes goes as JSON."""
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        method = method or ("GET" if body is None else "POST")
        given = list(headers.items()) if isinstance(headers, dict) else list(headers or [])
        if not any(name.lower() == "host" for name, _ in given):
            given.insert(0, ("Host", "127.0.0.1:4600"))
        if raw:
            given.append(("Content-Length", str(len(raw))))
        self._sent.append(h11.Request(method=method, target=target, headers=[("Host", "h")]))
        lines = [f"{method} {target} HTTP/1.1", *[f"{name}: {value}" for name, value in given]]
        self.transport.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + raw)

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Any = None) -> None:
        self.lost = True

    def leave(self) -> None:
        """Close the connection."""
        self.transport.abortConnection()

    def stall(self) -> None:
        """Read nothing any more."""
        self.transport.pauseProducing()

    def go_on(self) -> None:
        """Read again."""
        self.transport.resumeProducing()

    @property
    def answers(self) -> list[Answer]:
        """What came so far, the last one perhaps in part."""
        parser = h11.Connection(h11.CLIENT)
        parser.receive_data(self.data)
        if self.lost:
            parser.receive_data(b"")
        found = []
        for request in self._sent:
            parser.send(request)
            parser.send(h11.EndOfMessage())
            answer = _one(parser)
            if answer is None:
                break
            found.append(answer)
            if not answer.whole or parser.states[h11.SERVER] is not h11.DONE:
                break
            parser.start_next_cycle()
        return found

    @property
    def answer(self) -> Answer:
        """The only answer."""
        (answer,) = self.answers
        return answer


def _one(parser: h11.Connection) -> Answer | None:
    head, body = None, b""
    while True:
        try:
            event = parser.next_event()
        except h11.RemoteProtocolError:
            break
        if isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            return _answer(head, body, whole=True)
        elif not isinstance(event, h11.InformationalResponse):
            break
    return None if head is None else _answer(head, body, whole=False)


def _answer(head: h11.Response, body: bytes, *, whole: bool) -> Answer:
    headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
    return Answer(head.status_code, headers, body, whole)


class Machine:
    """A node: an uplink and what is under it.

    :ivar adapter: the scripted adapter `a`.
    """

    def __init__(self, net: MemoryNet, token: str, adapter: Any, find: Any = None) -> None:
        self.adapter = adapter
        self.adapters = AdapterSet(
            net, Path("/state"), find or (lambda kind: ScriptedFactory(adapter)), None, [Path("/")]
        )
        self.supervisor = Supervisor(self.adapters, net)
        self.drain = Drain(net)
        endpoint = clientFromString(net, "tcp:127.0.0.1:4610")
        self.uplink = Uplink(endpoint, token, self.adapters, self.supervisor, self.drain, net, lambda: 0.5)

    def start(self) -> None:
        self.uplink.startService()

    def stop(self) -> list[Any]:
        """Stop; return where it is told that it has."""
        stopped: list[Any] = []
        Deferred.fromCoroutine(self.uplink.stopService()).addBoth(stopped.append)
        return stopped

    @property
    def end(self) -> End:
        """Its end of the link."""
        assert self.uplink._link is not None
        end: Any = self.uplink._link.transport
        return end


class Gateway:
    """An edge, and a node for each that the configuration names.

    :param script: of every node's adapter; without one it never answers.
    :param configuration: see :func:`document`.
    """

    def __init__(
        self,
        *script: Step,
        configuration: dict[str, Any] | None = None,
        window: int = WINDOW,
        limits: Limits | None = None,
        find: Any = None,
        start: bool = True,
    ) -> None:
        self.net = MemoryNet()
        self.settings = load_document(configuration or document(), state_dir=Path("/state")).config
        self.registry = Registry(self.settings.nodes, heartbeat_ms=self.settings.heartbeat_ms, clock=self.net)
        self.pool = Pool(self.settings, self.net)
        self.runs = Runs(self.settings, self.pool, self.registry, self.net, window, [self])
        self.records: list[Record] = []
        self.server = Server(OpenAISurface(self.settings, self.runs, self.net), self.net, limits or Limits())
        self.net.listenTCP(4610, self.registry.factory())
        self.net.listenTCP(4600, self.server)
        self.machines = {
            each.id: Machine(self.net, each.id, ScriptedAdapter(*(script or (wait,))), find)
            for each in self.settings.nodes
        }
        self.clients: list[Client] = []
        if start:
            for machine in self.machines.values():
                machine.start()
            self.net.run()

    def record(self, record: Record) -> None:
        self.records.append(record)

    @property
    def machine(self) -> Machine:
        """The first node."""
        return next(iter(self.machines.values()))

    @property
    def adapter(self) -> Any:
        """The first node's adapter."""
        return self.machine.adapter

    @property
    def run(self) -> ScriptedRun:
        """The newest run of the first node's adapter."""
        run: ScriptedRun = self.adapter.runs[-1]
        return run

    @property
    def entry(self) -> Entry:
        return next(iter(self.registry.entries.values()))

    def connect(self) -> Client:
        """Return a connected client."""
        made: list[Client] = []
        factory = Factory.forProtocol(Client)
        factory.noisy = False
        clientFromString(self.net, "tcp:127.0.0.1:4600").connect(factory).addCallback(made.append)
        self.net.run()
        (client,) = made
        self.clients.append(client)
        return client

    def ask(self, target: str = "/v1/chat/completions", body: Any = None, **how: Any) -> Client:
        """Return a client that has asked, after everything happened that can."""
        client = self.connect()
        client.ask(target, body, **how)
        self.net.run()
        return client

    def chat(self, *, headers: Any = None, **changes: Any) -> Client:
        """The same for a chat request."""
        return self.ask(body={**CHAT, **changes}, headers=headers)

    def assert_idle(self) -> None:
        """No run, no lease, nothing of a request is left, on edge and node."""
        assert self.runs.active == set()
        assert self.pool.in_flight == 0
        for entry in self.registry.entries.values():
            assert entry.link is None or entry.link.runs == 0
            assert entry.link is None or entry.link.wire is None or len(entry.link.wire.calls) == 0
        for machine in self.machines.values():
            assert machine.supervisor.runs == {}
            if isinstance(machine.adapter, ScriptedAdapter):
                assert machine.adapter.open == 0

    def close(self) -> None:
        """Stop everything; nothing may be left."""
        stopped = [machine.stop() for machine in self.machines.values()]
        for machine in self.machines.values():
            machine.drain.hurry()
        self.registry.close()
        self.server.abort_all()
        for client in self.clients:
            client.leave()
        self.net.run(30)
        assert all(stopped)
        assert not self.net.ends
        assert self.net.waiting == []
