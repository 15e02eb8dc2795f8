"""SDKs of others, through edge and node to llama.cpp, and to llama.cpp with nothing in between.

What fails at both is not the edge's. ``docs/contracts/openai.md``.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packages import modules, wanted
from real_gateway import KEY, Backend, Gateway
from tiny_model import SENTENCE

PATIENCE = 60.0
FIRST, REST = SENTENCE.split(" ", 1)
EDGE = ["edge", "direct"]

Node = Callable[..., Any]


@pytest.fixture(params=EDGE)
def url(request: pytest.FixtureRequest, models: Gateway, tiny: Backend) -> str:
    """Where to ask, without ``/v1``."""
    return models.url if request.param == "edge" else tiny.url


@pytest.fixture(params=["native", "translated", "direct"])
def way(request: pytest.FixtureRequest, models: Gateway, tiny: Backend) -> tuple[str, str]:
    """Where to ask for an API that a provider has or has not, and for which model."""
    return (tiny.url, "tiny") if request.param == "direct" else (models.url, request.param)


def imported(module: str, name: str) -> Any:
    """Return a class of a package that may not be installed."""
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError:
        pytest.skip(f"{module} is not installed")


# ---- langchain-openai ------------------------------------------------------------------------------------------------


@pytest.fixture
def chat(url: str) -> Any:
    options: Any = {"model": "tiny", "base_url": f"{url}/v1", "api_key": KEY, "max_retries": 0}
    return imported("langchain_openai", "ChatOpenAI")(**options)


def weather(city: str) -> str:
    """What the weather is like."""
    return f"dry in {city}"


def test_langchain_chat(chat: Any) -> None:
    answer = chat.invoke("Hello")
    assert answer.content == SENTENCE
    assert answer.usage_metadata["output_tokens"] > 5
    assert answer.response_metadata["finish_reason"] == "stop"


def test_langchain_stream(chat: Any) -> None:
    pieces = list(chat.stream("Hello", stream_usage=True))
    assert "".join(piece.content for piece in pieces) == SENTENCE
    assert sum(piece.usage_metadata["output_tokens"] for piece in pieces if piece.usage_metadata) > 5


@pytest.mark.parametrize("stream", [False, True])
def test_langchain_tools(chat: Any, stream: bool) -> None:
    bound = chat.bind_tools([weather])
    spoken: list[Any] = [("user", "Is it raining?")]
    if stream:
        first, *others = bound.stream(spoken)
        for piece in others:
            first += piece
    else:
        first = bound.invoke(spoken)
    (call,) = first.tool_calls
    assert (call["name"], set(call["args"])) == ("weather", {"city"})
    result = {"role": "tool", "tool_call_id": call["id"], "content": "dry"}
    assert bound.invoke([*spoken, first, result]).content == SENTENCE


def test_langchain_embeddings(url: str) -> None:
    """Without the check that asks the internet for a tokenizer."""
    embeddings = imported("langchain_openai", "OpenAIEmbeddings")(
        model="tiny", base_url=f"{url}/v1", api_key=KEY, check_embedding_ctx_length=False, max_retries=0
    )
    one, other = embeddings.embed_documents(["Every answer", "of this model"])
    assert len(one) == len(other) > 8
    assert one != other
    assert embeddings.embed_query("Every answer") == pytest.approx(one, abs=1e-4)


# ---- llm -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def llm(url: str, tmp_path: Path) -> Callable[..., str]:
    """Simon Willison's command line, with the edge as one of its models."""
    imported("llm.cli", "cli")
    model = {"model_id": "edge", "model_name": "tiny", "api_base": f"{url}/v1", "api_key_name": "edge"}
    # YAML reads JSON
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps([{**model, "supports_tools": True}]))
    (tmp_path / "keys.json").write_text(json.dumps({"edge": KEY}))

    def run(*words: str) -> str:
        environ = {**os.environ, "LLM_USER_PATH": str(tmp_path)}
        command = [sys.executable, "-m", "llm", *words]
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_llm(llm: Callable[..., str]) -> None:
    assert llm("-m", "edge", "Hello").strip() == SENTENCE
    assert llm("-m", "edge", "--no-stream", "Hello").strip() == SENTENCE
    assert llm("-c", "And again").strip() == SENTENCE


def test_llm_tools(llm: Callable[..., str]) -> None:
    function = "def weather(city: str) -> str:\n    'The weather.'\n    return 'dry'\n"  # llama.cpp wants a description
    said = llm("-m", "edge", "--functions", function, "Is it raining?")
    assert SENTENCE in said
    (call,) = json.loads(llm("logs", "-n", "1", "--json"))[0]["tool_results"]
    assert (call["name"], call["output"]) == ("weather", "dry")


