"""Failure kinds of requests, errors, headers and departures, seen in public gateways, through the whole chain."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from backend_in_memory import DONE, Request, chunk, ending
from gateway_in_memory import CHAT, ODD, sha256
from whole_chain import STREAM, Chain, text

pytestmark = pytest.mark.usefixtures("logged")

ANSWER = json.dumps({"id": "c1", "choices": [{"message": {"role": "assistant", "content": "hi"}}]}).encode()

# ---- what is sent on


@pytest.mark.parametrize("stream", [True, False])
def test_pa_01_zero_false_and_empty(stream: bool) -> None:
    """PA-01: nothing vanishes, nothing is made up; only documented members change."""
    chain = Chain()
    chain.ask(body={**CHAT, **ODD, "stream": stream})
    options = {"stream_options": {"include_usage": True}} if stream else {}
    assert chain.backend.last.json == {**CHAT, **ODD, "stream": stream, **options}


def test_pa_01_digits() -> None:
    """PA-01: numbers stay digit for digit, whatever a parser would make of them."""
    chain = Chain()
    body = b'{"model":"m","messages":[],"seed":12345678901234567890123,"x":1.10,"y":1E400,"z":-0}'
    chain.ask(body=body)
    assert chain.backend.last.body == body


TOOLS = '"tools": [{"type": "function", "function": {"name": "lookup_tide", "parameters": {"type": "object"}}}]'
CALL = '"tool_calls": [{"id":"c1","type":"function","function":{"name":"lookup_tide","arguments":"{}"}}]'


def assert_written_so(messages: str) -> None:
    """What a client writes as its messages is what the backend reads, byte for byte, whatever else is asked."""
    for kind in ("vllm", "openai"):
        chain = Chain(provider={"type": kind})
        chain.backend.responds(200, ANSWER)
        for more in ("", f"{TOOLS}, "):
            asked = f'{{"model": "m", {more}"messages": [{messages}]}}'
            assert chain.ask(body=asked.encode()).answer.status == 200
            assert chain.backend.last.body.decode() == asked
        chain.backend.streams(chunk("hi"), ending(), DONE)
        streamed = f'{{"stream": true, "messages": [{messages}], "model": "m"}}'
        assert chain.ask(body=streamed.encode()).answer.status == 200
        assert chain.backend.last.json["stream_options"] == {"include_usage": True}
        assert f'"messages": [{messages}]' in chain.backend.last.body.decode()
        assert len(chain.backend.requests) == 3
        chain.assert_idle()


@pytest.mark.parametrize("content", ['"content": null, ', '"content" :null,', "", '"content": "", '])
def test_ms_01_null_stays_null_and_absent_absent(content: str) -> None:
    """MS-01"""
    result = '{"role": "tool", "tool_call_id": "c1", "content": "2.1\\u00a0m"}'
    assert_written_so(f'{{"role": "user", "content": "tide?"}}, {{"role": "assistant", {content}{CALL}}}, {result}')


def test_ms_01_an_assistant_that_said_nothing() -> None:
    """MS-01"""
    assert_written_so('{"role": "assistant", "content": ""}, {"role": "user", "content": "tide?"}')


def test_ms_02_lists_of_parts_stay_lists() -> None:
    """MS-02: of every role, in their order."""

    def parts(*texts: str) -> str:
        return ", ".join(f'{{"type": "text",  "text": "{text}"}}' for text in texts)

    assert_written_so(
        f'{{"role": "system", "content": [{parts("Be terse.", "Use metres.")}]}}, '
        f'{{"role": "user", "content": [{parts("one", "two")}]}}, '
        f'{{"role": "assistant", "content": [{parts("ok")}], {CALL}}}, '
        f'{{"role": "tool", "tool_call_id": "c1", "content": [{parts("22.5 C")}]}}'
    )


USER, DEVELOPER = '{"role": "user", "content": "hi"}', '{"role":"developer", "content": "Answer in rhyme."}'


@pytest.mark.parametrize(
    "messages",
    [[DEVELOPER, USER], ['{"role": "system", "content": "Be brief."}', DEVELOPER, USER], [USER, DEVELOPER, USER]],
    ids=["developer", "system, developer", "in the middle"],
)
def test_ms_03_a_developer_stays_one(messages: list[str]) -> None:
    """MS-03"""
    assert_written_so(", ".join(messages))


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


CALLED = json.loads(f"{{{CALL}}}")
PLAIN = {
    "MS-01: null": (
        [{"role": "assistant", "content": None, **CALLED}, {"role": "tool", "tool_call_id": "c1", "content": "2.1 m"}],
        [{"role": "assistant", "content": "", **CALLED}, {"role": "tool", "tool_call_id": "c1", "content": "2.1 m"}],
    ),
    "MS-01: absent": ([{"role": "assistant", **CALLED}], [{"role": "assistant", "content": "", **CALLED}]),
    "MS-01: empty": ([{"role": "assistant", "content": ""}], [{"role": "assistant", "content": ""}]),
    "MS-02": (
        [
            {"role": "system", "content": parts("Be terse.", "Use metres.")},
            {"role": "user", "content": parts("one", "two")},
            {"role": "assistant", "content": parts("ok"), **CALLED},
            {"role": "tool", "tool_call_id": "c1", "content": parts("22.5 C")},
        ],
        [
            {"role": "system", "content": "Be terse.\nUse metres."},
            {"role": "user", "content": "one\ntwo"},
            {"role": "assistant", "content": "ok", **CALLED},
            {"role": "tool", "tool_call_id": "c1", "content": "22.5 C"},
        ],
    ),
    "MS-03": (
        [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": "Answer in rhyme."},
            {"role": "user", "content": "hi"},
            {"role": "developer", "content": parts("And in metres.")},
        ],
        [
            {"role": "system", "content": "Be brief."},
            {"role": "system", "content": "Answer in rhyme."},
            {"role": "user", "content": "hi"},
            {"role": "system", "content": "And in metres."},
        ],
    ),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", PLAIN)
def test_messages_for_a_backend_that_takes_strings_alone(case: str, stream: bool) -> None:
    """MS-01, MS-02, MS-03: nothing is lost, and all else of the request is as it was written."""
    said, sent = PLAIN[case]
    chain = Chain(messages="plain")
    chain.backend.streams(chunk("hi"), ending(), DONE) if stream else chain.backend.responds(200, ANSWER)
    rest = f'"seed": 1e2, "model": "m", "stream": {json.dumps(stream)}, {TOOLS}'
    answer = chain.ask(body=f'{{"messages": {json.dumps(said)}, {rest}}}'.encode()).answer
    assert answer.status == 200
    assert text(answer) == "hi"
    assert chain.backend.last.json["messages"] == sent
    assert rest in chain.backend.last.body.decode()
    chain.assert_idle()


def test_a_part_that_is_no_text_is_named_to_whom_it_was_for() -> None:
    """MS-02: silence would lose it."""
    chain = Chain(messages="plain")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    message = {"role": "user", "content": [*parts("what is this?"), image]}
    error = chain.chat(messages=[message]).answer.json["error"]
    assert (error["code"], error["param"]) == ("invalid_value", "messages[0].content[1]")
    assert chain.backend.requests == []


def test_tools_as_text_for_a_backend_that_takes_strings_alone() -> None:
    chain = Chain(messages="plain", tools="text")
    chain.backend.streams(chunk("hi"), ending(), DONE)
    said = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts("one", "two")}]
    assert chain.chat(messages=said, tools=json.loads(f"{{{TOOLS}}}")["tools"]).answer.status == 200
    system, user = chain.backend.last.json["messages"]
    assert user == {"role": "user", "content": "one\ntwo"}
    assert system["role"] == "system"
    assert system["content"].startswith("Be brief.\n\n# Tools")
    assert "tools" not in chain.backend.last.json


@pytest.mark.parametrize(
    ("base_url", "target"),
    [
        ("http://127.0.0.1:8000", "/v1/chat/completions"),
        ("http://127.0.0.1:8000/", "/v1/chat/completions"),
        ("http://127.0.0.1:8000/v1", "/v1/chat/completions"),
        ("http://127.0.0.1:8000/v1/", "/v1/chat/completions"),
        ("http://127.0.0.1:8000/api/v1", "/api/v1/chat/completions"),
        ("http://127.0.0.1:8000/av1", "/av1/v1/chat/completions"),
    ],
)
def test_ur_01_base_urls(base_url: str, target: str) -> None:
    """UR-01: through the whole chain, with and without the version and its slash."""
    chain = Chain(base_url=base_url)
    chain.backend.responds(200, ANSWER)
    assert chain.ask(body=CHAT).answer.status == 200
    assert chain.backend.last.target == target


# ---- errors


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("status", "kind", "body", "answered"),
    [
        (400, "application/json", b'{"object":"error","message":"bad n","type":"BadRequestError","code":400}', (400,)),
        (422, "application/json", b'{"detail":[{"loc":["body","n"],"msg":"must be >= 1"}]}', (400, 422)),
        (404, "application/json", b'{"error":"model \'q\' not found"}', (404,)),
        (502, "text/html", b"<html><h1>Bad gateway</h1></html>", (502,)),
        (503, "text/plain", b"", (503,)),
        (500, "text/plain", b"Traceback: secret path /srv/x", (500, 502)),
    ],
)
def test_em_01_every_shape(stream: bool, status: int, kind: str, body: bytes, answered: tuple[int, ...]) -> None:
    """EM-01: OpenAI's error object, a code that is a string or null, no HTML, no traceback."""
    chain = Chain()
    chain.backend.responds(status, body, kind)
    answer = chain.ask(body={**CHAT, "stream": stream}).answer
    assert answer.status in answered
    assert answer.code is None or isinstance(answer.code, str)
    assert "<" not in answer.json["error"]["message"]
    assert "/srv" not in answer.json["error"]["message"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("status", "seconds"), [(429, "7"), (503, "3")])
