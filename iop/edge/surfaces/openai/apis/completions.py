"""The older completions API: a prompt that goes on. Pure. ``docs/contracts/openai.md`` (Endpoints)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from iop import model as m
from iop.document import Document, compact
from iop.edge.surfaces.openai.apis.chat_answer import usage_object
from iop.edge.surfaces.openai.apis.errors import error_object
from iop.edge.surfaces.openai.apis.members import (
    model_of,
    plain,
    read,
    spliced,
    streams,
    texts_in,
    wants_usage,
    with_usage,
    wrong,
)
from iop.edge.surfaces.openai.apis.reading import grown
from iop.errors import Failure
from iop.http import sse

_ALSO_OF_CHAT: Final = (
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "stop",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "user",
    "metadata",
    "reasoning_effort",
)


class CompletionRequest(NamedTuple):
    """What the edge needs to know of a completion request; see :class:`.shape.Request`."""

    body: bytes
    document: Document
    model: str
    stream: bool
    include_usage: bool

    @classmethod
    def parse(cls, body: bytes) -> CompletionRequest:
        """Read it; :raises Failure: ``invalid_json``, ``invalid_value``."""
        body, document = read(body)
        model, stream = model_of(document), streams(document)
        if not texts_in(document.get("prompt")):
            raise wrong(document, "prompt", "a string, a list of strings, or token ids")
        return cls(body, document, model, stream, wants_usage(document) and stream)

    @property
    def strips_usage(self) -> bool:
        """Whether the client is not to see the usage that is asked for all the same."""
        return self.stream and not self.include_usage

    @property
    def prompt(self) -> str | None:
        """The only prompt, where it is one text: what a chat can be made of."""
        prompt = self.document.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1:
            prompt = prompt[0]
        return prompt if isinstance(prompt, str) else None

    @property
    def only_native(self) -> bool:
        """Whether none but a backend with this API can answer it."""
        get = self.document.get
        many = get("n") not in (None, 1) or get("best_of") not in (None, 1)
        return self.prompt is None or many or get("logprobs") is not None or bool(get("echo") or get("suffix"))

    def native(self, target: str, changes: Mapping[str, str]) -> bytes:
        """Return the body for a backend, the prompt as it was written."""
        usage = {"stream_options": with_usage(self.document)} if self.strips_usage else {}
        return spliced(self, target, {**changes, **usage})

    def chat(self) -> dict[str, Any]:
        """Return the prompt as the one message of a user."""
        said = plain(self.body)
        kept = {name: said[name] for name in _ALSO_OF_CHAT if said.get(name) is not None}
        return {"model": self.model, "messages": [{"role": "user", "content": self.prompt}], **kept}

    def building(self, id: str, created: int) -> TextChunks | TextCollected:
        """Return what makes the answer out of events."""
        frame = {"id": f"cmpl-{id}", "object": "text_completion", "created": created, "model": self.model}
        return TextChunks(frame, usage=self.include_usage) if self.stream else TextCollected(frame)

    def error(self, failure: Failure, request_id: str) -> dict[str, Any]:
        """Return the document of a failure."""
        return error_object(failure)

    def broken(self, failure: Failure, request_id: str) -> bytes:
        """Return the last event of a stream that broke."""
        return sse.event(error_object(failure))


class TextChunks:
    """A stream of text completions; reasoning is no part of a text that goes on, and left out."""

    called = False

    def __init__(self, frame: dict[str, Any], *, usage: bool) -> None:
        self._begin = b"data: " + compact(frame)[:-1]
        self._end = (b',"usage":null' if usage else b"") + b"}\n\n"
        self._usage = usage

    def started(self, start: m.Start) -> None:
        """The answer begins."""

    def delta(self, delta: m.Delta) -> bytes:
        """Return what a piece adds."""
        return self._chunk(delta.text, None) if delta.text else b""

    def completed(self, complete: m.Complete) -> bytes:
        """Return the rest of the stream."""
        said = self._chunk("", _reason(complete))
        if self._usage and complete.usage is not None:
            said += self._begin + b',"choices":[],"usage":' + compact(usage_object(complete.usage)) + b"}\n\n"
        return said + sse.DONE

    def failed(self, failure: Failure) -> bytes:
        """Return how the stream ends that broke."""
        return sse.event(error_object(failure))

    def _chunk(self, text: str, reason: str | None) -> bytes:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        return self._begin + b',"choices":[' + compact(choice) + b"]" + self._end


class TextCollected:
    """One text completion, put together here; of bounded size."""

    called = False

    def __init__(self, frame: dict[str, Any]) -> None:
        self._frame = frame
        self._text: list[str] = []
        self._size = 0

    def started(self, start: m.Start) -> None:
        """The answer begins."""

    def delta(self, delta: m.Delta) -> bytes:
        """Keep a piece; :raises Failure: ``answer_too_large``."""
        self._size = grown(self._size, delta)
        self._text.append(delta.text)
        return b""

    def completed(self, complete: m.Complete) -> bytes:
        """Return the document."""
        choice = {"index": 0, "text": "".join(self._text), "logprobs": None, "finish_reason": _reason(complete)}
        document = {**self._frame, "choices": [choice]}
        if complete.usage is not None:
            document["usage"] = usage_object(complete.usage)
        return compact(document)


def _reason(complete: m.Complete) -> str:
    """There are no calls of tools here."""
    return "stop" if complete.finish_reason in ("", "tool_calls") else complete.finish_reason
