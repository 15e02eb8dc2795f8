"""A backend with one conversation in every way there is, as a program: ``fake_tides.py PORT``. Knows nothing of IOP.

Asked for two tides it says :data:`LOOKING` and calls its tool twice; given both results it says :data:`FOUND`. It does
so by the chat API and by Ollama's native one, streaming and not. A model ``untaught`` refuses native tools; one that is
told of tools in its system message writes its calls as text. Any other conversation, a history that is not what was
said included, is refused with 400. ``GET /stats`` tells how the last answer was asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from fake_server import FakeHandler, serve


class Turn(NamedTuple):
    """What the model says, and what it counts."""

    text: str
    calls: tuple[tuple[str, dict[str, Any]], ...]
    prompt: int
    answer: int


LOOKING = Turn(
    "Let me look – one moment.",
    (("lookup_tide", {"port": "Oban", "days": 2}), ("lookup_tide", {"port": "Portrée", "days": 1})),
    31,
    17,
)
FOUND = Turn("Oban 2.1 m, Portrée 4.8 m.", (), 64, 9)
RESULTS = ("2.1 m", "4.8 m")

REFUSAL = "untaught does not support tools"
CHUNK = {"id": "chatcmpl-tides", "object": "chat.completion.chunk", "created": 1, "model": "tides"}
WRITTEN = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


class Refused(Exception):
    """A request that gets 400 and a message."""


def turn_of(messages: list[dict[str, Any]]) -> Turn:
    """Return what is said next; :raises Refused: in another conversation."""
    first, asked, *rest = messages
    if not str(first.get("content")).startswith("Be brief.") or asked.get("content") != "How are the tides?":
        raise Refused("another question was asked")
    if not rest:
        return LOOKING
    told, *results = rest
    text, _, _ = str(told.get("content")).partition("<tool_call>")
    if (told.get("role"), text.strip(), called(told)) != ("assistant", LOOKING.text, LOOKING.calls):
        raise Refused("something else was said before")
    if [word for each in results for word in RESULTS if word in each["content"]] != [*RESULTS]:
        raise Refused("something else was found")
    return FOUND


def called(message: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return the calls of a message of the history, however they are told."""
    native = [call["function"] for call in message.get("tool_calls") or ()]
    functions = native or [json.loads(written) for written in WRITTEN.findall(message["content"])]
    arguments = [each["arguments"] for each in functions]
    read = [json.loads(each) if isinstance(each, str) else each for each in arguments]
    return tuple((each["name"], given) for each, given in zip(functions, read, strict=True))


def answer_of(document: dict[str, Any]) -> Turn:
    """Return what is said to a request; as text altogether where native tools are not known."""
    if document["model"] == "untaught" and document.get("tools"):
        raise Refused(REFUSAL)
    turn = turn_of(document["messages"])
    if document.get("tools"):
        return turn
    if "<tools>" not in document["messages"][0]["content"]:
        raise Refused("no tool was offered")
    blocks = [
        f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments, ensure_ascii=False)}}}\n</tool_call>'
        for name, arguments in turn.calls
    ]
    return turn._replace(text=turn.text + "\n".join(blocks), calls=())


def cut(text: str) -> list[str]:
    return [text[at : at + 3] for at in range(0, len(text), 3)]


# ---- the chat API ---------------------------------------------------------------------------------------------------


def calls_of(turn: Turn) -> list[dict[str, Any]]:
    return [
        {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for at, (name, arguments) in enumerate(turn.calls)
    ]


def usage_of(turn: Turn) -> dict[str, int]:
    return {
        "prompt_tokens": turn.prompt,
        "completion_tokens": turn.answer,
        "total_tokens": turn.prompt + turn.answer,
    }


def completion(turn: Turn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text}
    if turn.calls:
        message["tool_calls"] = calls_of(turn)
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if turn.calls else "stop"}
    return {**CHUNK, "object": "chat.completion", "choices": [choice], "usage": usage_of(turn)}


def chunks(turn: Turn, *, usage: bool) -> Iterator[dict[str, Any]]:
    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {**CHUNK, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    yield chunk({"role": "assistant", "content": ""})
    for piece in cut(turn.text):
        yield chunk({"content": piece})
    for at, call in enumerate(calls_of(turn)):
        function = call["function"]
        yield chunk({"tool_calls": [{"index": at, **call, "function": {**function, "arguments": ""}}]})
        for piece in cut(function["arguments"]):
            yield chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
    yield chunk({}, "tool_calls" if turn.calls else "stop")
    if usage:
        yield {**CHUNK, "choices": [], "usage": usage_of(turn)}


# ---- Ollama's -------------------------------------------------------------------------------------------------------


def lines(turn: Turn) -> Iterator[dict[str, Any]]:
    frame = {"model": "tides", "created_at": "2026-11-29T12:00:00.123456789Z"}
    messages: list[dict[str, Any]] = [{"content": piece} for piece in cut(turn.text)]
    for name, arguments in turn.calls:
        messages.append({"content": "", "tool_calls": [{"function": {"name": name, "arguments": arguments}}]})
    for message in messages:
        yield {**frame, "message": {"role": "assistant", **message}, "done": False}
    counts = {"prompt_eval_count": turn.prompt, "eval_count": turn.answer}
    end = {"role": "assistant", "content": ""}
    yield {**frame, "message": end, "done": True, "done_reason": "stop", **counts}


class Handler(FakeHandler):
    """One connection."""

    last: Any = None

    def do_GET(self) -> None:
        shown = {"/stats": {"last": Handler.last}, "/api/version": {"version": "0.32.0"}}
        self._document(200, shown.get(self.path, {"object": "list", "data": []}))

    def do_POST(self) -> None:
        asked = json.loads(self._body())
        ollama = self.path == "/api/chat"
        streams = bool(asked.get("stream", ollama))
        try:
            turn = answer_of(asked)
        except Refused as refused:
            (message,) = refused.args
            self._document(400, {"error": message if ollama else {"message": message, "type": "invalid_request_error"}})
            return
        Handler.last = {"path": self.path, "stream": streams, "native": bool(asked.get("tools"))}
        if ollama:
            self._stream("application/x-ndjson", [json.dumps(line) + "\n" for line in lines(turn)])
        elif streams:
            usage = bool((asked.get("stream_options") or {}).get("include_usage"))
            events = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks(turn, usage=usage)]
            self._stream("text/event-stream", [*events, "data: [DONE]\n\n"])
        else:
            self._document(200, completion(turn))


if __name__ == "__main__":
    serve(Handler)
