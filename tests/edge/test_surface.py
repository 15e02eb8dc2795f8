"""The OpenAI surface over a real link to a scripted node: routes, shapes, errors, and who may come in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from doubles import JSON, complete, fail, piece, start, wait, whole
from gateway_in_memory import CHAT, TRACE, Answer, Gateway, document, node, sha256

from iop import model as m
from iop.errors import Failure
from iop.http.server import Limits

pytestmark = pytest.mark.usefixtures("logged")

ANSWER = b'{"choices":[{"message":{"content":"hi"}}]}'
TOKEN = {"token_ref": "app", "token_hash_sha256": sha256("tok-A1"), "principal_ref": "alice"}


def get(gateway: Gateway, target: str, **how: Any) -> Answer:
    return gateway.ask(target, **how).answer


# ---- chat


def test_a_chat_answer() -> None:
    gateway = Gateway(whole(ANSWER))
    answer = gateway.chat(temperature=0).answer
    assert (answer.status, answer.body, answer.whole) == (200, ANSWER, True)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"].startswith("req-")
    assert json.loads(gateway.run.request.input) == {**CHAT, "temperature": 0}
    gateway.assert_idle()
    gateway.close()


def test_a_chat_stream() -> None:
    gateway = Gateway(start(), piece(b"data: 1\n\n"), wait, piece(b"data: [DONE]\n\n"), complete())
    client = gateway.chat(stream=True)
    assert client.answer.events == ["1"]
    assert not client.answer.whole
    gateway.run.go()
    gateway.net.run()
    answer = client.answer
    assert (answer.status, answer.events, answer.whole) == (200, ["1", "[DONE]"], True)
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert "content-length" not in answer.headers
    assert not client.lost
    gateway.assert_idle()
    gateway.close()


def test_a_stream_begins_before_its_first_piece_is_known() -> None:
    gateway = Gateway(start(), wait)
    client = gateway.chat(stream=True)
    gateway.run.say(piece(b"data: 1\n\n"))
    gateway.net.run()
    assert client.answer.status == 200


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_backend_is_asked(stream: bool) -> None:
    gateway = Gateway(whole(ANSWER))
    gateway.chat(stream=stream, seed=7, headers={"traceparent": TRACE, "Cookie": "s=1", "X-Request-Id": "mine-7"})
    request = gateway.run.request
    assert request.http == m.HttpRequestHead(
        "POST", "/v1/chat/completions", (("x-request-id", "mine-7"), ("traceparent", TRACE))
    )
    assert request.metadata == ({"openai_strip_usage": "true"} if stream else {})
    options = {"stream_options": {"include_usage": True}} if stream else {}
    assert json.loads(request.input) == {**CHAT, "stream": stream, "seed": 7, **options}


def test_usage_that_was_asked_for_is_not_stripped() -> None:
    """US-01"""
    gateway = Gateway(whole(ANSWER))
    gateway.chat(stream=True, stream_options={"include_usage": True})
    assert gateway.run.request.metadata == {}


def test_several_requests_on_one_connection() -> None:
    gateway = Gateway(whole(ANSWER))
    client = gateway.connect()
    for _ in range(3):
        client.ask(body=CHAT)
    client.ask("/v1/models")
    client.ask(body={**CHAT, "model": "other"})
    client.ask(body=CHAT)
    gateway.net.run()
    assert [answer.status for answer in client.answers] == [200, 200, 200, 200, 404, 200]
    assert len({answer.headers["x-request-id"] for answer in client.answers}) == 6
    gateway.close()


def test_a_form_type_is_no_matter() -> None:
    """curl's -d sends one."""
    gateway = Gateway(whole(ANSWER))
    assert gateway.chat(headers={"Content-Type": "application/x-www-form-urlencoded"}).answer.status == 200
    assert gateway.chat(headers={"Content-Type": "text/plain; charset=latin-1"}).answer.status == 200


