"""Embeddings over Ollama's native API, backend and adapter joined in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from backend_in_memory import Backend
from doubles import RecordingSink
from hypothesis import given
from hypothesis import strategies as st
from memory_net import MemoryNet
from twisted.internet.defer import CancelledError

from iop import model as m
from iop.errors import Failure
from iop.node.adapters.environment import Environment, Run
from iop.node.adapters.ollama import answer as answers
from iop.node.adapters.ollama.adapter import factory

pytestmark = pytest.mark.usefixtures("logged")

HTTP = m.HttpRequestHead("POST", "/v1/embeddings", (("traceparent", "00-1"),))
VECTOR = [0.5, -1.0, 2]


def said(*vectors: Any, **members: Any) -> bytes:
    """Return what a server answers."""
    return json.dumps({"model": "t", "embeddings": vectors, "prompt_eval_count": 5, **members}).encode()


class World:
    """An adapter with these settings, and its backend."""

    def __init__(self, **settings: Any) -> None:
        self.net = MemoryNet()
        self.backend = Backend(self.net, 11434)
        self.backend.responds(200, said(VECTOR))
        self.adapter = factory.make(settings, Environment("a", self.net, Path("/state")))

    def ask(self, document: Any, *, http: m.HttpRequestHead | None = HTTP, **request: Any) -> RecordingSink:
        sink = RecordingSink()
        body = document if isinstance(document, bytes) else json.dumps({"model": "t", **document}).encode()
        made = m.RunRequest("r", "a", "t", mode=m.Mode.PASSTHROUGH, input=body, http=http, **request)
        self.done = self.adapter.run(Run(made), sink)
        self.net.run()
        return sink

    def end(self) -> None:
        """Nothing is left after a while."""
        self.net.run(30)
        assert not self.net.ends
        assert self.net.waiting == []


def test_a_text_becomes_a_vector() -> None:
    world = World()
    sink = world.ask({"input": "red", "encoding_format": "base64", "user": "u"}, secret_headers=(("x-key", "k"),))
    request = world.backend.last
    assert (request.method, request.target) == ("POST", "/api/embed")
    assert request.json == {"model": "t", "input": "red", "truncate": False, "options": {"num_ctx": 8192}}
    assert (request.headers["traceparent"], request.headers["x-key"]) == (["00-1"], ["k"])
    assert isinstance(sink.end, m.Whole)
    assert (sink.end.http, sink.end.usage) == (
        m.HttpResponseHead(200, (("content-type", "application/json"),)),
        m.Usage(5, 0),
    )
    assert json.loads(sink.body) == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": VECTOR}],
        "model": "t",
        "usage": {"prompt_tokens": 5, "total_tokens": 5},
    }
    assert world.done.called
    world.end()


def test_a_list_keeps_its_order_and_a_count_that_is_left_out_is_0() -> None:
    world = World()
    world.backend.responds(200, said([1.0], [2.0], [3.0], prompt_eval_count=None))
    sink = world.ask({"input": ["a", "b", ""]})
    assert world.backend.last.json["input"] == ["a", "b", ""]
    assert [(each["index"], each["embedding"]) for each in json.loads(sink.body)["data"]] == [
        (0, [1.0]),
        (1, [2.0]),
        (2, [3.0]),
    ]
    assert isinstance(sink.end, m.Whole)
    assert sink.end.usage == m.Usage(0, 0)


def test_what_the_settings_say_and_what_the_client_asks() -> None:
    """The context is that of chats, so that no request makes the server load the model anew."""
    world = World(context_size={"t": 512}, keep_alive="10m")
    world.ask({"input": "red", "dimensions": 3})
    asked = {"model": "t", "input": "red", "truncate": False, "options": {"num_ctx": 512}}
    assert world.backend.last.json == {**asked, "dimensions": 3, "keep_alive": "10m"}


@pytest.mark.parametrize(
    ("document", "code", "param"),
    [
        (b"{", "invalid_json", None),
        (b"[]", "invalid_value", None),
        ({}, "invalid_value", "input"),
        ({"input": ""}, "invalid_value", "input"),
        ({"input": []}, "invalid_value", "input"),
        ({"input": [1, 2]}, "invalid_value", "input"),
        ({"input": [[1], [2]]}, "invalid_value", "input"),
        ({"input": ["a", 1]}, "invalid_value", "input"),
        ({"input": "a", "dimensions": 0}, "invalid_value", "dimensions"),
        ({"input": "a", "dimensions": "3"}, "invalid_value", "dimensions"),
        ({"input": "a", "dimensions": True}, "invalid_value", "dimensions"),
    ],
)
def test_what_never_reaches_the_backend(document: Any, code: str, param: str | None) -> None:
    world = World()
    with pytest.raises(Failure) as raised:
        world.ask(document)
    assert (raised.value.code, raised.value.param, raised.value.http_status) == (code, param, 400)
    assert world.backend.requests == []
    world.end()


@pytest.mark.parametrize("http", [None, HTTP._replace(path="/v1/chat/completions"), HTTP._replace(path="/v1/rerank")])
def test_nothing_else_is_served_by_http(http: m.HttpRequestHead | None) -> None:
    world = World()
    with pytest.raises(Failure) as raised:
        world.ask({"input": "red"}, http=http)
    assert raised.value.code == "unknown_url"
    assert world.backend.requests == []


@pytest.mark.parametrize(
    ("status", "body", "code", "shown", "retryable"),
    [
        (404, b'{"error":"model \\"t\\" not found, try pulling it first"}', "model_not_found", 404, True),
        (404, b"404 page not found", "upstream_error", 502, False),
        (400, b'{"error":"the input length exceeds the context length"}', "context_length_exceeded", 400, False),
        (400, b'{"error":"input length exceeds maximum context length"}', "context_length_exceeded", 400, False),
        (500, b'{"error":"the input length exceeds the context length"}', "context_length_exceeded", 400, False),
        (400, b'{"error":"this model does not support embeddings"}', "", 400, False),
        (503, b'{"error":"server busy"}', "upstream_error", 503, True),
        (500, b'{"error":"failed to encode response"}', "upstream_error", 502, False),
        (200, b'{"error":"the runner is gone"}', "upstream_error", 502, False),
        (200, b"[]", "upstream_error", 502, False),
        (200, b"", "upstream_error", 502, False),
        (200, b'{"embeddings":5}', "upstream_error", 502, False),
        (200, said(), "upstream_error", 502, False),
        (200, said(VECTOR, VECTOR), "upstream_error", 502, False),
        (200, said([]), "upstream_error", 502, False),
        (200, said("x"), "upstream_error", 502, False),
        (200, said([None]), "upstream_error", 502, False),
        (200, said([True]), "upstream_error", 502, False),
        (200, said([float("nan")]), "upstream_error", 502, False),
        (200, said([10**400]), "upstream_error", 502, False),
    ],
)
def test_refusals_and_answers_that_are_none(status: int, body: bytes, code: str, shown: int, retryable: bool) -> None:
    world = World()
    world.backend.responds(status, body)
    failure = world.ask({"input": "red"}).failure
    assert (failure.code, failure.http_status, failure.retryable) == (code, shown, retryable)
    assert world.done.called
    world.end()


def test_a_busy_server_says_when_to_come_back() -> None:
    world = World()
    world.backend.responds(503, b'{"error":"server busy"}')
    assert world.ask({"input": "red"}).failure.retry_after_ms == 1000


@pytest.mark.parametrize("dimensions", [2, 4])
def test_vectors_of_another_length_than_was_asked_are_refused(dimensions: int) -> None:
    """An old server passes the wish over; a model has no more than it has."""
    failure = World().ask({"input": "red", "dimensions": dimensions}).failure
    assert (failure.code, failure.param) == ("invalid_value", "dimensions")
    assert "3 numbers" in failure.message


def test_fewer_vectors_than_texts_are_no_answer() -> None:
    failure = World().ask({"input": ["red", "blue"]}).failure
    assert (failure.code, failure.message) == ("upstream_error", "the backend answered 1 vectors to 2 inputs")


@given(st.integers(1, 60))
def test_reads_of_any_size(size: int) -> None:
    world = World()
    world.net.read_size = size
    world.backend.responds(200, said(VECTOR))
    assert json.loads(world.ask({"input": "red"}).body)["data"][0]["embedding"] == VECTOR


@pytest.mark.parametrize("begun", [False, True])
def test_leaving_closes_the_connection(begun: bool) -> None:
    world = World()
    world.backend.answer = lambda request: request.connection.stream(b"{", kind="application/json") if begun else None
    sink = world.ask({"input": "red"})
    assert world.backend.open == 1
    world.done.addErrback(lambda reason: reason.trap(CancelledError))
    world.done.cancel()
    world.net.run()
    assert (sink.events, world.backend.open, len(world.backend.connections)) == ([], 0, 0)
    world.end()


@pytest.mark.parametrize("how", ["close", "abort"])
def test_an_answer_that_breaks_off(how: str) -> None:
    world = World()
    world.backend.answer = lambda request: request.connection.stream(said(VECTOR)[:20], kind="application/json")
    sink = world.ask({"input": "red"})
    getattr(world.backend.last.connection, how)()
    world.net.run()
    assert sink.failure.code == "upstream_error"
    world.end()


def test_an_answer_that_ends_with_its_connection_must_be_whole() -> None:
    world = World()
    half = said(VECTOR)[:-3]
    world.backend.answer = lambda request: (
        request.connection.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + half),
        request.connection.close(),
    )[0]
    assert world.ask({"input": "red"}).failure.code == "upstream_error"


def test_silence() -> None:
    world = World(first_byte_timeout_ms=1000)
    world.backend.answer = lambda request: None
    sink = world.ask({"input": "red"})
    world.net.run(2)
    assert sink.failure.code == "upstream_timeout"
    world.end()


def test_what_is_read_whole_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MAX_EMBEDDINGS", 100)
    world = World()
    world.backend.responds(200, said([0.123456789] * 50))
    assert world.ask({"input": "red"}).failure.code == "answer_too_large"
    world.end()


def test_a_source_that_can_be_paused() -> None:
    world = World()
    sink = RecordingSink()
    made = m.RunRequest("r", "a", "t", input=b'{"input":"red"}', http=HTTP)
    world.adapter.run(Run(made), sink)
    sink.source.pause()
    world.net.run()
    assert sink.events == []
    sink.source.resume()
    world.net.run()
    assert isinstance(sink.end, m.Whole)
    world.end()
