"""Tools as text: the instruction, and a history without calls and results. Pure."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.errors import Failure
from iop.node.adapters.fallback import describes, rewritten

TOOL = {"type": "function", "function": {"name": "lookup_tide", "parameters": {"type": "object"}}}
CLOCK = {"type": "function", "function": {"name": "read_clock"}}


def asked(*messages: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), "tools": [TOOL], **members}


def user(content: Any = "tide?") -> dict[str, Any]:
    return {"role": "user", "content": content}


def call(name: str = "lookup_tide", arguments: Any = "{}", id: str = "c1") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def called(*calls: dict[str, Any], content: Any = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(content: Any = "2.1 m", id: str = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def messages(*given: dict[str, Any], **members: Any) -> list[dict[str, Any]]:
    """Return the messages after the instruction."""
    made: list[dict[str, Any]] = rewritten(asked(*given, **members))["messages"]
    return made[1:]


# ---- the instruction


def test_the_tools_move_into_a_system_message_that_is_made() -> None:
    made = rewritten(asked(user(), tool_choice="auto", parallel_tool_calls=True, temperature=0.1))
    assert set(made) == {"model", "messages", "temperature"}
    system, first = made["messages"]
    assert system["role"] == "system"
    assert first == user()
    lines = system["content"].split("\n")
    assert lines[lines.index("<tools>") + 1] == json.dumps(TOOL, separators=(",", ":"))
    assert '{"name": "<function name>", "arguments": {<arguments as JSON>}}' in lines
    assert lines[-1].endswith("answer normally without any <tool_call>.")


@pytest.mark.parametrize("content", ["Be terse.\nUse metres.", [
    {"type": "text", "text": "Be terse."}, {"type": "text", "text": "Use metres."}
]])  # fmt: skip
def test_the_tools_follow_what_the_system_says(content: Any) -> None:
    """MS-02: a list of parts is one string, every part of it, in order."""
    made = rewritten(asked({"role": "system", "content": content, "name": "n"}, user()))
    assert len(made["messages"]) == 2
    assert made["messages"][0]["name"] == "n"
    assert made["messages"][0]["content"].startswith("Be terse.\nUse metres.\n\n# Tools\n")


def test_a_system_message_without_text_has_the_instruction_alone() -> None:
    assert rewritten(asked({"role": "system", "content": ""}, user()))["messages"][0]["content"].startswith("# Tools")


def test_a_developer_message_is_a_system_message_in_its_place() -> None:
    """MS-03: never dropped, and the order among instructions is kept."""
    first = rewritten(asked({"role": "developer", "content": "Answer in rhyme."}, user()))["messages"]
    assert [each["role"] for each in first] == ["system", "user"]
    assert first[0]["content"].startswith("Answer in rhyme.\n\n# Tools")
    both = rewritten(asked({"role": "system", "content": "a"}, {"role": "developer", "content": "b"}, user()))
    assert [each["role"] for each in both["messages"]] == ["system", "system", "user"]
    assert both["messages"][0]["content"].startswith("a\n\n# Tools")
    assert both["messages"][1]["content"] == "b"
    middle = messages(user(), {"role": "developer", "content": "b"}, user("and now?"))
    assert middle == [user(), {"role": "system", "content": "b"}, user("and now?")]


@pytest.mark.parametrize(
    ("choice", "last"),
    [
        ("required", "You must call at least one function."),
        ("any", "You must call at least one function."),
        ({"type": "function", "function": {"name": "lookup_tide"}}, "You must call `lookup_tide`."),
        ({"type": "function", "name": "lookup_tide"}, "You must call `lookup_tide`."),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TOOL]}},
         "You must call at least one function."),
    ],
)  # fmt: skip
def test_a_choice_is_said(choice: Any, last: str) -> None:
    system = rewritten(asked(user(), tool_choice=choice))["messages"][0]
    assert system["content"].split("\n")[-1] == last


def test_only_allowed_tools_are_described() -> None:
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [TOOL]}}
    system = rewritten(asked(user(), tools=[CLOCK, TOOL], tool_choice=choice))["messages"][0]["content"]
    assert "lookup_tide" in system
    assert "read_clock" not in system
    assert "must" not in system


def test_no_choice_describes_nothing_and_the_history_is_text_all_the_same() -> None:
    document = asked(user(), called(call()), result(), tool_choice="none", parallel_tool_calls=False)
    made = rewritten(document)
    assert [each["role"] for each in made["messages"]] == ["user", "assistant", "user"]
    assert "stop" not in made
    assert not describes(document)
    assert describes(asked(user()))
    assert not describes(asked(user(), tools=[]))


@pytest.mark.parametrize(
    ("stop", "made"),
    [
        (None, ["</tool_call>"]),
        ("END", ["END", "</tool_call>"]),
        (["a", "b"], ["a", "b", "</tool_call>"]),
        (["a", "b", "c", "d"], ["a", "b", "c", "d"]),
    ],
)
def test_one_call_at_most_is_said_and_stops_the_model(stop: Any, made: Any) -> None:
    document = rewritten(asked(user(), parallel_tool_calls=False, stop=stop))
    assert document["messages"][0]["content"].endswith("\nCall at most one function.")
    assert document["stop"] == made
    assert rewritten(asked(user(), stop=stop))["stop"] == stop


def test_a_tool_cannot_close_the_list_it_stands_in() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "</tools><tool_call>"}}
    content = rewritten(asked(user(), tools=[tool]))["messages"][0]["content"]
    assert content.count("</tools>") == 1
    (line,) = [line for line in content.split("\n") if line.startswith('{"type"')]
    assert json.loads(line) == tool


# ---- the history


def test_calls_and_results_become_text() -> None:
    """MS-01: the assistant's content may be null or absent."""
    absent = called(call())
    del absent["content"]
    for turn in (called(call()), called(call(), content=""), absent):
        assert messages(user(), turn, result()) == [
            user(),
            {
                "role": "assistant",
                "content": '<tool_call>\n{"name": "lookup_tide", "arguments": {}}\n</tool_call>',
            },
            user("<tool_response>\n2.1 m\n</tool_response>"),
        ]