def test_headers_of_the_backend() -> None:
    """HW-05: what would break the answer's head does not."""
    head = m.HttpResponseHead(
        200,
        (
            ("content-type", "text/event-stream; charset=utf-8"),
            ("x-a", "1"),
            ("x-b", "x\r\nY: z"),
            ("cache-control", "max-age=9"),
        ),
    )
    gateway = Gateway(start(head), piece(b"data: 1\n\n"), complete())
    answer = gateway.chat(stream=True).answer
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["x-a"] == "1"
    assert answer.headers["cache-control"] == "no-cache"
    assert not {"x-b", "y"} & set(answer.headers)


STRANGE = (
    ("Content-Length", "3"),
    ("Transfer-Encoding", "identity"),
    ("Connection", "x-a"),
    ("Keep-Alive", "timeout=5"),
    ("Proxy-Authenticate", "Basic"),
    ("TE", "trailers"),
    ("Trailer", "X"),
    ("Upgrade", "h2c"),
    ("Access-Control-Allow-Origin", "*"),
    ("access-control-allow-credentials", "true"),
    ("Set-Cookie", "s=1"),
    ("X-Request-Id", "theirs"),
    ("Date", "Wed, 21 Oct 2015 07:28:00 GMT"),
    ("Server", "uvicorn"),
    ("X-RateLimit-Remaining", "9"),
)


@pytest.mark.parametrize("stream", [False, True])
def test_what_an_adapter_lets_through_by_mistake_stops_at_the_edge(stream: bool) -> None:
    """HW-05, whatever adapter it is: framing, hop-by-hop, and what speaks for the edge's own origin."""
    kind = "text/event-stream" if stream else "application/json"
    head = m.HttpResponseHead(200, (("content-type", kind), *STRANGE))
    body = b"data: 1\n\n" if stream else ANSWER
    scripts = ((start(head), piece(body), complete()), (whole(body, head),))
    for script in scripts:
        gateway = Gateway(*script)
        answer = gateway.chat(stream=stream, headers={"X-Request-Id": "mine"}).answer
        assert (answer.whole, answer.body) == (True, body)
        kept = {"content-type", "x-request-id", "date", "x-ratelimit-remaining"}
        framing = {"content-length", "transfer-encoding", "cache-control", "x-accel-buffering"}
        assert kept <= set(answer.headers) <= kept | framing
        assert answer.headers["x-request-id"] == "mine"
        assert "2015" not in answer.headers["date"]
        gateway.close()


# ---- errors


