"""A backend that has every API and takes whatever it is sent, as a program: ``fake_anything.py PORT``.

What it answers is well-formed, by the path alone. Knows nothing of IOP.
"""

from __future__ import annotations

import json
from typing import Any

from fake_server import FakeHandler, serve

USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "any",
    "content": [{"type": "text", "text": "yes"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 5, "output_tokens": 3},
}
RESPONSE = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "any", "output": []}


def choice(member: str, text: Any) -> dict[str, Any]:
    chosen = [{"index": 0, member: text, "finish_reason": "stop"}]
    return {"id": "c", "object": "any", "created": 1, "model": "any", "choices": chosen, "usage": USAGE}


def inputs(given: Any) -> int:
    return len(given) if isinstance(given, list) and any(not isinstance(each, int) for each in given) else 1


def answer(path: str, asked: dict[str, Any]) -> Any:
    """Return the document."""
    if path.endswith("/chat/completions"):
        return choice("message", {"role": "assistant", "content": "yes"})
    if path.endswith("/completions"):
        return choice("text", "yes")
    if path.endswith("/embeddings"):
        data = [{"object": "embedding", "index": i, "embedding": [0.5]} for i in range(inputs(asked.get("input")))]
        return {"object": "list", "data": data, "model": "any", "usage": USAGE}
    fixed = {"/responses": RESPONSE, "/messages": MESSAGE, "/messages/count_tokens": {"input_tokens": 5}}
    return next((document for end, document in fixed.items() if path.endswith(end)), {"results": []})


def events(path: str) -> list[tuple[str, Any]]:
    """Return the stream of it, each event with its name or none."""
    if path.endswith("/responses"):
        told = [{"type": f"response.{word}", "response": RESPONSE} for word in ("created", "completed")]
        return [(each["type"], {**each, "sequence_number": at}) for at, each in enumerate(told)]
    if path.endswith("/messages"):
        end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}
        told = [{"type": "message_start", "message": {**MESSAGE, "content": []}}, end, {"type": "message_stop"}]
        return [(each["type"], each) for each in told]
    piece = (
        {"text": "yes"}
        if not path.endswith("/chat/completions")
        else {"delta": {"role": "assistant", "content": "yes"}}
    )
    frame = {"id": "c", "object": "any", "created": 1, "model": "any"}
    return [
        ("", {**frame, "choices": [{"index": 0, "finish_reason": "stop", **piece}], "usage": USAGE}),
        ("", "[DONE]"),
    ]


class Handler(FakeHandler):
    """One connection."""

    def do_GET(self) -> None:
        self._send("application/json", json.dumps({"object": "list", "data": []}).encode())

    def do_POST(self) -> None:
        body = self._body()
        try:
            asked = json.loads(body)
        except ValueError:
            asked = {}
        if asked.get("stream") is not True:
            self._send("application/json", json.dumps(answer(self.path, asked)).encode())
            return
        said = b""
        for name, document in events(self.path):
            data = document if isinstance(document, str) else json.dumps(document)
            said += (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()
        self._send("text/event-stream", said)


if __name__ == "__main__":
    serve(Handler)
