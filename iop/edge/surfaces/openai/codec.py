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

STRIP_USAGE: Final = {m.STRIP_USAGE: "true"}
"""A run's metadata: the client did not ask for the usage that the edge asked the backend for."""

_PUBLIC_CODE: Final = {
    "upstream_connect": "upstream_error",
    "upstream_busy": "upstream_error",
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


def _refuse_silence(messages: list[Any]) -> None:
    """Refuse a user's message that says null; :raises Failure: which names it. Others may be without content."""
    for number, message in enumerate(messages):
        said = dict(message) if type(message) is tuple else {}
        if said.get("role") == "user" and "content" in said and said["content"] is None:
            where = f"messages[{number}].content"
            raise Failure("invalid_value", f"`{where}` must be text, or a list of parts", param=where)


class ChatRequest(NamedTuple):
    """What the edge needs to know of a chat request.

    :ivar include_usage: whether the client asked for the usage chunk of a stream.
    """

    body: bytes
    document: Document
    model: str
    stream: bool
    include_usage: bool

    @property
    def tools(self) -> dict[str, Any]:
        """The JSON Schemas of the tools' parameters, by name; what is no function tool is left out."""
        if "tools" not in self.document:
            return {}
        made: dict[str, Any] = {}
        tools = json.loads(self.body)["tools"]
        for tool in tools if isinstance(tools, list) else ():
            function = tool.get("function") if isinstance(tool, dict) else None
            if isinstance(function, dict) and isinstance(function.get("name"), str):
                made[function["name"]] = function.get("parameters") or {}
        return made

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
        if b"null" in body:
            _refuse_silence(messages)
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


class Errand(NamedTuple):
    """What a request says of its run, apart from the question.

    :ivar session_id: the client's own name of a conversation that goes on; "" for none.
    :ivar workspace: where an agent works; "" for none.
    :ivar metadata: the caller's own, for the run.
    """

    session_id: str = ""
    workspace: str = ""
    metadata: Mapping[str, str] = {}

    @classmethod
    def parse(cls, document: Document, headers: Mapping[bytes, bytes]) -> Errand:
        """Read it, from the body's ``metadata`` first; :raises Failure: ``invalid_value``."""
        said = document.get("metadata")
        if said is None and _SESSION not in headers and _WORKSPACE not in headers:
            return _NO_ERRAND  # nearly always
        given = dict(said) if type(said) is tuple else {}
        for name in ("session_id", "workspace"):
            if not isinstance(given.get(name, ""), str):
                raise Failure("invalid_value", f"`metadata.{name}` must be a string", param=f"metadata.{name}")
        given = {name: value for name, value in given.items() if isinstance(value, str)}
        try:
            "".join((*given, *given.values())).encode()
            session = given.pop("session_id", "") or headers.get(_SESSION, b"").decode()
            workspace = given.pop("workspace", "") or headers.get(_WORKSPACE, b"").decode()
        except UnicodeError:
            message = "`metadata`, a session and a workspace must be text that UTF-8 can carry"
            raise Failure("invalid_value", message, param="metadata") from None
        if not _SESSION_ID.fullmatch(session):
            raise Failure(
                "invalid_value", "a session id is up to 256 printable characters", param="metadata.session_id"
            )
        if "\0" in workspace or len(workspace) > 4096:
            raise Failure("invalid_value", "a workspace is the path of a directory", param="metadata.workspace")
        return cls(session, workspace, {k: v for k, v in given.items() if not k.startswith("openai_")})


_SESSION: Final = b"x-iop-session"
_WORKSPACE: Final = b"x-iop-workspace"
_SESSION_ID: Final = re.compile(r"[^\x00-\x1f\x7f]{0,256}")
_NO_ERRAND: Final = Errand()


def session_of(principal: str, session_id: str) -> str:
    """Return how a session is called on the wire: nobody can name another principal's. "" stays ""."""
    return json.dumps([principal, session_id], separators=(",", ":")) if session_id else ""


def thinking_of(document: Document, default_budget: int | None) -> m.Thinking:
    """Return what is added to a request that says nothing of thinking (``docs/contracts/openai.md``, Model policy)."""
    if not default_budget or document.get("reasoning_effort") == "none" or any(n in document for n in _THINKING):
        return m.Thinking()
    template = document.get("chat_template_kwargs")
    if type(template) is tuple and _TEMPLATE_SWITCHES & dict(template).keys():
        return m.Thinking()
    return m.Thinking("on", default_budget)


_THINKING: Final = (
    "reasoning",
    "thinking",
    "think",
    "enable_thinking",
    "thinking_token_budget",
    "thinking_budget",
    "thinking_budget_tokens",
    "reasoning_budget_tokens",
    "custom_params",
    "nvext",
    "extra_body",
)
"""Members by which a client says how much to think, under any backend's name: then that holds. An effort is no amount:
the node makes one of it where the backend knows none, and the default caps it."""

_TEMPLATE_SWITCHES: Final = frozenset(("enable_thinking", "thinking"))


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
