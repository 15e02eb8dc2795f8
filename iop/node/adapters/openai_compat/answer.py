"""One answer of a backend, from its socket to the sink of its run."""

from __future__ import annotations

import json
from typing import Any, Final

from twisted.internet.defer import Deferred

from iop import model as m
from iop.errors import Failure
from iop.headers import DROPPED
from iop.http.client import Call
from iop.node.adapters.errors import failure_of
from iop.node.adapters.openai_compat.assemble import Assembly
from iop.node.adapters.openai_compat.watch import Stream, Whole

MAX_COLLECTED: Final = 32 << 20
"""Bytes of an answer that is put together here."""

MAX_UNFRAMED: Final = 1 << 20
"""Bytes of a document that ends with its connection that wait for that end, so that a cut one is noticed."""

MAX_ERROR: Final = 1 << 20
"""Bytes of an error's body that are read."""

_DROPPED: Final = frozenset(name.encode() for name in DROPPED)


class PassingAnswer:
    """One run's answer, from the backend's socket to the sink; also what flow control pauses."""

    __slots__ = (
        "_assembly",
        "_collected",
        "_error_headers",
        "_head",
        "_sink",
        "_size",
        "_started",
        "_status",
        "_streaming",
        "_strip",
        "_watch",
        "call",
        "done",
    )

    def __init__(self, sink: Any, assembly: Assembly | None, *, strip_usage: bool) -> None:
        self._sink = sink
        self._assembly = assembly
        self._strip = strip_usage
        self._status = 0
        self._head = m.HttpResponseHead(200)
        self._error_headers: dict[bytes, bytes] = {}
        self._watch: Stream | Whole = Whole()
        self._collected = bytearray()
        self._size = 0
        self._started = self._streaming = False
        self.call: Call | None = None
        self.done: Deferred[None] = Deferred(self._cancelled)

    # ---- flow control -------------------------------------------------------------------------------------------

    def pause(self) -> None:
        if self.call is not None:
            self.call.pause()

    def resume(self) -> None:
        if self.call is not None:
            self.call.resume()

    def _cancelled(self, _: Deferred[None]) -> None:
        if self.call is not None:
            self.call.cancel()

    # ---- iop.http.client.Answer ---------------------------------------------------------------------------------

    def head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._status = status
        if not 200 <= status < 300:
            self._error_headers = dict(headers)
            return
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
        self._head = m.HttpResponseHead(status, tuple(kept))
        if kind[:17].lower() == b"text/event-stream":
            self._watch = Stream(self._strip and self._assembly is None)
            self._streaming = self._assembly is None

    def block(self, data: bytes) -> None:
        if self.done.called:
            return
        if self._started and self._streaming:  # nearly always
            data = self._watch.feed(data)
            if data:
                self._sink.delta(data)
            if self._watch.failure is not None:
                self._fail(self._watch.failure)
            return
        if not 200 <= self._status < 300:
            self._collected += data
            if len(self._collected) > MAX_ERROR:
                self._refused()
            return
        self._pass(self._watch.feed(data))
        if self._watch.failure is not None:
            self._fail(self._watch.failure)

    def ended(self) -> None:
        if self.done.called:
            return
        if not 200 <= self._status < 300:
            self._refused()
        else:
            self._finish()

    def failed(self, failure: Failure) -> None:
        if self.done.called:
            return
        if isinstance(self._watch, Stream) and self._watch.done:
            self._finish()  # all was said; how the connection ended does not matter
        elif not 200 <= self._status < 300 and self._status:
            self._refused()
        else:
            self._fail(failure)

    # ---- towards the sink ---------------------------------------------------------------------------------------

    def _pass(self, data: bytes) -> None:
        if not data:
            return
        if self._streaming:
            self._say(data)
            return
        if self._assembly is not None and isinstance(self._watch, Stream):
            self._size += len(data)
            self._watch.failure = self._watch.failure or self._assembly.feed(data)
            if self._size > MAX_COLLECTED:
                self._fail(Failure("answer_too_large", "the answer is larger than the node may put together"))
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

    def _refused(self) -> None:
        self._fail(failure_of(self._status, self._error_headers, bytes(self._collected)))

    def _fail(self, failure: Failure) -> None:
        self._sink.fail(failure, self._watch.usage)
        self._close(self.call)

    def _close(self, call: Call | None) -> None:
        if call is not None:
            call.cancel()
        self.call = None
        if not self.done.called:
            self.done.callback(None)


def _cut(document: bytes | bytearray) -> Failure | None:
    """Return why a JSON document that ended with its connection is not whole; it is small enough to be read."""
    if document.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        json.loads(document)
    except (ValueError, RecursionError):
        return Failure("upstream_error", "the backend closed the connection in the middle of its answer")
    return None
