"""How one answer of Ollama is told to the sink of its run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from iop import model as m
from iop.errors import Failure
from iop.node.adapters.attempt import Again, Attempt
from iop.node.adapters.ollama.reply import Piece, Reply, refusal


class ChatAnswer(Attempt):
    """An answer that is told as text, reasoning and tool calls.

    :param metadata: goes with its start and its end.
    """

    __slots__ = ("_metadata", "_reply")

    def __init__(self, sink: Any, reply: Reply, again: Again | None, metadata: Mapping[str, str]) -> None:
        super().__init__(sink, again)
        self._reply = reply
        self._metadata = metadata

    # ---- Attempt

    def block(self, data: bytes) -> None:
        if self.done.called:
            return
        if not 200 <= self._status < 300:
            self._take_error(data)
            return
        self._say(self._reply.feed(data))
        if self.done.called:
            return
        if self._reply.failure is not None:
            self._fail(self._reply.failure)
        elif self._reply.done:  # all was said: how long the connection takes to end is nobody's business
            self._finish()

    def _finish(self) -> None:
        reply = self._reply
        self._say(reply.end())
        if self.done.called:
            return
        if reply.failure is not None:
            self._fail(reply.failure)
            return
        calls = {m.TOOL_CALLS: json.dumps(reply.tool_calls)} if reply.tool_calls else {}
        self._sink.complete(reply.finish_reason, reply.usage, {**self._metadata, **calls})
        self._close(None)

    def _refusal(self, status: int, headers: Mapping[bytes, bytes], body: bytes) -> Failure:
        return refusal(status, headers, body)

    @property
    def _all_said(self) -> bool:
        return self._reply.done

    @property
    def _usage(self) -> m.Usage | None:
        return self._reply.usage

    # ---- towards the sink

    def _say(self, pieces: list[Piece]) -> None:
        if self._reply.begun and not self._started and not self.done.called:
            self._started = True
            self._sink.start(None, self._metadata)
        for text, reasoning in pieces:
            if not self.done.called:
                self._sink.delta(text=text, reasoning=reasoning)
