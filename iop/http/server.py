"""An HTTP/1.1 server: llhttp parses, this file keeps turn, limits and time.

``twisted.web`` costs 7 to 18 times more on a gateway's path and answers a missing ``Host`` with 200
(``docs/decisions/0002-own-http.md``). Rules: RFC 9112; ambiguous framing is refused and the connection closed.

An :class:`Application` gets an :class:`Exchange` twice: when its head is there, and when its body is. Exchanges of one
connection are answered one at a time, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final, Protocol

import httptools
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Factory
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.logger import Logger

from iop.errors import Failure
from iop.services import NEVER, Sweep
from iop.sockets import Outlet, prepare

RawHeaders = Iterable[tuple[bytes, bytes]]

STATUS_LINES: Final = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds."""

    head: int = 64 << 10
    body: int = 32 << 20
    pipelined: int = 64
    head_timeout: float = 20.0
    body_timeout: float = 60.0
    idle_timeout: float = 75.0
    stall_timeout: float = 60.0
    linger_timeout: float = 2.0


class Application(Protocol):
    """What answers. Each method may answer the exchange at once, later, or leave it to the next."""

    def admit(self, exchange: Exchange) -> None:
        """The head is there; an answer now refuses the body."""

    def handle(self, exchange: Exchange) -> None:
        """The whole request is there."""

    def refuse(self, exchange: Exchange, failure: Failure) -> None:
        """The request broke a rule of HTTP or a limit: answer ``failure`` in the surface's shape."""


def _nothing() -> None:
    pass


class Exchange:
    """One request and its answer.

    :ivar target: as sent, path and query.
    :ivar headers: by name in lower case; ``repeated`` names those that stood more than once.
    :ivar context: the application's own.
    :ivar on_gone: called once if the client leaves, or is cut, before the answer is finished.
    :ivar on_drained: called when the client has taken everything after a :meth:`write` that returned False.
    """

    __slots__ = (
        "_body",
        "_chunked",
        "_connection",
        "_unsent",
        "admitted",
        "body_size",
        "complete",
        "context",
        "failure",
        "finished",
        "headers",
        "keep_alive",
        "method",
        "on_drained",
        "on_gone",
        "parsed",
        "repeated",
        "started",
        "target",
        "version",
    )

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.method = b""
        self.target = b""
        self.version = "1.1"
        self.headers: dict[bytes, bytes] = {}
        self.repeated: frozenset[bytes] = frozenset()
        self._body: list[bytes] = []
        self.body_size = 0
        self.keep_alive = False
        self.parsed = self.complete = self.admitted = self.started = self.finished = False
        self._chunked = False
        self._unsent = b""
        self.context: Any = None
        self.failure: Failure | None = None
        self.on_gone: Callable[[], None] = _nothing
        self.on_drained: Callable[[], None] = _nothing

    # ---- the request --------------------------------------------------------------------------------------------

    @property
    def body(self) -> bytes:
        """What has come of the body."""
        if len(self._body) > 1:
            self._body = [b"".join(self._body)]
        return self._body[0] if self._body else b""

    @property
    def path(self) -> bytes:
        """The target without its query."""
        return self.target.partition(b"?")[0]

    def header(self, name: bytes) -> bytes | None:
        """Return a header, given in lower case; one that stands more than once is joined by commas."""
        return self.headers.get(name)

    def took(self, data: bytes) -> None:
        """Take a piece of the body."""
        self._body.append(data)
        self.body_size += len(data)

    # ---- the answer ---------------------------------------------------------------------------------------------

    def respond(self, status: int, headers: RawHeaders, body: bytes) -> None:
        """Answer whole."""
        if self.started:
            return
        self.started = True
        head = self._head(status, headers, b"content-length: %d\r\n" % len(body))
        self._connection.outlet.write(head if self.method == b"HEAD" else head + body)
        self._end()

    def start(self, status: int, headers: RawHeaders) -> None:
        """Begin an answer of unknown length; its head goes out with the first piece."""
        if self.started:
            return
        self.started = True
        self._chunked = self.version == "1.1"
        if not self._chunked:
            self.keep_alive = False
        framing = b"transfer-encoding: chunked\r\n" if self._chunked else b""
        self._unsent = self._head(status, headers, framing)

    def write(self, data: bytes) -> bool:
        """Send a piece; return whether the client's socket took all that was ever written."""
        if self.finished or not data:
            return True
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._unsent:
            data, self._unsent = self._unsent + data, b""
        return self._connection.send(data)

    def finish(self) -> None:
        """The answer is whole."""
        if self.finished:
            return
        if self._chunked:
            self._unsent += b"0\r\n\r\n"
        if self._unsent:
            self._connection.outlet.write(self._unsent)
        self._end()

    def abort(self) -> None:
        """Break the connection: half an answer must not look whole."""
        if not self.finished:
            self.on_gone = _nothing
            self._connection.abort()

    def _end(self) -> None:
        self.finished = True
        self.on_gone = self.on_drained = _nothing
        self._connection.answered(self)

    def _head(self, status: int, headers: RawHeaders, framing: bytes) -> bytes:
        connection = self._connection
        if not self.complete or connection.closing:
            self.keep_alive = False
        lines = [STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status, connection.factory.date()]
        lines += [b"%b: %b\r\n" % header for header in headers]
        lines.append(framing)
        if not self.keep_alive:
            lines.append(b"connection: close\r\n\r\n")
        elif self.version == "1.0":
            lines.append(b"connection: keep-alive\r\n\r\n")
        else:
            lines.append(b"\r\n")
        return b"".join(lines)


