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

CHAT = m.HttpRequestHead("POST", "/v1/chat/completions")
TOOLS = b'{"messages":[],"tools":[{"type":"function","function":{"name":"f"}}]}'
REFUSAL = b'{"error":{"message":"t does not support tools"}}'


class TestOpenAICompatAdapter(AdapterContract):
    factory = factory
    PIECES = (chunk("one"), chunk("two"), ending(), DONE)
    MORE = chunk("more")
    REQUEST = m.RunRequest("r", "a", "t", input=b"{}", http=CHAT)

    def piece(self, said: bytes) -> bytes:
        """Return a piece as the backend says it."""
        return said

    def ending(self) -> tuple[bytes, ...]:
        """What the backend says after the pieces."""
        return ()

    def make(self) -> OpenAICompatAdapter:
        self.net = MemoryNet()
        self.backend = Backend(self.net)
        self.answers = {
            "answers": lambda c: (c.stream(*map(self.piece, self.PIECES), *self.ending()), c.end()),
            "refuses": lambda c: c.respond(400, b'{"error":{"message":"no","type":"x","code":"wrong"}}'),
            "breaks": lambda c: (c.stream(self.piece(self.PIECES[0])), self.net.run(), c.abort()),
            "silent": lambda c: None,
            "goes on": lambda c: c.stream(self.piece(self.PIECES[0])),
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
        return self.adapter.run(Run(self.REQUEST), sink), sink

    def more(self) -> bytes:
        piece = self.MORE
        newest = [request.connection for request in self.backend.requests if request.connection.busy][-1]
        newest.say(self.piece(piece))
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


class TestOpenAICompatNormalized(TestOpenAICompatAdapter):
    PIECES = (b"one", "zwölf".encode())
    MORE = "mehr 🌍".encode()
    REQUEST = m.RunRequest("r", "a", "t", mode=m.Mode.NORMALIZED, input=b'{"model":"alias","messages":[]}')

    def piece(self, said: bytes) -> bytes:
        return chunk(said.decode())

    def ending(self) -> tuple[bytes, ...]:
        return ending(), DONE


class TestOpenAICompatFallback(TestOpenAICompatNormalized):
    """Passthrough is asked, the backend refuses tools, and the run is what a normalized one is."""

    REQUEST = m.RunRequest("r", "a", "t", input=TOOLS, http=CHAT)

    def _answer(self, request: Request) -> None:
        if b'"tools"' in request.body:
            request.connection.respond(400, REFUSAL)
        else:
            super()._answer(request)
