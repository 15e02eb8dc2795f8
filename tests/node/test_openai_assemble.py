"""A stream put together into the answer the backend would have given without streaming."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.node.adapters.openai_compat.assemble import Assembly


def put_together(*chunks: dict[str, Any], **options: Any) -> dict[str, Any]:
    assembly = Assembly(**options)
    for chunk in chunks:
        assembly.add(chunk)
    return assembly.document()


def delta(index: int = 0, finish_reason: str | None = None, logprobs: Any = None, **delta: Any) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": index, "delta": delta, "finish_reason": finish_reason}
    if logprobs is not None:
        choice["logprobs"] = logprobs
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def calls(*fragments: dict[str, Any]) -> list[Any]:
    made: list[Any] = put_together(*[delta(tool_calls=[each]) for each in fragments])["choices"][0]["message"][
        "tool_calls"
    ]
    return made


def test_a_plain_answer() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    document = put_together(
        delta(role="assistant", content=""),
        delta(content="Hel"),
        delta(content="lo", reasoning_content="hm"),
        delta(finish_reason="stop"),
        {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage},
    )
    assert document == {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello", "reasoning_content": "hm"},
                "finish_reason": "stop",
            }
        ],
        "usage": usage,
    }


def test_fields_that_nobody_knows_are_kept() -> None:
    document = put_together(
        {**delta(content="x"), "system_fingerprint": "fp", "timings": {"n": 1}},
        {**delta(finish_reason="stop"), "system_fingerprint": None, "timings": {"n": 2}},
    )
    assert document["system_fingerprint"] == "fp"
    assert document["timings"] == {"n": 2}


def test_no_content_is_what_the_backend_would_have_said() -> None:
    for no_content in (None, ""):
        document = put_together(delta(tool_calls=[{"index": 0, "id": "a"}]), no_content=no_content)
        assert document["choices"][0]["message"]["content"] == no_content


# ---- tool calls


def test_fragments_of_one_call_are_merged() -> None:
    """TD-01: id, type and name once; only arguments are appended; two entries of one chunk too."""
    document = put_together(
        delta(
            role="assistant",
            tool_calls=[
                {"index": 0, "id": "call_t1", "type": "function", "function": {"name": "lookup_tide", "arguments": ""}},
                {"index": 0, "function": {"arguments": '{"port":'}},
            ],
        ),
        delta(
            tool_calls=[
                {
                    "index": 0,
                    "id": "call_t1",
                    "type": "function",
                    "function": {"name": "lookup_tide", "arguments": '"Oban"}'},
                }
            ]
        ),
        delta(finish_reason="tool_calls"),
    )
    (call,) = document["choices"][0]["message"]["tool_calls"]
    assert (call["id"], call["type"], call["function"]["name"]) == ("call_t1", "function", "lookup_tide")
    assert json.loads(call["function"]["arguments"]) == {"port": "Oban"}
    assert "index" not in call
    assert document["choices"][0]["finish_reason"] == "tool_calls"


def test_calls_of_several_indexes_do_not_mix() -> None:
    """TD-01"""
    made = calls(
        {"index": 0, "id": "a", "function": {"name": "f", "arguments": "1"}},
        {"index": 1, "id": "b", "function": {"name": "g", "arguments": "2"}},
        {"index": 0, "function": {"arguments": "1"}},
        {"index": 1, "function": {"arguments": "2"}},
    )
    assert [(call["id"], call["function"]) for call in made] == [
        ("a", {"name": "f", "arguments": "11"}),
        ("b", {"name": "g", "arguments": "22"}),
    ]


def test_whole_calls_without_an_index_are_calls_of_their_own() -> None:
    made = calls({"id": "a", "function": {"name": "f"}}, {"id": "b", "function": {"name": "f"}})
    assert [call["id"] for call in made] == ["a", "b"]


def test_no_arguments_are_an_empty_object_and_bad_ones_are_left_alone() -> None:
    """TD-03"""
    made = calls(
        {"index": 0, "id": "c1", "type": "function", "function": {"name": "read_clock", "arguments": ""}},
        {"index": 1, "id": "c2", "type": "function", "function": {"name": "read_clock"}},
        {"index": 2, "id": "c3", "type": "function", "function": {"name": "read_clock", "arguments": "{oops"}},
    )
    assert [call["function"]["arguments"] for call in made] == ["{}", "{}", "{oops"]


def test_arguments_that_are_an_object_become_text() -> None:
    (call,) = calls({"index": 0, "id": "a", "function": {"name": "f", "arguments": {"port": "Oban"}}})
    assert json.loads(call["function"]["arguments"]) == {"port": "Oban"}


# ---- choices


def logprob(token: str) -> dict[str, Any]:
    return {"content": [{"token": token, "logprob": -0.1, "bytes": [ord(token)], "top_logprobs": []}]}


def test_choices_and_their_logprobs_do_not_mix() -> None:
    """CH-01: n = 2, logprobs in order, an empty top_logprobs stays empty."""
    document = put_together(
        delta(1, content="B", logprobs=logprob("B")),
        delta(0, content="A", logprobs=logprob("A")),
        delta(1, content="1", logprobs=logprob("1")),
        delta(0, content="0", logprobs=logprob("0")),
        delta(1, "stop"),
        delta(0, "length"),
    )
    first, second = document["choices"]
    assert (first["index"], first["message"]["content"], first["finish_reason"]) == (0, "A0", "length")
    assert (second["index"], second["message"]["content"], second["finish_reason"]) == (1, "B1", "stop")
    assert [entry["token"] for entry in first["logprobs"]["content"]] == ["A", "0"]
    assert [entry["token"] for entry in second["logprobs"]["content"]] == ["B", "1"]
    assert all(entry["top_logprobs"] == [] for entry in first["logprobs"]["content"])


def test_null_logprobs_stay_null() -> None:
    choice = {"index": 0, "delta": {"content": "x"}, "logprobs": None}
    assert put_together({"choices": [choice]}, {"choices": [choice]})["choices"][0]["logprobs"] is None


def test_putting_together_changes_no_chunk() -> None:
    part = delta(content="x", logprobs=logprob("x"))
    before = json.dumps(part)
    put_together(part, delta(content="y", logprobs=logprob("y")))
    assert json.dumps(part) == before


@given(st.lists(st.text(max_size=5), min_size=1, max_size=8))
def test_text_is_the_sum_of_its_pieces(pieces: list[str]) -> None:
    document = put_together(*[delta(content=piece) for piece in pieces], delta(finish_reason="stop"))
    assert document["choices"][0]["message"]["content"] == "".join(pieces)


@pytest.mark.parametrize(
    "stream",
    [b"data: [DONE]\n\n", b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'],
)
def test_what_did_not_come_to_its_end_is_not_whole(stream: bytes) -> None:
    assembly = Assembly()
    assert assembly.feed(stream) is None
    assert not assembly.whole
