"""Runs over Ollama's native API, backend and adapter joined in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backend_in_memory import Backend, Request
from doubles import RecordingSink
from hypothesis import given
from hypothesis import strategies as st
from memory_net import MemoryNet
from twisted.internet.defer import CancelledError

from iop import model as m
from iop.errors import Failure
from iop.http.client import Timers
from iop.node.adapters.attempt import MAX_ERROR
from iop.node.adapters.environment import Environment, Run
from iop.node.adapters.ollama import adapter as module
from iop.node.adapters.ollama.adapter import factory

pytestmark = pytest.mark.usefixtures("logged")

KIND = "application/x-ndjson"
USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "lookup_tide", "parameters": {"type": "object"}}}
NO_TOOLS = b'{"error":"registry.ollama.ai/library/t does not support tools"}'
MARK = {"openai_text_tool_fallback": "true"}


def line(content: str = "", done: str | None = None, **members: Any) -> bytes:
    """Return a line with a piece of text; ``done`` is the reason of the last one."""
    message = {"role": "assistant", "content": content, **members.pop("message", {})}
    ending = {"done": False} if done is None else {"done": True, "done_reason": done}
    return json.dumps({"model": "t", "message": message, **ending, **members}, ensure_ascii=False).encode() + b"\n"


DONE = line(done="stop", prompt_eval_count=9, eval_count=4)
CALLED = line(message={"tool_calls": [{"function": {"name": "lookup_tide", "arguments": {"port": "Oban"}}}]})


class World:
    """An adapter with these settings, and its backend."""

    def __init__(self, **settings: Any) -> None:
        self.net = MemoryNet()
        self.backend = Backend(self.net, 11434)
        self.adapter = factory.make(settings, Environment("a", self.net, Path("/state")))

    def streams(self, *reads: bytes) -> None:
        def answer(request: Request) -> None:
            request.connection.stream(*reads, kind=KIND)
            request.connection.end()

        self.backend.answer = answer

    def begins(self, *reads: bytes) -> None:
        self.backend.answer = lambda request: request.connection.stream(*reads, kind=KIND)

    def ask(self, document: Any = None, *, target: str = "t", **request: Any) -> RecordingSink:
        sink = RecordingSink()
        body = {"model": "the-clients", "messages": [USER], **(document or {})}
        made = m.RunRequest(
            "r", "a", target, **{"mode": m.Mode.NORMALIZED, "input": json.dumps(body).encode(), **request}
        )
        self.done = self.adapter.run(Run(made), sink)
        self.net.run()
        return sink

    def end(self) -> None:
        """Nothing is left after a while."""
        self.net.run(30)
        assert not self.net.ends
        assert self.net.waiting == []


def test_an_answer_as_it_comes() -> None:
    """RE-01, FR-01"""
    world = World()
    world.begins(line(message={"thinking": "hmm"}))
    sink = world.ask({"stream": False})
    assert sink.events == [m.Start(), m.Delta(reasoning="hmm")]
    world.backend.last.connection.say(line("42"), DONE)
    world.backend.last.connection.end()
    world.net.run()
    assert sink.events[2:] == [m.Delta(text="42"), m.Complete("stop", m.Usage(9, 4))]
    request = world.backend.last
    assert (request.method, request.target) == ("POST", "/api/chat")
    options = {"num_ctx": 8192}
    assert request.json == {"model": "t", "messages": [USER], "stream": True, "truncate": False, "options": options}
    world.end()


def test_tool_calls_are_on_the_end() -> None:
    """FR-01, OL-01"""
    world = World()
    world.streams(CALLED, CALLED, DONE)
    sink = world.ask({"tools": [TOOL]})
    assert sink.events[0] == m.Start()
    assert isinstance(sink.end, m.Complete)
    assert (sink.end.finish_reason, set(sink.end.metadata)) == ("tool_calls", {"openai_tool_calls"})
    calls = json.loads(sink.end.metadata["openai_tool_calls"])
    assert len({call.pop("id") for call in calls}) == 2
    function = {"name": "lookup_tide", "arguments": '{"port": "Oban"}'}
    assert calls == [{"type": "function", "function": function}] * 2
    assert world.backend.last.json["tools"] == [TOOL]


@given(st.integers(1, 40))
def test_reads_of_any_size(size: int) -> None:
    """UTF-01"""
    world = World()
    world.net.read_size = size
    world.streams(line("那🌍"), line("é", message={"thinking": "hm"}) + CALLED, DONE)
    sink = world.ask()
    assert sink.text == "那🌍é"
    assert isinstance(sink.end, m.Complete)
    assert sink.end.usage == m.Usage(9, 4)


def test_what_goes_with_a_request() -> None:
    """AU-02, OL-02: configured headers under those of this run alone; the context of the target; how long it stays."""
    sizes = {"t": 32768, "u": 8}
    world = World(headers={"Authorization": "Bearer config", "X-Team": "lab"}, context_size=sizes, keep_alive=-1)
    world.streams(DONE)
    world.ask({"options": {"num_ctx": 8192}}, secret_headers=(("Authorization", "Bearer run"),))
    request = world.backend.last
    assert request.headers["authorization"] == ["Bearer run"]
    assert request.headers["x-team"] == ["lab"]
    assert request.headers["content-type"] == ["application/json"]
    assert request.json["options"] == {"num_ctx": 32768}
    assert request.json["keep_alive"] == -1
    world.ask(target="u")
    assert world.backend.last.json["options"] == {"num_ctx": 8}
    assert world.backend.last.headers["authorization"] == ["Bearer config"]


def test_a_default_budget_is_no_wish_to_think() -> None:
    """RE-01 ollama_plain_model: the edge adds a model's budget to a request that says nothing of thinking."""
    world = World()
    world.streams(DONE)
    world.ask(thinking=m.Thinking("on", 2048))
    assert "think" not in world.backend.last.json
    world.ask({"chat_template_kwargs": {"enable_thinking": True}})
    assert world.backend.last.json["think"] is True


