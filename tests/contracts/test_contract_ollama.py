"""The ollama adapter passes the adapters' contract, over HTTP in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from backend_in_memory import Backend, Request
from contracts.adapter import AdapterContract
from doubles import RecordingSink
from memory_net import MemoryNet

from iop import model as m
from iop.node.adapters.environment import Environment, Run
from iop.node.adapters.ollama.adapter import OllamaAdapter, factory

INPUT = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": true}'
ASKED = Run(m.RunRequest("r", "a", "t", mode=m.Mode.NORMALIZED, input=INPUT))
KIND = "application/x-ndjson"
DONE = b'{"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}\n'


def line(piece: bytes) -> bytes:
    """Return a line with a piece of text."""
    return json.dumps({"message": {"role": "assistant", "content": piece.decode()}, "done": False}).encode() + b"\n"


class TestOllamaAdapter(AdapterContract):
    factory = factory
    PIECES = ("那".encode(), b" and ", "🌍".encode())

    def make(self) -> OllamaAdapter:
        self.net = MemoryNet()
        self.backend = Backend(self.net)
        first = line(self.PIECES[0])
        self.answers = {
            "answers": lambda c: (c.stream(*map(line, self.PIECES), DONE, kind=KIND), c.end()),
            "refuses": lambda c: c.respond(404, b'{"error":"model \'t\' not found"}'),
            "breaks": lambda c: (c.stream(first, kind=KIND), self.net.run(), c.abort()),
            "silent": lambda c: None,
            "goes on": lambda c: c.stream(first, kind=KIND),
        }
        self.backend.answer = self._answer
        self.kinds: list[str] = []
        settings = {"base_url": self.backend.url, "connect_timeout_ms": 1000}
        adapter = factory.make(settings, Environment("a", self.net, Path()))
        adapter.start()
        return adapter

    def _answer(self, request: Request) -> None:
        if request.target == "/api/version":
            request.connection.respond(200, b'{"version":"0.32.0"}')
        elif request.target == "/api/tags":
            request.connection.respond(200, b'{"models":[{"name":"m:latest"}]}')
        else:
            self.answers[self.kinds.pop(0)](request.connection)

    def begin(self, kind: str) -> tuple[Any, RecordingSink]:
        self.kinds.append(kind)
        sink = RecordingSink()
        return self.adapter.run(ASKED, sink), sink

    def more(self) -> bytes:
        piece = "é more".encode()
        newest = [request.connection for request in self.backend.requests if request.connection.busy][-1]
        newest.say(line(piece))
        return piece

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
