"""What a normalized run's events say, whatever API shows it: which text is text, and which tool calls were made. Pure.

Tool calls come from the backend (``openai_tool_calls`` of the last event) or, on a run marked
``openai_text_tool_fallback`` alone, out of the text. ``docs/contracts/openai.md`` (Normalized).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from iop import model as m
from iop.edge.surfaces.openai.tools.calls import Call, TextToolCalls
from iop.errors import Failure

LARGEST: Final = 32 << 20
"""Bytes of an answer that the edge collects (``docs/contracts/wire.md``, Flow control)."""

Schemas = Callable[[], Mapping[str, Any]]
"""The JSON Schemas of the parameters of a request's tools, by name: read when calls are looked for in a text."""

_BROKEN: Final = "the provider's adapter reported tool calls that are none"


class Reading:
    """What both shapes have in common: what of the text is text, and which tool calls were made.

    :param one_call: the client takes one call at most; a backend whose tools travel as text cannot be held to that.
    :ivar called: whether tools were called.
    """

    def __init__(self, tools: Schemas, *, one_call: bool = False) -> None:
        self._tools = tools
        self._one_call = one_call
        self._text_calls: TextToolCalls | None = None
        self.called = False

    def started(self, start: m.Start) -> None:
        """The answer begins."""
        if start.metadata.get(m.TEXT_TOOL_FALLBACK) == "true":
            self._text_calls = TextToolCalls(self._tools())

    def read(self, text: str) -> list[str | dict[str, Any]]:
        """Return what a piece of text shows: texts, and tool calls in OpenAI's shape."""
        if self._text_calls is None:
            return [text] if text else []
        return self._shown(self._text_calls.feed(text))

    def last(self, complete: m.Complete) -> tuple[list[str | dict[str, Any]], str]:
        """Return what is left to show at the end, and the finish reason; :raises Failure: for an adapter's nonsense."""
        left = self._shown(self._text_calls.end()) if self._text_calls is not None else []
        if m.TOOL_CALLS in complete.metadata:
            left += _native_calls(complete.metadata[m.TOOL_CALLS])
            self.called = True
        reason = complete.finish_reason or "stop"
        return left, "tool_calls" if self.called and reason == "stop" else reason

    def _shown(self, found: list[str | Call]) -> list[str | dict[str, Any]]:
        shown: list[str | dict[str, Any]] = []
        for each in found:
            if isinstance(each, Call):
                if self.called and self._one_call:
                    continue
                self.called = True
                shown.append(_call(f"call_{secrets.token_hex(12)}", each.name, each.arguments))
            else:
                shown.append(each)
        return shown


def size_of(delta: m.Delta) -> int:
    """Return the bytes of credit that a normalized piece has cost."""
    return len((delta.text + delta.reasoning).encode("utf-8", "surrogatepass"))


def grown(size: int, delta: m.Delta) -> int:
    """Return the size of what is collected with one more piece of it; :raises Failure: ``answer_too_large``."""
    size += size_of(delta)
    if size > LARGEST:
        raise Failure("answer_too_large", "the answer is larger than the edge may put together")
    return size


def _native_calls(text: str) -> list[str | dict[str, Any]]:
    """Read a COMPLETE's ``openai_tool_calls``."""
    try:
        calls = json.loads(text)
        return [_call(str(c["id"]), str(c["function"]["name"]), str(c["function"]["arguments"])) for c in calls]
    except (ValueError, TypeError, KeyError):
        raise Failure("upstream_error", _BROKEN) from None


def _call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
