"""A normalized run's events as the chat API shows them: a ``chat.completion``, or its chunks. Pure.

``docs/contracts/openai.md`` (Normalized).
"""

from __future__ import annotations

from typing import Any

from iop import model as m
from iop.document import compact
from iop.edge.surfaces.openai.apis.errors import error_object
from iop.edge.surfaces.openai.apis.reading import Reading, Schemas, grown
from iop.errors import Failure
from iop.http import sse


class Chunks:
    """A stream of ``chat.completion.chunk``, each piece as bytes of server-sent events.

    :param created: seconds since 1970.
    :param usage: whether the client asked for a last chunk with the usage.
    :param one_call: whether it takes one call at most.
    """

    def __init__(
        self, id: str, created: int, model: str, tools: Schemas, *, usage: bool, one_call: bool = False
    ) -> None:
        self._reading = Reading(tools, one_call=one_call)
        self._usage = usage
        frame = {"id": id, "object": "chat.completion.chunk", "created": created, "model": model}
        self._begin = b"data: " + compact(frame)[:-1]
        self._end = (b',"usage":null' if usage else b"") + b"}\n\n"
        self._calls = 0
        self._opened = False

    def started(self, start: m.Start) -> None:
        """The answer begins."""
        self._reading.started(start)

    def delta(self, delta: m.Delta) -> bytes:
        """Return what a piece adds to the stream; nothing while it may be a part of a tool call."""
        said = [self._chunk({"reasoning_content": delta.reasoning})] if delta.reasoning else []
        said += map(self._piece, self._reading.read(delta.text))
        return self._opening(b"".join(said)) if said else b""

    @property
    def called(self) -> bool:
        """Whether tools were called."""
        return self._reading.called

    def failed(self, failure: Failure) -> bytes:
        """Return how the stream ends that broke."""
        return sse.event(error_object(failure))

    def completed(self, complete: m.Complete) -> bytes:
        """Return the rest of the stream; :raises Failure: for an adapter's nonsense."""
        left, reason = self._reading.last(complete)
        said = [*map(self._piece, left), self._chunk({}, reason)]
        if self._usage and complete.usage is not None:
            usage = b',"choices":[],"usage":' + compact(usage_object(complete.usage)) + b"}\n\n"
            said.append(self._begin + usage)
        return self._opening(b"".join(said)) + sse.DONE

    def _opening(self, said: bytes) -> bytes:
        """The role stands once, in a chunk before all others."""
        if self._opened:
            return said
        self._opened = True
        return self._chunk({"role": "assistant", "content": ""}) + said

    def _piece(self, piece: str | dict[str, Any]) -> bytes:
        if isinstance(piece, str):
            return self._chunk({"content": piece})
        self._calls += 1
        return self._chunk({"tool_calls": [{"index": self._calls - 1, **piece}]})

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return self._begin + b',"choices":[' + compact(choice) + b"]" + self._end


class Collected:
    """One ``chat.completion``, put together here; of bounded size."""

    def __init__(self, id: str, created: int, model: str, tools: Schemas, *, one_call: bool = False) -> None:
        self._reading = Reading(tools, one_call=one_call)
        self._frame = {"id": id, "object": "chat.completion", "created": created, "model": model}
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._size = 0

    def started(self, start: m.Start) -> None:
        """The answer begins."""
        self._reading.started(start)

    def delta(self, delta: m.Delta) -> bytes:
        """Keep a piece; :raises Failure: ``answer_too_large``."""
        self._size = grown(self._size, delta)
        self._reasoning.append(delta.reasoning)
        self._keep(self._reading.read(delta.text))
        return b""

    @property
    def called(self) -> bool:
        """Whether tools were called."""
        return self._reading.called

    def completed(self, complete: m.Complete) -> bytes:
        """Return the document; :raises Failure: for an adapter's nonsense."""
        left, reason = self._reading.last(complete)
        self._keep(left)
        text = "".join(self._text)
        message: dict[str, Any] = {"role": "assistant", "content": text if text or not self._calls else None}
        reasoning = "".join(self._reasoning)
        if reasoning:
            message["reasoning_content"] = reasoning
        if self._calls:
            message["tool_calls"] = self._calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        document = {**self._frame, "choices": [choice]}
        if complete.usage is not None:
            document["usage"] = usage_object(complete.usage)
        return compact(document)

    def _keep(self, pieces: list[str | dict[str, Any]]) -> None:
        for piece in pieces:
            if isinstance(piece, str):
                self._text.append(piece)
            else:
                self._calls.append(piece)


def usage_object(usage: m.Usage) -> dict[str, Any]:
    """Return a usage as the chat API shows it; what the backend did not count is 0, details only where it did."""
    prompt, answer = usage.input_tokens or 0, usage.output_tokens or 0
    made: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
    if usage.cached_input_tokens is not None:
        made["prompt_tokens_details"] = {"cached_tokens": usage.cached_input_tokens}
    if usage.reasoning_tokens is not None:
        made["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return made
