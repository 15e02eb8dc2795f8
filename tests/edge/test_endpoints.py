"""The endpoints beside chat, over a real link to scripted nodes: who is asked how, and what its client gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from doubles import JSON, complete, fail, piece, start, wait, whole
from gateway_in_memory import TRACE, Answer, Gateway, document, node, sha256

from iop import model as m
from iop.edge.surfaces.openai import answer as answers
from iop.edge.surfaces.openai.apis import reading
from iop.errors import Failure
from iop.http.server import Limits

pytestmark = pytest.mark.usefixtures("logged")

COMPLETION = {"model": "m", "prompt": "Once"}
EMBEDDING = {"model": "m", "input": "red"}
RESPONSE = {"model": "m", "input": "hi"}
MESSAGE: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
ASKED: dict[str, dict[str, Any]] = {
    "/v1/completions": COMPLETION,
    "/v1/responses": RESPONSE,
    "/v1/messages": MESSAGE,
}
USAGE = m.Usage(9, 4)
SAID = (start(None), piece(reasoning="hm"), piece(text="upon "), piece(text="a"), complete("", USAGE))
COMMENT = b": waiting for a free slot\n\n"
VECTORS = (
    b'{"object":"list","data":[{"index":0,"embedding":[0.5]}],"model":"t","usage":{"prompt_tokens":2,"total_tokens":2}}'
)


def of_type(type: str, *ids: str, at: str = "n1", **provider: Any) -> dict[str, Any]:
    """Return a node whose providers are of a type."""
    made = node(at, *(ids or ("p1",)), type=type, category="cli" if type == "cli" else "api", **provider)
    kind = type if type in ("ollama", "cli", "scripted") else "openai_compat"
    settings = {"cli": {"command": "x"}, "openai_compat": {"base_url": "http://127.0.0.1:8000"}}.get(kind, {})
    made["adapters"] = [{"name": "a", "type": kind, **settings}]
    return made


def gateway_of(type: str, *script: Any, **rest: Any) -> Gateway:
    return Gateway(*script, configuration=document(of_type(type), **rest))


def mixed(**rest: Any) -> Gateway:
    """Return one whose model a vLLM serves with one slot, and an Ollama."""
    return Gateway(configuration=document(of_type("ollama", "p2", at="n2"), of_type("vllm", capacity=1), **rest))


def refused(answer: Answer) -> tuple[int, Any, Any]:
    return answer.status, answer.code, answer.json["error"]["param"]


def documents(answer: Answer) -> list[Any]:
    """Return those of a stream that ends well."""
    *said, done = answer.events
    assert (answer.status, answer.whole, done) == (200, True, "[DONE]")
    return [json.loads(each) for each in said]


# ---- completions


def test_a_native_completion() -> None:
    gateway = gateway_of("vllm", whole(b'{"choices":[{"text":"x"}]}', usage=USAGE))
    body = b'{"model":"m", "prompt":["a","b"],"logprobs":2,"n":2,"best_of":3,"echo":true,"suffix":"s","x":1.10}'
    answer = gateway.ask("/v1/completions", body).answer
    assert answer.body == b'{"choices":[{"text":"x"}]}'
    request = gateway.run.request
    assert (request.mode, request.http.path, request.input) == (m.Mode.PASSTHROUGH, "/v1/completions", body)
    (record,) = gateway.records
    assert (record.operation, record.status, record.usage, record.stream) == ("completion", 200, USAGE, False)
    gateway.assert_idle()
    gateway.close()


@pytest.mark.parametrize("asked", [True, False])
def test_a_native_stream(asked: bool) -> None:
    gateway = gateway_of("vllm", start(), piece(b"data: 1\n\n"), piece(b"data: [DONE]\n\n"), complete("stop", USAGE))
    options = {"stream_options": {"include_usage": True, "x": 1}} if asked else {}
    answer = gateway.ask("/v1/completions", {**COMPLETION, "stream": True, **options}).answer
    assert answer.events == ["1", "[DONE]"]
    request = gateway.run.request
    assert json.loads(request.input)["stream_options"] == ({"include_usage": True, **options.get("stream_options", {})})
    assert request.metadata == ({} if asked else {"openai_strip_usage": "true"})
    assert [record.stream for record in gateway.records] == [True]


def test_a_completion_out_of_events() -> None:
    gateway = gateway_of("ollama", *SAID)
    answer = gateway.ask("/v1/completions", {**COMPLETION, "max_tokens": 5, "temperature": 0, "x": 1}).answer
    made = answer.json
    assert (made["object"], made["model"], made["id"][:5]) == ("text_completion", "m", "cmpl-")
    assert made["choices"] == [{"index": 0, "text": "upon a", "logprobs": None, "finish_reason": "stop"}]
    assert made["usage"] == {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    request = gateway.run.request
    assert (request.mode, request.http) == (m.Mode.NORMALIZED, None)
    chat = {"model": "m", "messages": [{"role": "user", "content": "Once"}], "max_tokens": 5, "temperature": 0}
    assert json.loads(request.input) == chat
    (record,) = gateway.records
    assert (record.operation, record.usage, record.estimated) == ("completion", USAGE, False)
    gateway.assert_idle()


@pytest.mark.parametrize("asked", [True, False])
def test_a_stream_out_of_events(asked: bool) -> None:
    gateway = gateway_of("ollama", *SAID)
    options = {"stream_options": {"include_usage": True}} if asked else {}
    said = documents(gateway.ask("/v1/completions", {**COMPLETION, "stream": True, **options}).answer)
    usage = said.pop() if asked else None
    assert [each["choices"][0]["text"] for each in said] == ["upon ", "a", ""]
    assert [each["choices"][0]["finish_reason"] for each in said] == [None, None, "stop"]
    assert {each["object"] for each in said} == {"text_completion"}
    assert len({each["id"] for each in said}) == 1
    if usage is not None:
        assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 13)
    assert all(each.get("usage") is None for each in said)


def test_an_array_of_one_text_is_a_text() -> None:
    gateway = gateway_of("ollama", *SAID)
    assert gateway.ask("/v1/completions", {**COMPLETION, "prompt": ["Once"]}).answer.status == 200
    assert json.loads(gateway.run.request.input)["messages"] == [{"role": "user", "content": "Once"}]


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt": ["a", "b"]},
        {"prompt": [1, 2]},
        {"prompt": [[1], [2]]},
        {"n": 2},
        {"best_of": 2},
        {"logprobs": 0},
        {"echo": True},
        {"suffix": "x"},
    ],
)
def test_what_no_chat_can_say_goes_to_a_backend_of_the_api_or_nowhere(changes: dict[str, Any]) -> None:
    gateway = gateway_of("ollama")
    answer = gateway.ask("/v1/completions", {**COMPLETION, **changes}).answer
    assert refused(answer) == (400, "invalid_value", "prompt")
    (record,) = gateway.records
    assert (record.operation, record.status, record.outcome, record.admitted) == (
        "completion",
        400,
        "invalid_value",
        False,
    )
    both = mixed()
    native, events = both.machines["n1"].adapter, both.machines["n2"].adapter
    first = both.ask("/v1/completions", {**COMPLETION, **changes})
    second = both.ask("/v1/completions", {**COMPLETION, **changes})  # the other one is free, and cannot
    assert (len(native.runs), len(events.runs)) == (1, 0)
    native.script = (whole(b'{"choices":[]}'),)
    first.leave()
    both.net.run()
    assert (second.answer.body, len(native.runs), len(events.runs)) == (b'{"choices":[]}', 2, 0)
    both.assert_idle()


@pytest.mark.parametrize(
    ("prompt", "param"), [(None, "prompt"), (5, "prompt"), ([], "prompt"), ([1, "a"], "prompt"), ([[]], "prompt")]
)
def test_a_prompt_that_is_none(prompt: Any, param: str) -> None:
    answer = gateway_of("vllm").ask("/v1/completions", {"model": "m", "prompt": prompt}).answer
    assert refused(answer) == (400, "invalid_value", param)


def test_a_completion_that_breaks_has_no_done() -> None:
    gateway = gateway_of("ollama", start(None), piece(text="x"), fail(Failure("upstream_error", "broke")))
    answer = gateway.ask("/v1/completions", {**COMPLETION, "stream": True}).answer
    assert json.loads(answer.events[-1])["error"]["code"] == "upstream_error"
    assert "[DONE]" not in answer.events


def test_a_completion_is_collected_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LARGEST", 10)
    gateway = gateway_of("ollama", start(None), piece(text="much too long"), complete())
    assert refused(gateway.ask("/v1/completions", COMPLETION).answer)[:2] == (502, "answer_too_large")
    assert gateway.ask("/v1/completions", {**COMPLETION, "stream": True}).answer.status == 200
    gateway.assert_idle()


# ---- embeddings


@pytest.mark.parametrize("type", ["vllm", "ollama", "scripted"])
def test_embeddings_are_asked_for_by_http_whatever_the_provider(type: str) -> None:
    gateway = gateway_of(type, whole(VECTORS, usage=m.Usage(2)))
    body = b'{"model":"m","input": "red","dimensions":3,"x":1.10,"encoding_format":null}'
    answer = gateway.ask("/v1/embeddings", body).answer
    assert answer.json["data"] == [{"index": 0, "embedding": [0.5], "object": "embedding"}]
    request = gateway.run.request
    assert (request.mode, request.http.path, request.input) == (m.Mode.PASSTHROUGH, "/v1/embeddings", body)
    (record,) = gateway.records
    assert (record.operation, record.status, record.usage) == ("embedding", 200, m.Usage(2))
    gateway.assert_idle()
    gateway.close()


def test_an_agent_has_no_embeddings() -> None:
    answer = gateway_of("cli").ask("/v1/embeddings", EMBEDDING).answer
    assert refused(answer) == (404, "unknown_url", None)
    assert refused(Gateway(start(None)).ask("/v1/embeddings", EMBEDDING).answer)[:2] == (502, "upstream_error")


def test_embeddings_go_on_at_another_provider() -> None:
    gateway = mixed()
    native, events = gateway.machines["n1"].adapter, gateway.machines["n2"].adapter
    for adapter in (native, events):
        adapter.script = (fail(Failure("upstream_connect", "nobody there")),)
    events.script = (whole(VECTORS),)
    assert gateway.ask("/v1/embeddings", EMBEDDING).answer.status == 200
    assert {run.request.mode for adapter in (native, events) for run in adapter.runs} == {m.Mode.PASSTHROUGH}
    gateway.assert_idle()


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"input": None}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": {"a": 1}}, "input"),
        ({"input": [1, "a"]}, "input"),
        ({"input": [[]]}, "input"),
        ({"model": None}, "model"),
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"encoding_format": 5}, "encoding_format"),
    ],
)
def test_embeddings_of_nothing(changes: dict[str, Any], param: str) -> None:
    gateway = gateway_of("vllm")
    assert refused(gateway.ask("/v1/embeddings", {**EMBEDDING, **changes}).answer) == (400, "invalid_value", param)
    assert gateway.adapter.runs == []


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"[]",
        b"{}",
        b"no",
        b'{"data":5}',
        b'{"data":[5]}',
        b'{"data":[{}]}',
        b'{"data":[{"embedding":"AAA"}]}',
        b'{"data":[{"embedding":[1,"a"]}]}',
        b'{"data":[{"embedding":[1],"index":"a"},{"embedding":[1],"index":0}]}',
        b'{"data":[{"embedding":[1e999]}]}',
    ],
)
def test_an_answer_that_holds_no_embeddings(said: bytes) -> None:
    gateway = gateway_of("vllm", whole(said))
    assert refused(gateway.ask("/v1/embeddings", EMBEDDING).answer)[:2] == (502, "upstream_error")
    gateway.assert_idle()


def test_a_number_that_the_packed_form_cannot_hold_is_no_answer() -> None:
    gateway = gateway_of("vllm", whole(b'{"data":[{"embedding":[1e39]}]}'))
    assert gateway.ask("/v1/embeddings", EMBEDDING).answer.json["data"][0]["embedding"] == [1e39]
    packed = gateway.ask("/v1/embeddings", {**EMBEDDING, "encoding_format": "base64"}).answer
    assert refused(packed)[:2] == (502, "upstream_error")


def test_embeddings_do_not_stream() -> None:
    gateway = gateway_of("vllm", start(), piece(b"data: 1\n\n"), complete())
    assert refused(gateway.ask("/v1/embeddings", EMBEDDING).answer)[:2] == (502, "upstream_error")
    gateway.assert_idle()


@pytest.mark.parametrize(
    ("path", "name"), [("/v1/embeddings", "input"), ("/v1/completions", "prompt"), ("/v1/moderations", "input")]
)
@pytest.mark.parametrize("one", ["word " * 300, list(range(300))])
def test_each_text_of_many_must_fit_the_window_and_not_all_together(path: str, name: str, one: Any) -> None:
    configuration = document(of_type("vllm"))
    configuration["models"][0]["context_window_tokens"] = 512
    vectors = json.dumps({"choices": [], "data": [{"embedding": [1.0]}] * 50}).encode()
    gateway = Gateway(whole(vectors), configuration=configuration)
    assert gateway.ask(path, {"model": "m", name: [one] * 50}).answer.status == 200
    (record,) = gateway.records
    assert record.usage.input_tokens > 50 * 250
    for too_long in (one * 20, [one, one * 20]):
        assert refused(gateway.ask(path, {"model": "m", name: too_long}).answer)[:2] == (400, "context_length_exceeded")


def test_a_long_answer_is_collected_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs no credit that the edge would not give back, and a break in it is an error status."""
    numbers = json.dumps([0.123456] * 60_000).encode()
    said = b'{"data":[{"embedding":' + numbers + b"}]}"
    pieces = [piece(said[at : at + 50_000]) for at in range(0, len(said), 50_000)]
    gateway = Gateway(start(JSON), *pieces, complete(), configuration=document(of_type("vllm")), window=100_000)
    answer = gateway.ask("/v1/embeddings", EMBEDDING).answer
    assert (answer.status, len(answer.json["data"][0]["embedding"])) == (200, 60_000)
    assert answer.json["usage"] == {"prompt_tokens": 0, "total_tokens": 0}
    (record,) = gateway.records
    assert (record.usage.output_tokens, record.estimated) == (0, True)
    monkeypatch.setattr(answers, "LARGEST", 100_000)
    assert refused(gateway.ask("/v1/embeddings", EMBEDDING).answer)[:2] == (502, "answer_too_large")
    gateway.assert_idle()


