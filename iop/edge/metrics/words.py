"""From what a record says to the few words that labels may have. Pure."""

from __future__ import annotations

from typing import Final

UNKNOWN: Final = "_unknown"
"""The model of a request that named none, or none that is configured."""

OTHER: Final = "_other"
"""Models and nodes beyond the first so many."""

OPERATIONS: Final = frozenset(
    ["chat", "completion", "embedding", "responses", "messages", "count_tokens", "passthrough", "models"]
)

OUTCOMES: Final[dict[str, frozenset[str]]] = {
    "ok": frozenset({"complete"}),
    "client_error": frozenset(
        {
            "invalid_json",
            "invalid_value",
            "invalid_request",
            "context_length_exceeded",
            "workspace_invalid",
            "model_not_found",
            "unknown_url",
            "unsupported_parameter",
            "method_not_allowed",
            "request_timeout",
            "session_busy",
            "session_gone",
            "request_too_large",
            "unsupported_media_type",
            "expectation_failed",
            "head_too_large",
            "version_not_supported",
        }
    ),
    "auth_error": frozenset({"invalid_api_key", "provider_token_missing", "origin_not_allowed", "host_not_allowed"}),
    "rate_limited": frozenset({"rate_limited"}),
    "overloaded": frozenset(
        {"queue_full", "queue_timeout", "no_provider", "long_context_unavailable", "draining", "upstream_busy"}
    ),
    "upstream_error": frozenset(
        {
            "upstream_connect",
            "upstream_error",
            "upstream_auth",
            "node_lost",
            "adapter_unavailable",
            "answer_too_large",
        }
    ),
    "timeout": frozenset({"upstream_timeout", "deadline_exceeded"}),
    "cancelled": frozenset({"cancelled"}),
    "internal": frozenset({"internal", "duplicate_run", "protocol_error"}),
}
"""Which outcomes of records are which outcome of metrics; every code of :data:`iop.errors.KINDS` is in one."""

_OUTCOME_OF: Final = {outcome: word for word, outcomes in OUTCOMES.items() for outcome in outcomes}

_OUTCOME_OF_STATUS: Final = {408: "timeout", 429: "rate_limited", 499: "cancelled", 503: "overloaded", 504: "timeout"}

REJECTIONS: Final = {
    "queue_full": "queue_full",
    "queue_timeout": "queue_timeout",
    "no_provider": "no_node",
    "long_context_unavailable": "too_large",
    "context_length_exceeded": "too_large",
    "request_too_large": "too_large",
    "draining": "draining",
}
"""Why a request that was sent to nobody was refused."""

RETRIES: Final = {
    "upstream_connect": "connect",
    "node_lost": "node_lost",
    "upstream_busy": "backend_503",
    "rate_limited": "rate_limited",
    "session_busy": "session_busy",
    "adapter_unavailable": "adapter",
}
"""Why a run was sent elsewhere; ``other`` for what a node said may be tried again."""

AUTH: Final = {
    "invalid_api_key": "invalid_token",
    "provider_token_missing": "provider_token_missing",
    "origin_not_allowed": "origin",
    "host_not_allowed": "host",
}

RELOADS: Final = ("applied", "restart_required", "rejected")
"""How a refresh ends: the values of :class:`iop.edge.refresh.model.Status`."""

FALLBACKS: Final = frozenset({"parsed", "plain_text"})

SURFACES: Final = frozenset({"openai", "a2a"})


def outcome_of(outcome: str, status: int = 0) -> str:
    """Return the metric's word for a record's outcome: a key of :data:`OUTCOMES`.

    :param status: of the answer, which tells about an outcome that is a backend's own code.
    """
    word = _OUTCOME_OF.get(outcome)
    if word is not None:
        return word
    if outcome.isascii() and outcome.isdigit():  # a backend that gave no code
        status = int(outcome[:4])
    word = _OUTCOME_OF_STATUS.get(status)
    if word is not None:
        return word
    return "client_error" if 400 <= status < 500 else "upstream_error"


def operation_of(operation: str) -> str:
    """Return the label of a record's operation; ``other`` for a request without a route."""
    return operation if operation in OPERATIONS else "other"


class Capped:
    """The first so many names as they are, all others under :data:`OTHER`.

    A name that came early keeps its place as long as the process lives: a counter must not change its name.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._labels: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        """Return the label of a configured name."""
        label = self._labels.get(name)
        if label is None:
            if len(self._labels) >= self._most:
                return OTHER
            label = self._labels[name] = name
        return label
