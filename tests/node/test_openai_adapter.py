"""Runs over a backend's HTTP API, backend and adapter joined in memory."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from backend_in_memory import DONE, USAGE, chunk, ending, event
from doubles import RecordingSink
from openai_world import ASKED, World
from twisted.internet.defer import CancelledError

from iop import model as m
from iop.errors import Failure
from iop.http.client import Timers
from iop.node.adapters.attempt import MAX_ERROR
from iop.node.adapters.openai_compat.adapter import model_ids
from iop.node.adapters.openai_compat.answer import MAX_UNFRAMED

pytestmark = pytest.mark.usefixtures("logged")

ANSWER = b'{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":7,"completion_tokens":1}}'


def test_a_document_goes_through_as_bytes() -> None:
    world = World()
    world.backend.responds(200, ANSWER)
    sink = world.ask()
    assert sink.events == [
        m.Whole(m.HttpResponseHead(200, (("content-type", "application/json"),)), ANSWER, "", m.Usage(7, 1))
    ]
    assert world.backend.last.body == ASKED
    assert world.backend.last.target == "/v1/chat/completions"
    world.end()


def test_a_long_document_begins_before_its_end() -> None:
    world = World()
    world.backend.answer = lambda request: request.connection.stream(b"[1,", kind="application/json")
    sink = world.ask()
    assert sink.events == []
    world.backend.last.connection.say(b"2,")
    world.net.run()
    assert (type(sink.events[0]), sink.body) == (m.Start, b"[1,")
    world.backend.last.connection.say(b"3]")
    world.backend.last.connection.end()
    world.net.run()
    assert sink.body == b"[1,2,3]"
    assert isinstance(sink.end, m.Complete)
    world.end()


def test_a_stream_goes_through_as_it_comes() -> None:
    world = World()
    world.backend.answer = lambda request: request.connection.stream(chunk("hi"))
    sink = world.ask()
    assert sink.body == chunk("hi")
    world.backend.last.connection.say(ending(), USAGE, DONE)
    world.backend.last.connection.end()
    world.net.run()
    assert sink.body == chunk("hi") + ending() + USAGE + DONE
    assert sink.end == m.Complete("stop", m.Usage(7, 1))
    world.end()


def test_usage_is_stripped_when_the_edge_says_so() -> None:
    """US-01"""
    world = World()
    world.backend.streams(chunk("hi"), ending(), USAGE, DONE)
    sink = world.ask(metadata={"openai_strip_usage": "true"})
    assert sink.body == chunk("hi") + ending() + DONE
    assert sink.end == m.Complete("stop", m.Usage(7, 1))


# ---- headers


def test_what_reaches_the_backend() -> None:
    """HW-05 and AU-02: the edge's headers, under the configured ones, under those of this run alone."""
    world = World(headers={"Authorization": "Bearer of-the-config", "X-Team": "lab"})
    world.backend.responds(200, ANSWER)
    world.ask()
    headers = world.backend.last.headers
    assert headers["authorization"] == ["Bearer of-the-config"]
    assert headers["x-team"] == ["lab"]
    assert headers["traceparent"] == ["00-1"]
    assert headers["host"] == ["127.0.0.1:8000"]
    assert headers["accept-encoding"] == ["identity"]
    assert headers["content-type"] == ["application/json"]
    assert headers["content-length"] == [str(len(ASKED))]
    assert set(headers) == {
        "host", "authorization", "x-team", "traceparent", "accept-encoding", "content-type", "content-length"
    }  # fmt: skip
    world.ask(secret_headers=(("Authorization", "Bearer of-the-run"),))
    assert world.backend.last.headers["authorization"] == ["Bearer of-the-run"]
    world.ask()
    assert world.backend.last.headers["authorization"] == ["Bearer of-the-config"]


