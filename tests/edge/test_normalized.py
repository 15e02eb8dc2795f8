"""Runs that are answered by events: the chat API's shapes, and what of a request reaches the node."""

from __future__ import annotations

import json
from typing import Any

import pytest
from doubles import complete, fail, piece, start, wait
from gateway_in_memory import Answer, Gateway, document, node, sha256

from iop import model as m
from iop.edge.surfaces.openai.apis.reading import LARGEST
from iop.errors import Failure

pytestmark = pytest.mark.usefixtures("logged")

USAGE = m.Usage(9, 4, 3, 2)
TIDE = {"type": "function", "function": {"name": "lookup_tide", "parameters": {"type": "object"}}}
NATIVE = json.dumps(
    [{"id": "c1", "type": "function", "function": {"name": "lookup_tide", "arguments": '{"port":"Oban"}'}}]
)
FALLBACK = {"openai_text_tool_fallback": "true"}


def chunks(answer: Answer) -> list[dict[str, Any]]:
    """Return a whole stream's chunks."""
    assert answer.status == 200
    assert answer.whole
    *events, done = answer.events
    assert done == "[DONE]"
    return [json.loads(event) for event in events]


def deltas(answer: Answer) -> list[dict[str, Any]]:
    return [chunk["choices"][0]["delta"] for chunk in chunks(answer) if chunk["choices"]]


def test_a_document() -> None:
    gateway = Gateway(start(None), piece(reasoning="hm"), piece(text="Grüß "), piece(text="Gott"), complete("", USAGE))
    answer = gateway.chat().answer
    made = answer.json
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert (made["object"], made["model"], made["id"][:9], type(made["created"])) == (
        "chat.completion",
        "m",
        "chatcmpl-",
        int,
    )
    message = {"role": "assistant", "content": "Grüß Gott", "reasoning_content": "hm"}
    assert made["choices"] == [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]
    assert made["usage"] == {
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    gateway.assert_idle()
    gateway.close()


def test_a_stream() -> None:
    gateway = Gateway(start(None), piece(reasoning="hm"), piece(text="Hi"), complete("length", USAGE))
    answer = gateway.chat(stream=True).answer
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache"
    assert deltas(answer) == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"content": "Hi"},
        {},
    ]
    made = chunks(answer)
    assert [chunk["choices"][0]["finish_reason"] for chunk in made] == [None, None, None, "length"]
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in made}) == 1
    assert not any("usage" in chunk for chunk in made)
    gateway.assert_idle()


def test_the_usage_of_a_stream_comes_last_and_only_when_it_was_asked_for() -> None:
    gateway = Gateway(start(None), piece(text="Hi"), complete("stop", m.Usage(9, 4)))
    made = chunks(gateway.chat(stream=True, stream_options={"include_usage": True}).answer)
    assert [chunk["usage"] for chunk in made[:-1]] == [None] * 3
    assert made[-1]["choices"] == []
    assert made[-1]["usage"] == {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}


def test_an_answer_without_a_word_is_whole_too() -> None:
    gateway = Gateway(start(None), complete())
    assert gateway.chat().answer.json["choices"][0]["message"] == {"role": "assistant", "content": ""}
    assert deltas(gateway.chat(stream=True).answer) == [{"role": "assistant", "content": ""}, {}]


