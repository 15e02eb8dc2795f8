"""Answers of the Responses API as a client gets them, and whether the events of a stream agree with one another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from iop import model as m
from iop.edge.surfaces.openai.apis import responses_answer, shape
from iop.edge.surfaces.openai.apis.responses import ResponsesRequest
from iop.errors import Failure
from iop.http import sse

Json = dict[str, Any]

USAGE = m.Usage(3, 1)
F = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Patches."}
SPACE = {"type": "namespace", "name": "ns", "description": "d", "tools": [{"type": "function", "name": "g"}]}
FALLBACK = {"openai_text_tool_fallback": "true"}
STOP = m.Complete()
SEALED = ["reasoning.encrypted_content"]

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def calls(*named: tuple[str, str]) -> dict[str, str]:
    """Return a COMPLETE's metadata with native calls."""
    made = [
        {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(named)
    ]
    return {m.TOOL_CALLS: json.dumps(made)}


def request(stream: bool = True, **members: Any) -> ResponsesRequest:
    return ResponsesRequest.parse(json.dumps({"model": "m", "input": "2+2?", "stream": stream, **members}).encode())


def streamed(deltas: Iterable[m.Delta], end: m.Complete | Failure, start: m.Start | None = None, **asked: Any) -> bytes:
    """Return the whole stream of a run."""
    made = request(**asked).building("1", 1790000000)
    assert isinstance(made, responses_answer.ResponsesStream)
    stream: shape.Streaming = made
    stream.started(start or m.Start())
    said = b"".join([stream.delta(delta) for delta in deltas])
    return said + (stream.failed(end) if isinstance(end, Failure) else stream.completed(end))


def document(deltas: Iterable[m.Delta], end: m.Complete = STOP, start: m.Start | None = None, **asked: Any) -> Json:
    """Return the document of a run, which the SDK's own type takes strictly."""
    built: shape.Building = request(False, **asked).building("1", 1790000000)
    built.started(start or m.Start())
    assert b"".join([built.delta(delta) for delta in deltas]) == b""
    made: Json = json.loads(built.completed(end))
    Response.model_validate(made, strict=True)
    return made


def text(*pieces: str) -> list[m.Delta]:
    return [m.Delta(text=piece) for piece in pieces]


# ---- the grammar

_LETTERS = {
    "response.created": "C",
    "response.in_progress": "P",
    "response.output_item.added": "i",
    "response.content_part.added": "p",
    "response.output_text.delta": "t",
    "response.output_text.done": "T",
    "response.content_part.done": "Q",
    "response.reasoning_summary_part.added": "q",
    "response.reasoning_summary_text.delta": "r",
    "response.reasoning_summary_text.done": "R",
    "response.reasoning_summary_part.done": "S",
    "response.function_call_arguments.delta": "a",
    "response.function_call_arguments.done": "A",
    "response.custom_tool_call_input.delta": "u",
    "response.custom_tool_call_input.done": "U",
    "response.output_item.done": "I",
    "response.completed": "E",
    "response.incomplete": "E",
    "response.failed": "F",
}
_ITEM = "i(?:pt*TQ|qr*RS|a?A|u?U)I"
_WHOLE = re.compile(f"CP(?:{_ITEM})+E")
_BROKEN = re.compile(f"CP(?:{_ITEM})*(?:ipt*|iqr*)?F")


def events_of(stream: bytes) -> list[Json]:
    """Return a stream's events: named, numbered, and each of a type of the SDK's."""
    made = []
    for number, block in enumerate(sse.blocks(stream)):
        name, data, *rest = block.decode().split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert (name, rest) == (f"event: {event['type']}", ["", ""])
        assert event["sequence_number"] == number
        if event["type"] != "response.failed":  # its code may be any, and the SDK's type knows a few
            EVENT.validate_python(event, strict=True)
        made.append(event)
    return made


def legal(stream: bytes) -> list[Json]:
    """Return the events of a stream whose order, places and contents agree with one another."""
    events = events_of(stream)
    order = "".join(_LETTERS[event["type"]] for event in events)
    last = events[-1]
    assert (_BROKEN if order.endswith("F") else _WHOLE).fullmatch(order), order
    items, said, id = [], "", ""
    for event in events[2:-1]:
        item = event.get("item", {})
        id = item["id"] if event["type"].endswith("item.added") else id
        assert {event["output_index"], event.get("item_id", id), item.get("id", id)} == {len(items), id}
        assert {event.get("content_index", 0), event.get("summary_index", 0)} == {0}
        kind = event["type"].rpartition(".")[2]
        if kind == "delta":
            said += event["delta"]
        elif kind == "done" and "item" not in event and "part" not in event:
            (whole,) = [event[name] for name in ("text", "arguments", "input") if name in event]
            assert whole == said
        elif "part" in event:
            assert event["part"]["text"] == said
        elif kind == "done":
            assert held(event["item"]) == said
            items.append(event["item"])
            said = ""
    assert len({item["id"] for item in items}) == len(items)
    if last["type"] != "response.failed":
        assert last["response"]["output"] == items
        assert f"response.{last['response']['status']}" == last["type"]
    assert len({event["response"]["id"] for event in (*events[:2], last)}) == 1
    return events


def held(item: Json) -> str:
    """Return all that an item says."""
    parts = item.get("content", item.get("summary"))
    return str(item.get("arguments", item.get("input")) if parts is None else "".join(p["text"] for p in parts))


def types(events: list[Json]) -> list[str]:
    return [event["type"] for event in events]


def texts(output: list[Json], kind: str = "message") -> str:
    return "".join(held(item) for item in output if item["type"] == kind)