class Connection(TwistedProtocol):
    """One client connection."""

    factory: Server
    outlet: Outlet

    def __init__(self, factory: Server) -> None:
        self.factory = factory
        self.deadline = NEVER
        self.closing = False
        self._limits = factory.limits
        self._app = factory.application
        self._queue: deque[Exchange] = deque()
        self._parsing: Exchange | None = None
        self._head_size = 0
        self._advancing = False
        self._deaf = False
        self._discarding = False
        self._waiting = 0
        self._parser: Any = httptools.HttpRequestParser(self)

    # ---- called by llhttp ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._parsing = Exchange(self)
        self._head_size = 0

    def on_url(self, url: bytes) -> None:
        self._parsing.target += url  # type: ignore[union-attr]

    def on_header(self, name: bytes, value: bytes) -> None:
        exchange: Exchange = self._parsing  # type: ignore[assignment]
        if exchange.parsed:
            return  # a trailer
        name = name.lower()
        headers = exchange.headers
        if name in headers:
            exchange.repeated |= {name}
            value = headers[name] + b", " + value
        headers[name] = value

    def on_headers_complete(self) -> None:
        exchange = self._parsing
        assert exchange is not None
        exchange.method = self._parser.get_method()
        exchange.version = self._parser.get_http_version()
        _check_head(exchange)
        if self._head_size:  # it came in pieces
            self._count_head(exchange)
        exchange.parsed = True
        self._queue.append(exchange)
        if len(self._queue) > self._limits.pipelined:
            raise _Overrun

    def on_body(self, data: bytes) -> None:
        exchange = self._parsing
        assert exchange is not None
        if exchange.started:
            return
        exchange.took(data)
        if exchange.body_size > self._limits.body:
            raise Failure("request_too_large", f"the request body is larger than {self._limits.body} bytes")
        if exchange is not self._queue[0] and exchange.body_size > self._limits.head:
            raise _Overrun

    def on_message_complete(self) -> None:
        exchange = self._parsing
        assert exchange is not None
        exchange.keep_alive = self._parser.should_keep_alive()
        exchange.complete = True
        self._parsing = None

    def _count_head(self, exchange: Exchange) -> None:
        size = len(exchange.target) + sum(len(name) + len(value) + 4 for name, value in exchange.headers.items())
        if size > self._limits.head:
            raise Failure("head_too_large", f"the request head is larger than {self._limits.head} bytes")

    # ---- turn by turn -------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> bool:
        """Write for the current exchange; watch a client that takes nothing."""
        if self.outlet.write(data):
            return True
        if self.deadline is NEVER:
            self._waiting = self.outlet.pending
            self.deadline = self.factory.clock.seconds() + self._limits.stall_timeout
        return False

    def answered(self, exchange: Exchange) -> None:
        """An exchange's answer is written."""
        if self._queue and self._queue[0] is exchange:
            self._queue.popleft()
        if not exchange.keep_alive or not exchange.complete:
            self._leave(linger=not exchange.complete or exchange.failure is not None)
        elif not self._advancing:
            self._advance()

    def abort(self) -> None:
        """Break the connection now."""
        self.closing = self._discarding = True
        self.transport.abortConnection()  # type: ignore[union-attr]

    def _advance(self) -> None:
        """Let the application work on the exchange whose turn it is, as far as it has come."""
        self._advancing = True
        try:
            while self._queue and not self._discarding:
                exchange = self._queue[0]
                if not exchange.admitted:
                    exchange.admitted = True
                    self._admit(exchange)
                if not exchange.started and exchange.complete and exchange.failure is None:
                    self._call(self._app.handle, exchange)
                if not exchange.finished:
                    break
        finally:
            self._advancing = False
        self._set_deadline()

    def _admit(self, exchange: Exchange) -> None:
        if exchange.failure is not None:
            self._app.refuse(exchange, exchange.failure)
            return
        self._call(self._app.admit, exchange)
        if exchange.started or exchange.complete:
            return
        length = exchange.header(b"content-length")
        if length is not None and int(length) > self._limits.body:
            exchange.failure = Failure(
                "request_too_large", f"the request body is larger than {self._limits.body} bytes"
            )
            self._app.refuse(exchange, exchange.failure)
        elif (exchange.header(b"expect") or b"").lower() == b"100-continue" and exchange.version == "1.1":
            self.outlet.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _call(self, method: Callable[[Exchange], None], exchange: Exchange) -> None:
        try:
            method(exchange)
        except Exception:
            self.factory.log.failure("a request failed")
            if exchange.started:
                exchange.abort()
            else:
                self._app.refuse(exchange, Failure("internal", "the request failed inside the gateway"))

    def _refuse(self, failure: Failure) -> None:
        """Answer what broke the rules, after what came before it; then close."""
        exchange = self._parsing or Exchange(self)
        exchange.failure = failure
        exchange.parsed = True
        exchange.keep_alive = exchange.complete = False
        if exchange not in self._queue:
            self._queue.append(exchange)
        self._parsing = None
        self.closing = self._deaf = True
        if exchange.admitted and not exchange.started:
            self._app.refuse(exchange, failure)
        self._advance()

    def _overrun(self) -> None:
        """More is pipelined than may wait: answer what is whole, then close. The client asks the rest again."""
        while self._queue and not self._queue[-1].complete:
            self._queue.pop()
        self.closing = self._deaf = True
        self._parsing = None
        if self._queue:
            self._queue[-1].keep_alive = False
            self._advance()
        else:
            self._leave(linger=True)

    def _leave(self, *, linger: bool) -> None:
        """Close. With unread input in the way a plain close would reset the answer away, so read it off first."""
        self.closing = self._discarding = True
        self._queue.clear()
        if not linger:
            self.outlet.close()
            self.deadline = self.factory.clock.seconds() + self._limits.stall_timeout
            return
        half_close = getattr(self.transport, "loseWriteConnection", None)
        if half_close is not None:
            half_close()
        self.deadline = self.factory.clock.seconds() + self._limits.linger_timeout

    def _set_deadline(self) -> None:
        if self._discarding:
            return
        limits, now = self._limits, self.factory.clock.seconds()
        if self._queue:
            current = self._queue[0]
            if current.complete:
                if not self.outlet.held:
                    self.deadline = NEVER
            else:
                self.deadline = now + limits.body_timeout
        elif self._parsing is None:
            self.deadline = now + limits.idle_timeout
        # else a head is coming in: its time began with its first byte

    def expired(self) -> None:
        """The sweep found the deadline passed."""
        if self._discarding:
            self.transport.abortConnection()  # type: ignore[union-attr]
        elif self._queue and self._queue[0].complete:
            self._stalled()
        elif self._parsing is not None:
            self._refuse(Failure("request_timeout", "the request did not come in time"))
        else:
            self.outlet.close()
            self._discarding = True

    def _stalled(self) -> None:
        """The client took nothing for long; unless it took a little."""
        pending = self.outlet.pending
        if pending < self._waiting:
            self._waiting = pending
            self.deadline = self.factory.clock.seconds() + self._limits.stall_timeout
        else:
            self.transport.abortConnection()  # type: ignore[union-attr]

    def _drained(self) -> None:
        if self._discarding:
            return
        self.deadline = NEVER
        self._set_deadline()
        if self._queue:
            self._queue[0].on_drained()

    # ---- called by Twisted --------------------------------------------------------------------------------------

    def connectionMade(self) -> None:
        prepare(self.transport)  # type: ignore[arg-type]
        self.outlet = Outlet(self.transport, self._drained)
        self.factory.opened(self)
        self.deadline = self.factory.clock.seconds() + self._limits.idle_timeout

    def dataReceived(self, data: bytes) -> None:
        if self._discarding or self._deaf:
            return
        if not self._queue and self._parsing is None:
            self.deadline = self.factory.clock.seconds() + self._limits.head_timeout
        was_in_head = self._parsing is not None and not self._parsing.parsed
        try:
            self._feed(data)
        except _Overrun:
            self._overrun()
            return
        except Failure as failure:
            self._refuse(failure)
            return
        if was_in_head and self._parsing is not None and not self._parsing.parsed:
            self._head_size += len(data)  # llhttp keeps an unfinished header to itself
            if self._head_size > self._limits.head:
                self._refuse(Failure("head_too_large", f"the request head is larger than {self._limits.head} bytes"))
                return
        if self._queue:
            if self._queue[0].started:
                return
            self._advance()

    def _feed(self, data: bytes) -> None:
        """Parse; :raises Failure: and :raises _Overrun: for what the callbacks raised."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:  # offered, not taken: the rest is HTTP/1.1 as before
            rest = data[upgrade.args[0] :]
            if rest:
                self._feed(rest)
        except httptools.HttpParserCallbackError as error:
            if isinstance(error.__context__, (Failure, _Overrun)):
                raise error.__context__ from None
            raise
        except httptools.HttpParserError:
            if self._queue and self._parsing is None and not self._queue[-1].keep_alive:
                return  # bytes after a request that asked to close
            raise Failure("invalid_request", "the request is not well-formed HTTP/1.1") from None

    def connectionLost(self, reason: Any = None) -> None:
        self.factory.closed(self)
        self._discarding = self.closing = True
        queue, self._queue = self._queue, deque()
        for exchange in queue:
            gone, exchange.finished = exchange.on_gone, True
            exchange.on_gone = exchange.on_drained = _nothing
            if exchange.started or exchange.admitted:
                gone()


class _Overrun(Exception):
    """More requests wait on a connection than the server keeps."""


def _check_head(exchange: Exchange) -> None:
    """Refuse what llhttp lets pass and RFC 9112 does not; :raises Failure:."""
    if exchange.version not in ("1.0", "1.1"):
        raise Failure("version_not_supported", "only HTTP/1.0 and HTTP/1.1 are spoken here")
    headers = exchange.headers
    if b"host" in exchange.repeated or (b"host" not in headers and exchange.version == "1.1"):
        raise Failure("invalid_request", "exactly one Host header is needed")
    coding = headers.get(b"transfer-encoding")
    if coding is not None and coding.strip().lower() != b"chunked":
        raise Failure("invalid_request", "the only transfer coding understood is chunked")
    expect = headers.get(b"expect")
    if expect is not None and expect.lower() != b"100-continue":
        raise Failure("expectation_failed", "the only expectation understood is 100-continue")


class Server(Factory):
    """Makes connections, and sweeps their deadlines.

    :param clock: the time of every timeout.
    """

    log = Logger()
    noisy = False

    def __init__(self, application: Application, clock: IReactorTime, limits: Limits = Limits()) -> None:
        self.application = application
        self.clock = clock
        self.limits = limits
        self.connections: set[Connection] = set()
        self._sweep = Sweep(clock)
        self._date = b""
        self._dated = -1

    def buildProtocol(self, addr: Any) -> Connection:  # type: ignore[override]
        return Connection(self)

    def opened(self, connection: Connection) -> None:
        """A connection begins."""
        self.connections.add(connection)
        self._sweep.add(connection)

    def closed(self, connection: Connection) -> None:
        """A connection is gone."""
        self.connections.discard(connection)
        self._sweep.discard(connection)

    def date(self) -> bytes:
        """The Date header of this second."""
        now = int(self.clock.seconds())
        if now != self._dated:
            self._dated = now
            self._date = f"date: {formatdate(now, usegmt=True)}\r\n".encode()
        return self._date

    def close_idle(self) -> None:
        """Shut connections without a request; the others close after their answer."""
        for connection in list(self.connections):
            connection.closing = True
            if not connection._queue:
                connection.outlet.close()

    def abort_all(self) -> None:
        """Break every connection."""
        for connection in list(self.connections):
            connection.abort()