def error(answer: Answer) -> tuple[int, Any, bool]:
    """Return status, code and whether it says when to come back; its shape is checked."""
    assert answer.whole
    assert answer.headers["x-request-id"]
    return answer.status, answer.code, "retry-after" in answer.headers


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (Failure("upstream_connect", "refused"), 502, "upstream_error"),
        (Failure("upstream_error", "broke"), 502, "upstream_error"),
        (Failure("upstream_error", "busy", http_status=503, retry_after_ms=3000), 503, "upstream_error"),
        (Failure("upstream_timeout", "slow"), 504, "upstream_timeout"),
        (Failure("rate_limited", "slow down", retry_after_ms=7000), 429, "rate_limit_exceeded"),
        (Failure("context_length_exceeded", "too long"), 400, "context_length_exceeded"),
        (Failure("deadline_exceeded", "late"), 504, "deadline_exceeded"),
        (Failure("answer_too_large", "large"), 502, "answer_too_large"),
        (Failure("session_busy", "busy"), 409, "session_busy"),
        (Failure("session_gone", "gone"), 410, "session_gone"),
        (Failure("workspace_invalid", "no such directory: /x"), 400, "workspace_invalid"),
        (Failure("adapter_unavailable", "none"), 502, "upstream_error"),
        (Failure("upstream_auth", "refused", http_status=403), 403, "upstream_auth"),
        (Failure("my_code", "m", http_status=422, type="my_error", param="tools"), 422, "my_code"),
        (Failure("", "m", http_status=404), 404, None),
    ],
)
def test_a_failure_before_a_byte_is_a_real_status(stream: bool, failure: Failure, status: int, code: str) -> None:
    """ER-03 refused_before_first, EM-01 and EM-02: the same with stream: true."""
    gateway = Gateway(fail(failure))
    answer = gateway.chat(stream=stream).answer
    assert error(answer) == (status, code, failure.retry_after_ms > 0)
    assert answer.json["error"]["message"] == failure.message
    assert answer.json["error"]["type"] == failure.type
    assert answer.json["error"]["param"] == failure.param
    if failure.retry_after_ms:
        assert answer.headers["retry-after"] == str(failure.retry_after_ms // 1000)
    gateway.assert_idle()
    gateway.close()


def test_a_failure_is_recorded_with_the_id_its_client_has(logged: Any) -> None:
    gateway = Gateway(fail(Failure("upstream_error", "you said: my prompt")))
    answer = gateway.chat(headers={"Authorization": "Bearer sk-secret"}).answer
    own = gateway.chat(headers={"X-Request-Id": "mine-7"}).answer
    ids = [answer.headers["x-request-id"], own.headers["x-request-id"]]
    assert [record.request_id for record in gateway.records] == ids
    assert ids[1] == "mine-7"
    assert {record.outcome for record in gateway.records} == {"upstream_error"}
    assert not any(word in line for word in ("prompt", "sk-secret") for line in logged.lines())
    assert not any(word in repr(record) for word in ("prompt", "sk-secret") for record in gateway.records)


def test_an_adapter_with_a_bug(logged: Any) -> None:
    def boom(_: Any) -> None:
        raise ZeroDivisionError("sk-secret")

    gateway = Gateway(wait, boom)
    client = gateway.chat()
    gateway.run.go()
    gateway.net.run()
    assert error(client.answer) == (500, "internal", False)
    assert b"sk-secret" not in client.data
    assert [type(error) for error in logged.failures()] == [ZeroDivisionError]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"[1]", "invalid_value"),
        (b'{"model":"m"}', "invalid_value"),
        (b'{"model":"m","model":"n","messages":[]}', "invalid_value"),
        (b'{"messages":[]}', "invalid_value"),
        (b'{"model":"m","messages":[],"stream":1}', "invalid_value"),
        (b'{"model":"m","messages":[],"temperature":NaN}', "invalid_json"),
        (b'{"model":"m","messages":[],"stream":true,"stream_options":{"a":1,"a":2}}', "invalid_value"),
        (b'{"model":"m","messages":' + b"[" * 100_000, "invalid_json"),
        (b"\xff\xfe", "invalid_json"),
        (b"model=m", "invalid_json"),
    ],
)
def test_a_body_that_is_no_chat_request(body: bytes, code: str) -> None:
    gateway = Gateway(whole(ANSWER))
    answer = gateway.ask(body=body, method="POST", headers=[] if body else {"Content-Length": "0"}).answer
    assert error(answer) == (400, code, False)
    assert gateway.adapter.runs == []
    gateway.assert_idle()


def test_refusals_of_the_edge() -> None:
    policy = {"max_queue": 1}
    gateway = Gateway(wait, configuration=document(node("n1", "p1", capacity=1), provider_pool=policy))
    assert error(gateway.chat(model="other").answer) == (404, "model_not_found", False)
    first, second = gateway.chat(), gateway.chat()
    assert error(gateway.chat().answer) == (429, "queue_full", True)
    second.leave()
    first.leave()
    gateway.net.run()
    gateway.machine.uplink._link.send(m.NodeDraining())  # type: ignore[union-attr]
    gateway.net.run()
    assert error(gateway.chat().answer) == (503, "no_provider", True)
    gateway.runs.draining = True
    assert error(gateway.chat().answer) == (503, "draining", True)
    gateway.assert_idle()


