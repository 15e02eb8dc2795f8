"""OpenAI's shapes, and what of a chat request the edge changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gateway_in_memory import CHAT, ODD, TRACE

from iop.document import compact
from iop.edge.surfaces.openai import codec
from iop.edge.surfaces.openai.apis.chat import ChatRequest
from iop.edge.surfaces.openai.apis.errors import error_object
from iop.errors import KINDS, Failure


def parse(**changes: Any) -> ChatRequest:
    return ChatRequest.parse(json.dumps({**CHAT, **changes}).encode())


def refused(body: Any) -> Failure:
    with pytest.raises(Failure) as raised:
        ChatRequest.parse(body if isinstance(body, bytes) else json.dumps(body).encode())
    return raised.value


# ---- errors


@pytest.mark.parametrize("code", sorted(KINDS))
def test_every_code_has_openais_shape(code: str) -> None:
    failure = Failure(code, "why")
    error = error_object(failure)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"]
    assert error["code"]
    headers = dict(codec.error_headers(failure))
    assert headers[b"content-type"] == b"application/json"
    assert (b"www-authenticate" in headers) is (failure.http_status == 401)


def test_codes_of_the_inside_do_not_leave() -> None:
    inside = ("upstream_connect", "adapter_unavailable", "duplicate_run", "protocol_error", "cancelled")
    for code in inside:
        assert error_object(Failure(code, "x"))["error"]["code"] == "upstream_error"
    assert error_object(Failure("rate_limited", "x"))["error"]["code"] == "rate_limit_exceeded"


def test_no_code_is_null() -> None:
    """EM-01: a code is a string or null, never an empty one."""
    assert error_object(Failure("", "x"))["error"]["code"] is None


@pytest.mark.parametrize(("milliseconds", "seconds"), [(0, None), (1, b"1"), (1000, b"1"), (1001, b"2"), (7000, b"7")])
def test_retry_after_is_in_whole_seconds(milliseconds: int, seconds: bytes | None) -> None:
    """EM-02"""
    headers = dict(codec.error_headers(Failure("queue_full", "x", retry_after_ms=milliseconds)))
    assert headers.get(b"retry-after") == seconds


def test_a_lone_surrogate_breaks_no_error() -> None:
    assert json.loads(compact(error_object(Failure("x", "a\ud83c"))))["error"]["message"] == "a\ud83c"


# ---- requests


def test_what_is_known_of_a_request() -> None:
    request = parse(stream=True, stream_options={"include_usage": True})
    assert (request.model, request.stream, request.include_usage) == ("m", True, True)
    request = parse()
    assert (request.stream, request.include_usage) == (False, False)
    assert not parse(stream_options={"include_usage": True}).include_usage
    assert not parse(stream=True, stream_options={"include_usage": 1}).include_usage
    assert not parse(stream=None, stream_options=None).stream


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"model": 7}, "model"),
        ({"model": ""}, "model"),
        ({"model": None}, "model"),
        ({"model": ["m"]}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": {}}, "messages"),
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"stream_options": []}, "stream_options"),
        ({"stream_options": "x"}, "stream_options"),
    ],
)
def test_a_wrong_shape_names_the_member(changes: dict[str, Any], param: str) -> None:
    failure = refused({**CHAT, **changes})
    assert (failure.code, failure.http_status, failure.param) == ("invalid_value", 400, param)
    assert f"`{param}` must be" in failure.message


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_a_missing_member_is_named(missing: str) -> None:
    failure = refused({name: value for name, value in CHAT.items() if name != missing})
    assert (failure.code, failure.param) == ("invalid_value", missing)
    assert "is needed" in failure.message


# ---- what a backend is sent


def test_nothing_to_change_is_the_same_bytes() -> None:
    request = parse(temperature=0)
    assert request.native("m", {}) is request.body
    request = parse(stream=True, stream_options={"include_usage": True})
    assert request.native("m", {}) is request.body


def test_the_target_takes_the_place_of_the_model() -> None:
    body = b'{"messages": [{"model": "m"}], "model" : "m", "seed": 1e400}'
    assert ChatRequest.parse(body).native('Qwen/"Q"', {}) == body.replace(b': "m",', b': "Qwen/\\"Q\\"",')


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (None, {"include_usage": True}),
        ({}, {"include_usage": True}),
        ({"include_usage": False}, {"include_usage": True}),
        ({"include_usage": None, "x": 0}, {"include_usage": True, "x": 0}),
    ],
)
def test_usage_is_asked_for_at_the_end_of_a_stream(options: Any, expected: Any) -> None:
    """US-01: for the ledger; what else stands there stays."""
    request = parse(stream=True, stream_options=options)
    sent = json.loads(request.native("m", {}))
    assert sent == {**CHAT, "stream": True, "stream_options": expected}


def test_zero_false_and_empty_values_and_unknown_keys_stay() -> None:
    """PA-01: the backend's JSON is the client's, except for documented changes."""
    assert json.loads(parse(**ODD).native("target", {})) == {**CHAT, **ODD, "model": "target"}
    sent = json.loads(parse(**ODD, stream=True).native("target", {}))
    assert sent == {**CHAT, **ODD, "model": "target", "stream": True, "stream_options": {"include_usage": True}}


def test_a_byte_order_mark_does_not_reach_a_backend() -> None:
    body = b"\xef\xbb\xbf" + json.dumps(CHAT).encode()
    for target in ("m", "other"):
        assert json.loads(ChatRequest.parse(body).native(target, {}))["model"] == target
        assert not ChatRequest.parse(body).native(target, {}).startswith(b"\xef")


def test_text_of_any_kind_stays() -> None:
    """UTF-01, the edge's request body"""
    for text in ("那🌍é", "\ud83c", "a\u2028b", "\x7f"):
        for ascii_only in (True, False):
            raw = json.dumps({**CHAT, "x": text}, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
            try:
                request = ChatRequest.parse(raw)
            except Failure:
                assert text == "\ud83c"
                assert not ascii_only
            else:
                assert json.loads(request.native("t", {}))["x"] == text


# ---- headers


def test_of_a_clients_headers_only_a_few_go_on() -> None:
    """AU-02: a list of what may pass, so that no credential can slip through."""
    sent = {
        b"authorization": b"Bearer edge-secret",
        b"x-api-key": b"edge-secret",
        b"cookie": b"s=1",
        b"x-forwarded-for": b"10.0.0.9",
        b"x-iop-provider-authorization": b"prov-1",
        b"host": b"h",
        b"connection": b"x-hop",
        b"accept-encoding": b"br",
        b"traceparent": TRACE.encode(),
        b"idempotency-key": b"k",
        b"openai-beta": b"x",
    }
    kept = dict(codec.forwarded(sent, "req-1"))
    assert kept == {"x-request-id": "req-1", "traceparent": TRACE, "idempotency-key": "k", "openai-beta": "x"}
    assert codec.forwarded({}, "req-1") == (("x-request-id", "req-1"),)


def test_a_backends_header_that_would_break_the_head_is_left_out() -> None:
    """HW-05"""
    headers = (("a", "1"), ("b", "x\r\nSet-Cookie: s"), ("c\n", "1"), ("d", "\0"), ("e", "é"), ("f", "那"))
    assert codec.response_headers(headers) == [(b"a", b"1"), (b"e", b"\xe9"), (b"f", b"?")]


@pytest.mark.parametrize(
    ("offered", "kept"),
    [
        (b"abc-DEF_1.2", True),
        (b"a" * 64, True),
        (b"a" * 65, False),
        (b"", False),
        (b"a b", False),
        (b"a\n", False),
        (b"\xff", False),
        (None, False),
    ],
)
def test_a_clients_request_id(offered: bytes | None, kept: bool) -> None:
    assert codec.request_id(offered) == (offered if kept else None)


def test_a_model_shows_its_window_when_it_has_one() -> None:
    assert codec.model_object("m", 7, 4096) == {
        "id": "m",
        "object": "model",
        "created": 7,
        "owned_by": "iop",
        "max_model_len": 4096,
    }
    assert "max_model_len" not in codec.model_object("m", 7, None)


@pytest.mark.parametrize(
    "parent",
    [
        b"",
        b"00-1",
        TRACE.upper().encode(),
        TRACE.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32).encode(),
        TRACE.replace("00f067aa0ba902b7", "0" * 16).encode(),
        b"ff" + TRACE[2:].encode(),
        TRACE.encode() + b"x",
        TRACE.encode() + b"-more",
        TRACE.encode() + b"-\xff",
        b"01" + TRACE[2:].encode() + b"-\xff",
        b"01" + TRACE[2:].encode() + b"- ",
    ],
)
def test_a_trace_that_is_none_is_dropped_with_its_state(parent: bytes) -> None:
    assert codec.trace_of({b"traceparent": parent, b"tracestate": b"a=1"}) == {}


def test_a_trace_goes_on_as_it_came() -> None:
    sent = {b"traceparent": TRACE.encode(), b"tracestate": b"a=1"}
    assert codec.trace_of(sent) == {"traceparent": TRACE, "tracestate": "a=1"}
    assert codec.trace_of({**sent, b"tracestate": b"a" * 513}) == {"traceparent": TRACE}
    newer = "01" + TRACE[2:] + "-more"
    assert codec.trace_of({b"traceparent": newer.encode()}) == {"traceparent": newer}