def test_a_target_without_a_context_is_told_once(logged: Any) -> None:
    """OL-02"""
    world = World(context_size={"t": 5})
    world.streams(DONE)
    for target in ("t", "u", "u", "v"):
        world.ask(target=target)
    assert [said for said in logged.lines("info") if "context_size" in said] == [
        f"a: no context_size for {target}: it gets 8192 tokens, and longer prompts are refused" for target in "uv"
    ]
    assert [request.json["options"]["num_ctx"] for request in world.backend.requests] == [5, 8192, 8192, 8192]


def test_a_prompt_that_may_have_been_cut_is_no_success() -> None:
    """OL-02: an old server takes no notice of truncate."""
    world = World(context_size=32)
    world.streams(line("a"), line(done="stop", prompt_eval_count=32, eval_count=4))
    sink = world.ask()
    assert (sink.text, sink.failure.code, sink.failure.http_status) == ("a", "context_length_exceeded", 400)
    assert sink.end == m.Error(sink.failure, m.Usage(32, 4))
    world.end()


def test_bad_arguments_in_the_history_are_told(logged: Any) -> None:
    """OL-01 bad_history"""
    world = World()
    world.streams(DONE)
    call = {"id": "c1", "function": {"name": "f", "arguments": "{oops"}}
    world.ask({"messages": [USER, {"role": "assistant", "tool_calls": [call]}]})
    (warning,) = logged.warnings()
    assert warning.startswith("a, r: messages[1].tool_calls[0].function.arguments ")
    assert "oops" not in warning


@pytest.mark.parametrize(
    ("base_url", "prefix"),
    [("", ""), ("/", ""), ("/v1", ""), ("/api", ""), ("/api/", ""), ("/ollama", "/ollama"), ("/ollama/api", "/ollama")],
)
def test_base_urls(base_url: str, prefix: str) -> None:
    """UR-01"""
    world = World(base_url=f"http://127.0.0.1:11434{base_url}")
    world.streams(DONE)
    world.ask()
    assert world.backend.last.target == f"{prefix}/api/chat"


def test_settings() -> None:
    assert World().adapter._backend.timers == Timers(connect=5.0, first_byte=600.0, gap=300.0, total=0.0)
    with pytest.raises(Failure, match="host"):
        World(headers={"Host": "elsewhere"})
    with pytest.raises(Failure, match="base_url"):
        World(base_url="ftp://b/")