# ---- the APIs that are translated


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("path", "type"), [("/v1/responses", "vllm"), ("/v1/messages", "sglang")])
def test_a_backend_that_has_the_api_gets_the_bytes(path: str, type: str, stream: bool) -> None:
    said = b"event: x\ndata: {}\n\n" if stream else b'{"output":[],"content":[]}'
    script = (start(), piece(said), complete("stop", USAGE)) if stream else (whole(said, usage=USAGE),)
    gateway = gateway_of(type, *script)
    body = {**ASKED[path], "stream": stream, "x": [None]}
    answer = gateway.ask(path, body, headers={"anthropic-version": "2023-06-01", "anthropic-beta": "a"}).answer
    assert answer.body == said
    request = gateway.run.request
    assert (request.mode, request.http.path, json.loads(request.input)) == (m.Mode.PASSTHROUGH, path, body)
    assert dict(request.http.headers)["anthropic-version"] == "2023-06-01"
    (record,) = gateway.records
    assert (record.operation, record.usage) == (path.rsplit("/", 1)[1], USAGE)
    gateway.assert_idle()
    gateway.close()


@pytest.mark.parametrize("type", ["ollama", "scripted"])
def test_any_other_is_asked_by_a_chat(type: str) -> None:
    gateway = gateway_of(type, *SAID)
    response = gateway.ask("/v1/responses", RESPONSE).answer
    message = gateway.ask("/v1/messages", MESSAGE).answer
    assert (response.json["object"], response.json["status"]) == ("response", "completed")
    assert (message.json["type"], message.json["usage"]["output_tokens"]) == ("message", 4)
    for run in gateway.adapter.runs:
        assert (run.request.mode, run.request.http) == (m.Mode.NORMALIZED, None)
        assert json.loads(run.request.input)["messages"] == [{"role": "user", "content": "hi"}]
    assert [(r.operation, r.status, r.usage) for r in gateway.records] == [
        ("responses", 200, USAGE),
        ("messages", 200, USAGE),
    ]
    gateway.assert_idle()


