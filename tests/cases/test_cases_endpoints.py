"""Failure kinds of completions, embeddings and other endpoints, seen in public gateways, through the whole chain."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from typing import Any

import pytest
from backend_in_memory import DONE, event
from gateway_in_memory import TRACE, sha256
from whole_chain import Chain

pytestmark = pytest.mark.usefixtures("logged")

VECTOR = [0.5, -1.0, 2.0]
PACKED = "AAAAPwAAgL8AAABA"
USAGE = {"prompt_tokens": 7, "total_tokens": 7}


def answer_of(*vectors: Any, **members: Any) -> bytes:
    """Return an embeddings answer."""
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    return json.dumps({"object": "list", "data": data, "model": "m", "usage": USAGE, **members}).encode()


def packed(*numbers: float) -> str:
    return b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def embed(chain: Chain, given: Any = "x", **members: Any) -> Any:
    return chain.ask("/v1/embeddings", {"model": "m", "input": given, **members}).answer


# ---- embeddings


@pytest.mark.parametrize("said", [VECTOR, PACKED], ids=["floats", "base64"])
@pytest.mark.parametrize(
    ("asked", "shown"),
    [({"encoding_format": "base64"}, PACKED), ({"encoding_format": "float"}, VECTOR), ({}, VECTOR)],
)
def test_eb_01_the_format_that_was_asked_whatever_the_backend_wrote(said: Any, asked: Any, shown: Any) -> None:
    """EB-01"""
    chain = Chain()
    chain.backend.responds(200, answer_of(said))
    answer = embed(chain, **asked)
    assert (answer.status, answer.json["data"][0]["embedding"]) == (200, shown)
    assert answer.json["usage"] == USAGE
    assert chain.backend.last.json == {"model": "m", "input": "x", **asked}
    assert [record.usage.input_tokens for record in chain.records] == [7]
    chain.assert_idle()


def test_eb_01_a_format_that_nobody_makes() -> None:
    """EB-01"""
    chain = Chain()
    answer = embed(chain, encoding_format="int8")
    assert (answer.status, answer.code, answer.json["error"]["param"]) == (400, "invalid_value", "encoding_format")
    assert chain.backend.requests == []


@pytest.mark.parametrize(
    "vectors", [[VECTOR], [VECTOR, []], [VECTOR, ""], [VECTOR, None], [VECTOR, [float("nan")]], [VECTOR] * 3, []]
)
@pytest.mark.parametrize("format", ["base64", "float"])
def test_eb_01_fewer_or_empty_vectors_are_no_answer(vectors: list[Any], format: str) -> None:
    """EB-01"""
    chain = Chain()
    chain.backend.responds(200, answer_of(*vectors))
    answer = embed(chain, ["a", "b"], encoding_format=format)
    assert (answer.status, answer.code) == (502, "upstream_error")
    assert [(record.status, record.outcome) for record in chain.records] == [(502, "upstream_error")]
    chain.assert_idle()


@pytest.mark.parametrize("format", ["base64", "float"])
def test_eb_01_sorted_by_index(format: str) -> None:
    """EB-01"""
    chain = Chain()
    data = [{"object": "embedding", "index": i, "embedding": [float(i)]} for i in (2, 1, 0)]
    chain.backend.responds(200, answer_of(data=data))
    seen = embed(chain, ["a", "b", "c"], encoding_format=format).json["data"]
    assert [each["index"] for each in seen] == [0, 1, 2]
    shown = [packed(float(i)) if format == "base64" else [float(i)] for i in range(3)]
    assert [each["embedding"] for each in seen] == shown


@pytest.mark.parametrize("given", [[1, 2], [[1, 2], [3]]])
def test_eb_01_token_ids_pass(given: list[Any]) -> None:
    """EB-01"""
    chain = Chain()
    vectors = [VECTOR] * (2 if isinstance(given[0], list) else 1)
    chain.backend.responds(200, answer_of(*vectors))
    answer = embed(chain, given)
    assert (answer.status, len(answer.json["data"])) == (200, len(vectors))
    assert chain.backend.last.json["input"] == given


def ollama(*vectors: Any) -> bytes:
    return json.dumps({"model": "m", "embeddings": vectors, "prompt_eval_count": 7}).encode()


@pytest.mark.parametrize(
    ("asked", "shown"),
    [({"encoding_format": "base64"}, PACKED), ({"encoding_format": "float"}, VECTOR), ({}, VECTOR)],
)
def test_eb_01_ollama(asked: dict[str, Any], shown: Any) -> None:
    """EB-01: the native API, with a list."""
    chain = Chain.of_ollama()
    chain.backend.responds(200, ollama(VECTOR, [1.0, 1.0, 1.0]))
    answer = embed(chain, ["a", "b"], **asked)
    assert (answer.status, answer.json["data"][0]["embedding"]) == (200, shown)
    assert [each["index"] for each in answer.json["data"]] == [0, 1]
    assert answer.json["usage"] == USAGE
    assert (chain.backend.last.target, chain.backend.last.json["input"]) == ("/api/embed", ["a", "b"])
    (record,) = chain.records
    assert (record.operation, record.status, record.usage.input_tokens, record.estimated) == (
        "embedding",
        200,
        7,
        False,
    )
    chain.assert_idle()


@pytest.mark.parametrize("vectors", [[VECTOR], [VECTOR, []]])
def test_eb_01_ollama_with_fewer_or_empty_vectors(vectors: list[Any]) -> None:
    """EB-01"""
    chain = Chain.of_ollama()
    chain.backend.responds(200, ollama(*vectors))
    answer = embed(chain, ["a", "b"])
    assert (answer.status, answer.code) == (502, "upstream_error")


@pytest.mark.parametrize("given", [[1, 2], [[1, 2], [3]]])
def test_eb_01_ollama_takes_no_token_ids(given: list[Any]) -> None:
    """EB-01"""
    chain = Chain.of_ollama()
    answer = embed(chain, given)
    assert (answer.status, answer.code, answer.json["error"]["param"]) == (400, "invalid_value", "input")
    assert chain.backend.requests == []
    chain.assert_idle()


# ---- completions


COMPLETED = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}
RED_BLUE = {
    **COMPLETED,
    "choices": [
        {"index": i, "text": text, "logprobs": {"tokens": [text], "top_logprobs": [{text: -0.5}]}, "finish_reason": "x"}
        for i, text in enumerate(["ish", "berry"])
    ],
    "usage": {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4},
}
REQUESTS: list[dict[str, Any]] = [
    {"model": "m", "prompt": ["red", "blue"], "max_tokens": 1, "logprobs": 2},
    {"model": "m", "prompt": [[11, 12], [13]], "max_tokens": 1},
    {"model": "m", "prompt": [11, 12], "echo": True, "max_tokens": 1},
]


@pytest.mark.parametrize("body", REQUESTS)
def test_ch_02_a_prompt_keeps_its_shape(body: dict[str, Any]) -> None:
    """CH-02: and the answer its own; 2 stays a number."""
    chain = Chain()
    chain.backend.responds(200, json.dumps(RED_BLUE).encode())
    answer = chain.ask("/v1/completions", body).answer
    assert (chain.backend.last.target, chain.backend.last.json) == ("/v1/completions", body)
    assert type(chain.backend.last.json.get("logprobs", 2)) is int
    assert answer.json == RED_BLUE
    (record,) = chain.records
    assert (record.operation, record.usage.input_tokens, record.usage.output_tokens) == ("completion", 2, 2)
    chain.assert_idle()


@pytest.mark.parametrize("body", REQUESTS)
@pytest.mark.parametrize("stream", [True, False])
def test_ch_02_a_backend_that_chats_guesses_nothing(body: dict[str, Any], stream: bool) -> None:
    """CH-02"""
    chain = Chain.of_ollama()
    answer = chain.ask("/v1/completions", {**body, "stream": stream}).answer
    assert (answer.status, answer.code, answer.json["error"]["param"]) == (400, "invalid_value", "prompt")
    assert chain.backend.requests == []
    chain.assert_idle()


def text_chunk(text: str, reason: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
    return event({**COMPLETED, "choices": [choice], **more})


COUNTED = event({**COMPLETED, "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}})


@pytest.mark.parametrize("asked", [True, False])
def test_us_01_completions(asked: bool) -> None:
    """US-01: the chunk of the usage, to who asked for it alone; counted once in either case."""
    chain = Chain()
    preamble = event({**COMPLETED, "choices": []})
    chain.backend.streams(preamble, text_chunk("hi", usage=None), text_chunk("", "stop", usage=None), COUNTED + DONE)
    options = {"stream_options": {"include_usage": True}} if asked else {}
    answer = chain.ask("/v1/completions", {"model": "m", "prompt": "x", "stream": True, **options}).answer
    assert chain.backend.last.json["stream_options"] == {"include_usage": True}
    *said, done = answer.events
    seen = [json.loads(each) for each in said]
    assert done == "[DONE]"
    assert "".join(each["choices"][0]["text"] for each in seen if each["choices"]) == "hi"
    if asked:
        assert [each["usage"]["total_tokens"] for each in seen if each.get("usage")] == [8]
        assert (seen[-1]["choices"], seen[-2]["choices"][0]["finish_reason"]) == ([], "stop")
    else:
        assert all(each["choices"] and each.get("usage") is None for each in seen)
    (record,) = chain.records
    assert (record.usage.input_tokens, record.usage.output_tokens, record.estimated) == (7, 1, False)
    chain.assert_idle()


# ---- what holds at every endpoint

ENDPOINTS: dict[str, dict[str, Any]] = {
    "/v1/completions": {"model": "m", "prompt": "x"},
    "/v1/embeddings": {"model": "m", "input": "x"},
    "/v1/rerank": {"model": "m", "query": "q", "documents": ["d"]},
    "/v1/responses": {"model": "m", "input": "x"},
}
ODD = {"temperature": 0, "seed": 0, "top_k": 0, "min_p": 0.0, "user": "", "stop": [], "x_vendor": {"a": [None, 0, ""]}}


@pytest.mark.parametrize("path", ENDPOINTS)
def test_pa_01_zero_false_and_empty_everywhere(path: str) -> None:
    """PA-01"""
    chain = Chain()
    body = {**ENDPOINTS[path], **ODD}
    chain.ask(path, body)
    assert (chain.backend.last.target, chain.backend.last.json) == (path, body)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings", "/v1/rerank"])
def test_pa_01_digits_everywhere(path: str) -> None:
    """PA-01"""
    chain = Chain(model={"providers": [{"id": "p1", "target": "t"}]}, provider={"models": ["t"]})
    body = b'{"model": "m" ,"prompt":"x","input":"x","seed":12345678901234567890123,"x":1.10,"y":1E400,"z":-0}'
    chain.ask(path, body)
    assert chain.backend.last.body == body.replace(b'"m"', b'"t"')


def test_pa_01_ollama_options_of_a_completion() -> None:
    """PA-01: what is 0 is sent, what was not said is not."""
    chain = Chain.of_ollama(context_size=512)
    chain.ask("/v1/completions", {"model": "m", "prompt": "x", "temperature": 0, "seed": 0, "frequency_penalty": 0.0})
    options = chain.backend.last.json["options"]
    assert options == {"num_ctx": 512, "temperature": 0, "seed": 0, "frequency_penalty": 0.0}


SHAPES = [
    (400, "application/json", b'{"object":"error","message":"too long","type":"BadRequestError","code":400}', (400,)),
    (422, "application/json", b'{"detail":[{"loc":["body","n"],"msg":"must be >= 1"}]}', (400, 422)),
    (404, "application/json", b'{"error":"model \'q\' not found"}', (404,)),
    (502, "text/html", b"<html><h1>Bad gateway</h1></html>", (502,)),
    (503, "application/json", b"", (503,)),
    (500, "text/plain", b"Traceback: secret path /srv/x", (500, 502)),
]


@pytest.mark.parametrize(("status", "kind", "body", "shown"), SHAPES)
@pytest.mark.parametrize("path", ENDPOINTS)
def test_em_01_every_shape_everywhere(path: str, status: int, kind: str, body: bytes, shown: tuple[int, ...]) -> None:
    """EM-01"""
    chain = Chain()
    chain.backend.responds(status, body, kind)
    answer = chain.ask(path, ENDPOINTS[path]).answer
    assert answer.status in shown
    assert answer.code is None or not answer.code.isdigit()
    assert not any(word in answer.json["error"]["message"] for word in ("<", "Traceback", "/srv"))
    chain.assert_idle()


@pytest.mark.parametrize(("status", "kind", "body", "shown"), SHAPES)
def test_em_01_every_shape_of_an_anthropic_client(status: int, kind: str, body: bytes, shown: tuple[int, ...]) -> None:
    """EM-01: in the shape of its API."""
    chain = Chain()
    chain.backend.responds(status, body, kind)
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
    answer = chain.ask("/v1/messages", body).answer
    assert answer.status in shown
    assert set(answer.json) == {"type", "error", "request_id"}
    assert (answer.json["type"], answer.json["request_id"]) == ("error", answer.headers["request-id"])
    assert set(answer.json["error"]) == {"type", "message"}


@pytest.mark.parametrize(("status", "seconds"), [(429, "7"), (503, "3")])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_em_02_retry_after_everywhere(path: str, status: int, seconds: str) -> None:
    """EM-02: and what the backend says of its limits."""
    chain = Chain()
    limits = {"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "7s"}
    chain.backend.responds(status, b'{"error":{"message":"slow down"}}', retry_after=seconds, **limits)
    answer = chain.ask(path, ENDPOINTS[path]).answer
    assert (answer.status, answer.headers["retry-after"]) == (status, seconds)
    assert answer.headers["x-ratelimit-remaining-requests"] == "0"
    assert answer.headers["x-ratelimit-reset-requests"] == "7s"
    chain.assert_idle()


@pytest.mark.parametrize("path", ENDPOINTS)
def test_em_02_no_answer_and_nobody_there_everywhere(path: str) -> None:
    """EM-02"""
    chain = Chain(first_byte_timeout_ms=2000, connect_timeout_ms=2000)
    client = chain.ask(path, ENDPOINTS[path])
    assert chain.wait(client, 4).status == 504
    chain.backend.port.stopListening()
    for connection in list(chain.backend.connections):
        connection.abort()
    chain.net.run()
    assert chain.wait(chain.ask(path, ENDPOINTS[path]), 4).status == 502
    chain.assert_idle()


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("kind", ["vllm", "ollama"])
def test_a_trace_reaches_the_backend_of_a_run_without_http(path: str, kind: str) -> None:
    """Whatever the client's API became on the way, its trace goes on, and only that of its headers."""
    chain = Chain.of_ollama() if kind == "ollama" else Chain(provider={"apis": []})
    body = {"messages": [{"role": "user", "content": "x"}], "model": "m", "max_tokens": 5}
    metadata = {"traceparent": "the-clients-own", "user_id": "u"}
    headers = {"traceparent": TRACE, "tracestate": "a=1", "x-other": "no"}
    chain.ask(path, {**ENDPOINTS.get(path, body), "metadata": metadata}, headers=headers)
    sent = chain.backend.last
    if kind == "ollama":
        assert sent.target == "/api/chat"
    else:
        assert sent.target == ("/v1/completions" if path == "/v1/completions" else "/v1/chat/completions")
    assert (sent.headers["traceparent"], sent.headers["tracestate"]) == ([TRACE], ["a=1"])
    assert "x-other" not in sent.headers


