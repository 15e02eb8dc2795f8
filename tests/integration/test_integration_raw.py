"""What no SDK would send, byte by byte, to a real edge. ``docs/contracts/openai.md``, RFC 9112."""

from __future__ import annotations

import json
import random
import socket
from pathlib import Path

import h11
import pytest
from raw_http import Wire, ask, chat, head, post
from real_gateway import KEY, Backend, Gateway
from running import until

LIMIT = 1 << 20
"""The gateway's ``max_body_bytes``."""

HELLO = b'[{"role":"user","content":"hello"}]'


def body(model: bytes, more: bytes = b"") -> bytes:
    return b'{"model":%b,"messages":%b%b}' % (model, HELLO, more)


# ---- bodies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"{",
        b"nonsense",
        b"{'model': 'fake'}",
        body(b'"fake"') + b"}",
        body(b'"fake"', b',"a":NaN'),
        b"\xff\xfe{}",
        body(b'"fake"', b',"a":"\n"'),
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b"model=fake",
    ],
    ids=range(12),
)
def test_malformed_json(gateway: Gateway, text: bytes) -> None:
    with Wire(gateway.port) as wire:
        answer = wire.ask(post(text))
        assert (answer.status, answer.error["code"]) == (400, "invalid_json")
        assert wire.ask(chat("still there")).status == 200  # the connection is as good as new


@pytest.mark.parametrize(
    ("text", "param"),
    [
        (b'{"messages":%b}' % HELLO, "model"),
        (body(b'""'), "model"),
        (body(b"null"), "model"),
        (body(b"5"), "model"),
        (body(b'["fake"]'), "model"),
        (body(b'"fake"', b',"model":"tiny"'), "model"),
        (body(b'"fake"', b',"mod\\u0065l":"tiny"'), "model"),
        (body(b'"fake"', b',"messages":[]'), "messages"),
        (b'{"model":"fake"}', "messages"),
        (b'{"model":"fake","messages":{}}', "messages"),
        (body(b'"fake"', b',"stream":"yes"'), "stream"),
        (body(b'"fake"', b',"stream":true,"stream_options":7'), "stream_options"),
        (b"[]", None),
        (b"null", None),
        (b'"fake"', None),
    ],
    ids=range(15),
)
def test_wrong_shape(gateway: Gateway, fake: Backend, text: bytes, param: str | None) -> None:
    asked = fake.stats["asked"]
    answer = ask(gateway, post(text))
    assert answer.status == 400
    assert (answer.error["code"], answer.error["param"]) == ("invalid_value", param)
    assert fake.stats["asked"] == asked


@pytest.mark.parametrize("model", [b'"nothing"', b'"Fake"', b'"fake "', b'"\\ud800"', b'"\\u0000"', b'"../fake"'])
def test_unknown_model(gateway: Gateway, model: bytes) -> None:
    answer = ask(gateway, post(body(model)))
    assert (answer.status, answer.error["code"], answer.error["param"]) == (404, "model_not_found", "model")


@pytest.mark.parametrize("kind", ["", "application/x-www-form-urlencoded", "text/plain", "application/json; charset=x"])
def test_json_is_json_whatever_it_is_called(gateway: Gateway, kind: str) -> None:
    headers = [f"content-type: {kind}"] if kind else []
    assert ask(gateway, post(body(b'"fake"'), *headers)).status == 200


def test_numbers_pass_digit_for_digit(gateway: Gateway, fake: Backend) -> None:
    """The edge replaces what it must and re-prints nothing."""
    odd = b', "temperature" : 0.70000000000000001,"seed":123456789012345678901234567890, "big":1E400,"t":"\\u00fc \\/"'
    assert ask(gateway, post(body(b'"fake"', odd))).status == 200
    assert fake.stats["last"]["text"] == body(b'"fake"', odd).decode()
    assert ask(gateway, post(body(b'"renamed"', odd))).status == 200
    assert fake.stats["last"]["text"] == body(b'"vendor/fake:7b"', odd).decode()


def test_body_at_the_limit(gateway: Gateway) -> None:
    text = body(b'"fake"')
    assert ask(gateway, post(text + b" " * (LIMIT - len(text)))).status == 200


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("rest", [1, 3 * LIMIT])
def test_body_over_the_limit(gateway: Gateway, declared: bool, rest: int) -> None:
    """The refusal is readable though the client sends all before it reads; then the connection is closed."""
    text = body(b'"fake"') + b" " * (LIMIT + rest)
    if declared:
        request = post(text)
    else:
        chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(text), text)
        request = head("POST", "/v1/chat/completions", "transfer-encoding: chunked") + chunked
    with Wire(gateway.port) as wire:
        answer = wire.ask(request)
        assert (answer.status, answer.error["code"]) == (413, "request_too_large")
        assert answer.headers["connection"] == "close"
        assert wire.closed()
    assert ask(gateway, chat("hello")).status == 200


