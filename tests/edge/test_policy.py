"""A model's policy on a request: limits under every name, thinking by default, and what stays as the client said it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from doubles import wait
from gateway_in_memory import Gateway, document, node

from iop import model as m
from iop.document import Document
from iop.edge.surfaces.openai.policy import Policy

pytestmark = pytest.mark.usefixtures("logged")

USER = [{"role": "user", "content": "hi"}]
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "m", "messages": USER},
    "/v1/completions": {"model": "m", "prompt": "hi"},
    "/v1/responses": {"model": "m", "input": "hi"},
    "/v1/messages": {"model": "m", "messages": USER, "max_tokens": 1000},
}
OWN = {
    "/v1/chat/completions": "max_tokens",
    "/v1/completions": "max_tokens",
    "/v1/responses": "max_output_tokens",
    "/v1/messages": "max_tokens",
}
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
POLICY = {"default_max_tokens": 700, "min_max_tokens": 64}
BUDGET = {"default_thinking_token_budget": 512}
THINKS = m.Thinking("on", 512)
UNSET = m.Thinking()


def asked(type: str, path: str, body: Any, **policy: Any) -> m.RunRequest:
    """Return what a node is asked on behalf of a model with a policy."""
    made = node("n1", "p1", type=type)
    settings = {} if type == "ollama" else {"base_url": "http://127.0.0.1:8000"}
    made["adapters"] = [{"name": "a", "type": "ollama" if type == "ollama" else "openai_compat", **settings}]
    configuration = document(made)
    configuration["models"][0] |= policy
    gateway = Gateway(wait, configuration=configuration)
    client = gateway.ask(path, body)
    assert gateway.adapter.runs, client.answer.body
    request: m.RunRequest = gateway.run.request
    return request


def sent(type: str, path: str, body: Any, **policy: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(asked(type, path, body, **policy).input)
    return document


def limits(document: dict[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in LIMITS if name in document}


# ---- limits


@pytest.mark.parametrize("path", [path for path in ASKED if path != "/v1/messages"])
@pytest.mark.parametrize("given", [{}, {"max_tokens": None}, dict.fromkeys(LIMITS)], ids=["none", "null", "nulls"])
def test_a_default_where_the_client_set_no_limit(path: str, given: dict[str, Any]) -> None:
    """Null is not set. In the API's own name to a backend that has it, in chat's to any other."""
    native = sent("vllm", path, {**ASKED[path], **given}, **POLICY)
    assert native == {**ASKED[path], **given, OWN[path]: 700}
    assert limits(sent("ollama", path, {**ASKED[path], **given}, **POLICY))["max_tokens"] == 700


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/chat/completions", "max_tokens"),
        ("/v1/chat/completions", "max_completion_tokens"),
        ("/v1/completions", "max_tokens"),
        ("/v1/completions", "max_completion_tokens"),
        ("/v1/responses", "max_output_tokens"),
        ("/v1/messages", "max_tokens"),
    ],
)
@pytest.mark.parametrize(("given", "shown"), [(1, 64), (63, 64), (64, 64), (65, 65), (5000, 5000)])
def test_a_smaller_limit_is_raised_under_its_own_name(path: str, name: str, given: int, shown: int) -> None:
    body = {**ASKED[path], name: given}
    assert sent("vllm", path, body, **POLICY) == {**body, name: shown}
    translated = limits(sent("ollama", path, body, **POLICY))
    assert translated == {"max_tokens" if name == "max_output_tokens" else name: shown}


def test_every_limit_that_is_too_small_is_raised() -> None:
    body = {**ASKED["/v1/chat/completions"], "max_tokens": 1, "max_completion_tokens": 2, "max_output_tokens": None}
    assert limits(sent("vllm", "/v1/chat/completions", body, **POLICY)) == {
        "max_tokens": 64,
        "max_completion_tokens": 64,
        "max_output_tokens": None,
    }


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("type", ["vllm", "ollama"])
def test_without_a_policy_nothing_is_set(type: str, path: str) -> None:
    given = limits(ASKED[path])
    assert limits(sent(type, path, ASKED[path])) == given
    small = {**ASKED[path], OWN[path]: 1}
    assert list(limits(sent(type, path, small)).values()) == [1]


@pytest.mark.parametrize("said", ["-1", '"5"', "true", "[]", "1e-1"])
def test_a_limit_that_is_none_is_the_backends_to_refuse(said: str) -> None:
    body = b'{"model":"m","messages":[],"max_tokens":%b}' % said.encode()
    changed = asked("vllm", "/v1/chat/completions", body, **POLICY).input
    assert changed == (body if said != "1e-1" else body.replace(b"1e-1", b"64"))


def test_all_else_keeps_its_digits() -> None:
    body = b'{ "model":"m","messages":[] ,"max_tokens" : 3, "seed":12345678901234567890123,"x":1.10}'
    assert asked("vllm", "/v1/chat/completions", body, **POLICY).input == body.replace(b": 3", b": 64")


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/rerank", "/v1/messages/count_tokens"])
def test_what_writes_nothing_has_no_limits(path: str) -> None:
    body = {"model": "m", "input": "x", "messages": USER, "max_tokens": 1}
    assert sent("vllm", path, body, **POLICY, **BUDGET) == body


# ---- thinking

NONE_OF_THESE: list[dict[str, Any]] = [
    {"reasoning_effort": "none"},
    {"reasoning": {"effort": "low"}},
    {"thinking": {"type": "disabled"}},
    {"think": False},
    {"enable_thinking": False},
    {"thinking_token_budget": 0},
    {"thinking_budget": 5},
    {"thinking_budget_tokens": 5},
    {"reasoning_budget_tokens": 5},
    {"custom_params": {"thinking_budget": 5}},
    {"nvext": {"max_thinking_tokens": 5}},
    {"extra_body": {}},
    {"chat_template_kwargs": {"enable_thinking": False}},
    {"chat_template_kwargs": {"thinking": True}},
]
ALL_THE_SAME: list[dict[str, Any]] = [
    {},
    {"reasoning_effort": "low"},
    {"reasoning_effort": None},
    {"chat_template_kwargs": {"x": 1}},
    {"chat_template_kwargs": None},
]


@pytest.mark.parametrize("type", ["vllm", "ollama"])
def test_a_chat_thinks_by_default_unless_it_says_how_much(type: str) -> None:
    path = "/v1/chat/completions"
    for said, thinking in [*((each, UNSET) for each in NONE_OF_THESE), *((each, THINKS) for each in ALL_THE_SAME)]:
        body = {**ASKED[path], **said}
        request = asked(type, path, body, **BUDGET)
        assert (request.thinking, json.loads(request.input)) == (thinking, body), said


@pytest.mark.parametrize("given", [{}, {"reasoning": {"effort": "low"}}, {"reasoning": {"summary": "auto"}}])
@pytest.mark.parametrize("type", ["vllm", "ollama"])
def test_a_response_that_thinks_by_default_goes_as_a_chat(type: str, given: dict[str, Any]) -> None:
    """No API but chat can say how much, not even to a backend that has the other one."""
    request = asked(type, "/v1/responses", {**ASKED["/v1/responses"], **given}, **BUDGET)
    assert (request.mode, request.http, request.thinking) == (m.Mode.NORMALIZED, None, THINKS)


def test_a_response_without_thinking_stays_what_it_is() -> None:
    body = {**ASKED["/v1/responses"], "reasoning": {"effort": "none"}}
    request = asked("vllm", "/v1/responses", body, **BUDGET)
    assert (request.mode, request.thinking, json.loads(request.input)) == (m.Mode.PASSTHROUGH, UNSET, body)


@pytest.mark.parametrize(
    ("wish", "mode", "thinking"),
    [
        (None, m.Mode.NORMALIZED, THINKS),
        ({"type": "enabled", "budget_tokens": 2048}, m.Mode.PASSTHROUGH, m.Thinking("on", 2048)),
        ({"type": "disabled"}, m.Mode.PASSTHROUGH, m.Thinking("off")),
    ],
)
def test_a_messages_own_wish_goes_first(wish: Any, mode: m.Mode, thinking: m.Thinking) -> None:
    body = {**ASKED["/v1/messages"], "max_tokens": 4096, **({"thinking": wish} if wish else {})}
    request = asked("vllm", "/v1/messages", body, **BUDGET)
    assert (request.mode, request.thinking) == (mode, thinking)
    if mode is m.Mode.PASSTHROUGH:
        assert json.loads(request.input) == body
    assert asked("ollama", "/v1/messages", body, **BUDGET).thinking == thinking


@pytest.mark.parametrize("prompt", ["hi", ["a", "b"]])
def test_a_prompt_that_goes_on_does_not_become_a_chat(prompt: Any) -> None:
    """CH-02: where the backend has the API the prompt is what the model sees, without a template around it."""
    body = {"model": "m", "prompt": prompt}
    request = asked("vllm", "/v1/completions", body, **BUDGET)
    assert (request.mode, json.loads(request.input)) == (m.Mode.PASSTHROUGH, body)


def test_a_prompt_that_is_a_chat_anyway_thinks_by_default() -> None:
    assert asked("ollama", "/v1/completions", {"model": "m", "prompt": "hi"}, **BUDGET).thinking == THINKS


# ---- pure


@pytest.mark.parametrize(
    ("policy", "body", "changes"),
    [
        (Policy(), {}, {}),
        (Policy(5), {}, {"own": "5"}),
        (Policy(5, 3), {"max_tokens": 9}, {}),
        (Policy(5, 3), {"max_tokens": 0}, {"max_tokens": "3"}),
        (Policy(0, 3), {}, {}),
        (Policy(0, 3), {"max_tokens": 1, "max_output_tokens": 2}, {"max_tokens": "3", "max_output_tokens": "3"}),
        (Policy(5, 3), {"max_completion_tokens": None}, {"own": "5"}),
    ],
)
def test_limits(policy: Policy, body: dict[str, Any], changes: dict[str, str]) -> None:
    assert policy.limits(Document.of(json.dumps(body)), "own") == changes
