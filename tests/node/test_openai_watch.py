"""Answers that pass through: whatever way they are cut into reads, the same bytes, the same usage, the same end."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import Any

import pytest
from backend_in_memory import CHUNK, DONE, USAGE, chunk, ending, event
from hypothesis import given
from hypothesis import strategies as st

from iop import model as m
from iop.http import sse
from iop.node.adapters.openai_compat.watch import LONGEST_EVENT, EventStream, OpaqueStream, Stream, Whole, usage_of

GOOD = [chunk("hi"), chunk("那🌍é"), ending(), USAGE, DONE]
CUTS = st.lists(st.integers(0, 10_000), max_size=12)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(place % (len(data) + 1) for place in cuts), len(data)]
    return [data[start:stop] for start, stop in pairwise(places)]


class Seen:
    """What came of a stream."""

    def __init__(self, *reads: bytes, strip: bool = False) -> None:
        watch = Stream(strip)
        self.body = b"".join(watch.feed(read) for read in reads if watch.failure is None)
        if watch.failure is None:
            self.body += watch.end(True)
        self.failure = watch.failure
        self.usage, self.finish_reason, self.done = watch.usage, watch.finish_reason, watch.done

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seen) and self.facts == other.facts

    @property
    def facts(self) -> tuple[Any, ...]:
        said = None if self.failure is None else (self.failure.code, self.failure.message, self.failure.http_status)
        return self.body, said, self.usage, self.finish_reason, self.done

    @property
    def chunks(self) -> list[Any]:
        data = [sse.data_of(block) for block in sse.blocks(self.body)]
        return [json.loads(each) for each in data if each is not None and each != b"[DONE]"]

    @property
    def text(self) -> str:
        return "".join(
            choice["delta"].get("content") or "" for each in self.chunks for choice in each.get("choices") or ()
        )


# ---- a good stream


def test_a_good_stream_goes_through_untouched() -> None:
    seen = Seen(*GOOD)
    assert seen.body == b"".join(GOOD)
    assert (seen.usage, seen.finish_reason, seen.done) == (m.Usage(7, 1), "stop", True)
    assert seen.failure is None


def test_a_plain_read_is_the_same_object() -> None:
    """Nothing is built per token."""
    watch, read = Stream(True), chunk("a") + chunk("b")
    assert watch.feed(read) is read


STREAMS = {
    "usage": b"".join(GOOD),
    "usage in every chunk": chunk("hi") + event(CHUNK[:-1] % ("{}", '"stop"') + ',"usage":{"a":1}}') + DONE,
    "null usage": event(CHUNK[:-1] % ('{"content":"x"}', "null") + ',"usage":null}') + ending() + USAGE + DONE,
    "null error": event(CHUNK[:-1] % ('{"content":"x"}', "null") + ',"error":null}') + ending() + DONE,
    "spaces": b"".join(
        b"data: " + json.dumps(json.loads(each[6:])).encode() + b"\n\n" for each in (chunk("hi"), ending(), USAGE)
    )
    + DONE,
    "comments": b": warming up\n\n:\n\nretry: 4000\n\nevent: ping\n\nid: 9\n"
    + chunk("hi")
    + b": still here\n\n"
    + ending()
    + DONE,
    "crlf": b"".join(each.replace(b"\n", b"\r\n") for each in GOOD),
    "no done": chunk("hi") + ending(),
    "no done, no blank line": chunk("hi") + ending()[:-2],
    "done without a blank line": chunk("hi") + ending() + b"data: [DONE]",
    "no space after data:": b"".join(each.replace(b"data: ", b"data:") for each in GOOD),
    "after done": b"".join(GOOD) + chunk("never"),
    "error": chunk("par") + event({"id": "c1", "choices": [], "error": {"message": "worker limit reached"}}) + DONE,
    "only error": event({"error": {"message": "quota exceeded", "type": "insufficient_quota"}}) + DONE,
    "cut": chunk("hi") + chunk("half"),
    "half an event": chunk("hi") + b'data: {"choices":[{"index":0,"delta":{"content":"ab',
    "empty data": b"data:\n\n" + b"".join(GOOD),
    "no json": b"data: hello\n\n" + b"".join(GOOD),
    "invalid utf-8": event(CHUNK % ('{"content":"x"}', "null")).replace(b'"x"', b'"\xff\xfe"') + ending() + DONE,
    "the word usage as text": chunk('he said "usage": {"a": 1} and "error": {}') + ending() + DONE,
    "preamble": event({"choices": [], "prompt_filter_results": []}) + b"".join(GOOD),
    "two choices": event({"choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]}) + ending() + DONE,
    "several lines of data": b'data: {"choices":\ndata: []}\n\n' + b"".join(GOOD),
    "nothing": b"",
}  # fmt: skip


@given(st.sampled_from(sorted(STREAMS)), CUTS, st.booleans())
def test_any_split_gives_the_same(name: str, cuts: list[int], strip: bool) -> None:
    """UTF-01 and more: where reads end changes nothing, not inside a character either."""
    data = STREAMS[name]
    assert Seen(*cut(data, cuts), strip=strip) == Seen(data, strip=strip)


@pytest.mark.parametrize("name", sorted(STREAMS))
@pytest.mark.parametrize("strip", [False, True])
def test_a_byte_at_a_time_gives_the_same(name: str, strip: bool) -> None:
    data = STREAMS[name]
    assert Seen(*[bytes([byte]) for byte in data], strip=strip) == Seen(data, strip=strip)


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_what_reaches_the_client_breaks_no_sdk(name: str) -> None:
    """SSE-01: no empty data, no block without data, no half event, and at most one [DONE], last."""
    seen = Seen(STREAMS[name])
    blocks = sse.blocks(seen.body)
    assert all(block.endswith((b"\n\n", b"\r\n\r\n")) for block in blocks)
    assert all(sse.data_of(block) is not None for block in blocks)
    dones = [number for number, block in enumerate(blocks) if sse.data_of(block) == b"[DONE]"]
    assert dones == ([len(blocks) - 1] if seen.failure is None else [])


def test_characters_cut_by_reads_stay_whole() -> None:
    """UTF-01"""
    data = event(CHUNK % (json.dumps({"content": "那🌍é"}, ensure_ascii=False), "null"))
    where = data.index("那".encode()) + 1
    seen = Seen(data[:where], data[where : where + 4], data[where + 4 : where + 5], data[where + 5 :], ending(), DONE)
    assert seen.text == "那🌍é"


def test_comments_and_control_blocks_do_not_reach_the_client() -> None:
    """SSE-01"""
    seen = Seen(STREAMS["comments"])
    assert seen.failure is None
    assert seen.text == "hi"
    assert b"retry" not in seen.body
    assert b": still" not in seen.body
    assert seen.body.count(b"[DONE]") == 1


def test_a_crlf_stream_stays_one() -> None:
    seen = Seen(STREAMS["crlf"])
    assert (seen.usage, seen.finish_reason, seen.done) == (m.Usage(7, 1), "stop", True)
    assert seen.text == "hi那🌍é"


# ---- usage


def test_usage_that_nobody_asked_for_is_taken_and_stripped() -> None:
    """US-01: no chunk without choices and no usage member, and the usage is known all the same."""
    null = event(CHUNK[:-1] % ('{"content":"hi"}', "null") + ',"usage":null}')
    seen = Seen(null, ending(), USAGE + DONE, strip=True)
    assert seen.usage == m.Usage(7, 1)
    assert all(each["choices"] for each in seen.chunks)
    assert all(each.get("usage") is None for each in seen.chunks)
    assert seen.body.endswith(DONE)


def test_usage_that_was_asked_for_stays() -> None:
    """US-01: exactly one chunk without choices, after the finish chunk and before [DONE]."""
    seen = Seen(chunk("hi"), ending(), USAGE + DONE)
    assert [each["choices"] == [] for each in seen.chunks] == [False, False, True]
    assert seen.chunks[-1]["usage"] == {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}


def test_a_preamble_without_choices_is_harmless() -> None:
    """US-01"""
    for strip in (True, False):
        seen = Seen(STREAMS["preamble"], strip=strip)
        assert seen.text == "hi那🌍é"
        assert seen.usage == m.Usage(7, 1)


def test_usage_on_a_chunk_with_choices_is_cut_out() -> None:
    data = event({"choices": [{"index": 0, "delta": {"content": "hi"}}], "usage": {"prompt_tokens": 3}})
    seen = Seen(data, ending(), DONE, strip=True)
    assert seen.usage == m.Usage(3)
    assert list(seen.chunks[0]) == ["choices"]
    assert seen.text == "hi"


def test_the_last_usage_counts() -> None:
    more = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9}})
    assert Seen(USAGE, chunk("x"), more, ending(), DONE).usage == m.Usage(7, 9)


@pytest.mark.parametrize(
    ("said", "usage"),
    [
        (None, None),
        ("x", None),
        ({}, m.Usage()),
        ({"prompt_tokens": 7, "completion_tokens": 1}, m.Usage(7, 1)),
        ({"prompt_tokens": "7", "completion_tokens": True}, m.Usage()),
        ({"prompt_tokens": -1, "completion_tokens": 1 << 63}, m.Usage()),
        ({"prompt_tokens_details": {"cached_tokens": 3}}, m.Usage(cached_input_tokens=3)),
        ({"completion_tokens_details": {"reasoning_tokens": 4}}, m.Usage(reasoning_tokens=4)),
        ({"prompt_tokens_details": None, "completion_tokens_details": []}, m.Usage()),
    ],
)
def test_usage_objects(said: Any, usage: m.Usage | None) -> None:
    assert usage_of(said) == usage


# ---- ends


def test_a_missing_done_is_added() -> None:
    seen = Seen(chunk("hi"), ending())
    assert seen.body.endswith(ending() + DONE)
    assert seen.failure is None


@pytest.mark.parametrize("last", [b"", chunk("more"), b'data: {"choices":[{"index":0,"delta":{"content":"ab'])
def test_an_end_without_a_finish_reason_is_a_failure(last: bytes) -> None:
    """SE-01 and ER-03 half_event: a stream that stops is never whole, and half an event never reaches a client."""
    seen = Seen(chunk("hi"), last)
    assert seen.failure is not None
    assert seen.failure.code == "upstream_error"
    assert seen.body == chunk("hi") + (last if last.endswith(b"\n\n") else b"")
    assert b"[DONE]" not in seen.body


def test_done_without_a_finish_reason_is_an_end() -> None:
    assert Seen(chunk("hi"), DONE).failure is None


def test_an_error_inside_the_stream_ends_it() -> None:
    """ER-01 after_text: nothing after the error, and no [DONE]."""
    seen = Seen(STREAMS["error"])
    assert seen.failure is not None
    assert (seen.failure.message, seen.failure.http_status) == ("worker limit reached", 502)
    assert seen.body == chunk("par")


def test_an_error_that_is_null_is_none() -> None:
    """ER-01 null_error_is_fine"""
    seen = Seen(STREAMS["null error"])
    assert seen.failure is None
    assert seen.text == "x"


def test_an_event_without_end_is_given_up() -> None:
    watch = Stream(False)
    block = b"x" * (1 << 20)
    watch.feed(b"data: ")
    for _ in range(LONGEST_EVENT // len(block) + 1):
        watch.feed(block)
    assert watch.failure is not None


@pytest.mark.parametrize("deep", [b"[" * 100_000, b'{"a":' * 100_000])
def test_json_nested_without_end_harms_nothing(deep: bytes) -> None:
    garbage = b"data: " + deep + b' "choices":[]\n\n'
    seen = Seen(garbage, *GOOD)
    assert seen.failure is None
    assert seen.usage == m.Usage(7, 1)
    whole = Whole()
    whole.feed(b'{"usage":{"a":' + b"[" * 3000)
    assert whole.usage is None


# ---- one document

DOCUMENT = json.dumps(
    {
        "id": "c1",
        "choices": [{"message": {"content": 'text with "usage": {"prompt_tokens": 99} in it'}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8},
    }
).encode()


@given(CUTS)
def test_a_document_goes_through_whatever_the_reads(cuts: list[int]) -> None:
    whole = Whole()
    assert b"".join(map(whole.feed, cut(DOCUMENT, cuts))) + whole.end(True) == DOCUMENT
    assert whole.usage == m.Usage(7, 1)
    assert whole.failure is None


def test_the_usage_of_a_long_document_is_in_its_tail() -> None:
    whole = Whole()
    whole.feed(b'{"choices":["' + b"x" * 200_000 + b'"],')
    whole.feed(b'"usage": {"prompt_tokens": 7, "completion_tokens": 1}}')
    assert whole.usage == m.Usage(7, 1)
    other = Whole()
    other.feed(b'{"usage": null, "x": {"usage": 7}}')
    assert other.usage is None


@given(st.sampled_from([b'{"error":{"message":"out of slots"}}', b' \n{ "error" : {"message":"out of slots"}}']), CUTS)
def test_an_error_under_status_200_is_one_whatever_the_reads(document: bytes, cuts: list[int]) -> None:
    """ER-01, without a stream"""
    whole = Whole()
    said = b"".join(map(whole.feed, cut(document, cuts))) + whole.end(True)
    assert whole.failure is not None
    assert whole.failure.message == "out of slots"
    assert not document.startswith(said) or len(said) < len(document)


def test_a_first_read_that_is_longer_than_the_tail_has_its_beginning_looked_at() -> None:
    """Decoded gzip comes in larger pieces than a socket reads."""
    whole = Whole()
    whole.feed(b'{"error":{"message":"out of slots","trace":"' + b"x" * 200_000 + b'"}}')
    whole.end(True)
    assert whole.failure is not None
    cut_short = Whole()
    cut_short.feed(b'{"choices":["' + b"x" * 200_000)
    cut_short.end(framed=False)
    assert cut_short.failure is not None


@pytest.mark.parametrize("document", [b'{"error":null,"id":"x"}', b'{"errors":1}', b'["error"]', b"", b"error"])
def test_what_only_looks_like_an_error(document: bytes) -> None:
    whole = Whole()
    assert whole.feed(document) + whole.end(True) == document
    assert whole.failure is None


def test_a_long_event_costs_no_more_than_its_length() -> None:
    """4 MiB in 1,400-byte reads: looked at once, not once a read."""
    stream = Stream(strip_usage=False)
    event = b'data: {"choices":[{"index":0,"delta":{"image":"' + b"x" * (4 << 20) + b'"},"finish_reason":null}]}\n\n'
    begun = time.process_time()
    said = b"".join(stream.feed(event[at : at + 1400]) for at in range(0, len(event), 1400))
    assert said == event
    assert time.process_time() - begun < 2  # quadratic, it took 19


def test_a_stream_that_ends_with_its_connection_needs_its_done() -> None:
    """With n = 2 a first choice may have finished when the second is cut."""
    finished = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    for framed, fails in ((True, False), (False, True)):
        stream = Stream(strip_usage=False)
        stream.feed(finished)
        stream.end(framed)
        assert (stream.failure is not None) is fails


# ---- streams of the younger APIs: they count at the end, and until then only their events are known


def named(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\n".encode() + event({"type": kind, **members})


BEGUN = named("message_start", message={"usage": {"input_tokens": 10, "output_tokens": 1}})
PART = named("content_block_delta", index=0, delta={"type": "text_delta", "text": "a"})
ENDED = named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 7}) + named("message_stop")
ANSWERED = named("response.completed", response={"usage": {"input_tokens": 3, "output_tokens": 4}})


@given(CUTS)
def test_a_messages_stream_has_counted_when_it_says_so(cuts: list[int]) -> None:
    watch = EventStream()
    passed = b"".join(watch.feed(read) for read in cut(BEGUN + PART * 5, cuts))
    assert watch.usage is not None
    assert (watch.usage.input_tokens, watch.usage.output_tokens) == (None, 5)
    passed += watch.feed(ENDED) + watch.end(False)
    assert (watch.done, watch.failure, watch.usage) == (True, None, m.Usage(10, 7))
    assert passed == BEGUN + PART * 5 + ENDED


def test_a_responses_stream_ends_with_what_it_counted() -> None:
    watch = EventStream()
    assert watch.feed(ANSWERED) + watch.end(False) == ANSWERED
    assert (watch.done, watch.failure, watch.usage) == (True, None, m.Usage(3, 4))


@pytest.mark.parametrize("stream", [EventStream, lambda: OpaqueStream()], ids=["events", "opaque"])
def test_a_stream_that_breaks_is_not_whole(stream: Any) -> None:
    watch = stream()
    watch.feed(PART)
    watch.end(False)
    assert watch.failure is not None
    assert not watch.done


def test_an_error_event_is_a_failure_and_goes_no_further() -> None:
    watch = EventStream()
    wrong = named("error", error={"type": "overloaded_error", "message": "later"})
    assert watch.feed(PART + wrong + PART) == PART
    assert watch.failure is not None
    assert watch.failure.message == "later"
