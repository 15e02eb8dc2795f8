"""OpenAI chat requests as Ollama takes them, and its lines as they are read."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop import model as m
from iop.errors import Failure
from iop.node.adapters.ollama.chat import EFFORTS, chat_request, encoded, parsed
from iop.node.adapters.ollama.messages import NO_OBJECT
from iop.node.adapters.ollama.models import model_names, tools_of
from iop.node.adapters.ollama.reply import MAX_LINE, Reply, refusal, refuses_tools
from iop.node.adapters.switches import SWITCHES

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "lookup_tide", "parameters": {"type": "object"}}}
OTHER = {"type": "function", "function": {"name": "g"}}
PIXEL = "iVBORw0KGgo="
CONTEXT = 4096
UNASKED = m.Thinking()


def asked(*messages: Any, target: str = "qwen3:8b", wish: m.Thinking = UNASKED, **document: Any) -> Any:
    """Return the body for a request with these messages and members."""
    document = {"model": "the-clients", "messages": list(messages or (USER,)), **document}
    return chat_request(document, target, CONTEXT, thinking=wish).body


def refused(*messages: Any, **document: Any) -> Failure:
    with pytest.raises(Failure) as raised:
        asked(*messages, **document)
    assert raised.value.code == "invalid_value"
    assert raised.value.http_status == 400
    assert f"`{raised.value.param}`" in raised.value.message
    return raised.value


def test_a_plain_request() -> None:
    """RE-01, OL-02: a stream, nothing that nobody asked for, and no silent cut."""
    assert asked() == {
        "model": "qwen3:8b",
        "messages": [USER],
        "stream": True,
        "truncate": False,
        "options": {"num_ctx": CONTEXT},
    }


# ---- messages


def test_tool_calls_and_results() -> None:
    """OL-01, MS-01: arguments are an object; a result says whose it is; no text "None"."""
    call = {"id": "c1", "type": "function", "function": {"name": "lookup_tide", "arguments": '{"port":"Öban","n":2}'}}
    history = (
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "2.1"},
    )
    made = chat_request({"messages": list(history)}, "t", CONTEXT)
    assert made.warnings == ()
    arguments = {"port": "Öban", "n": 2}
    assert made.body["messages"][1:] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "function": {"index": 0, "name": "lookup_tide", "arguments": arguments}}],
        },
        {"role": "tool", "content": "2.1", "tool_call_id": "c1", "tool_name": "lookup_tide"},
    ]


@pytest.mark.parametrize(
    ("function", "arguments", "warned"),
    [
        ({"arguments": ""}, {}, False),
        ({"arguments": " "}, {}, False),
        ({}, {}, False),
        ({"arguments": None}, {}, False),
        ({"arguments": {"a": 1}}, {"a": 1}, False),
        ({"arguments": "{oops"}, {NO_OBJECT: "{oops"}, True),
        ({"arguments": "[1]"}, {NO_OBJECT: "[1]"}, True),
        ({"arguments": "[" * 100_000}, {NO_OBJECT: "[" * 100_000}, True),
        ({"arguments": 7}, {NO_OBJECT: 7}, True),
    ],
)
def test_arguments_that_a_model_wrote(function: Any, arguments: Any, warned: bool) -> None:
    """OL-01 bad_history, TD-03: nothing is no argument; nonsense is marked as such, and somebody is told."""
    message = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "f", **function}}]}
    made = chat_request({"messages": [message]}, "t", CONTEXT)
    assert made.body["messages"][0]["tool_calls"][0]["function"]["arguments"] == arguments
    assert [warning.partition(" ")[0] for warning in made.warnings] == (
        ["messages[0].tool_calls[0].function.arguments"] if warned else []
    )
    assert "oops" not in str(made.warnings)


@pytest.mark.parametrize("message", [{"content": ""}, {"content": None}, {}])
def test_an_assistant_that_said_nothing(message: Any) -> None:
    """MS-01"""
    assert asked(USER, {"role": "assistant", **message})["messages"][1] == {"role": "assistant", "content": ""}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_what_an_assistant_thought(name: str) -> None:
    """RE-01"""
    message = asked(USER, {"role": "assistant", "content": "42", name: "hmm"})["messages"][1]
    assert message == {"role": "assistant", "content": "42", "thinking": "hmm"}


def test_a_result_nobody_asked_for_goes_by_its_own_name() -> None:
    assert asked({"role": "tool", "content": "x", "tool_call_id": "?", "name": "f"})["messages"] == [
        {"role": "tool", "content": "x", "tool_call_id": "?", "tool_name": "f"}
    ]
    assert asked({"role": "tool", "content": None})["messages"] == [{"role": "tool", "content": ""}]


def parts(*texts: str) -> list[Any]:
    return [{"type": "text", "text": text} for text in texts]


def test_parts_become_one_string_a_message() -> None:
    """MS-02"""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    body = asked(
        {"role": "system", "content": parts("Be terse.", "Use metres.")},
        {"role": "user", "content": parts("one", "two")},
        {"role": "assistant", "content": parts("ok"), "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": parts("22.5 C")},
    )
    assert [(turn["role"], turn["content"]) for turn in body["messages"]] == [
        ("system", "Be terse.\nUse metres."),
        ("user", "one\ntwo"),
        ("assistant", "ok"),
        ("tool", "22.5 C"),
    ]


def test_instructions_come_first_in_their_order_whatever_their_role() -> None:
    """MS-03: some of Ollama's templates drop every system message but the first."""
    body = asked(
        {"role": "system", "content": "A."},
        {"role": "developer", "content": "B."},
        USER,
        {"role": "developer", "content": "C."},
        USER,
    )
    assert body["messages"] == [{"role": "system", "content": "A.\n\nB.\n\nC."}, USER, USER]


