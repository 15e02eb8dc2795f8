"""What the ``openai`` and ``anthropic`` SDKs ask beside chat, through edge and node to llama.cpp's own server.

Each test asks the edge, and llama.cpp with nothing in between: what fails there is not the edge's. Responses and
messages are asked twice of the edge, of a model whose provider has the API and of one whose has not. What only one of
them can answer asks that one. ``docs/contracts/openai.md``.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import Any, NamedTuple

import anthropic
import openai
import pytest
from real_gateway import KEY, Backend, Gateway, user
from tiny_model import SENTENCE

FIRST, REST = SENTENCE.split(" ", 1)
INPUT: list[str] = ["Every answer", "of this model"]

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION: Any = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": False}
CLOSED = [
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]
"""What stands in a response's stream beside its text, in this order."""
TOOL: Any = {"name": "weather", "description": "What the weather is like.", "input_schema": PARAMETERS}


@pytest.fixture(params=["edge", "direct"])
def client(request: pytest.FixtureRequest, gateway: Gateway, tiny: Backend) -> openai.OpenAI:
    return sdk(gateway.url if request.param == "edge" else tiny.url)


class Way(NamedTuple):
    """Where an API is asked that a provider has or has not, without ``/v1``, and as which model."""

    name: str
    url: str
    model: str

    @property
    def steps(self) -> int:
        """How many pieces a stream has at least: events that come together are translated as one."""
        return 1 if self.name == "translated" else 6


@pytest.fixture(params=["native", "translated", "direct"])
def way(request: pytest.FixtureRequest, gateway: Gateway, tiny: Backend) -> Way:
    if request.param == "direct":
        return Way("direct", tiny.url, "tiny")
    return Way(request.param, gateway.url, request.param)


def sdk(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, timeout=20)


@pytest.fixture
def responses(way: Way) -> Any:
    return sdk(way.url).responses


def claude(url: str, **options: Any) -> anthropic.Anthropic:
    """Return Anthropic's SDK, which sends its key as ``x-api-key``."""
    return anthropic.Anthropic(base_url=url, **{"api_key": KEY, "max_retries": 0, "timeout": 20} | options)


@pytest.fixture
def messages(way: Way) -> Any:
    return claude(way.url).messages


# ---- completions -----------------------------------------------------------------------------------------------------


def test_completion(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt=FIRST)
    assert answer.object == "text_completion"
    assert (answer.choices[0].text.strip(), answer.choices[0].finish_reason) == (REST, "stop")
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 5


@pytest.mark.parametrize("usage", [False, True])
def test_completion_stream(client: openai.OpenAI, usage: bool) -> None:
    options: Any = {"stream_options": {"include_usage": True}} if usage else {}
    pieces = list(client.completions.create(model="tiny", prompt=FIRST, stream=True, **options))
    assert "".join(choice.text for piece in pieces for choice in piece.choices).strip() == REST
    assert [c.finish_reason for piece in pieces for c in piece.choices if c.finish_reason] == ["stop"]
    assert len(pieces) > 5
    if usage:
        assert pieces[-1].usage is not None
        assert pieces[-1].usage.completion_tokens > 5


def test_completion_of_many_prompts(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt=[FIRST, FIRST], max_tokens=3)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert {choice.finish_reason for choice in answer.choices} == {"length"}


# ---- embeddings ------------------------------------------------------------------------------------------------------


def test_embeddings(client: openai.OpenAI) -> None:
    """The SDK asks for base64 unless told, and llama.cpp's vectors are of length 1."""
    packed = client.embeddings.create(model="tiny", input=INPUT)
    floats = client.embeddings.create(model="tiny", input=INPUT, encoding_format="float")
    assert [each.index for each in packed.data] == [each.index for each in floats.data] == [0, 1]
    for one, other in zip(packed.data, floats.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)
        assert sum(number**2 for number in one.embedding) == pytest.approx(1, abs=1e-4)
    assert packed.data[0].embedding != packed.data[1].embedding
    assert packed.usage.prompt_tokens > 0


