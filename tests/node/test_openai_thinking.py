"""Thinking switches and budgets: what each backend is sent, and what of the client's is never touched."""

from __future__ import annotations

import json
from typing import Any

import pytest
from backend_in_memory import DONE, Request, chunk, ending
from doubles import RecordingSink
from openai_world import World

from iop import model as m
from iop.document import Document
from iop.node.adapters.openai_compat.thinking import BACKENDS, additions, fields_of, spliced

pytestmark = pytest.mark.usefixtures("logged")

TEMPLATE = {"chat_template_kwargs": {"enable_thinking": True}}
VLLM = "thinking_token_budget is set but reasoning_config is not configured"


def sent(backend: str, thinking: m.Thinking, /, **client: Any) -> dict[str, Any]:
    """Return a client's members as the backend gets them."""
    fields = fields_of(backend)
    assert fields is not None
    document = Document.of(json.dumps(client))
    made: dict[str, Any] = json.loads(document.with_raw(spliced(document, additions(document, thinking, fields))))
    return made


def budget(tokens: int, mode: str = "on") -> m.Thinking:
    return m.Thinking(mode, tokens)


@pytest.mark.parametrize("mode", ["on", "unset"])
@pytest.mark.parametrize(
    ("backend", "made"),
    [
        ("vllm", {"thinking_token_budget": 2048}),
        ("sglang", {"custom_params": {"thinking_budget": 2048}}),
        ("llama_cpp", {"reasoning_budget_tokens": 2048, "thinking_budget_tokens": 2048}),
        ("openrouter", {"reasoning": {"max_tokens": 2048}}),
        ("anthropic", {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        ("litellm", {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        ("dashscope", {"enable_thinking": True, "thinking_budget": 2048}),
        ("nvidia_nim", {"nvext": {"max_thinking_tokens": 2048}}),
    ],
)
def test_a_budget_as_each_backend_wants_it(backend: str, mode: str, made: dict[str, Any]) -> None:
    assert sent(backend, budget(2048, mode)) == made


@pytest.mark.parametrize(
    ("backend", "on", "off"),
    [
        ("vllm", TEMPLATE, {"chat_template_kwargs": {"enable_thinking": False}}),
        ("openrouter", {"reasoning": {"enabled": True}}, {"reasoning": {"enabled": False}}),
        ("anthropic", {}, {"thinking": {"type": "disabled"}}),
        ("dashscope", {"enable_thinking": True}, {"enable_thinking": False}),
        ("nvidia_nim", {}, {}),
    ],
)  # fmt: skip
def test_a_switch_as_each_backend_wants_it(backend: str, on: dict[str, Any], off: dict[str, Any]) -> None:
    assert sent(backend, m.Thinking("on")) == on
    assert sent(backend, m.Thinking("off")) == off
    assert sent(backend, m.Thinking("off", 2048)) == off


def test_every_backend_wants_something() -> None:
    for name, fields in BACKENDS.items():
        assert fields.budget, name


def test_who_a_backend_is() -> None:
    assert fields_of("", "", "") is None
    assert fields_of("ollama", "openai") is None
    assert fields_of("llama.cpp") is BACKENDS["llama_cpp"]
    assert fields_of("OpenRouter", "vllm") is BACKENDS["openrouter"]
    assert fields_of("our-own-name", "", "sglang") is BACKENDS["sglang"]


# ---- the client goes first


@pytest.mark.parametrize(
    "client",
    [
        {"thinking_token_budget": 5},
        {"thinking_budget": 5},
        {"reasoning_budget_tokens": 5},
        {"thinking_budget_tokens": -1},
        {"reasoning": {"max_tokens": 5}},
        {"thinking": {"type": "enabled", "budget_tokens": 5}},
        {"custom_params": {"thinking_budget": 5}},
        {"reasoning_effort": "none"},
        {"enable_thinking": False},
        {"think": False},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"chat_template_kwargs": {"thinking": False}},
        {"thinking": {"type": "disabled"}},
        {"reasoning": {"enabled": False}},
        {"reasoning": {"effort": "none"}},
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_client_that_gave_a_budget_or_switched_thinking_off_is_left_alone(
    backend: str, client: dict[str, Any]
) -> None:
    for thinking in (budget(2048), m.Thinking("on"), m.Thinking("off")):
        assert sent(backend, thinking, **client) == client


@pytest.mark.parametrize(
    ("backend", "client"),
    [
        ("sglang", {"custom_params": "mine"}),
        ("anthropic", {"thinking": {"type": "adaptive"}}),
        ("openrouter", {"reasoning": [1]}),
        ("dashscope", {"enable_thinking": True}),
    ],
)
def test_no_field_of_the_clients_is_written_over(backend: str, client: dict[str, Any]) -> None:
    assert sent(backend, budget(2048), **client) == client


def test_what_else_the_client_has_beside_a_field_stays() -> None:
    text = '{"custom_params": {"x": 0.10}, "chat_template_kwargs": null}'
    document = Document.of(text)
    fields = BACKENDS["sglang"]
    made = document.with_raw(spliced(document, additions(document, budget(7), fields)))
    assert made == '{"custom_params": {"x": 0.10, "thinking_budget": 7}, "chat_template_kwargs": null}'
    made = document.with_raw(spliced(document, additions(document, m.Thinking("off"), fields)))
    assert made == '{"custom_params": {"x": 0.10}, "chat_template_kwargs": {"enable_thinking": false}}'


@pytest.mark.parametrize(
    ("backend", "effort", "tokens"),
    [
        ("vllm", "low", 1024),
        ("vllm", "minimal", 128),
        ("vllm", "high", 2048),
        ("vllm", "weird", 2048),
        ("vllm", 7, 2048),
        ("openrouter", "low", None),
        ("anthropic", "high", None),
    ],
)
def test_an_effort_goes_before_a_default_or_stands_for_a_budget_within_it(
    backend: str, effort: Any, tokens: int | None
) -> None:
    made = sent(backend, budget(2048), reasoning_effort=effort)
    assert made.get("thinking_token_budget") == tokens
    assert made["reasoning_effort"] == effort
    assert (len(made) == 1) is (tokens is None)


# ---- the clamp


@pytest.mark.parametrize(
    ("backend", "limit", "tokens"),
    [
        ("vllm", 10_000, 2048),
        ("vllm", 2000, 1500),
        ("vllm", 300, 44),
        ("vllm", 256, 0),
        ("vllm", 200, None),
        ("anthropic", 1400, 1050),
        ("anthropic", 1300, None),
        ("dashscope", 256, None),
    ],
)
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_budget_leaves_room_for_the_answer(backend: str, name: str, limit: int, tokens: int | None) -> None:
    made = sent(backend, budget(2048), **{name: limit})
    del made[name]
    found = json.dumps(made)
    assert (made == {}) if tokens is None else (f": {tokens}" in found), found


# ---- runs


class Budgeted(World):
    """A backend that takes no budget, and answers."""

    def __init__(self, message: str = VLLM, **settings: Any) -> None:
        super().__init__(**settings)
        self.message = message
        self.backend.answer = self._answer

    def _answer(self, request: Request) -> None:
        if self.message and "thinking_token_budget" in request.json:
            request.connection.respond(400, json.dumps({"error": {"message": self.message}}).encode())
        else:
            request.connection.stream(chunk("hi"), ending(), DONE)
            request.connection.end()

    def run(
        self, normalized: bool = False, body: bytes = b'{"model": "m", "messages": []}', **more: Any
    ) -> RecordingSink:
        if normalized:
            more |= {"http": None, "mode": m.Mode.NORMALIZED}
        return self.ask(body, **{"thinking": budget(2048), "provider": "vllm", **more})


@pytest.mark.parametrize("normalized", [False, True])
def test_a_run_has_its_budget(normalized: bool) -> None:
    world = Budgeted("")
    sink = world.run(normalized)
    assert world.backend.last.json["thinking_token_budget"] == 2048
    assert isinstance(sink.end, m.Complete)
    assert (sink.http is None) is normalized
    if not normalized:
        assert world.backend.last.body == b'{"model": "m", "messages": [], "thinking_token_budget": 2048}'


@pytest.mark.parametrize("more", [{"thinking": m.Thinking()}, {"provider": ""}, {"provider": "openai"}])
def test_nobody_asked_for_or_nobody_reads_a_budget(more: dict[str, Any]) -> None:
    world = Budgeted()
    body = b'{ "model": "m", "messages": []}'
    world.run(body=body, **more)
    assert world.backend.last.body == body


def test_the_adapters_label_and_the_providers_type_say_who_it_is() -> None:
    for settings, more in (({"provider": "vllm"}, {"provider": ""}), ({}, {"provider": "", "type": "vllm"})):
        world = Budgeted("", **settings)
        world.run(**more)
        assert world.backend.last.json["thinking_token_budget"] == 2048


@pytest.mark.parametrize("normalized", [False, True])
def test_a_refused_budget_is_left_out_and_remembered_for_its_target(normalized: bool) -> None:
    world = Budgeted()
    sink = world.run(normalized)
    assert isinstance(sink.end, m.Complete)
    first, second = [request.json for request in world.backend.requests]
    assert first == {**second, "thinking_token_budget": 2048}
    world.run(normalized)
    assert len(world.backend.requests) == 3
    world.run(normalized, target="other")
    assert len(world.backend.requests) == 5
    world.end()


def test_what_the_client_set_is_the_clients_to_be_told_of() -> None:
    world = Budgeted()
    sink = world.run(body=b'{"model": "m", "messages": [], "thinking_token_budget": 5}')
    assert sink.failure.message == VLLM
    assert len(world.backend.requests) == 1


def test_another_refusal_is_told() -> None:
    world = Budgeted("temperature is wrong")
    assert world.run().failure.message == "temperature is wrong"
    assert len(world.backend.requests) == 1


def test_what_the_client_may_have_written_teaches_nothing() -> None:
    world = Budgeted()
    said = b'{"model": "m", "messages": [{"role": "user", "content": "what is thinking_token_budget?"}]}'
    assert isinstance(world.run(body=said).end, m.Complete)
    world.run()
    assert len(world.backend.requests) == 4


def test_tools_and_a_budget_may_both_be_refused() -> None:
    world = Budgeted()
    no_tools = b'{"error":{"message":"m does not support tools"}}'
    world.backend.answer = lambda request: (
        request.connection.respond(400, no_tools) if "tools" in request.json else world._answer(request)
    )
    tool = {"type": "function", "function": {"name": "f"}}
    sink = world.run(body=json.dumps({"model": "m", "messages": [], "tools": [tool]}).encode())
    assert sink.end == m.Complete("stop", None, {"openai_text_tool_fallback": "true"})
    assert ["thinking_token_budget" in request.json for request in world.backend.requests] == [True, True, False]
    world.end()
