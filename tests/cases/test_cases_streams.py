"""Failure kinds of streams, seen in public gateways, through the whole chain."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from backend_in_memory import CHUNK, DONE, USAGE, chunk, ending, event
from gateway_in_memory import CHAT
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_chain import STREAM, Chain, chunks, failed, reasons, text

pytestmark = pytest.mark.usefixtures("logged")


def begin(chain: Chain, *pieces: bytes) -> None:
    """Let the backend answer with these pieces, and no end."""
    chain.backend.answer = lambda request: request.connection.stream(*pieces)


def test_sse_01_control_blocks_and_comments() -> None:
    """SSE-01: what is no data does not reach the client, whose SDK would break on it."""
    chain = Chain()
    first = CHUNK % ('{"role":"assistant","content":"hi"}', "null")
    chain.backend.streams(
        b": warming up the model\n\n",
        b":\n\n",
        b"retry: 4000\n\n",
        b"event: ping\n\n",
        b"id: 9\n" + event(first),
        b": still here\n\n",
        ending() + DONE,
    )
    answer = chain.ask(body=STREAM).answer
    assert answer.whole
    assert (text(answer).count("hi"), reasons(answer)) == (1, ["stop"])
    assert answer.body.count(b"data: [DONE]") == 1
    assert answer.body.endswith(DONE)
    for line in answer.body.decode().splitlines():
        assert line == "" or line.startswith(("data: {", "data: [DONE]", "id: 9"))
    chain.assert_idle()
    chain.close()


HALVES = event(CHUNK % (json.dumps({"content": "那🌍é"}, ensure_ascii=False), "null"))


@settings(max_examples=40)
@given(st.lists(st.integers(1, len(HALVES) - 1), max_size=6), st.sampled_from([0, 1, 3, 50]))
def test_utf_01_characters_cut_by_reads(cuts: list[int], read_size: int) -> None:
    """UTF-01: a character cut by any read of any socket, the link's included, is whole at the client."""
    chain = Chain()
    chain.net.read_size = read_size
    places = [0, *sorted(cuts), len(HALVES)]
    reads = [HALVES[start:stop] for start, stop in pairwise(places) if start != stop]
    chain.backend.streams(*reads, ending() + DONE)
    answer = chain.ask(body=STREAM).answer
    assert answer.whole
    assert text(answer) == "那🌍é"


def test_utf_01_bytes_that_are_really_invalid() -> None:
    """UTF-01: they pass as they are, and kill nothing."""
    chain = Chain()
    chain.backend.streams(HALVES.replace("é".encode(), b"\xff\xfe"), ending(), DONE)
    answer = chain.ask(body=STREAM).answer
    assert answer.whole
    assert b"\xff\xfe" in answer.body
    assert chain.ask(body=STREAM).answer.whole


def test_utf_01_a_requests_body() -> None:
    """UTF-01, the edge's request body"""
    chain = Chain()
    chain.net.read_size = 3
    chain.backend.streams(ending(), DONE)
    body = json.dumps({**STREAM, "messages": [{"role": "user", "content": "那🌍é"}]}, ensure_ascii=False).encode()
    assert chain.ask(body=body).answer.whole
    assert chain.backend.last.json["messages"][0]["content"] == "那🌍é"


# ---- ends


def broken(chain: Chain, how: str) -> None:
    if how == "node lost":
        chain.machine.end.cut()
    else:
        getattr(chain.backend.last.connection, how)()


ARGUMENTS = event(
    CHUNK % ('{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{\\"port\\":\\"Ob"}}]}', "null")
)


@pytest.mark.parametrize("how", ["close", "abort", "end", "node lost"])
@pytest.mark.parametrize("said", [chunk("half"), ARGUMENTS], ids=["text", "inside_tool_args"])
def test_se_01_a_stream_that_dies(how: str, said: bytes) -> None:
    """SE-01: an error event, no "stop", no [DONE], and the slot is free at once."""
    chain = Chain()
    begin(chain, said)
    client = chain.ask(body=STREAM)
    broken(chain, how)
    answer = chain.wait(client, 0.5)
    assert answer.status == 200
    assert failed(answer)["code"] in ("upstream_error", "node_lost")
    assert len(answer.events) == 2
    assert '"finish_reason":"' not in answer.body.decode()
    chain.assert_idle()


