"""OpenAI's shapes: errors, model lists, and what of a chat request the edge changes. Pure.

``docs/contracts/openai.md``. Every error is ``{"error": {"message", "type", "param", "code"}}``.
"""

from __future__ import annotations

import json
import math
import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from iop import model as m
from iop.document import Document
from iop.errors import Failure
from iop.headers import travels

RawHeaders = list[tuple[bytes, bytes]]

JSON: Final = (b"content-type", b"application/json")

_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")

_BREAKS_HEAD: Final = re.compile("[\r\n\0]")

_FORWARDED: Final = frozenset(
    {
        b"anthropic-version",
        b"anthropic-beta",
        b"openai-beta",
        b"idempotency-key",
        b"traceparent",
        b"tracestate",
    }
)
"""The client's headers that a backend gets. A list of what may pass: everything else stays here, credentials first."""

NO_SUCH_MODEL: Final = "the model does not exist; GET /v1/models lists those that do"

STRIP_USAGE: Final = {"openai_strip_usage": "true"}
"""A run's metadata: the client did not ask for the usage that the edge asked the backend for."""

_PUBLIC_CODE: Final = {
    "upstream_connect": "upstream_error",
    "adapter_unavailable": "upstream_error",
    "duplicate_run": "upstream_error",
    "protocol_error": "upstream_error",
    "rate_limited": "rate_limit_exceeded",
    "cancelled": "upstream_error",
}
"""Codes of the inside that mean nothing to a client."""


def error_object(failure: Failure) -> dict[str, Any]:
    """Return the error document of a failure."""
    code = _PUBLIC_CODE.get(failure.code, failure.code) or None
    return {"error": {"message": failure.message, "type": failure.type, "param": failure.param, "code": code}}


def error_headers(failure: Failure) -> RawHeaders:
    """Return the headers that go with it."""
    headers = [JSON]
    if failure.http_status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if failure.retry_after_ms > 0:
        headers.append((b"retry-after", b"%d" % math.ceil(failure.retry_after_ms / 1000)))
    return headers


def dumps(document: Any) -> bytes:
    """Return compact JSON; ASCII, so that a lone surrogate in it cannot break anything."""
    return json.dumps(document, separators=(",", ":")).encode()


def request_id(offered: bytes | None) -> bytes | None:
    """Return a client's own request id when it is one that may be repeated."""
    return offered if offered is not None and _REQUEST_ID.fullmatch(offered) else None


def model_object(id: str, created: int, context_window_tokens: int | None) -> dict[str, Any]:
    """Return a model as ``/v1/models`` shows it."""
    made: dict[str, Any] = {"id": id, "object": "model", "created": created, "owned_by": "iop"}
    if context_window_tokens:
        made["max_model_len"] = context_window_tokens
    return made


def _wrong(document: Document, name: str, what: str) -> Failure:
    verb = "must be" if name in document else "is needed, as"
    return Failure("invalid_value", f"`{name}` {verb} {what}", param=name)


class ChatRequest(NamedTuple):
    """What the edge needs to know of a chat request.

    :ivar include_usage: whether the client asked for the usage chunk of a stream.
    """

    body: bytes
    document: Document
    model: str
    stream: bool
    include_usage: bool

    @classmethod
    def parse(cls, body: bytes) -> ChatRequest:
        """Read it; :raises Failure: ``invalid_json``, ``invalid_value``."""
        body = body.removeprefix(BOM_UTF8)
        document = Document.parse(body)
        model, messages = document.get("model"), document.get("messages")
        stream, options = document.get("stream"), document.get("stream_options")
        if not isinstance(model, str) or not model:
            raise _wrong(document, "model", "a non-empty string")
        if not isinstance(messages, list):
            raise _wrong(document, "messages", "a list")
        if stream is not None and not isinstance(stream, bool):
            raise _wrong(document, "stream", "true or false")
        if options is not None and not isinstance(options, tuple):
            raise _wrong(document, "stream_options", "an object")
        asked = stream is True and options is not None and dict(options).get("include_usage") is True
        return cls(body, document, model, stream is True, asked)

    def body_for(self, target: str) -> bytes:
        """Return the body for a backend: its own name for the model, and usage at the end of a stream."""
        if target == self.model and (not self.stream or self.include_usage):
            return self.body
        changes = {} if target == self.model else {"model": json.dumps(target)}
        if self.stream and not self.include_usage:
            inner = self.document.inner("stream_options")
            usage = {"include_usage": "true"}
            changes["stream_options"] = '{"include_usage": true}' if inner is None else inner.with_raw(usage)
        return self.document.with_raw(changes).encode("utf-8", "surrogatepass")


def forwarded(headers: Mapping[bytes, bytes], request_id: bytes) -> m.Headers:
    """Return what of a client's headers goes to the backend."""
    kept = [("x-request-id", request_id.decode("ascii"))]
    also = _FORWARDED & headers.keys()
    return (*kept, *[(name.decode("ascii"), headers[name].decode("latin-1")) for name in also]) if also else tuple(kept)


def response_headers(headers: m.Headers) -> RawHeaders:
    """Return a backend's headers for the client, whatever its adapter let through."""
    made = []
    for name, value in headers:
        if travels(name.lower()) and _BREAKS_HEAD.search(name) is None and _BREAKS_HEAD.search(value) is None:
            made.append((name.encode("latin-1", "replace"), value.encode("latin-1", "replace")))
    return made
