"""Runs between protobuf and :mod:`iop.model`: the hot path, made once per block.

Fields are set one by one and nothing is built in between: a message made of keyword arguments costs twice as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from iop import model as m
from iop.errors import Failure
from iop.wire import runtime_pb2 as pb
from iop.wire.frames import clean_text

_EVENT = pb.RunEvent
_ENVELOPE = pb.Envelope

START, DELTA, COMPLETE = _EVENT.START, _EVENT.DELTA, _EVENT.COMPLETE
ERROR, CANCELLED = _EVENT.ERROR, _EVENT.CANCELLED
NORMALIZED, PASSTHROUGH = pb.RunRequest.NORMALIZED, pb.RunRequest.PASSTHROUGH

_MODES: Final = {NORMALIZED: m.Mode.NORMALIZED, PASSTHROUGH: m.Mode.PASSTHROUGH}
_NOTHING: Final[Mapping[str, str]] = {}


class Malformed(Exception):
    """Bytes that are no Envelope, or an Envelope with a value that means nothing."""


# ---- run events: the hot path -----------------------------------------------------------------------------------


def encode_event(run_id: str, seq: int, event: m.RunEvent) -> bytes:
    """Return the bytes of an Envelope with one RunEvent."""
    envelope = _ENVELOPE()
    made = envelope.run_event
    made.run_id = run_id
    made.seq = seq
    if isinstance(event, m.Delta):
        made.type = DELTA
        if event.body:
            made.body = event.body
        else:
            made.text = clean_text(event.text)
            made.reasoning = clean_text(event.reasoning)
    else:
        _fill_event(made, event)
    return envelope.SerializeToString()


def _fill_event(made: pb.RunEvent, event: Any) -> None:
    kind = type(event)
    if kind is m.Whole:
        made.type = COMPLETE
        made.body = event.body
        _put_head(made.http, event.http)
    elif kind is m.Start:
        made.type = START
        if event.http is not None:
            _put_head(made.http, event.http)
    elif kind is m.Complete:
        made.type = COMPLETE
    elif kind is m.Error:
        made.type = ERROR
        made.error.CopyFrom(_failure_to_pb(event.failure))
        if event.failure.headers:
            _put_head(made.http, m.HttpResponseHead(event.failure.http_status, event.failure.headers))
    else:
        made.type = CANCELLED
    if kind is not m.Start and event.usage is not None:
        _put_usage(made.usage, event.usage)
    if kind is m.Whole or kind is m.Complete:
        made.finish_reason = clean_text(event.finish_reason)
    if kind is not m.Cancelled and event.metadata:
        _put_map(made.metadata, event.metadata)


def _put_head(made: pb.HttpResponse, head: m.HttpResponseHead) -> None:
    made.status = head.status
    _put_headers(made.headers, head.headers)


def _put_usage(made: pb.Usage, usage: m.Usage) -> None:
    made.SetInParent()
    if usage.input_tokens is not None:
        made.input_tokens = usage.input_tokens
    if usage.output_tokens is not None:
        made.output_tokens = usage.output_tokens
    if usage.cached_input_tokens is not None:
        made.cached_input_tokens = usage.cached_input_tokens
    if usage.reasoning_tokens is not None:
        made.reasoning_tokens = usage.reasoning_tokens


def decode_event(made: pb.RunEvent) -> m.RunEvent:
    """Return the event in a RunEvent; :raises Malformed: for a type that means nothing."""
    kind = made.type
    if kind == DELTA:
        body = made.body
        return m.Delta(body) if body else m.Delta(b"", made.text, made.reasoning)
    metadata = dict(made.metadata) if made.metadata else _NOTHING
    http = m.HttpResponseHead(made.http.status, _pairs(made.http.headers)) if made.HasField("http") else None
    if kind == START:
        return m.Start(http, metadata)
    usage = _usage(made.usage) if made.HasField("usage") else None
    if kind == COMPLETE:
        if http is not None:
            return m.Whole(http, made.body, made.finish_reason, usage, metadata)
        return m.Complete(made.finish_reason, usage, metadata)
    if kind == ERROR:
        return m.Error(_failure(made.error, () if http is None else http.headers), usage, metadata)
    if kind == CANCELLED:
        return m.Cancelled(usage)
    raise Malformed("a run event without a type")


def _usage(made: pb.Usage) -> m.Usage:
    has = made.HasField
    return m.Usage(
        made.input_tokens if has("input_tokens") else None,
        made.output_tokens if has("output_tokens") else None,
        made.cached_input_tokens if has("cached_input_tokens") else None,
        made.reasoning_tokens if has("reasoning_tokens") else None,
    )


def _failure_to_pb(failure: Failure) -> pb.RunError:
    return pb.RunError(
        code=failure.code,
        message=clean_text(failure.message),
        http_status=failure.http_status,
        type=clean_text(failure.type),
        param=None if failure.param is None else clean_text(failure.param),
        retryable=failure.retryable,
        retry_after_ms=failure.retry_after_ms,
    )


def _failure(made: pb.RunError, headers: m.Headers) -> Failure:
    return Failure(
        made.code,
        made.message,
        http_status=made.http_status,
        type=made.type,
        param=made.param if made.HasField("param") else None,
        retryable=made.retryable,
        retry_after_ms=made.retry_after_ms,
        headers=headers,
    )


# ---- small shared pieces ----------------------------------------------------------------------------------------


def _put_headers(target: Any, headers: m.Headers) -> None:
    for name, value in headers:
        made = target.add()
        made.name = name
        made.value = clean_text(value)


def _pairs(made: Any) -> m.Headers:
    return tuple([(header.name, header.value) for header in made])


def _put_map(target: Any, source: Mapping[str, str]) -> None:
    for key, value in source.items():
        target[clean_text(key)] = clean_text(value)


# ---- runs, edge to node -----------------------------------------------------------------------------------------


def encode_run(request: m.RunRequest, first: bytes) -> bytes:
    """Return the Envelope of a RunRequest that carries only the ``first`` part of its input."""
    envelope = _ENVELOPE()
    made = envelope.run_request
    made.run_id = request.run_id
    made.adapter = request.adapter
    made.target = request.target
    made.provider_id = request.provider_id
    made.mode = PASSTHROUGH if request.mode is m.Mode.PASSTHROUGH else NORMALIZED
    made.input = first
    made.input_size = len(request.input)
    made.window_bytes = request.window_bytes
    http = request.http
    if http is not None:
        made.http.method = http.method
        made.http.path = http.path
        _put_headers(made.http.headers, http.headers)
    if request.deadline_ms:
        made.deadline_ms = request.deadline_ms
    if request.secret_headers:
        _put_headers(made.secret_headers, request.secret_headers)
    if request.thinking.mode != "unset" or request.thinking.budget is not None:
        made.thinking.CopyFrom(pb.Thinking(mode=request.thinking.mode.upper(), budget=request.thinking.budget))
    if request.metadata:
        _put_map(made.metadata, request.metadata)
    if request.workspace:
        made.workspace = request.workspace
    if request.session_id:
        made.session_id = request.session_id
    return envelope.SerializeToString()


def decode_run(made: pb.RunRequest) -> tuple[m.RunRequest, int]:
    has = made.HasField
    mode = _MODES.get(made.mode)
    if mode is None:
        raise Malformed("a run without a mode")
    http = None
    if has("http"):
        http = m.HttpRequestHead(made.http.method, made.http.path, _pairs(made.http.headers))
    thinking = m.UNSET
    if has("thinking"):
        budget = made.thinking.budget if made.thinking.HasField("budget") else None
        thinking = m.Thinking(pb.Thinking.Mode.Name(made.thinking.mode).lower(), budget)
    request = m.RunRequest(
        made.run_id,
        made.adapter,
        made.target,
        made.provider_id,
        mode,
        made.input,
        http,
        _pairs(made.secret_headers) if made.secret_headers else (),
        thinking,
        dict(made.metadata) if made.metadata else _NOTHING,
        made.deadline_ms,
        made.window_bytes,
        made.workspace,
        made.session_id,
    )
    return request, made.input_size