@pytest.mark.parametrize("how", ["close", "abort", "end", "node lost"])
@pytest.mark.parametrize("upstream", ["never", "always"], ids=["document", "put together"])
def test_se_01_an_answer_that_dies_without_streaming(how: str, upstream: str) -> None:
    """SE-01: 502, never 200 with part of a text."""
    chain = Chain(stream_upstream=upstream)
    if upstream == "always":
        begin(chain, chunk("half"))
    else:
        chain.backend.answer = lambda request: request.connection.raw(
            b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{"choices":[{"mess'
        )
        if how == "end":
            how = "close"
    client = chain.ask(body=CHAT)
    broken(chain, how)
    answer = chain.wait(client, 0.5)
    assert answer.status == 502
    assert answer.code in ("upstream_error", "node_lost")
    chain.assert_idle()


# ---- usage

NULL = event(CHUNK[:-1] % ('{"role":"assistant","content":"hi"}', "null") + ',"usage":null}')


def test_us_01_usage_that_was_not_asked_for() -> None:
    """US-01: the edge asks for itself; the client sees neither a chunk without choices nor a usage."""
    chain = Chain()
    chain.backend.streams(event({"choices": [], "prompt_filter_results": []}), NULL, ending(), USAGE + DONE)
    answer = chain.ask(body=STREAM).answer
    assert chain.backend.last.json["stream_options"] == {"include_usage": True}
    assert text(answer) == "hi"
    assert all(each["choices"] and each.get("usage") is None for each in chunks(answer))
    assert answer.events[-1] == "[DONE]"


def test_us_01_usage_that_was_asked_for() -> None:
    """US-01: exactly one chunk without choices, after the finish and before [DONE]."""
    chain = Chain()
    chain.backend.streams(NULL, ending(), USAGE + DONE)
    answer = chain.ask(body={**STREAM, "stream_options": {"include_usage": True}}).answer
    seen = chunks(answer)
    assert [each["choices"] == [] for each in seen] == [False, False, True]
    assert seen[-1]["usage"] == {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}
    assert answer.events[-1] == "[DONE]"


# ---- errors inside a 200

AFTER_TEXT = (
    chunk("par"),
    event({"id": "c1", "choices": [], "error": {"message": "worker limit reached", "code": 502}}),
    DONE,
)
ONLY_ERROR = (event({"error": {"message": "quota exceeded", "type": "insufficient_quota"}}), DONE)


def test_er_01_an_error_after_text() -> None:
    """ER-01 after_text: the client's SDK raises; nothing says that the answer was whole."""
    chain = Chain()
    begin(chain, *AFTER_TEXT)
    answer = chain.ask(body=STREAM).answer
    assert failed(answer)["message"] == "worker limit reached"
    assert text(answer) == "par"
    assert reasons(answer) == []
    chain.assert_idle()


@pytest.mark.parametrize("stream", [True, False])
def test_er_01_an_error_after_text_without_streaming(stream: bool) -> None:
    """ER-01 after_text, put together on the node: 502 with that message."""
    chain = Chain(stream_upstream="always")
    begin(chain, *AFTER_TEXT)
    answer = chain.ask(body={**CHAT, "stream": False}).answer
    assert (answer.status, answer.code) == (502, "upstream_error")
    assert answer.json["error"]["message"] == "worker limit reached"
    chain.assert_idle()


@pytest.mark.parametrize("upstream", ["never", "always"])
@pytest.mark.parametrize("stream", [True, False])
def test_er_01_nothing_but_an_error(stream: bool, upstream: str) -> None:
    """ER-01 only_error: nothing was sent yet, so it is a real status."""
    if not stream and upstream == "never":
        return
    chain = Chain(stream_upstream=upstream)
    begin(chain, *ONLY_ERROR)
    answer = chain.ask(body={**CHAT, "stream": stream}).answer
    assert answer.status == 429
    assert answer.code == "rate_limit_exceeded"
    assert answer.json["error"]["message"] == "quota exceeded"
    chain.assert_idle()


def test_er_01_an_error_that_is_null() -> None:
    """ER-01 null_error_is_fine"""
    chain = Chain()
    chain.backend.streams(
        event({"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": None}], "error": None}),
        ending(),
        DONE,
    )
    answer = chain.ask(body=STREAM).answer
    assert (text(answer), reasons(answer), answer.events[-1]) == ("x", ["stop"], "[DONE]")


# ---- failures before the first byte, and inside an event


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("what", "status"), [("400", 400), ("429", 429), ("refused", 502), ("node offline", 503), ("reset", 502)]
)
def test_er_03_refused_before_the_first_byte(stream: bool, what: str, status: int) -> None:
    """ER-03 refused_before_first: the matching status and OpenAI's error object, not 200 with nothing."""
    chain = Chain()
    if what.isdigit():
        chain.backend.responds(int(what), b'{"error":{"message":"no","type":"x"}}')
    elif what == "refused":
        chain.backend.port.stopListening()
    elif what == "reset":
        chain.backend.answer = lambda request: request.connection.abort()
    else:
        chain.machine.stop()
        chain.net.run(1)
    client = chain.ask(body={**CHAT, "stream": stream})
    answer = chain.wait(client)
    assert answer.status == status
    answer.code  # noqa: B018 - its shape is checked
    chain.assert_idle()


