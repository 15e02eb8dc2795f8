"""The adapters' contract over HTTP: a backend in memory does to each run as its kind says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from backend_in_memory import Backend, Request
from contracts.adapter import AdapterContract
from doubles import RecordingSink
from memory_net import MemoryNet

from iop import model as m
from iop.node.adapters.environment import Environment, Run


class OverHTTP(AdapterContract):
    """A subclass says how its backend writes a piece and an end, how it refuses, and what else it is asked."""

    REQUEST: m.RunRequest
    REFUSAL: tuple[int, bytes]
    CHECKS: Mapping[str, bytes]  # path -> the body that answers it
    KIND = "text/event-stream"
    MORE = "é more".encode()

    def piece(self, said: bytes) -> bytes:
        """Return what the backend writes for a piece."""
        return said

    def ending(self) -> tuple[bytes, ...]:
        """Return what it writes behind the last one."""
        return ()

    def nonsense(self, connection: Any) -> None:
        """Write what is nothing of its protocol."""
        connection.raw(b"\x00\xff\x13 no HTTP\r\n\r\n")

    def make(self) -> Any:
        self.net = MemoryNet()
        self.backend = Backend(self.net)
        pieces = [*map(self.piece, self.PIECES)]
        self.answers: dict[str, Callable[[Any], object]] = {
            "answers": lambda c: (c.stream(*pieces, *self.ending(), kind=self.KIND), c.end()),
            "refuses": lambda c: c.respond(*self.REFUSAL),
            "breaks": lambda c: (c.stream(pieces[0], kind=self.KIND), self.net.run(), c.abort()),
            "silent": lambda c: None,
            "garbage": lambda c: (c.stream(pieces[0], kind=self.KIND), self.nonsense(c)),
            "goes on": lambda c: c.stream(pieces[0], kind=self.KIND),
            "raises": lambda c: c.stream(pieces[0], kind=self.KIND),
        }
        self.backend.answer = self._answer
        self.kinds: list[str] = []
        settings = {"base_url": self.backend.url, "connect_timeout_ms": 1000}
        adapter = self.factory.make(settings, Environment("a", self.net, Path()))
        adapter.start()
        return adapter

    def _answer(self, request: Request) -> None:
        if request.target in self.CHECKS:
            request.connection.respond(200, self.CHECKS[request.target])
        else:
            self.answers[self.kinds.pop(0)](request.connection)

    def begin(self, kind: str) -> tuple[Any, RecordingSink]:
        self.kinds.append(kind)
        sink = self.sink(kind)
        return self.adapter.run(Run(self.REQUEST), sink), sink

    def more(self) -> bytes:
        asked = [request.connection for request in self.backend.requests if request.connection.busy]
        newest = [connection for connection in asked if connection in self.backend.connections][-1]
        newest.say(self.piece(self.MORE))
        return self.MORE

    def flush(self) -> None:
        self.net.run(0.5)  # a refused connection is told after the endpoint's attempt delay

    def open(self) -> int:
        return self.backend.open

    def break_backend(self) -> None:
        self.backend.port.stopListening()
        for connection in list(self.backend.connections):
            connection.abort()
        self.net.run()

    def teardown_method(self) -> None:
        self.adapter.stop()
        self.net.run(10)
        assert self.net.waiting == []
        assert not self.net.ends