def test_images_are_bare_base64() -> None:
    content = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "image_url", "image_url": f"DATA:;Base64,{PIXEL}"},
    ]
    assert asked({"role": "user", "content": content})["messages"] == [
        {"role": "user", "content": "look", "images": [PIXEL, PIXEL]}
    ]


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1/x.png", "https://h/x", "file:///etc/passwd", "data:image/png,x", "data:;base64,", None,
            "data:;base64,%%%%", "data:;base64,abc", f"data:;base64,{PIXEL}é", 7]
)  # fmt: skip
def test_images_are_never_fetched(url: Any) -> None:
    failure = refused({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]})
    assert failure.param == "messages[0].content[0].image_url.url"
    assert "10.0.0.1" not in failure.message


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user", "content": None}, "content"),
        ({"role": "user"}, "content"),
        ({"role": "system", "content": None}, "content"),
        ({"role": "user", "content": 7}, "content"),
        ({"role": "user", "content": [{"type": "video", "text": "x"}]}, "content[0]"),
        ({"role": "user", "content": [*parts("a"), "b"]}, "content[1]"),
        ({"role": "user", "content": [{"type": ["text"]}]}, "content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "content[0].text"),
        ({"role": "system", "content": [{"type": "image_url", "image_url": f"data:;base64,{PIXEL}"}]}, "content"),
        ({"role": "critic", "content": "x"}, "role"),
        ({"content": "x"}, "role"),
        ({"role": ["user"], "content": "x"}, "role"),
        ({"role": "assistant", "tool_calls": {}}, "tool_calls"),
        ({"role": "assistant", "tool_calls": [7]}, "tool_calls[0].function.name"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": ""}}]}, "tool_calls[0].function.name"),
    ],
)
def test_messages_that_are_none(message: Any, param: str) -> None:
    """MS-01, MS-02: a 400 that names the message and the part, never silence."""
    assert refused(USER, message).param == f"messages[1].{param}"


def test_messages_must_be_a_list_of_objects() -> None:
    assert refused("x").param == "messages[0]"
    with pytest.raises(Failure, match="messages"):
        chat_request({"messages": "hi"}, "t", CONTEXT)


# ---- options