@pytest.mark.parametrize("stream", [False, True])
def test_a_node_that_is_lost_before_a_byte(stream: bool) -> None:
    gateway = Gateway(wait)
    client = gateway.chat(stream=stream)
    gateway.machine.end.cut()
    gateway.net.run()
    assert error(client.answer) == (502, "node_lost", False)
    gateway.assert_idle()
    gateway.close()


def test_a_node_that_is_lost_mid_stream() -> None:
    """SE-01 node_lost: an error event, no [DONE], and the connection is still good."""
    gateway = Gateway(start(), piece(b"data: 1\n\n"), piece(b"data: 2\n\n"), wait)
    client = gateway.chat(stream=True)
    gateway.machine.end.cut()
    gateway.net.run()
    answer = client.answer
    assert answer.whole
    *pieces, last = answer.events
    assert pieces == ["1", "2"]
    assert json.loads(last)["error"]["code"] == "node_lost"
    gateway.assert_idle()


@pytest.mark.parametrize("stream", [False, True])
def test_a_break_after_its_first_byte(stream: bool) -> None:
    """SE-01: a stream says so in an event; an answer that was still held is a 502, never 200 with half of it."""
    head = start() if stream else start(JSON)
    gateway = Gateway(head, piece(b"data: 1\n\n"), fail(Failure("upstream_error", "it broke")))
    answer = gateway.chat(stream=stream).answer
    if stream:
        assert answer.status == 200
        assert json.loads(answer.events[-1])["error"]["message"] == "it broke"
        assert "[DONE]" not in answer.events
    else:
        assert error(answer) == (502, "upstream_error", False)
    gateway.assert_idle()


# ---- routes


@pytest.mark.parametrize(
    ("method", "target", "status", "code", "allow"),
    [
        ("GET", "/", 404, "unknown_url", None),
        ("GET", "/v1", 404, "unknown_url", None),
        ("POST", "/v1/chat/completions/", 404, "unknown_url", None),
        ("POST", "/chat/completions", 404, "unknown_url", None),
        ("POST", "/v1/unheard-of?model=m", 404, "unknown_url", None),
        ("GET", "/v1/%63hat/completions", 404, "unknown_url", None),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed", "POST"),
        ("DELETE", "/v1/chat/completions", 405, "method_not_allowed", "POST"),
        ("POST", "/v1/models", 405, "method_not_allowed", "GET, HEAD"),
        ("PUT", "/v1/models/m", 405, "method_not_allowed", "GET, HEAD"),
        ("POST", "/healthz", 405, "method_not_allowed", "GET, HEAD"),
        ("OPTIONS", "/v1/models", 405, "method_not_allowed", "GET, HEAD"),
        ("GET", "/v1/models/other", 404, "model_not_found", None),
        ("POST", "/v1/models/", 405, "method_not_allowed", "GET, HEAD"),
    ],
)
def test_routes_that_are_not(method: str, target: str, status: int, code: str, allow: str | None) -> None:
    answer = get(Gateway(), target, method=method)
    assert error(answer) == (status, code, False)
    assert answer.headers.get("allow") == allow


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("/chat/completions", "the path is /v1/chat/completions"),
        ("/chat/completions/", "the path is /v1/chat/completions"),
        ("/v1/chat/completions/", "the path is /v1/chat/completions"),
        ("/models", "the path is /v1/models"),
        ("/models/m", "the path is /v1/models/m"),
        ("/v1/responses/resp_1/cancel", "an edge keeps nothing for later, and has only the APIs' main paths"),
        ("/v1/files", "/v1/files is not served: an edge keeps nothing for later, and has only the APIs' main paths"),
        ("/v1/unheard-of", "there is nothing at /v1/unheard-of, unless a model is asked there by POST"),
        ("/embeddings-of-mine", "there is nothing at /embeddings-of-mine"),
    ],
)
def test_a_path_that_is_not_says_where_to_look(target: str, said: str) -> None:
    answer = get(Gateway(), target, method="POST")
    assert error(answer) == (404, "unknown_url", False)
    assert answer.json["error"]["message"].endswith(said)


