"""How a backend's good answer is told to the sink of its run: as the bytes it is, or as text events."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from iop import model as m
from iop.errors import Failure
from iop.headers import DROPPED
from iop.node.adapters.attempt import Again, Attempt, TextAttempt
from iop.node.adapters.openai_compat.assemble import Assembly
from iop.node.adapters.openai_compat.normalize import Reader
from iop.node.adapters.openai_compat.watch import Stream, Whole, stream_of

MAX_COLLECTED: Final = 32 << 20
"""Bytes of an answer that is put together here."""

MAX_UNFRAMED: Final = 1 << 20
"""Bytes of a document that ends with its connection that wait for that end, so that a cut one is noticed."""

_MEDIA: Final = (b"audio/", b"video/", b"image/", b"application/octet-stream")
"""Kinds of content that go on as they come: who listens does not wait for the next read."""

_DOCUMENT: Final = re.compile(rb"[ \t\r\n]*(?:\{|\Z)")
_DROPPED: Final = frozenset(name.encode() for name in DROPPED)


class PassingAnswer(Attempt):
    """An answer that goes on as bytes; from ``assembly``, as the document that a stream is put together into.

    :param path: what was asked, which says how a stream of it ends.
    """

    __slots__ = ("_assembly", "_head", "_media", "_path", "_size", "_streaming", "_strip", "_watch")

    def __init__(
        self,
        sink: Any,
        assembly: Assembly | None = None,
        *,
        path: str = m.CHAT,
        strip_usage: bool,
        again: Again | None = None,
    ) -> None:
        super().__init__(sink, again)
        self._assembly = assembly
        self._path = path
        self._strip = strip_usage
        self._head = m.HttpResponseHead(200)
        self._watch: Stream | Whole = Whole()
        self._size = 0
        self._streaming = self._media = False

    # ---- Attempt

    def _headed(self, headers: list[tuple[bytes, bytes]]) -> None:
        kept, kind, named = [], b"", b""
        for name, value in headers:
            if name == b"content-type":
                kind = value
            elif name == b"connection":
                named += b"," + value.lower()
            if name not in _DROPPED and not name.startswith(b"access-control-"):
                kept.append((name.decode("latin-1"), value.decode("latin-1")))
        if named:
            hops = {name.strip().decode("latin-1") for name in named.split(b",")}
            kept = [header for header in kept if header[0] not in hops]
        self._head = m.HttpResponseHead(self._status, tuple(kept))
        self._media = kind.lower().startswith(_MEDIA)
        if kind[:17].lower() == b"text/event-stream":
            self._watch = stream_of(self._path, strip_usage=self._strip and self._assembly is None)
            self._streaming = self._assembly is None

    def _take(self, data: bytes) -> None:
        data = self._watch.feed(data)
        if not (self._started and self._streaming):
            self._pass(data)
        elif data:  # nearly always
            self._sink.delta(data)
        if self._watch.failure is not None:
            self._fail(self._watch.failure)

    @property
    def _all_said(self) -> bool:
        return isinstance(self._watch, Stream) and self._watch.done

    @property
    def usage(self) -> m.Usage | None:
        return self._watch.usage

    # ---- towards the sink

    def _pass(self, data: bytes) -> None:
        if not data:
            return
        if self._streaming or self._media:
            self._say(data)
            return
        if self._assembly is not None and isinstance(self._watch, Stream):
            self._size += len(data)
            self._watch.failure = self._watch.failure or self._assembly.feed(data)
            if self._size > MAX_COLLECTED:
                self._too_large()
            return
        if self._collected and (self._started or not self._may_be_cut()):  # a long document begins before its end
            self._say(bytes(self._collected))
            self._collected.clear()
        self._collected += data

    def _may_be_cut(self) -> bool:
        """Whether what is collected is JSON whose end HTTP does not tell, and short enough to wait for it."""
        unframed = self.call is not None and not self.call.framed
        return unframed and len(self._collected) <= MAX_UNFRAMED and bytes(self._collected[:1]) in (b"{", b"[")

    def _say(self, data: bytes) -> None:
        if not self._started:
            self._started = True
            self._sink.start(self._head)
        self._sink.delta(data)

    def _finish(self) -> None:
        watch, framed = self._watch, self.call is None or self.call.framed
        self._pass(watch.end(framed))
        if watch.failure is None and not framed and not self._streaming and not self._started:
            watch.failure = _cut(self._collected)
        if watch.failure is None and self._assembly is not None and isinstance(watch, Stream):
            watch.failure = self._put_together(self._assembly)
        if self.done.called:
            return
        if watch.failure is not None:
            self._fail(watch.failure)
            return
        if self._started:
            self._sink.delta(bytes(self._collected))
            self._sink.complete(watch.finish_reason, watch.usage)
        else:
            self._sink.whole(self._head, bytes(self._collected), watch.finish_reason, watch.usage)
        self._close(None)

    def _put_together(self, assembly: Assembly) -> Failure | None:
        """Make one document of the stream that came; return why that cannot be."""
        if not assembly.whole:
            return Failure("upstream_error", "the backend's stream ended before its answer did")
        headers = [(n, v) for n, v in self._head.headers if n not in ("content-type", "cache-control")]
        self._head = m.HttpResponseHead(self._status, (("content-type", "application/json"), *headers))
        whole = json.dumps(assembly.document(), separators=(",", ":"), ensure_ascii=False)
        self._collected[:] = whole.encode("utf-8", "surrogatepass")
        return None


class NormalizedAnswer(TextAttempt):
    """An answer that is read, to be told as text.

    :param ids: what the ids of tool calls begin with that have none.
    """

    __slots__ = ("_ids", "_reader", "_watch")

    def __init__(self, sink: Any, again: Again | None, *, metadata: Mapping[str, str], ids: str) -> None:
        super().__init__(sink, again, metadata)
        self._ids = ids
        self._reader = Reader()
        self._watch: Stream | None = None

    def _take(self, data: bytes) -> None:
        if self._watch is None:
            self._collected += data
            if _DOCUMENT.match(self._collected) is not None:  # whatever it is called
                if len(self._collected) > MAX_COLLECTED:
                    self._too_large()
                return
            self._watch = Stream(strip_usage=False)
            data = bytes(self._collected)
            self._collected.clear()
        self._say(self._reader.feed(self._watch.feed(data)))
        failure = self._watch.failure or self._reader.failure
        if self.done.called:
            return
        if failure is not None:
            self._fail(failure)
        elif self._reader.held > MAX_COLLECTED:
            self._too_large()

    def _finish(self) -> None:
        watch, reader = self._watch, self._reader
        if watch is None:
            self._say(reader.document(bytes(self._collected)))
        else:
            left = watch.end(self.call is None or self.call.framed)
            self._say(reader.feed(left))
            self._say(reader.end())
        if self.done.called:
            return
        failure = watch.failure if watch is not None else None
        failure = failure or reader.failure
        if failure is None and not reader.began:
            failure = Failure("upstream_error", "the backend's answer holds no answer")
        if failure is not None:
            self._fail(failure)
            return
        self._complete(reader.finish_reason or "stop", reader.usage, reader.calls.whole(self._ids))

    @property
    def _began(self) -> bool:
        return self._reader.began

    @property
    def _all_said(self) -> bool:
        return self._watch is not None and self._watch.done

    @property
    def usage(self) -> m.Usage | None:
        return self._reader.usage


def _cut(document: bytes | bytearray) -> Failure | None:
    """Return why a JSON document that ended with its connection is not whole; it is small enough to be read."""
    if document.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        json.loads(document)
    except (ValueError, RecursionError):
        return Failure("upstream_error", "the backend closed the connection in the middle of its answer")
    return None