# ---- Node ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def node(work: Path) -> Node:
    """Run a step of a script of ``clients/`` with a model; return what it prints."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node")
    for package in ("openai", "ai", "@ai-sdk/openai-compatible", "zod", "@anthropic-ai/sdk"):
        wanted(package)
    folder = work / "node"
    shutil.copytree(Path(__file__).with_name("clients"), folder)
    # a module looks for others beside itself
    (folder / "node_modules").symlink_to(modules())

    def run(script: str, step: str, url: str, model: str = "tiny") -> Any:
        command = [node, f"{script}.mjs", url, KEY, model, step]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_node_openai_chat(node: Node, url: str) -> None:
    assert "tiny" in node("openai", "models", url)
    for step in ("chat", "helper"):
        answer = node("openai", step, url)
        assert (answer["object"], answer["choices"][0]["finish_reason"]) == ("chat.completion", "stop")
        assert answer["choices"][0]["message"]["content"] == SENTENCE
    assert node("openai", "leave", url)["choices"][0]["message"]["content"] == SENTENCE


def test_node_openai_stream(node: Node, url: str) -> None:
    *chunks, last = node("openai", "stream", url)
    assert "".join(choice["delta"].get("content") or "" for each in chunks for choice in each["choices"]) == SENTENCE
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] > 5


def test_node_openai_tools(node: Node, url: str) -> None:
    first, second = (answer["choices"][0] for answer in node("openai", "tools", url))
    assert first["finish_reason"] == "tool_calls"
    assert second["message"]["content"] == SENTENCE
    said = node("openai", "schema", url)["choices"][0]["message"]["content"]
    assert set(json.loads(said)) == {"city"}


def test_node_openai_refusals(node: Node, models: Gateway) -> None:
    unknown, denied = node("openai", "refusals", models.url)
    assert (unknown["name"], unknown["status"], unknown["code"]) == ("NotFoundError", 404, "model_not_found")
    assert (denied["name"], denied["status"], denied["code"]) == ("AuthenticationError", 401, "invalid_api_key")


def test_node_openai_completion(node: Node, url: str) -> None:
    (choice,) = node("openai", "completion", url)["choices"]
    assert (choice["text"].strip(), choice["finish_reason"]) == (REST, "stop")


def test_node_openai_embeddings(node: Node, url: str) -> None:
    packed, floats = ([each["embedding"] for each in answer["data"]] for answer in node("openai", "embeddings", url))
    for one, other in zip(packed, floats, strict=True):
        assert one == pytest.approx(other, abs=1e-4)


def test_node_openai_response(node: Node, way: tuple[str, str]) -> None:
    answer = node("openai", "response", *way)
    assert (answer["status"], answer["output_text"]) == ("completed", SENTENCE)
    events = node("openai", "response_stream", *way)
    assert [events[0]["type"], events[-1]["type"]] == ["response.created", "response.completed"]
    assert "".join(each["delta"] for each in events if each["type"] == "response.output_text.delta") == SENTENCE


def test_node_ai_text(node: Node, url: str) -> None:
    answer, streamed = node("ai", "text", url), node("ai", "stream", url)
    assert answer["text"] == "".join(streamed["pieces"]) == SENTENCE
    assert len(streamed["pieces"]) > 5
    for each in (answer, streamed):
        assert each["finishReason"] == "stop"
        assert each["usage"]["outputTokens"] > 5


@pytest.mark.parametrize("step", ["tools", "streamed_tools"])
def test_node_ai_tools(node: Node, url: str, step: str) -> None:
    """It runs the tool and asks again, by itself."""
    assert node("ai", step, url) == {"text": SENTENCE, "calls": [["weather"], []]}


def test_node_ai_object(node: Node, url: str) -> None:
    assert set(node("ai", "object", url)) == {"city"}


def test_node_ai_embeddings(node: Node, url: str) -> None:
    one, other = node("ai", "embeddings", url)
    assert len(one) == len(other) > 8


def test_node_anthropic_message(node: Node, way: tuple[str, str]) -> None:
    answer, streamed = node("anthropic", "message", *way), node("anthropic", "stream", *way)
    assert "".join(streamed["pieces"]) == SENTENCE
    for each in (answer, streamed["message"]):
        assert (each["content"][0]["text"], each["stop_reason"]) == (SENTENCE, "end_turn")
        assert each["usage"]["output_tokens"] > 5


def test_node_anthropic_tools(node: Node, way: tuple[str, str]) -> None:
    first, second = node("anthropic", "tools", *way)
    assert first["stop_reason"] == "tool_use"
    assert second["content"][0]["text"] == SENTENCE


def test_node_anthropic_count(node: Node, way: tuple[str, str]) -> None:
    assert node("anthropic", "count", *way)["input_tokens"] > 0


def test_node_anthropic_refusals(node: Node, models: Gateway) -> None:
    unknown, denied = node("anthropic", "refusals", models.url)
    assert (unknown["name"], unknown["status"]) == ("NotFoundError", 404)
    assert (denied["name"], denied["status"]) == ("AuthenticationError", 401)
