"""One scripted conversation in every way that an answer takes: what the SDKs make of it is the same, to the number.

The backend says the same in each: a text with two calls, and a text once it has both results. Its chat API passes
through, is put together by the node, or is read by the node, which also reads Ollama's; calls that it writes as text
are taken out of that. A chat request with native tools always passes through ``openai_compat``: the run of events with
them is asked for by the translated APIs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anthropic
import openai
import pytest
from real_gateway import KEY, PORT, Backend, Gateway, provider, user

pytestmark = pytest.mark.slow

PARAMETERS = {"type": "object", "properties": {"port": {"type": "string"}, "days": {"type": "integer"}}}
QUESTION = user("How are the tides?")
RESULTS = {"Oban": "2.1 m", "Portrée": "4.8 m"}


class Said(NamedTuple):
    """An answer, whatever API told it; usage is of the prompt, of the answer, and in all."""

    text: str
    calls: list[tuple[str, dict[str, Any]]]
    finish_reason: str
    usage: tuple[int, int, int]


CONVERSATION = [
    Said(
        "Let me look – one moment.",
        [("lookup_tide", {"port": "Oban", "days": 2}), ("lookup_tide", {"port": "Portrée", "days": 1})],
        "tool_calls",
        (31, 17, 48),
    ),
    Said("Oban 2.1 m, Portrée 4.8 m.", [], "stop", (64, 9, 73)),
]


@pytest.fixture(scope="module")
def tides(work: Path) -> Iterator[Backend]:
    backend = Backend("tides", work, "fake_tides.py", PORT)
    yield backend.ready()
    backend.child.stop()


@pytest.fixture(scope="module")
def gateway(work: Path, tides: Backend) -> Iterator[Gateway]:
    made = Gateway(
        work / "ways",
        provider("bytes", tides, "openai"),
        provider("assembled", tides, "llama_cpp"),
        provider("refusing", tides, "vllm", target="untaught"),
        provider("text", tides, "vllm", tools="text"),
        provider("events", tides, "vllm", apis=[]),
        provider("olla", tides, "ollama", context_size=8192),
        provider("olla-text", tides, "ollama", context_size=8192, target="untaught"),
    )
    try:
        yield made.start()
    finally:
        made.stop()


# ---- the three APIs -------------------------------------------------------------------------------------------------


def sdk(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, timeout=20)


def results_of(calls: list[tuple[str, str, Any]]) -> list[tuple[str, str]]:
    """Return the id and the result of each call; ids must tell them apart."""
    assert len({id for id, _, _ in calls}) == len(calls)
    assert all(id for id, _, _ in calls)
    return [(id, RESULTS[arguments["port"]]) for id, _, arguments in calls]


def by_chat(url: str, model: str, *, stream: bool) -> list[Said]:
    """Talk as an application does; the SDK's own helper puts a stream together."""
    completions = sdk(url).chat.completions
    function = {"name": "lookup_tide", "parameters": PARAMETERS}
    options: Any = {"model": model, "tools": [{"type": "function", "function": function}]}

    def ask(messages: list[Any]) -> Any:
        if not stream:
            return completions.create(messages=messages, **options)
        with completions.stream(messages=messages, stream_options={"include_usage": True}, **options) as answer:
            for _ in answer:
                pass
            return answer.get_final_completion()

    def calls(answer: Any) -> list[tuple[str, str, Any]]:
        made = answer.choices[0].message.tool_calls or ()
        return [(call.id, call.function.name, json.loads(call.function.arguments)) for call in made]

    def said(answer: Any) -> Said:
        (choice,), usage = answer.choices, answer.usage
        counted = (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)
        named = [(name, arguments) for _, name, arguments in calls(answer)]
        return Said(choice.message.content, named, choice.finish_reason, counted)

    messages = [{"role": "system", "content": "Be brief."}, *QUESTION]
    first = ask(messages)
    told = first.choices[0].message.model_dump(exclude_none=True)
    results = [{"role": "tool", "tool_call_id": id, "content": text} for id, text in results_of(calls(first))]
    return [said(first), said(ask([*messages, told, *results]))]


