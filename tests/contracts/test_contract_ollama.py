"""The ollama adapter passes the adapters' contract, over HTTP in memory."""

from __future__ import annotations

import json
from typing import Any

from contracts.over_http import OverHTTP

from iop import model as m
from iop.node.adapters.ollama.adapter import factory

INPUT = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": true}'
DONE = b'{"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}\n'


class TestOllamaAdapter(OverHTTP):
    factory = factory
    PIECES = ("那".encode(), b" and ", "🌍".encode())
    REQUEST = m.RunRequest("r", "a", "t", mode=m.Mode.NORMALIZED, input=INPUT)
    KIND = "application/x-ndjson"
    REFUSAL = (404, b'{"error":"model \'t\' not found"}')
    CHECKS = {"/api/version": b'{"version":"0.32.0"}', "/api/tags": b'{"models":[{"name":"m:latest"}]}'}

    def piece(self, said: bytes) -> bytes:
        said_by = {"message": {"role": "assistant", "content": said.decode()}, "done": False}
        return json.dumps(said_by).encode() + b"\n"

    def ending(self) -> tuple[bytes, ...]:
        return (DONE,)

    def nonsense(self, connection: Any) -> None:
        connection.say(b"\x00\xff\x13 no JSON\n")