@pytest.mark.parametrize("param", ["previous_response_id", "conversation", "background", "prompt"])
@pytest.mark.parametrize("type", ["vllm", "ollama"])
def test_a_response_that_would_need_an_earlier_one(type: str, param: str) -> None:
    gateway = gateway_of(type)
    answer = gateway.ask("/v1/responses", {**RESPONSE, param: "x"}).answer
    assert refused(answer) == (400, "unsupported_parameter", param)
    assert gateway.adapter.runs == []


def test_nothing_is_kept_of_a_response() -> None:
    gateway = gateway_of("vllm")
    gateway.ask("/v1/responses", {**RESPONSE, "store": True})
    assert json.loads(gateway.run.request.input)["store"] is False
    for method in ("GET", "DELETE", "POST"):
        answer = gateway.ask("/v1/responses/resp_1", {"model": "m"} if method == "POST" else None, method=method).answer
        assert refused(answer)[:2] == (404, "unknown_url")


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("why", ["queue", "backend"])
@pytest.mark.parametrize("type", ["vllm", "ollama"])
def test_a_stream_that_waited_and_failed_ends_in_its_apis_own_error(path: str, why: str, type: str) -> None:
    timeout = 7000 if why == "queue" else 0
    configuration = document(of_type(type, capacity=1), provider_pool={"queue_timeout_ms": timeout})
    gateway = Gateway(wait, configuration=configuration)
    first = gateway.chat()
    client = gateway.ask(path, {**ASKED[path], "stream": True})
    gateway.net.run(6)
    assert client.answer.body == COMMENT
    gateway.adapter.script = (fail(Failure("upstream_error", "broke")),)
    if why == "backend":
        first.leave()
    gateway.net.run(5)
    answer, code = client.answer, "queue_timeout" if why == "queue" else "upstream_error"
    assert (answer.status, answer.whole) == (200, True)
    said = answer.body.removeprefix(COMMENT).decode()
    last = json.loads(said.rstrip().rpartition("data: ")[2])
    assert "[DONE]" not in said
    if path == "/v1/messages":
        assert said.startswith("event: error\n")
        assert last["type"] == "error"
        assert last["error"]["type"] == ("overloaded_error" if why == "queue" else "api_error")
    elif path == "/v1/responses":
        assert "event: response.failed\n" in said
        assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
        assert last["response"]["error"]["code"] == code
    else:
        assert last["error"]["code"] == code
    record = gateway.records[-1]
    assert (record.operation, record.status, record.outcome) == (
        {"/v1/completions": "completion"}.get(path, path[4:]),
        200,
        code,
    )
    first.leave()
    gateway.net.run()
    gateway.assert_idle()


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
def test_a_native_stream_that_breaks_ends_in_its_apis_own_error(path: str) -> None:
    gateway = gateway_of("vllm", start(), piece(b"event: x\ndata: {}\n\n"), fail(Failure("upstream_error", "broke")))
    answer = gateway.ask(path, {**ASKED[path], "stream": True}).answer
    name = b"event: error\n" if path == "/v1/messages" else b"event: response.failed\n"
    assert name in answer.body
    assert answer.whole