# ---- requests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("PUT", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/models", "GET, HEAD"),
        ("POST", "/v1/models/tiny", "GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
    ],
)
def test_wrong_method(gateway: Gateway, method: str, path: str, allow: str) -> None:
    answer = ask(gateway, head(method, path, "content-length: 0"), method)
    assert (answer.status, answer.error["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == allow


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v1/chat", "/v2/models", "//v1/models", "/v1/modelsx", "/%2e"])
def test_unknown_url(gateway: Gateway, path: str) -> None:
    answer = ask(gateway, head("GET", path), "GET")
    assert (answer.status, answer.error["code"]) == (404, "unknown_url")


def test_head_request(gateway: Gateway) -> None:
    with Wire(gateway.port) as wire:
        answer = wire.ask(head("HEAD", "/v1/models"), "HEAD")
        assert (answer.status, answer.body) == (200, b"")
        assert wire.ask(head("GET", "/v1/models"), "GET").status == 200


@pytest.mark.parametrize(
    "header",
    [
        "",
        "authorization: Bearer",
        "authorization: Basic c2s6",
        f"authorization: {KEY}",
        f"authorization: Bearer {KEY}x",
        f"authorization: Bearer {KEY}\r\nauthorization: Bearer {KEY}",
    ],
)
def test_no_key(gateway: Gateway, header: str) -> None:
    answer = ask(gateway, post(body(b'"fake"'), *([header] if header else []), key=""))
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert KEY not in answer.body.decode()


@pytest.mark.parametrize(
    "request_head",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"\x00" * 64,
        b"GET\r\n\r\n",
        b"GET /v1/models HTTP/1.1\nhost: h\n\n",
        b"GET /v1/models HTTP/1.1\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nhost: h\r\nhost: h\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nhost : h\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ],
    ids=range(11),
)
def test_not_http(gateway: Gateway, request_head: bytes) -> None:
    with Wire(gateway.port) as wire:
        answer = wire.ask(request_head)
        assert (answer.status, answer.error["code"]) == (400, "invalid_request")
        assert wire.closed()


@pytest.mark.parametrize("size", [70_000, 140_000])
def test_head_too_large(gateway: Gateway, size: int) -> None:
    answer = ask(gateway, head("GET", "/v1/models", "x-long: " + "x" * size), "GET")
    assert (answer.status, answer.error["code"]) == (431, "head_too_large")


@pytest.mark.parametrize("cut", [3, 40, -len(HELLO), -1])
def test_half_a_request(gateway: Gateway, fake: Backend, cut: int) -> None:
    """Nothing of it reaches a backend, and nobody else notices."""
    asked = fake.stats["asked"]
    sockets = gateway.edge.sockets
    for vanish in (Wire.reset, lambda wire: wire.socket.close()):
        with Wire(gateway.port) as wire:
            wire.send(chat("half")[:cut])
            vanish(wire)
    until(lambda: gateway.edge.sockets <= sockets, "the edge has closed its end")
    assert fake.stats["asked"] == asked
    assert ask(gateway, chat("hello")).status == 200


def test_one_byte_at_a_time(gateway: Gateway) -> None:
    with Wire(gateway.port) as wire:
        for byte in chat("hello"):
            wire.send(bytes([byte]))
        assert wire.answer().status == 200


def test_pipelining(gateway: Gateway) -> None:
    """Answered in order, though the first one takes longest."""
    requests = chat("silence 0.3") + chat("drip 3 0.01", stream=True) + head("GET", "/v1/models/tiny") + chat("last")
    with Wire(gateway.port) as wire:
        wire.send(requests)
        answers = [wire.answer(), wire.answer(), wire.answer("GET"), wire.answer()]
    assert [answer.status for answer in answers] == [200] * 4
    assert answers[0].json["choices"][0]["message"]["content"] == "late"
    assert answers[1].events[-1] == "[DONE]"
    assert answers[2].json["id"] == "tiny"
    assert answers[3].json["choices"][0]["message"]["content"] == "last"
    assert len({answer.headers["x-request-id"] for answer in answers}) == 4


def test_keep_alive(gateway: Gateway) -> None:
    sockets = gateway.edge.sockets
    with Wire(gateway.port) as wire:
        for number in range(50):
            answer = wire.ask(chat(f"number {number}", stream=number % 2 == 0))
            assert f"number {number}" in answer.body.decode()
        assert gateway.edge.sockets <= sockets + 1


# ---- Expect: 100-continue -------------------------------------------------------------------------------------------


def expecting(text: bytes, *, key: str = KEY) -> bytes:
    return head("POST", "/v1/chat/completions", f"content-length: {len(text)}", "expect: 100-continue", key=key)


def test_expectation(gateway: Gateway) -> None:
    text = body(b'"fake"') + b" " * (LIMIT // 2)
    with Wire(gateway.port) as wire:
        wire.send(expecting(text))
        assert wire.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        wire.send(text[:1000])
        assert wire.quiet(0.1)
        assert wire.ask(text[1000:]).status == 200
        assert wire.ask(chat("hello")).status == 200


@pytest.mark.parametrize("patient", [True, False])
@pytest.mark.parametrize(
    ("size", "key", "status"), [(2 * LIMIT, KEY, 413), (LIMIT // 2, "sk-wrong", 401), (2 * LIMIT, "", 401)]
)
def test_refused_expectation(gateway: Gateway, size: int, key: str, status: int, patient: bool) -> None:
    """Without a 100; and whether the client heeds it or not, it can read why."""
    text = body(b'"fake"') + b" " * size
    with Wire(gateway.port) as wire:
        wire.send(expecting(text, key=key))
        if patient:
            assert wire.socket.recv(12, socket.MSG_PEEK) == f"HTTP/1.1 {status}".encode()
        else:
            wire.send(text)
        answer = wire.answer()
        assert answer.status == status
        assert answer.headers["connection"] == "close"
        assert wire.closed()


# ---- the node port --------------------------------------------------------------------------------------------------

STRANGERS = {
    "text": b"hello?\r\n" * 10,
    "http": b"GET / HTTP/1.1\r\nhost: h\r\n\r\n",
    "too long a frame": (64 * 1024 + 1).to_bytes(4, "big") + b"x",
    "the longest number": b"\xff\xff\xff\xff",
    "no envelope": (5).to_bytes(4, "big") + b"\xff\xff\xff\xff\xff",
    "an empty frame": bytes(4),
    "zeros": bytes(1000),
    "noise": bytes([0, 0, 4, 0]) + random.Random(1).randbytes(1024),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_garbage_on_the_node_port(gateway: Gateway, name: str) -> None:
    """Closed at once, while the true node serves a stream undisturbed."""
    with Wire(gateway.port) as client, Wire(gateway.node_port) as stranger:
        client.send(chat("drip 10 0.01", stream=True))
        client.begin()
        stranger.send(STRANGERS[name])
        assert stranger.closed()
        assert client.rest().events[-1] == "[DONE]"


def test_half_a_frame_on_the_node_port(gateway: Gateway) -> None:
    sockets = gateway.edge.sockets
    for _ in range(20):
        with Wire(gateway.node_port) as stranger:
            stranger.send((1000).to_bytes(4, "big") + b"\x0a")
    until(lambda: gateway.edge.sockets <= sockets, "the edge has closed its end")
    assert ask(gateway, chat("hello")).status == 200


def test_wrong_node_token(gateway: Gateway, tmp_path: Path) -> None:
    """It is refused and told why, says so once, and does not give up."""
    (tmp_path / "token").write_text("not-the-token")
    stranger = gateway.another_node("stranger", tmp_path / "token")
    try:
        refusal = "refused a node: unknown_token"
        until(lambda: gateway.edge.log.count(refusal) >= 2, "the node has tried twice")
        assert stranger.status is None
        assert stranger.log.count("unknown_token") == 1
        assert ask(gateway, chat("hello")).status == 200
    finally:
        stranger.stop()
    assert "not-the-token" not in gateway.edge.log + stranger.log


@pytest.mark.slow
def test_second_node_with_the_same_token(gateway: Gateway) -> None:
    with Wire(gateway.port) as client:
        client.send(chat("drip 1000 0.05", stream=True))
        client.begin()
        second = gateway.another_node("second", gateway.token_path)
        try:
            until(lambda: "already_connected" in second.log, "the second one is refused")
        finally:
            second.stop()
        assert ask(gateway, chat("hello")).status == 200
        client.more(30)  # the first one's stream goes on


def test_request_ids(gateway: Gateway) -> None:
    """A client's own when it may be repeated."""
    for given, same in (("trace-1", True), ("a" * 65, False), ("<script>", False)):
        answer = ask(gateway, head("GET", "/v1/models", f"x-request-id: {given}"), "GET")
        assert (answer.headers["x-request-id"] == given) is same


def test_cut_answer_is_no_answer(gateway: Gateway) -> None:
    """A whole answer that breaks is a 502, one of a stream an error event: never a success."""
    answer = ask(gateway, chat("die 3"))
    assert (answer.status, answer.error["code"]) == (502, "upstream_error")
    answer = ask(gateway, chat("die 3", stream=True))
    assert answer.status == 200
    assert json.loads(answer.events[-1])["error"]["code"] == "upstream_error"
    assert "[DONE]" not in answer.events
    with Wire(gateway.port) as wire, pytest.raises((h11.RemoteProtocolError, ConnectionError)):
        wire.ask(chat("flood 5000000 badly"))  # more than the edge may hold back
