"""A normalized run's events as the Responses API shows them: a ``response``, or the stream that tells of one. Pure.

The stream's last event holds the whole response, so both put it together here, in bounded memory.
"""

from __future__ import annotations

import math
from typing import Any, Final

from iop import model as m
from iop.document import JsonObject, compact
from iop.edge.surfaces.openai.apis.errors import public_code
from iop.edge.surfaces.openai.apis.reading import Reading, grown
from iop.edge.surfaces.openai.apis.responses_output import Output
from iop.edge.surfaces.openai.apis.responses_tools import Tools
from iop.errors import Failure
from iop.http import sse

_CUT: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why an answer is incomplete, by the finish reason. Every other reason is an end."""

_ECHOED: Final[JsonObject] = {
    "frequency_penalty": 0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "temperature": 1,
    "tool_choice": "auto",
    "top_p": 1,
    "user": None,
}
"""Members of a response that repeat the request's, with what the API's manual says holds where that says nothing."""

_FIXED: Final = {
    "background": False,
    "completed_at": None,  # no clock here
    "previous_response_id": None,
    "service_tier": "default",
    "store": False,
    "top_logprobs": 0,
    "truncation": "disabled",
}
"""What every response has, whatever was asked: clients whose types are made from a schema want all of its members."""

_FUNCTION: Final = {"description": None, "parameters": None, "strict": None}


class Frame:
    """The response of one request, whatever it answers.

    :param id: without the API's prefix.
    :param created: seconds since 1970.
    :param asked: the request.
    :ivar one_call: whether it takes one tool call at most.
    """

    def __init__(self, id: str, created: int, asked: JsonObject) -> None:
        self.one_call = asked.get("parallel_tool_calls") is False
        text, reasoning = asked.get("text") or {}, asked.get("reasoning") or {}
        echo = {name: default if asked.get(name) is None else asked[name] for name, default in _ECHOED.items()}
        self._head = {"id": f"resp_{id}", "object": "response", "created_at": created, "model": asked["model"]}
        self._tail = {
            **echo,
            **_FIXED,
            "tools": [_told(tool) for tool in asked.get("tools") or ()],
            "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
            "text": {**text, "format": text.get("format") or {"type": "text"}},
        }

    def response(
        self,
        status: str,
        output: list[JsonObject],
        *,
        usage: m.Usage | None = None,
        cut: str | None = None,
        failure: Failure | None = None,
    ) -> JsonObject:
        """Return the whole object; ``cut`` is why it is incomplete."""
        return {
            **self._head,
            "status": status,
            "error": None if failure is None else _error(failure),
            "incomplete_details": None if cut is None else {"reason": cut},
            "output": output,
            "usage": None if usage is None else usage_object(usage),
            **self._tail,
        }

    def failed(self, failure: Failure, output: list[JsonObject]) -> JsonObject:
        """Return the event that ends a stream that broke, without its number."""
        return {"type": "response.failed", "response": self.response("failed", output, failure=failure)}


class _Answer:
    """What a run says, as items.

    :ivar output: the items.
    :ivar reading: what of the text is text, and which tools were called.
    """

    def __init__(self, id: str, frame: Frame, tools: Tools, *, seal: bool) -> None:
        self.output = Output(id, tools, seal=seal)
        self.reading = Reading(lambda: tools.schemas, one_call=frame.one_call)
        self._frame = frame
        self._size = 0

    def started(self, start: m.Start) -> None:
        self.reading.started(start)

    def delta(self, delta: m.Delta) -> list[JsonObject]:
        """Return the events of a piece; :raises Failure: ``answer_too_large``."""
        self._size = grown(self._size, delta)
        events = self.output.reasoning(delta.reasoning)
        for piece in self.reading.read(delta.text):
            events += self.output.piece(piece)
        return events

    def completed(self, complete: m.Complete) -> tuple[list[JsonObject], JsonObject]:
        """Return the last events of items, and the response; :raises Failure: for an adapter's nonsense."""
        left, reason = self.reading.last(complete)
        events = [event for piece in left for event in self.output.piece(piece)]
        if not events and not self.output.so_far():
            events += self.output.piece("")  # an answer without a word is a message without a word
        cut = _CUT.get(reason)
        status = "completed" if cut is None else "incomplete"
        events += self.output.close(status)
        return events, self._frame.response(status, self.output.items, usage=complete.usage, cut=cut)


