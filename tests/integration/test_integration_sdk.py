"""The ``openai`` SDK, through edge and node, to llama.cpp's own server. ``docs/contracts/openai.md``."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from real_gateway import KEY, Backend, Gateway, user
from tiny_model import SENTENCE

WEATHER: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "What the weather is like.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
CALLED: list[Any] = [
    {"role": "user", "content": "Is it raining?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call-1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Ulm"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "call-1", "content": '{"rain": false}'},
]
SCHEMA = {"type": "object", "properties": {"said": {"type": "string"}}, "required": ["said"]}

# Without its cache llama.cpp counts the same tokens the first time and the second.
ASKED: dict[str, dict[str, Any]] = {
    "plain": {"messages": user("Hello")},
    "system": {"messages": [{"role": "system", "content": "Be brief."}, *user("Hello")]},
    "limit": {"messages": user("Hello"), "max_tokens": 4},
    "stop": {"messages": user("Hello"), "stop": [" model"]},
    "two": {"messages": user("Hello"), "n": 2},
    "logprobs": {"messages": user("Hello"), "logprobs": True, "top_logprobs": 2, "max_tokens": 3},
    "tools": {"messages": user("Is it raining?"), "tools": WEATHER},
    "required": {"messages": user("Is it raining?"), "tools": WEATHER, "tool_choice": "required"},
    "result": {"messages": CALLED, "tools": WEATHER},
    "schema": {
        "messages": user("Hello"),
        "response_format": {"type": "json_schema", "json_schema": {"name": "said", "schema": SCHEMA}},
    },
}


@pytest.fixture
def client(gateway: Gateway) -> openai.OpenAI:
    return gateway.client()


@pytest.fixture
def direct(tiny: Backend) -> openai.OpenAI:
    """The SDK with nothing between it and llama.cpp."""
    return openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=0)


def lasting(document: Any) -> Any:
    """Return a document without what differs from one answer to the next, at any depth."""
    if isinstance(document, dict):
        changing = {"id", "created", "timings"}
        return {key: lasting(value) for key, value in document.items() if key not in changing}
    if isinstance(document, list):
        return [lasting(each) for each in document]
    return document


def said(chunks: list[Any]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


# ---- answers --------------------------------------------------------------------------------------------------------


def test_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="tiny", messages=user("Hello"))
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.content == SENTENCE
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0


def test_stream(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(model="tiny", messages=user("Hello"), stream=True))
    assert said(chunks) == SENTENCE
    assert len(chunks) > 5
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]
    assert [c.choices[0].delta.role for c in chunks if c.choices[0].delta.role] == ["assistant"]
    assert all(chunk.usage is None for chunk in chunks)  # nobody asked


def test_stream_with_usage(client: openai.OpenAI) -> None:
    options: Any = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(model="tiny", messages=user("Hello"), stream=True, stream_options=options)
    )
    assert said(chunks) == SENTENCE
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 5
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_stream_helper(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="tiny", messages=user("Hello")) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "content.done" in kinds
    assert final.choices[0].message.content == SENTENCE


def test_async(gateway: Gateway) -> None:
    async def ask() -> list[str]:
        async with gateway.async_client() as client:

            async def whole() -> str:
                answer = await client.chat.completions.create(model="tiny", messages=user("Hello"))
                return answer.choices[0].message.content or ""

            async def streamed() -> str:
                stream = await client.chat.completions.create(model="tiny", messages=user("Hello"), stream=True)
                return said([chunk async for chunk in stream])

            return await asyncio.gather(whole(), streamed())

    assert asyncio.run(ask()) == [SENTENCE, SENTENCE]


def test_tools(client: openai.OpenAI) -> None:
    """Native calls pass, and their result goes back."""
    messages: list[Any] = user("Is it raining?")
    first = client.chat.completions.create(model="tiny", messages=messages, tools=WEATHER).choices[0]
    assert first.finish_reason == "tool_calls"
    assert first.message.tool_calls is not None
    call: Any = first.message.tool_calls[0]
    assert call.id
    assert call.function.name == "weather"
    assert set(json.loads(call.function.arguments)) == {"city"}
    messages += [first.message.model_dump(exclude_none=True)]
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "dry"}]
    second = client.chat.completions.create(model="tiny", messages=messages, tools=WEATHER).choices[0]
    assert (second.finish_reason, second.message.content) == ("stop", SENTENCE)


def test_streamed_tools(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="tiny", messages=user("Rain?"), tools=WEATHER) as stream:
        for _ in stream:
            pass
        choice = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    calls: Any = choice.message.tool_calls
    assert [(call.function.name, list(json.loads(call.function.arguments))) for call in calls] == [
        ("weather", ["city"])
    ]


@pytest.mark.parametrize("name", ASKED)
def test_whole_answer_equals_the_backends_own(name: str, gateway: Gateway, direct: openai.OpenAI) -> None:
    request = {"model": "tiny", "cache_prompt": False, **ASKED[name]}
    own = direct.chat.completions.with_raw_response.create(**as_body(request)).http_response.json()
    through = gateway.client().chat.completions.with_raw_response.create(**as_body(request)).http_response.json()
    assert lasting(through) == lasting(own)
    assert set(through) - {"timings"} == set(own) - {"timings"}


@pytest.mark.parametrize("usage", [False, True])
@pytest.mark.parametrize("name", [name for name in ASKED if name != "two"])  # two take turns as they like
def test_stream_equals_the_backends_own(name: str, usage: bool, gateway: Gateway, direct: openai.OpenAI) -> None:
    request = {"model": "tiny", "cache_prompt": False, **ASKED[name], "stream": True}
    if usage:
        request["stream_options"] = {"include_usage": True}
    own, through = (
        [lasting(chunk.model_dump(exclude_unset=True)) for chunk in each.chat.completions.create(**as_body(request))]
        for each in (direct, gateway.client())
    )
    assert through == own


def as_body(request: dict[str, Any]) -> dict[str, Any]:
    """Return it as the SDK wants it: keys that it does not know go in ``extra_body``."""
    known = {key: value for key, value in request.items() if key != "cache_prompt"}
    return {**known, "extra_body": {"cache_prompt": request["cache_prompt"]}}


# ---- models ---------------------------------------------------------------------------------------------------------


def test_models(client: openai.OpenAI) -> None:
    assert {model.id for model in client.models.list()} >= {"tiny", "endless", "fake", "renamed", "hasty"}
    model = client.models.retrieve("tiny")
    assert (model.id, model.object) == ("tiny", "model")
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("nothing")
    assert caught.value.code == "model_not_found"


def test_model_under_another_name(client: openai.OpenAI, fake: Backend) -> None:
    client.chat.completions.create(model="renamed", messages=user("Hello"))
    assert fake.stats["last"]["body"]["model"] == "vendor/fake:7b"


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_unknown_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="nothing", messages=user("Hello"))
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    assert caught.value.response.headers["x-request-id"]


@pytest.mark.parametrize("stream", [False, True])
def test_wrong_key(gateway: Gateway, stream: bool) -> None:
    client = gateway.client(api_key="sk-wrong")
    with pytest.raises(openai.AuthenticationError) as caught:
        client.chat.completions.create(model="tiny", messages=user("Hello"), stream=stream)
    assert caught.value.code == "invalid_api_key"
    assert caught.value.response.headers["www-authenticate"] == "Bearer"
    assert "sk-wrong" not in caught.value.response.text
    with pytest.raises(openai.AuthenticationError):
        client.models.list()


@pytest.mark.parametrize("stream", [False, True])
def test_context_overflow(client: openai.OpenAI, stream: bool) -> None:
    """llama.cpp has its own word for it; the SDK's users know another."""
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=user("word " * 3000), stream=stream)
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.type == "invalid_request_error"