# ---- Anthropic's clients


TOKEN = {"token_ref": "app", "token_hash_sha256": sha256("key"), "principal_ref": "alice"}
CLOSED = {"principal_tokens": [TOKEN], "allow_anonymous": False}
BOTH = ["/v1/messages", "/v1/messages/count_tokens"]


def anthropic(answer: Answer) -> tuple[int, str]:
    """Return the status and the type of an error in Anthropic's shape, which is checked."""
    said = answer.json
    assert set(said) == {"type", "error", "request_id"}
    assert set(said["error"]) == {"type", "message"}
    assert said["type"] == "error"
    assert said["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]
    return answer.status, said["error"]["type"]


@pytest.mark.parametrize("path", BOTH)
def test_errors_of_anthropics_api_before_the_body_is_read(path: str) -> None:
    gateway = Gateway(configuration=document(openai={**CLOSED, "max_body_bytes": 1024}), limits=Limits(body=100))
    assert anthropic(gateway.ask(path, MESSAGE).answer) == (401, "authentication_error")
    wrong = {"x-api-key": "wrong"}
    assert anthropic(gateway.ask(path, MESSAGE, headers=wrong).answer) == (401, "authentication_error")
    mine = {"x-api-key": "key", "X-Request-Id": "mine-7"}
    large = gateway.ask(path, {**MESSAGE, "system": "x" * 2000}, headers=mine).answer
    assert (anthropic(large), large.headers["request-id"]) == ((413, "request_too_large"), "mine-7")
    coded = gateway.ask(path, b"x", headers={**mine, "Content-Encoding": "gzip"}).answer
    assert anthropic(coded) == (415, "invalid_request_error")
    assert anthropic(gateway.ask(path, headers=mine).answer) == (405, "invalid_request_error")
    assert [(r.operation, r.status) for r in gateway.records][:2] == [(path.rpartition("/")[2], 401)] * 2


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"messages": []}, (400, "invalid_request_error")),
        ({"model": "other"}, (404, "not_found_error")),
        ({"model": 5}, (400, "invalid_request_error")),
    ],
)
def test_errors_of_anthropics_api_after_it(path: str, changes: dict[str, Any], shown: tuple[int, str]) -> None:
    gateway = gateway_of("vllm")
    assert anthropic(gateway.ask(path, {**MESSAGE, **changes}).answer) == shown
    assert anthropic(gateway.ask(path, b"{").answer) == (400, "invalid_request_error")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("failure", "shown"),
    [
        (Failure("rate_limited", "slow", retryable=False), (429, "rate_limit_error")),
        (Failure("upstream_error", "busy", http_status=503), (503, "overloaded_error")),
        (Failure("upstream_timeout", "slow"), (504, "timeout_error")),
        (Failure("upstream_error", "broke"), (502, "api_error")),
        (Failure("context_length_exceeded", "4096 tokens are the most"), (400, "invalid_request_error")),
    ],
)
@pytest.mark.parametrize("type", ["vllm", "ollama"])
def test_errors_of_backends(type: str, failure: Failure, shown: tuple[int, str], stream: bool) -> None:
    answer = gateway_of(type, fail(failure)).ask("/v1/messages", {**MESSAGE, "stream": stream}).answer
    assert anthropic(answer) == shown
    if failure.code == "context_length_exceeded":
        assert answer.json["error"]["message"].startswith("prompt is too long")


