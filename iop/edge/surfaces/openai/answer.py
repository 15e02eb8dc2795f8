"""An answer on its way to the client: held while it may still fail whole, then piece by piece.

Which way a run goes is the provider's to decide: bytes of its backend pass through, normalized events are put together
in the shape of the API that was asked (``apis``).
"""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from iop import model as m
from iop.document import compact
from iop.edge.runs import Run, new_id
from iop.edge.surfaces.openai import codec
from iop.edge.surfaces.openai.apis.reading import LARGEST, size_of
from iop.edge.surfaces.openai.apis.shape import Building, Streaming
from iop.edge.surfaces.openai.questions import Question
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

_HELD_KINDS: Final = ("application/json", "text/")
"""Kinds of content that are held; sounds and images flow."""


class SurfaceAnswer:
    """What a provider says, to one client.

    :param headers: of the edge's own, for every answer to this request.
    :param window: the run's window; no more of a backend's bytes than that is ever held.
    :param question: what the client asked; only who wants a stream is told that it waits.
    :param expose: whether the client is told which provider answered, and how long it waited.
    :ivar status: see :class:`iop.edge.runs.Answer`.
    """

    __slots__ = (
        "_built",
        "_clock",
        "_exchange",
        "_expose",
        "_flowing",
        "_head",
        "_headers",
        "_held",
        "_hold",
        "_opened",
        "_question",
        "_size",
        "_streams",
        "_timer",
        "_unread",
        "_usual_hold",
        "run",
        "status",
    )

    def __init__(
        self,
        exchange: Exchange,
        headers: codec.RawHeaders,
        window: int,
        clock: IReactorTime,
        question: Question,
        *,
        expose: bool = False,
    ) -> None:
        self._exchange = exchange
        self._headers = headers
        self._hold = self._usual_hold = min(HOLD, window)
        self._clock = clock
        self._question = question
        self._expose = expose
        self._built: Building | None = None
        self._head = m.HttpResponseHead(200)
        self._held: list[bytes] = []
        self._size = 0
        self._unread = 0
        self._opened = self._flowing = self._streams = False
        self._timer: IDelayedCall | None = None
        self.run: Run | None = None
        self.status = 0
        exchange.on_gone = self._gone
        exchange.on_drained = self._drained

    @property
    def called(self) -> bool:
        """See :class:`iop.edge.runs.Answer`."""
        return self._built is not None and self._built.called

    # ---- while it waits -----------------------------------------------------------------------------------------

    def waits(self) -> None:
        # of an API that is not known here the stream may be a sound, to which a comment would be noise
        known = self._question.building is not None
        if self._question.request.stream and known and self._timer is None:
            self._timer = self._clock.callLater(COMMENT_SECONDS, self._comment)

    def _comment(self) -> None:
        self._timer = self._clock.callLater(COMMENT_SECONDS, self._comment)
        if not self._opened:
            self._opened = True
            self.status = 200
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
        self._head, self._streams, self._hold = m.HttpResponseHead(200), False, self._usual_hold
        return True

    # ---- from the run -------------------------------------------------------------------------------------------

    def started(self, start: m.Start) -> None:
        if start.http is None:
            kind = "text/event-stream" if self._question.request.stream else "application/json"
            self._headed(m.HttpResponseHead(200, (("content-type", kind),)))
            self._built = self._building()
            if self._built is None:
                raise Failure("upstream_error", "the provider did not answer by HTTP")
            self._built.started(start)
        else:
            self._headed(start.http)

    def _building(self) -> Building | None:
        building = self._question.building
        return None if building is None else building(new_id("")[1:], int(self._clock.seconds()))

    def _headed(self, head: m.HttpResponseHead) -> None:
        self._head = head
        kind = next((value for name, value in head.headers if name == "content-type"), "").lower()
        self._streams = kind.startswith("text/event-stream")
        question, wants = self._question, self._question.request.stream
        if question.answers is not None and self._streams is not wants:
            wanted = "a stream" if wants else "a document"
            raise Failure("upstream_error", f"the provider did not answer with {wanted}")
        if question.corrected is not None:
            self._hold = LARGEST
        elif kind and not kind.startswith(_HELD_KINDS):
            self._hold = 0

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
        if self._question.corrected is not None:
            self._collect(len(body))
        elif self._size >= self._hold or self._streams:
            self._flow()
            held, self._held = b"".join(self._held), []
            self.delta(m.Delta(held))

    def _collect(self, size: int) -> None:
        """The edge keeps it, up to its own bound."""
        if self._size > LARGEST:
            raise Failure("answer_too_large", "the answer is larger than the edge may put together")
        if self.run is not None:
            self.run.taken(size)

    def completed(self, complete: m.Complete) -> None:
        if self._built is not None:
            self._finish(self._built, complete)
            return
        if self._streams and not self._flowing:
            self._flow()
        if self._flowing:
            self._exchange.finish()
        else:
            self._respond(b"".join(self._held))

    def whole(self, whole: m.Whole) -> None:
        self._headed(whole.http)
        if self._opened:
            self._exchange.write(whole.body)
            self._exchange.finish()
        else:
            self._respond(whole.body)

    def _respond(self, body: bytes) -> None:
        """Answer with what a backend said, as the client asked for it; :raises Failure: for what is no such answer."""
        answers, corrected = self._question.answers, self._question.corrected
        if answers is not None and not self._streams:
            if self._head.status != 200 or answers not in body or not _is_object(body):
                raise Failure("upstream_error", "the provider did not answer as this API does")
            if corrected is not None:
                body = corrected(body)
        self.status = self._head.status
        self._exchange.respond(self.status, self._response_headers(), body)

    def failed(self, failure: Failure, usage: m.Usage | None) -> None:
        exchange, request = self._exchange, self._question.request
        self.sent()
        if self._opened or (self._flowing and self._streams):
            built = self._built if self._flowing else self._built or self._building()
            if isinstance(built, Streaming):
                exchange.write(built.failed(failure))
            else:
                exchange.write(request.broken(failure, self._request_id))
            exchange.finish()
        elif self._flowing:
            exchange.abort()
        else:
            self.status = failure.http_status
            headers = [*codec.error_headers(failure), *self._told_headers()]
            exchange.respond(failure.http_status, headers, compact(request.error(failure, self._request_id)))

    @property
    def _request_id(self) -> str:
        return "" if self.run is None else self.run.request_id

    # ---- normalized events --------------------------------------------------------------------------------------

    def _build(self, built: Building, delta: m.Delta) -> None:
        data, cost = built.delta(delta), size_of(delta)
        if data:
            if not self._flowing:
                self._flow()
            self._write(data, cost)
        elif self.run is not None:  # it is kept here, within bounds of its own
            self.run.taken(cost)

    def _finish(self, built: Building, complete: m.Complete) -> None:
        data = built.completed(complete)
        if not self._question.request.stream:
            self.status = 200
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

    def _response_headers(self) -> codec.RawHeaders:
        return [*codec.response_headers(self._head.headers), *self._told_headers()]

    def _told_headers(self) -> codec.RawHeaders:
        if not self._expose or self.run is None:
            return self._headers
        told = [(b"x-iop-queue-ms", b"%d" % self.run.waited)]
        if self.run.lease is not None:
            told.append((b"x-iop-provider", self.run.lease.resource.provider_id.encode()))
        return [*self._headers, *told]

    def _flow(self) -> None:
        """From here on nothing can be taken back."""
        self._flowing = True
        if self._opened:
            return
        self.status = self._head.status
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


def _is_object(body: bytes) -> bool:
    """Whether it looks like a JSON object, whole; a parser would cost more than all else of an answer."""
    return body.lstrip()[:1] == b"{" and body.rstrip()[-1:] == b"}"