def test_an_unknown_model_says_where_the_list_is() -> None:
    gateway = Gateway()
    for answer in (gateway.chat(model="other").answer, get(gateway, "/v1/models/other")):
        assert error(answer) == (404, "model_not_found", False)
        assert "GET /v1/models" in answer.json["error"]["message"]
        assert answer.json["error"]["param"] == "model"


def test_a_backends_own_unknown_model_is_told_as_it_said_it() -> None:
    gateway = Gateway(fail(Failure("model_not_found", "no such file", http_status=404)))
    assert gateway.chat().answer.json["error"]["message"] == "no such file"


@pytest.mark.parametrize(("coding", "status"), [("gzip", 415), ("gzip, identity", 415), ("Identity", 200), ("", 200)])
def test_a_body_that_would_have_to_be_decoded(coding: str, status: int) -> None:
    gateway = Gateway(whole(ANSWER))
    answer = gateway.chat(headers={"Content-Encoding": coding}).answer
    assert answer.status == status
    if status == 415:
        assert error(answer) == (415, "unsupported_media_type", False)
        assert answer.headers["accept-encoding"] == "identity"
        assert gateway.adapter.runs == []


def test_no_key_goes_before_a_body_that_cannot_be_read() -> None:
    gateway = Gateway(configuration=document(openai={"principal_tokens": [TOKEN], "allow_anonymous": False}))
    assert error(gateway.chat(headers={"Content-Encoding": "gzip"}).answer) == (401, "invalid_api_key", False)


def models() -> Gateway:
    configuration = document(node("n1", "p1", models=["m", "Qwen/Qwen3-8B", "a b/é"]))
    configuration["models"] = [
        {"id": "m", "providers": ["p1"], "context_window_tokens": 4096},
        {"id": "Qwen/Qwen3-8B", "providers": ["p1"]},
    ]
    configuration["openai"]["model_routes"] = [{"model": "old/route", "adapter": "a", "target": "t"}]
    return Gateway(configuration=configuration)


def test_the_models() -> None:
    gateway = models()
    answer = get(gateway, "/v1/models")
    assert answer.status == 200
    assert get(gateway, "/v1/models/").body == answer.body
    assert answer.json["object"] == "list"
    assert [each["id"] for each in answer.json["data"]] == ["m", "Qwen/Qwen3-8B", "old/route"]
    assert answer.json["data"][0]["max_model_len"] == 4096
    assert all(each["object"] == "model" and each["owned_by"] == "iop" for each in answer.json["data"])


@pytest.mark.parametrize(
    "target", ["/v1/models/Qwen/Qwen3-8B", "/v1/models/Qwen%2FQwen3-8B", "/v1/models/Qwen%2fQwen3%2D8B?x=1"]
)
def test_a_model_with_a_slash_works_raw_and_quoted(target: str) -> None:
    answer = get(models(), target)
    assert (answer.status, answer.json["id"]) == (200, "Qwen/Qwen3-8B")


def test_a_route_is_a_model_too() -> None:
    assert get(models(), "/v1/models/old%2Froute").json["id"] == "old/route"


def test_head() -> None:
    gateway = models()
    for target in ("/v1/models", "/v1/models/m", "/healthz", "/readyz"):
        answer = get(gateway, target, method="HEAD")
        assert (answer.status, answer.body, answer.whole) == (200, b"", True)
        assert int(answer.headers["content-length"]) > 0
    answer = get(gateway, "/v1/models/none", method="HEAD")
    assert (answer.status, answer.body) == (404, b"")


