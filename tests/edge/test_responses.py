"""The Responses API's answers: the order of events, and what they hold."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response
from responses_client import (
    FALLBACK,
    PATCH,
    SEALED,
    SPACE,
    USAGE,
    F,
    Json,
    calls,
    document,
    events_of,
    legal,
    request,
    streamed,
    text,
    texts,
    types,
)

from iop import model as m
from iop.edge.surfaces.openai.apis.reading import LARGEST
from iop.edge.surfaces.openai.apis.responses_input import unsealed
from iop.errors import KINDS, Failure
from iop.http import sse

# ---- RA-01


def test_ra_01_events_of_a_text() -> None:
    """RA-01"""
    events = legal(streamed(text("4"), m.Complete("stop", USAGE)))
    assert types(events) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    delta, done, part, item, last = events[4:]
    assert {key: delta[key] for key in ("item_id", "output_index", "content_index", "delta")} == {
        "item_id": events[2]["item"]["id"],
        "output_index": 0,
        "content_index": 0,
        "delta": "4",
    }
    assert (done["text"], part["part"]["text"], item["item"]["content"][0]["text"]) == ("4", "4", "4")
    made = last["response"]
    assert (made["id"], made["object"], made["model"], made["status"]) == ("resp_1", "response", "m", "completed")
    assert texts(made["output"]) == "4"
    assert made["usage"] == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 4,
    }


@pytest.mark.parametrize(("reason", "why"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_ra_01_an_answer_that_was_cut_is_incomplete(reason: str, why: str) -> None:
    """RA-01 (length)"""
    events = legal(streamed(text("4"), m.Complete(reason, USAGE)))
    made = events[-1]["response"]
    assert (events[-1]["type"], made["incomplete_details"]) == ("response.incomplete", {"reason": why})
    assert (texts(made["output"]), made["output"][0]["status"]) == ("4", "incomplete")
    assert made["usage"]["total_tokens"] == 4
    whole = document(text("4"), m.Complete(reason, USAGE))
    assert (whole["status"], whole["incomplete_details"]) == ("incomplete", {"reason": why})


def test_ra_01_an_error_in_the_middle_is_a_failure() -> None:
    """RA-01 (error)"""
    events = legal(streamed(text("4"), Failure("upstream_error", "the backend broke")))
    made = events[-1]["response"]
    assert (events[-1]["type"], made["status"]) == ("response.failed", "failed")
    assert made["error"] == {"code": "upstream_error", "message": "the backend broke"}
    assert (texts(made["output"]), made["output"][0]["status"]) == ("4", "incomplete")
    assert "response.output_item.done" not in types(events)


def test_ra_01_a_tool_call() -> None:
    """RA-01 (tool)"""
    events = legal(streamed([], m.Complete("stop", USAGE, calls(("f", '{"a":1}'))), tools=[F]))
    assert types(events)[2:] == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert events[2]["item"] == {
        "id": "fc_1_0",
        "type": "function_call",
        "call_id": "c0",
        "name": "f",
        "arguments": "",
        "status": "in_progress",
    }
    assert events[-1]["response"]["output"] == [{**events[2]["item"], "arguments": '{"a":1}', "status": "completed"}]


# ---- the same events, in any order


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[m.Delta], m.Complete | Failure]:
    words = st.text(st.characters(), max_size=6)
    pieces = st.builds(lambda text, reasoning: m.Delta(text=text, reasoning=reasoning), words, words)
    names = st.sampled_from([("f", "{}"), ("f", ""), ("apply_patch", '{"input": "x"}'), ("ns.g", "{}"), ("odd", "{")])
    ends = st.builds(
        lambda reason, usage, made: m.Complete(reason, usage, calls(*made) if made else {}),
        st.sampled_from(["", "stop", "length", "content_filter", "tool_calls"]),
        st.sampled_from([None, USAGE]),
        st.lists(names, max_size=3),
    )
    failures = st.sampled_from(sorted(KINDS)).map(lambda code: Failure(code, "why", retry_after_ms=1500))
    return draw(st.lists(pieces, max_size=8)), draw(st.one_of(ends, failures))


@given(runs(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_whatever_comes_the_order_is_legal_and_nothing_is_lost(
    run: tuple[list[m.Delta], m.Complete | Failure], seal: bool
) -> None:
    deltas, end = run
    asked: Json = {"tools": [F, PATCH, SPACE], "include": SEALED if seal else []}
    events = legal(streamed(deltas, end, **asked))
    made = events[-1]["response"]
    assert texts(made["output"]) == "".join(delta.text for delta in deltas)
    assert texts(made["output"], "reasoning") == "".join(delta.reasoning for delta in deltas)
    if isinstance(end, m.Complete):
        assert made["output"]
        assert document(deltas, end, **asked) == made
        Response.model_validate(made, strict=True)


# ---- items


def test_an_answer_without_a_word_is_whole_too() -> None:
    for end in (m.Complete(), m.Complete("length")):
        events = legal(streamed([], end))
        (item,) = events[-1]["response"]["output"]
        assert (item["type"], item["content"][0]["text"]) == ("message", "")
        assert events[-1]["response"]["usage"] is None


def test_nothing_is_said_before_the_first_piece() -> None:
    stream = request().building("1", 1)
    stream.started(m.Start())
    assert stream.delta(m.Delta()) == b""
    assert types(events_of(stream.delta(m.Delta(text="a"))))[:2] == ["response.created", "response.in_progress"]


def test_reasoning_is_a_summary_that_agents_show_and_is_sealed_when_asked_for() -> None:
    deltas = [m.Delta(reasoning="h"), m.Delta(reasoning="m"), m.Delta(text="4")]
    events = legal(streamed(deltas, m.Complete(), include=SEALED))
    assert types(events)[2:8] == [
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
    ]
    thought, said = events[-1]["response"]["output"]
    assert thought["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert unsealed(thought["encrypted_content"]) == "hm"
    assert texts([said]) == "4"
    assert "encrypted_content" not in document(deltas)["output"][0]
    again = request(input=[thought, said], instructions="i").chat()["messages"]
    assert again[1:] == [{"role": "assistant", "content": "4", "reasoning_content": "hm"}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [('{"input": "*** p\\n"}', "*** p\n"), ('"raw"', "raw"), ("*** raw", "*** raw"), ('{"in": 1}', '{"in": 1}')],
)
def test_a_custom_call_is_turned_back(arguments: str, said: str) -> None:
    events = legal(streamed([], m.Complete(metadata=calls(("apply_patch", arguments))), tools=[PATCH]))
    assert types(events)[3:5] == ["response.custom_tool_call_input.delta", "response.custom_tool_call_input.done"]
    (item,) = events[-1]["response"]["output"]
    assert (item["type"], item["call_id"], item["name"], item["input"]) == (
        "custom_tool_call",
        "c0",
        "apply_patch",
        said,
    )


def test_a_namespaces_function_is_called_by_its_own_name_and_goes_back_to_it() -> None:
    (item,) = document([], m.Complete(metadata=calls(("ns.g", "{}"))), tools=[SPACE])["output"]
    assert (item["name"], item["namespace"]) == ("g", "ns")
    (back,) = request(input=[item]).chat()["messages"]
    assert back["tool_calls"][0]["function"]["name"] == "ns.g"


def test_calls_in_the_text_stand_between_its_texts() -> None:
    """TF-01"""
    deltas = text("One.\n<tool", '_call>{"name":"f","arguments":{"a":1}}</tool_call>', "Two.")
    for start, kinds in ((m.Start(None, FALLBACK), ["message", "function_call", "message"]), (None, ["message"])):
        events = legal(streamed(deltas, m.Complete(), start, tools=[F]))
        output = events[-1]["response"]["output"]
        assert [item["type"] for item in output] == kinds
        assert texts(output).startswith("One.")


def test_an_answer_of_any_size_is_not_kept() -> None:
    stream = request().building("1", 1)
    stream.started(m.Start())
    with pytest.raises(Failure) as raised:
        stream.delta(m.Delta(text="x" * (LARGEST + 1)))
    assert raised.value.code == "answer_too_large"


def test_tool_calls_that_are_none_are_an_error() -> None:
    with pytest.raises(Failure) as raised:
        streamed(text("Hi"), m.Complete(metadata={m.TOOL_CALLS: "{"}))
    assert raised.value.code == "upstream_error"


# ---- the response object


def test_a_response_repeats_what_was_asked() -> None:
    asked: Json = {
        "instructions": "Be brief.",
        "tools": [F, PATCH, SPACE, {"type": "web_search"}],
        "tool_choice": {"type": "function", "name": "f"},
        "temperature": 0.5,
        "top_p": 0.25,
        "max_output_tokens": 64,
        "parallel_tool_calls": False,
        "metadata": {"a": "b"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"},
    }
    made = document(text("4"), **asked, store=True, truncation="auto")
    told = {"description": None, "strict": None, **F}
    assert {name: made[name] for name in asked} == asked | {"tools": [told, *asked["tools"][1:]]}
    assert (made["store"], made["truncation"], made["previous_response_id"]) == (False, "disabled", None)
    assert (made["error"], made["incomplete_details"], made["created_at"]) == (None, None, 1790000000)


def test_a_response_says_what_holds_where_nothing_was_asked() -> None:
    made = document(text("4"))
    holds = {
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "text": {"format": {"type": "text"}},
        "reasoning": {"effort": None, "summary": None},
        "temperature": 1,
        "top_p": 1,
        "service_tier": "default",
        "max_tool_calls": None,
    }
    assert {name: made[name] for name in holds} == holds


# ---- failures


@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        (Failure("context_length_exceeded", "too long"), "context_length_exceeded", "too long"),
        (Failure("node_lost", "gone"), "node_lost", "gone"),
        (Failure("upstream_connect", "away"), "upstream_error", "away"),
        (Failure("", "odd"), "server_error", "odd"),
        (Failure("rate_limited", "Slow.", retry_after_ms=1500), "rate_limit_exceeded", "Slow. Please try again in 2s."),
    ],
)
def test_failures(failure: Failure, code: str, message: str) -> None:
    """What an agent does next it takes from the code."""
    (*_, last) = legal(streamed([], failure))
    assert last["response"]["error"] == {"code": code, "message": message}
    (block,) = sse.blocks(request().broken(failure, "req-1"))
    assert block.startswith(b"event: response.failed\n")
    broken = json.loads(sse.data_of(block) or b"")
    assert (broken["type"], broken["response"]["id"]) == ("response.failed", "resp_req-1")
    assert broken["response"]["error"] == {"code": code, "message": message}
