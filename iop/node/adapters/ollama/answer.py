"""One answer of Ollama, from its socket to the sink of its run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred

from iop.errors import Failure
from iop.http.client import Answer, Call
from iop.node.adapters.ollama.reply import Piece, Reply, refusal, refuses_tools

MAX_ERROR: Final = 1 << 20
"""Bytes of an error's body that are read."""

TEXT_TOOLS: Final[Mapping[str, str]] = {"openai_text_tool_fallback": "true"}
"""What marks a run whose tools travel as text."""


class ChatAnswer:
    """One run's answer; also what flow control pauses.

    :param ask: sends a body, and tells this what comes of it.
    :param in_text: gives the body whose tools are text, for when the backend refuses them; None where there are none.
    """

    def __init__(
        self, sink: Any, reply: Reply, ask: Callable[[bytes, Answer], Call], in_text: Callable[[], bytes] | None
    ) -> None:
        self._sink = sink
        self._reply = reply
        self._ask = ask
        self._in_text = in_text
        self._metadata: Mapping[str, str] = {}
        self._status = 0
        self._headers: dict[bytes, bytes] = {}
        self._refused = bytearray()
        self._started = self._paused = False
        self._call: Call | None = None
        self.done: Deferred[None] = Deferred(self._cancelled)

    def begin(self, body: bytes, metadata: Mapping[str, str]) -> None:
        """Ask. ``metadata`` says how, at the start and the end of the answer."""
        self._metadata = metadata
        self._call = self._ask(body, self)
        if self._paused:
            self._call.pause()

    # ---- flow control -------------------------------------------------------------------------------------------

    def pause(self) -> None:
        self._paused = True
        if self._call is not None:
            self._call.pause()

    def resume(self) -> None:
        self._paused = False
        if self._call is not None:
            self._call.resume()

    def _cancelled(self, _: Deferred[None]) -> None:
        if self._call is not None:
            self._call.cancel()

    # ---- iop.http.client.Answer ---------------------------------------------------------------------------------

    def head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._status = status
        self._headers = dict(headers)

    def block(self, data: bytes) -> None:
        if self.done.called:
            return
        if 200 <= self._status < 300:
            self._say(self._reply.feed(data))
            if self._reply.failure is not None:
                self._fail(self._reply.failure)
            return
        self._refused += data
        if len(self._refused) > MAX_ERROR:
            self._fail(refusal(self._status, self._headers, bytes(self._refused)))

    def ended(self) -> None:
        if self.done.called:
            return
        if 200 <= self._status < 300:
            self._finish()
        elif self._in_text is not None and refuses_tools(self._status, bytes(self._refused)):
            self._again()
        else:
            self._fail(refusal(self._status, self._headers, bytes(self._refused)))

    def failed(self, failure: Failure) -> None:
        if self.done.called:
            return
        if self._reply.done:
            self._finish()  # all was said; how the connection ended does not matter
        elif self._status and not 200 <= self._status < 300:
            self._fail(refusal(self._status, self._headers, bytes(self._refused)))
        else:
            self._fail(failure)

    # ---- towards the sink ---------------------------------------------------------------------------------------

    def _again(self) -> None:
        """Ask once more, without tools."""
        assert self._in_text is not None
        in_text, self._in_text = self._in_text, None
        self._status, self._call = 0, None
        self._refused.clear()
        try:
            self.begin(in_text(), TEXT_TOOLS)
        except Exception:
            self.done.errback()

    def _say(self, pieces: list[Piece]) -> None:
        if self._reply.begun and not self._started:
            self._started = True
            self._sink.start(None, self._metadata)
        for piece in pieces:
            self._sink.delta(text=piece.text, reasoning=piece.reasoning)

    def _finish(self) -> None:
        reply = self._reply
        self._say(reply.end())
        if self.done.called:
            return
        if reply.failure is not None:
            self._fail(reply.failure)
            return
        metadata = dict(self._metadata)
        if reply.tool_calls:
            metadata["openai_tool_calls"] = json.dumps(reply.tool_calls)
        self._sink.complete(reply.finish_reason, reply.usage, metadata)
        self._close(None)

    def _fail(self, failure: Failure) -> None:
        if self.done.called:
            return
        self._sink.fail(failure)
        self._close(self._call)

    def _close(self, call: Call | None) -> None:
        if call is not None:
            call.cancel()
        self._call = None
        if not self.done.called:
            self.done.callback(None)
