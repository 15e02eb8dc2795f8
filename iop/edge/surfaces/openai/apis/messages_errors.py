"""What the Messages API says when something is wrong, in Anthropic's shape. Pure.

Every error is ``{"type": "error", "error": {"type", "message"}, "request_id"}``.
"""

from __future__ import annotations

from typing import Any, Final

from iop.errors import Failure
from iop.http import sse

_TYPES: Final = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""By HTTP status; any other below 500 is the client's, any other above it the server's."""

_OVERFLOW: Final = "prompt is too long"
"""The words by which clients of this API see that a conversation must be made shorter: there is no code to tell."""


def error_document(failure: Failure, request_id: str = "") -> dict[str, Any]:
    """Return the error document of a failure; it stands for itself, whatever was read of a request.

    :param request_id: "" for none, as in a stream, whose head has it.
    """
    status, message = failure.http_status, failure.message
    if failure.code == "context_length_exceeded" and _OVERFLOW not in message.lower():
        message = f"{_OVERFLOW}: {message}"
    type = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": type, "message": message}, "request_id": request_id or None}


def error_event(failure: Failure, request_id: str = "") -> bytes:
    """Return the event that ends a stream which broke; the SDKs raise it by its name."""
    return sse.event(error_document(failure, request_id), "error")


def unsupported(param: str, why: str) -> Failure:
    """Return what refuses a request for something that only Anthropic's own servers do."""
    return Failure("unsupported_parameter", f"`{param}`: {why}", param=param)
