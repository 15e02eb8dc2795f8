"""The whole chain on a memory net: client, edge, link, node, an adapter over HTTP, and a fake backend."""

from __future__ import annotations

import json
from typing import Any

from backend_in_memory import Backend
from gateway_in_memory import CHAT, Answer, Client, Gateway, document

from iop.node.adapters import plugin

STREAM = {**CHAT, "stream": True}


class Chain(Gateway):
    """A gateway whose only provider is an HTTP backend.

    :param settings: of the adapter, beside its base_url; a ``type`` among them is that of the adapter.
    :param provider: of the provider in the configuration.
    :param model: of the model in the configuration.
    """

    def __init__(
        self,
        *,
        openai: dict[str, Any] | None = None,
        provider: dict[str, Any] | None = None,
        model: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        adapter = {"name": "a", "type": "openai_compat", "base_url": "http://127.0.0.1:8000/v1", **settings}
        made = {
            "health": {"interval_ms": 0},
            "id": "p1",
            "type": "vllm",
            "category": "local_inference",
            "adapter": "a",
            "models": ["m"],
        }
        made |= {"capacity": 1000, **(provider or {})}
        node = {"id": "n1", "token": "n1", "adapters": [adapter], "providers": [made]}
        configuration = document(node, openai=openai)
        configuration["models"][0] |= model or {}
        super().__init__(configuration=configuration, find=plugin.factory)
        self.backend = Backend(self.net)

    @classmethod
    def of_ollama(cls, **settings: Any) -> Chain:
        """Return one whose backend is an Ollama server."""
        return cls(type="ollama", base_url="http://127.0.0.1:8000", provider={"type": "ollama"}, **settings)

    def assert_idle(self) -> None:
        super().assert_idle()
        assert self.backend.open == 0

    def wait(self, client: Client, seconds: float = 1.0) -> Answer:
        """Let so much time pass; return the answer."""
        self.net.run(seconds)
        return client.answer


def chunks(answer: Answer) -> list[Any]:
    """The documents of a stream, [DONE] apart."""
    return [json.loads(event) for event in answer.events if event != "[DONE]"]


def text(answer: Answer) -> str:
    """What a client shows: the text of the only choice."""
    if answer.headers["content-type"].startswith("text/event-stream"):
        pieces = [choice["delta"].get("content") for each in chunks(answer) for choice in each.get("choices", [])]
        return "".join(piece or "" for piece in pieces)
    return str(answer.json["choices"][0]["message"]["content"])


def reasons(answer: Answer) -> list[str]:
    """The finish reasons of a stream."""
    found = [choice.get("finish_reason") for each in chunks(answer) for choice in each.get("choices", [])]
    return [reason for reason in found if reason]


def failed(answer: Answer) -> Any:
    """The error that ends a stream; it must be the last event, and no [DONE] anywhere."""
    assert answer.whole
    assert "[DONE]" not in answer.events
    error = json.loads(answer.events[-1])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error
