"""Ollama's API as others understand it: aimock behind the ``ollama`` adapter, real clients before the tests' double."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from aimock import ANSWER, REFUSED, Mock
from real_gateway import PORT, Backend, Gateway, user

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "run_shell_command",
        "description": "Runs a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}

# ---- the adapter, before a server that is not of this project --------------------------------------------------------


def test_answer(gateway: Gateway) -> None:
    answer = gateway.client().chat.completions.create(model="ollama", messages=user("Hello there"))
    assert answer.choices[0].message.content == ANSWER
    assert answer.choices[0].finish_reason == "stop"


def test_stream(gateway: Gateway) -> None:
    chunks = list(gateway.client().chat.completions.create(model="ollama", messages=user("Hello there"), stream=True))
    said = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
    assert "".join(said) == ANSWER
    assert len(said) > 2


def test_tool_call(gateway: Gateway, mock: Mock) -> None:
    answer = gateway.client().chat.completions.create(
        model="ollama", messages=user("Please use the tool"), tools=[WEATHER]
    )
    assert answer.choices[0].finish_reason == "tool_calls"
    (call,) = answer.choices[0].message.tool_calls or ()
    assert call.function.name == "run_shell_command"  # type: ignore[union-attr]
    assert any(b"/api/chat" in heard for heard in mock.heard)


def test_refusal(gateway: Gateway) -> None:
    with pytest.raises(Exception, match=REFUSED) as raised:
        gateway.client().chat.completions.create(model="ollama", messages=user("Please refuse this"))
    assert getattr(raised.value, "status_code", None) == 400


# ---- the tests' double, before clients that are not of this project --------------------------------------------------


@pytest.fixture(scope="module")
def double(work: Path) -> Backend:
    """The Ollama server of ``tests/integration``."""
    if not (Path(__file__).parents[1] / "integration" / "fake_ollama.py").exists():
        pytest.skip("there is no Ollama double yet")
    return Backend("fake-ollama", work, "fake_ollama.py", PORT).ready()


def _client(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError:
        pytest.skip(f"{module} is not installed")


def test_ollama_python(double: Backend) -> None:
    """Streams alone: the adapter asks for nothing else."""
    client = _client("ollama", "Client")(host=double.url)
    (model, *_) = [each.model for each in client.list().models]
    messages = [{"role": "user", "content": "Hello there"}]
    parts = list(client.chat(model=model, messages=messages, stream=True))
    assert "".join(part.message.content or "" for part in parts)
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].done_reason == "stop"
    assert parts[-1].eval_count
    parts = list(client.chat(model=model, messages=messages, tools=[WEATHER], stream=True))
    (call,) = [call for part in parts for call in part.message.tool_calls or ()]
    assert call.function.name == "run_shell_command"


def test_langchain(double: Backend) -> None:
    (model, *_) = [each.model for each in _client("ollama", "Client")(host=double.url).list().models]
    chat = _client("langchain_ollama", "ChatOllama")(model=model, base_url=double.url)
    assert chat.invoke("Hello there").content
    assert "".join(str(part.content) for part in chat.stream("Hello there"))
