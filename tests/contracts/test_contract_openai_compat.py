"""The openai_compat adapter passes the adapters' contract, over HTTP in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backend_in_memory import DONE, Backend, Request, chunk, ending
from contracts.adapter import AdapterContract
from doubles import RecordingSink
from memory_net import MemoryNet

from iop import model as m
from iop.node.adapters.environment import Environment, Run
from iop.node.adapters.openai_compat.adapter import OpenAICompatAdapter, factory

ASKED = Run(m.RunRequest("r", "a", "t", input=b"{}", http=m.HttpRequestHead("POST", "/v1/chat/completions")))


class TestOpenAICompatAdapter(AdapterContract):
    factory = factory
    PIECES = (chunk("one"), chunk("two"), ending(), DONE)

    def make(self) -> OpenAICompatAdapter:
        self.net = MemoryNet()
        self.backend = Backend(self.net)
        self.answers = {
            "answers": lambda c: (c.stream(*self.PIECES), c.end()),
            "refuses": lambda c: c.respond(400, b'{"error":{"message":"no","type":"x","code":"wrong"}}'),
            "breaks": lambda c: (c.stream(self.PIECES[0]), self.net.run(), c.abort()),
            "silent": lambda c: None,
            "goes on": lambda c: c.stream(self.PIECES[0]),
        }
        self.backend.answer = self._answer
        self.kinds: list[str] = []
        adapter = factory.make(
            {"base_url": self.backend.url, "connect_timeout_ms": 1000}, Environment("a", self.net, Path())
        )
        adapter.start()
        return adapter

    def _answer(self, request: Request) -> None:
        if request.target == "/v1/models":
            request.connection.respond(200, b'{"object":"list","data":[{"id":"m"}]}')
        else:
            self.answers[self.kinds.pop(0)](request.connection)

    def begin(self, kind: str) -> tuple[Any, RecordingSink]:
        self.kinds.append(kind)
        sink = RecordingSink()
        return self.adapter.run(ASKED, sink), sink

    def more(self) -> bytes:
        piece = chunk("more")
        newest = [request.connection for request in self.backend.requests if request.connection.busy][-1]
        newest.say(piece)
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
