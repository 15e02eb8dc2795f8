"""How one answer of Ollama is told to the sink of its run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from iop import model as m
from iop.document import JsonObject
from iop.errors import Failure
from iop.node.adapters.attempt import Again, Attempt, TextAttempt
from iop.node.adapters.ollama.embed import Embeddings
from iop.node.adapters.ollama.reply import Reply, refusal

MAX_EMBEDDINGS: Final = 32 << 20
"""Bytes of an answer with vectors: it is read whole."""

_JSON: Final = m.HttpResponseHead(200, (("content-type", "application/json"),))


class ChatAnswer(TextAttempt):
    """An answer in Ollama's lines."""

    __slots__ = ("_reply",)

    def __init__(self, sink: Any, reply: Reply, again: Again | None, metadata: Mapping[str, str]) -> None:
        super().__init__(sink, again, metadata)
        self._reply = reply

    def _take(self, data: bytes) -> None:
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
        else:
            self._complete(reply.finish_reason, reply.usage, reply.tool_calls)

    def _refusal(self, status: int, headers: Mapping[bytes, bytes], body: bytes) -> Failure:
        return refusal(status, headers, body)

    @property
    def _began(self) -> bool:
        return self._reply.begun

    @property
    def _all_said(self) -> bool:
        return self._reply.done

    @property
    def usage(self) -> m.Usage | None:
        return self._reply.usage


class EmbedAnswer(Attempt):
    """Vectors, told as the document that OpenAI's API has for them.

    :param asked: what is answered.
    """

    __slots__ = ("_asked",)

    def __init__(self, sink: Any, asked: JsonObject) -> None:
        super().__init__(sink, None)
        self._asked = asked

    def _take(self, data: bytes) -> None:
        self._collected += data
        if len(self._collected) > MAX_EMBEDDINGS:
            self._too_large()

    def _finish(self) -> None:
        try:
            embeddings = Embeddings(bytes(self._collected), self._asked)
        except Failure as failure:
            self._fail(failure)
            return
        self._sink.whole(_JSON, embeddings.document(), usage=embeddings.usage)
        self._close(None)

    def _refusal(self, status: int, headers: Mapping[bytes, bytes], body: bytes) -> Failure:
        return refusal(status, headers, body)

    @property
    def _all_said(self) -> bool:
        return False

    @property
    def usage(self) -> m.Usage | None:
        return None
