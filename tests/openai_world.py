"""An openai_compat adapter and its backend, joined in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backend_in_memory import Backend
from doubles import RecordingSink
from memory_net import MemoryNet

from iop import model as m
from iop.node.adapters.environment import Environment, Run
from iop.node.adapters.openai_compat.adapter import factory

CHAT = m.HttpRequestHead("POST", "/v1/chat/completions", (("traceparent", "00-1"),))
ASKED = b'{"model": "m", "messages": [], "temperature": 0.10}'


class World:
    """An adapter with these settings, and its backend."""

    def __init__(self, **settings: Any) -> None:
        self.net = MemoryNet()
        self.backend = Backend(self.net)
        self.adapter = factory.make(
            {"base_url": self.backend.url, **settings}, Environment("a", self.net, Path("/state"))
        )

    def ask(self, body: bytes = ASKED, *, provider: str = "", type: str = "", **request: Any) -> RecordingSink:
        sink = RecordingSink()
        made = m.RunRequest("r", "a", input=body, **{"target": "t", "http": CHAT, **request})
        self.done = self.adapter.run(Run(made, provider, type), sink)
        sink.attach(sink.source)
        self.net.run()
        return sink

    def end(self) -> None:
        """Nothing is left after a while."""
        self.net.run(30)
        assert not self.net.ends
        assert self.net.waiting == []
