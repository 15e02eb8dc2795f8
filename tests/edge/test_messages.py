"""The Messages API: what a request is as a chat request, what of it a backend of the same API gets, and its errors."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam
from pydantic import TypeAdapter

from iop import model as m
from iop.edge.surfaces.openai.apis import messages
from iop.edge.surfaces.openai.apis.messages import CountTokensRequest, MessagesRequest, count_document
from iop.edge.surfaces.openai.apis.messages_answer import MessagesDocument, MessagesStream
from iop.errors import KINDS, Failure

ASK = {"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}]}
TIDE = {"name": "tide", "description": "Tides", "input_schema": {"type": "object", "properties": {"port": {}}}}
TIDE_FUNCTION = {"name": "tide", "description": "Tides", "parameters": TIDE["input_schema"]}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aWNv"}}
PNG_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aWNv"}}
CACHED = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
CALL = {"type": "tool_use", "id": "c1", "name": "tide", "input": {"port": "Oban ü", "n": 1.50}}
CALLED = {"id": "c1", "type": "function", "function": {"name": "tide", "arguments": '{"port":"Oban ü","n":1.5}'}}


def parse(**changes: Any) -> MessagesRequest:
    return MessagesRequest.parse(json.dumps({**ASK, **changes}).encode())


def chat(**changes: Any) -> dict[str, Any]:
    made = parse(**changes).chat()
    json.dumps(made, allow_nan=False)
    return made


def said(*turns: Any, **changes: Any) -> list[dict[str, Any]]:
    """Return the chat messages of turns, each a role and its content."""
    made = chat(messages=[{"role": role, "content": content} for role, content in turns], **changes)["messages"]
    assert isinstance(made, list)
    return made


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def result(content: Any = None, id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, **({} if content is None else {"content": content}), **more}


# ---- what every request must have


def test_the_least_that_can_be_asked() -> None:
    request = parse()
    assert (request.model, request.stream, request.thinking, request.tools) == ("m", False, m.Thinking(), {})
    assert request.chat() == {"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}]}
    assert parse(stream=True).stream
    assert "stream" not in chat(stream=True)


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"model": 7}, "model"),
        ({"model": ""}, "model"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": []}, "messages"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 6.4}, "max_tokens"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_what_is_refused_before_anything_else(changes: dict[str, Any], param: str) -> None:
    with pytest.raises(Failure) as raised:
        parse(**changes)
    assert (raised.value.code, raised.value.http_status, raised.value.param) == ("invalid_value", 400, param)
    assert f"`{param}` must be" in raised.value.message


@pytest.mark.parametrize("name", ["model", "messages", "max_tokens"])
def test_what_is_needed(name: str) -> None:
    body = json.dumps({k: v for k, v in ASK.items() if k != name}).encode()
    with pytest.raises(Failure, match=f"`{name}` is needed"):
        MessagesRequest.parse(body)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"a": NaN}'])
def test_no_json(body: bytes) -> None:
    with pytest.raises(Failure) as raised:
        MessagesRequest.parse(body)
    assert raised.value.code == "invalid_json"


def test_a_number_that_json_could_not_say_again() -> None:
    body = json.dumps(ASK).encode()[:-1] + b', "temperature": 1e999}'
    with pytest.raises(Failure) as raised:
        MessagesRequest.parse(body).chat()
    assert raised.value.code == "invalid_value"


def test_what_is_nested_too_deeply_is_refused_and_no_crash() -> None:
    """Wherever the limit is met; below it there is an answer."""
    call = json.dumps({**ASK, "messages": [{"role": "assistant", "content": [CALL | {"input": {"x": "DEEP"}}]}]})
    for depth in range(800, 1100, 20):
        with contextlib.suppress(Failure):
            MessagesRequest.parse(call.replace('"DEEP"', "[" * depth + "]" * depth).encode()).chat()


# ---- for a backend that has this API


def test_a_backend_of_the_same_api_gets_every_digit() -> None:
    body = b'\xef\xbb\xbf{"model": "m", "max_tokens": 64, "top_p": 0.10000000000000000001, "messages": [{}], "x":1e2}'
    request = MessagesRequest.parse(body)
    assert request.native("m", {}) == body[3:]
    assert request.native("M/2", {}) == body[3:].replace(b'"model": "m"', b'"model": "M/2"')
    changed = request.native("M/2", {"max_tokens": "128", "top_k": "4"})
    assert changed == body[3:].replace(b'"m"', b'"M/2"', 1).replace(b"64", b"128")[:-1] + b', "top_k": 4}'


# ---- the conversation


@pytest.mark.parametrize(
    ("system", "shown"),
    [
        ("Be brief.", "Be brief."),
        ([text("Be brief.") | CACHED, text("Be kind.")], "Be brief.\n\nBe kind."),
        ([text("x-anthropic-billing-header: cc_version=2; cch=00000;"), text("You code.")], "You code."),
        ("x-anthropic-billing-header: cc_version=2; cch=00000;\nYou code.", "You code."),
        ([text("Of x-anthropic-billing-header: nothing")], "Of x-anthropic-billing-header: nothing"),
    ],
)
def test_the_system_prompt(system: Any, shown: str) -> None:
    assert chat(system=system)["messages"] == [{"role": "system", "content": shown}, {"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("system", [None, "", [], [text("")]])
def test_no_system_prompt(system: Any) -> None:
    assert chat(system=system)["messages"] == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("Hi", "Hi"),
        ([], ""),
        ([text("One.") | CACHED, text(""), text("Two.")], "One.\n\nTwo."),
        ([text("Look:"), PNG | CACHED], [text("Look:"), PNG_PART]),
        ([text(""), PNG], [PNG_PART]),
        (
            [{"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}],
            [{"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}],
        ),
        (
            [{"type": "document", "title": "Log", "context": "old", "source": {"type": "text", "data": "a line"}}],
            "Log\nold\n\na line",
        ),
        ([{"type": "document", "source": {"type": "content", "content": "a line"}}], "a line"),
        (
            [{"type": "document", "source": {"type": "content", "content": [text("a"), PNG]}}],
            [text("a"), PNG_PART],
        ),
        ([{"type": "search_result", "title": "T", "source": "S", "content": [text("a")]}], "T\nS\n\na"),
    ],
)
def test_what_a_user_says(content: Any, shown: Any) -> None:
    assert said(("user", content)) == [{"role": "user", "content": shown}]


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "EqQB"}
HIDDEN = {"type": "redacted_thinking", "data": "EqQB"}


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("Hello", {"content": "Hello"}),
        ([], {"content": ""}),
        ([text("Hel"), text("lo")], {"content": "Hello"}),
        ([THOUGHT, text("Hello")], {"content": "Hello", "reasoning_content": "hm"}),
        ([THOUGHT, THOUGHT, HIDDEN], {"content": "", "reasoning_content": "hm\n\nhm"}),
        ([text("See:"), CALL | CACHED], {"content": "See:", "tool_calls": [CALLED]}),
        ([THOUGHT, CALL], {"content": None, "reasoning_content": "hm", "tool_calls": [CALLED]}),
        (
            [text("I look."), {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
             {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}, text("Found."), text(" It.")],
            {"content": "I look.\n\nFound. It."},
        ),
        ([{"type": "compaction", "content": "We said hello."}], {"content": "We said hello."}),
    ],
)  # fmt: skip
def test_what_an_assistant_said(content: Any, shown: Any) -> None:
    made = said(("user", "Hi"), ("assistant", content), ("user", "Go on"))
    assert made[1] == {"role": "assistant", **shown}


def test_a_prefill_stays_last() -> None:
    assert said(("user", "Sol or"), ("assistant", "Hel"))[-1] == {"role": "assistant", "content": "Hel"}


def test_results_stand_behind_their_calls_and_before_what_else_their_turn_says() -> None:
    second = CALL | {"id": "c2", "input": {}}
    turn = [text("And?"), result("wet"), result([text("low"), text("tide"), PNG], "c2", is_error=True)]
    assert said(("user", "Tides?"), ("assistant", [CALL, second]), ("user", turn))[2:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "wet"},
        {"role": "tool", "tool_call_id": "c2", "content": "Error: low\n\ntide"},
        {"role": "user", "content": [text("The tool result c2 shows:"), PNG_PART, text("And?")]},
    ]


def test_results_in_several_turns_and_behind_a_system_turn() -> None:
    calls = [CALL, CALL | {"id": "c2"}]
    made = said(
        ("user", "Tides?"), ("assistant", calls), ("system", "Hurry."), ("user", [result("a"), text("x")]),
        ("user", [result("b", "c2")]), ("user", [result("c", "foreign")]),
    )  # fmt: skip
    assert [(each["role"], each["content"]) for each in made[2:]] == [
        ("tool", "a"),
        ("tool", "b"),
        ("user", "<system-reminder>\nHurry.\n</system-reminder>\n\nx"),
        ("tool", "c"),
    ]


@pytest.mark.parametrize(
    ("block", "content"),
    [
        (result(), ""),
        (result([]), ""),
        (result("no", is_error=True), "Error: no"),
        (result("Error: no", is_error=True), "Error: no"),
        (result("<tool_use_error>no</tool_use_error>", is_error=True), "<tool_use_error>no</tool_use_error>"),
        (result([{"type": "tool_reference", "tool_name": "tide"}]), "tide"),
    ],
)
def test_a_result(block: Any, content: str) -> None:
    made = said(("user", "Tides?"), ("assistant", [CALL]), ("user", [block]))
    assert made[2:] == [{"role": "tool", "tool_call_id": "c1", "content": content}]


def test_system_turns() -> None:
    """At the beginning they are the system prompt's; later the user's, since few templates take a second one."""
    turns = [("user", "Hi"), ("system", [text("It is May.")]), ("system", "It rains."), ("assistant", "Yes?")]
    assert said(("system", "Be kind."), *turns, ("system", "It is June."), system="A") == [
        {"role": "system", "content": "A\n\nBe kind."},
        {"role": "user", "content": f"{reminder('It is May.')}\n\n{reminder('It rains.')}\n\nHi"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": reminder("It is June.")},
    ]


def test_a_system_turn_with_nothing_to_say() -> None:
    assert said(("user", "Hi"), ("system", [{"type": "tool_addition", "tool": {}}]), ("user", [PNG])) == [
        {"role": "user", "content": [text("Hi"), PNG_PART]}
    ]


def reminder(words: str) -> str:
    return f"<system-reminder>\n{words}\n</system-reminder>"


def test_turns_of_the_user_in_a_row_are_one() -> None:
    assert said(("user", "a"), ("user", [text("b"), PNG])) == [
        {"role": "user", "content": [text("a"), text("b"), PNG_PART]}
    ]


@pytest.mark.parametrize(
    ("turn", "param"),
    [
        (7, ""),
        ({"role": "tool", "content": "x"}, ".role"),
        ({"role": "user"}, ".content"),
        ({"role": "user", "content": {"type": "text"}}, ".content"),
        ({"role": "user", "content": ["Hi"]}, ".content[0]"),
        ({"role": "user", "content": [text("Hi"), {"text": "Hi"}]}, ".content[1].type"),
        ({"role": "user", "content": [{"type": "container_upload"}]}, ".content[0].type"),
        ({"role": "user", "content": [{"type": "text", "text": 7}]}, ".content[0].text"),
        ({"role": "user", "content": [{"type": "image"}]}, ".content[0].source"),
        ({"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}, ".content[0].source.type"),
        ({"role": "user", "content": [{"type": "image", "source": {"type": "url"}}]}, ".content[0].source.url"),
        ({"role": "user", "content": [{"type": "document", "source": {"type": "base64"}}]}, ".content[0].source.type"),
        ({"role": "user", "content": [{"type": "tool_result"}]}, ".content[0].tool_use_id"),
        ({"role": "user", "content": [result([{"type": "browser_state"}])]}, ".content[0].content[0].type"),
        ({"role": "user", "content": [CALL]}, ".content[0].type"),
        ({"role": "assistant", "content": [result("x")]}, ".content[0].type"),
        ({"role": "assistant", "content": [PNG]}, ".content[0].type"),
        ({"role": "assistant", "content": [CALL | {"input": "{}"}]}, ".content[0].input"),
        ({"role": "assistant", "content": [CALL | {"name": ""}]}, ".content[0].name"),
        ({"role": "assistant", "content": [CALL | {"id": 1}]}, ".content[0].id"),
        ({"role": "assistant", "content": [{"type": "thinking"}]}, ".content[0].thinking"),
        ({"role": "system", "content": [PNG]}, ".content[0].type"),
    ],
)
def test_a_turn_that_is_none_is_named(turn: Any, param: str) -> None:
    with pytest.raises(Failure) as raised:
        chat(messages=[{"role": "user", "content": "Hi"}, turn])
    assert (raised.value.code, raised.value.param) == ("invalid_value", f"messages[1]{param}")


def test_openais_sdk_knows_the_shapes() -> None:
    made = chat(
        system="S",
        tools=[TIDE],
        messages=[
            {"role": "user", "content": [text("Tides?"), PNG]},
            {"role": "assistant", "content": [THOUGHT, CALL]},
            {"role": "user", "content": [result([text("wet"), PNG]), text("And?")]},
        ],
    )
    TypeAdapter(list[ChatCompletionMessageParam]).validate_python(made["messages"])
    TypeAdapter(list[ChatCompletionToolUnionParam]).validate_python(made["tools"])


# ---- tools


def test_tools_of_the_clients_own() -> None:
    typed = TIDE | {"type": "custom", "name": "surf", "strict": True, "defer_loading": True} | CACHED
    assert chat(tools=[TIDE, typed, SEARCH])["tools"] == [
        {"type": "function", "function": TIDE_FUNCTION},
        {"type": "function", "function": TIDE_FUNCTION | {"name": "surf", "strict": True}},
    ]
    assert parse(tools=[TIDE, SEARCH]).tools == {"tide": TIDE["input_schema"]}


@pytest.mark.parametrize(
    ("choice", "members"),
    [
        (None, {}),
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "tool", "name": "tide"}, {"tool_choice": {"type": "function", "function": {"name": "tide"}}}),
        ({"type": "auto", "disable_parallel_tool_use": True}, {"tool_choice": "auto", "parallel_tool_calls": False}),
        ({"type": "auto", "disable_parallel_tool_use": False}, {"tool_choice": "auto"}),
    ],
)
def test_tool_choice(choice: Any, members: dict[str, Any]) -> None:
    made = chat(tools=[TIDE, SEARCH], tool_choice=choice)
    assert {k: v for k, v in made.items() if k in ("tool_choice", "parallel_tool_calls")} == members


def test_tools_of_anthropics_own_are_dropped() -> None:
    assert chat(tools=[SEARCH], tool_choice={"type": "auto"}) == chat()


@pytest.mark.parametrize(
    ("changes", "param", "code"),
    [
        ({"tools": [SEARCH], "tool_choice": {"type": "any"}}, "tool_choice", "unsupported_parameter"),
        ({"tools": [TIDE, SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}}, "tool_choice.name",
         "unsupported_parameter"),
        ({"tools": [TIDE], "tool_choice": {"type": "tool", "name": "surf"}}, "tool_choice.name", "invalid_value"),
        ({"tools": [TIDE], "tool_choice": {"type": []}}, "tool_choice.type", "invalid_value"),
        ({"tools": [TIDE], "tool_choice": "auto"}, "tool_choice", "invalid_value"),
        ({"tools": {}}, "tools", "invalid_value"),
        ({"tools": [TIDE, 7]}, "tools[1]", "invalid_value"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name", "invalid_value"),
        ({"tools": [{"name": "x"}]}, "tools[0].input_schema", "invalid_value"),
        ({"mcp_servers": [{"type": "url"}]}, "mcp_servers", "unsupported_parameter"),
        ({"container": "c1"}, "container", "unsupported_parameter"),
        ({"thread": {"type": "create"}}, "thread", "unsupported_parameter"),
        ({"system": 7}, "system", "invalid_value"),
        ({"system": [PNG]}, "system[0].type", "invalid_value"),
        ({"temperature": "warm"}, "temperature", "invalid_value"),
        ({"stop_sequences": "x"}, "stop_sequences", "invalid_value"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens", "invalid_value"),
        ({"thinking": {"type": "much"}}, "thinking.type", "invalid_value"),
        ({"thinking": True}, "thinking", "invalid_value"),
        ({"output_config": {"effort": "extreme"}}, "output_config.effort", "invalid_value"),
        ({"output_config": {"format": {"type": "grammar"}}}, "output_config.format.type", "invalid_value"),
        ({"output_format": {"type": "json_schema"}}, "output_format.schema", "invalid_value"),
    ],
)  # fmt: skip
def test_what_no_chat_can_do_is_named(changes: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(Failure) as raised:
        chat(**changes)
    failure = raised.value
    assert (failure.code, failure.http_status, failure.type, failure.param) == (
        code,
        400,
        "invalid_request_error",
        param,
    )


# ---- what else is asked for

SCHEMA = {"type": "object"}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}


@pytest.mark.parametrize(
    ("changes", "members"),
    [
        ({"temperature": 0.5, "top_p": 1, "top_k": 40}, {"temperature": 0.5, "top_p": 1, "top_k": 40}),
        ({"stop_sequences": ["a", "b"]}, {"stop": ["a", "b"]}),
        ({"stop_sequences": []}, {}),
        ({"metadata": {"user_id": "u1"}}, {"user": "u1"}),
        ({"metadata": {}}, {}),
        ({"output_config": {"effort": "max"}}, {"reasoning_effort": "max"}),
        ({"output_config": {"effort": "high"}, "thinking": {"type": "adaptive"}}, {}),
        ({"output_config": {"effort": "max"}, "thinking": {"type": "disabled"}}, {}),
        ({"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, {"response_format": FORMAT}),
        ({"output_format": {"type": "json_schema", "schema": SCHEMA}}, {"response_format": FORMAT}),
        ({"service_tier": "auto", "cache_control": {"type": "ephemeral"}, "of_tomorrow": 1}, {}),
        ({"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}, {}),
        ({"mcp_servers": [], "container": None}, {}),
    ],
)
def test_options(changes: dict[str, Any], members: dict[str, Any]) -> None:
    assert chat(**changes) == {**chat(), **members}


@pytest.mark.parametrize(
    ("wish", "thinking"),
    [
        (None, m.Thinking()),
        ({"type": "adaptive", "display": "omitted"}, m.Thinking()),
        ({"type": "disabled"}, m.Thinking("off")),
        ({"type": "enabled", "budget_tokens": 31999}, m.Thinking("on", 31999)),
    ],
)
def test_thinking_is_for_the_node_to_write(wish: Any, thinking: m.Thinking) -> None:
    request = parse(thinking=wish)
    assert request.thinking == thinking
    assert request.chat() == chat()


# ---- counting


def test_a_question_to_be_counted_needs_no_limit() -> None:
    body = json.dumps({"model": "m", "messages": ASK["messages"], "tools": [TIDE], "system": "S"}).encode()
    request = CountTokensRequest.parse(body)
    assert request.native("M", {}) == body.replace(b'"m"', b'"M"', 1)
    assert set(request.chat()) == {"model", "messages", "tools"}
    assert count_document(7) == {"input_tokens": 7}
    with pytest.raises(Failure, match="messages"):
        CountTokensRequest.parse(b'{"model": "m"}')


# ---- errors


@pytest.mark.parametrize(
    ("status", "type"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (409, "invalid_request_error"),
        (410, "invalid_request_error"),
        (413, "request_too_large"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_the_type_of_an_error_goes_by_its_status(status: int, type: str) -> None:
    made = messages.error_document(Failure("x", "why", http_status=status), "req_1")
    assert made == {"type": "error", "error": {"type": type, "message": "why"}, "request_id": "req_1"}


@pytest.mark.parametrize("code", sorted(KINDS))
def test_every_failure_has_a_shape_and_none_shows_a_code(code: str) -> None:
    request, failure = parse(), Failure(code, "why \ud83c")
    made = request.error(failure, "")
    assert set(made["error"]) == {"type", "message"}
    assert made["request_id"] is None
    name, data = request.broken(failure, "").split(b"\n", 1)
    assert name == b"event: error"
    assert json.loads(data.removeprefix(b"data: ")) == made


def test_an_overflow_is_said_in_the_words_that_clients_look_for() -> None:
    said = messages.error_document(Failure("context_length_exceeded", "9 tokens are too many"))["error"]["message"]
    assert said == "prompt is too long: 9 tokens are too many"
    same = messages.error_document(Failure("context_length_exceeded", "Prompt is too long: 9 > 8"))["error"]["message"]
    assert same == "Prompt is too long: 9 > 8"


# ---- its answers have a file of their own


def test_the_answer_streams_when_it_was_asked_to() -> None:
    assert isinstance(parse().building("1", 0), MessagesDocument)
    assert isinstance(parse(stream=True, tools=[TIDE]).building("1", 0), MessagesStream)