def test_sampling_is_options_and_zero_is_a_value() -> None:
    """PA-01"""
    body = asked(temperature=0, top_p=0.5, top_k=0, seed=0, min_p=0, presence_penalty=0, frequency_penalty=-1, stop="x")
    assert body["options"] == {
        "temperature": 0, "top_p": 0.5, "top_k": 0, "seed": 0, "min_p": 0, "presence_penalty": 0,
        "frequency_penalty": -1, "stop": ["x"], "num_ctx": CONTEXT,
    }  # fmt: skip
    assert asked(stop=["a", "b"])["options"] == {"stop": ["a", "b"], "num_ctx": CONTEXT}
    assert asked(temperature=None, stop=None, user="u", metadata={}) == asked()


@pytest.mark.parametrize(
    ("limits", "num_predict"),
    [
        ({"max_tokens": 900}, 900),
        ({"max_completion_tokens": 300, "max_tokens": 900}, 300),
        ({"max_completion_tokens": None, "max_tokens": 12.0}, 12),
    ],
)
def test_limits(limits: Any, num_predict: int) -> None:
    """PA-03"""
    assert asked(**limits)["options"] == {"num_predict": num_predict, "num_ctx": CONTEXT}


@pytest.mark.parametrize("limit", [0, -1, "12", True, 1.5, float("inf"), float("nan"), []])
def test_limits_that_are_none(limit: Any) -> None:
    """PA-03"""
    assert refused(max_tokens=limit).param == "max_tokens"


def test_num_ctx_is_the_configured_one_whatever_a_client_wants() -> None:
    """OL-02: always the same, so that the model is not loaded anew."""
    for options in ({}, {"num_ctx": 8192}, {"num_ctx": 99999, "num_gpu": 1}):
        made = chat_request({"messages": [USER], "options": options}, "t", 32768, keep_alive="10m")
        assert (made.body["options"], made.body["keep_alive"]) == ({"num_ctx": 32768}, "10m")
    assert chat_request({"messages": []}, "t", CONTEXT, keep_alive=0).body["keep_alive"] == 0


def test_n_is_one() -> None:
    assert asked(n=1) == asked(n=None) == asked()
    assert refused(n=2).param == "n"


def test_log_probabilities_by_their_names() -> None:
    body = asked(logprobs=True, top_logprobs=0)
    assert (body["logprobs"], body["top_logprobs"]) == (True, 0)


