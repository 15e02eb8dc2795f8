"""What the official SDK makes of the Responses API's answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import httpx2
import pytest
from openai import OpenAI
from responses_client import PATCH, USAGE, F, calls, document, request, streamed, text

from iop import model as m
from iop.errors import Failure

SDK = Callable[..., OpenAI]


@pytest.fixture
def sdk() -> Iterator[SDK]:
    clients = []

    def made(body: bytes, type: str = "text/event-stream") -> OpenAI:
        answer = httpx2.Response(200, headers={"content-type": type}, content=body)
        http = httpx2.Client(transport=httpx2.MockTransport(lambda request: answer))
        clients.append(http)
        return OpenAI(api_key="k", base_url="http://edge/v1", http_client=http, max_retries=0)

    yield made
    for client in clients:
        client.close()


def test_the_sdk_streams_a_text(sdk: SDK) -> None:
    client = sdk(streamed([m.Delta(reasoning="hm"), *text("Grüß ", "Gott")], m.Complete("stop", USAGE)))
    with client.responses.stream(model="m", input="x") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert (deltas, final.output_text, final.status) == (["Grüß ", "Gott"], "Grüß Gott", "completed")
    thought = final.output[0]
    assert thought.type == "reasoning"
    assert thought.summary[0].text == "hm"
    assert final.usage is not None
    assert final.usage.total_tokens == 4


def test_the_sdk_streams_calls(sdk: SDK) -> None:
    end = m.Complete("tool_calls", USAGE, calls(("f", '{"a":1}'), ("apply_patch", '{"input":"p"}')))
    client = sdk(streamed(text("On it."), end, tools=[F, PATCH]))
    with client.responses.stream(model="m", input="x") as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.function_call_arguments.delta"]
        said, call, patch = stream.get_final_response().output
    assert snapshots == ['{"a":1}']
    assert said.type == "message"
    assert call.type == "function_call"
    assert (call.name, call.call_id, call.arguments) == ("f", "c0", '{"a":1}')
    assert patch.type == "custom_tool_call"
    assert (patch.name, patch.input) == ("apply_patch", "p")


def test_the_sdk_sees_what_was_cut_and_what_failed(sdk: SDK) -> None:
    for end, kind in ((m.Complete("length"), "response.incomplete"), (Failure("node_lost", "x"), "response.failed")):
        with sdk(streamed(text("4"), end)).responses.stream(model="m", input="x") as stream:
            events = list(stream)
            assert events[-1].type == kind
            with pytest.raises(RuntimeError, match="completed"):
                stream.get_final_response()


def test_the_sdk_reads_a_document(sdk: SDK) -> None:
    made = json.dumps(document(text("4"), m.Complete("stop", USAGE))).encode()
    response = sdk(made, "application/json").responses.create(model="m", input="2+2?")
    assert (response.output_text, response.status, response.model) == ("4", "completed", "m")


def test_the_sdk_takes_a_broken_native_stream_for_broken(sdk: SDK) -> None:
    body = streamed(text("4"), m.Complete()).partition(b"event: response.output_text.done")[0]
    client = sdk(body + request().broken(Failure("node_lost", "gone"), "r"))
    with client.responses.create(model="m", input="x", stream=True) as stream:
        (*_, last) = stream
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.message == "gone"
