"""What a backend's error means, whatever its shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.errors import Failure
from iop.node.adapters.errors import failure_in_stream, failure_of, retry_after_ms


def of(status: int, body: Any = b"", **headers: str) -> Failure:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return failure_of(status, {n.replace("_", "-").encode(): v.encode() for n, v in headers.items()}, raw)


@pytest.mark.parametrize(
    ("status", "body", "answered", "message"),
    [
        (
            400,
            b'{"object":"error","message":"prompt too short","type":"BadRequestError","param":null,"code":400}',
            400,
            "prompt too short",
        ),
        (422, b'{"detail":[{"loc":["body","n"],"msg":"must be >= 1"}]}', 422, "n: must be >= 1"),
        (404, b'{"error":"model \'q\' not found"}', 404, "model 'q' not found"),
        (502, b"<html><h1>Bad gateway</h1></html>", 502, "what stands behind the backend failed"),
        (503, b"", 503, "the backend is not available"),
        (501, b"", 501, "the backend does not do this"),
        (500, b"Traceback: secret path /srv/x", 502, "the backend failed"),
        (500, b'{"error":{"message":"Traceback (most recent call last):\\n /srv/x"}}', 502, "the backend failed"),
        (400, b'{"error":{"message":"<html>"}}', 400, "the backend refused the request with status 400"),
        (418, b"[]", 418, "the backend refused the request with status 418"),
        (400, b'{"detail":"nope"}', 400, "nope"),
        (400, b'{"error":null,"message":"x"}', 400, "the backend refused the request with status 400"),
        (400, b'{"error":{"message":null}}', 400, "the backend refused the request with status 400"),
        (400, b"[" * 100_000, 400, "the backend refused the request with status 400"),
        (529, b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', 502, "Overloaded"),
    ],
)
def test_every_shape_becomes_one(status: int, body: bytes, answered: int, message: str) -> None:
    """EM-01: a message, a type, a code that is no number, and neither HTML nor a traceback."""
    failure = failure_of(status, {}, body)
    assert (failure.http_status, failure.message) == (answered, message)
    assert failure.type
    assert not failure.code.isdigit()
    assert failure.param is None or isinstance(failure.param, str)


def test_code_type_and_param_are_kept_when_they_are_words() -> None:
    """EM-01"""
    body = {"error": {"message": "m", "type": "my_error", "code": "my_code", "param": "tools"}}
    failure = of(400, body)
    assert (failure.code, failure.type, failure.param) == ("my_code", "my_error", "tools")
    body = {"error": {"message": "m", "type": "no\r\nword", "code": {"a": 1}, "param": 7}}
    failure = of(400, body)
    assert (failure.code, failure.type, failure.param) == ("", "invalid_request_error", None)


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
        "the request exceeds the available context size. try increasing the context size",
        "prompt is too long: 250000 tokens > 200000 maximum",
        "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
        "Please reduce the length of the messages or completion.",
    ],
)
@pytest.mark.parametrize("status", [400, 413, 422, 500])
def test_context_overflow_of_any_backend(status: int, message: str) -> None:
    failure = of(status, {"error": {"message": message}})
    assert (failure.code, failure.http_status) == ("context_length_exceeded", 400)
    assert not failure.retryable


def test_context_overflow_by_its_type_or_code() -> None:
    for error in ({"type": "exceed_context_size_error", "n_ctx": 4096}, {"code": "context_length_exceeded"}):
        failure = of(400, {"error": error})
        assert (failure.code, failure.http_status) == ("context_length_exceeded", 400)
        assert failure.message


def test_too_many_requests_stay_that() -> None:
    """EM-02: 429 stays 429 with its Retry-After, 503 stays 503."""
    failure = of(429, {"error": {"message": "slow down", "type": "rate_limit_error"}}, retry_after="7")
    assert (failure.http_status, failure.retry_after_ms, failure.retryable) == (429, 7000, True)
    assert (failure.message, failure.type, failure.code) == ("slow down", "rate_limit_error", "rate_limited")
    failure = of(503, b"", retry_after="3")
    assert (failure.http_status, failure.retry_after_ms, failure.retryable) == (503, 3000, True)
    assert of(504).http_status == 504


def test_what_a_backend_says_of_credentials_is_not_repeated() -> None:
    for status in (401, 403):
        failure = of(status, {"error": {"message": "Incorrect API key provided: sk-secret", "code": "invalid_api_key"}})
        assert failure.http_status == status
        assert "sk-secret" not in failure.message


def test_a_redirect_is_not_followed() -> None:
    failure = of(302, b"", location="http://elsewhere/")
    assert (failure.code, failure.http_status) == ("upstream_error", 502)
    assert "http" not in failure.message


@pytest.mark.parametrize(
    "address",
    [
        "http://10.0.0.7:8000/v1/chat",
        "https://u:p@backend.internal/?key=K",
        "10.0.0.7:8000",
        "10.0.0.7",
        "[::1]:8000",
        "backend.internal:8000",
        "localhost:11434",
        "::1",
        "fe80::1",
        "2001:db8::7",
        "2001:db8:0:0:0:0:0:7",
        "backend.internal",
    ],
)
def test_a_message_never_shows_an_address(address: str) -> None:
    message = of(500, {"error": {"message": f"dial {address} failed"}}).message
    assert message == "dial [address] failed"


@pytest.mark.parametrize("name", ["backend.internal", "ollama", "gpu_7"])
@pytest.mark.parametrize("said", ["dial tcp: lookup {}: no such host", "lookup {} on {}: no such host"])
def test_a_name_that_is_looked_up_is_an_address(name: str, said: str) -> None:
    message = of(502, {"error": {"message": said.format(name, "127.0.0.11:53")}}).message
    assert message == said.format("[address]", "[address]")


@pytest.mark.parametrize(
    "message",
    ["it failed at 12:30:05", "from 09:15 to 10:20:30", "lookup failed: no such model", "a tool: std::vector"],
)
def test_a_time_of_day_and_a_word_stay(message: str) -> None:
    assert of(400, {"error": {"message": message}}).message == message


def test_what_only_looks_like_an_address_stays() -> None:
    message = "messages[12].content: [dead] at 12:5 is 3.5 of 1.2.3; see model:latest"
    assert of(400, {"error": {"message": message}}).message == message


def test_a_message_is_never_endless() -> None:
    for letters in ("x", "x.", "1.", "a-", "[:", "h:"):
        assert len(of(400, {"error": {"message": letters * 200_000}}).message) <= 2000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("7", 7000),
        (" 7 ", 7000),
        ("0", 0),
        ("-1", 0),
        ("soon", 0),
        ("", 0),
        ("99999999999999999999", 999999000),
        ("Wed, 21 Oct 2015 07:28:10 GMT", 10_000),
        ("Wed, 21 Oct 2015 07:27:00 GMT", 0),
        ("Wed, 99 Oct 2015", 0),
    ],
)
def test_retry_after(value: str, expected: int) -> None:
    """EM-02"""
    headers = {b"retry-after": value.encode(), b"date": b"Wed, 21 Oct 2015 07:28:00 GMT"}
    assert retry_after_ms(headers) == expected


def test_retry_after_in_milliseconds_goes_first() -> None:
    assert retry_after_ms({b"retry-after": b"7", b"retry-after-ms": b"1500"}) == 1500


@given(st.text(st.characters(max_codepoint=255)), st.text(st.characters(max_codepoint=255)))
def test_no_retry_after_is_worse_than_none(value: str, date: str) -> None:
    headers = {b"retry-after": value.encode("latin-1"), b"date": date.encode("latin-1")}
    assert retry_after_ms(headers) >= 0


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "message", "type", "code", "param", "detail", "loc", "msg"]), inner)
    ),
    max_leaves=12,
)


@given(st.integers(300, 599), JSON_VALUES | st.binary())
def test_no_body_is_worse_than_an_error(status: int, body: Any) -> None:
    failure = of(status, body)
    assert failure.message
    assert 400 <= failure.http_status < 600
    assert isinstance(failure.code, str)
    assert isinstance(failure.type, str)


@given(JSON_VALUES)
def test_no_error_in_a_stream_is_worse_than_an_error(error: Any) -> None:
    failure = failure_in_stream(error)
    assert failure.message
    assert failure.http_status in (400, 429, 502)


def test_errors_inside_a_stream() -> None:
    """ER-01: a quota is 429, anything else 502."""
    failure = failure_in_stream({"message": "worker limit reached", "code": 502})
    assert (failure.http_status, failure.code, failure.message) == (502, "upstream_error", "worker limit reached")
    failure = failure_in_stream({"message": "quota exceeded", "type": "insufficient_quota"})
    assert (failure.http_status, failure.code, failure.type) == (429, "rate_limited", "insufficient_quota")
    assert failure_in_stream("out of memory").message == "out of memory"


@pytest.mark.parametrize("param", ["http://10.1.2.3:8000/v1", "key sk-verysecretkey", "a" * 201, "", ".", "a\nb"])
def test_a_param_is_a_members_path_or_nothing(param: str) -> None:
    body = json.dumps({"error": {"message": "no", "param": param}}).encode()
    assert failure_of(400, {}, body).param is None
    body = json.dumps({"error": {"message": "no", "param": "tools[0].function.name"}}).encode()
    assert failure_of(400, {}, body).param == "tools[0].function.name"


def test_a_failure_is_never_called_complete() -> None:
    assert failure_of(400, {}, b'{"error": {"message": "no", "code": "complete"}}').code == ""