def test_health_and_readiness() -> None:
    gateway = Gateway(start=False)
    assert get(gateway, "/healthz").status == 200
    answer = get(gateway, "/readyz")
    assert (answer.status, answer.json) == (503, {"status": "no provider can serve"})
    gateway.machine.start()
    gateway.net.run()
    assert get(gateway, "/readyz").status == 200
    gateway.runs.draining = True
    assert get(gateway, "/readyz").status == 503
    assert get(gateway, "/healthz").status == 200


# ---- request ids


@pytest.mark.parametrize(("offered", "kept"), [("mine-7.A_b", True), ("x" * 65, False), ("a b", False), ("é", False)])
def test_a_clients_request_id_comes_back_when_it_may(offered: str, kept: bool) -> None:
    gateway = Gateway(whole(ANSWER))
    for answer in (
        gateway.chat(headers={"X-Request-Id": offered}).answer,
        get(gateway, "/nowhere", headers={"X-Request-Id": offered}),
    ):
        assert (answer.headers["x-request-id"] == offered) is kept
        assert answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /v1/models HTTP/1.1\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 999\r\n\r\n", 413),
        (b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", 431),
    ],
)
def test_what_breaks_http_is_answered_in_the_same_shape(raw: bytes, status: int) -> None:
    gateway = Gateway(limits=Limits(body=100))
    client = gateway.connect()
    client.transport.write(raw)
    gateway.net.run(3)
    head, _, body = client.data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"\r\nx-request-id: req-" in head
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
    assert client.lost


# ---- who may come in


def private(**openai: Any) -> dict[str, Any]:
    return document(openai={"principal_tokens": [TOKEN], "allow_anonymous": False, **openai})


@pytest.mark.parametrize("target", ["/v1/models", "/v1/models/m", "/v1/chat/completions"])
@pytest.mark.parametrize("authorization", [None, "Bearer wrong", "Basic dG9r", "Bearer"])
def test_no_token_or_a_wrong_one(target: str, authorization: str | None) -> None:
    """AU-01: 401 with WWW-Authenticate, before the body is looked at."""
    gateway = Gateway(whole(ANSWER), configuration=private())
    headers = {} if authorization is None else {"Authorization": authorization}
    answer = get(gateway, target, body=b"{" if "chat" in target else None, headers=headers)
    assert error(answer) == (401, "invalid_api_key", False)
    assert answer.headers["www-authenticate"] == "Bearer"
    assert gateway.adapter.runs == []


def test_the_right_token(logged: Any) -> None:
    gateway = Gateway(whole(ANSWER), configuration=private())
    for scheme in ("Bearer", "bearer", "BEARER  "):
        assert gateway.chat(headers={"Authorization": f"{scheme} tok-A1"}).answer.status == 200
    headers = [("Authorization", "Bearer tok-A1"), ("Authorization", "Bearer tok-A1")]
    assert gateway.chat(headers=headers).answer.status in (400, 401)
    assert "tok-A1" not in repr(gateway.run.request)
    assert not any("tok-A1" in line for line in logged.lines())


def test_health_needs_no_token() -> None:
    gateway = Gateway(configuration=private())
    assert get(gateway, "/healthz").status == 200
    assert get(gateway, "/readyz").status == 200


def test_web_pages() -> None:
    configuration = document(openai={"allowed_origins": ["https://chat.example"], "allowed_hosts": ["models.lan"]})
    gateway = Gateway(whole(ANSWER), configuration=configuration)
    answer = gateway.chat(headers={"Origin": "https://chat.example"}).answer
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == "https://chat.example"
    answer = gateway.chat(headers={"Origin": "https://evil.example"}).answer
    assert error(answer) == (403, "origin_not_allowed", False)
    assert "access-control-allow-origin" not in answer.headers
    assert error(gateway.chat(headers={"Host": "evil.example"}).answer) == (403, "host_not_allowed", False)
    assert gateway.chat(headers={"Host": "models.lan:4600"}).answer.status == 200