@pytest.mark.parametrize("stream", [False, True])
def test_malformed(client: openai.OpenAI, stream: bool) -> None:
    wrong: Any = "not a list"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=wrong, stream=stream)
    assert (caught.value.code, caught.value.param) == ("invalid_value", "messages")
    with pytest.raises(openai.BadRequestError):  # by the backend's own judgement
        client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": 5}], stream=stream)  # type: ignore[typeddict-item]


def test_rate_limit(client: openai.OpenAI) -> None:
    """A backend's limit and its advice reach the SDK."""
    with pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(model="fake", messages=user("limit 7"))
    assert caught.value.code == "rate_limit_exceeded"
    assert caught.value.response.headers["retry-after"] == "7"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("order", ["refuse 500", "html", "close", "garbage"])
def test_broken_backend(client: openai.OpenAI, order: str, stream: bool) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model="fake", messages=user(order), stream=stream)
    assert caught.value.status_code == 502
    assert caught.value.code == "upstream_error"
    assert "127.0.0.1" not in caught.value.response.text
    assert "<html" not in caught.value.response.text


def test_error_in_the_middle_of_a_stream(client: openai.OpenAI) -> None:
    read: list[Any] = []
    stream = client.chat.completions.create(model="fake", messages=user("error 3"), stream=True)
    with pytest.raises(openai.APIError, match="the model fell over"):
        read.extend(stream)
    assert said(read) == "0 1 2 "


def test_what_reaches_the_backend(client: openai.OpenAI, fake: Backend) -> None:
    """All the client said, nothing of its credentials."""
    client.chat.completions.create(
        model="fake",
        messages=user("Hello"),
        extra_body={"unknown": {"deep": [1, None, "ü\u2028"]}},
        extra_headers={"cookie": "secret=1", "x-forwarded-for": "10.0.0.1"},
    )
    last = fake.stats["last"]
    assert last["body"] == {
        "model": "fake",
        "messages": user("Hello"),
        "unknown": {"deep": [1, None, "ü\u2028"]},
    }
    assert not {"authorization", "cookie", "x-forwarded-for"} & set(last["headers"])
    assert KEY not in json.dumps(last)
