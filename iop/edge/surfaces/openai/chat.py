"""A chat request's answer on its way to the client: held while it may still fail whole, then piece by piece."""

from __future__ import annotations

from iop import model as m
from iop.edge.runs import Run
from iop.edge.surfaces.openai import codec
from iop.errors import Failure
from iop.http import sse
from iop.http.server import Exchange

_OF_STREAMS = {b"cache-control": b"no-cache", b"x-accel-buffering": b"no"}

HOLD = 1 << 20
"""Bytes of a non-streaming answer that wait for its end, so that a break before it can still be a 502."""


class PassthroughAnswer:
    """Bytes from a backend to one client.

    :param headers: of the edge's own, for every answer to this request.
    :param window: the run's window; no more than that is ever held.
    """

    __slots__ = ("_exchange", "_flowing", "_head", "_headers", "_held", "_hold", "_size", "_unread", "run")

    def __init__(self, exchange: Exchange, headers: codec.RawHeaders, window: int) -> None:
        self._exchange = exchange
        self._headers = headers
        self._hold = min(HOLD, window)
        self._head = m.HttpResponseHead(200)
        self._held: list[bytes] = []
        self._size = 0
        self._unread = 0
        self._flowing = False
        self.run: Run | None = None
        exchange.on_gone = self._gone
        exchange.on_drained = self._drained

    # ---- from the run -------------------------------------------------------------------------------------------

    def started(self, start: m.Start) -> None:
        if start.http is None:
            raise Failure("upstream_error", "the provider's answer has no form that can be passed on here")
        self._head = start.http
        if self._streams:
            self._flow()

    def delta(self, delta: m.Delta) -> None:
        body = delta.body
        if self._flowing:
            if not self._exchange.write(body):
                self._unread += len(body)
            elif self.run is not None:
                self.run.taken(len(body))
            return
        self._held.append(body)
        self._size += len(body)
        if self._size >= self._hold:
            self._flow()
            held, self._held = b"".join(self._held), []
            self.delta(m.Delta(held))

    def completed(self, complete: m.Complete) -> None:
        if self._flowing:
            self._exchange.finish()
        else:
            self._exchange.respond(self._head.status, self._response_headers(), b"".join(self._held))

    def whole(self, whole: m.Whole) -> None:
        headers = [*codec.response_headers(whole.http.headers), *self._headers]
        self._exchange.respond(whole.http.status, headers, whole.body)

    def failed(self, failure: Failure, usage: m.Usage | None) -> None:
        exchange = self._exchange
        if not self._flowing:
            headers = [*codec.error_headers(failure), *self._headers]
            exchange.respond(failure.http_status, headers, codec.dumps(codec.error_object(failure)))
        elif self._streams:
            exchange.write(sse.event(codec.error_object(failure)))
            exchange.finish()
        else:
            exchange.abort()

    # ---- to the client ------------------------------------------------------------------------------------------

    @property
    def _streams(self) -> bool:
        return any(n == "content-type" and v.lower().startswith("text/event-stream") for n, v in self._head.headers)

    def _response_headers(self) -> codec.RawHeaders:
        return [*codec.response_headers(self._head.headers), *self._headers]

    def _flow(self) -> None:
        self._flowing = True
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
        if self.run is not None:
            self.run.cancel()