def by_responses(url: str, model: str, *, stream: bool) -> list[Said]:
    """The same by the Responses API. It has no finish reason: its answers are completed, or are not."""
    responses = sdk(url).responses
    tool = {"type": "function", "name": "lookup_tide", "parameters": PARAMETERS, "strict": False}
    options: Any = {"model": model, "instructions": "Be brief.", "tools": [tool]}

    def ask(items: list[Any]) -> Any:
        if not stream:
            return responses.create(input=items, **options)
        with responses.stream(input=items, **options) as answer:
            for _ in answer:
                pass
            return answer.get_final_response()

    def calls(answer: Any) -> list[tuple[str, str, Any]]:
        made = [item for item in answer.output if item.type == "function_call"]
        return [(call.call_id, call.name, json.loads(call.arguments)) for call in made]

    def said(answer: Any) -> Said:
        assert answer.status == "completed"
        usage = answer.usage
        named = [(name, arguments) for _, name, arguments in calls(answer)]
        counted = (usage.input_tokens, usage.output_tokens, usage.total_tokens)
        return Said(answer.output_text, named, "tool_calls" if named else "stop", counted)

    first = ask(QUESTION)
    told = [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in first.output]
    results = [{"type": "function_call_output", "call_id": id, "output": text} for id, text in results_of(calls(first))]
    return [said(first), said(ask([*QUESTION, *told, *results]))]


def by_messages(url: str, model: str, *, stream: bool) -> list[Said]:
    """The same by Anthropic's API, which counts no total."""
    messages = anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0, timeout=20).messages
    tool = {"name": "lookup_tide", "input_schema": PARAMETERS}
    options: Any = {"model": model, "max_tokens": 100, "system": "Be brief.", "tools": [tool]}

    def ask(turns: list[Any]) -> Any:
        if not stream:
            return messages.create(messages=turns, **options)
        with messages.stream(messages=turns, **options) as answer:
            for _ in answer:
                pass
            return answer.get_final_message()

    def calls(answer: Any) -> list[tuple[str, str, Any]]:
        return [(block.id, block.name, block.input) for block in answer.content if block.type == "tool_use"]

    def said(answer: Any) -> Said:
        text = "".join(block.text for block in answer.content if block.type == "text")
        reason = {"tool_use": "tool_calls", "end_turn": "stop"}[answer.stop_reason]
        prompt, counted = answer.usage.input_tokens, answer.usage.output_tokens
        named = [(name, arguments) for _, name, arguments in calls(answer)]
        return Said(text, named, reason, (prompt, counted, prompt + counted))

    first = ask(QUESTION)
    results = [{"type": "tool_result", "tool_use_id": id, "content": text} for id, text in results_of(calls(first))]
    told = [block.model_dump(include={"type", "text", "id", "name", "input"}) for block in first.content]
    turns = [*QUESTION, {"role": "assistant", "content": told}, {"role": "user", "content": results}]
    return [said(first), said(ask(turns))]


# ---- the ways -------------------------------------------------------------------------------------------------------


class Way(NamedTuple):
    """How a client asks, and how the backend is asked of a document then.

    :ivar streams: the node makes it a stream.
    :ivar native: its tools are no text.
    """

    talk: Callable[..., list[Said]]
    model: str
    path: str
    streams: bool
    native: bool


CHAT, OLLAMA = "/v1/chat/completions", "/api/chat"
WAYS = {
    "passthrough": Way(by_chat, "bytes", CHAT, False, True),
    "passthrough, put together": Way(by_chat, "assembled", CHAT, True, True),
    "openai_compat, tools as text": Way(by_chat, "text", CHAT, True, False),
    "openai_compat, tools refused": Way(by_chat, "refusing", CHAT, True, False),
    "openai_compat, normalized, responses": Way(by_responses, "events", CHAT, True, True),
    "openai_compat, normalized, messages": Way(by_messages, "events", CHAT, True, True),
    "ollama": Way(by_chat, "olla", OLLAMA, True, True),
    "ollama, tools refused": Way(by_chat, "olla-text", OLLAMA, True, False),
    "ollama, responses": Way(by_responses, "olla", OLLAMA, True, True),
    "ollama, messages": Way(by_messages, "olla", OLLAMA, True, True),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_the_answers_are_the_same_in_every_way(gateway: Gateway, tides: Backend, way: str, stream: bool) -> None:
    """FR-01, TF-01: text, tool calls, finish reason and usage, of streams and of documents."""
    talk, model, path, streams, native = WAYS[way]
    assert talk(gateway.url, model, stream=stream) == CONVERSATION
    assert tides.stats["last"] == {"path": path, "stream": streams or stream, "native": native}


@pytest.mark.parametrize("stream", [False, True])
def test_they_are_what_the_backend_says_by_itself(tides: Backend, stream: bool) -> None:
    assert by_chat(tides.url, "bytes", stream=stream) == CONVERSATION
