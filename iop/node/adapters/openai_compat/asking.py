"""How a chat run asks its backend: as the settings say, then as a refusal teaches. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from iop import model as m
from iop.document import Document
from iop.errors import Failure
from iop.node.adapters import fallback
from iop.node.adapters.openai_compat import thinking
from iop.node.adapters.openai_compat.plain import plain
from iop.node.adapters.openai_compat.refusal import refuses_fields, refuses_tools

STREAMED: Final = {"stream": "true", "stream_options": '{"include_usage": true}'}
_TOOLS: Final = b'"tools"'
_TOOL_MEMBERS: Final = ("tools", "tool_choice", "parallel_tool_calls")
_MOST_TARGETS: Final = 1024


def offers_tools(body: bytes) -> bool:
    """Whether a request may have tools: false for nearly every request, and cheap."""
    return _TOOLS in body


class Lessons:
    """What a backend's refusals taught, by target, until the adapter restarts."""

    def __init__(self) -> None:
        self.no_tools: set[str] = set()
        self.no_thinking: set[str] = set()


class Asking:
    """One chat run's request, which is asked anew, in another way, after a refusal that another way can cure.

    :param tools: the adapter's setting, and so is ``plain``: messages are made strings.
    :param fields: what the backend reads of thinking; None where it reads nothing.
    :param assembles: a request without streaming is made a streaming one.
    :ivar normalized: the answer is told as text events.
    :ivar assembled: as of the last :meth:`body`, the answer to a request that did not stream is a stream.
    :ivar metadata: as of the last :meth:`body`, the mark of a run whose tools are text.
    """

    def __init__(
        self,
        request: m.RunRequest,
        lessons: Lessons,
        tools: str,
        fields: thinking.Fields | None,
        *,
        assembles: bool,
        plain: bool = False,
    ) -> None:
        self._request = request
        self._lessons = lessons
        self._tools = tools
        self._fields = fields if request.thinking != m.UNSET else None
        self._assembles = assembles
        self._plain = plain
        self._read: Document | None = None
        self._added: dict[str, str] = {}
        if request.target in lessons.no_thinking:
            self._fields = None
        remembered = tools == "auto" and request.target in lessons.no_tools
        self._as_text = (tools == "text" or remembered) and self._has_tools
        self.normalized = request.http is None or self._as_text
        self.assembled = False
        self.metadata: Mapping[str, str] = {}

    def body(self) -> bytes:
        """Return the request as it is to be sent now; :raises Failure: when it cannot be."""
        if not (self.normalized or self._assembles or self._fields or self._plain or self._tools == "off"):
            return self._request.input
        document = self._document
        changes: dict[str, str] = {}
        without: tuple[str, ...] = ()
        if self.normalized:
            n = document.get("n")
            if isinstance(n, int | float) and n > 1:
                raise Failure("invalid_value", "this model gives one choice at a time", param="n")
            changes |= STREAMED
            if self._request.http is None:
                changes["model"] = json.dumps(self._request.target)
        elif self._assembles and not document.get("stream"):
            changes |= STREAMED
            self.assembled = True
        if self._as_text or self._plain:
            document = self._rewritten(document)
        if self._tools == "off":
            without = _TOOL_MEMBERS
        if self._fields is not None:
            self._added = thinking.additions(document, self._request.thinking, self._fields)
            changes |= thinking.spliced(document, self._added)
        return document.with_raw(changes, without).encode()

    def refused(self, failure: Failure) -> bool:
        """Learn from how a request ended that nobody was told of; return whether it is worth asking anew."""
        words = refuses_fields(failure, self._added)
        if words:
            self._fields, self._added = None, {}
            self._learn(self._lessons.no_thinking, words)
            return True
        words = refuses_tools(failure) if self._tools == "auto" and not self._as_text else ""
        try:
            if not words or not self._has_tools:
                return False
        except Failure:  # no JSON: what the backend said of it is told
            return False
        self._as_text = self.normalized = True
        self.assembled = False
        self._learn(self._lessons.no_tools, words)
        return True

    def _learn(self, targets: set[str], words: str) -> None:
        # what the client wrote itself may be an echo: others must not pay for that
        if words.encode() not in self._request.input and len(targets) < _MOST_TARGETS:
            targets.add(self._request.target)

    @property
    def _document(self) -> Document:
        if self._read is None:
            self._read = Document.parse(self._request.input)
        return self._read

    @property
    def _has_tools(self) -> bool:
        return offers_tools(self._request.input) and bool(self._document.get("tools"))

    def _rewritten(self, document: Document) -> Document:
        """Return the request with tools as text, or messages as strings; what that leaves alone keeps its digits."""
        try:
            asked: dict[str, Any] = json.loads(self._request.input.decode().removeprefix("\ufeff"))
            made = fallback.rewritten(asked) if self._as_text else asked
            if self._plain:
                made = {**made, "messages": plain(made.get("messages"))}
            names = ("messages", "stop") if self._as_text else ("messages",)
            changed: dict[str, str] = {name: json.dumps(made[name]) for name in names if name in made}
        except RecursionError:
            raise Failure("invalid_json", "the request body is nested too deeply") from None
        if not self._as_text:
            return Document.of(document.with_raw(changed))
        self.metadata = fallback.MARK if fallback.describes(asked) else {}
        return Document.of(document.with_raw(changed, _TOOL_MEMBERS))