# ---- what is refused here


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"mode": m.Mode.PASSTHROUGH}, "unknown_url"),
        ({"input": b"{"}, "invalid_json"),
        ({"input": b"[]"}, "invalid_value"),
        ({"input": b'{"messages":[],"n":2}'}, "invalid_value"),
        ({"input": b'{"messages":[],"temperature":1e999}'}, "invalid_value"),
    ],
)
def test_requests_that_never_reach_the_backend(request_: Any, code: str) -> None:
    world = World()
    with pytest.raises(Failure) as raised:
        world.ask(**request_)
    assert raised.value.code == code
    assert world.backend.requests == []
    world.end()


# ---- failures


def test_a_refusal_is_never_a_start() -> None:
    world = World()
    world.backend.responds(503, b'{"error":"server busy, please try again"}')
    sink = world.ask()
    assert [type(event) for event in sink.events] == [m.Error]
    assert (sink.failure.http_status, sink.failure.retryable, sink.failure.retry_after_ms) == (503, True, 1000)
    world.end()


def test_a_refusal_without_end_is_cut_and_one_that_breaks_is_still_it() -> None:
    world = World()
    world.backend.answer = lambda request: request.connection.raw(b"HTTP/1.1 500 x\r\n\r\n" + b"x" * (MAX_ERROR + 1))
    assert world.ask().failure.code == "upstream_error"
    assert world.backend.open == 0

    def breaks(request: Request) -> None:
        request.connection.raw(b"HTTP/1.1 429 x\r\ncontent-length: 99\r\n\r\nnot all")
        world.net.callLater(0.1, request.connection.abort)

    world.backend.answer = breaks
    sink = world.ask()
    world.net.run(1)
    assert sink.failure.http_status == 429
    world.end()


@pytest.mark.parametrize(
    "reads",
    [[line("a")], [line("a"), line(done="")], [line("a"), b'{"error":"dial 10.0.0.1:5"}\n'], [line("a"), b"<html>\n"],
     [line("a"), DONE[:-9]]],
)  # fmt: skip
@pytest.mark.parametrize("how", ["end", "close", "abort"])
def test_an_answer_that_is_not_whole(reads: list[bytes], how: str) -> None:
    """FR-01: no done line, an empty reason, an error line: never the look of a whole answer."""
    world = World()
    world.begins(*reads)
    sink = world.ask()
    getattr(world.backend.last.connection, how)()
    world.net.run()
    assert sink.text == "a"
    assert (sink.failure.code, sink.failure.http_status) == ("upstream_error", 502)
    assert "10.0.0.1" not in sink.failure.message
    world.end()


def test_an_error_in_the_first_line_is_never_a_start() -> None:
    world = World()
    world.streams(b'{"error":"x"}\n')
    assert [type(event) for event in world.ask().events] == [m.Error]
    assert world.backend.open == 0


@pytest.mark.parametrize("how", ["end", "close", "abort"])
def test_after_the_last_line_it_does_not_matter_how_the_connection_ends(how: str) -> None:
    world = World()
    world.begins(line("a"), DONE, line("more"))
    sink = world.ask()
    getattr(world.backend.last.connection, how)()
    world.net.run()
    assert (sink.text, sink.end) == ("a", m.Complete("stop", m.Usage(9, 4)))
    world.end()


def test_an_answer_that_ends_with_its_connection() -> None:
    world = World()

    def answer(request: Request) -> None:
        request.connection.raw(b"HTTP/1.1 200 OK\r\n\r\n" + line("a") + DONE[:-1])
        request.connection.close()

    world.backend.answer = answer
    assert isinstance(world.ask().end, m.Complete)


def test_silence() -> None:
    """TO-01: nobody there, no answer, a gap."""
    world = World(first_byte_timeout_ms=3000, gap_timeout_ms=5000)
    sink = world.ask()
    world.net.run(3.5)
    assert (sink.failure.code, sink.failure.http_status) == ("upstream_timeout", 504)
    world.begins(line("a"))
    sink = world.ask()
    world.net.run(5.5)
    assert (sink.text, sink.failure.code) == ("a", "upstream_timeout")
    world.backend.port.stopListening()
    sink = world.ask()
    world.net.run(1)
    assert (sink.failure.code, sink.failure.retryable) == ("upstream_connect", True)
    world.end()


# ---- tools as text


def knows_no_tools(world: World, *reads: bytes) -> Callable[[Request], None]:
    def answer(request: Request) -> None:
        if "tools" in request.json:
            request.connection.respond(400, NO_TOOLS)
        else:
            request.connection.stream(*reads, kind=KIND)
            request.connection.end()

    world.backend.answer = answer
    return answer