def test_embedding_as_base64(client: openai.OpenAI) -> None:
    """Little-endian floats of four bytes."""
    asked = client.embeddings.with_raw_response.create(model="tiny", input="Every answer", encoding_format="base64")
    packed = base64.b64decode(asked.http_response.json()["data"][0]["embedding"])
    floats = client.embeddings.create(model="tiny", input="Every answer", encoding_format="float").data[0].embedding
    assert struct.unpack(f"<{len(floats)}f", packed) == pytest.approx(floats, abs=1e-6)


# ---- responses -------------------------------------------------------------------------------------------------------


def test_response(responses: Any, way: Way) -> None:
    answer = responses.create(model=way.model, instructions="Be brief.", input="Hello", store=False)
    assert (answer.object, answer.status) == ("response", "completed")
    assert answer.output_text == SENTENCE
    assert answer.usage is not None
    assert answer.usage.output_tokens > 5


def test_response_of_a_conversation(responses: Any, way: Way) -> None:
    said = [{"type": "output_text", "text": SENTENCE, "annotations": []}]
    answer = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": said}
    spoken: Any = [*user("Hello"), answer, *user("Again")]
    assert responses.create(model=way.model, input=spoken).output_text == SENTENCE


def test_response_stream(responses: Any, way: Way) -> None:
    events: list[Any] = list(responses.create(model=way.model, input="Hello", stream=True))
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert [kind for kind in kinds if kind in CLOSED] == CLOSED
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == events[-1].response.output_text == SENTENCE
    assert len(deltas) >= way.steps


def test_response_stream_helper(gateway: Gateway) -> None:
    """The SDK's own reading of a stream wants indexes, which llama.cpp's stream lacks."""
    with gateway.client().responses.stream(model="translated", input="Hello") as stream:
        events: list[Any] = list(stream)
        final = stream.get_final_response()
    assert final.output_text == SENTENCE
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("stream", [False, True])
def test_response_with_a_tool(responses: Any, way: Way, stream: bool) -> None:
    """A call, and its result in the next request."""
    asked: Any = {"model": way.model, "tools": [FUNCTION]}
    spoken: list[Any] = user("Is it raining?")
    if stream:
        with responses.stream(input=spoken, **asked) as events:
            for _ in events:
                pass
            output = events.get_final_response().output
    else:
        output = responses.create(input=spoken, **asked).output
    (call,) = [item for item in output if item.type == "function_call"]
    assert call.name == "weather"
    assert set(json.loads(call.arguments)) == {"city"}
    known = {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments}
    spoken += [known, {"type": "function_call_output", "call_id": call.call_id, "output": "dry"}]
    assert responses.create(input=spoken, **asked).output_text == SENTENCE


# ---- messages --------------------------------------------------------------------------------------------------------


def test_message(messages: Any, way: Way) -> None:
    answer = messages.create(model=way.model, max_tokens=100, system="Be brief.", messages=user("Hello"))
    assert (answer.type, answer.role, answer.stop_reason) == ("message", "assistant", "end_turn")
    assert [(block.type, block.text) for block in answer.content] == [("text", SENTENCE)]
    assert answer.usage.output_tokens > 5


def test_message_limit(messages: Any, way: Way) -> None:
    answer = messages.create(model=way.model, max_tokens=3, messages=user("Hello"))
    assert answer.stop_reason == "max_tokens"
    assert SENTENCE.startswith(answer.content[0].text.strip())


def test_message_stream(messages: Any, way: Way) -> None:
    with messages.stream(model=way.model, max_tokens=100, messages=user("Hello")) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert "".join(pieces) == final.content[0].text == SENTENCE
    assert len(pieces) >= way.steps
    assert final.stop_reason == "end_turn"
    assert final.usage.output_tokens > 5


def test_message_events(messages: Any, way: Way) -> None:
    """As Anthropic's manual orders them."""
    events = list(messages.create(model=way.model, max_tokens=100, messages=user("Hello"), stream=True))
    kinds = [event.type for event in events if event.type != "ping"]
    middle = [kind for kind in kinds if kind != "content_block_delta"]
    assert middle == ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]
    assert kinds.count("content_block_delta") >= way.steps