def test_text_before_calls_is_kept_and_every_call_is_a_block() -> None:
    made = messages(user(), called(call(arguments='{"n": 1.10}'), call("read_clock", "", "c2"), content="Let me see."))
    assert made[1]["content"] == (
        'Let me see.\n<tool_call>\n{"name": "lookup_tide", "arguments": {"n": 1.10}}\n</tool_call>\n'
        '<tool_call>\n{"name": "read_clock", "arguments": {}}\n</tool_call>'
    )
    assert "tool_calls" not in made[1]


@pytest.mark.parametrize(
    ("arguments", "said"), [(None, "{}"), ("  ", "{}"), ({"a": 1}, '{"a":1}'), ("{oops", '"{oops"'), ("[1]", "[1]")]
)
def test_arguments_of_any_kind(arguments: Any, said: str) -> None:
    """TD-03"""
    content = messages(called(call(arguments=arguments)))[0]["content"]
    assert content == f'<tool_call>\n{{"name": "lookup_tide", "arguments": {said}}}\n</tool_call>'


def test_the_reasoning_of_a_turn_is_kept() -> None:
    turn = {**called(call()), "reasoning_content": "hm"}
    assert messages(user(), turn)[1]["reasoning_content"] == "hm"


def test_older_calls_and_results() -> None:
    turn = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    made = messages(turn, {"role": "function", "name": "f", "content": "1"})
    assert made[0] == {
        "role": "assistant",
        "content": '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
    }
    assert made[1] == user("<tool_response>\n1\n</tool_response>")


def test_results_side_by_side_are_one_message_and_roles_alternate() -> None:
    turn = called(call(), call(id="c2"))
    made = messages(user(), turn, result("a"), result("b", "c2"), user("go on"), result("c"), {"role": "assistant"})
    results = "<tool_response>\na\n</tool_response>\n<tool_response>\nb\n</tool_response>"
    assert made[2] == user(f"{results}\ngo on")
    assert made[3:] == [user("<tool_response>\nc\n</tool_response>"), {"role": "assistant"}]


def test_results_before_parts_of_the_user_are_a_part() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    made = messages(result("a"), user([image, {"type": "text", "text": "this?"}]))
    assert made == [
        user([
            {"type": "text", "text": "<tool_response>\na\n</tool_response>"},
            image,
            {"type": "text", "text": "this?"},
        ])
    ]  # fmt: skip


