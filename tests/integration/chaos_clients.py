"""Clients of a gateway that is being killed: what each of them asked, and what it knows of the end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, Final

import h11
from raw_http import Answer, Wire, post

FIRST: Final = 1_000_000
"""Numbers of requests begin here: no input of these tests has so many tokens, so none is a guess of the edge's."""

PATHS: Final = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


@dataclass
class Asked:
    """One request, as its client knows it.

    :ivar number: how many tokens the backend says the input had. Nobody else has this number.
    :ivar begun, ended: seconds since 1970; 0 while it goes on.
    :ivar end: ``whole``, ``cut`` (the connection broke), ``away`` (there was none), or the error's code, its type
        where the API has no codes.
    :ivar wrong: why an answer that calls itself whole is not.
    """

    number: int
    api: str
    stream: bool
    pieces: int
    token: str
    begun: float
    ended: float = 0.0
    request_id: str = ""
    end: str = ""
    wrong: str = ""

    def request(self, pause: float) -> bytes:
        order = f"count {self.number} drip {self.pieces} {pause:.4f}"
        body: dict[str, Any] = {"model": "fake", "stream": self.stream}
        if self.api == "responses":
            body["input"] = order
        else:
            body["messages"] = [{"role": "user", "content": order}]
        if self.api == "messages":
            body["max_tokens"] = 1000
        return post(json.dumps(body).encode(), key=self.token, path=PATHS[self.api])


class Clients:
    """Ask one request after another, each on a connection that it keeps, until :meth:`stop`.

    :param tokens: whose requests they are.
    :ivar asked: every request, in the order in which they began.
    """

    def __init__(self, port: int, tokens: list[str]) -> None:
        self._port = port
        self._tokens = tokens
        self._numbers = count(FIRST)
        self._stopped = threading.Event()
        self.asked: list[Asked] = []

    def stop(self) -> None:
        self._stopped.set()

    def ask(self, seed: int) -> None:
        """Be one client; one that is not served takes its time."""
        random = Random(seed)
        wire: Wire | None = None
        pace = 50.0
        while not self._stopped.wait(random.expovariate(pace)):
            api = random.choice(("chat", "chat", "chat", "responses", "messages"))
            pieces, pause = random.choice(((1, 0.0), (10, 0.005), (20, 0.01), (25, 0.04)))
            number, token = next(self._numbers), random.choice(self._tokens)
            asked = Asked(number, api, random.random() < 0.6, pieces, token, time.time())
            self.asked.append(asked)
            try:
                wire = wire or Wire(self._port)
            except ConnectionError:
                asked.end, asked.ended, pace = "away", time.time(), 10.0
                continue
            if not _answered(wire, asked, pause):
                wire.socket.close()
                wire = None
            pace = 50.0 if asked.end == "whole" else 10.0
        if wire is not None:
            wire.socket.close()


def _answered(wire: Wire, asked: Asked, pause: float) -> bool:
    """Ask and note what comes; return whether the connection may be used again."""
    answer = Answer()
    try:
        wire.send(asked.request(pause))
        answer = wire.begin(0)
        wire.rest()
    except (ConnectionError, h11.RemoteProtocolError, wire.Closed):
        asked.end = "cut"
    asked.ended = time.time()
    asked.request_id = answer.headers.get("x-request-id", "")
    if asked.end:
        return False
    asked.end, asked.wrong = verdict(asked, answer)
    return answer.headers.get("connection") != "close"


# ---- reading answers ------------------------------------------------------------------------------------------------


def verdict(asked: Asked, answer: Answer) -> tuple[str, str]:
    """Return how an answer that came to its end, in HTTP's terms, has ended, and what is wrong with it."""
    if answer.status != 200:
        return _code(json.loads(answer.body)), ""
    said, usage, code = (_streamed if asked.stream else _document)(asked.api, answer)
    if code:
        return code, ""
    text = "".join(f"{number} " for number in range(asked.pieces))
    if said != text:
        return "whole", f"{said!r} instead of {text!r}"
    if usage not in (None, asked.number):
        return "whole", f"{usage} tokens"
    return "whole", ""


def _code(document: Any) -> str:
    error = document["error"]
    return str(error.get("code") or error["type"])


def _document(api: str, answer: Answer) -> tuple[str, int | None, str]:
    """Return text, input tokens and error code of a whole answer."""
    document = json.loads(answer.body)
    if api == "chat":
        return document["choices"][0]["message"]["content"], document["usage"]["prompt_tokens"], ""
    if document.get("error"):
        return "", None, _code(document)
    parts = document["content"] if api == "messages" else document["output"][0]["content"]
    assert document["stop_reason"] == "end_turn" if api == "messages" else document["status"] == "completed"
    return "".join(part["text"] for part in parts), document["usage"]["input_tokens"], ""


def _streamed(api: str, answer: Answer) -> tuple[str, int | None, str]:
    """The same of a stream; the test fails on one that just ends, without its API's last event or an error."""
    lines = [line[len("data: ") :] for line in answer.body.decode().split("\n") if line.startswith("data: ")]
    events = [json.loads(line) for line in lines if line != "[DONE]"]
    last = events[-1]
    read: dict[str, Callable[[list[Any]], tuple[str, int | None]]] = {
        "chat": _chat,
        "responses": _responses,
        "messages": _messages,
    }
    whole = {"chat": lines[-1] == "[DONE]", "responses": last.get("type") == "response.completed"}
    if whole.get(api, last.get("type") == "message_stop"):
        return *read[api](events), ""
    assert "[DONE]" not in lines, lines
    return "", None, _code(last["response"] if last.get("type") == "response.failed" else last)


def _chat(events: list[Any]) -> tuple[str, int | None]:
    assert [c["finish_reason"] for e in events for c in e["choices"] if c["finish_reason"]] == ["stop"]
    return "".join(c["delta"].get("content") or "" for e in events for c in e["choices"]), None


def _responses(events: list[Any]) -> tuple[str, int | None]:
    said = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    return said, events[-1]["response"]["usage"]["input_tokens"]


def _messages(events: list[Any]) -> tuple[str, int | None]:
    said = "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")
    assert [e["delta"]["stop_reason"] for e in events if e["type"] == "message_delta"] == ["end_turn"]
    return said, None