def test_em_02_retry_after(stream: bool, status: int, seconds: str) -> None:
    """EM-02: 429 stays 429, 503 stays 503, each with its Retry-After."""
    chain = Chain()
    chain.backend.responds(status, b'{"error":{"message":"slow down","type":"rate_limit_error"}}', Retry_After=seconds)
    answer = chain.ask(body={**CHAT, "stream": stream}).answer
    assert (answer.status, answer.headers["retry-after"]) == (status, seconds)
    assert answer.json["error"]["message"] == "slow down"


@pytest.mark.parametrize("stream", [True, False])
def test_em_02_no_answer_and_nobody_there(stream: bool) -> None:
    """EM-02: no answer is 504, a refused connection 502."""
    chain = Chain(first_byte_timeout_ms=3000)
    client = chain.ask(body={**CHAT, "stream": stream})
    assert chain.wait(client, 4).status == 504
    chain.backend.port.stopListening()
    client = chain.ask(body={**CHAT, "stream": stream})
    assert chain.wait(client).status == 502
    chain.assert_idle()


# ---- departures


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("pieces", [0, 3])
def test_dc_01_the_client_leaves(stream: bool, pieces: int) -> None:
    """DC-01: the backend's socket is closed, the slot is free, the next request runs."""
    chain = Chain(provider={"capacity": 1})
    if pieces:
        kind = "text/event-stream" if stream else "application/json"
        chain.backend.answer = lambda request: request.connection.stream(*[chunk("x")] * pieces, kind=kind)
    client = chain.ask(body={**CHAT, "stream": stream})
    chain.net.run(1)
    assert chain.backend.open == 1
    client.leave()
    chain.net.run(0.1)
    assert not chain.backend.connections
    chain.assert_idle()
    chain.backend.responds(200, ANSWER)
    assert chain.ask(body=CHAT).answer.status == 200
    chain.close()