def test_what_of_a_backends_headers_goes_on() -> None:
    """HW-05: nothing that belongs to one hop, that frames, or that tells who the backend is."""
    world = World()
    world.backend.answer = lambda request: request.connection.respond(
        200,
        ANSWER,
        "application/json; charset=utf-8",
        Connection="X-Up, close",
        X_Up="1",
        Keep_Alive="timeout=5",
        Server="uvicorn",
        Date="Wed, 21 Oct 2015 07:28:00 GMT",
        Set_Cookie="s=1",
        X_Request_Id="theirs",
        Via="1.1 p",
        Upgrade="h2c",
        Proxy_Authenticate="Basic",
        Trailer="X",
        Access_Control_Allow_Origin="*",
        Location="http://10.0.0.1/",
        X_RateLimit_Remaining="9",
        OpenAI_Processing_Ms="12",
    )
    sink = world.ask()
    assert sink.http is not None
    assert sorted(sink.http.headers) == [
        ("content-type", "application/json; charset=utf-8"),
        ("openai-processing-ms", "12"),
        ("x-ratelimit-remaining", "9"),
    ]


def test_a_compressed_answer_is_decoded_and_no_longer_labelled() -> None:
    """HW-05"""
    world = World()
    world.backend.responds(200, gzip.compress(ANSWER), Content_Encoding="gzip")
    sink = world.ask()
    assert sink.body == ANSWER
    assert sink.http is not None
    assert "content-encoding" not in dict(sink.http.headers)


def test_a_host_header_cannot_be_configured() -> None:
    with pytest.raises(Failure, match="host"):
        World(headers={"Host": "elsewhere"})


@pytest.mark.parametrize("url", ["ftp://b/", "http://"])
def test_settings_that_cannot_work(url: str) -> None:
    with pytest.raises(Failure, match="base_url") as raised:
        World(base_url=url)
    assert raised.value.code == "invalid_value"


def test_who_a_base_url_names_is_said_to_the_backend_and_the_configured_header_goes_first() -> None:
    world = World(base_url="http://user:p%40ss@127.0.0.1:8000/v1")
    world.backend.responds(200, ANSWER)
    world.ask()
    assert world.backend.last.headers["authorization"] == ["Basic dXNlcjpwQHNz"]
    world = World(base_url="http://user:pass@127.0.0.1:8000/v1", headers={"authorization": "Bearer mine"})
    world.backend.responds(200, ANSWER)
    world.ask()
    assert world.backend.last.headers["authorization"] == ["Bearer mine"]


def test_timers_are_the_settings_in_seconds_and_null_is_the_default() -> None:
    assert World().adapter._backend.timers == Timers(connect=5.0, first_byte=600.0, gap=300.0, total=0.0)
    nulls = dict.fromkeys(("connect_timeout_ms", "first_byte_timeout_ms", "gap_timeout_ms", "request_timeout_ms"))
    assert World(**nulls).adapter._backend.timers == World().adapter._backend.timers
    set_ = World(connect_timeout_ms=1, first_byte_timeout_ms=0, gap_timeout_ms=2500, request_timeout_ms=60_000)
    assert set_.adapter._backend.timers == Timers(connect=0.001, first_byte=0.0, gap=2.5, total=60.0)


def test_no_more_connections_than_the_settings_say() -> None:
    world = World(max_connections=1)
    first, second = world.ask(), world.ask()
    assert len(world.backend.requests) == 1
    world.backend.last.connection.respond(200, ANSWER)
    world.net.run()
    assert isinstance(first.end, m.Whole)
    assert len(world.backend.requests) == 2
    world.backend.last.connection.respond(200, ANSWER)
    world.net.run()
    assert isinstance(second.end, m.Whole)
    assert len(world.backend.connections) == 1


def test_trust_that_cannot_be_read_fails_the_run_and_shows_no_path() -> None:
    sink = World(base_url="https://127.0.0.1:8000", ca_file="/secret/place/ca.pem").ask()
    assert (sink.failure.code, sink.failure.http_status) == ("upstream_connect", 502)
    assert "/secret" not in sink.failure.message


# ---- failures


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_never_a_start(stream: bool) -> None:
    """ER-03 refused_before_first"""
    world = World()
    world.backend.responds(429, b'{"error":{"message":"slow down"}}', Retry_After="7")
    sink = world.ask(b'{"stream": %s}' % str(stream).lower().encode())
    assert [type(event) for event in sink.events] == [m.Error]
    assert (sink.failure.http_status, sink.failure.retry_after_ms) == (429, 7000)
    world.end()


def test_a_refusal_without_end_is_cut() -> None:
    world = World()
    world.backend.answer = lambda request: request.connection.raw(b"HTTP/1.1 500 x\r\n\r\n" + b"x" * (MAX_ERROR + 1))
    sink = world.ask()
    assert sink.failure.code == "upstream_error"
    assert world.backend.open == 0
    world.end()