@pytest.mark.parametrize(
    ("reason", "shown"), [("stop", "tool_calls"), ("tool_calls", "tool_calls"), ("length", "length")]
)
def test_native_tool_calls(reason: str, shown: str) -> None:
    """FR-01: a backend that says stop after a call means the call."""
    gateway = Gateway(start(None), piece(text="Look:"), complete(reason, metadata={"openai_tool_calls": NATIVE}))
    call = json.loads(NATIVE)[0]
    choice = gateway.chat(tools=[TIDE]).answer.json["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "Look:", "tool_calls": [call]}
    assert choice["finish_reason"] == shown
    made = gateway.chat(tools=[TIDE], stream=True).answer
    assert deltas(made)[2:] == [{"tool_calls": [{"index": 0, **call}]}, {}]
    assert chunks(made)[-1]["choices"][0]["finish_reason"] == shown


def test_a_call_without_a_word_has_no_content() -> None:
    gateway = Gateway(start(None), complete("tool_calls", metadata={"openai_tool_calls": NATIVE}))
    assert gateway.chat(tools=[TIDE]).answer.json["choices"][0]["message"]["content"] is None


@pytest.mark.parametrize("nonsense", ["{", "7", "[7]", '[{"id": "c"}]', "null"])
@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls_that_are_none_are_an_error(nonsense: str, stream: bool) -> None:
    gateway = Gateway(start(None), piece(text="Hi"), complete(metadata={"openai_tool_calls": nonsense}))
    answer = gateway.chat(stream=stream).answer
    error = json.loads(answer.events[-1])["error"] if stream else answer.json["error"]
    assert (answer.status, error["code"]) == (200 if stream else 502, "upstream_error")
    gateway.assert_idle()


SAID = (
    "One < two. Sure",
    ".\n<tool",
    '_call>{"name":"lookup_tide","arguments":{"note":"a } b </tool","port":',
    '"Oban"}}</tool',
    "_call>",
)


def test_tool_calls_are_taken_out_of_the_text_of_a_run_that_says_so() -> None:
    """TF-01"""
    gateway = Gateway(start(None, FALLBACK), *[piece(text=t) for t in SAID], complete("stop", metadata=FALLBACK))
    message = gateway.chat(tools=[TIDE]).answer.json["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert message["content"].rstrip() == "One < two. Sure."
    assert (call["type"], call["function"]["name"], call["id"][:5]) == ("function", "lookup_tide", "call_")
    assert json.loads(call["function"]["arguments"]) == {"note": "a } b </tool", "port": "Oban"}
    made = gateway.chat(tools=[TIDE], stream=True).answer
    text = "".join(delta.get("content", "") for delta in deltas(made))
    (streamed,) = [delta["tool_calls"][0] for delta in deltas(made) if "tool_calls" in delta]
    assert text.rstrip() == "One < two. Sure."
    assert streamed["function"] == call["function"]
    assert chunks(made)[-1]["choices"][0]["finish_reason"] == "tool_calls"


PORTS = ('{"port":"Oban"}', '{"port":"Leith"}')
WRITTEN = [f'<tool_call>{{"name":"lookup_tide","arguments":{port}}}</tool_call>' for port in PORTS]
REPORTED = json.dumps(
    [
        {"id": f"c{number}", "type": "function", "function": {"name": "lookup_tide", "arguments": port}}
        for number, port in enumerate(PORTS)
    ]
)
TWO_CALLS = {
    "written": (start(None, FALLBACK), *[piece(text=t) for t in WRITTEN], complete("stop", metadata=FALLBACK)),
    "written in one piece": (start(None, FALLBACK), piece(text="\n".join(WRITTEN)), complete(metadata=FALLBACK)),
    "native": (start(None), complete("stop", metadata={"openai_tool_calls": REPORTED})),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("way", TWO_CALLS)
def test_two_calls_in_one_answer(way: str, stream: bool) -> None:
    """TF-01, FR-01, two_calls: a client tells them apart by their indices in a stream, and by their ids always."""
    answer = Gateway(*TWO_CALLS[way]).chat(tools=[TIDE], stream=stream).answer
    if stream:
        calls = [call for delta in deltas(answer) for call in delta.get("tool_calls", ())]
        assert [call["index"] for call in calls] == [0, 1]
        choice = chunks(answer)[-1]["choices"][0]
    else:
        choice = answer.json["choices"][0]
        calls = choice["message"]["tool_calls"]
        assert choice["message"]["content"] is None
    assert [(call["type"], call["function"]) for call in calls] == [
        ("function", {"name": "lookup_tide", "arguments": '{"port":"Oban"}'}),
        ("function", {"name": "lookup_tide", "arguments": '{"port":"Leith"}'}),
    ]
    first, second = [call["id"] for call in calls]
    assert first
    assert second
    assert first != second
    assert way != "native" or (first, second) == ("c0", "c1")
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("way", ["written", "written in one piece"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_one_call_at_most_where_a_client_takes_no_more(path: str, way: str, stream: bool) -> None:
    """Tools that travel as text: a model that writes more calls than it was asked for has made the first."""
    schema = {"type": "object"}
    body: dict[str, Any] = {
        "/v1/chat/completions": {
            "messages": [{"role": "user", "content": "hello"}],
            "tools": [TIDE],
            "parallel_tool_calls": False,
        },
        "/v1/responses": {
            "input": "hello",
            "tools": [{"type": "function", "name": "lookup_tide", "parameters": schema}],
            "parallel_tool_calls": False,
        },
        "/v1/messages": {
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": 9,
            "tools": [{"name": "lookup_tide", "input_schema": schema}],
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        },
    }[path]
    answer = Gateway(*TWO_CALLS[way]).ask(path, {"model": "m", "stream": stream, **body}).answer
    assert answer.status == 200
    assert b"Oban" in answer.body
    assert b"Leith" not in answer.body


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_a_call_that_is_never_closed_is_text_at_the_end(reason: str) -> None:
    """TF-01, never_closed: nothing is dropped, and the answer ends as the backend said that it does."""
    text = 'Look: <tool_call>{"name":"lookup_tide","argu'
    gateway = Gateway(start(None, FALLBACK), piece(text=text), complete(reason, metadata=FALLBACK))
    choice = gateway.chat(tools=[TIDE]).answer.json["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": 'Look: <tool_call>{"name":"lookup_tide","argu'}
    assert choice["finish_reason"] == reason
    made = gateway.chat(tools=[TIDE], stream=True).answer
    assert deltas(made) == [
        {"role": "assistant", "content": ""},
        {"content": "Look: "},
        {"content": '<tool_call>{"name":"lookup_tide","argu'},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks(made)] == [None, None, None, reason]


def test_and_out_of_no_other() -> None:
    """The contract: text is never parsed on an unmarked run."""
    gateway = Gateway(start(None), *[piece(text=t) for t in SAID], complete())
    choice = gateway.chat(tools=[TIDE]).answer.json["choices"][0]
    assert choice == {**choice, "finish_reason": "stop", "message": {"role": "assistant", "content": "".join(SAID)}}


# ---- bad endings


def test_a_failure_before_a_word_is_an_error_document_and_afterwards_the_streams_last_event() -> None:
    gateway = Gateway(start(None), fail(Failure("upstream_error", "it broke")))
    for stream in (False, True):
        answer = gateway.chat(stream=stream).answer
        assert (answer.status, answer.code) == (502, "upstream_error")
    gateway.adapter.script = (start(None), piece(text="Hi"), fail(Failure("upstream_error", "it broke")))
    assert gateway.chat().answer.status == 502
    broken = gateway.chat(stream=True).answer
    assert (broken.status, broken.whole) == (200, True)
    assert json.loads(broken.events[-1])["error"]["code"] == "upstream_error"
    gateway.assert_idle()


def test_an_answer_larger_than_may_be_collected() -> None:
    big = piece(text="x" * (1 << 20))
    gateway = Gateway(start(None), *[big] * (LARGEST // (1 << 20) + 1), complete())
    answer = gateway.chat().answer
    assert (answer.status, answer.code) == (502, "answer_too_large")
    gateway.net.run(1)
    gateway.assert_idle()


def test_what_is_collected_costs_no_credit_and_what_a_client_does_not_read_does() -> None:
    gateway = Gateway(start(None), *[piece(text="x" * 10_000)] * 100, complete(), window=50_000)
    assert len(gateway.chat().answer.json["choices"][0]["message"]["content"]) == 1_000_000
    client = gateway.connect()
    client.transport.pauseProducing()
    client.ask("/v1/chat/completions", {"model": "m", "messages": [], "stream": True})
    gateway.net.run()
    assert gateway.adapter.runs[-1].paused
    client.transport.resumeProducing()
    gateway.net.run()
    assert sum(len(delta.get("content", "")) for delta in deltas(client.answer)) == 1_000_000
    gateway.assert_idle()


def test_a_client_that_leaves_ends_the_run() -> None:
    gateway = Gateway(start(None), piece(text="Hi"), wait)
    client = gateway.chat(stream=True)
    assert gateway.adapter.open == 1
    client.leave()
    gateway.net.run()
    assert gateway.run.cancelled
    gateway.assert_idle()


# ---- which way


def test_a_provider_whose_type_speaks_no_openai_is_asked_for_events() -> None:
    gateway = Gateway(start(None), piece(text="Hi"), complete(), configuration=mixed(), find=None)
    for name in ("by-bytes", "by-events"):
        gateway.chat(model=name)
    requests = {run.request.target: run.request for each in gateway.machines.values() for run in each.adapter.runs}
    assert (requests["bytes"].mode, requests["bytes"].http.path) == (m.Mode.PASSTHROUGH, "/v1/chat/completions")
    assert (requests["events"].mode, requests["events"].http) == (m.Mode.NORMALIZED, None)
    assert json.loads(requests["events"].input)["messages"] == json.loads(requests["bytes"].input)["messages"]


def mixed() -> dict[str, Any]:
    """Return a configuration with a model on either kind of provider."""
    ollama = node("n2", "p2", type="ollama", models=["events"])
    ollama["adapters"] = [{"name": "a", "type": "ollama"}]
    made = document(node("n1", "p1", models=["bytes"]), ollama)
    made["models"] = [
        {"id": "by-bytes", "providers": [{"id": "p1", "target": "bytes"}]},
        {"id": "by-events", "providers": [{"id": "p2", "target": "events"}]},
        {"id": "either", "providers": [{"id": "p1", "target": "bytes"}, {"id": "p2", "target": "events"}]},
    ]
    return made


def test_one_model_on_both_kinds_of_provider() -> None:
    """Which way a run goes is decided for the provider that it is sent to, failover included."""
    gateway = Gateway(configuration=mixed())
    first, second = [machine.adapter for machine in gateway.machines.values()]
    first.script = (fail(Failure("upstream_connect", "nobody there")),)
    second.script = (start(None), piece(text="Hi"), complete())
    assert gateway.chat(model="either").answer.json["choices"][0]["message"]["content"] == "Hi"
    assert [each.runs[0].request.mode for each in (first, second)] == [m.Mode.PASSTHROUGH, m.Mode.NORMALIZED]


# ---- what reaches the node


def asked(**how: Any) -> m.RunRequest:
    """Return what a node is asked for a chat request."""
    settings = {"openai": {"principal_tokens": [token("alice"), token("bob")], "allow_anonymous": False}}
    gateway = Gateway(configuration=document(**settings))
    headers = {"authorization": f"Bearer {how.pop('who', 'alice')}", **how.pop("headers", {})}
    gateway.chat(headers=headers, **how)
    request: m.RunRequest = gateway.run.request
    return request


def token(name: str) -> dict[str, str]:
    return {"token_ref": name, "token_hash_sha256": sha256(name), "principal_ref": name}


@pytest.mark.parametrize(
    "how",
    [
        {"metadata": {"session_id": "s1", "workspace": "/", "ticket": "7"}},
        {"metadata": {"ticket": "7"}, "headers": {"x-iop-session": "s1", "x-iop-workspace": "/"}},
    ],
)
def test_session_workspace_and_metadata(how: dict[str, Any]) -> None:
    request = asked(**how)
    assert (request.session_id, request.workspace, request.metadata) == ('["alice","s1"]', "/", {"ticket": "7"})


def test_nobody_can_name_anothers_session() -> None:
    names = {asked(who=who, metadata={"session_id": "s"}).session_id for who in ("alice", "bob")}
    names.add(asked(who="bob", metadata={"session_id": '","s"]'}).session_id)
    assert len(names) == 3
    assert asked().session_id == ""


@pytest.mark.parametrize(
    "metadata",
    [
        {"session_id": "a\nb"},
        {"session_id": "x" * 257},
        {"session_id": 5},
        {"workspace": "a\0b"},
        {"workspace": "x" * 5000},
        {"workspace": ["a"]},
        {"workspace": "/a\ud800"},
        {"ticket": "\ud800"},
        {"\ud800": "x"},
    ],
)
def test_a_session_or_workspace_that_cannot_be(metadata: dict[str, str]) -> None:
    answer = Gateway().chat(metadata=metadata).answer
    assert (answer.status, answer.code) == (400, "invalid_value")


def test_a_session_is_the_same_in_the_body_and_in_the_header() -> None:
    assert (
        asked(metadata={"session_id": "sitz\u00fcng"}).session_id
        == asked(headers={"x-iop-session": "sitz\u00fcng".encode().decode("latin-1")}).session_id
    )


@pytest.mark.parametrize("tools", [5, "x", {}, [5], None])
def test_tools_that_are_none_are_the_backends_to_refuse(tools: Any) -> None:
    gateway = Gateway(start(None, FALLBACK), piece(text="Hi"), complete())
    assert gateway.chat(tools=tools).answer.status == 200


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ({"role": "user", "content": None}, 400),
        ({"role": "assistant", "content": None, "tool_calls": []}, 200),
        ({"role": "assistant"}, 200),
        ({"role": "assistant", "content": ""}, 200),
    ],
)
def test_null_is_something_that_a_user_cannot_say(message: dict[str, Any], status: int) -> None:
    """MS-01"""
    gateway = Gateway(start(None), complete())
    answer = gateway.ask(body={"model": "m", "messages": [{"role": "user", "content": "hi"}, message]}).answer
    assert answer.status == status
    if status == 400:
        assert (answer.code, answer.json["error"]["param"]) == ("invalid_value", "messages[1].content")


def test_metadata_of_the_client_is_no_word_of_ours() -> None:
    assert asked(metadata={"openai_strip_usage": "true", "n": 7, "k": "v"}).metadata == {"k": "v"}
    assert asked(metadata={"traceparent": "x", "tracestate": "y"}).metadata == {}
    assert asked(metadata={"openai_strip_usage": "x"}, stream=True).metadata == {"openai_strip_usage": "true"}


@pytest.mark.parametrize(
    ("request_", "budget"),
    [
        ({}, 1024),
        ({"reasoning_effort": "none"}, None),
        ({"reasoning_effort": "low"}, 1024),
        ({"thinking_token_budget": 5}, None),
        ({"chat_template_kwargs": {"enable_thinking": False}}, None),
        ({"chat_template_kwargs": {"other": 1}}, 1024),
    ],
)
def test_the_models_thinking_budget_where_the_client_says_nothing(request_: dict[str, Any], budget: int | None) -> None:
    configuration = document()
    configuration["models"][0]["default_thinking_token_budget"] = 1024
    gateway = Gateway(configuration=configuration)
    client = gateway.ask(body={"model": "m", "messages": [], **request_})
    assert client is gateway.clients[-1]
    assert gateway.run.request.thinking == (m.Thinking() if budget is None else m.Thinking("on", budget))