def test_formats() -> None:
    assert "format" not in asked(response_format={"type": "text"})
    assert asked(response_format={"type": "json_object"})["format"] == "json"
    schema = {"type": "object", "properties": {"a": {"const": 1}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert asked(response_format=wanted)["format"] == schema
    assert refused(response_format={"type": "xml"}).param == "response_format.type"
    assert refused(response_format=7).param == "response_format.type"
    for without in ({}, {"json_schema": 7}, {"json_schema": {"schema": None}}):
        failure = refused(response_format={"type": "json_schema", **without})
        assert failure.param == "response_format.json_schema.schema"


@pytest.mark.parametrize("effort", EFFORTS)
def test_effort(effort: str) -> None:
    """RE-01"""
    assert asked(reasoning_effort=effort)["think"] == EFFORTS[effort]


def test_thinking_only_when_somebody_asks() -> None:
    """RE-01: the client's own word goes first; a budget alone asks for nothing, Ollama has none."""
    assert asked(reasoning_effort="xhigh", target="gpt-oss:20b")["think"] == "high"
    assert asked(reasoning_effort="low", target="gpt-oss:20b")["think"] == "low"
    assert asked(wish=m.Thinking("on"))["think"] is True
    assert "think" not in asked(wish=m.Thinking("on", 100))
    assert asked(wish=m.Thinking("off"))["think"] is False
    assert asked(reasoning_effort="low", wish=m.Thinking("on"))["think"] == "low"
    assert "think" not in asked(wish=m.Thinking("unset", 100), reasoning_effort=None)


def client(path: str, value: Any) -> dict[str, Any]:
    """Return a client's members with this value at a dotted path."""
    top, _, leaf = path.partition(".")
    return {top: {leaf: value, "other": 1}} if leaf else {top: value}


@pytest.mark.parametrize("path", SWITCHES)
@pytest.mark.parametrize("wish", [UNASKED, m.Thinking("on"), m.Thinking("off")])
def test_what_a_client_says_under_any_name_goes_first(path: str, wish: m.Thinking) -> None:
    no = SWITCHES[path]
    yes = {False: True, "none": "low", "disabled": "enabled"}[no]
    assert asked(wish=wish, **client(path, no))["think"] is False
    assert asked(wish=wish, **client(path, yes))["think"] == ("low" if yes == "low" else True)
    assert asked(wish=wish, **client(path, None)) == asked(wish=wish)
    assert asked(wish=wish, **{path.partition(".")[0]: None}) == asked(wish=wish)


def test_a_no_goes_before_a_level_and_a_level_before_a_yes() -> None:
    assert asked(reasoning_effort="high", think=False)["think"] is False
    assert asked(reasoning={"enabled": True, "effort": "low"})["think"] == "low"
    assert asked(think="max", reasoning_effort="low")["think"] == "max"
    assert asked(think="none")["think"] is False
    assert asked(reasoning={"effort": "xhigh"}, enable_thinking=True, target="gpt-oss:20b")["think"] == "high"


@pytest.mark.parametrize(
    "members", [{"thinking": {"type": "adaptive"}}, {"thinking": {"budget_tokens": 5}}, {"thinking_token_budget": 5},
                {"reasoning": {"max_tokens": 5}}, {"reasoning": 7}, {"chat_template_kwargs": {"x": True}}]
)  # fmt: skip
def test_what_is_no_switch_asks_for_nothing(members: dict[str, Any]) -> None:
    assert "think" not in asked(**members)


@pytest.mark.parametrize("path", [path for path, no in SWITCHES.items() if no != "disabled"])
@pytest.mark.parametrize("value", ["very", 7, [], {}])
def test_switches_that_say_neither(path: str, value: Any) -> None:
    assert refused(**client(path, value)).param == path


# ---- tools


def test_tools_and_the_choice_among_them() -> None:
    named = {"type": "function", "function": {"name": "g"}}
    assert asked(tools=[TOOL, OTHER], tool_choice="auto") == asked(tools=[TOOL, OTHER])
    assert asked(tools=[TOOL])["tools"] == [TOOL]
    assert (
        asked(tools=[TOOL], tool_choice="none") == asked(tools=[]) == asked(tools=None, tool_choice="none") == asked()
    )
    required = asked(tools=[TOOL, OTHER], tool_choice="required")
    assert required["tools"] == [TOOL, OTHER]
    assert required["messages"][0] == {"role": "system", "content": "You must call at least one function."}
    one = asked({"role": "system", "content": "Be terse."}, USER, tools=[TOOL, OTHER], tool_choice=named)
    assert one["tools"] == [OTHER]
    assert one["messages"][0]["content"] == "Be terse.\n\nYou must call the function `g`."


@pytest.mark.parametrize(
    ("document", "param"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": [TOOL, 7]}, "tools[1]"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0]"),
        ({"tools": [TOOL], "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "h"}}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": ["none"]}, "tool_choice"),
    ],
)
def test_tools_that_are_none(document: Any, param: str) -> None:
    assert refused(**document).param == param


# ---- bytes


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"\xff", b"1" * 5000])
def test_a_body_that_is_no_json(body: bytes) -> None:
    with pytest.raises(Failure) as raised:
        parsed(body)
    assert raised.value.code == "invalid_json"


def test_a_body_that_is_no_object() -> None:
    with pytest.raises(Failure, match="object"):
        parsed(b"[]")


