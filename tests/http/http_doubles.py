"""Transports, an application, a backend and an h11 reader for the HTTP tests. Nothing here opens a socket."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import h11
from socket_doubles import PlainWire
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure as TwistedFailure

from iop.errors import Failure
from iop.http.client import Call, Client, Timers
from iop.http.server import Exchange, Limits, Server


class Wire(StringTransport):
    """A transport that, like a real one, tells its protocol of the end on the next turn of the clock."""

    def __init__(self, protocol: Any, clock: Any) -> None:
        super().__init__()
        self.protocol = protocol
        self.clock = clock
        self.aborted = self.closed = False
        self.protocol.makeConnection(self)

    def write(self, data: bytes) -> None:
        if not self.closed and not self.aborted and not self.disconnecting:
            super().write(data)

    def loseConnection(self) -> None:
        if not self.disconnecting:
            self.disconnecting = True
            self.clock.callLater(0, self.lose)

    def abortConnection(self) -> None:
        if not self.aborted:
            self.aborted = self.disconnecting = True
            self.clock.callLater(0, self.lose, ConnectionAborted())

    def unregisterProducer(self) -> None:
        self.producer = None

    def _checkState(self) -> None:
        pass

    def lose(self, why: Exception | None = None) -> None:
        """The connection is gone, whoever wanted that."""
        if not self.closed:
            self.closed = True
            self.connected = False
            protocol, self.protocol, self.producer = self.protocol, None, None
            protocol.connectionLost(TwistedFailure(why or ConnectionDone()))

    def feed(self, data: bytes) -> None:
        """Bytes come in; none after a close, as none would."""
        if not self.disconnecting and not self.closed:
            self.protocol.dataReceived(data)

    def feed_split(self, data: bytes, cuts: Iterable[int]) -> None:
        """Bytes come in, cut at the given places."""
        start = 0
        for cut in [*sorted(cuts), len(data)]:
            if cut > start:
                self.feed(data[start:cut])
                start = cut

    def take(self) -> bytes:
        """What was written since the last time."""
        data: bytes = self.value()
        self.clear()
        return data


class App:
    """Answers by path; keeps what it was asked.

    ``/now`` answers at once, ``/later`` when the test says so, ``/stream`` begins a stream, ``/raise`` fails,
    ``/deny`` refuses in :meth:`admit`, ``/raise-admit`` fails there, ``/raise-late`` fails when it has begun.
    """

    def __init__(self) -> None:
        self.admitted: list[bytes] = []
        self.handled: list[tuple[bytes, bytes, bytes]] = []
        self.refused: list[Failure] = []
        self.waiting: list[Exchange] = []
        self.gone: list[bytes] = []
        self.drained: list[bytes] = []

    def admit(self, exchange: Exchange) -> None:
        path = exchange.path
        self.admitted.append(path)
        exchange.on_gone = lambda: self.gone.append(path)
        exchange.on_drained = lambda: self.drained.append(path)
        if path == b"/deny":
            exchange.respond(401, [(b"content-type", b"text/plain")], b"denied")
        elif path == b"/raise-admit":
            raise RuntimeError("admit")

    def handle(self, exchange: Exchange) -> None:
        path = exchange.path
        self.handled.append((exchange.method, exchange.target, exchange.body))
        if path == b"/raise":
            raise RuntimeError("handle")
        if path == b"/raise-late":
            exchange.start(200, [])
            exchange.write(b"half")
            raise RuntimeError("handle")
        if path in (b"/later", b"/stream"):
            self.waiting.append(exchange)
            if path == b"/stream":
                exchange.start(200, [(b"content-type", b"text/event-stream")])
        else:
            exchange.respond(200, [(b"x-path", exchange.target)], exchange.body or b"ok")

    def refuse(self, exchange: Exchange, failure: Failure) -> None:
        self.refused.append(failure)
        exchange.respond(failure.http_status, [(b"x-code", failure.code.encode())], failure.message.encode())


class House:
    """A server with an application, and every connection made to it."""

    def __init__(self, limits: Limits | None = None, app: Any = None) -> None:
        self.clock = MemoryReactorClock()
        self.app = App() if app is None else app
        self.server = Server(self.app, self.clock, limits or Limits())
        self.wires: list[Wire] = []
        self.plains: list[PlainWire] = []

    def connect(self) -> Wire:
        wire = Wire(self.server.buildProtocol(None), self.clock)
        self.wires.append(wire)
        return wire

    def connect_plain(self, room: int = 1 << 30) -> PlainWire:
        wire = PlainWire(self.server.buildProtocol(None), self.clock, room)
        self.plains.append(wire)
        return wire

    def pass_time(self, seconds: float, step: float = 0.25) -> None:
        for _ in range(int(seconds / step)):
            self.clock.advance(step)

    def ask(self, data: bytes, cuts: Iterable[int] = ()) -> tuple[Wire, bytes]:
        """One connection, one input, everything that came out of it."""
        wire = self.connect()
        wire.feed_split(data, cuts)
        return wire, wire.take()

    def close(self) -> None:
        """Every client leaves; nothing may be left."""
        self.clock.advance(0)
        for wire in self.wires:
            wire.lose()
        for plain in self.plains:
            if hasattr(plain.transport, "socket"):
                plain.transport.connectionLost(TwistedFailure(ConnectionDone()))
        self.clock.advance(0)
        assert not self.server.connections
        assert self.clock.getDelayedCalls() == []
        assert not self.clock.readers
        assert not self.clock.writers


class Answered:
    """An answer, as h11 reads it."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes, informational: list[int]) -> None:
        self.status = status
        self.headers = dict(headers)
        self.body = body
        self.informational = informational

    @property
    def closes(self) -> bool:
        return self.headers.get(b"connection") == b"close"

    def __repr__(self) -> str:
        return f"<{self.status} {self.headers} {self.body[:80]!r}>"


