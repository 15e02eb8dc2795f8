"""A backend that does what it is told, as a program: ``fake_openai.py PORT``. Knows nothing of IOP.

The last message of a chat request is an order: a word of :data:`ORDERS` and its numbers, such as ``drip 20 0.1``; any
other text is answered at once. ``GET /stats`` counts what is open, what was asked and what was sent.

At a path that is none of chat it tells what came, ``text`` included; ``/v1/audio/speech`` is answered with bytes.

A model of :data:`REFUSALS` refuses tools, as the server of that name does. One that is told of tools in its system
message writes a call, and says :data:`SENTENCE` once it has the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any

CHUNK = {"id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 1, "model": "fake"}
USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
PIECE = "x" * 16_000
SOUND = bytes(range(256)) * 400

SENTENCE = "Every answer of this model is the same short line."
WRITTEN = '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>'

_VLLM = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
REFUSALS: dict[str, tuple[int, dict[str, Any]]] = {
    "vllm": (400, {"message": _VLLM, "type": "BadRequestError", "param": None, "code": 400}),
    "llama.cpp": (500, {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}),
}


class Gone(Exception):
    """The other side has left, or this side wants to."""


class Answer:
    """One answer on its way, streamed or whole as the request wants it."""

    def __init__(
        self, backend: Backend, writer: asyncio.StreamWriter, *, stream: bool, usage: bool, counted: bool = True
    ) -> None:
        self._backend = backend
        self._writer = writer
        self._counted = counted
        self.stream = stream
        self.usage = USAGE
        self.headers: dict[str, str] = {}
        self._usage = usage

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        self._backend.sent += len(data) if self._counted else 0
        await self._writer.drain()

    async def document(self, status: int, document: Any, *headers: str) -> None:
        body = json.dumps(document).encode()
        head = [f"HTTP/1.1 {status} Word", "content-type: application/json", f"content-length: {len(body)}", *headers]
        await self.raw("\r\n".join([*head, "", ""]).encode() + body)

    async def begin(self) -> None:
        """Send the head of an answer whose length nobody knows."""
        kind = "text/event-stream" if self.stream else "application/json"
        await self.raw(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        if self.stream:
            await self.chunk({"role": "assistant", "content": ""})
        else:
            await self.piece(
                b'{"id":"chatcmpl-fake","object":"chat.completion","created":1,"model":"fake",'
                b'"choices":[{"message":{"role":"assistant","content":"'
            )

    async def piece(self, data: bytes) -> None:
        """Send a part of a chunked body."""
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, document: Any) -> None:
        await self.piece(b"data: " + json.dumps(document).encode() + b"\n\n")

    async def chunk(self, delta: dict[str, Any], reason: str | None = None) -> None:
        await self.event(CHUNK | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

    async def text(self, text: str) -> None:
        """Send more of the answer's text."""
        if self.stream:
            await self.chunk({"content": text})
        else:
            await self.piece(json.dumps(text)[1:-1].encode())

    async def end(self) -> None:
        """Finish what :meth:`begin` began."""
        if self.stream:
            await self.chunk({}, "stop")
            if self._usage:
                await self.event(CHUNK | {"choices": [], "usage": self.usage})
            await self.piece(b"data: [DONE]\n\n")
        else:
            rest = '"},"index":0,"finish_reason":"stop"}],"usage":' + json.dumps(self.usage) + "}"
            await self.piece(rest.encode())
        await self.raw(b"0\r\n\r\n")

    def break_off(self) -> None:
        """Reset the connection."""
        self._writer.transport.abort()
        raise Gone


async def say(answer: Answer, *words: str) -> None:
    await answer.begin()
    await answer.text(" ".join(words))
    await answer.end()


async def write(answer: Answer, text: str) -> None:
    """Say it in small pieces."""
    await answer.begin()
    for at in range(0, len(text), 5):
        await answer.text(text[at : at + 5])
    await answer.end()


async def silence(answer: Answer, seconds: str = "3600") -> None:
    """Never answer, or late."""
    await asyncio.sleep(float(seconds))
    await say(answer, "late")


async def drip(answer: Answer, count: str, pause: str) -> None:
    """So many pieces with a pause after each."""
    await answer.begin()
    for number in range(int(count)):
        await answer.text(f"{number} ")
        await asyncio.sleep(float(pause))
    await answer.end()


async def stall(answer: Answer, count: str) -> None:
    """So many pieces, then nothing."""
    await answer.begin()
    for number in range(int(count)):
        await answer.text(f"{number} ")
    await asyncio.sleep(3600)


async def die(answer: Answer, count: str) -> None:
    """So many pieces, then a reset."""
    await answer.begin()
    for number in range(int(count)):
        await answer.text(f"{number} ")
    await asyncio.sleep(0.05)  # a reset at once would take back what was just sent
    answer.break_off()


async def close(answer: Answer) -> None:
    """Not a byte."""
    answer.break_off()


async def garbage(answer: Answer) -> None:
    await answer.raw(b"\x00\xff\x13 not HTTP at all\r\n\r\n")
    answer.break_off()


