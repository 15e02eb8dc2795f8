"""The access log: one line a request, once it is over. ``docs/contracts/openai.md`` (Access log).

Never a prompt, an answer, a token or an address. What a client or a backend made up is cut, and cannot end the line
or pass for another field of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from twisted.logger import LogEvent, LogLevel, globalLogPublisher
from zope.interface import implementer

from iop.edge.record import Attempt, Record
from iop.errors import printable
from iop.interfaces import IRecorder

LONGEST_NAME: Final = 200
"""Characters that are kept of a model."""

LONGEST_OUTCOME: Final = 64
"""The same of an outcome, which may be a backend's own code."""

_COUNTS: Final = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
"""A :class:`~iop.model.Usage`'s, as fields."""

_NAMESPACE: Final = f"{__name__}.AccessLog"


@implementer(IRecorder)
class AccessLog:
    """Writes a line for each request: of the edge's own failures (5xx) a warning, of probes for debugging only.

    :param publish: takes the event of a line.
    """

    def __init__(self, publish: Callable[[LogEvent], Any] = globalLogPublisher) -> None:
        self._publish = publish

    def record(self, record: Record) -> None:
        """Write its line, or its fields (:mod:`iop.logs`).

        The event is made here: a ``Logger`` that puts so many fields into a format would take ten times as long.
        """
        self._publish(
            {
                "log_level": level_of(record),
                "log_namespace": _NAMESPACE,
                "log_time": record.at,
                "log_format": "{log_text}",
                "log_text": line_of(record),
                "log_fields": fields_of(record),
            }
        )


def level_of(record: Record) -> Any:
    """Return how much a request matters to whoever reads the log."""
    if record.operation == "health":
        return LogLevel.debug
    return LogLevel.warn if record.status >= 500 else LogLevel.info


def fields_of(record: Record) -> dict[str, Any]:
    """Return what is told of a request, by name; what there is nothing to say of is left out."""
    fields: dict[str, Any] = {}
    if record.operation:
        fields["operation"] = record.operation
    fields["status"] = record.status
    if record.outcome:
        fields["outcome"] = printable(record.outcome[:LONGEST_OUTCOME])
    if record.model:
        fields["model"] = printable(record.model[:LONGEST_NAME])
    if record.provider:
        fields["provider"] = record.provider
    if record.node:
        fields["node"] = record.node
    if record.token_ref:
        fields["token_ref"] = record.token_ref
    if record.run_id:
        fields["run"] = record.run_id
    if record.request_id:
        fields["request"] = record.request_id
    if record.stream:
        fields["stream"] = True
    if record.run_id:
        fields["queue_ms"] = record.queue_ms
    if record.first_ms is not None:
        fields["first_ms"] = record.first_ms
    fields["total_ms"] = record.total_ms
    fields |= {name: count for name, count in zip(_COUNTS, record.usage, strict=True) if count is not None}
    if record.estimated:
        fields["estimated"] = True
    if len(record.attempts) > 1:
        fields["attempts"] = ",".join(map(_attempt, record.attempts))
    return fields


def _attempt(attempt: Attempt) -> str:
    return f"{attempt.node}/{attempt.provider}:{printable(attempt.outcome[:LONGEST_OUTCOME])}"


def line_of(record: Record) -> str:
    """Return the line that tells of a request."""
    outcome, usage = _word(record.outcome[:LONGEST_OUTCOME]) or "-", record.usage
    line = f"{record.operation or '-'} {record.status} {outcome}"
    if record.model:
        line += " model=" + _word(record.model[:LONGEST_NAME])
    if record.provider:
        line += " provider=" + _word(record.provider)
    if record.node:
        line += " node=" + _word(record.node)
    if record.token_ref:
        line += " token_ref=" + _word(record.token_ref)
    if record.run_id:
        line += " run=" + record.run_id
    if record.request_id:
        line += " request=" + _quoted(record.request_id)
    if record.run_id:
        line += f" queue_ms={record.queue_ms}"
    if record.first_ms is not None:
        line += f" first_ms={record.first_ms}"
    line += f" total_ms={record.total_ms}"
    if record.stream:
        line += " stream"
    if usage.input_tokens is not None or usage.output_tokens is not None:
        tilde = "~" if record.estimated else ""
        taken = _tokens(tilde, usage.input_tokens, usage.cached_input_tokens, "cached")
        given = _tokens(tilde, usage.output_tokens, usage.reasoning_tokens, "reasoning")
        line += f" tokens={taken}/{given}"
    if len(record.attempts) > 1:
        line += " attempts=" + _quoted(",".join(map(_attempt, record.attempts)))
    return line


@lru_cache(1024)  # few names, again and again
def _word(text: str) -> str:
    return _quoted(printable(text))


def _quoted(text: str) -> str:
    """A field as one word: in quotes where it could be taken for more than one."""
    return repr(text) if " " in text or "=" in text or '"' in text or "'" in text else text


def _tokens(tilde: str, all: int | None, of_them: int | None, word: str) -> str:
    """So many, so many of them cached or thought; ``~`` before a guess, ``-`` for nobody knows."""
    if all is None:
        return "-"
    return f"{tilde}{all}({of_them} {word})" if of_them else f"{tilde}{all}"