def test_what_json_cannot_carry_is_refused_and_half_a_character_is_not() -> None:
    for number in (b"1e999", b"NaN"):
        with pytest.raises(Failure, match="number"):
            encoded(parsed(b'{"temperature":%b}' % number))
    assert encoded(parsed(rb'{"a":"\ud83dx"}')) == rb'{"a":"\ud83dx"}'


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["text", "user"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "function", "name"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["messages", "tools", "tool_choice", "n", "stop", "max_tokens", "response_format", "think", "reasoning"]
        ),
        json_values,
    ),
    st.lists(st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "tool_call_id"]), json_values)),
)
def test_nothing_but_a_failure_is_raised_whatever_a_client_sends(document: Any, messages: Any) -> None:
    with suppress(Failure):
        encoded(chat_request({"messages": messages, **document}, "t", CONTEXT).body)


# ---- lines


def line(content: str = "", done: str | None = None, **members: Any) -> bytes:
    """Return a line with a piece of text; ``done`` is the reason of the last one."""
    message = {"role": "assistant", "content": content, **members.pop("message", {})}
    ending = {"done": False} if done is None else {"done": True, "done_reason": done}
    return json.dumps({"model": "m", "message": message, **ending, **members}, ensure_ascii=False).encode() + b"\n"


def read(*reads: bytes, empty: bool = False) -> tuple[Reply, str, str]:
    """Return what became of these reads: the reply, its text, its reasoning."""
    ids = count(1)
    reply = Reply(lambda: f"call_{next(ids)}", CONTEXT, empty=empty)
    pieces = [piece for data in reads for piece in reply.feed(data)] + reply.end()
    return reply, "".join(piece.text for piece in pieces), "".join(piece.reasoning for piece in pieces)


CALL = {"function": {"name": "lookup_tide", "arguments": {"port": "Öban"}}}
LONG = (
    line(message={"thinking": "hm🌍"}) + line("那🌍é") + line("b", message={"tool_calls": [CALL]})
    + line(done="stop", prompt_eval_count=9, eval_count=4)
)  # fmt: skip


@given(st.lists(st.integers(0, len(LONG)), max_size=6))
def test_a_line_cut_anywhere_is_still_one_line(cuts: list[int]) -> None:
    """UTF-01, RE-01, FR-01, OL-01"""
    edges = [0, *sorted(cuts), len(LONG)]
    reply, text, reasoning = read(*[LONG[a:b] for a, b in pairwise(edges)])
    assert (text, reasoning, reply.finish_reason) == ("那🌍éb", "hm🌍", "tool_calls")
    assert reply.usage == m.Usage(9, 4)
    assert reply.tool_calls == [
        {"id": "call_1", "type": "function", "function": {"name": "lookup_tide", "arguments": '{"port": "Öban"}'}}
    ]


@given(st.integers(0, len(LONG) - 2))
def test_an_answer_cut_anywhere_is_not_whole(cut: int) -> None:
    reply, _, _ = read(LONG[:cut])
    assert reply.failure is not None
    assert (reply.failure.code, reply.failure.http_status) == ("upstream_error", 502)


def test_the_last_line_needs_no_line_end_and_blank_lines_are_nothing() -> None:
    reply, text, _ = read(b"\r\n" + line("a")[:-1] + b"\r\n\n" + line("b", "stop")[:-1])
    assert (reply.failure, text, reply.done) == (None, "ab", True)


@pytest.mark.parametrize(
    ("reason", "finish_reason"), [("stop", "stop"), ("length", "length"), ("", ""), ("load", ""), ("else", "")]
)
def test_endings(reason: str, finish_reason: str) -> None:
    """FR-01 variant_length; a runner that went away leaves the reason empty."""
    reply, _, _ = read(line("half a sen"), line(done=reason))
    assert (reply.finish_reason, reply.failure is None) == (finish_reason, bool(finish_reason))
    assert reply.usage == (m.Usage(0, 0) if finish_reason else None)


