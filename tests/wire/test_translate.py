"""Between protobuf and values: what goes in comes out, and what means nothing is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iop import model as m
from iop.errors import KINDS, Failure
from iop.wire import runtime_pb2 as pb
from iop.wire import translate
from iop.wire.frames import clean_text
from iop.wire.translate import Malformed

TEXT = st.text(max_size=12)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12)
UINT32, UINT64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
HEADERS = st.lists(st.tuples(NAMES, TEXT), max_size=3).map(tuple)
METADATA = st.dictionaries(TEXT, TEXT, max_size=3)
COUNTS = st.none() | UINT64
USAGE = st.none() | st.builds(m.Usage, COUNTS, COUNTS, COUNTS, COUNTS)
HEAD = st.builds(m.HttpResponseHead, UINT32, HEADERS)
FAILURE = st.builds(
    Failure,
    st.sampled_from(sorted(KINDS)) | NAMES,
    TEXT,
    http_status=st.integers(100, 599),
    type=NAMES,
    param=st.none() | TEXT,
    retryable=st.booleans(),
    retry_after_ms=UINT64,
)
EVENTS = st.one_of(
    st.builds(m.Start, st.none() | HEAD, METADATA),
    st.builds(m.Delta, st.binary(min_size=1), st.just(""), st.just("")),
    st.builds(m.Delta, st.just(b""), TEXT, TEXT),
    st.builds(m.Complete, TEXT, USAGE, METADATA),
    st.builds(m.Whole, HEAD, st.binary(), TEXT, USAGE, METADATA),
    st.builds(m.Error, FAILURE, USAGE, METADATA),
    st.builds(m.Cancelled, USAGE),
)

SETTINGS = {
    "openai_compat": st.fixed_dictionaries(
        {"base_url": NAMES},
        optional={
            "headers": st.dictionaries(NAMES, TEXT, min_size=1, max_size=2),
            "request_timeout_ms": UINT32,
            "connect_timeout_ms": UINT32,
            "max_connections": UINT32,
            "tools": NAMES,
        },
    ),
    "ollama": st.fixed_dictionaries(
        {},
        optional={
            "base_url": NAMES,
            "context_size": UINT32 | st.dictionaries(NAMES, UINT32, min_size=1, max_size=2),
            "keep_alive": st.integers(-1, 10**6) | st.sampled_from(["10m", "1h30m", "-1m"]),
        },
    ),
    "cli": st.fixed_dictionaries(
        {"command": NAMES},
        optional={
            "args": st.lists(NAMES, min_size=1, max_size=3),
            "env": st.dictionaries(NAMES, TEXT, min_size=1, max_size=2),
            "grace_ms": UINT32,
            "fields": st.dictionaries(NAMES, NAMES, min_size=1, max_size=2),
        },
    ),
    "drop_in": st.dictionaries(
        TEXT, st.recursive(st.none() | st.booleans() | st.integers() | TEXT, st.lists, max_leaves=4)
    ).map(lambda settings: {key: value for key, value in settings.items() if value is not None}),
}
ADAPTERS = st.sampled_from(sorted(SETTINGS)).flatmap(
    lambda kind: st.builds(m.AdapterConfig, NAMES | st.just(""), st.just(kind), st.booleans(), SETTINGS[kind])
)
PROVIDERS = st.builds(
    m.ProviderConfig,
    id=NAMES,
    adapter=NAMES,
    type=TEXT,
    provider=TEXT,
    models=st.lists(TEXT, max_size=3).map(tuple),
    health=st.builds(m.HealthCheck, UINT32, TEXT, UINT32),
    lifecycle=st.builds(m.Lifecycle, st.booleans()),
)
PAYLOADS = st.builds(
    m.NodePayload,
    NAMES,
    st.lists(ADAPTERS, max_size=3).map(tuple),
    st.lists(PROVIDERS, max_size=2).map(tuple),
    UINT32,
)
NAMES_LIST = st.lists(NAMES, max_size=3).map(tuple)

MESSAGES = {
    m.RunInput: st.builds(m.RunInput, NAMES, st.binary()),
    m.RunWindow: st.builds(m.RunWindow, NAMES, UINT32),
    m.CancelRequest: st.builds(m.CancelRequest, NAMES, st.sampled_from(m.CancelAction), TEXT, TEXT, TEXT),
    m.CancelResponse: st.builds(m.CancelResponse, NAMES, st.booleans(), TEXT),
    m.NodeCommandRequest: st.builds(m.NodeCommandRequest, NAMES, st.sampled_from(m.CommandType).map(str)),
    m.NodeCommandResponse: st.builds(m.NodeCommandResponse, NAMES, TEXT, st.booleans()),
    m.NodeConfigRefreshRequest: st.builds(m.NodeConfigRefreshRequest, NAMES, PAYLOADS),
    m.NodeConfigRefreshResponse: st.builds(
        m.NodeConfigRefreshResponse, TEXT, NAMES, st.sampled_from(m.RefreshStatus), TEXT, NAMES_LIST, NAMES_LIST
    ),
    m.RegisterRequest: st.builds(m.RegisterRequest, TEXT, UINT32, TEXT, TEXT, TEXT, TEXT, NAMES_LIST),
    m.RegisterResponse: st.builds(m.RegisterResponse, st.booleans(), TEXT, TEXT, TEXT, TEXT, UINT32, UINT32, PAYLOADS),
    m.ProviderStatus: st.builds(m.ProviderStatus, NAMES, NAMES, TEXT, NAMES_LIST),
    m.NodeDraining: st.builds(m.NodeDraining),
    m.Ping: st.builds(m.Ping, UINT64),
    m.Pong: st.builds(m.Pong, UINT64),
}


def through(message: Any) -> Any:
    kind, envelope = translate.parse(translate.encode(message))
    assert kind == translate.KINDS[type(message)]
    return translate.decode(kind, envelope)


def told(failure: Failure) -> tuple[Any, ...]:
    return (
        failure.code,
        failure.message,
        failure.http_status,
        failure.type,
        failure.param,
        failure.retryable,
        failure.retry_after_ms,
    )


def test_every_message_is_tried_here() -> None:
    assert set(MESSAGES) == set(translate.KINDS)


@settings(max_examples=500)
@given(st.one_of(*MESSAGES.values()))
def test_a_message_comes_out_as_it_went_in(message: Any) -> None:
    assert through(message) == message


@given(NAMES, UINT64, EVENTS)
def test_an_event_comes_out_as_it_went_in(run_id: str, seq: int, event: m.RunEvent) -> None:
    kind, envelope = translate.parse(translate.encode_event(run_id, seq, event))
    assert kind == "run_event"
    assert (envelope.run_event.run_id, envelope.run_event.seq) == (run_id, seq)
    got = translate.decode_event(envelope.run_event)
    assert type(got) is type(event)
    if isinstance(event, m.Error):
        assert told(got.failure) == told(event.failure)
        assert (got.usage, got.metadata) == (event.usage, event.metadata)
    else:
        assert got == event


@given(
    st.builds(
        m.RunRequest,
        NAMES,
        NAMES,
        TEXT,
        TEXT,
        st.sampled_from(m.Mode),
        st.binary(max_size=40),
        st.none() | st.builds(m.HttpRequestHead, NAMES, NAMES, HEADERS),
        HEADERS,
        st.builds(m.Thinking, st.sampled_from(["unset", "off", "on"]), st.none() | st.integers(-(2**63), 2**63 - 1)),
        METADATA,
        UINT64,
        UINT32,
        TEXT,
        TEXT,
    ),
    st.integers(0, 40),
)
def test_a_run_comes_out_as_it_went_in(request: m.RunRequest, first: int) -> None:
    kind, envelope = translate.parse(translate.encode_run(request, request.input[:first]))
    assert kind == "run_request"
    got, size = translate.decode(kind, envelope)
    assert got == request._replace(input=request.input[:first])
    assert size == len(request.input)


def test_a_report_comes_out_with_its_defaults() -> None:
    report = {"sessions": {"sessions": [{"session_id": "s", "adapter": "a", "created_ms": 7}]}}
    got = through(m.NodeCommandResponse("1", report=report))
    (session,) = got.report["sessions"]["sessions"]
    assert session["session_id"] == "s"
    assert session["created_ms"] == 7
    assert session["state"] == ""


# ---- surrogates: protobuf strings are UTF-8 and raise on them


@pytest.mark.parametrize(
    "event",
    [
        m.Delta(text="a\ud83c"),
        m.Delta(reasoning="\udf0d"),
        m.Start(m.HttpResponseHead(200, (("x", "\ud83c"),)), {"k\ud83c": "\ud83c"}),
        m.Complete("st\ud83cop", None, {"openai_tool_calls": "\ud83c"}),
        m.Whole(m.HttpResponseHead(200, (("x", "\ud83c"),)), b"{}", "\ud83c"),
        m.Error(Failure("upstream_error", "\ud83c", type="\ud83c", param="\ud83c")),
    ],
)
def test_a_lone_surrogate_in_an_event_becomes_a_replacement_character(event: m.RunEvent) -> None:
    _, envelope = translate.parse(translate.encode_event("r", 0, event))
    assert "\N{REPLACEMENT CHARACTER}" in repr(translate.decode_event(envelope.run_event)) or isinstance(event, m.Error)


def test_a_split_pair_in_an_event_is_joined() -> None:
    _, envelope = translate.parse(translate.encode_event("r", 0, m.Delta(text="\ud83c\udf0d")))
    assert translate.decode_event(envelope.run_event) == m.Delta(text="🌍")


@pytest.mark.parametrize(
    "message",
    [
        m.CancelResponse("1", True, "\ud83c"),
        m.ProviderStatus("p", "up", "\ud83c"),
        m.NodeConfigRefreshResponse("", "r", m.RefreshStatus.FAILED, "\ud83c"),
        m.NodeCommandResponse("1", error="\ud83c"),
        m.RegisterRequest("token", hostname="\ud83c"),
    ],
)
def test_a_lone_surrogate_in_words_for_people_does_not_break_a_message(message: Any) -> None:
    got = through(message)
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        assert getattr(got, field.name) == (clean_text(str(value)) if value == "\ud83c" else value)


# ---- what means nothing


@pytest.mark.parametrize("frame", [b"\xff", b"\x0a\xff", b"garbage", b"GET / HTTP/1.1\r\n", b"\x52\x03\x0a\x01\xff"])
def test_bytes_that_are_no_envelope(frame: bytes) -> None:
    with pytest.raises(Malformed):
        translate.parse(frame)


@given(st.binary(max_size=200))
def test_no_bytes_do_worse_than_malformed(frame: bytes) -> None:
    try:
        kind, envelope = translate.parse(frame)
        if kind == "run_event":
            translate.decode_event(envelope.run_event)
        elif kind is not None:
            translate.decode(kind, envelope)
        else:
            translate.unknown_kind(envelope)
    except Malformed:
        pass


@pytest.mark.parametrize(
    "body",
    [
        {"run_request": pb.RunRequest(run_id="r", mode=99)},
        {"run_request": pb.RunRequest(run_id="r")},
        {"run_request": pb.RunRequest(run_id="r", mode=1, thinking=pb.Thinking(mode=99))},
        {"cancel_request": pb.CancelRequest(action=99)},
        {"cancel_request": pb.CancelRequest()},
        {"node_config_refresh_response": pb.NodeConfigRefreshResponse(status=99)},
        {"node_config_refresh_response": pb.NodeConfigRefreshResponse()},
        *[
            {"register_response": pb.RegisterResponse(config=pb.NodeConfigPayload(adapters=[adapter]))}
            for adapter in (
                pb.AdapterConfig(type="x", extension=b"{"),
                pb.AdapterConfig(type="x", extension=b"[1]"),
                pb.AdapterConfig(type="x", extension=b"\xff"),
                pb.AdapterConfig(type="x", extension=b"[" * 100_000),
            )
        ],
    ],
)
def test_values_that_mean_nothing_are_malformed(body: dict[str, Any]) -> None:
    kind, envelope = translate.parse(pb.Envelope(**body).SerializeToString())
    assert kind is not None
    with pytest.raises(Malformed):
        translate.decode(kind, envelope)


@pytest.mark.parametrize("type_", [0, 6, 99])
def test_an_event_of_an_unknown_type_is_malformed(type_: int) -> None:
    with pytest.raises(Malformed):
        translate.decode_event(pb.RunEvent(run_id="r", type=type_))


def test_a_query_of_a_newer_edge_is_no_reason_to_leave() -> None:
    asked = pb.Envelope(node_command_request=pb.NodeCommandRequest(type=99))
    kind, envelope = translate.parse(asked.SerializeToString())
    assert translate.decode(str(kind), envelope) == m.NodeCommandRequest("", "")


def test_an_unknown_body_has_a_name_for_the_log() -> None:
    kind, envelope = translate.parse(b"\xa2\x06\x00")  # field 100, length-delimited, empty
    assert kind is None
    assert translate.unknown_kind(envelope) == "field 100"
    kind, envelope = translate.parse(b"")
    assert kind is None
    assert translate.unknown_kind(envelope) == "empty"
