"""The openai_compat adapter passes the adapters' contract, over HTTP in memory."""

from __future__ import annotations

from typing import Any

from backend_in_memory import DONE, Request, chunk, ending
from contracts.over_http import OverHTTP

from iop import model as m
from iop.node.adapters.openai_compat.adapter import factory

CHAT = m.HttpRequestHead("POST", m.CHAT)
TOOLS = b'{"messages":[],"tools":[{"type":"function","function":{"name":"f"}}]}'
REFUSAL = b'{"error":{"message":"t does not support tools"}}'


class TestOpenAICompatAdapter(OverHTTP):
    factory = factory
    PIECES = (chunk("one"), chunk("two"), ending(), DONE)
    MORE = chunk("more")
    REQUEST = m.RunRequest("r", "a", "t", input=b"{}", http=CHAT)
    REFUSAL = (400, b'{"error":{"message":"no","type":"x","code":"wrong"}}')
    CHECKS = {"/v1/models": b'{"object":"list","data":[{"id":"m"}]}'}


class TestOpenAICompatNormalized(TestOpenAICompatAdapter):
    PIECES = (b"one", "zwölf".encode())
    MORE = "mehr 🌍".encode()
    REQUEST = m.RunRequest("r", "a", "t", mode=m.Mode.NORMALIZED, input=b'{"model":"alias","messages":[]}')

    def piece(self, said: bytes) -> bytes:
        return chunk(said.decode())

    def ending(self) -> tuple[bytes, ...]:
        return ending(), DONE

    def nonsense(self, connection: Any) -> None:
        connection.say(b"data: \x00\xff\x13 no JSON\n\n")


class TestOpenAICompatFallback(TestOpenAICompatNormalized):
    """Passthrough is asked, the backend refuses tools, and the run is what a normalized one is."""

    REQUEST = m.RunRequest("r", "a", "t", input=TOOLS, http=CHAT)

    def _answer(self, request: Request) -> None:
        if b'"tools"' in request.body:
            request.connection.respond(400, REFUSAL)
        else:
            super()._answer(request)