@pytest.mark.parametrize(("prompt", "cut"), [(CONTEXT - 1, False), (CONTEXT, True), (CONTEXT + 1, False)])
@pytest.mark.parametrize("reason", ["stop", "length"])
def test_a_prompt_that_fills_the_context_may_have_been_cut(prompt: int, cut: bool, reason: str) -> None:
    """OL-02: more tokens than the context that was asked for were not cut to it."""
    reply, text, _ = read(line("a"), line(done=reason, prompt_eval_count=prompt, eval_count=2))
    assert (text, reply.done, reply.usage) == ("a", not cut, m.Usage(prompt, 2))
    assert (reply.failure is not None) is cut
    if reply.failure is not None:
        assert (reply.failure.code, reply.failure.http_status) == ("context_length_exceeded", 400)
        assert str(CONTEXT) in reply.failure.message


@pytest.mark.parametrize("reason", [None, 7, ["stop"]])
def test_endings_that_are_none(reason: Any) -> None:
    assert read(json.dumps({"message": {}, "done": True, "done_reason": reason}).encode())[0].failure is not None


@pytest.mark.parametrize("reason", ["load", "unload"])
def test_a_request_without_messages_is_answered_by_loading(reason: str) -> None:
    reply, text, _ = read(line(done=reason), empty=True)
    assert (reply.finish_reason, text, reply.failure) == ("stop", "", None)


def test_a_cut_with_tool_calls_is_a_cut() -> None:
    """FR-01"""
    assert read(line(message={"tool_calls": [CALL]}), line(done="length"))[0].finish_reason == "length"


def test_tool_calls_in_every_shape() -> None:
    """TD-03, FR-01: arguments are a string, ids are there and differ."""
    calls = [
        {"id": "x", "function": {"name": "a"}},
        {"id": "x", "function": {"name": "b", "arguments": ""}},
        {"id": "", "function": {"name": "c", "arguments": "{oops"}},
        {"function": {"name": "d", "arguments": {}}},
    ]
    reply, _, _ = read(line(message={"tool_calls": calls}), line(done="stop"))
    assert [(call["id"], call["function"]["arguments"]) for call in reply.tool_calls] == [
        ("x", "{}"), ("call_1", "{}"), ("call_2", "{oops"), ("call_3", "{}"),
    ]  # fmt: skip


@pytest.mark.parametrize("call", [7, {}, {"function": {}}, {"function": {"name": ""}}])
def test_a_tool_call_without_a_name_is_a_failure(call: Any) -> None:
    assert read(line(message={"tool_calls": [call]}), line(done="stop"))[0].failure is not None


@pytest.mark.parametrize(
    "bad", [b"<html>\n", b"[]\n", b"7\n", b"data: {}\n", b"[" * 100_000 + b"\n", b"x" * (MAX_LINE + 1)]
)
def test_a_line_that_is_none(bad: bytes) -> None:
    reply, text, _ = read(line("a"), bad, line("b", "stop"))
    assert text == "a"
    assert reply.failure is not None
    assert reply.failure.http_status == 502


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    """UTF-01"""
    assert read(line("a?").replace(b"?", b"\xff"), line(done="stop"))[1] == "a\ufffd"


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        (["a\ud83c", "\udf0db"], "a🌍b"),
        (["\ud83c", "", "\udf0d"], "🌍"),
        (["\ud83c", "x"], "\ufffdx"),
        (["a\ud83c"], "a\ufffd"),
        (["\udf0dé"], "\ufffdé"),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_a_pair_of_surrogates_cut_between_lines_is_joined(contents: list[str], text: str, last: bool) -> None:
    """UTF-01: in text and reasoning alike, whether or not the last line brings the last piece."""
    *first, end = [{"message": {"content": said, "thinking": said}} for said in contents]
    end |= {"done": True, "done_reason": "stop"} if last else {}
    lines = [json.dumps(said).encode() + b"\n" for said in (*first, end)]
    reply, said, thought = read(*lines, *([] if last else [line(done="stop")]))
    assert (said, thought, reply.failure) == (text, text, None)
    assert text.encode()


def test_halves_of_another_text_are_no_pair() -> None:
    _, text, reasoning = read(line(message={"thinking": "é"}), b'{"message":{"thinking":"\\ud83c"}}\n',
                              b'{"message":{"content":"\\udf0d"}}\n', line(done="stop"))  # fmt: skip
    assert (text, reasoning) == ("\ufffd", "é\ufffd")


