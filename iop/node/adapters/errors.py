"""What a backend's error means: any of their shapes to one :class:`iop.errors.Failure`. Pure.

Shapes: ``docs/contracts/openai.md`` (Errors). A message is taken only from JSON and never shows an address; what a
backend says about credentials is not repeated at all, since some repeat the credentials.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

from iop.errors import KINDS, Failure

_LONGEST: Final = 2000

_OURS: Final = {*KINDS, "complete"} - {"context_length_exceeded", "rate_limit_exceeded"}
"""Codes that mean something between edge and node: no backend may say them."""

_ADDRESS: Final = re.compile(
    r"\b[a-z][a-z0-9+.-]{0,15}://[^\s'\"<>)]+"
    r"|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"
    r"|\[[0-9a-f]{0,4}:[0-9a-f:.]{1,40}\](?::\d+)?"
    r"|\b(?:localhost|[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,8}):\d{2,5}\b"
    r"|(?:(?<=\blookup )|(?<=\bhost )|(?<=\bdial ))[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,8}"
    r"|(?<=\blookup )[a-z0-9_-]{1,63}(?= on |: no such host)",
    re.IGNORECASE,
)
_BARE_IPV6: Final = re.compile(r"(?<![\w:.])[0-9a-f]{0,4}:[0-9a-f:]{0,35}:[0-9a-f:.]{0,15}(?![\w:])", re.IGNORECASE)
_OVERFLOW: Final = re.compile(
    r"maximum context length|context[_ ]length[_ ]exceeded|exceeds? the (?:available |model's )?(?:maximum )?context"
    r"|context (?:size|window) (?:exceeded|of)|longer than the (?:model's )?(?:maximum )?context"
    r"|(?:prompt|input|request) is too long|prompt too long|reduce the length of the (?:messages|prompt|input)",
    re.IGNORECASE,
)
_PARAM: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\[\]-]{0,199}")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")

_BY_STATUS: Final[Mapping[int, tuple[str, str]]] = {
    429: ("rate_limited", "the backend has too many requests"),
    500: ("upstream_error", "the backend failed"),
    501: ("upstream_error", "the backend does not do this"),
    502: ("upstream_error", "what stands behind the backend failed"),
    503: ("upstream_error", "the backend is not available"),
    504: ("upstream_timeout", "what stands behind the backend took too long"),
}
_RETRYABLE: Final = frozenset({429, 502, 503, 504})


def failure_of(status: int, headers: Mapping[bytes, bytes], body: bytes) -> Failure:
    """Return the failure that an answer with status ≥ 400 (or one that must not be followed) stands for."""
    if status < 400:
        return Failure("upstream_error", "the backend sent its caller elsewhere")
    if status in (401, 403):
        return Failure(
            "upstream_auth",
            "the backend refused the credentials it was given",
            http_status=status,
            type="invalid_request_error" if status == 401 else "permission_error",
        )
    said = _said(body)
    message, kind, code, param = _members(said)
    if _overflows(message, kind, code):
        return Failure("context_length_exceeded", message or "the request is longer than the model's context")
    fallback_code, fallback = _BY_STATUS.get(status, ("", f"the backend refused the request with status {status}"))
    if status >= 500:
        http_status = 502 if status not in (501, 503, 504) else status
        kind = "server_error"
        code = fallback_code or "upstream_error"
    else:
        http_status = status
        kind = kind if _WORD.fullmatch(kind) else "rate_limit_error" if status == 429 else "invalid_request_error"
        code = code or fallback_code
    return Failure(
        code,
        message or fallback,
        http_status=http_status,
        type=kind,
        param=param,
        retryable=status in _RETRYABLE,
        retry_after_ms=retry_after_ms(headers),
        headers=_rates(headers),
    )


def _rates(headers: Mapping[bytes, bytes]) -> tuple[tuple[str, str], ...]:
    """Return what a backend says of its rate limits."""
    told = sorted(name for name in headers if name.startswith((b"x-ratelimit-", b"ratelimit", b"anthropic-ratelimit-")))
    return tuple((name.decode("latin-1"), headers[name].decode("latin-1")) for name in told[:32])


def failure_in_stream(error: Any) -> Failure:
    """Return the failure that an ``error`` member inside a 200 answer stands for."""
    message, kind, code, param = _members({"error": error})
    status = error.get("code") if isinstance(error, dict) else None
    if _overflows(message, kind, code):
        return Failure("context_length_exceeded", message or "the request is longer than the model's context")
    limited = status == 429 or "quota" in kind or "rate_limit" in kind or code in ("insufficient_quota", "429")
    return Failure(
        code if code and not code.isdigit() else "rate_limited" if limited else "upstream_error",
        message or "the backend failed in the middle of its answer",
        http_status=429 if limited else 502,
        type=kind if _WORD.fullmatch(kind) else "",
        param=param,
        retryable=limited,
    )


def _said(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _members(said: Any) -> tuple[str, str, str, str | None]:
    """Return message, type, code (``""`` where there is none) and param, whatever the shape."""
    if not isinstance(said, dict):
        return "", "", "", None
    error = said.get("error", said)
    if isinstance(error, str):
        return _clean(error), "", "", None
    if not isinstance(error, dict):
        return "", "", "", None
    message = error.get("message", error.get("detail", said.get("detail")))
    if isinstance(message, list):  # FastAPI: a list of what is wrong
        message = "; ".join(_wrong(item) for item in message[:10])
    kind, code, param = error.get("type"), error.get("code"), error.get("param")
    return (
        _clean(message) if isinstance(message, str) else "",
        kind if isinstance(kind, str) else "",
        code if isinstance(code, str) and _WORD.fullmatch(code) and code not in _OURS else "",
        param if isinstance(param, str) and _PARAM.fullmatch(param) else None,
    )


def _wrong(item: Any) -> str:
    if not isinstance(item, dict):
        return ""
    where = item.get("loc")
    path = ".".join(str(part) for part in where[1:]) if isinstance(where, list) else ""
    return f"{path}: {item.get('msg', '')}".strip(": ")


def _clean(message: str) -> str:
    if "Traceback (most recent call last)" in message or message.lstrip()[:1] == "<":
        return ""
    shown = _ADDRESS.sub("[address]", message[: 2 * _LONGEST])  # bounded: a long one costs its square
    return _BARE_IPV6.sub(_hidden, shown)[:_LONGEST].strip()


def _hidden(match: re.Match[str]) -> str:
    """Hide an IPv6 address, leave a time of day."""
    try:
        ipaddress.ip_address(match[0])
    except ValueError:
        return match[0]
    return "[address]"


def _overflows(message: str, kind: str, code: str) -> bool:
    if code == "context_length_exceeded" or kind == "exceed_context_size_error":
        return True
    return _OVERFLOW.search(message) is not None


def retry_after_ms(headers: Mapping[bytes, bytes], now: float | None = None) -> int:
    """Return what ``Retry-After`` (or ``retry-after-ms``) asks for, 0 when it asks for nothing.

    :param now: the time an HTTP date is counted from, seconds since the epoch; the date header's when None.
    """
    exact = headers.get(b"retry-after-ms", b"")
    if exact.isdigit():
        return int(exact[:9])
    value = headers.get(b"retry-after", b"").strip()
    if value.isdigit():
        return int(value[:6]) * 1000
    try:
        until = parsedate_to_datetime(value.decode("latin-1")).timestamp()
        since = now if now is not None else parsedate_to_datetime(headers[b"date"].decode("latin-1")).timestamp()
    except (ValueError, KeyError, TypeError):
        return 0
    return max(0, int((until - since) * 1000))
