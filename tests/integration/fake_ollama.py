"""An Ollama server to its published API, as a program: ``fake_ollama.py PORT``. Knows nothing of IOP.

Every answer is :data:`SENTENCE`; where tools are offered and no result of one is the last message, it calls the first.
As the real one it refuses what it cannot decode, arguments of a call that are a string say. The model ``untaught``
refuses tools; told of them in its system message it writes a call as text. A last message ``busy`` is refused with 503.
A text to embed becomes its length and two numbers that never change; one of more letters than ``num_ctx`` is refused,
or cut where ``truncate`` is not false. ``GET /stats`` counts what was asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fake_server import FakeHandler, serve

SENTENCE = "Every answer of this model is the same short line."
WRITTEN = '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>'
CREATED = "2026-11-29T12:00:00.123456789Z"
COUNTS = {
    "total_duration": 5_000_000,
    "load_duration": 1_000_000,
    "prompt_eval_count": 26,
    "prompt_eval_duration": 1_000_000,
    "eval_count": 12,
    "eval_duration": 3_000_000,
}


class Refused(Exception):
    """A request that gets a status and a message instead."""


def decoded(document: Any) -> Any:
    """Return a request; :raises Refused: for what the real server's types cannot hold."""
    if not isinstance(document, dict) or not document.get("model"):
        raise Refused(400, "model is required")
    for message in document.get("messages", ()):
        if not isinstance(message.get("content", ""), str):
            raise Refused(400, "json: cannot unmarshal array into Go struct field ChatRequest.messages of type string")
        for call in message.get("tool_calls", ()):
            if not isinstance(call["function"]["arguments"], dict):
                raise Refused(400, "json: cannot unmarshal string into Go struct field .arguments of type api.args")
    return document


def lines(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the messages of an answer; :raises Refused: before the first."""
    model, messages, tools = document["model"], document["messages"], document.get("tools")
    if messages[-1]["content"] == "busy":
        raise Refused(503, "server busy, please try again.  maximum pending requests exceeded")
    if model == "untaught" and tools:
        raise Refused(400, f"registry.ollama.ai/library/{model} does not support tools")
    resulted = messages[-1]["role"] == "tool" or "<tool_response>" in messages[-1]["content"]
    if tools and not resulted:
        function = {"name": tools[0]["function"]["name"], "arguments": {"city": "Ulm"}}
        yield {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}
        return
    text = WRITTEN if "<tools>" in messages[0]["content"] and not resulted else SENTENCE
    for at in range(0, len(text), 5):
        yield {"role": "assistant", "content": text[at : at + 5]}


def embedded(document: dict[str, Any]) -> dict[str, Any]:
    """Return the answer with the vectors; :raises Refused:"""
    given, most = document.get("input"), document.get("options", {}).get("num_ctx", 4096)
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise Refused(400, "invalid input type")
    if document.get("truncate", True):
        texts = [text[:most] for text in texts]
    if any(len(text) > most for text in texts):
        raise Refused(400, "the input length exceeds the context length")
    if document["model"] == "missing":
        raise Refused(404, 'model "missing" not found, try pulling it first')
    vectors = [[float(len(text)), 0.5, -1.0][: document.get("dimensions")] for text in texts]
    counts = {"total_duration": 14_143_917, "load_duration": 1_019_500, "prompt_eval_count": 8}
    return {"model": document["model"], "embeddings": vectors, **counts}


class Handler(FakeHandler):
    """One connection."""

    asked = 0
    last: Any = None

    def do_GET(self) -> None:
        shown = {
            "/": "Ollama is running",
            "/api/version": {"version": "0.13.0"},
            "/api/tags": {"models": [{"name": "olla", "model": "olla"}]},
            "/v1/models": {"object": "list", "data": [{"id": "olla", "object": "model"}]},
            "/stats": {"asked": Handler.asked, "last": Handler.last},
        }
        found = shown.get(self.path)
        self._document(200 if found else 404, found or {"error": "not found"})

    def do_POST(self) -> None:
        body = self._body()
        try:
            if self.path not in ("/api/chat", "/api/embed"):
                raise Refused(404, "not found")
            Handler.asked += 1
            Handler.last = document = decoded(json.loads(body))
            if self.path == "/api/embed":
                self._document(200, embedded(document))
                return
            messages = list(lines(document))
        except Refused as refused:
            status, message = refused.args
            self._document(status, {"error": message})
            return
        frame = {"model": document["model"], "created_at": CREATED}
        answer = [frame | {"message": message, "done": False} for message in messages]
        end = {"role": "assistant", "content": ""}
        answer.append(frame | {"message": end, "done": True, "done_reason": "stop"} | COUNTS)
        self._stream("application/x-ndjson", [json.dumps(each) + "\n" for each in answer])


if __name__ == "__main__":
    serve(Handler)
