"""Normalized runs: a chat answer told as text, reasoning and tool calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from backend_in_memory import CHUNK, DONE, USAGE, Request, chunk, ending, event
from doubles import RecordingSink
from hypothesis import given
from hypothesis import strategies as st
from openai_world import World
from twisted.internet.defer import CancelledError

from iop import model as m
from iop.errors import Failure
from iop.node.adapters.openai_compat import answer
from iop.node.adapters.openai_compat.normalize import Piece, Reader

pytestmark = pytest.mark.usefixtures("logged")

ASKED = b'{"model": "alias", "messages": [{"role": "user", "content": "hi"}], "temperature": 0.10, "x": 1e2}'


def run(world: World, body: bytes = ASKED, **more: Any) -> RecordingSink:
    return world.ask(body, http=None, mode=m.Mode.NORMALIZED, **more)


def streamed(*reads: bytes) -> RecordingSink:
    """Return what is told of an answer that came in these reads."""
    world = World()

    def respond(request: Request) -> None:
        request.connection.stream()
        for read in reads:
            request.connection.say(read)
            world.net.run()
        request.connection.end()

    world.backend.answer = respond
    sink = run(world)
    world.end()
    return sink


def delta(reason: str | None = None, **said: Any) -> bytes:
    return event(CHUNK % (json.dumps(said), "null" if reason is None else f'"{reason}"'))


def calls(sink: RecordingSink) -> Any:
    assert isinstance(sink.end, m.Complete), sink.events
    return json.loads(sink.end.metadata["openai_tool_calls"])


def reasoning(sink: RecordingSink) -> str:
    return "".join(each.reasoning for each in sink.events if isinstance(each, m.Delta))


# ---- what is asked


def test_the_request_is_the_clients_with_the_backends_name_and_streamed() -> None:
    world = World(headers={"X-Team": "lab"})
    world.backend.streams(chunk("hi"), ending(), USAGE, DONE)
    sink = run(world, secret_headers=(("Authorization", "Bearer s"),))
    assert sink.events == [m.Start(), m.Delta(text="hi"), m.Complete("stop", m.Usage(7, 1))]
    asked = world.backend.last
    assert (asked.method, asked.target) == ("POST", "/v1/chat/completions")
    assert asked.body.decode() == ASKED.decode().replace('"alias"', '"t"')[:-1] + (
        ', "stream": true, "stream_options": {"include_usage": true}}'
    )
    assert asked.headers["x-team"] == ["lab"]
    assert asked.headers["authorization"] == ["Bearer s"]
    assert asked.headers["content-type"] == ["application/json"]
    world.end()


@pytest.mark.parametrize("bad", ["", "00-1\r\nx-evil: 1", "00-1\0", "\u00e9", "\ud800"])
def test_the_trace_of_a_run_without_http_travels_in_its_metadata(bad: str) -> None:
    world = World(headers={"tracestate": "of=config"})
    run(world, metadata={"traceparent": "00-1", "tracestate": "a=1", "other": "x"})
    sent = world.backend.last.headers
    assert (sent["traceparent"], sent["tracestate"]) == (["00-1"], ["of=config"])
    assert "other" not in sent
    run(world, metadata={"traceparent": bad})
    assert not {"traceparent", "x-evil"} & world.backend.last.headers.keys()


def test_the_clients_own_stream_options_are_not_the_backends() -> None:
    world = World()
    run(world, b'{"model":"a","messages":[],"stream":false,"stream_options":{"include_obfuscation":true}}')
    assert world.backend.last.json == {
        "model": "t", "messages": [], "stream": True, "stream_options": {"include_usage": True}
    }  # fmt: skip


@pytest.mark.parametrize("n", [2, 3.0])
def test_several_choices_are_refused(n: Any) -> None:
    """CH-01: they are never merged into one text."""
    world = World()
    with pytest.raises(Failure) as raised:
        run(world, json.dumps({"model": "a", "messages": [], "n": n}).encode())
    assert (raised.value.code, raised.value.http_status, raised.value.param) == ("invalid_value", 400, "n")
    assert world.backend.requests == []


@pytest.mark.parametrize("n", [1, None])
def test_one_choice_is_what_there_is(n: Any) -> None:
    world = World()
    world.backend.streams(chunk("hi"), ending(), DONE)
    assert run(world, json.dumps({"model": "a", "messages": [], "n": n}).encode()).text == "hi"


def test_what_is_no_document_is_refused() -> None:
    with pytest.raises(Failure, match="not JSON"):
        run(World(), b"{")


# ---- text and reasoning


def test_text_is_told_as_it_comes() -> None:
    world = World()
    world.backend.answer = lambda request: request.connection.stream(chunk("one"))
    sink = run(world)
    assert sink.events == [m.Start(), m.Delta(text="one")]
    world.backend.last.connection.say(chunk("two"), chunk("three"), ending("length"), USAGE, DONE)
    world.backend.last.connection.end()
    world.net.run()
    assert sink.text == "onetwothree"
    assert sink.end == m.Complete("length", m.Usage(7, 1))
    world.end()


@pytest.mark.parametrize("names", [["reasoning"], ["reasoning_content"], ["reasoning", "reasoning_content"]])
@pytest.mark.parametrize("document", [False, True])
def test_reasoning_is_told_once_whatever_it_is_called(names: list[str], document: bool) -> None:
    """RE-01"""
    said = dict.fromkeys(names, "hmm")
    if document:
        world = World()
        world.backend.responds(200, json.dumps({"choices": [{"message": {"content": "42", **said}}]}).encode())
        sink = run(world)
    else:
        sink = streamed(delta(**said), chunk("42"), ending(), DONE)
    assert (reasoning(sink), sink.text) == ("hmm", "42")


def test_reasoning_alone_is_an_answer() -> None:
    """RE-01"""
    sink = streamed(delta(reasoning="hmm", content=None), ending(), DONE)
    assert sink.events == [m.Start(), m.Delta(reasoning="hmm"), m.Complete("stop")]


def test_an_empty_answer_is_one() -> None:
    assert streamed(delta(role="assistant", content=""), ending(), DONE).events == [m.Start(), m.Complete("stop")]


def test_characters_cut_by_reads_are_whole() -> None:
    """UTF-01"""
    data = chunk("那🌍é")
    sink = streamed(*[data[at : at + 1] for at in range(len(data))], ending(), DONE)
    assert sink.text == "那🌍é"


def test_bytes_that_are_no_utf8_become_replacements() -> None:
    """UTF-01"""
    sink = streamed(chunk("aXb").replace(b"X", b"\xff"), ending(), DONE)
    assert sink.text == "a\ufffdb"


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["a\ud83d", "\ude00b"], "a😀b"),
        (["\ud83d", "x"], "\ufffdx"),
        (["a\ud83d"], "a\ufffd"),
        (["\ude00é"], "\ufffdé"),
    ],
)
def test_a_pair_of_surrogates_cut_by_tokens_is_joined(pieces: list[str], text: str) -> None:
    reader = Reader()
    made = [piece for said in pieces for piece in reader.feed(delta(content=said))] + reader.end()
    assert "".join(piece.text for piece in made) == text
    text.encode()


def test_pieces_of_one_read_keep_their_order() -> None:
    reader = Reader()
    events = delta(reasoning="a") + delta(reasoning="b", content="c") + chunk("d") + delta(reasoning="e")
    assert reader.feed(events) == [Piece(reasoning="ab"), Piece(text="cd"), Piece(reasoning="e")]


def test_content_in_parts_and_a_refusal_are_text() -> None:
    assert streamed(delta(content=[{"type": "text", "text": "a"}, 7]), ending(), DONE).text == "a"
    assert streamed(delta(content=None, refusal="no"), ending(), DONE).text == "no"


_PART = st.builds(delta, content=st.text(max_size=4)) | st.builds(delta, reasoning=st.text(max_size=4))


@given(st.lists(_PART, min_size=1, max_size=5), st.data())
def test_reads_may_be_cut_anywhere(parts: list[bytes], data: st.DataObject) -> None:
    """UTF-01"""
    whole = b"".join([*parts, ending(), DONE])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    reads = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True) if start < end]
    sink = RecordingSink()
    told = answer.NormalizedAnswer(sink, None, metadata={}, ids="call_")
    told.head(200, [(b"content-type", b"text/event-stream")])
    for read in reads:
        told.block(read)
    told.ended()
    said = [json.loads(part[6:])["choices"][0]["delta"] for part in parts]
    assert sink.text == "".join(each.get("content", "") for each in said)
    assert reasoning(sink) == "".join(each.get("reasoning", "") for each in said)
    assert sink.end == m.Complete("stop")


# ---- tool calls

FRAGMENTS = (
    delta(role="assistant", tool_calls=[
        {"index": 0, "id": "call_t1", "type": "function", "function": {"name": "lookup_tide", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"port":'}},
    ]),
    delta(tool_calls=[
        {"index": 0, "id": "call_t1", "type": "function", "function": {"name": "lookup_tide", "arguments": '"Oban"}'}}
    ]),
    ending("tool_calls"),
)  # fmt: skip
TIDE = {"id": "call_t1", "type": "function", "function": {"name": "lookup_tide", "arguments": '{"port":"Oban"}'}}


def test_fragments_of_a_call_are_one_call() -> None:
    """TD-01"""
    sink = streamed(*FRAGMENTS, USAGE, DONE)
    assert calls(sink) == [TIDE]
    assert sink.events == [m.Start(), m.Complete("tool_calls", m.Usage(7, 1), sink.end.metadata)]  # type: ignore[union-attr]


def test_calls_of_a_document_are_whole_ones() -> None:
    """TD-03: no arguments are an empty object, malformed ones are left alone."""
    world = World()
    made = [
        {"id": "c1", "type": "function", "function": {"name": "read_clock", "arguments": ""}},
        {"id": "c2", "type": "function", "function": {"name": "read_clock"}},
        {"id": "c3", "type": "function", "function": {"name": "read_clock", "arguments": "{oops"}},
    ]
    said = {"choices": [{"message": {"content": None, "tool_calls": made}, "finish_reason": "tool_calls"}]}
    world.backend.responds(200, json.dumps(said).encode())
    sink = run(world)
    assert [(each["id"], each["function"]["arguments"]) for each in calls(sink)] == [
        ("c1", "{}"), ("c2", "{}"), ("c3", "{oops")
    ]  # fmt: skip
    assert sink.text == ""


def test_calls_that_all_have_the_first_index_are_told_apart_by_their_ids() -> None:
    """TD-01"""
    first = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    sink = streamed(delta(tool_calls=[first, {**first, "id": "b"}]), ending("tool_calls"), DONE)
    assert [call["id"] for call in calls(sink)] == ["a", "b"]


def test_a_new_id_with_every_fragment_is_still_one_call() -> None:
    """TD-01"""
    parts = [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}},
        {"index": 0, "id": "b", "type": "function", "function": {"arguments": "}"}},
    ]
    (call,) = calls(streamed(*[delta(tool_calls=[part]) for part in parts], ending("tool_calls"), DONE))
    assert call == {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_fragments_without_an_index_go_by_their_id_and_a_missing_id_is_made() -> None:
    parts = [{"id": "a", "function": {"name": "f", "arguments": "{"}}, {"id": "a", "function": {"arguments": "}"}}]
    made = calls(streamed(delta(tool_calls=[*parts, {"function": {"name": "g"}}]), ending("tool_calls"), DONE))
    assert [(call["id"], call["function"]["arguments"]) for call in made] == [("a", "{}"), ("call_r_1", "{}")]


def test_calls_beyond_all_measure_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "MAX_COLLECTED", 100)
    assert streamed(*FRAGMENTS, DONE).failure.code == "answer_too_large"


# ---- documents


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_a_document_is_understood_too(kind: str) -> None:
    world = World()
    said = {
        "choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 1},
    }
    world.backend.responds(200, b"\n " + json.dumps(said).encode(), kind)
    assert run(world).events == [m.Start(), m.Delta(text="hi"), m.Complete("length", m.Usage(7, 1))]
    world.end()


@pytest.mark.parametrize("body", [b"", b"{", b'{"choices":[]}', b"[]", b"<html>", b'{"choices":[7]}'])
def test_what_holds_no_answer_is_an_error(body: bytes) -> None:
    world = World()
    world.backend.responds(200, body)
    assert run(world).failure.code == "upstream_error"
    world.end()


def test_an_error_in_place_of_a_document_is_the_runs() -> None:
    """EM-01"""
    world = World()
    world.backend.responds(200, b'{"error": {"message": "no slot", "code": 429}}')
    assert (run(world).failure.message, run(world).failure.http_status) == ("no slot", 429)


def test_a_document_beyond_all_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "MAX_COLLECTED", 100)
    world = World()
    world.backend.responds(200, b'{"choices":' + b" " * 200)
    assert run(world).failure.code == "answer_too_large"
    world.end()


# ---- endings


@pytest.mark.parametrize(
    ("said", "reason"),
    [("stop", "stop"), ("eos_token", "stop"), ("max_tokens", "length"), ("function_call", "tool_calls")],
)
def test_an_ending_has_one_of_the_known_words(said: str, reason: str) -> None:
    assert streamed(chunk("a"), ending(said), DONE).end == m.Complete(reason)


def test_a_backend_that_gave_up_is_an_error() -> None:
    sink = streamed(chunk("a"), ending("abort"), DONE)
    assert (sink.text, sink.failure.code) == ("a", "upstream_error")


@pytest.mark.parametrize("last", [[], [b'data: {"choices":'], [event({"error": {"message": "boom"}})]])
def test_half_an_answer_never_looks_whole(last: list[bytes]) -> None:
    sink = streamed(chunk("a"), *last)
    assert (sink.text, sink.failure.code) == ("a", "upstream_error")


def test_an_ending_without_done_and_done_without_an_ending() -> None:
    assert streamed(chunk("a"), ending()).end == m.Complete("stop")
    assert streamed(chunk("a"), DONE).end == m.Complete("stop")
    assert streamed(DONE).failure.code == "upstream_error"


def test_an_event_that_cannot_be_read_is_an_error() -> None:
    for wrong in (b"data: hello\n\n", b"data: [1]\n\n"):
        assert streamed(chunk("a"), wrong, chunk("b"), DONE).failure.code == "upstream_error"


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, b'{"error":{"message":"maximum context length is 8"}}', "context_length_exceeded"),
        (429, b'{"error":{"message":"slow down"}}', "rate_limited"),
        (503, b"", "upstream_error"),
    ],
)
def test_refusals_are_what_they_are_on_any_run(status: int, body: bytes, code: str) -> None:
    """EM-01, EM-02"""
    world = World()
    world.backend.responds(status, body, Retry_After="7")
    failure = run(world).failure
    assert failure.code == code
    assert failure.retry_after_ms == (0 if code == "context_length_exceeded" else 7000)
    assert len(world.backend.requests) == 1


def test_all_was_said_so_a_break_does_not_matter() -> None:
    world = World()
    world.backend.answer = lambda request: request.connection.stream(chunk("a"), ending(), DONE)
    sink = run(world)
    world.backend.last.connection.abort()
    world.net.run()
    assert sink.end == m.Complete("stop")


def test_a_cancelled_run_lets_go_of_its_backend() -> None:
    world = World()
    world.backend.answer = lambda request: request.connection.stream(chunk("a"))
    sink = run(world)
    fired: list[Any] = []
    world.done.addErrback(lambda reason: fired.append(reason.check(CancelledError)))
    world.done.cancel()
    world.net.run()
    assert fired == [CancelledError]
    assert sink.end is None
    assert world.backend.connections == set()
    world.end()