def test_a_refusal_that_breaks_is_still_the_refusal() -> None:
    world = World()

    def answer(request: Any) -> None:
        request.connection.raw(b"HTTP/1.1 404 x\r\ncontent-length: 99\r\n\r\nnot all")
        world.net.callLater(0.1, request.connection.abort)

    world.backend.answer = answer
    sink = world.ask()
    world.net.run(1)
    assert sink.failure.http_status == 404


def test_nobody_there() -> None:
    """EM-02: refused is 502 and may be tried elsewhere."""
    world = World()
    world.backend.port.stopListening()
    sink = world.ask()
    world.net.run(1)
    assert (sink.failure.code, sink.failure.http_status, sink.failure.retryable) == ("upstream_connect", 502, True)
    world.end()


def test_a_connection_that_is_never_made() -> None:
    """TO-01 blackhole: after the connect time, not later."""
    world = World(connect_timeout_ms=2000)
    world.net.silent.add(8000)
    sink = world.ask()
    world.net.run(1.9)
    assert sink.events == []
    world.net.run(0.2)
    assert sink.failure.code == "upstream_connect"
    assert sink.failure.http_status in (502, 504)
    world.end()


def test_accepted_but_never_answered() -> None:
    """EM-02: no answer is 504."""
    world = World(first_byte_timeout_ms=3000)
    sink = world.ask()
    world.net.run(3.5)
    assert (sink.failure.code, sink.failure.http_status) == ("upstream_timeout", 504)
    assert world.backend.open == 0
    world.end()


def test_silent_after_its_headers() -> None:
    """TO-01 silent_after_headers"""
    world = World(gap_timeout_ms=5000)
    world.backend.answer = lambda request: request.connection.stream()
    sink = world.ask()
    world.net.run(5.5)
    assert [type(event) for event in sink.events] == [m.Error]
    assert sink.failure.http_status == 504


def test_silent_after_some_pieces() -> None:
    """TO-01 silent_after_tokens"""
    world = World(gap_timeout_ms=5000)
    world.backend.answer = lambda request: request.connection.stream(chunk("a"), chunk("b"))
    sink = world.ask()
    world.net.run(5.5)
    assert sink.body == chunk("a") + chunk("b")
    assert (sink.failure.code, sink.failure.http_status) == ("upstream_timeout", 504)
    assert world.backend.open == 0
    world.end()


def test_slow_but_alive() -> None:
    """TO-01 slow_but_alive: no total cuts a healthy stream by default."""
    world = World(gap_timeout_ms=5000, first_byte_timeout_ms=5000)
    world.backend.answer = lambda request: request.connection.stream(chunk("a"))
    sink = world.ask()
    for _ in range(500):
        world.net.run(4)
        world.backend.last.connection.say(chunk("a"))
    world.backend.last.connection.say(ending(), DONE)
    world.backend.last.connection.end()
    world.net.run()
    assert isinstance(sink.end, m.Complete)
    assert sink.body.count(b"data:") == 503


def test_comments_only() -> None:
    """TO-01 comments_only: a total, where one is set, ends it; nothing of it reaches the client."""
    world = World(gap_timeout_ms=5000, request_timeout_ms=20_000)
    world.backend.answer = lambda request: request.connection.stream(b": ping\n\n")
    sink = world.ask()
    for _ in range(12):
        if sink.end is None:
            world.backend.last.connection.say(b": ping\n\n")
        world.net.run(2)
    assert [type(event) for event in sink.events] == [m.Error]
    assert sink.failure.http_status == 504
    world.end()


@pytest.mark.parametrize("how", ["close", "abort"])
@pytest.mark.parametrize("said", [[chunk("hi")], [chunk("hi"), b'data: {"choices":[{"index":0,"delta":{"con']])
def test_a_break_in_the_middle(how: str, said: list[bytes]) -> None:
    """SE-01 fin_no_last_chunk and inside_tool_args, ER-03 half_event"""
    world = World()
    world.backend.answer = lambda request: request.connection.stream(*said)
    sink = world.ask()
    getattr(world.backend.last.connection, how)()
    world.net.run()
    assert sink.body == chunk("hi")
    assert (sink.failure.code, sink.failure.http_status) == ("upstream_error", 502)
    world.end()