@pytest.mark.parametrize("path", BOTH)
def test_either_header_lets_in_on_anthropics_paths_and_one_elsewhere(path: str) -> None:
    gateway = Gateway(*SAID, configuration=document(of_type("ollama"), openai=CLOSED))
    for headers in (
        {"x-api-key": "key"},
        {"Authorization": "Bearer key"},
        {"x-api-key": "x", "Authorization": "bearer key"},
    ):
        answer = gateway.ask(path, MESSAGE, headers=headers).answer
        assert (answer.status, answer.headers["request-id"]) == (200, answer.headers["x-request-id"])
    for bad in ([("x-api-key", "key")] * 2, [("x-api-key", "")], [("x-api-key", "key"), ("Authorization", "Bearer x")]):
        assert gateway.ask(path, MESSAGE, headers=bad).answer.status == 401
    elsewhere = gateway.ask("/v1/responses", RESPONSE, headers={"x-api-key": "key"}).answer
    assert refused(elsewhere) == (401, "invalid_api_key", None)
    assert {record.principal_ref for record in gateway.records if record.status == 200} == {"alice"}
    assert "request-id" not in elsewhere.headers


def test_tokens_are_counted_by_a_backend_that_can() -> None:
    gateway = mixed()
    gateway.machines["n1"].adapter.script = (whole(b'{"input_tokens":12}'),)
    counting = {name: value for name, value in MESSAGE.items() if name != "max_tokens"}
    answer = gateway.ask("/v1/messages/count_tokens", counting).answer
    assert (answer.status, answer.json) == (200, {"input_tokens": 12})
    (run,) = gateway.machines["n1"].adapter.runs
    assert (run.request.http.path, json.loads(run.request.input)) == ("/v1/messages/count_tokens", counting)
    (record,) = gateway.records
    assert (record.operation, record.status, record.usage) == ("count_tokens", 200, m.Usage(0, 0))
    gateway.assert_idle()