def test_members_of_another_kind_are_nothing() -> None:
    strange = {"message": 7, "done": 1}
    reply, text, _ = read(json.dumps(strange).encode() + b"\n", line(7), line(done="stop", eval_count="9"))  # type: ignore[arg-type]
    assert (text, reply.usage, reply.failure) == ("", m.Usage(0, 0), None)


@pytest.mark.parametrize(
    ("said", "code", "status"),
    [
        ("llama runner process has terminated", "upstream_error", 502),
        ("dial tcp 127.0.0.1:5: connection refused", "upstream_error", 502),
        ("request (302 tokens) exceeds the available context size (256 tokens)", "context_length_exceeded", 400),
        ("", "upstream_error", 502),
    ],
)
def test_an_error_in_mid_stream(said: str, code: str, status: int) -> None:
    """OL-02: what does not fit is an error of its own."""
    reply, text, _ = read(line("a"), json.dumps({"error": said}).encode() + b"\n", line("b", "stop"))
    assert text == "a"
    assert reply.failure is not None
    assert (reply.failure.code, reply.failure.http_status) == (code, status)
    assert "127" not in reply.failure.message


@given(st.lists(st.binary(max_size=30) | st.sampled_from([b"\n", b'{"message":', b"{}", line("a"), line(done="stop")])))
def test_no_answer_raises(reads: list[bytes]) -> None:
    reply, _, _ = read(*reads)
    assert reply.done is (reply.failure is None)


# ---- refusals


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (404, b'{"error":"model \'x\' not found"}', ("model_not_found", 404, True, 0)),
        (404, b"404 page not found", ("upstream_error", 502, False, 0)),
        (503, b'{"error":"server busy, please try again"}', ("upstream_error", 503, True, 1000)),
        (429, b'{"error":"slow down"}', ("rate_limited", 429, True, 0)),
        (400, b'{"error":"\\"x\\" does not support thinking"}', ("", 400, False, 0)),
        (400, b'{"error":"the input length exceeds the context length"}', ("context_length_exceeded", 400, False, 0)),
        (401, b'{"error":"unauthorized"}', ("upstream_auth", 401, False, 0)),
        (500, b"<html>", ("upstream_error", 502, False, 0)),
        (302, b"", ("upstream_error", 502, False, 0)),
    ],
)
def test_refusals(status: int, body: bytes, expected: Any) -> None:
    failure = refusal(status, {}, body)
    assert (failure.code, failure.http_status, failure.retryable, failure.retry_after_ms) == expected


def test_a_busy_server_that_says_when_is_believed() -> None:
    assert refusal(503, {b"retry-after": b"7"}, b"").retry_after_ms == 7000


def test_who_refuses_tools() -> None:
    words = b'{"error":"registry.ollama.ai/library/x does not support tools"}'
    assert refuses_tools(refusal(400, {}, words))
    assert not refuses_tools(refusal(500, {}, words))
    assert not refuses_tools(refusal(400, {}, b"does not support tools"))
    assert not refuses_tools(refusal(400, {}, b'{"error":"x does not support thinking"}'))


def test_which_models_know_tools() -> None:
    said = [
        {"name": "a:latest", "capabilities": ["completion", "tools"]},
        {"name": "b:7b", "capabilities": ["completion"]},
        {"name": "c:latest", "capabilities": []},
        {"name": "old"},
        {"name": "odd", "capabilities": "tools"},
    ]
    assert tools_of(json.dumps({"models": said}).encode()) == {
        "a:latest": True,
        "a": True,
        "b:7b": False,
        "c:latest": False,
        "c": False,
    }
    assert tools_of(b"[]") == {}


def test_model_names() -> None:
    assert model_names(b'{"models":[{"name":"a"},{"name":"b:1"},{"name":""},{"name":7},7]}') == ["a", "b:1"]
    for body in (b"\xff", b"[]", b'{"models":7}', b"[" * 100_000):
        assert model_names(body) == []