def test_dc_01_the_backend_is_left_while_it_is_being_connected() -> None:
    """DC-01"""
    chain = Chain()
    chain.net.silent.add(8000)
    client = chain.ask(body=STREAM)
    client.leave()
    chain.net.run(0.1)
    chain.assert_idle()
    chain.close()


def test_dc_02_answers_to_who_has_left(logged: Any) -> None:
    """DC-02: 200 clients leave, the backend answers later: nothing is logged, no timer and no socket is left."""
    chain = Chain()
    slow: list[Request] = []
    chain.backend.answer = slow.append
    clients = [chain.connect() for _ in range(200)]
    for number, client in enumerate(clients):
        client.ask(body={**CHAT, "stream": number % 2 == 0})
    chain.net.run(0.05)
    assert len(slow) == 200
    for client in clients[:100]:
        client.leave()
    for request in slow[100:]:
        request.connection.respond(500, b"{}")
    for client in clients[100:]:
        client.leave()
    chain.net.run(0.4)
    for request in slow[:100]:
        request.connection.respond(200, ANSWER)
    chain.net.run(10)
    chain.assert_idle()
    assert logged.warnings() == []
    chain.close()


# ---- who asks

TOKENS = [
    {"token_ref": "app", "token_hash_sha256": sha256("tok-A1"), "principal_ref": "alice"},
    {"token_ref": "other", "token_hash_sha256": sha256("edge-secret"), "principal_ref": "bob"},
]


@pytest.mark.parametrize(
    ("headers", "accepted"),
    [
        ([("Authorization", "bearer tok-A1")], True),
        ([("Authorization", "BEARER   tok-A1")], True),
        ([("Authorization", "Bearer TOK-A1")], False),
        ([("Authorization", "Bearer")], False),
        ([("Authorization", "Bearer ")], False),
        ([("Authorization", "Basic dG9r")], False),
        ([("Authorization", "Bearer tok-A1"), ("Authorization", "Bearer tok-A1")], False),
        ([("Authorization", "Bearer \xff\xfe")], False),
        ([], False),
    ],
)
def test_au_01_tokens(headers: list[tuple[str, str]], accepted: bool) -> None:
    """AU-01: 401 with WWW-Authenticate and OpenAI's shape, never 500, and before the body is parsed."""
    chain = Chain(openai={"principal_tokens": TOKENS, "allow_anonymous": False})
    chain.backend.responds(200, ANSWER)
    answer = chain.ask(body=CHAT if accepted else b"{", headers=headers).answer
    if accepted:
        assert answer.status == 200
    else:
        assert answer.status in (400, 401)
        assert answer.code == "invalid_api_key"
        assert answer.headers["www-authenticate"] == "Bearer"