@pytest.mark.parametrize("type", ["ollama", "scripted", "cli"])
def test_tokens_are_estimated_where_no_backend_can(type: str) -> None:
    gateway = gateway_of(type)
    answer = gateway.ask("/v1/messages/count_tokens", {**MESSAGE, "system": "be brief " * 100}).answer
    assert answer.status == 200
    assert set(answer.json) == {"input_tokens"}
    assert 150 < answer.json["input_tokens"] < 400
    assert gateway.adapter.runs == []
    (record,) = gateway.records
    assert (record.operation, record.status, record.outcome, record.run_id) == (
        "count_tokens",
        200,
        "complete",
        "",
    )


# ---- what every answer may say


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/rerank"])
def test_a_trace_is_carried_on_in_either_mode(path: str) -> None:
    headers = {"traceparent": TRACE, "tracestate": "a=1"}
    body = {**ASKED.get(path, EMBEDDING)}
    native = gateway_of("vllm", whole(VECTORS))
    native.ask(path, body, headers=headers)
    assert headers.items() <= dict(native.run.request.http.headers).items()
    assert native.run.request.metadata == {}
    if path in ASKED:
        events = gateway_of("ollama", *SAID)
        events.ask(path, body, headers=headers)
        assert (events.run.request.http, events.run.request.metadata) == (None, headers)


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "x",
        TRACE.upper(),
        TRACE.replace("00-", "ff-", 1),
        "00-" + "0" * 32 + TRACE[35:],
        TRACE[:36] + "0" * 16 + "-01",
    ],
)
def test_what_is_no_trace_is_none(parent: str) -> None:
    gateway = gateway_of("vllm")
    gateway.ask("/v1/completions", COMPLETION, headers={"traceparent": parent, "tracestate": "a=1"})
    assert {name for name, _ in gateway.run.request.http.headers} == {"x-request-id"}


