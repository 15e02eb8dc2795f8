"""What of HTTP the surface's requests and answers have in common: headers, ids, the list of models. Pure.

``docs/contracts/openai.md``.
"""

from __future__ import annotations

import json
import math
import re
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


def error_headers(failure: Failure) -> RawHeaders:
    """Return the headers that go with it."""
    headers = [JSON]
    if failure.http_status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if failure.retry_after_ms > 0:
        headers.append((b"retry-after", b"%d" % math.ceil(failure.retry_after_ms / 1000)))
    if failure.hopeless:  # SDKs try every 5xx again
        headers.append((b"x-should-retry", b"false"))
    return headers + response_headers(failure.headers)


def request_id(offered: bytes | None) -> bytes | None:
    """Return a client's own request id when it is one that may be repeated."""
    return offered if offered is not None and _REQUEST_ID.fullmatch(offered) else None


def model_object(id: str, created: int, context_window_tokens: int | None) -> dict[str, Any]:
    """Return a model as ``/v1/models`` shows it."""
    made: dict[str, Any] = {"id": id, "object": "model", "created": created, "owned_by": "iop"}
    if context_window_tokens:
        made["max_model_len"] = context_window_tokens
    return made


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
        return cls(session, workspace, {k: v for k, v in given.items() if _is_callers(k)})


def _is_callers(name: str) -> bool:
    """Whether it is the caller's to say: what is not are words of ours (``docs/contracts/wire.md``, Reserved keys)."""
    return not name.startswith("openai_") and name not in m.TRACE


_SESSION: Final = b"x-iop-session"
_WORKSPACE: Final = b"x-iop-workspace"
_SESSION_ID: Final = re.compile(r"[^\x00-\x1f\x7f]{0,256}")
_NO_ERRAND: Final = Errand()


def session_of(principal: str, session_id: str) -> str:
    """Return how a session is called on the wire: nobody can name another principal's. "" stays ""."""
    return json.dumps([principal, session_id], separators=(",", ":")) if session_id else ""


def forwarded(headers: Mapping[bytes, bytes], request_id: str) -> m.Headers:
    """Return what of a client's headers goes to the backend."""
    also = _FORWARDED & headers.keys()
    if not also:
        return (("x-request-id", request_id),)
    trace = trace_of(headers)
    kept = [(name.decode("ascii"), headers[name].decode("latin-1")) for name in also - _TRACE]
    return (("x-request-id", request_id), *kept, *trace.items())


def trace_of(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the trace that a request belongs to, as headers: nothing where it is none (W3C Trace Context)."""
    parent = _TRACEPARENT.fullmatch(headers.get(b"traceparent", b""))
    if parent is None or not parent[2].strip(b"0") or not parent[3].strip(b"0"):
        return {}
    if parent[1] == b"ff" or (parent[4] and parent[1] == b"00"):
        return {}
    made = {"traceparent": parent[0].decode("ascii")}
    state = headers.get(b"tracestate", b"")
    if state and len(state) <= 512 and state.isascii():
        made["tracestate"] = state.decode("ascii")
    return made


_TRACE: Final = frozenset((b"traceparent", b"tracestate"))
_TRACEPARENT: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-[!-~]*)?")


def response_headers(headers: m.Headers) -> RawHeaders:
    """Return a backend's headers for the client, whatever its adapter let through."""
    made = []
    for name, value in headers:
        if travels(name.lower()) and _BREAKS_HEAD.search(name) is None and _BREAKS_HEAD.search(value) is None:
            made.append((name.encode("latin-1", "replace"), value.encode("latin-1", "replace")))
    return made
