"""One line a request. docs/contracts/openai.md, Access log."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from twisted.logger import formatEvent
from zope.interface.verify import verifyObject

from iop.edge.accesslog import AccessLog
from iop.edge.record import Attempt, Record
from iop.interfaces import IRecorder
from iop.logs import observer
from iop.model import Usage

RUN = Record(
    at=1.7e9,
    operation="chat",
    outcome="complete",
    status=200,
    request_id="req-1",
    token_ref="alice-editor",
    principal_ref="alice",
    model="qwen3",
    known=True,
    stream=True,
    run_id="run-1",
    admitted=True,
    provider="p1",
    node="gpu-1",
    usage=Usage(1200, 80, 1000, 30),
    queue_ms=0,
    first_ms=140,
    total_ms=2100,
    attempts=(Attempt("gpu-1", "p1", "complete"),),
)


def line(record: Record, logged: Any) -> str:
    AccessLog().record(record)
    return formatEvent(logged.events[-1])


def test_it_is_a_recorder() -> None:
    assert verifyObject(IRecorder, AccessLog())


def test_a_stream(logged: Any) -> None:
    assert line(RUN, logged) == (
        "chat 200 complete model=qwen3 provider=p1 node=gpu-1 token_ref=alice-editor run=run-1 request=req-1"
        " queue_ms=0 first_ms=140 total_ms=2100 stream tokens=1200(1000 cached)/80(30 reasoning)"
    )


def test_a_request_that_never_became_a_run(logged: Any) -> None:
    refused = Record(1.7e9, "", "unknown_url", 404, request_id="req-2", total_ms=1)
    assert line(refused, logged) == "- 404 unknown_url request=req-2 total_ms=1"


def test_a_run_that_failed_tells_everything(logged: Any) -> None:
    attempts = (Attempt("a", "p", "upstream_connect"), Attempt("b", "q", "node_lost"))
    failed = RUN._replace(outcome="node_lost", status=502, first_ms=None, usage=Usage(), attempts=attempts)
    assert line(failed, logged) == (
        "chat 502 node_lost model=qwen3 provider=p1 node=gpu-1 token_ref=alice-editor run=run-1 request=req-1"
        " queue_ms=0 total_ms=2100 stream attempts=a/p:upstream_connect,b/q:node_lost"
    )


@pytest.mark.parametrize(
    ("usage", "estimated", "written"),
    [
        (Usage(10, 2), False, "tokens=10/2"),
        (Usage(10, 2), True, "tokens=~10/~2"),
        (Usage(10), False, "tokens=10/-"),
        (Usage(None, 0), False, "tokens=-/0"),
        (Usage(10, 2, 0, 0), False, "tokens=10/2"),
    ],
)
def test_tokens(usage: Usage, estimated: bool, written: str, logged: Any) -> None:
    assert line(RUN._replace(usage=usage, estimated=estimated), logged).endswith(" " + written)


def test_nothing_counted_is_not_told(logged: Any) -> None:
    assert "tokens=" not in line(RUN._replace(usage=Usage()), logged)


@pytest.mark.parametrize(
    ("record", "level"),
    [
        (RUN, "info"),
        (RUN._replace(status=499, outcome="cancelled"), "info"),
        (RUN._replace(status=429, outcome="queue_full"), "info"),
        (RUN._replace(status=500), "warn"),
        (RUN._replace(status=504), "warn"),
        (Record(1.7e9, "health", "complete", 200), "debug"),
        (Record(1.7e9, "health", "no_provider", 503), "debug"),
    ],
)
def test_levels(record: Record, level: str, logged: Any) -> None:
    line(record, logged)
    assert logged.events[-1]["log_level"].name == level


MADE_UP = [
    ("two words", "model='two words'"),
    ("m status=500", "model='m status=500'"),
    ("m\r\n2026 chat 200", "model='m??2026 chat 200'"),
    ("\x1b[31m", "model=?[31m"),
    ("{status}", "model={status}"),
    ("it's {0!r}", 'model="it\'s {0!r}"'),
    ("x" * 5000, "model=" + "x" * 200 + " "),
]


@pytest.mark.parametrize(("model", "written"), MADE_UP, ids=range(len(MADE_UP)))
def test_a_model_that_a_client_made_up(model: str, written: str, logged: Any) -> None:
    told = line(Record(1.7e9, "chat", "model_not_found", 404, model=model), logged)
    assert f" {written}" in told
    assert told.isprintable()
    assert told.endswith(" total_ms=0")


def test_a_code_that_a_backend_made_up(logged: Any) -> None:
    told = line(RUN._replace(outcome="bad code\n" + "x" * 100, attempts=()), logged)
    assert told.startswith("chat 200 'bad code?" + "x" * 55 + "' model=")


def test_as_json_every_part_is_a_field() -> None:
    file = io.StringIO()
    AccessLog(observer(file, "info", "json")).record(RUN._replace(estimated=True))
    told = json.loads(file.getvalue())
    assert told.pop("ts")
    assert told.pop("msg").startswith("chat 200 complete model=qwen3")
    assert told == {
        "level": "info",
        "ns": "iop.edge.accesslog.AccessLog",
        "operation": "chat",
        "status": 200,
        "outcome": "complete",
        "model": "qwen3",
        "provider": "p1",
        "node": "gpu-1",
        "token_ref": "alice-editor",
        "run": "run-1",
        "request": "req-1",
        "stream": True,
        "queue_ms": 0,
        "first_ms": 140,
        "total_ms": 2100,
        "input_tokens": 1200,
        "cached_tokens": 1000,
        "output_tokens": 80,
        "reasoning_tokens": 30,
        "estimated": True,
    }