LIMITS = (("x-ratelimit-remaining-requests", "0"), ("anthropic-ratelimit-tokens-reset", "2026"))


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/messages", "/v1/rerank"]
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_backends_limits_are_told_with_its_error(path: str, stream: bool) -> None:
    failure = Failure("rate_limited", "slow", retryable=False, retry_after_ms=7000, headers=LIMITS)
    gateway = gateway_of("vllm", fail(failure))
    body = ASKED.get(path, {**EMBEDDING, "messages": []})
    answer = gateway.ask(path, {**body, "stream": stream}).answer
    assert (answer.status, answer.headers["retry-after"]) == (429, "7")
    assert dict(LIMITS).items() <= answer.headers.items()


@pytest.mark.parametrize("path", ["/v1/chat/completions", *ASKED])
def test_a_client_is_told_not_to_repeat_what_cannot_go_well(path: str) -> None:
    body = ASKED.get(path, MESSAGE)
    for type, code, said in [
        ("vllm", "answer_too_large", "false"),
        ("vllm", "long_context_unavailable", "false"),
        ("vllm", "upstream_error", None),
        ("cli", "upstream_error", "false"),
        ("cli", "session_busy", None),
    ]:
        answer = gateway_of(type, fail(Failure(code, "no"))).ask(path, body).answer
        assert answer.status >= 400
        assert answer.headers.get("x-should-retry") == said, (type, code)