def test_a_clean_end_without_a_marker() -> None:
    """SE-01 clean_end_no_marker"""
    world = World()
    world.backend.streams(chunk("hi"))
    sink = world.ask()
    assert sink.body == chunk("hi")
    assert sink.failure.code == "upstream_error"


# ---- answers that end with their connection


def unframed(world: World, kind: str, *reads: bytes) -> RecordingSink:
    """Ask a backend that says these reads and closes; HTTP itself does not say whether that is all."""

    def answer(request: Any) -> None:
        request.connection.raw(b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n\r\n" % kind.encode())
        for number, data in enumerate(reads):
            world.net.callLater(0.1 * number, request.connection.raw, data)
        world.net.callLater(0.1 * len(reads), request.connection.close)

    world.backend.answer = answer
    sink = world.ask()
    world.net.run(1)
    return sink


@pytest.mark.parametrize("reads", [[ANSWER], [ANSWER[:20], ANSWER[20:]], [ANSWER, b"\n"], [b"[1,", b"2]"]])
def test_a_document_that_ends_with_its_connection(reads: list[bytes]) -> None:
    world = World()
    sink = unframed(world, "application/json", *reads)
    assert sink.body == b"".join(reads)
    assert isinstance(sink.end, m.Whole | m.Complete)
    world.end()


@pytest.mark.parametrize(
    "reads",
    [
        [b"{"],
        [ANSWER[:-1]],
        [ANSWER[:30]],
        [ANSWER[: ANSWER.index(b"}") + 1]],
        [ANSWER[:20], ANSWER[20 : ANSWER.index(b"}") + 1]],
        [ANSWER[:20], ANSWER[20:40]],
        [b"[1,", b"2"],
    ],
)
def test_a_document_that_is_cut_with_its_connection(reads: list[bytes]) -> None:
    """Half an answer never looks whole, also where the cut is behind a brace."""
    world = World()
    sink = unframed(world, "application/json", *reads)
    assert (sink.failure.code, sink.failure.http_status) == ("upstream_error", 502)
    assert not sink.started
    world.end()


def test_a_long_document_that_ends_with_its_connection_does_not_wait_for_its_end() -> None:
    world = World()
    long = b'{"choices":["' + b"x" * MAX_UNFRAMED
    sink = unframed(world, "application/json", long, b'"]}')
    assert isinstance(sink.end, m.Complete)
    assert sink.body == long + b'"]}'
    sink = unframed(world, "application/json", long, b'"]')
    assert sink.failure.code == "upstream_error"
    world.end()


def finished(index: int) -> bytes:
    return event({"choices": [{"index": index, "delta": {}, "finish_reason": "stop"}]})


def test_a_stream_of_two_choices_that_is_cut_after_one() -> None:
    """The first choice has finished; only [DONE] says that the second has too."""
    world = World()
    cut = unframed(world, "text/event-stream", chunk("hi"), finished(0))
    assert cut.failure.code == "upstream_error"
    assert DONE not in cut.body
    whole = unframed(world, "text/event-stream", chunk("hi"), finished(0), finished(1), DONE)
    assert isinstance(whole.end, m.Complete)
    assert whole.body.endswith(DONE)
    world.end()


def test_a_break_after_done_is_an_end() -> None:
    world = World()

    def answer(request: Any) -> None:
        request.connection.stream(chunk("hi"), ending(), DONE)
        world.net.callLater(0.1, request.connection.abort)

    world.backend.answer = answer
    sink = world.ask()
    world.net.run(1)
    assert isinstance(sink.end, m.Complete)
    assert sink.body.endswith(DONE)


def test_an_error_inside_a_stream_before_anything_was_said() -> None:
    """ER-01 only_error: a real failure with its status, and the backend is left."""
    world = World()
    world.backend.answer = lambda request: request.connection.stream(
        b'data: {"error":{"message":"quota exceeded","type":"insufficient_quota"}}\n\n', DONE
    )
    sink = world.ask()
    assert [type(event) for event in sink.events] == [m.Error]
    assert sink.failure.http_status == 429
    assert world.backend.open == 0


def test_an_error_document_under_status_200() -> None:
    world = World()
    world.backend.responds(200, b'{"error":{"message":"out of slots"}}')
    sink = world.ask()
    assert [type(event) for event in sink.events] == [m.Error]
    assert sink.failure.message == "out of slots"


@pytest.mark.parametrize(
    "garbage",
    [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 abc\r\n\r\n", b"\0" * 99, b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"],
)
def test_an_answer_that_is_no_http(garbage: bytes) -> None:
    world = World()
    world.backend.answer = lambda request: request.connection.raw(garbage)
    sink = world.ask()
    assert sink.failure.code == "upstream_error"
    world.end()


# ---- a non-streaming run that is streamed upstream


@pytest.mark.parametrize(
    ("settings", "kind", "streamed"),
    [
        ({}, {"provider": "llama_cpp"}, True),
        ({}, {"provider": "home", "type": "llama_cpp"}, True),
        ({"provider": "llama_cpp"}, {}, True),
        ({}, {"provider": "vllm"}, False),
        ({"provider": "llama_cpp"}, {"provider": "vllm"}, False),
        ({"stream_upstream": "never"}, {"provider": "llama_cpp"}, False),
        ({"stream_upstream": "always"}, {"provider": "vllm"}, True),
    ],
)
def test_which_backends_are_streamed(settings: dict[str, str], kind: dict[str, str], streamed: bool) -> None:
    world = World(**settings)
    world.ask(**kind)
    asked = world.backend.last.json
    assert asked.get("stream", False) is streamed
    assert asked.get("stream_options") == ({"include_usage": True} if streamed else None)
    assert b'"temperature": 0.10' in world.backend.last.body


def test_a_streamed_answer_is_put_together() -> None:
    world = World(stream_upstream="always")
    world.backend.streams(chunk("he"), chunk("llo"), ending(), USAGE, DONE)
    sink = world.ask()
    (event,) = sink.events
    assert isinstance(event, m.Whole)
    assert dict(event.http.headers)["content-type"] == "application/json"
    assert event.usage == m.Usage(7, 1)
    document = json.loads(event.body)
    assert document["object"] == "chat.completion"
    assert document["choices"][0]["message"]["content"] == "hello"
    assert document["choices"][0]["finish_reason"] == "stop"
    assert document["usage"]["total_tokens"] == 8


def test_a_client_that_streams_is_not_put_together() -> None:
    world = World(stream_upstream="always")
    world.backend.streams(chunk("he"), ending(), DONE)
    sink = world.ask(b'{"stream": true}')
    assert world.backend.last.body == b'{"stream": true}'
    assert sink.body == chunk("he") + ending() + DONE


@pytest.mark.parametrize(
    "pieces",
    [
        (chunk("hi"),),
        (DONE,),
        (chunk("hi"), DONE),
        (chunk("hi"), USAGE, DONE),
        (chunk("hi"), event({"choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}]}), DONE),
        (chunk("hi"), b"data: {oops\n\n", ending(), DONE),
        (b"data: [1]\n\n", ending(), DONE),
        (chunk("hi", tool_calls=[{"function": {"name": 7, "arguments": 9}}, 3]), b"data: 7\n\n", ending(), DONE),
    ],
)
def test_a_stream_that_cannot_be_put_together_is_a_failure(pieces: tuple[bytes, ...]) -> None:
    """SE-01, without streaming: never 200 with half an answer; and garbage harms only its own run."""
    world = World(stream_upstream="always")
    world.backend.streams(*pieces)
    sink = world.ask()
    assert [type(event) for event in sink.events] == [m.Error]
    assert sink.failure.http_status == 502
    world.end()


def test_a_backend_that_does_not_stream_although_asked() -> None:
    world = World(stream_upstream="always")
    world.backend.responds(200, ANSWER)
    sink = world.ask()
    assert sink.body == ANSWER
    assert isinstance(sink.end, m.Whole)


# ---- the connection


def test_connections_are_kept_and_used_again() -> None:
    world = World()
    world.backend.responds(200, ANSWER)
    for _ in range(5):
        assert isinstance(world.ask().end, m.Whole)
    assert len({request.connection for request in world.backend.requests}) == 1
    world.end()


def test_a_kept_connection_that_went_stale_is_tried_once_more() -> None:
    world = World()
    world.backend.responds(200, ANSWER)
    world.ask()

    def stale(request: Any) -> None:
        world.backend.responds(200, ANSWER)
        request.connection.abort()

    world.backend.answer = stale
    assert isinstance(world.ask().end, m.Whole)
    assert len(world.backend.requests) == 3
    world.end()


def test_pausing_leaves_the_bytes_with_the_backend() -> None:
    """A client that does not read is felt by the backend through its socket, and memory here stays flat."""
    world = World()
    piece = chunk("x" * 1000)
    world.backend.answer = lambda request: request.connection.stream(piece)
    sink = world.ask()
    sink.source.pause()
    for _ in range(1000):
        world.backend.last.connection.say(piece)
    world.net.run()
    assert sink.body == piece
    (unread,) = [end.unread for end in world.net.ends if end.unread]
    assert unread > 1_000_000
    sink.source.resume()
    world.net.run()
    assert sink.body == piece * 1001
    world.done.cancel()
    world.done.addErrback(lambda _: None)
    world.end()


def test_pause_stops_the_gap_timer() -> None:
    """A slow client is not a silent backend."""
    world = World(gap_timeout_ms=5000)
    world.backend.answer = lambda request: request.connection.stream(chunk("a"))
    sink = world.ask()
    sink.source.pause()
    world.net.run(60)
    assert sink.end is None
    sink.source.resume()
    world.net.run(6)
    assert sink.failure.code == "upstream_timeout"


# ---- questions


@pytest.mark.parametrize(
    ("status", "body", "health", "models"),
    [
        (200, b'{"data":[{"id":"a"},{"id":"b"},{"id":""},{"id":7},7]}', m.Health.UP, ["a", "b"]),
        (200, b"[" * 100_000, m.Health.UP, []),
        (200, b'{"data":7}', m.Health.UP, []),
        (200, b"<html>", m.Health.UP, []),
        (401, b"", m.Health.UP, []),
        (404, b"", m.Health.UP, []),
        (503, b"", m.Health.DOWN, []),
    ],
)
def test_probe_and_models(status: int, body: bytes, health: m.Health, models: list[str]) -> None:
    world = World(base_url="http://127.0.0.1:8000/v1", headers={"Authorization": "Bearer k"})
    world.backend.responds(status, body)
    got: list[Any] = []
    world.adapter.probe().addBoth(got.append)
    world.adapter.models().addBoth(got.append)
    world.net.run(1)
    assert got == [health, models]
    assert {request.target for request in world.backend.requests} == {"/v1/models"}
    assert world.backend.last.headers["authorization"] == ["Bearer k"]


@pytest.mark.parametrize(
    ("status", "health"), [(200, m.Health.UP), (204, m.Health.UP), (302, m.Health.UP), (404, m.Health.DOWN)]
)
def test_a_probe_of_a_path_of_the_operators_choice(status: int, health: m.Health) -> None:
    world = World(base_url="http://127.0.0.1:8000/v1", headers={"Authorization": "Bearer k"})
    world.backend.responds(status)
    got: list[Any] = []
    world.adapter.probe("/health").addBoth(got.append)
    world.net.run(1)
    assert got == [health]
    assert world.backend.last.target == "/health"
    assert world.backend.last.headers["authorization"] == ["Bearer k"]


def test_a_list_of_models_that_is_too_long_to_read_is_an_answer() -> None:
    world = World()
    world.backend.responds(200, b" " * (5 << 20))
    got: list[Any] = []
    world.adapter.probe().addBoth(got.append)
    world.net.run(1)
    assert got == [m.Health.UP]
    world.end()


def test_a_check_does_not_wait_for_a_run_to_leave_its_connection() -> None:
    world = World(max_connections=1)
    sink = world.ask()
    world.backend.answer = lambda request: request.connection.respond(200, b'{"data":[]}')
    got: list[Any] = []
    world.adapter.probe().addBoth(got.append)
    world.net.run(1)
    assert (got, sink.end) == ([m.Health.UP], None)


def test_a_probe_of_a_backend_that_never_answers_lasts_until_it_is_cancelled() -> None:
    """Who is silent is not down: that is for the asker to say."""
    world = World()
    got: list[Any] = []
    probe = world.adapter.probe().addBoth(got.append)
    world.net.run(100)
    assert got == []
    probe.cancel()
    world.end()
    assert got[0].check(CancelledError)


def test_model_ids() -> None:
    assert model_ids(b'{"data":[{"id":"a"}]}') == ["a"]
    assert model_ids(b"\xff") == []