TOKENS = [{"token_ref": "app", "token_hash_sha256": sha256("edge-secret"), "principal_ref": "alice"}]
CLOSED = {"principal_tokens": TOKENS, "allow_anonymous": False}


@pytest.mark.parametrize("path", [*ENDPOINTS, "/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize("key", [None, "Bearer", "Bearer wrong", "Basic edge-secret", "Bearer \xff"])
def test_au_01_everywhere(path: str, key: str | None) -> None:
    """AU-01: before the body is read."""
    chain = Chain(openai=CLOSED)
    headers = {} if key is None else {"Authorization": key}
    answer = chain.ask(path, b"{", headers=headers).answer
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    if path.startswith("/v1/messages"):
        assert answer.json["error"]["type"] == "authentication_error"
    else:
        assert answer.code == "invalid_api_key"


@pytest.mark.parametrize("path", [*ENDPOINTS, "/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize("kind", ["vllm", "ollama"])
@pytest.mark.parametrize("way", ["Authorization", "x-api-key"])
def test_au_02_the_key_stays_here_everywhere(path: str, kind: str, way: str) -> None:
    """AU-02: the principal's key, a cookie and an address never reach a backend, whatever asks it how."""
    openai = {**CLOSED, "provider_auth": {"enabled": True, "required": False}}
    chain = Chain(openai=openai) if kind == "vllm" else Chain.of_ollama(openai=openai)
    keys = {"Authorization": "Bearer edge-secret"} if way == "Authorization" else {"x-api-key": "edge-secret"}
    if way == "x-api-key" and not path.startswith("/v1/messages"):
        keys |= {"Authorization": "Bearer edge-secret"}
    headers = {**keys, "Cookie": "s=1", "X-Forwarded-For": "10.0.0.9", "X-IOP-Provider-Authorization": "prov-1"}
    body = {"messages": [{"role": "user", "content": "x"}], "model": "m", "max_tokens": 5}
    chain.ask(path, ENDPOINTS.get(path, body), headers=headers)
    for request in chain.backend.requests:
        everything = repr(request.headers) + request.body.decode()
        assert not any(word in everything for word in ("edge-secret", "s=1", "10.0.0.9", "x-iop", "x-api-key"))
        assert request.headers["authorization"] == ["Bearer prov-1"]
    asked = 0 if kind == "ollama" and path in ("/v1/rerank", "/v1/messages/count_tokens") else 1
    assert len(chain.backend.requests) == asked


# ---- what is no JSON


def test_a_form_and_a_sound_through_the_whole_chain() -> None:
    """Byte for byte either way, and what comes of the answer is with the client at once."""
    chain = Chain(model={"providers": [{"id": "p1", "target": "whisper"}]}, provider={"models": ["whisper"]})
    chain.backend.answer = lambda request: request.connection.stream(b"\xff\xfb", kind="audio/mpeg")
    sound = bytes(range(256)) * 5000
    form = (
        b'--B\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n'
        b'--B\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + sound + b"\r\n--B--\r\n"
    )
    kind = 'multipart/form-data; boundary="B"'
    body = form.replace(b"%b", b"m", 1)
    client = chain.ask("/v1/audio/translations", body, headers={"Content-Type": kind})
    assert chain.backend.last.body == form.replace(b"%b", b"whisper", 1)
    assert chain.backend.last.headers["content-type"] == [kind]
    assert (client.answer.status, client.answer.body, client.answer.whole) == (200, b"\xff\xfb", False)
    chain.backend.last.connection.say(b"\0\n\n\0")
    chain.backend.last.connection.end()
    chain.net.run()
    assert (client.answer.body, client.answer.whole) == (b"\xff\xfb\0\n\n\0", True)
    assert client.answer.headers["content-type"] == "audio/mpeg"
    chain.assert_idle()
    chain.close()