def test_a_model_without_tools_is_asked_again_in_text(logged: Any) -> None:
    world = World()
    knows_no_tools(world, line("<tool_call>"), DONE)
    sink = world.ask({"tools": [TOOL], "tool_choice": "auto"})
    assert sink.events == [
        m.Start(None, MARK),
        m.Delta(text="<tool_call>"),
        m.Complete("stop", m.Usage(9, 4), MARK),
    ]
    first, second = world.backend.requests
    assert first.json["tools"] == [TOOL]
    assert "lookup_tide" in second.json["messages"][0]["content"]
    assert second.json["messages"][1] == USER
    assert [said for said in logged.lines("info") if "tools" in said] == [
        "a: t knows no tools; from now on they travel as text"
    ]
    world.end()


def test_it_is_remembered_for_the_target_until_the_adapter_is_made_anew() -> None:
    world = World()
    knows_no_tools(world, DONE)
    world.ask({"tools": [TOOL]})
    assert len(world.backend.requests) == 2
    assert world.ask({"tools": [TOOL]}).events[0] == m.Start(None, MARK)
    assert len(world.backend.requests) == 3
    assert world.ask().events[0] == m.Start()
    assert world.ask({"tools": [TOOL], "tool_choice": "none"}).events[0] == m.Start()
    world.ask({"tools": [TOOL]}, target="other")
    assert [("tools" in request.json, request.json["model"]) for request in world.backend.requests[-2:]] == [
        (True, "other"),
        (False, "other"),
    ]


def test_a_list_of_models_tells_who_knows_tools(logged: Any) -> None:
    """No run has to be refused first; a model that was pulled anew, and knows them now, is asked natively."""
    world = World()
    for capabilities, natively in ((["completion"], False), (["completion", "tools"], True), (["completion"], False)):
        said = {"models": [{"name": "t:latest", "capabilities": capabilities}]}
        world.backend.responds(200, json.dumps(said).encode())
        world.adapter.models()
        world.net.run()

        def answer(request: Request) -> None:
            request.connection.stream(DONE, kind=KIND)
            request.connection.end()

        world.backend.answer = answer
        before = len(world.backend.requests)
        world.ask({"tools": [TOOL]})
        assert ["tools" in request.json for request in world.backend.requests[before:]] == [natively]
    assert not [said for said in logged.lines("info") if "tools" in said], "what a list says is no news"


def test_what_was_refused_stays_so_whatever_a_list_says(logged: Any) -> None:
    world = World()
    knows_no_tools(world, DONE)
    world.ask({"tools": [TOOL]})
    world.backend.responds(200, b'{"models":[{"name":"t","capabilities":["tools"]}]}')
    world.adapter.models()
    world.net.run()
    knows_no_tools(world, DONE)
    before = len(world.backend.requests)
    world.ask({"tools": [TOOL]})
    assert ["tools" in request.json for request in world.backend.requests[before:]] == [False]


def test_the_second_refusal_is_final() -> None:
    world = World()
    world.backend.responds(400, NO_TOOLS)
    sink = world.ask({"tools": [TOOL]})
    assert len(world.backend.requests) == 2
    assert (sink.failure.http_status, len(sink.events)) == (400, 1)
    world.end()


def test_the_words_count_only_where_there_were_tools() -> None:
    world = World()
    world.backend.responds(400, NO_TOOLS)
    assert world.ask().failure.http_status == 400
    assert len(world.backend.requests) == 1


def test_leaving_while_it_is_asked_again() -> None:
    world = World()

    def answer(request: Request) -> None:
        if "tools" in request.json:
            request.connection.respond(400, NO_TOOLS)

    world.backend.answer = answer
    sink = world.ask({"tools": [TOOL]})
    assert (len(world.backend.requests), world.backend.open) == (2, 1)
    ends: list[Any] = []
    world.done.addBoth(ends.append)
    world.done.cancel()
    world.net.run()
    assert world.backend.open == 0
    assert (sink.events, ends[0].check(CancelledError)) == ([], CancelledError)
    world.end()


