"""A client that may break every rule: bytes out as they are, answers read by h11 as a second opinion."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import h11
from real_gateway import KEY, Gateway, user


@dataclass
class Answer:
    """What came back."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object; it has all its members and no others."""
        document = self.json
        assert set(document) == {"error"}, document
        assert set(document["error"]) == {"message", "type", "param", "code"}, document
        error: dict[str, Any] = document["error"]
        return error

    @property
    def events(self) -> list[str]:
        """The data of each event of a stream."""
        return [part[len("data: ") :] for part in self.body.decode().split("\n\n") if part]


def chat(content: str, *, model: str = "fake", stream: bool = False, key: str = KEY, **more: Any) -> bytes:
    """Return a whole chat request."""
    body = json.dumps({"model": model, "messages": user(content), "stream": stream, **more})
    return post(body.encode(), key=key)


def post(body: bytes, *headers: str, key: str = KEY, path: str = "/v1/chat/completions") -> bytes:
    """Return a whole POST request with this body."""
    return head("POST", path, f"content-length: {len(body)}", *headers, key=key) + body


def head(method: str, path: str, *headers: str, key: str = KEY) -> bytes:
    """Return a request's head."""
    lines = [
        f"{method} {path} HTTP/1.1",
        "host: 127.0.0.1",
        *headers,
        *([f"authorization: Bearer {key}"] if key else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


class Wire:
    """One connection."""

    class Closed(AssertionError):
        """The other side has closed it, and there was no answer."""

    def __init__(self, port: int, *, buffer: int = 0) -> None:
        self.socket = socket.socket()
        if buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(20)
        self.socket.connect(("127.0.0.1", port))
        self._left = b""
        self._answer = Answer()
        self._coming: Iterator[Any] = iter(())

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, data: bytes, method: str = "POST") -> Answer:
        """Send and read the answer."""
        self.send(data)
        return self.answer(method)

    def answer(self, method: str = "POST") -> Answer:
        """Read one answer whole; it must be well-formed and not cut short."""
        self.begin(0, method)
        return self.rest()

    def begin(self, count: int = 1, method: str = "POST") -> Answer:
        """Read an answer up to so many of its events, 0 for none of it; :meth:`rest` reads on."""
        self._answer = Answer()
        self._coming = self._events(method)
        return self.more(count)

    def more(self, count: int) -> Answer:
        """Read on until so many events have come in all."""
        while self._answer.body.count(b"\n\n") < count:
            self._note(self._answer, next(self._coming))
        return self._answer

    def rest(self) -> Answer:
        """Read what is left of an answer."""
        for event in self._coming:
            self._note(self._answer, event)
        return self._answer

    def _note(self, answer: Answer, event: Any) -> None:
        if isinstance(event, h11.InformationalResponse):
            assert event.status_code == 100
        elif isinstance(event, h11.Response):
            answer.status = event.status_code
            answer.headers = {name.decode(): value.decode() for name, value in event.headers}
        elif isinstance(event, h11.Data):
            answer.body += bytes(event.data)

    def _events(self, method: str) -> Iterator[Any]:
        parser = h11.Connection(h11.CLIENT)
        parser.send(h11.Request(method=method, target="/", headers=[("host", "h")]))
        parser.send(h11.EndOfMessage())
        if self._left:
            parser.receive_data(self._left)
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                parser.receive_data(self.socket.recv(1 << 16))
                continue
            if isinstance(event, h11.ConnectionClosed):
                raise Wire.Closed("the connection was closed without an answer")
            yield event
            if isinstance(event, h11.EndOfMessage):
                self._left = parser.trailing_data[0]
                return

    def closed(self) -> bool:
        """Wait for the other side to close; return False when it says something instead."""
        try:
            return not self._left and self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def quiet(self, seconds: float) -> bool:
        """Whether the other side says nothing for so long."""
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(20)
        return False

    def reset(self) -> None:
        """Vanish without a farewell."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def ask(gateway: Gateway, data: bytes, method: str = "POST") -> Answer:
    """Ask on a connection of its own."""
    with Wire(gateway.port) as wire:
        return wire.ask(data, method)