def read_answers(data: bytes, methods: Iterable[str] = (), *, closed: bool = False) -> list[Answered]:
    """Read what a server wrote with h11: as many answers as there are, each whole.

    :param methods: of the requests; GET when there are no more.
    :raises h11.RemoteProtocolError: for what h11 does not understand.
    """
    answers = []
    left = list(methods)
    while data:
        client = h11.Connection(h11.CLIENT)
        method = left.pop(0) if left else "GET"
        client.send(h11.Request(method=method, target="/", headers=[("host", "h")]))
        client.send(h11.EndOfMessage())
        client.receive_data(data)
        if closed:
            client.receive_data(b"")
        answer, data = _read_one(client)
        answers.append(answer)
    return answers


def _read_one(client: h11.Connection) -> tuple[Answered, bytes]:
    status, headers, body, informational = 0, [], b"", []
    while True:
        event = client.next_event()
        if isinstance(event, h11.InformationalResponse):
            informational.append(event.status_code)
        elif isinstance(event, h11.Response):
            status, headers = event.status_code, list(event.headers)
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return Answered(status, headers, body, informational), client.trailing_data[0]
        else:
            raise AssertionError(f"half an answer: {event!r} after {status} {body!r}")


class Heard:
    """What a client's answer was told; ``then`` runs at each block."""

    def __init__(self, then: Callable[[bytes], None] | None = None) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.blocks: list[bytes] = []
        self.ends = 0
        self.failure: Failure | None = None
        self.heads = 0
        self._then = then

    @property
    def body(self) -> bytes:
        return b"".join(self.blocks)

    @property
    def over(self) -> bool:
        return self.ends > 0 or self.failure is not None

    def head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        assert not self.over
        self.heads += 1
        self.status, self.headers = status, headers

    def block(self, data: bytes) -> None:
        assert not self.over
        assert data
        self.blocks.append(data)
        if self._then is not None:
            self._then(data)

    def ended(self) -> None:
        assert not self.over
        self.ends += 1

    def failed(self, failure: Failure) -> None:
        assert not self.over
        self.failure = failure


class Backend:
    """An origin whose connections are :class:`Wire`s; accepts at once unless told to wait."""

    scheme = "http"
    authority = b"backend:8000"

    def __init__(self, clock: Any, *, waits: bool = False) -> None:
        self.clock = clock
        self.waits = waits
        self.dials: list[tuple[Any, Deferred[Any]]] = []
        self.dialled = self.cancelled = 0
        self.wires: list[Wire] = []

    def endpoint(self, reactor: Any) -> Any:
        return self

    def connect(self, factory: Any) -> Deferred[Any]:
        self.dialled += 1
        connecting: Deferred[Any] = Deferred(self._cancel)
        self.dials.append((factory, connecting))
        if not self.waits:
            self.accept()
        return connecting

    def _cancel(self, connecting: Deferred[Any]) -> None:
        self.cancelled += 1
        self.dials = [dial for dial in self.dials if dial[1] is not connecting]

    def accept(self) -> Wire:
        factory, connecting = self.dials.pop(0)
        protocol = factory.buildProtocol(None)
        wire = Wire(protocol, self.clock)
        self.wires.append(wire)
        connecting.callback(protocol)
        return wire

    def refuse(self, why: Exception) -> None:
        self.dials.pop(0)[1].errback(why)


class Yard:
    """A client and its backend."""

    def __init__(self, *, waits: bool = False, **settings: Any) -> None:
        self.clock = Clock()
        self.backend = Backend(self.clock, waits=waits)
        self.client = Client(self.clock, self.backend, **settings)  # type: ignore[arg-type]

    def ask(
        self,
        timers: Timers | None = None,
        *,
        heard: Heard | None = None,
        method: str = "POST",
        body: bytes = b"{}",
    ) -> tuple[Call, Heard]:
        heard = heard or Heard()
        call = self.client.request(method, "/v1/x", [(b"a", b"b")], body, heard, timers or Timers())
        return call, heard

    @property
    def wire(self) -> Wire:
        """The newest connection."""
        return self.backend.wires[-1]

    def pass_time(self, seconds: float, step: float = 0.25) -> None:
        for _ in range(int(seconds / step)):
            self.clock.advance(step)

    def close(self) -> None:
        """The client stops; nothing may be left."""
        self.client.close()
        self.clock.advance(0)
        for wire in self.backend.wires:
            wire.lose()
        assert not self.client._open
        assert not self.client._idle
        assert not self.client._waiting
        assert self.client._count == 0
        assert self.clock.getDelayedCalls() == []
