"""A chat request's answer on its way to the client: held while it may still fail whole, then piece by piece.

Which way a run goes is the provider's to decide: bytes of its backend pass through, normalized events are put together
here (``completion``).
"""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from iop import model as m
from iop.edge.runs import Run, new_id
from iop.edge.surfaces.openai import codec
from iop.edge.surfaces.openai.apis.completion import Chunks, Collected
from iop.edge.surfaces.openai.apis.reading import size_of
from iop.errors import Failure
from iop.http import sse
from iop.http.server import Exchange

_EVENT_STREAM: Final = (b"content-type", b"text/event-stream")
_OF_STREAMS: Final = {b"cache-control": b"no-cache", b"x-accel-buffering": b"no"}

HOLD = 1 << 20
"""Bytes of a non-streaming answer that wait for its end, so that a break before it can still be a 502."""

COMMENT_SECONDS: Final = 5.0
"""Between two signs of life to a client whose stream waits for a slot (``docs/contracts/pool.md``, Queue)."""

_COMMENT: Final = sse.comment("waiting for a free slot")


class ChatAnswer:
    """What a provider says, to one client.

    :param headers: of the edge's own, for every answer to this request.
    :param window: the run's window; no more of a backend's bytes than that is ever held.
    :param request: what the client asked; only one that wants a stream is told that it waits.
    """

    __slots__ = (
        "_built",
        "_clock",
        "_exchange",
        "_flowing",
        "_head",
        "_headers",
        "_held",
        "_hold",
        "_opened",
        "_request",
        "_size",
        "_timer",
        "_unread",
        "run",
    )

    def __init__(
        self,
        exchange: Exchange,
        headers: codec.RawHeaders,
        window: int,
        clock: IReactorTime,
        request: codec.ChatRequest,
    ) -> None:
        self._exchange = exchange
        self._headers = headers
        self._hold = min(HOLD, window)
        self._clock = clock
        self._request = request
        self._built: Chunks | Collected | None = None
        self._head = m.HttpResponseHead(200)
        self._held: list[bytes] = []
        self._size = 0
        self._unread = 0
        self._opened = self._flowing = False
        self._timer: IDelayedCall | None = None
        self.run: Run | None = None
        exchange.on_gone = self._gone
        exchange.on_drained = self._drained

    # ---- while it waits -----------------------------------------------------------------------------------------

    def waits(self) -> None:
        if self._request.stream and self._timer is None:
            self._timer = self._clock.callLater(COMMENT_SECONDS, self._comment)

    def _comment(self) -> None:
        self._timer = self._clock.callLater(COMMENT_SECONDS, self._comment)
        if not self._opened:
            self._opened = True
            self._exchange.start(200, [_EVENT_STREAM, *_OF_STREAMS.items(), *self._headers])
        self._exchange.write(_COMMENT)

    def sent(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def again(self) -> bool:
        if self._flowing:
            return False
        self._held, self._size, self._built = [], 0, None
        return True

    # ---- from the run -------------------------------------------------------------------------------------------

    def started(self, start: m.Start) -> None:
        if start.http is None:
            self._built = self._building(start)
            return
        self._head = start.http
        if self._opened and not self._streams:
            raise Failure("upstream_error", "the provider did not answer with a stream")

    def delta(self, delta: m.Delta) -> None:
        body = delta.body
        if self._built is not None:
            self._build(self._built, delta)
            return
        if self._flowing:
            self._write(body, len(body))
            return
        self._held.append(body)
        self._size += len(body)
        if self._size >= self._hold or self._streams:
            self._flow()
            held, self._held = b"".join(self._held), []
            self.delta(m.Delta(held))

    def completed(self, complete: m.Complete) -> None:
        if self._built is not None:
            self._finish(self._built, complete)
            return
        if self._streams and not self._flowing:
            self._flow()
        if self._flowing:
            self._exchange.finish()
        else:
            self._exchange.respond(self._head.status, self._response_headers(), b"".join(self._held))

    def whole(self, whole: m.Whole) -> None:
        if self._opened:
            self._head = whole.http
            if self._streams:
                self._exchange.write(whole.body)
                self._exchange.finish()
            else:
                raise Failure("upstream_error", "the provider did not answer with a stream")
            return
        headers = [*codec.response_headers(whole.http.headers), *self._headers]
        self._exchange.respond(whole.http.status, headers, whole.body)

    def failed(self, failure: Failure, usage: m.Usage | None) -> None:
        exchange = self._exchange
        self.sent()
        if self._opened or (self._flowing and self._streams):
            exchange.write(sse.event(codec.error_object(failure)))
            exchange.finish()
        elif self._flowing:
            exchange.abort()
        else:
            headers = [*codec.error_headers(failure), *self._headers]
            exchange.respond(failure.http_status, headers, codec.dumps(codec.error_object(failure)))

    # ---- normalized events --------------------------------------------------------------------------------------

    def _building(self, start: m.Start) -> Chunks | Collected:
        request, created = self._request, int(self._clock.seconds())
        made: Chunks | Collected
        if request.stream:
            self._head = m.HttpResponseHead(200, (("content-type", "text/event-stream"),))
            made = Chunks(new_id("chatcmpl"), created, request.model, request.tools, usage=request.include_usage)
        else:
            self._head = m.HttpResponseHead(200, (("content-type", "application/json"),))
            made = Collected(new_id("chatcmpl"), created, request.model, request.tools)
        made.started(start)
        return made

    def _build(self, built: Chunks | Collected, delta: m.Delta) -> None:
        data, cost = built.delta(delta), size_of(delta)
        if data:
            if not self._flowing:
                self._flow()
            self._write(data, cost)
        elif self.run is not None:  # it is kept here, within bounds of its own
            self.run.taken(cost)

    def _finish(self, built: Chunks | Collected, complete: m.Complete) -> None:
        data = built.completed(complete)
        if not self._request.stream:
            self._exchange.respond(200, self._response_headers(), data)
            return
        if not self._flowing:
            self._flow()
        self._exchange.write(data)
        self._exchange.finish()

    # ---- to the client ------------------------------------------------------------------------------------------

    def _write(self, data: bytes, cost: int) -> None:
        """Send bytes; what they have cost of the run's credit is given back when the client has taken them."""
        if not self._exchange.write(data):
            self._unread += cost
        elif self.run is not None:
            self.run.taken(cost)

    @property
    def _streams(self) -> bool:
        return any(n == "content-type" and v.lower().startswith("text/event-stream") for n, v in self._head.headers)

    def _response_headers(self) -> codec.RawHeaders:
        return [*codec.response_headers(self._head.headers), *self._headers]

    def _flow(self) -> None:
        """From here on nothing can be taken back."""
        self._flowing = True
        if self._opened:
            return
        headers = self._response_headers()
        if self._streams:
            headers = [header for header in headers if header[0] not in _OF_STREAMS]
            headers += _OF_STREAMS.items()
        self._exchange.start(self._head.status, headers)

    def _drained(self) -> None:
        size, self._unread = self._unread, 0
        if self.run is not None:
            self.run.taken(size)

    def _gone(self) -> None:
        self.sent()
        if self.run is not None:
            self.run.cancel()
