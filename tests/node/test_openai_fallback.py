"""Tools on their way to a backend: natively, as text after a refusal, as text always, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from backend_in_memory import DONE, USAGE, Request, chunk, ending, event
from doubles import RecordingSink
from openai_world import CHAT, World
from twisted.internet.defer import CancelledError

from iop import model as m
from iop.errors import Failure
from iop.node.adapters.openai_compat.refusal import refuses_fields, refuses_tools

pytestmark = pytest.mark.usefixtures("logged")

VLLM = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
MARK = {"openai_text_tool_fallback": "true"}
TOOLS = [{"type": "function", "function": {"name": "lookup_tide", "parameters": {"type": "object"}}}]
CALL = '<tool_call>\n{"name": "lookup_tide", "arguments": {}}\n</tool_call>'


def body(**members: Any) -> bytes:
    asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": TOOLS, **members}
    return json.dumps(asked).replace('"seed": 1', '"seed": 1.0e0').encode()


def refusal(message: str = VLLM, kind: str = "error") -> bytes:
    return json.dumps({kind: {"message": message}}).encode()


class Refusing(World):
    """A backend that refuses tools, and answers with text."""

    def __init__(self, status: int = 400, message: str = VLLM, **settings: Any) -> None:
        super().__init__(**settings)
        self.refusal = status, refusal(message)
        self.backend.answer = self._answer

    def _answer(self, request: Request) -> None:
        if "tools" in request.json or "tool_choice" in request.json:
            request.connection.respond(*self.refusal)
        else:
            request.connection.stream(chunk(CALL), ending(), USAGE, DONE)
            request.connection.end()

    def run(self, normalized: bool, asked: bytes | None = None, **more: Any) -> RecordingSink:
        if normalized:
            more |= {"http": None, "mode": m.Mode.NORMALIZED}
        return self.ask(body() if asked is None else asked, **more)


FALLEN_BACK = [m.Start(None, MARK), m.Delta(text=CALL), m.Complete("stop", m.Usage(7, 1), MARK)]


# ---- how a refusal is recognised


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, VLLM),
        (400, 'tool_choice="required" requires --tool-call-parser to be set'),
        (400, "Please set --tool-call-parser to use tools"),
        (502, "tools param requires --jinja flag"),  # llama.cpp's 500
        (502, "Unsupported param: tools"),
        (400, "registry.ollama.ai/library/gemma3:4b does not support tools"),
        (400, "deepseek-reasoner does not support Function Calling"),
        (400, "`tool calling` is not supported with this model"),
        (422, "Tools are not supported by this model"),
        (404, "No endpoints found that support tool use. To learn more, read on"),
    ],
)
def test_what_refuses_tools(status: int, message: str) -> None:
    assert refuses_tools(Failure("upstream_error", message, http_status=status))


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, VLLM),
        (429, VLLM),
        (504, VLLM),
        (400, "parallel tool calls are not supported"),
        (400, "tools[0].function.parameters is not valid"),
        (400, "this model does not support images"),
        (400, "tool_choice must be one of the tools"),
        (502, "the backend failed"),
    ],
)
def test_what_is_about_something_else(status: int, message: str) -> None:
    assert not refuses_tools(Failure("upstream_error", message, http_status=status))


def test_what_refuses_a_field() -> None:
    def refused(message: str, *paths: str, status: int = 400, param: str | None = None) -> str:
        return refuses_fields(Failure("", message, http_status=status, param=param), paths)

    message = "thinking_token_budget is set but reasoning_config is not configured"
    assert refused(message, "thinking_token_budget") == "thinking_token_budget"
    assert refused(message, "custom_params.thinking_budget") == ""
    assert refused("Extra inputs", "thinking.budget_tokens", param="thinking.budget_tokens") == "budget_tokens"
    assert refused("max_tokens is too large", "reasoning.max_tokens") == ""
    assert refused(message, "thinking_token_budget", status=502) == ""
    assert refused(message) == ""


# ---- auto


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize(
    ("status", "message"),
    [(400, VLLM), (500, "tools param requires --jinja flag"), (400, "x does not support tools")],
)
def test_a_refused_run_is_asked_again_with_tools_as_text(normalized: bool, status: int, message: str) -> None:
    world = Refusing(status, message)
    sink = world.run(normalized, body(seed=1, tool_choice="auto", parallel_tool_calls=True))
    assert sink.events == FALLEN_BACK
    first, second = [request.json for request in world.backend.requests]
    assert first["tools"] == TOOLS
    assert set(second) == {"model", "messages", "seed", "stream", "stream_options"}
    assert second["model"] == ("t" if normalized else "m")
    assert second["stream"] is True
    assert '"seed": 1.0e0' in world.backend.last.body.decode()
    system, user = second["messages"]
    assert "lookup_tide" in system["content"]
    assert user == {"role": "user", "content": "hi"}
    world.end()


@pytest.mark.parametrize("normalized", [False, True])
def test_a_refusal_is_remembered_for_its_target_until_the_adapter_restarts(normalized: bool) -> None:
    world = Refusing()
    world.run(normalized)
    assert len(world.backend.requests) == 2
    assert world.run(not normalized).events == FALLEN_BACK
    assert len(world.backend.requests) == 3
    world.run(normalized, target="other")
    assert len(world.backend.requests) == 5
    again = Refusing()
    again.run(normalized)
    assert len(again.backend.requests) == 2


def test_a_run_without_tools_passes_all_the_same() -> None:
    world = Refusing()
    world.run(False)
    sink = world.run(False, b'{"model": "m",  "messages": []}')
    assert world.backend.last.body == b'{"model": "m",  "messages": []}'
    assert sink.http is not None
    sink = world.run(False, b'{"model": "m",  "messages": [], "x": ["tools"]}')
    assert world.backend.last.body == b'{"model": "m",  "messages": [], "x": ["tools"]}'
    assert sink.http is not None


def test_a_backend_with_tools_sees_the_bytes() -> None:
    """TD-01: and what it streams passes."""
    world = World()
    world.backend.streams(chunk("hi"), ending(), DONE)
    sink = world.ask(body())
    assert world.backend.last.body == body()
    assert sink.body == chunk("hi") + ending() + DONE


def test_the_history_is_text_too() -> None:
    history = [
        {"role": "user", "content": "tide?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "lookup_tide", "arguments": "{}"}}
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": "2.1 m"},
    ]  # fmt: skip
    world = Refusing()
    world.run(True, body(messages=history))
    assert world.backend.last.json["messages"][1:] == [
        {"role": "user", "content": "tide?"},
        {"role": "assistant", "content": CALL},
        {"role": "user", "content": "<tool_response>\n2.1 m\n</tool_response>"},
    ]


def test_no_choice_of_a_tool_is_no_marked_run() -> None:
    world = Refusing()
    sink = world.run(True, body(tool_choice="none"))
    assert sink.events == [m.Start(), m.Delta(text=CALL), m.Complete("stop", m.Usage(7, 1))]
    assert world.backend.last.json["messages"] == [{"role": "user", "content": "hi"}]


def test_a_refusal_inside_an_answer_is_one_too() -> None:
    world = Refusing()
    world.backend.answer = lambda request: (
        (request.connection.stream(event({"error": {"message": "m does not support tools"}})), request.connection.end())
        if "tools" in request.json
        else request.connection.respond(200, b'{"choices":[{"message":{"content":"hi"}}]}')
    )
    assert world.run(False).text == "hi"
    assert world.run(False).end == m.Complete("stop", None, MARK)
    world.end()


def test_another_refusal_is_told_as_it_is() -> None:
    world = Refusing(400, "temperature must be positive")
    for normalized in (False, True):
        failure = world.run(normalized).failure
        assert (failure.message, failure.http_status) == ("temperature must be positive", 400)
    assert len(world.backend.requests) == 2


def test_a_refused_body_that_is_no_json_is_told_of_as_the_backend_does() -> None:
    world = Refusing()
    world.backend.responds(400, refusal())
    assert world.run(False, b'{"tools": [').failure.message == VLLM
    assert len(world.backend.requests) == 1


def test_a_second_refusal_is_told() -> None:
    world = Refusing()
    world.backend.responds(400, refusal())
    assert world.run(False).failure.message == VLLM
    assert len(world.backend.requests) == 2
    world.end()


@pytest.mark.parametrize("normalized", [False, True])
def test_what_the_client_wrote_itself_teaches_nothing(normalized: bool) -> None:
    """An error may echo the request: one client must not take the native API from all the others."""
    world = Refusing(400, "tools[0].type: x does not support tools")
    assert world.run(normalized, body(user="x does not support tools")).text == CALL
    world.run(normalized)
    assert len(world.backend.requests) == 4


@pytest.mark.parametrize("normalized", [False, True])
def test_a_request_that_cannot_be_text_says_why(normalized: bool) -> None:
    """MS-02, CH-01"""
    world = Refusing()
    fired: list[Any] = []
    image = {"role": "tool", "tool_call_id": "c", "content": [{"type": "image_url"}]}
    sink = world.run(normalized, body(messages=[image]))
    world.done.addErrback(fired.append)
    assert sink.events == []
    assert fired[0].value.param == "messages[0].content[0]"
    if not normalized:
        world.run(False, body(n=2), target="other")
        world.done.addErrback(fired.append)
        assert fired[1].value.param == "n"
    world.end()


# ---- text, native, off


@pytest.mark.parametrize("normalized", [False, True])
def test_text_asks_so_at_once(normalized: bool) -> None:
    world = Refusing(tools="text")
    assert world.run(normalized).events == FALLEN_BACK
    assert len(world.backend.requests) == 1
    sink = world.run(True, b'{"model":"m","messages":[]}')
    assert sink.events[0] == m.Start()


@pytest.mark.parametrize("normalized", [False, True])
def test_native_tells_the_refusal(normalized: bool) -> None:
    world = Refusing(tools="native")
    failure = world.run(normalized).failure
    assert (failure.message, failure.http_status) == (VLLM, 400)
    assert len(world.backend.requests) == 1


@pytest.mark.parametrize("normalized", [False, True])
def test_off_leaves_tools_out_and_marks_nothing(normalized: bool) -> None:
    world = Refusing(tools="off")
    sink = world.run(normalized, body(tool_choice="auto", parallel_tool_calls=False, seed=1))
    asked = world.backend.last
    assert set(asked.json) - {"stream", "stream_options"} == {"model", "messages", "seed"}
    assert asked.json["messages"] == [{"role": "user", "content": "hi"}]
    assert '"seed": 1.0e0' in asked.body.decode()
    assert isinstance(sink.end, m.Complete)
    assert dict(sink.end.metadata) == {}
    assert (sink.http is None) is normalized


def test_off_leaves_a_request_without_tools_as_it_is() -> None:
    world = Refusing(tools="off")
    world.run(False, b'{ "model": "m", "messages": []}')
    assert world.backend.last.body == b'{ "model": "m", "messages": []}'


def test_other_endpoints_pass() -> None:
    world = Refusing(tools="text")
    world.run(False, http=m.HttpRequestHead("POST", "/v1/responses"))
    assert world.backend.last.body == body()


# ---- streaming upstream


def test_a_stream_that_is_put_together_falls_back_too() -> None:
    world = Refusing()
    assert world.run(False, provider="llama_cpp").events == FALLEN_BACK
    assert [request.json["stream"] for request in world.backend.requests] == [True, True]


def test_a_run_whose_tools_are_taken_is_put_together_as_ever() -> None:
    world = World()
    world.backend.streams(chunk("hi"), ending(), DONE)
    sink = world.ask(body(), provider="llama_cpp")
    assert json.loads(sink.body)["choices"][0]["message"]["content"] == "hi"


# ---- cancel, flow control, time


def test_a_run_is_cancelled_during_either_attempt() -> None:
    for attempts in (1, 2):
        world = Refusing()
        answers = [lambda c: c.respond(400, refusal()), lambda c: None][2 - attempts :]
        world.backend.answer = lambda request, answers=answers: answers.pop(0)(request.connection)  # type: ignore[misc]
        sink = world.run(False)
        assert len(world.backend.requests) == attempts
        fired: list[Any] = []
        world.done.addErrback(lambda reason, fired=fired: fired.append(reason.check(CancelledError)))
        world.done.cancel()
        world.net.run()
        assert fired == [CancelledError]
        assert sink.events == []
        assert world.backend.open == 0
        world.end()


def test_what_was_paused_during_the_first_attempt_is_paused_in_the_second() -> None:
    world = Refusing()
    world.backend.answer = lambda request: None
    sink = world.run(False)
    source = sink.source
    world.backend.last.connection.respond(400, refusal())
    source.pause()
    world.net.run()
    assert len(world.backend.requests) == 1
    world.backend.answer = world._answer
    source.resume()
    source.pause()
    world.net.run()
    assert sink.source is source
    assert sink.events == []
    source.resume()
    world.net.run()
    assert sink.events == FALLEN_BACK
    world.end()


def test_a_pause_in_the_second_attempt_holds_it() -> None:
    world = Refusing()
    world.run(False)
    world.backend.answer = lambda request: request.connection.stream(chunk("a"))
    sink = world.run(False)
    sink.source.pause()
    world.backend.last.connection.say(chunk("b"))
    world.net.run()
    assert sink.text == "a"
    sink.source.resume()
    world.net.run()
    assert sink.text == "ab"
    world.done.addErrback(lambda _: None)
    world.done.cancel()
    world.end()


def test_both_attempts_share_the_time_of_the_run() -> None:
    world = Refusing(request_timeout_ms=10_000)
    world.backend.answer = lambda request: None
    sink = world.run(False)
    world.net.run(6)
    world.backend.last.connection.respond(400, refusal())
    world.net.run()
    assert len(world.backend.requests) == 2
    world.net.run(3)
    assert sink.events == []
    world.net.run(2)
    assert sink.failure.code == "upstream_timeout"
    world.end()


def test_an_adapter_that_stops_ends_a_run_that_would_be_asked_again() -> None:
    world = Refusing()
    world.backend.answer = lambda request: None
    sink = world.run(False)
    world.adapter.stop()
    world.net.run()
    assert sink.failure.code == "upstream_error"
    assert CHAT.path == world.backend.last.target
    world.end()