SENT = {
    "Authorization": "Bearer edge-secret",
    "X-Api-Key": "edge-secret",
    "Cookie": "s=1",
    "X-Forwarded-For": "10.0.0.9",
}
ON = {"enabled": True, "required": False}


@pytest.mark.parametrize(
    ("rule", "configured", "given", "expected"),
    [
        (ON, {}, "prov-1", ["Bearer prov-1"]),
        (ON, {"Authorization": "Bearer of-config"}, "prov-1", ["Bearer prov-1"]),
        (ON, {"Authorization": "Bearer of-config"}, None, ["Bearer of-config"]),
        (ON, {}, None, None),
        ({"enabled": False}, {}, "prov-1", None),
        ({"enabled": False}, {"Authorization": "Bearer of-config"}, "prov-1", ["Bearer of-config"]),
    ],
)
def test_au_02_whose_token_reaches_the_backend(
    rule: dict[str, Any], configured: dict[str, str], given: str | None, expected: list[str] | None
) -> None:
    """AU-02: never the principal's, never a cookie; the run's own when that is on, else the configured one."""
    chain = Chain(
        openai={"principal_tokens": TOKENS, "allow_anonymous": False, "provider_auth": rule}, headers=configured
    )
    chain.backend.responds(200, ANSWER)
    headers = SENT | ({"X-IOP-Provider-Authorization": given} if given else {})
    assert chain.ask(body=CHAT, headers=headers).answer.status == 200
    sent = chain.backend.last.headers
    assert sent.get("authorization") == expected
    everything = repr(sent) + chain.backend.last.body.decode()
    assert not any(word in everything for word in ("edge-secret", "s=1", "10.0.0.9", "x-iop"))
    assert ("prov-1" in everything) is (expected == ["Bearer prov-1"])


def test_au_02_parallel_requests_never_swap_tokens() -> None:
    """AU-02"""
    chain = Chain(openai={"provider_auth": ON})
    clients = [chain.connect() for _ in range(30)]
    for number, client in enumerate(clients):
        client.ask(body={**CHAT, "user": f"u{number}"}, headers={"X-IOP-Provider-Authorization": f"prov-{number}"})
    chain.net.run()
    assert len(chain.backend.requests) == 30
    for request in chain.backend.requests:
        assert request.headers["authorization"] == [f"Bearer prov-{request.json['user'][1:]}"]


# ---- headers and codings


def test_hw_05_compressed_and_hop_by_hop() -> None:
    """HW-05: what the client gets is what its headers say, and nothing of one hop crosses to the next."""
    chain = Chain()
    chain.backend.answer = lambda request: request.connection.respond(
        200,
        gzip.compress(ANSWER),
        Content_Encoding="gzip",
        Connection="X-Up",
        X_Up="1",
        Keep_Alive="timeout=5",
        Server="uvicorn",
    )
    headers = {"Accept-Encoding": "gzip, br", "Connection": "keep-alive, X-Hop", "X-Hop": "1", "TE": "trailers"}
    answer = chain.ask(body=CHAT, headers=headers).answer
    assert answer.json == json.loads(ANSWER)
    assert "content-encoding" not in answer.headers
    assert answer.headers["content-length"] == str(len(ANSWER))
    assert not {"x-up", "keep-alive", "server"} & set(answer.headers)
    sent = chain.backend.last.headers
    assert sent["accept-encoding"] == ["identity"]
    assert sent["host"] == ["127.0.0.1:8000"]
    assert not {"x-hop", "te", "connection", "transfer-encoding"} & set(sent)


def test_hw_05_a_compressed_stream_comes_as_it_comes() -> None:
    """HW-05: each event comes out when it came in."""
    import zlib

    chain = Chain()
    squeeze = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)

    def flushed(data: bytes) -> bytes:
        return squeeze.compress(data) + squeeze.flush(zlib.Z_SYNC_FLUSH)

    chain.backend.answer = lambda request: request.connection.stream(flushed(chunk("a")), Content_Encoding="gzip")
    client = chain.ask(body=STREAM)
    assert text(client.answer) == "a"
    chain.backend.last.connection.say(flushed(chunk("b")))
    chain.net.run()
    assert text(client.answer) == "ab"
    chain.backend.last.connection.say(flushed(ending() + DONE) + squeeze.flush())
    chain.backend.last.connection.end()
    chain.net.run()
    assert client.answer.whole
    assert client.answer.events[-1] == "[DONE]"
    chain.assert_idle()
