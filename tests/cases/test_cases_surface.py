"""Failure kinds of whole APIs and of what counts them, through the whole chain."""

from __future__ import annotations

import json
from typing import Any

import pytest
from backend_in_memory import CHUNK, DONE, chunk, ending, event
from gateway_in_memory import CHAT, Answer, Gateway
from prometheus_client.parser import text_string_to_metric_families
from whole_chain import Chain

from iop.edge.metrics.recorder import Metrics

pytestmark = pytest.mark.usefixtures("logged")

ASKED = {"model": "m", "input": "2+2?"}
COUNTED = event('{"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}')
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}


def said(answer: Answer) -> list[dict[str, Any]]:
    """The events of a Responses stream, each with the name it was sent under."""
    found = []
    for block in answer.body.decode().split("\n\n"):
        if block:
            name, data = block.split("\n")
            found.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {found[-1]['type']}"
    assert [each["sequence_number"] for each in found] == list(range(len(found)))
    return found


def asked(*pieces: bytes, **changes: Any) -> tuple[list[dict[str, Any]], Chain]:
    """What a client gets for a Responses request whose backend has chat completions only."""
    chain = Chain(provider={"apis": []})
    chain.backend.streams(*pieces)
    answer = chain.ask("/v1/responses", {**ASKED, "stream": True, **changes}).answer
    assert (answer.status, answer.whole) == (200, True)
    assert answer.headers["content-type"] == "text/event-stream"
    assert "[DONE]" not in answer.body.decode()
    chain.assert_idle()
    chain.close()
    return said(answer), chain


def test_ra_01_a_bridged_stream_has_every_event_and_member() -> None:
    """RA-01: strict clients (codex) show nothing of a stream that misses some."""
    events, chain = asked(chunk("4"), ending() + COUNTED + DONE)
    sent = chain.backend.last
    assert sent.target == "/v1/chat/completions"
    assert sent.json["messages"] == [{"role": "user", "content": "2+2?"}]
    kinds = [each["type"] for each in events]
    deltas = kinds.count("response.output_text.delta")
    assert deltas >= 1
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * deltas,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert all({"item_id", "output_index", "content_index"} <= set(each) for each in events if "delta" in each)
    by_kind = {each["type"]: each for each in events}
    assert by_kind["response.output_text.done"]["text"] == "4"
    assert by_kind["response.content_part.done"]["part"]["text"] == "4"
    response = by_kind["response.completed"]["response"]
    assert response["output"][0]["content"][0]["text"] == "4"
    assert (response["object"], response["model"], response["status"]) == ("response", "m", "completed")
    assert response["id"].startswith("resp_")
    assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (3, 1)
    (record,) = chain.records
    assert (record.operation, record.outcome, record.status, record.usage[:2]) == ("responses", "complete", 200, (3, 1))


def test_ra_01_length() -> None:
    events, _ = asked(chunk("4"), ending("length") + COUNTED + DONE)
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_ra_01_error() -> None:
    events, chain = asked(chunk("4"), event('{"error":{"message":"worker lost","code":500}}'))
    assert events[-1]["type"] == "response.failed"
    assert "response.completed" not in [each["type"] for each in events]
    assert events[-1]["response"]["status"] == "failed"
    assert events[-1]["response"]["error"]["message"] == "worker lost"
    assert chain.records[0].outcome == "upstream_error"


def test_ra_01_tool() -> None:
    call = '{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":"{}"}}]}'
    events, _ = asked(event(CHUNK % (call, "null")), ending("tool_calls") + DONE, tools=[WEATHER])
    kinds = [each["type"] for each in events]
    assert kinds[2:-1] == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ]
    item = events[-1]["response"]["output"][0]
    assert (item["type"], item["name"], item["arguments"]) == ("function_call", "weather", "{}")
    assert item["call_id"]


def test_me_01_what_clients_make_up_makes_no_series() -> None:
    """ME-01: through the surface, whatever is asked for, by whomever."""
    gateway = Gateway()
    metrics = Metrics(lambda: 1.0)
    gateway.records = _Counted(metrics)

    def series() -> set[tuple[str, tuple[tuple[str, str], ...]]]:
        text = metrics.exposition("")[0].decode()
        families = list(text_string_to_metric_families(text))
        return {(s.name, tuple(sorted(s.labels.items()))) for family in families for s in family.samples}

    def strange(number: int) -> None:
        client = gateway.connect()
        client.ask(body={**CHAT, "model": f'made-up-{number}"\\\n{{}}'})
        client.ask(f"/v1/made/up/{number}", {"model": "x"})
        client.ask(f"/nowhere-{number}")
        client.ask("/v1/models", headers={"Authorization": f"Bearer bad-{number}", "X-Request-Id": f"id-{number}"})
        client.ask("/v1/models", method=f"MADEUP{number % 7}")
        gateway.net.run()
        client.leave()
        gateway.net.run()

    for number in range(3):
        strange(number)
    client = gateway.ask(body={**CHAT, "model": 'a"\\\n' * 2500})
    assert client.answer.code == "model_not_found"
    before = series()
    for number in range(3, 200):
        strange(number)
    assert series() == before
    labels = {value for _, pairs in before for name, value in pairs if name == "model"}
    assert labels <= {"m", "_unknown", "_other", ""}
    gateway.close()


class _Counted(list[Any]):
    """Records that are counted, too."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._metrics = metrics

    def append(self, record: Any) -> None:
        self._metrics.record(record)
