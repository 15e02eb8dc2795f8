"""What Ollama answers: the lines of an answer, and its refusals. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from iop import model as m
from iop.errors import Failure
from iop.node.adapters.errors import failure_in_stream, failure_of
from iop.node.adapters.pieces import Pieces

MAX_LINE: Final = 8 << 20

BUSY_MS: Final = 1000
"""When to come back to a server that is busy and does not say."""

_ENDINGS: Final[Mapping[str, str]] = {"stop": "stop", "length": "length"}
_LOADED: Final = frozenset({"load", "unload"})
_FULL: Final = "the prompt fills the model's whole context of %d tokens: the backend may have cut it"
"""Of a prompt that was too long an old server leaves so many tokens. More of them, then the context was a larger one,
as of a server that rounds it up or hands the request on; and one that fits so exactly leaves no room for an answer."""

_NOT_WHOLE: Final = "the backend's answer ended before it was whole"


class Piece(NamedTuple):
    """What one line adds to an answer."""

    text: str
    reasoning: str


class Reply:
    """One answer, line by line.

    :param fresh_id: makes the id of a tool call that has none of its own.
    :param num_ctx: the context that was asked for.
    :param empty: whether no message was asked: then the model is loaded, and that is all of the answer.
    :ivar begun: a good line came.
    :ivar done: the last one came.
    :ivar failure: what ends the answer badly; nothing after it counts.
    """

    def __init__(self, fresh_id: Callable[[], str], num_ctx: int, *, empty: bool = False) -> None:
        self._fresh_id = fresh_id
        self._num_ctx = num_ctx
        self._empty = empty
        self._carry = bytearray()
        self._content, self._thinking = Pieces(), Pieces()
        self._ids: set[str] = set()
        self.begun = self.done = False
        self.failure: Failure | None = None
        self.finish_reason = ""
        self.usage: m.Usage | None = None
        self.tool_calls: list[dict[str, Any]] = []

    def feed(self, data: bytes) -> list[Piece]:
        """Take what a read brought; return the pieces that are whole now."""
        self._carry += data
        pieces: list[Piece] = []
        if b"\n" in data:
            *lines, rest = self._carry.split(b"\n")
            self._carry = rest
            for line in lines:
                self._line(line, pieces)
        if len(self._carry) > MAX_LINE and self.failure is None:
            self.failure = Failure("upstream_error", "the backend sent a line without an end")
        return pieces

    def end(self) -> list[Piece]:
        """The body has ended; return the last piece. An answer without its last line becomes a failure."""
        pieces: list[Piece] = []
        if not self.done and object_of(self._carry) is not None:
            self._line(self._carry, pieces)
        if not self.done and self.failure is None:
            self.failure = Failure("upstream_error", _NOT_WHOLE)
        _append(pieces, self._content.end(), self._thinking.end())
        return pieces

    def _line(self, line: bytes | bytearray, pieces: list[Piece]) -> None:
        if self.done or self.failure is not None or not line.strip():
            return
        said = object_of(line)
        if said is None:
            self.failure = Failure("upstream_error", "the backend's answer is not that of an Ollama server")
            return
        if said.get("error") is not None:
            self.failure = failure_in_stream(said["error"])
            return
        message = said.get("message")
        message = message if isinstance(message, dict) else {}
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            self._call(call)
        if self.failure is not None:
            return
        self.begun = True
        text, reasoning = _text(message.get("content")), _text(message.get("thinking"))
        _append(pieces, self._content.take(text), self._thinking.take(reasoning))
        if said.get("done") is True:
            self._end(said)

    def _call(self, call: Any) -> None:
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            self.failure = Failure("upstream_error", "the backend called a function without a name")
            return
        assert isinstance(function, dict)
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
        id = call.get("id")
        while not isinstance(id, str) or not id or id in self._ids:
            id = self._fresh_id()
        self._ids.add(id)
        made = {"name": name, "arguments": arguments if arguments.strip() else "{}"}
        self.tool_calls.append({"id": id, "type": "function", "function": made})

    def _end(self, said: dict[str, Any]) -> None:
        reason = _text(said.get("done_reason"))
        finish_reason = _ENDINGS.get(reason, "")
        if self._empty and reason in _LOADED:
            finish_reason = "stop"
        if not finish_reason:  # the runner is gone, or something that nobody knows happened
            self.failure = Failure("upstream_error", _NOT_WHOLE)
            return
        self.usage = m.Usage(count_of(said.get("prompt_eval_count")), count_of(said.get("eval_count")))
        if self.usage.input_tokens == self._num_ctx:
            self.failure = Failure("context_length_exceeded", _FULL % self._num_ctx)
            return
        self.done = True
        self.finish_reason = "tool_calls" if self.tool_calls and finish_reason == "stop" else finish_reason


def _append(pieces: list[Piece], text: str, reasoning: str) -> None:
    if text or reasoning:
        pieces.append(Piece(text, reasoning))


def refusal(status: int, headers: Mapping[bytes, bytes], body: bytes) -> Failure:
    """Return the failure that an answer with a status other than 2xx stands for."""
    failure = failure_of(status, headers, body)
    if status == 404:
        if _error(body):  # this server lacks the model; another one of the pool may have it
            return Failure("model_not_found", failure.message, retryable=True)
        return Failure("upstream_error", "the backend has no native Ollama API")
    if status == 503 and not failure.retry_after_ms:
        failure.retry_after_ms = BUSY_MS
    return failure


def refuses_tools(failure: Failure) -> bool:
    """Whether a refusal says that the model knows no tools."""
    return failure.http_status == 400 and "does not support tools" in failure.message


def _error(body: bytes) -> str:
    said = object_of(body)
    return _text(said.get("error")) if said is not None else ""


def object_of(data: bytes | bytearray) -> dict[str, Any] | None:
    """Return a JSON object, None for anything else; bytes that are no UTF-8 are U+FFFD."""
    try:
        said = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


_COUNTS_END: Final = 2**53


def count_of(value: Any) -> int:
    """Return a count; Ollama leaves out those that are 0."""
    return value if type(value) is int and 0 < value < _COUNTS_END else 0