class ResponsesStream:
    """A stream of events, as bytes of server-sent events.

    :param id: unique, without the API's prefix.
    :param seal: whether reasoning is wanted as ``encrypted_content`` too.
    """

    def __init__(self, id: str, frame: Frame, tools: Tools, *, seal: bool) -> None:
        self._answer = _Answer(id, frame, tools, seal=seal)
        self._frame = frame
        self._number = 0

    @property
    def called(self) -> bool:
        """Whether tools were called."""
        return self._answer.reading.called

    def started(self, start: m.Start) -> None:
        """The answer begins; nothing is said of it before it says something itself."""
        self._answer.started(start)

    def delta(self, delta: m.Delta) -> bytes:
        """Return what a piece adds to the stream; :raises Failure: ``answer_too_large``."""
        return self._said(self._answer.delta(delta))

    def completed(self, complete: m.Complete) -> bytes:
        """Return the rest of the stream; :raises Failure: for an adapter's nonsense."""
        events, response = self._answer.completed(complete)
        return self._said([*events, {"type": f"response.{response['status']}", "response": response}])

    def failed(self, failure: Failure) -> bytes:
        """Return how the stream ends that broke. An item that is open stays so: an agent takes only whole ones."""
        return self._said([self._frame.failed(failure, self._answer.output.so_far())])

    def _said(self, events: list[JsonObject]) -> bytes:
        if events and self._number == 0:
            response = self._frame.response("in_progress", [])
            opening = ("response.created", "response.in_progress")
            events = [*({"type": kind, "response": response} for kind in opening), *events]
        said = [event_bytes(event, self._number + at) for at, event in enumerate(events)]
        self._number += len(events)
        return b"".join(said)


class ResponsesDocument:
    """One ``response``, put together here; of bounded size."""

    def __init__(self, id: str, frame: Frame, tools: Tools, *, seal: bool) -> None:
        self._answer = _Answer(id, frame, tools, seal=seal)

    @property
    def called(self) -> bool:
        """Whether tools were called."""
        return self._answer.reading.called

    def started(self, start: m.Start) -> None:
        """The answer begins."""
        self._answer.started(start)

    def delta(self, delta: m.Delta) -> bytes:
        """Keep a piece; :raises Failure: ``answer_too_large``."""
        self._answer.delta(delta)
        return b""

    def completed(self, complete: m.Complete) -> bytes:
        """Return the document; :raises Failure: for an adapter's nonsense."""
        return compact(self._answer.completed(complete)[1])


def usage_object(usage: m.Usage) -> JsonObject:
    """Return a usage as this API shows it: with both details, and 0 for what the backend did not count."""
    read, written = usage.input_tokens or 0, usage.output_tokens or 0
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": usage.cached_input_tokens or 0, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": read + written,
    }


def event_bytes(event: JsonObject, number: int) -> bytes:
    """Return an event with its number; its name says its type once more."""
    return sse.event({**event, "sequence_number": number}, event["type"])


def _told(tool: Any) -> Any:
    """Return a tool of the request, which nobody may have read, as a response repeats it."""
    return {**_FUNCTION, **tool} if isinstance(tool, dict) and tool.get("type") == "function" else tool


def _error(failure: Failure) -> JsonObject:
    """Return what a response says of its failure. Agents read from the message when to come again."""
    code, message = public_code(failure) or "server_error", failure.message
    if code == "rate_limit_exceeded" and failure.retry_after_ms > 0:
        message += f" Please try again in {math.ceil(failure.retry_after_ms / 1000)}s."
    return {"code": code, "message": message}
