"""Every failure that crosses a package border: a stable code, an HTTP status, whether a retry can help.

The codes are the contract of ``docs/contracts/openai.md`` (Errors) and ``docs/contracts/wire.md`` (Runs). A
surface translates a :class:`Failure` once, into its own shape; nothing below a surface knows such a shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Kind:
    """What one code means to everybody who meets it.

    ``retryable``: the same run may be sent to another provider, as long as its client got no byte. ``answered``: a run
    that failed so has shown that its backend can be connected to. ``hopeless``: the same request will fail again,
    though its status says otherwise to a client that repeats what fails.
    """

    http_status: int
    type: str = "server_error"
    retryable: bool = False
    answered: bool = True
    hopeless: bool = False


_REQUEST: Final = "invalid_request_error"

KINDS: Final[dict[str, Kind]] = {
    # the client's request
    "invalid_json": Kind(400, _REQUEST),
    "invalid_value": Kind(400, _REQUEST),
    "invalid_request": Kind(400, _REQUEST),
    "unsupported_parameter": Kind(400, _REQUEST),
    "context_length_exceeded": Kind(400, _REQUEST),
    "workspace_invalid": Kind(400, _REQUEST, answered=False),
    "invalid_api_key": Kind(401, _REQUEST),
    "provider_token_missing": Kind(401, _REQUEST),
    "origin_not_allowed": Kind(403, "permission_error"),
    "host_not_allowed": Kind(403, "permission_error"),
    "model_not_found": Kind(404, _REQUEST),
    "unknown_url": Kind(404, _REQUEST),
    "method_not_allowed": Kind(405, _REQUEST),
    "request_timeout": Kind(408, _REQUEST),
    "session_busy": Kind(409, _REQUEST, retryable=True, answered=False),
    "session_gone": Kind(410, _REQUEST, answered=False),
    "request_too_large": Kind(413, _REQUEST),
    "unsupported_media_type": Kind(415, _REQUEST),
    "expectation_failed": Kind(417, _REQUEST),
    "head_too_large": Kind(431, _REQUEST),
    "version_not_supported": Kind(505, _REQUEST),
    # the pool
    "queue_full": Kind(429, "rate_limit_error"),
    "queue_timeout": Kind(503),
    "no_provider": Kind(503),
    "long_context_unavailable": Kind(503, hopeless=True),
    "draining": Kind(503),
    # the run
    "upstream_connect": Kind(502, retryable=True, answered=False),
    "upstream_busy": Kind(503, retryable=True, answered=False),
    "upstream_error": Kind(502),
    "upstream_timeout": Kind(504, answered=False),
    "upstream_auth": Kind(401, _REQUEST),
    "rate_limited": Kind(429, "rate_limit_error", retryable=True),
    "node_lost": Kind(502, retryable=True, answered=False),
    "adapter_unavailable": Kind(502, retryable=True, answered=False),
    "duplicate_run": Kind(502, answered=False),
    "protocol_error": Kind(502, answered=False),
    "answer_too_large": Kind(502, answered=False, hopeless=True),
    "deadline_exceeded": Kind(504, answered=False),
    "cancelled": Kind(502, answered=False),
    "internal": Kind(500, answered=False),
}


class Failure(Exception):
    """A failure with a code from :data:`KINDS`, said in a sentence that is fit for a client's eyes.

    :param code: a key of :data:`KINDS`.
    :param message: one sentence; no address, no secret, no traceback.
    :param http_status: overrides the code's own, where a backend chose a more exact one.
    :param type: overrides the code's own ``type`` word of the OpenAI error object.
    :param param: the request member at fault, as in ``messages[0].content``.
    :param retry_after_ms: when another attempt makes sense; 0 when nobody knows.
    :param headers: a backend's own, that its client is told with it: its rate limits.
    :ivar hopeless: whether a client is told not to try again.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        http_status: int = 0,
        type: str = "",
        param: str | None = None,
        retryable: bool | None = None,
        retry_after_ms: int = 0,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        kind = KINDS.get(code, KINDS["internal"])
        self.code = code
        self.message = message
        self.http_status = http_status or kind.http_status
        self.type = type or kind.type
        self.param = param
        self.retryable = kind.retryable if retryable is None else retryable
        self.retry_after_ms = retry_after_ms
        self.headers = headers
        self.hopeless = kind.hopeless or self.http_status == 501  # what a backend does not have, it will not have

    @property
    def answered(self) -> bool:
        """Whether the backend has answered; also with a code of its own."""
        return code_kind.answered if (code_kind := KINDS.get(self.code)) is not None else True

    def __repr__(self) -> str:
        return f"Failure({self.code!r}, {self.message!r}, http_status={self.http_status})"


def printable(words: str) -> str:
    """Somebody else's words, fit for a line of a log or a terminal: whatever moves a cursor is a question mark."""
    if words.isprintable():
        return words
    return "".join(character if character.isprintable() else "?" for character in words)
