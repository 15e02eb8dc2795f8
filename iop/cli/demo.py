"""The ``demo`` model: a tiny backend that needs nothing, for a first try when this machine serves no model.

It speaks the OpenAI HTTP API on a loopback port, so that a request takes the whole way: edge, link, node, adapter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from iop.errors import Failure
from iop.http import sse
from iop.http.server import Exchange

MODEL: Final = "demo"
WORD_SECONDS: Final = 0.02
LONGEST_ECHO: Final = 200

_JSON: Final = [(b"content-type", b"application/json")]
_EVENTS: Final = [(b"content-type", b"text/event-stream; charset=utf-8")]


def reply(messages: Any) -> str:
    """Return what the demo answers to a conversation: it says what it is, and repeats what it was told."""
    last = messages[-1] if isinstance(messages, list) and messages else None
    content = last.get("content") if isinstance(last, dict) else None
    if isinstance(content, list):
        content = " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    heard = " ".join(content.split())[:LONGEST_ECHO] if isinstance(content, str) else ""
    return (
        "Hello! I am IOP's built-in demo model. I know nothing, but your request took the whole way: edge, link, node, "
        f"adapter, and back. You said: {heard or 'nothing'}"
    )


def words(text: str) -> Iterator[str]:
    """Cut a text into what a model would call tokens."""
    for number, word in enumerate(text.split(" ")):
        yield word if number == 0 else f" {word}"


class DemoBackend:
    """An :class:`iop.http.server.Application` that answers like a model server."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._numbers = count(1)

    def admit(self, exchange: Exchange) -> None:
        pass

    def refuse(self, exchange: Exchange, failure: Failure) -> None:
        document = {"error": {"message": failure.message, "type": failure.type, "param": None, "code": failure.code}}
        exchange.respond(failure.http_status, _JSON, json.dumps(document).encode())

    def handle(self, exchange: Exchange) -> None:
        if exchange.path == b"/v1/models":
            listed = {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "iop"}]}
            exchange.respond(200, _JSON, json.dumps(listed).encode())
        elif exchange.path == b"/v1/chat/completions" and exchange.method == b"POST":
            self._chat(exchange)
        else:
            self.refuse(exchange, Failure("unknown_url", "the demo serves chat completions only"))

    def _chat(self, exchange: Exchange) -> None:
        try:
            asked = json.loads(exchange.body)
        except ValueError:
            asked = None
        if not isinstance(asked, dict):
            self.refuse(exchange, Failure("invalid_json", "the request body is not a JSON object"))
            return
        answer = _Answer(f"chatcmpl-demo-{next(self._numbers)}", int(self._clock.seconds()), asked)
        if asked.get("stream"):
            self._stream(exchange, answer)
        else:
            exchange.respond(200, _JSON, json.dumps(answer.whole()).encode())

    def _stream(self, exchange: Exchange, answer: _Answer) -> None:
        exchange.start(200, _EVENTS)
        chunks = answer.chunks()
        later: list[IDelayedCall] = []

        def step() -> None:
            later.clear()
            chunk = next(chunks, None)
            if chunk is None:
                exchange.write(sse.DONE)
                exchange.finish()
                return
            exchange.write(sse.event(chunk))
            later.append(self._clock.callLater(WORD_SECONDS, step))

        def gone() -> None:
            for call in later:
                call.cancel()

        exchange.on_gone = gone
        step()


class _Answer:
    """One answer, whole or in chunks."""

    def __init__(self, id: str, created: int, asked: dict[str, Any]) -> None:
        self._id = id
        self._created = created
        tokens = list(words(reply(asked.get("messages"))))
        limit = asked.get("max_completion_tokens", asked.get("max_tokens"))
        self._cut = isinstance(limit, int) and 0 < limit < len(tokens)
        self._tokens = tokens[:limit] if self._cut else tokens
        options = asked.get("stream_options")
        self._with_usage = isinstance(options, dict) and options.get("include_usage") is True
        self._prompt_tokens = len(json.dumps(asked.get("messages"))) // 4

    @property
    def _finish(self) -> str:
        return "length" if self._cut else "stop"

    @property
    def _usage(self) -> dict[str, int]:
        made = len(self._tokens)
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": made,
            "total_tokens": self._prompt_tokens + made,
        }

    def whole(self) -> dict[str, Any]:
        """Return a ``chat.completion``."""
        message = {"role": "assistant", "content": "".join(self._tokens), "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish}
        return self._document("chat.completion", [choice], usage=self._usage)

    def chunks(self) -> Iterator[dict[str, Any]]:
        """Return the ``chat.completion.chunk`` documents."""
        for number, token in enumerate(self._tokens):
            delta = {"role": "assistant", "content": token} if number == 0 else {"content": token}
            yield self._chunk(delta, None)
        yield self._chunk({}, self._finish)
        if self._with_usage:
            yield self._document("chat.completion.chunk", [], usage=self._usage)

    def _chunk(self, delta: dict[str, str], finish: str | None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._document("chat.completion.chunk", [choice])

    def _document(self, kind: str, choices: list[Any], **more: Any) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": MODEL, "choices": choices, **more}