def test_a_preflight() -> None:
    gateway = Gateway(configuration=private(allowed_origins=["https://chat.example"]))
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,x-stainless-os"}
    answer = get(gateway, "/v1/chat/completions", method="OPTIONS", headers={"Origin": "https://chat.example", **asked})
    assert answer.status == 204
    assert answer.headers["access-control-allow-origin"] == "https://chat.example"
    assert answer.headers["access-control-allow-headers"] == "authorization,x-stainless-os"
    assert "POST" in answer.headers["access-control-allow-methods"]
    answer = get(gateway, "/v1/chat/completions", method="OPTIONS", headers={"Origin": "https://evil.example", **asked})
    assert error(answer) == (403, "origin_not_allowed", False)


def test_provider_tokens() -> None:
    """AU-02: this run's own, never the principal's; without one the rule decides."""
    gateway = Gateway(whole(ANSWER), configuration=private(provider_auth={"enabled": True}))
    mine = {"Authorization": "Bearer tok-A1"}
    assert error(gateway.chat(headers=mine).answer) == (401, "provider_token_missing", False)
    assert get(gateway, "/v1/models", headers=mine).status == 200
    for token in ("prov-1", "prov-2"):
        assert gateway.chat(headers={**mine, "X-IOP-Provider-Authorization": token}).answer.status == 200
        assert gateway.run.request.secret_headers == (("Authorization", f"Bearer {token}"),)
        sent = repr(tuple(gateway.run.request)).replace(f"Bearer {token}", "")
        assert "prov-" not in sent
        assert "tok-A1" not in sent


def test_provider_tokens_are_ignored_when_they_are_off() -> None:
    """AU-02"""
    gateway = Gateway(whole(ANSWER))
    gateway.chat(headers={"X-IOP-Provider-Authorization": "prov-1", "Authorization": "Bearer edge-secret"})
    sent = repr(tuple(gateway.run.request))
    assert "prov-1" not in sent
    assert "edge-secret" not in sent


# ---- hostile requests; the codecs alone are in test_hostile_requests.py


def test_a_form_passes_through() -> None:
    gateway = Gateway(whole(b'{"text":"hi"}'), configuration=document(node("n1", "p1", models=["own/name"])))
    form = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n\0\xff\r\n'
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n'
    )
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = gateway.ask("/v1/audio/transcriptions", form, headers=kind).answer
    assert (answer.status, answer.json) == (200, {"text": "hi"})
    assert gateway.run.request.input == form.replace(b"\r\nm\r\n", b"\r\nown/name\r\n")
    assert ("content-type", kind["Content-Type"]) in gateway.run.request.http.headers
    gateway.close()


@pytest.mark.parametrize("digits", [19, 20, 400])
def test_a_budget_larger_than_a_run_has_room_for(digits: int) -> None:
    gateway = Gateway(start(None), piece(text="hi"), complete())
    body = {"model": "m", "max_tokens": 9, "messages": CHAT["messages"]}
    thinking = {"type": "enabled", "budget_tokens": int("9" * digits)}
    answer = gateway.ask("/v1/messages", {**body, "thinking": thinking}).answer
    assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request_error")
    gateway.close()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"])
def test_nesting_for_which_there_is_just_no_room(target: str) -> None:
    """What is read once may be read again from a fuller stack."""
    gateway = Gateway(start(None), piece(text="hi"), complete())
    client = gateway.connect()
    request = {**CHAT, "prompt": "a", "input": "a", "max_tokens": 9, "stream": True, "stream_options": {"x": 0}}
    before = json.dumps(request)[:-1]
    for depth in range(900, 1000, 2):
        client.ask(target, f'{before}, "tools": [{{"a": {"[" * depth}{"]" * depth}}}]}}'.encode())
        gateway.net.run()
    assert {answer.status for answer in client.answers} <= {200, 400}
    gateway.close()
