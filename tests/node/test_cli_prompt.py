"""A chat request as an agent's prompt."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.errors import Failure
from iop.node.adapters.cli.prompt import render


def prompt(*messages: Any, whole: bool = True) -> str:
    return render({"messages": list(messages)}, whole=whole)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def answer(content: Any, **members: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **members}


def parts(*texts: str) -> list[Any]:
    return [{"type": "text", "text": text} for text in texts]


SYSTEM = {"role": "system", "content": "Be terse."}
CALLS = [{"id": "c1", "type": "function", "function": {"name": "lookup_tide", "arguments": "{}"}}]
TOOL = {"role": "tool", "tool_call_id": "c1", "content": "2.1 m"}


@pytest.mark.parametrize("text", ["-1 + 2 = ?", "--help", "; touch x; $(id) `id`", "a\0b", "x" * 200_000, " é🌍\n"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_lone_user_message_is_its_text(text: str, whole: bool) -> None:
    """CL-03: character for character."""
    assert prompt(user(text), whole=whole) == text


def test_a_conversation() -> None:
    assert prompt(user("one"), answer("two"), user("three")) == "User:\none\n\nAssistant:\ntwo\n\nUser:\nthree"


@pytest.mark.parametrize("silence", [{"content": None}, {}, {"content": ""}, {"content": []}])
def test_an_answer_that_only_calls(silence: dict[str, Any]) -> None:
    """MS-01: content null, absent or empty beside tool calls, and the result after it, in order."""
    told = prompt(user("tide?"), {"role": "assistant", **silence, "tool_calls": CALLS}, TOOL)
    assert told == "User:\ntide?\n\nAssistant:\n[called lookup_tide with {}]\n\nTool result of lookup_tide:\n2.1 m"


def test_an_answer_without_words_is_left_out() -> None:
    """MS-01"""
    assert prompt(user("a"), answer(""), user("b")) == "User:\na\n\nUser:\nb"
    assert prompt(user("a"), answer(None, refusal="no"), user("b")) == "User:\na\n\nAssistant:\nno\n\nUser:\nb"


def test_parts() -> None:
    """MS-02: every text part, in order, in every role."""
    told = prompt(
        {"role": "system", "content": parts("Be terse.", "Use metres.")},
        user(parts("one", "two")),
        answer(parts("ok"), tool_calls=CALLS),
        {"role": "tool", "tool_call_id": "c1", "content": parts("22.5 C")},
    )
    assert told == (
        "System:\nBe terse.\nUse metres.\n\nUser:\none\ntwo\n\nAssistant:\nok\n[called lookup_tide with {}]\n\n"
        "Tool result of lookup_tide:\n22.5 C"
    )


def test_developer_is_system() -> None:
    """MS-03: in front of the talk, each in its order."""
    developer = {"role": "developer", "content": "Answer in rhyme."}
    assert prompt(developer, user("hi")) == "System:\nAnswer in rhyme.\n\nUser:\nhi"
    assert prompt(SYSTEM, user("a"), answer("b"), developer, user("c")) == (
        "System:\nBe terse.\n\nSystem:\nAnswer in rhyme.\n\nUser:\na\n\nAssistant:\nb\n\nUser:\nc"
    )


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([SYSTEM, user("a"), answer("b"), user("c"), user(parts("d", "e"))], "c\n\nd\ne"),
        ([SYSTEM, user("a"), answer("b"), user("c"), SYSTEM, user("d")], "c\n\nd"),
        ([SYSTEM, user("a"), answer("b")], "a"),
        ([user("x"), answer("y"), user("a"), answer("b"), answer("c")], "a"),
        ([user([{"type": "image_url"}]), answer("b"), user("c")], "c"),
        ([user("a"), answer(None, tool_calls=CALLS), TOOL], "Tool result:\n2.1 m"),
        ([user("a"), answer("", tool_calls=CALLS), TOOL, user("b")], "Tool result:\n2.1 m\n\nUser:\nb"),
    ],
)
def test_the_last_turn(messages: list[Any], told: str) -> None:
    """An agent that has the conversation gets what came after its last answer."""
    assert prompt(*messages, whole=False) == told


def test_other_shapes_of_tools() -> None:
    call = {"role": "assistant", "function_call": {"name": "f", "arguments": {"a": "é"}}}
    custom = answer("", tool_calls=[{"id": "c2", "type": "custom", "custom": {"name": "g", "input": "raw"}}, 7, {}])
    results = [{"role": "function", "name": "f", "content": "1"}, {"role": "tool", "tool_call_id": "c2", "content": ""}]
    assert prompt(call, custom, *results) == (
        'Assistant:\n[called f with {"a": "é"}]\n\nAssistant:\n[called g with raw]\n\n'
        "Tool result of f:\n1\n\nTool result of g:\n(empty)"
    )


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([SYSTEM, user([*parts("a"), {"type": "image_url", "image_url": {"url": "x"}}])], "messages[1].content[1]"),
        ([user([{"type": "input_audio", "input_audio": {}}])], "messages[0].content[0]"),
        ([user([{"type": "file", "file": {}}])], "messages[0].content[0]"),
        ([user(["a"])], "messages[0].content[0]"),
        ([user([{"type": "text", "text": None}])], "messages[0].content[0]"),
        ([user([{"type": ["text"]}])], "messages[0].content[0]"),
        ([user("a"), answer("b"), user(None)], "messages[2].content"),
        ([{"role": "user"}], "messages[0].content"),
        ([user(7)], "messages[0].content"),
        ([user("a"), {"role": "wizard", "content": "b"}], "messages[1].role"),
        ([{"content": "b"}], "messages[0].role"),
        (["a"], "messages[0]"),
        ([], "messages"),
        ([user(" \n")], "messages"),
        ([user([])], "messages"),
        ([SYSTEM], "messages"),
        ([SYSTEM, user("")], "messages"),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_what_an_agent_cannot_be_told(messages: list[Any], param: str, whole: bool) -> None:
    """MS-01, MS-02: a 400 that names the message and the part."""
    with pytest.raises(Failure) as caught:
        prompt(*messages, whole=whole)
    assert (caught.value.code, caught.value.http_status, caught.value.param) == ("invalid_value", 400, param)


def test_messages_that_are_no_list() -> None:
    with pytest.raises(Failure, match="must be a list"):
        render({}, whole=True)


def test_half_a_character() -> None:
    """UTF-01: what UTF-8 cannot carry is U+FFFD."""
    assert prompt(user("a\ud83cb")) == "a\ufffdb"


JUNK = st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda v: st.lists(v, max_size=2), max_leaves=4)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"]) | JUNK},
    optional={
        "content": JUNK | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": JUNK}), max_size=2),
        "tool_calls": JUNK | st.just(CALLS),
        "function_call": JUNK,
        "tool_call_id": JUNK,
        "name": JUNK,
    },
)


@given(st.lists(MESSAGE | JUNK, max_size=5), st.booleans())
def test_any_messages_are_a_prompt_or_a_failure(messages: list[Any], whole: bool) -> None:
    try:
        made = prompt(*messages, whole=whole)
    except Failure as failure:
        made = failure.code
    assert made.encode().strip()
