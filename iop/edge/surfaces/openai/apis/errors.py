"""A failure as OpenAI's APIs show it. Pure.

``docs/contracts/openai.md`` (Errors). Every error is ``{"error": {"message", "type", "param", "code"}}``.
"""

from __future__ import annotations

from typing import Any, Final

from iop.errors import Failure

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


def public_code(failure: Failure) -> str | None:
    """Return a failure's code as clients see it; None for none, never an empty one."""
    return _PUBLIC_CODE.get(failure.code, failure.code) or None


def error_object(failure: Failure) -> dict[str, Any]:
    """Return the error document of a failure."""
    error = {"message": failure.message, "type": failure.type, "param": failure.param, "code": public_code(failure)}
    return {"error": error}