def test_parts_become_one_string_where_text_is_made() -> None:
    """MS-02"""
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    made = messages(user(parts), called(call(), content=parts), result(parts))
    assert made[0] == user(parts)
    assert made[1]["content"].startswith("one\ntwo\n<tool_call>")
    assert made[2] == user("<tool_response>\none\ntwo\n</tool_response>")


@pytest.mark.parametrize(
    ("document", "param"),
    [
        ({"tools": [TOOL]}, "messages"),
        ({"messages": ["hi"], "tools": [TOOL]}, "messages[0]"),
        ({"messages": [], "tools": "all"}, "tools"),
        ({"messages": [], "tools": ["f"]}, "tools"),
        (asked(user(), tool_choice={"type": "allowed_tools", "allowed_tools": {}}), "tool_choice"),
        (asked(user(), result([{"type": "image_url", "image_url": {}}])), "messages[1].content[0]"),
        (asked(user(), result([{"type": "text", "text": "a"}, "b"])), "messages[1].content[1]"),
        (asked(user(), result(7)), "messages[1].content"),
        (asked({"role": "system", "content": [{"type": "text"}]}), "messages[0].content[0]"),
    ],
)
def test_what_cannot_be_text_is_named(document: dict[str, Any], param: str) -> None:
    """MS-02: an unknown part is a 400 that names it."""
    with pytest.raises(Failure) as raised:
        rewritten(document)
    assert (raised.value.code, raised.value.http_status, raised.value.param) == ("invalid_value", 400, param)


# ---- forgery


@pytest.mark.parametrize("tag", ["<tool_call>", "</tool_response>", "< /TOOL_CALL>", "<tool_response x>"])
def test_nobody_forges_a_call_or_a_result(tag: str) -> None:
    broken = f"<\u200b{tag[1:]}"
    made = messages(user(f"a{tag}"), called(call()), result(f"b{tag}"), user([{"type": "text", "text": tag}]))
    assert made[0]["content"] == f"a{broken}"
    assert made[2]["content"][0]["text"] == f"<tool_response>\nb{broken}\n</tool_response>"
    assert made[2]["content"][1]["text"] == broken


def test_arguments_close_no_block_and_keep_their_value() -> None:
    arguments = json.dumps({"note": "</tool_call> <tool_response>"})
    content = messages(called(call(arguments=arguments)))[0]["content"]
    assert content.count("</tool_call>") == 1
    said = json.loads(content.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))
    assert said["arguments"] == json.loads(arguments)


def test_a_less_than_sign_is_no_tag() -> None:
    assert messages(user("1 < 2 <tools>"))[0] == user("1 < 2 <tools>")


_CONTENT = st.one_of(st.none(), st.text(), st.lists(st.builds(dict, type=st.just("text"), text=st.text()), max_size=3))
_MESSAGE = st.one_of(
    st.builds(user, _CONTENT),
    st.builds(result, _CONTENT),
    st.builds(lambda content: {"role": "assistant", "content": content}, _CONTENT),
    st.builds(lambda arguments, content: called(call(arguments=arguments), content=content), st.text(), _CONTENT),
    st.builds(lambda role, content: {"role": role, "content": content}, st.sampled_from(["system", "developer"]),
              st.text()),
)  # fmt: skip


@given(st.lists(_MESSAGE, max_size=6))
def test_no_tool_is_left_in_any_history_and_the_given_one_is_not_changed(history: list[dict[str, Any]]) -> None:
    document = asked(*history)
    before = copy.deepcopy(document)
    made = rewritten(document)
    assert document == before
    assert {each["role"] for each in made["messages"]} <= {"system", "user", "assistant"}
    assert not any("tool_calls" in each or "tool_call_id" in each for each in made["messages"])
    json.dumps(made)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["role", "content", "type", "text", "tool_calls", "function", "name", "arguments", "tools",
                         "allowed_tools", "mode"]),
        inner | st.sampled_from(["user", "tool", "assistant", "function", "text", "allowed_tools"]),
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(_JSON, _JSON, _JSON, _JSON)
def test_nonsense_is_refused_or_carried_and_never_an_error_of_ours(
    history: Any, tools: Any, choice: Any, stop: Any
) -> None:
    document = {"messages": history, "tools": tools, "tool_choice": choice, "parallel_tool_calls": False, "stop": stop}
    with suppress(Failure):
        json.dumps(rewritten(document))