def test_er_03_half_an_event() -> None:
    """ER-03 half_event: the half never reaches the client; the error is an event of its own."""
    chain = Chain()
    begin(chain, chunk("hi"), b'data: {"choices":[{"index":0,"delta":{"content":"ab')
    client = chain.ask(body=STREAM)
    chain.backend.last.connection.abort()
    answer = chain.wait(client)
    assert text(answer) == "hi"
    assert failed(answer)
    assert b'"ab' not in answer.body


# ---- time


def told(chain: Chain, body: Any, seconds: float) -> tuple[float, Any]:
    """Return after how many seconds a client was told the end, and what."""
    client = chain.ask(body=body)
    began = chain.net.seconds()
    while not (client.answers and client.answer.whole):
        assert chain.net.seconds() - began < seconds
        chain.net.run(0.25)
    return chain.net.seconds() - began, client.answer


@pytest.mark.parametrize("stream", [True, False])
def test_to_01_silent_after_its_headers(stream: bool) -> None:
    """TO-01 silent_after_headers: 504, for a stream that did not begin too."""
    chain = Chain(gap_timeout_ms=5000)
    begin(chain)
    after, answer = told(chain, {**CHAT, "stream": stream}, 7)
    assert 4.5 <= after <= 6
    assert (answer.status, answer.code) == (504, "upstream_timeout")
    chain.assert_idle()


def test_to_01_silent_after_tokens() -> None:
    """TO-01 silent_after_tokens: an error event about 5 s later, and the slot is free."""
    chain = Chain(gap_timeout_ms=5000)
    begin(chain, chunk("a"), chunk("b"), chunk("c"))
    after, answer = told(chain, STREAM, 7)
    assert 4.5 <= after <= 6
    assert failed(answer)["code"] == "upstream_timeout"
    assert text(answer) == "abc"
    chain.assert_idle()


def test_to_01_slow_but_alive() -> None:
    """TO-01 slow_but_alive: a token every 2 s for a long time completes."""
    chain = Chain(gap_timeout_ms=5000, first_byte_timeout_ms=5000)
    begin(chain, chunk("a"))
    client = chain.ask(body=STREAM)
    for _ in range(300):
        chain.net.run(2)
        chain.backend.last.connection.say(chunk("a"))
    chain.backend.last.connection.say(ending(), DONE)
    chain.backend.last.connection.end()
    answer = chain.wait(client)
    assert answer.whole
    assert text(answer) == "a" * 301
    chain.assert_idle()


def test_to_01_a_connection_that_is_never_answered() -> None:
    """TO-01 blackhole: after the connect time."""
    chain = Chain(connect_timeout_ms=2000)
    chain.net.silent.add(8000)
    after, answer = told(chain, STREAM, 4)
    assert 1.5 <= after <= 2.6
    assert answer.status in (502, 504)
    chain.assert_idle()


def test_to_01_comments_only() -> None:
    """TO-01 comments_only: the total, where one is set, ends it."""
    chain = Chain(gap_timeout_ms=5000, request_timeout_ms=20_000)
    begin(chain, b": ping\n\n")
    client = chain.ask(body=STREAM)
    for _ in range(11):
        if chain.backend.open:
            chain.backend.last.connection.say(b": ping\n\n")
        chain.net.run(2)
    assert (client.answer.status, client.answer.code) == (504, "upstream_timeout")
    chain.assert_idle()
