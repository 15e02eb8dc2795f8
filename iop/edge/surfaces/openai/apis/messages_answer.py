"""A normalized run's events as the Messages API shows them: a message, or the events of one. Pure.

Blocks stand one behind the other: thinking, text, calls, in the order in which they were said. White space that would
be a whole block is left out: not every server of this API takes such a block back. ``docs/contracts/openai.md``
(Messages).
"""

from __future__ import annotations

import json
import secrets
from typing import Any, Final

from iop import model as m
from iop.document import compact
from iop.edge.surfaces.openai.apis.reading import Reading, Schemas, grown
from iop.http import sse

SIGNATURE: Final = "iop"
"""Of every thinking block: clients want one and send it back, and here it says nothing."""

NO_OBJECT: Final = "not_a_json_object"
"""Under this name a client gets arguments that are no object: nothing that a model wrote is lost."""

_LONGEST_BLANK: Final = 32
"""White space that waits for what follows it: a model that writes nothing else must be seen to do so."""

_UNUSED: Final = dict.fromkeys(("cache_creation", "inference_geo", "server_tool_use", "service_tier"))
"""Of a usage: what says something of Anthropic's own servers only."""

_STOP_REASONS: Final = {
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
"""Any other is the end of a turn."""

_PING: Final = sse.event({"type": "ping"}, "ping")

_Piece = tuple[str, Any]
"""A kind of block, and what is added to it: text and thinking grow, a call in OpenAI's shape is whole."""


class _Said:
    """What a run says, piece by piece, in the order of blocks.

    :ivar called: whether tools were called.
    """

    def __init__(self, tools: Schemas, *, one_call: bool) -> None:
        self._reading = Reading(tools, one_call=one_call)
        self._kind = ""
        self._blank = ""
        self._shown = False
        self.called = False

    def started(self, start: m.Start) -> None:
        self._reading.started(start)

    def delta(self, delta: m.Delta) -> list[_Piece]:
        thought = self._say("thinking", delta.reasoning) if delta.reasoning else []
        return thought + self._read(self._reading.read(delta.text))

    def last(self, complete: m.Complete) -> tuple[list[_Piece], str]:
        """Return what is left, and the reason why the answer ends there."""
        left, reason = self._reading.last(complete)
        pieces = self._read(left)
        stopped = _STOP_REASONS.get(reason, "end_turn")
        return pieces, "end_turn" if stopped == "tool_use" and not self.called else stopped

    def _read(self, found: list[str | dict[str, Any]]) -> list[_Piece]:
        pieces: list[_Piece] = []
        for each in found:
            if isinstance(each, str):
                pieces += self._say("text", each)
            else:
                self._kind, self._blank, self.called = "tool_use", "", True
                pieces.append(("tool_use", each))
        return pieces

    def _say(self, kind: str, text: str) -> list[_Piece]:
        if kind != self._kind:
            self._kind, self._blank, self._shown = kind, "", False
        if not self._shown:
            text = self._blank + text
            if len(text) <= _LONGEST_BLANK and not text.strip():
                self._blank = text
                return []
            self._blank, self._shown = "", True
        return [(kind, text)]


class MessagesStream:
    """A message as it is written, each piece as bytes of server-sent events.

    :param tools: their inputs' JSON Schemas, by name.
    :param one_call: whether the client takes one call at most.
    """

    def __init__(self, id: str, model: str, tools: Schemas, *, one_call: bool = False) -> None:
        self._said = _Said(tools, one_call=one_call)
        self._message = _message(id, model, [], None, usage_object(None))
        self._opened = False
        self._block = ""
        self._index = 0

    @property
    def called(self) -> bool:
        """Whether tools were called."""
        return self._said.called

    def started(self, start: m.Start) -> None:
        """The answer begins."""
        self._said.started(start)

    def delta(self, delta: m.Delta) -> bytes:
        """Return what a piece adds to the stream; nothing while it may be a part of a tool call."""
        return self._opening([part for piece in self._said.delta(delta) for part in self._piece(*piece)])

    def completed(self, complete: m.Complete) -> bytes:
        """Return the rest of the stream; :raises Failure: for an adapter's nonsense."""
        left, reason = self._said.last(complete)
        events = [part for piece in left for part in self._piece(*piece)]
        events += [
            *self._close(),
            _event("message_delta", delta={**_ending(reason), "container": None}, usage=usage_object(complete.usage)),
            _event("message_stop"),
        ]
        return self._opening(events)

    def _opening(self, events: list[bytes]) -> bytes:
        """The message begins with its first event: until then another provider may be asked."""
        if events and not self._opened:
            self._opened = True
            events = [_event("message_start", message=self._message), _PING, *events]
        return b"".join(events)

    def _piece(self, kind: str, what: Any) -> list[bytes]:
        if kind == "tool_use":
            made = _tool_use(what)
            input = compact(made.pop("input")).decode()
            begin = self._open(kind, {**made, "input": {}})
            return [*begin, self._add({"type": "input_json_delta", "partial_json": input}), *self._close()]
        begin = []
        if kind != self._block:
            begin = self._open(kind, _thinking("", "") if kind == "thinking" else _text(""))
        return [*begin, self._add({"type": f"{kind}_delta", kind: what})]

    def _open(self, kind: str, block: dict[str, Any]) -> list[bytes]:
        before = self._close()
        self._block = kind
        return [*before, _event("content_block_start", index=self._index, content_block=block)]

    def _add(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> list[bytes]:
        kind, self._block = self._block, ""
        if not kind:
            return []
        signed = [self._add({"type": "signature_delta", "signature": SIGNATURE})] if kind == "thinking" else []
        stop = _event("content_block_stop", index=self._index)
        self._index += 1
        return [*signed, stop]


class MessagesDocument:
    """One message, put together here; of bounded size.

    :param tools: their inputs' JSON Schemas, by name.
    :param one_call: whether the client takes one call at most.
    """

    def __init__(self, id: str, model: str, tools: Schemas, *, one_call: bool = False) -> None:
        self._said = _Said(tools, one_call=one_call)
        self._id = id
        self._model = model
        self._pieces: list[_Piece] = []
        self._size = 0

    @property
    def called(self) -> bool:
        """Whether tools were called."""
        return self._said.called

    def started(self, start: m.Start) -> None:
        """The answer begins."""
        self._said.started(start)

    def delta(self, delta: m.Delta) -> bytes:
        """Keep a piece; :raises Failure: ``answer_too_large``."""
        self._size = grown(self._size, delta)
        self._pieces += self._said.delta(delta)
        return b""

    def completed(self, complete: m.Complete) -> bytes:
        """Return the document; :raises Failure: for an adapter's nonsense."""
        left, reason = self._said.last(complete)
        content = _content(self._pieces + left)
        message = _message(self._id, self._model, content, reason, usage_object(complete.usage))
        return compact(message)


def usage_object(usage: m.Usage | None) -> dict[str, Any]:
    """Return a usage as this API shows it: what came out of a cache is no input; what nobody counted is 0."""
    input, output, cached, thinking = usage or m.Usage()
    made: dict[str, Any] = {
        "input_tokens": max(0, (input or 0) - (cached or 0)),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached or 0,
        "output_tokens": output or 0,
        "output_tokens_details": None if thinking is None else {"thinking_tokens": thinking},
        **_UNUSED,
    }
    return made


def _message(
    id: str, model: str, content: list[dict[str, Any]], reason: str | None, usage: dict[str, Any]
) -> dict[str, Any]:
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        **_ending(reason),
        "container": None,
        "usage": usage,
    }


def _ending(reason: str | None) -> dict[str, Any]:
    return {"stop_reason": reason, "stop_sequence": None, "stop_details": None}


def _content(pieces: list[_Piece]) -> list[dict[str, Any]]:
    """Return the blocks that pieces make."""
    content: list[dict[str, Any]] = []
    at = 0
    while at < len(pieces):
        kind, what = pieces[at]
        end = at + 1
        if kind == "tool_use":
            content.append(_tool_use(what))
        else:
            while end < len(pieces) and pieces[end][0] == kind:
                end += 1
            text = "".join(what for _, what in pieces[at:end])
            content.append(_thinking(text, SIGNATURE) if kind == "thinking" else _text(text))
        at = end
    return content


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "citations": None}


def _thinking(text: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature}


def _tool_use(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call in OpenAI's shape as a block. It keeps its id: the backend gets it back with the result."""
    function = call["function"]
    id = call["id"] or f"toolu_{secrets.token_hex(12)}"
    input = _input(function["arguments"])
    return {"type": "tool_use", "id": id, "name": function["name"], "input": input, "caller": {"type": "direct"}}


def _input(arguments: str) -> dict[str, Any]:
    """Return a call's arguments as the object that they must be here."""
    if not arguments.strip():
        return {}
    try:
        input = json.loads(arguments)
        json.dumps(input, allow_nan=False)  # what cannot be said again is none: NaN, a number too large, a deep nest
    except (ValueError, RecursionError):
        return {NO_OBJECT: arguments}
    if input is None:
        return {}
    return input if isinstance(input, dict) else {NO_OBJECT: arguments}


def _event(type: str, **members: Any) -> bytes:
    return sse.event({"type": type, **members}, type)