def test_both_attempts_share_the_time_of_the_run() -> None:
    """TO-01"""
    world = World(request_timeout_ms=10_000)
    sink = world.ask({"tools": [TOOL]})
    world.net.run(6)
    world.backend.last.connection.respond(400, NO_TOOLS)
    world.net.run()
    assert len(world.backend.requests) == 2
    world.net.run(3)
    assert sink.events == []
    world.net.run(2)
    assert sink.failure.code == "upstream_timeout"
    world.end()


def test_who_was_refused_while_another_run_learned_it_is_asked_again_too() -> None:
    world = World()
    first, second = world.ask({"tools": [TOOL]}), world.ask({"tools": [TOOL]})
    natively = [request.connection for request in world.backend.requests]
    knows_no_tools(world, DONE)
    for connection in natively:
        connection.respond(400, NO_TOOLS)
    world.net.run()
    assert [sink.end for sink in (first, second)] == [m.Complete("stop", m.Usage(9, 4), MARK)] * 2
    assert len(world.backend.requests) == 4
    world.end()


def test_a_run_that_begins_paused_loses_nothing_even_when_it_is_asked_again() -> None:
    world = World()
    knows_no_tools(world, line("a"), DONE)

    class Paused(RecordingSink):
        def attach(self, source: Any) -> None:
            super().attach(source)
            source.pause()

    sink = Paused()
    document = json.dumps({"messages": [USER], "tools": [TOOL]}).encode()
    world.adapter.run(Run(m.RunRequest("r", "a", "t", mode=m.Mode.NORMALIZED, input=document)), sink)
    world.net.run()
    assert (sink.events, len(world.backend.requests)) == ([], 1)
    sink.source.resume()
    world.net.run()
    assert sink.events[:2] == [m.Start(None, MARK), m.Delta(text="a")]
    world.end()


def test_a_rewriting_that_fails_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(document: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "rewritten", fails)
    world = World()
    knows_no_tools(world, DONE)
    world.ask({"tools": [TOOL]})
    ends: list[Any] = []
    world.done.addBoth(ends.append)
    assert ends[0].check(ZeroDivisionError)
    world.end()


# ---- probes


@pytest.mark.parametrize(
    ("status", "body", "health", "models"),
    [
        (200, b'{"version":"0.32.0","models":[{"name":"a"},{"name":"b:1"}]}', m.Health.UP, ["a", "b:1"]),
        (200, b"<html>", m.Health.UP, []),
        (404, b"", m.Health.UP, []),
        (503, b"", m.Health.DOWN, []),
    ],
)
def test_probe_and_models(status: int, body: bytes, health: m.Health, models: list[str]) -> None:
    world = World(headers={"Authorization": "Bearer k"})
    world.backend.responds(status, body)
    got: list[Any] = []
    world.adapter.probe().addBoth(got.append)
    world.adapter.models().addBoth(got.append)
    world.net.run(1)
    assert got == [health, models]
    assert sorted(request.target for request in world.backend.requests) == ["/api/tags", "/api/version"]
    assert world.backend.last.headers["authorization"] == ["Bearer k"]


@pytest.mark.parametrize(("status", "health"), [(200, m.Health.UP), (404, m.Health.DOWN)])
def test_a_probe_of_a_path_of_the_operators_choice(status: int, health: m.Health) -> None:
    world = World()
    world.backend.responds(status)
    got: list[Any] = []
    world.adapter.probe("/health").addBoth(got.append)
    world.net.run(1)
    assert (got, world.backend.last.target) == ([health], "/health")


def test_a_probe_of_a_backend_that_never_answers_lasts_until_it_is_cancelled() -> None:
    """Who is silent is not down: that is for the asker to say."""
    world = World()
    got: list[Any] = []
    probe = world.adapter.probe().addBoth(got.append)
    world.net.run(100)
    assert got == []
    probe.cancel()
    world.end()
    assert got[0].check(CancelledError)


def test_the_last_line_is_the_end_however_long_the_connection_takes_to_end() -> None:
    world = World()
    world.begins(line("Hi"), DONE)
    sink = world.ask()
    assert (sink.text, sink.end) == ("Hi", m.Complete("stop", m.Usage(9, 4)))
    fired: list[Any] = []
    world.done.addBoth(fired.append)
    assert fired == [None]


def test_a_count_that_no_message_can_carry_is_none() -> None:
    world = World()
    world.streams(line("Hi"), line(done="stop", eval_count=10**23))
    assert world.ask().end == m.Complete("stop", m.Usage(0, 0))
