"""A backend of the OpenAI API on a memory net: takes requests, and answers what a test says, byte by byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h11
from memory_net import MemoryNet
from twisted.internet.protocol import Factory, Protocol

CHUNK = (
    '{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m",'
    '"choices":[{"index":0,"delta":%s,"finish_reason":%s}]}'
)


def chunk(content: str, **more: Any) -> bytes:
    """Return an event with a piece of text."""
    return event(CHUNK % (json.dumps({"content": content, **more}, ensure_ascii=False), "null"))


def ending(reason: str = "stop") -> bytes:
    """Return the event with the finish reason."""
    return event(CHUNK % ("{}", f'"{reason}"'))


def event(data: Any) -> bytes:
    """Return an event with that data."""
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return f"data: {text}\n\n".encode()


DONE = b"data: [DONE]\n\n"

USAGE = event(
    {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [],
        "usage": {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8},
    }
)


@dataclass
class Request:
    """What a backend was asked.

    :ivar headers: by name in lower case, as lists.
    """

    method: str
    target: str
    headers: dict[str, list[str]]
    body: bytes
    connection: BackendConnection

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class BackendConnection(Protocol):
    """One connection from an adapter."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._parser = h11.Connection(h11.SERVER)
        self._head: h11.Request | None = None
        self._body = b""
        self.busy = False

    def dataReceived(self, data: bytes) -> None:
        self._parser.receive_data(data)
        while True:
            got = self._parser.next_event()
            if got in (h11.NEED_DATA, h11.PAUSED):
                return
            if isinstance(got, h11.Request):
                self._head, self._body = got, b""
            elif isinstance(got, h11.Data):
                self._body += bytes(got.data)
            elif isinstance(got, h11.EndOfMessage):
                assert self._head is not None
                self._took(self._head, self._body)

    def _took(self, head: h11.Request, body: bytes) -> None:
        headers: dict[str, list[str]] = {}
        for name, value in head.headers:
            headers.setdefault(name.decode(), []).append(value.decode("latin-1"))
        request = Request(head.method.decode(), head.target.decode(), headers, body, self)
        self.busy = True
        self._backend.requests.append(request)
        self._parser.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
        self._parser.send(h11.EndOfMessage())
        self._parser.start_next_cycle()
        self._backend.answer(request)

    def connectionMade(self) -> None:
        self._backend.connections.add(self)

    def connectionLost(self, reason: Any = None) -> None:
        self._backend.connections.discard(self)

    # ---- answers

    def raw(self, data: bytes) -> None:
        """Say these bytes."""
        assert self.transport is not None
        self.transport.write(data)

    def respond(self, status: int, body: bytes = b"", kind: str = "application/json", **headers: str) -> None:
        """Answer whole."""
        lines = [f"HTTP/1.1 {status} Word", f"content-type: {kind}", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.busy = False
        self.raw("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    def stream(self, *pieces: bytes, kind: str = "text/event-stream", **headers: str) -> None:
        """Begin a chunked answer."""
        lines = ["HTTP/1.1 200 OK", f"content-type: {kind}", "transfer-encoding: chunked"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.raw("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
        self.say(*pieces)

    def say(self, *pieces: bytes) -> None:
        """Go on with it."""
        for data in pieces:
            self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        """End it well."""
        self.busy = False
        self.raw(b"0\r\n\r\n")

    def close(self) -> None:
        """Close the connection."""
        assert self.transport is not None
        self.transport.loseConnection()

    def abort(self) -> None:
        """Break the connection."""
        self.transport.abortConnection()  # type: ignore[union-attr]


class Backend(Factory):
    """Listens on a port of the net.

    :ivar answer: what a request is answered with; by default nothing.
    """

    noisy = False

    def __init__(self, net: MemoryNet, port: int = 8000) -> None:
        self.requests: list[Request] = []
        self.connections: set[BackendConnection] = set()
        self.answer: Callable[[Request], None] = lambda request: None
        self.port = net.listenTCP(port, self)
        self.url = f"http://127.0.0.1:{port}"

    def buildProtocol(self, addr: Any) -> BackendConnection:
        return BackendConnection(self)

    @property
    def last(self) -> Request:
        return self.requests[-1]

    @property
    def open(self) -> int:
        """Requests that it works on, as far as it knows."""
        return sum(connection.busy for connection in self.connections)

    def streams(self, *pieces: bytes) -> None:
        """Answer every request with a whole stream of these reads."""

        def answer(request: Request) -> None:
            request.connection.stream(*pieces)
            request.connection.end()

        self.answer = answer

    def responds(self, status: int, body: bytes = b"", kind: str = "application/json", **headers: str) -> None:
        """Answer every request whole."""
        self.answer = lambda request: request.connection.respond(status, body, kind, **headers)
