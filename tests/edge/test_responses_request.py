"""The Responses API's requests: what is refused, what a backend of its own gets, and what becomes of it as a chat."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iop.edge.surfaces.openai.apis import shape
from iop.edge.surfaces.openai.apis.responses import ResponsesRequest
from iop.edge.surfaces.openai.apis.responses_input import sealed, unsealed
from iop.errors import Failure


def parse(given: Any = "Hi", **changes: Any) -> ResponsesRequest:
    return ResponsesRequest.parse(json.dumps({"model": "m", "input": given, **changes}).encode())


def chat(given: Any = "Hi", **changes: Any) -> dict[str, Any]:
    return parse(given, **changes).chat()


def messages(*items: Any, **changes: Any) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = chat(list(items), **changes)["messages"]
    return made


def refusal(given: Any = "Hi", **changes: Any) -> tuple[str, str | None]:
    with pytest.raises(Failure) as raised:
        chat(given, **changes)
    assert raised.value.http_status == 400
    assert raised.value.type == "invalid_request_error"
    return raised.value.code, raised.value.param


def message(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": list(parts)}


def said(text: str, role: str = "assistant") -> dict[str, Any]:
    return message(role, {"type": "output_text" if role == "assistant" else "input_text", "text": text})


def called(id: str, name: str = "f", arguments: str = "{}", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": arguments, **more}


def returned(id: str, output: Any = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": output}


def thought(**members: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [], **members}


def chat_call(id: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def allowed(mode: str, *tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "allowed_tools", "mode": mode, "tools": list(tools)}


F = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Patches.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
}
SPACE = {"type": "namespace", "name": "ns", "description": "", "tools": [{"type": "function", "name": "f"}]}


# ---- what is refused


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("previous_response_id", "resp_1"),
        ("conversation", "conv_1"),
        ("conversation", {"id": "conv_1"}),
        ("background", True),
        ("prompt", {"id": "pmpt_1"}),
    ],
)
def test_what_is_kept_elsewhere_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(Failure) as raised:
        parse(**{name: value})
    assert (raised.value.code, raised.value.param) == ("unsupported_parameter", name)
    parse(**{name: None})
    parse(background=False)


def test_an_item_that_is_kept_elsewhere_is_refused() -> None:
    with pytest.raises(Failure) as raised:
        parse([said("a", "user"), {"type": "item_reference", "id": "msg_1"}])
    assert (raised.value.code, raised.value.param) == ("unsupported_parameter", "input[1]")


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"", "invalid_json", None),
        (b"{", "invalid_json", None),
        (b"[]", "invalid_value", None),
        (b'{"input": "x"}', "invalid_value", "model"),
        (b'{"model": "", "input": "x"}', "invalid_value", "model"),
        (b'{"model": "m"}', "invalid_value", "input"),
        (b'{"model": "m", "input": {}}', "invalid_value", "input"),
        (b'{"model": "m", "input": null}', "invalid_value", "input"),
        (b'{"model": "m", "input": "x", "model": "n"}', "invalid_value", "model"),
        *[
            (json.dumps({"model": "m", "input": "x", name: 7}).encode(), "invalid_value", name)
            for name in ("stream", "instructions", "text", "reasoning", "metadata", "include", "tools")
        ],
    ],
)
def test_what_is_none_is_refused(body: bytes, code: str, param: str | None) -> None:
    with pytest.raises(Failure) as raised:
        ResponsesRequest.parse(body)
    assert (raised.value.code, raised.value.param) == (code, param)


@pytest.mark.parametrize(
    ("item", "code", "where"),
    [
        (7, "invalid_value", ""),
        ({}, "invalid_value", ".type"),
        ({"role": "robot", "content": "x"}, "invalid_value", ".role"),
        ({"role": "user"}, "invalid_value", ".content"),
        ({"role": "user", "content": [7]}, "invalid_value", ".content[0]"),
        (message("user", {"type": "input_text"}), "invalid_value", ".content[0].text"),
        (message("user", {"type": "hologram"}), "invalid_value", ".content[0]"),
        (message("user", {"type": "input_image"}), "invalid_value", ".content[0].image_url"),
        (message("user", {"type": "input_image", "file_id": "f"}), "unsupported_parameter", ".content[0].file_id"),
        (message("user", {"type": "input_file", "file_data": "x"}), "unsupported_parameter", ".content[0]"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "invalid_value", ".call_id"),
        ({"type": "function_call", "call_id": "c", "arguments": "{}"}, "invalid_value", ".name"),
        ({"type": "function_call", "call_id": "c", "name": "f"}, "invalid_value", ".arguments"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "f"}, "invalid_value", ".input"),
        ({"type": "function_call_output", "output": "x"}, "invalid_value", ".call_id"),
        ({"type": "function_call_output", "call_id": "c"}, "invalid_value", ".output"),
    ],
)
def test_an_item_that_is_none_is_refused_by_its_place(item: Any, code: str, where: str) -> None:
    assert refusal([said("a", "user"), item]) == (code, f"input[1]{where}")


# ---- for a backend of its own


def test_a_native_body_is_the_clients_but_for_what_must_change() -> None:
    head, tail = b'{ "model":', b', "input":"x", "temperature":1.10, "odd":1e400, "store": '
    request = ResponsesRequest.parse(b"\xef\xbb\xbf" + head + b'"m"' + tail + b"true}")
    made = request.native("target", {"max_output_tokens": "64"})
    assert made == head + b'"target"' + tail + b'false, "max_output_tokens": 64}'


@pytest.mark.parametrize("store", [b"false", b"null"])
def test_nothing_changes_without_need(store: bytes) -> None:
    body = b'{"model":"m","input":"x","store":' + store + b"}"
    assert ResponsesRequest.parse(body).native("m", {}) == body


# ---- messages


def test_a_text_is_a_users_message() -> None:
    request: shape.Request = parse("2+2?", stream=True)
    assert (request.model, request.stream) == ("m", True)
    assert request.chat() == {"model": "m", "messages": [{"role": "user", "content": "2+2?"}]}


def test_instructions_come_first_and_are_one_message() -> None:
    first, second, third = said("b", "developer"), {"role": "system", "content": "c"}, said("d", "user")
    later = said("e", "developer")
    assert messages(first, second, third, later, instructions="a") == [
        {"role": "system", "content": "a\n\nb\n\nc"},
        {"role": "user", "content": "d"},
        {"role": "system", "content": "e"},
    ]


def test_parts() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"}
    text = {"type": "input_text", "text": "see"}
    sound = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}
    assert messages(message("user", text, text)) == [{"role": "user", "content": "see\nsee"}]
    (made,) = messages(message("user", text, image, sound))
    assert made["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
        sound,
    ]
    answer = message("assistant", {"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"})
    assert messages(answer) == [{"role": "assistant", "content": "ab"}]


def test_neighbouring_calls_are_one_message_with_the_text_and_the_reasoning_before_them() -> None:
    user, words = said("go", "user"), thought(content=[{"type": "reasoning_text", "text": "hm"}])
    made = messages(user, words, said("On it."), called("c1"), called("c2", "g"), returned("c1"), returned("c2"))
    assert made[1:] == [
        {
            "role": "assistant",
            "content": "On it.",
            "reasoning_content": "hm",
            "tool_calls": [chat_call("c1"), chat_call("c2", "g")],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "tool", "tool_call_id": "c2", "content": "done"},
    ]


def test_a_turn_with_text_behind_its_call_stays_one_message() -> None:
    made = messages(said("a"), called("c1"), thought(summary=[{"type": "summary_text", "text": "t"}]), said("b"))
    assert made == [
        {"role": "assistant", "content": "ab", "tool_calls": [chat_call("c1")], "reasoning_content": "t"},
    ]


def test_answers_stay_apart_and_results_end_a_turn() -> None:
    made = messages(said("a"), said("b"), called("c1"), returned("c1"), called("c2"), returned("c2"), said("c"))
    assert [(each["role"], each["content"], len(each.get("tool_calls", ()))) for each in made] == [
        ("assistant", "a", 0),
        ("assistant", "b", 1),
        ("tool", "done", 0),
        ("assistant", None, 1),
        ("tool", "done", 0),
        ("assistant", "c", 0),
    ]


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (thought(content=[{"type": "reasoning_text", "text": "all"}], encrypted_content=sealed("no")), "all"),
        (thought(encrypted_content=sealed("Grüß 🌍 \ud83d")), "Grüß 🌍 \ud83d"),
        (thought(encrypted_content="gAAAA==", summary=[{"type": "summary_text", "text": x} for x in "ab"]), "a\n\nb"),
        (thought(encrypted_content="gAAAA=="), None),
        (thought(), None),
    ],
)
def test_reasoning_goes_to_the_answer_behind_it(item: Any, text: str | None) -> None:
    assert messages(item, {"type": "web_search_call", "id": "ws"}, said("a"))[0].get("reasoning_content") == text
    assert messages(item, said("next", "user"), said("a"))[1] == {"role": "assistant", "content": "a"}


def test_what_is_sealed_is_read_and_nothing_else() -> None:
    assert unsealed(sealed("x")) == "x"
    assert [unsealed(each) for each in (None, 7, "", "iop1:ä", "iop1:!", "iop1:/w==", "iop2:eA==")] == [""] * 7


def test_custom_calls_are_calls_of_a_text() -> None:
    item = {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": '*** "ü"\n'}
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "ok"}]}
    assert messages(item, output) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [chat_call("c", "apply_patch", '{"input": "*** \\"ü\\"\\n"}')],
        },
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
    ]


def test_what_only_the_apis_host_understands_is_passed_over() -> None:
    assert messages({"type": "web_search_call", "id": "ws_1"}, said("a", "user"), {"type": "compaction"}) == [
        {"role": "user", "content": "a"}
    ]


# ---- tools


def test_tools_as_a_chat_has_them() -> None:
    made = chat(tools=[F, PATCH, SPACE, {"type": "web_search"}], tool_choice="auto", parallel_tool_calls=False)
    f, patch, inner = (tool["function"] for tool in made["tools"])
    assert f == {key: F[key] for key in ("name", "description", "parameters", "strict")}
    assert patch["parameters"]["required"] == ["input"]
    assert patch["description"].startswith("Patches.\n\n")
    assert patch["description"].endswith("start: x")
    assert inner == {"name": "ns.f"}
    assert (made["tool_choice"], made["parallel_tool_calls"]) == ("auto", False)


def test_no_tools_are_no_members() -> None:
    made = chat(tools=[{"type": "web_search"}], tool_choice="auto", parallel_tool_calls=True)
    assert set(made) == {"model", "messages"}


@pytest.mark.parametrize(
    ("choice", "made", "names"),
    [
        (None, None, ["f", "apply_patch", "ns.f"]),
        ("none", "none", ["f", "apply_patch", "ns.f"]),
        ("required", "required", ["f", "apply_patch", "ns.f"]),
        ({"type": "function", "name": "f"}, "f", ["f", "apply_patch", "ns.f"]),
        ({"type": "custom", "name": "apply_patch"}, "apply_patch", ["f", "apply_patch", "ns.f"]),
        ({"type": "function", "name": "f", "namespace": "ns"}, "ns.f", ["f", "apply_patch", "ns.f"]),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]},
            "required",
            ["f"],
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "?"}]}, None, []),
    ],
)
def test_tool_choices(choice: Any, made: str | None, names: list[str]) -> None:
    asked = chat(tools=[F, PATCH, SPACE, {"type": "web_search"}], tool_choice=choice)
    shown = asked.get("tool_choice")
    assert (shown["function"]["name"] if isinstance(shown, dict) else shown) == made
    assert [tool["function"]["name"] for tool in asked.get("tools", [])] == names


@pytest.mark.parametrize(
    ("choice", "code"),
    [
        ({"type": "web_search"}, "unsupported_parameter"),
        ({"type": "mcp", "server_label": "x"}, "unsupported_parameter"),
        ({"type": "function", "name": "g"}, "invalid_value"),
        ("always", "invalid_value"),
        (7, "invalid_value"),
    ],
)
def test_choices_that_cannot_be(choice: Any, code: str) -> None:
    assert refusal(tools=[F, {"type": "web_search"}], tool_choice=choice) == (code, "tool_choice")


def test_a_hosted_tool_alone_cannot_be_required() -> None:
    assert refusal(tools=[{"type": "web_search"}], tool_choice="required") == ("unsupported_parameter", "tool_choice")


@pytest.mark.parametrize(
    ("tool", "where"),
    [
        (7, ""),
        ({}, ""),
        ({"type": "function"}, ".name"),
        ({"type": "namespace", "name": "n"}, ""),
        ({"type": "namespace", "name": "n", "tools": [{"type": "custom"}]}, ".tools[0].name"),
        ({"type": "namespace", "name": "n", "tools": [SPACE]}, ".tools[0]"),
    ],
)
def test_tools_that_are_none(tool: Any, where: str) -> None:
    assert refusal(tools=[F, tool]) == ("invalid_value", f"tools[1]{where}")


# ---- the rest


def test_the_rest() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    made = chat(
        text={"format": form, "verbosity": "low"},
        reasoning={"effort": "high", "summary": "auto"},
        max_output_tokens=64,
        temperature=0.5,
        top_p=0.9,
        seed=7,
        user="u",
        metadata={"session_id": "s"},
        service_tier="flex",
        prompt_cache_key="k",
        client_metadata={"a": "b"},
        include=["reasoning.encrypted_content"],
        store=True,
        stream=True,
        truncation="auto",
        odd=[1],
    )
    assert made == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7,
        "user": "u",
        "metadata": {"session_id": "s"},
        "max_tokens": 64,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
        },
        "verbosity": "low",
        "reasoning_effort": "high",
    }


@pytest.mark.parametrize(
    ("form", "made"),
    [(None, None), ({"type": "text"}, None), ({"type": "json_object"}, {"type": "json_object"})],
)
def test_formats(form: Any, made: Any) -> None:
    assert chat(text={"format": form}).get("response_format") == made


def test_a_format_that_is_none() -> None:
    assert refusal(text={"format": {"type": "xml"}}) == ("invalid_value", "text.format")


def test_null_says_nothing() -> None:
    names = ("instructions", "tools", "tool_choice", "text", "reasoning", "include", "max_output_tokens", "temperature")
    assert set(chat(**dict.fromkeys(names), stream=None, metadata=None)) == {"model", "messages"}


def test_errors_have_openais_shape() -> None:
    error = parse().error(Failure("rate_limited", "slow down"), "req-1")["error"]
    assert error == {
        "message": "slow down",
        "type": "rate_limit_error",
        "param": None,
        "code": "rate_limit_exceeded",
    }


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("max_tokens", "max_output_tokens"),
        ("messages[0].content[1]", "input"),
        ("response_format.json_schema.schema", "text.format"),
        ("reasoning_effort", "reasoning.effort"),
        ("temperature", "temperature"),
        (None, None),
    ],
)
def test_a_member_at_fault_is_called_as_the_client_called_it(said: str | None, shown: str | None) -> None:
    request = ResponsesRequest.parse(b'{"model": "m", "input": "hi", "temperature": 1}')
    assert request.error(Failure("invalid_value", "no", param=said), "req-1")["error"]["param"] == shown


@pytest.mark.parametrize("items", [[], [{"type": "frobnicate"}], [{"type": "mcp_call"}]])
@pytest.mark.parametrize("more", [{}, {"instructions": "be brief"}])
def test_a_request_without_a_question_is_refused(items: list[Any], more: dict[str, Any]) -> None:
    request = ResponsesRequest.parse(json.dumps({"model": "m", "input": items, **more}).encode())
    with pytest.raises(Failure) as raised:
        request.chat()
    assert (raised.value.code, raised.value.param) == ("invalid_value", "input")
