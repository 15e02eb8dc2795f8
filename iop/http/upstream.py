"""One connection to a backend: llhttp parses, this file hands over, holds back and keeps time.

A body arrives as one block per socket read, however it was chunked.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import httptools
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IHandshakeListener, IReactorTime
from twisted.internet.protocol import Protocol as TwistedProtocol
from zope.interface import implementer

from iop.errors import Failure
from iop.http.call import Call
from iop.http.inflate import CODINGS, Inflate
from iop.services import NEVER
from iop.sockets import prepare, send_now, unsent, unwrap

_NO_BODY: Final = frozenset({204, 304})
_LARGEST_HEAD: Final = 1 << 20


class Pool(Protocol):
    """What a connection needs of its client."""

    clock: IReactorTime
    idle_timeout: float

    def verify(self, secured: Any) -> None:
        """Check that a TLS backend is the one that was dialled; raises when it is not."""

    def free(self, connection: Connection, *, keep: bool) -> None:
        """Its call has ended."""

    def gone(self, connection: Connection, again: Call | None = None) -> None:
        """It is lost; ``again`` is the call that it should have carried."""


class _Enough(Exception):
    """The answer is whole; the parser need not go on."""


class Connection(TwistedProtocol):
    """One connection to an origin: idle in the pool, or busy with one call.

    :ivar lost: it is closed, or being closed, and carries no other call.
    """

    def __init__(self, client: Pool) -> None:
        self._client = client
        self.call: Call | None = None
        self.deadline = NEVER
        self.reused = False
        self.lost = False
        self._parser: Any = None
        self._blocks: list[bytes] = []  # of the read that is being parsed
        self._held: list[bytes] = []  # not handed over yet, because of a pause or of what it may grow to
        self._inflate: Inflate | None = None
        self._answering = self._ended = self._keep = self._paused = self._until_close = False
        self._sent = self._busy = False
        self._broken: Failure | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_size = 0

    def begin(self, call: Call) -> None:
        """Send a call's request."""
        self.call, call.connection = call, self
        self._parser = httptools.HttpResponseParser(self)
        self._headers = []
        self._head_size = 0
        self._inflate = None
        self._answering = self._ended = self._keep = self._until_close = False
        self._wait(call.timers.first_byte)
        self._sent = send_now(self.transport, call.data)
        if call.paused:
            self.pause()

    def pause(self) -> None:
        """Hand nothing over until :meth:`resume`."""
        if self._paused:
            return
        self._paused = True
        self.deadline = self.call.deadline_total if self.call else NEVER
        if not self.lost:
            self.transport.pauseProducing()  # type: ignore[union-attr]

    def resume(self) -> None:
        """Hand over what was held, then read on."""
        if not self._paused:
            return
        self._paused = False
        if self.call is None:
            return
        if not self.lost:
            self._wait(self.call.timers.gap if self._answering else self.call.timers.first_byte)
            self.transport.resumeProducing()  # type: ignore[union-attr]
        if not self._busy:
            self._deliver()

    def drop(self) -> None:
        """Close at once, without a word to anybody."""
        self.call = None
        self.deadline = NEVER
        self._held = []
        if not self.lost:
            self.lost = True
            self.transport.abortConnection()  # type: ignore[union-attr]

    def retire(self) -> None:
        """Close in order: nobody uses it."""
        self.lost = True
        self.deadline = self._client.clock.seconds() + self._client.idle_timeout
        self.transport.loseConnection()  # type: ignore[union-attr]

    def expired(self) -> None:
        """A timer ran out."""
        call = self.call
        if call is None:
            if self.lost:  # the backend does not let go of it
                self.deadline = NEVER
                self.transport.abortConnection()  # type: ignore[union-attr]
            else:
                self.retire()
            return
        what = "did not begin to answer" if not self._answering else "stopped in the middle of its answer"
        if self._client.clock.seconds() >= call.deadline_total:
            what = "took longer than its request_timeout_ms"
        self._break(Failure("upstream_timeout", f"the backend {what}"))

    @property
    def _heard(self) -> bool:
        return self._answering or self._head_size > 0

    def _wait(self, seconds: float) -> None:
        call = self.call
        total = call.deadline_total if call is not None else NEVER
        self.deadline = min(total, self._client.clock.seconds() + seconds) if seconds else total

    # ---- called by llhttp ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._ended:
            raise _Enough  # bytes after the end

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._answering:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        headers, self._headers = self._headers, []
        if status < 200:
            return
        self._answering = True
        names = dict(headers)
        coding = names.get(b"transfer-encoding")
        if coding is not None and coding.strip().lower() != b"chunked":
            raise Failure("upstream_error", "the backend's answer has a transfer coding that is not understood")
        if names.get(b"content-encoding", b"").strip().lower() in CODINGS:
            self._inflate = Inflate()
            headers = [h for h in headers if h[0] not in (b"content-encoding", b"content-length")]
        self._until_close = coding is None and b"content-length" not in names and status not in _NO_BODY
        call = self.call
        if call is None or call.answer is None:
            return
        call.framed = not self._until_close
        call.answer.head(status, headers)
        if call.data.startswith(b"HEAD "):
            self._ended = True
            raise _Enough

    def on_body(self, data: bytes) -> None:
        self._blocks.append(data)

    def on_message_complete(self) -> None:
        if self._answering:
            self._ended = True
            self._keep = self._parser.should_keep_alive()

    # ---- the body, as far as it may flow ------------------------------------------------------------------------

    def _deliver(self) -> None:
        """Hand over what has come, unless paused; then the end, if it has come too."""
        call = self.call
        if call is None:
            return
        self._busy = True
        try:
            while self._held and not self._paused and call.answer is not None:
                data = self._next_block()
                if data:
                    call.answer.block(data)
        except Failure as failure:
            self._break(failure)
        finally:
            self._busy = False
        if self._held or self.call is not call:
            return
        if self._broken is not None:
            self._break(self._broken)
        elif self._ended and not self._paused:
            self._finish(call)

    def _next_block(self) -> bytes:
        data = self._held.pop(0)
        if self._inflate is None:
            return data
        made, rest = self._inflate.take(data)
        if rest is not None:
            self._held.insert(0, rest)
        return made

    def _finish(self, call: Call) -> None:
        if self.call is not call:  # cancelled by what it was told
            return
        if self._inflate is not None and not self._inflate.whole:
            self._break(Failure("upstream_error", "the backend's compressed answer is cut short"))
            return
        self.call = call.connection = None
        answer, call.answer = call.answer, None
        keep = self._keep and not self.lost and (self._sent or not unsent(self.transport))
        self._client.free(self, keep=keep)
        if answer is not None:
            answer.ended()

    def _break(self, failure: Failure) -> None:
        call = self.call
        self.drop()
        if call is not None:
            call.fail(failure)

    # ---- called by Twisted --------------------------------------------------------------------------------------

    def connectionMade(self) -> None:
        prepare(self.transport)  # type: ignore[arg-type]
        unwrap(self)

    def dataReceived(self, data: bytes) -> None:
        call = self.call
        if call is None:  # an idle connection has nothing to say
            self.drop()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._parsed_wrong(error)
        if self.call is not call:  # the head was enough
            return
        if self._blocks:
            body, self._blocks = self._blocks[0] if len(self._blocks) == 1 else b"".join(self._blocks), []
            if self._inflate is not None or self._held or self._paused or call.answer is None:
                self._held.append(body)
            else:  # straight on, nearly always
                self._busy = True
                try:
                    call.answer.block(body)
                except Failure as failure:
                    self._break(failure)
                    return
                finally:
                    self._busy = False
        if self._held or self._broken is not None:
            self._deliver()
        elif self._ended:
            if not self._paused:
                self._finish(call)
        elif not self._answering:
            self._head_size += len(data)
            if self._head_size > _LARGEST_HEAD:
                self._break(Failure("upstream_error", "the head of the backend's answer has no end"))
        elif not self._paused:
            self._wait(call.timers.gap)

    def _parsed_wrong(self, error: Exception) -> None:
        """Note what is wrong, for after what came before it; raise again what the answer raised."""
        cause = error.__context__
        if self._ended:
            self._keep = False  # bytes after the end
        elif isinstance(cause, Failure):
            self._broken = cause
        elif isinstance(error, httptools.HttpParserCallbackError):
            self._break(Failure("internal", "the answer could not be taken"))
            raise error
        else:
            self._broken = Failure("upstream_error", "the backend's answer is not well-formed HTTP")

    def connectionLost(self, reason: Any = None) -> None:
        self.lost = True
        self._parser = None  # it holds this connection
        call = self.call
        if call is not None and self.reused and not self._heard and call.answer is not None:
            self.call = call.connection = None
            self._client.gone(self, call)  # the one repetition of a call that met a stale connection
            return
        self._client.gone(self)
        if call is None:
            return
        self._keep = False
        if self._until_close and self._answering and reason is not None and reason.check(ConnectionDone):
            self._ended = True
        elif not self._ended and self._broken is None:
            where = "in the middle of its answer" if self._answering else "without an answer"
            self._broken = Failure("upstream_error", f"the backend closed the connection {where}")
        self._deliver()


@implementer(IHandshakeListener)
class SecuredConnection(Connection):
    """A connection under TLS: it is one only when the backend has shown who it is."""

    def __init__(self, client: Pool) -> None:
        super().__init__(client)
        self.secured: Deferred[Connection] = Deferred(lambda _: self.drop())

    def handshakeCompleted(self) -> None:
        if self.secured.called:
            return
        try:
            self._client.verify(self.transport.getHandle())  # type: ignore[union-attr]
        except Exception:
            self.secured.errback()
            self.drop()
        else:
            self.secured.callback(self)

    def connectionLost(self, reason: Any = None) -> None:
        if not self.secured.called:
            self.lost = True
            self.secured.errback(reason)
        super().connectionLost(reason)