async def refuse(answer: Answer, status: str) -> None:
    """A status, with an error that names this machine, as some do."""
    message = f"http://127.0.0.1:9/v1 said {status}"
    await answer.document(int(status), {"error": {"message": message, "type": "trouble", "code": int(status)}})


async def betray(answer: Answer, status: str) -> None:
    """A status, with an error that repeats what the request's headers were, as some do of a key."""
    said = ", ".join(f"{name}: {value}" for name, value in answer.headers.items())
    error = {"message": f"Incorrect API key provided: {said}", "type": "auth_error", "code": "invalid_api_key"}
    if status == "200":
        await answer.begin()
        await answer.event({"error": error})
        await answer.raw(b"0\r\n\r\n")
    else:
        await answer.document(int(status), {"error": error})


async def limit(answer: Answer, seconds: str) -> None:
    error = {"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"}
    await answer.document(429, {"error": error}, f"retry-after: {seconds}")


async def html(answer: Answer) -> None:
    body = b"<html><body>nginx: Bad Gateway</body></html>"
    head = f"HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: {len(body)}\r\n\r\n"
    await answer.raw(head.encode() + body)


async def error(answer: Answer, count: str) -> None:
    """An error object in the middle of a good answer."""
    await answer.begin()
    for number in range(int(count)):
        await answer.text(f"{number} ")
    await answer.event({"error": {"message": "the model fell over", "type": "server_error", "code": None}})
    await answer.raw(b"0\r\n\r\n")


async def flood(answer: Answer, size: str, end: str = "well") -> None:
    """So many bytes, as fast as they are taken; then an end, or a reset."""
    await answer.begin()
    for _ in range(int(size) // len(PIECE)):
        await answer.text(PIECE)
    if end == "well":
        await answer.end()
    else:
        await asyncio.sleep(0.3)  # as with die()
        answer.break_off()


async def count(answer: Answer, tokens: str, word: str, *numbers: str) -> None:
    """Obey another order, and say that the input had so many tokens: by them a test knows a request again."""
    answer.usage = USAGE | {"prompt_tokens": int(tokens), "total_tokens": int(tokens) + USAGE["completion_tokens"]}
    await ORDERS[word](answer, *numbers)


ORDERS: dict[str, Callable[..., Awaitable[None]]] = {
    order.__name__: order
    for order in (silence, drip, stall, die, close, garbage, refuse, betray, limit, html, error, flood, count)
}


class Backend:
    """Takes connections and counts them."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests = 0
        self.asked = 0
        self.sent = 0
        self.last: dict[str, Any] = {}

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._request(reader, writer):
                pass
        except (Gone, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.connections -= 1
            writer.transport.abort()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether there may be another."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if method == "GET":
            answer = Answer(self, writer, stream=False, usage=False, counted=False)
            await answer.document(200, self._shown(path), "connection: close")
            return False
        if path != "/v1/chat/completions":
            await self._repeat(path, headers, body, writer)
            return True
        document = json.loads(body)
        self.asked += 1
        self.last = {"path": path, "headers": headers, "body": document, "text": body[:10_000].decode()}
        usage = bool((document.get("stream_options") or {}).get("include_usage"))
        answer = Answer(self, writer, stream=bool(document.get("stream")), usage=usage)
        answer.headers = headers
        work = asyncio.ensure_future(self._obey(answer, document))
        watch = asyncio.ensure_future(reader.read(1))
        self.requests += 1
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.requests -= 1
            work.cancel()
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
        if not work.done():
            return False  # the caller has left
        await work
        return not watch.done() or watch.cancelled()

    async def _repeat(self, path: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter) -> None:
        """Tell what came; a sound where one is asked for."""
        answer = Answer(self, writer, stream=False, usage=False)
        if path == "/v1/audio/speech":
            head = f"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ncontent-length: {len(SOUND)}\r\n\r\n"
            await answer.raw(head.encode() + SOUND)
            return
        told = {"path": path, "type": headers.get("content-type"), "length": len(body)}
        await answer.document(200, {**told, "sha256": sha256(body).hexdigest(), "text": "said again"})

    async def _obey(self, answer: Answer, document: dict[str, Any]) -> None:
        first, last = (str(document["messages"][at]["content"]) for at in (0, -1))
        if document.get("tools") and document.get("model") in REFUSALS:
            status, error = REFUSALS[document["model"]]
            await answer.document(status, {"error": error})
            return
        if "<tools>" in first:
            await write(answer, SENTENCE if "<tool_response>" in last else WRITTEN)
            return
        word, *numbers = last.split()
        if word in ORDERS:
            await ORDERS[word](answer, *numbers)
        else:
            await say(answer, word, *numbers)

    def _shown(self, path: str) -> Any:
        if path == "/stats":
            return {
                "connections": self.connections - 1,  # but for the one that asks
                "requests": self.requests,
                "asked": self.asked,
                "sent": self.sent,
                "last": self.last,
            }
        return {"object": "list", "data": [{"id": "fake", "object": "model"}]}


async def serve(port: int) -> None:
    """Serve until told to stop."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = await asyncio.start_server(Backend().connected, "127.0.0.1", port, backlog=2048)
    await stop.wait()
    server.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