@pytest.mark.parametrize("stream", [False, True])
def test_message_with_a_tool(messages: Any, way: Way, stream: bool) -> None:
    asked: Any = {"model": way.model, "max_tokens": 100, "tools": [TOOL]}
    spoken: list[Any] = user("Is it raining?")
    if stream:
        with messages.stream(messages=spoken, **asked) as events:
            answer = events.get_final_message()
    else:
        answer = messages.create(messages=spoken, **asked)
    assert answer.stop_reason == "tool_use"
    (call,) = [block for block in answer.content if block.type == "tool_use"]
    assert (call.name, set(call.input)) == ("weather", {"city"})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "dry"}
    spoken += [
        {"role": "assistant", "content": [block.model_dump() for block in answer.content]},
        {"role": "user", "content": [result]},
    ]
    assert messages.create(messages=spoken, **asked).content[0].text == SENTENCE


def test_count_tokens(messages: Any, way: Way) -> None:
    """More for more; where llama.cpp counts, as many as the message itself is counted."""
    short = messages.count_tokens(model=way.model, messages=user("Hello")).input_tokens
    assert 0 < short < messages.count_tokens(model=way.model, messages=user("Hello " * 50)).input_tokens
    if way.name == "translated":
        return
    answer = messages.create(model=way.model, max_tokens=3, messages=user("Hello"))
    used = answer.usage
    assert used.input_tokens + (used.cache_read_input_tokens or 0) == pytest.approx(short, abs=1)


# ---- what the edge refuses, and llama.cpp would not ------------------------------------------------------------------


def test_unknown_model(gateway: Gateway) -> None:
    client = gateway.client()
    for ask in (
        lambda: client.completions.create(model="nothing", prompt="Hello"),
        lambda: client.embeddings.create(model="nothing", input="Hello"),
        lambda: client.responses.create(model="nothing", input="Hello"),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            ask()
        assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def refused(kind: type[anthropic.APIStatusError], gateway: Gateway, **asked: Any) -> anthropic.APIStatusError:
    """Return what Anthropic's SDK raises for a request, which says why as that SDK reads it."""
    key = asked.pop("api_key", KEY)
    with pytest.raises(kind) as caught:
        claude(gateway.url, api_key=key).messages.create(**{"model": "tiny", "max_tokens": 9, **asked})
    body: Any = caught.value.body
    assert body["error"]["message"]
    return caught.value


@pytest.mark.parametrize("stream", [False, True])
def test_message_errors(gateway: Gateway, stream: bool) -> None:
    hello: Any = {"messages": user("Hello"), "stream": stream}
    error = refused(anthropic.NotFoundError, gateway, **hello | {"model": "nothing"})
    assert error.response.headers["x-request-id"]
    error = refused(anthropic.AuthenticationError, gateway, **hello | {"api_key": "sk-wrong"})
    assert "sk-wrong" not in error.response.text
    refused(anthropic.BadRequestError, gateway, **hello | {"messages": "not a list"})
    refused(anthropic.BadRequestError, gateway, **hello | {"messages": user("word " * 3000)})


def test_what_messages_are_not_kept_for(gateway: Gateway) -> None:
    """A path of Anthropic's API that is not served: the error is of that API all the same."""
    with pytest.raises(anthropic.NotFoundError) as caught:
        claude(gateway.url).messages.batches.list()
    body: Any = caught.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "not_found_error")
    assert body["request_id"] == caught.value.request_id


def test_message_with_a_bearer(gateway: Gateway) -> None:
    """As Claude Code sends ``ANTHROPIC_AUTH_TOKEN``."""
    client = anthropic.Anthropic(base_url=gateway.url, auth_token=KEY, api_key=None, max_retries=0)
    answer: Any = client.messages.create(model="tiny", max_tokens=100, messages=user("Hello"))
    assert answer.content[0].text == SENTENCE