EVERYTHING = b'{"choices":[],"output":[],"content":[]}'
"""What a document of any of the APIs has in it."""


@pytest.mark.parametrize("type", ["vllm", "ollama"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", *ASKED])
def test_who_answered_is_told_where_the_operator_wants_it(path: str, stream: bool, type: str) -> None:
    configuration = document(of_type(type, capacity=1), openai={"expose_provider": True})
    gateway = Gateway(wait, configuration=configuration)
    first = gateway.chat()
    client = gateway.ask(path, {**ASKED.get(path, MESSAGE), "stream": stream})
    gateway.net.run(2)
    gateway.adapter.script = (
        SAID if type == "ollama" else (start() if stream else start(JSON), piece(EVERYTHING), complete())
    )
    first.leave()
    gateway.net.run()
    answer = client.answer
    assert (answer.status, answer.headers["x-iop-provider"], answer.headers["x-iop-queue-ms"]) == (200, "p1", "2000")
    gateway.adapter.script = (fail(Failure("upstream_error", "broke")),)
    failed = gateway.ask(path, ASKED.get(path, MESSAGE)).answer
    assert (failed.status, failed.headers["x-iop-provider"], failed.headers["x-iop-queue-ms"]) == (502, "p1", "0")


def test_and_nowhere_else() -> None:
    answer = gateway_of("vllm", whole(EVERYTHING)).ask("/v1/completions", COMPLETION).answer
    assert not [name for name in answer.headers if name.startswith("x-iop")]


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"]
)
@pytest.mark.parametrize(
    "answer",
    [
        (start(JSON), piece(b"<html>busy</html>"), complete()),
        (start(JSON), piece(b'{"choices":[{"mess'), complete()),
        (start(JSON), piece(b"[]"), complete()),
        (start(JSON), piece(b"{}"), complete()),
        (start(JSON), complete()),
        (start(m.HttpResponseHead(204)), complete()),
        (start(), piece(b"data: 1\n\n"), complete()),
    ],
    ids=["html", "half", "list", "empty object", "nothing", "no content", "a stream"],
)
def test_nonsense_is_no_answer(path: str, answer: Any) -> None:
    """What a backend says under status 200 is looked at: an SDK would take it for an answer, or break on it."""
    gateway = gateway_of("vllm", *answer)
    said = gateway.ask(path, {**ASKED.get(path, MESSAGE), "input": "x"}).answer
    assert said.status == 502
    assert gateway.records[0].outcome == "upstream_error"
    gateway.assert_idle()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_a_document_is_no_stream(path: str) -> None:
    gateway = gateway_of("vllm", whole(EVERYTHING))
    assert gateway.ask(path, {**ASKED.get(path, MESSAGE), "stream": True}).answer.status == 502
    gateway.assert_idle()
