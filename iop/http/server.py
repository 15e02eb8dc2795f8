"""An HTTP/1.1 server: llhttp parses, this file keeps turn, limits and time.

``twisted.web`` costs 7 to 18 times more on a gateway's path and answers a missing ``Host`` with 200
(``docs/decisions/0002-own-http.md``). Rules: RFC 9112; ambiguous framing is refused and the connection closed.

An :class:`Application` gets an :class:`Exchange` twice: when its head is there, and when its body is. Exchanges of one
connection are answered one at a time, in order. A client that ends its sending side has left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

import httptools
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Factory
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.logger import Logger

from iop.errors import Failure
from iop.http.exchange import Application, Exchange
from iop.services import NEVER, Sweep
from iop.sockets import Outlet, prepare

__all__ = ["Application", "Connection", "Exchange", "Limits", "Server"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds.

    :ivar head: of the request line and the header lines; of a trailer; of a body that waits behind another request.
    :ivar pipelined: requests that may wait on a connection.
    :ivar head_timeout: from a head's first byte to its last.
    :ivar body_timeout: between two pieces of a body.
    :ivar stall_timeout: in which a client must take something of what waits for it.
    :ivar linger_timeout: for the next piece of what is read off before a close; ``linger_total`` for all of it.
    """

    head: int = 64 << 10
    body: int = 32 << 20
    pipelined: int = 64
    head_timeout: float = 20.0
    body_timeout: float = 60.0
    idle_timeout: float = 75.0
    stall_timeout: float = 60.0
    linger_timeout: float = 2.0
    linger_total: float = 30.0


class _Overrun(Exception):
    """More requests wait on a connection than the server keeps."""


class Connection(TwistedProtocol):
    """One client connection.

    :ivar closing: close after the answer under way.
    """

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
        self._advancing = False
        self._deaf = False  # what comes is not parsed any more
        self._leaving = False  # nothing more is answered either
        self._linger_until = NEVER
        self._watching = False  # bytes wait for the client, and the deadline is for it to take some
        self._taken = 0
        self._reading = 0  # bytes of the read that is being parsed
        self._whole_reads = 0  # bytes of the reads that held nothing but a part of this head, or of this trailer
        self._split = False  # the head came in more than one read
        self._joined = 0  # bytes of the head that are not in the exchange: names of repeated headers
        self._parser: Any = httptools.HttpRequestParser(self)

    # ---- called by llhttp ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._parsing is None:
            self._parsing = Exchange(self)
            self._whole_reads = self._joined = 0
            self._split = False
        # else: the second head that _decline() made

    def on_url(self, url: bytes) -> None:
        exchange: Exchange = self._parsing  # type: ignore[assignment]
        if not exchange.parsed:
            exchange.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        exchange: Exchange = self._parsing  # type: ignore[assignment]
        if exchange.parsed:
            return  # a trailer
        name = name.lower()
        value = value.rstrip()
        headers = exchange.headers
        if name in headers:
            exchange.repeated |= {name}
            self._joined += len(name) + 2
            value = headers[name] + b", " + value
        headers[name] = value

    def on_headers_complete(self) -> None:
        exchange: Exchange = self._parsing  # type: ignore[assignment]
        if exchange.parsed:
            return
        exchange.method = self._parser.get_method()
        exchange.version = self._parser.get_http_version()
        if self._split or self._reading > self._limits.head:
            self._measure_head(exchange)
        _check_head(exchange)
        exchange.parsed = True
        self._whole_reads = 0
        self._queue.append(exchange)
        if len(self._queue) > self._limits.pipelined:
            raise _Overrun

    def on_body(self, data: bytes) -> None:
        exchange: Exchange = self._parsing  # type: ignore[assignment]
        if exchange.started:
            return
        exchange.took(data)
        if exchange.body_size > self._limits.body:
            raise self._too_large()
        if exchange is not self._queue[0] and exchange.body_size > self._limits.head:
            raise _Overrun

    def on_message_complete(self) -> None:
        exchange: Exchange = self._parsing  # type: ignore[assignment]
        exchange.keep_alive = self._parser.should_keep_alive() and not exchange.started
        exchange.complete = True
        self._parsing = None

    # ---- parsing ------------------------------------------------------------------------------------------------

    def _feed(self, data: bytes) -> None:
        """Parse; :raises Failure: and :raises _Overrun: for what the callbacks raised."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline(self._queue[-1])
            rest = data[upgrade.args[0] :]
            if rest and not self._deaf:
                self._feed(rest)
        except httptools.HttpParserCallbackError as error:
            if isinstance(error.__context__, (Failure, _Overrun)):
                raise error.__context__ from None
            raise
        except httptools.HttpParserError:
            if self._queue and self._parsing is None and not self._queue[-1].keep_alive:
                self._deaf = True  # bytes after a request that asked to close
                return
            raise Failure("invalid_request", "the request is not well-formed HTTP/1.1") from None

    def _decline(self, exchange: Exchange) -> None:
        """Another protocol is offered and not taken: what follows is HTTP/1.1 as before.

        llhttp takes the request for ended here. If it has a body, begin again at that, without the offer.
        """
        if exchange.method == b"CONNECT":
            exchange.keep_alive, self._deaf = False, True
            return
        framing = b"transfer-encoding: chunked\r\n"
        if b"transfer-encoding" not in exchange.headers:
            length = exchange.header(b"content-length")
            if length is None:
                return
            framing = b"content-length: %b\r\n" % length
        if not exchange.keep_alive:
            framing += b"connection: close\r\n"
        exchange.complete = False
        self._parsing = exchange
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % framing)

    def _measure_head(self, exchange: Exchange) -> None:
        """Count the head as if each header had one space; that, unlike its reads, is the same in any number of them."""
        size = len(exchange.method) + len(exchange.target) + 14 + self._joined
        size += sum(len(name) + len(value) + 4 for name, value in exchange.headers.items())
        if size > self._limits.head:
            raise self._head_too_large()

    def _count_unfinished(self, before: Exchange | None, queued: int, body_size: int) -> None:
        """A read ended in a head or trailer: llhttp keeps that to itself, so count here what it may be keeping.

        :param before: what was being parsed before this read; ``queued`` and ``body_size`` as they were then.
        """
        exchange: Exchange = self._parsing  # type: ignore[assignment]
        if not exchange.parsed:
            self._split = True
            if exchange is before or (before is None and len(self._queue) == queued):
                self._whole_reads += self._reading
        elif exchange is before and exchange.body_size == body_size and not exchange.started:
            self._whole_reads += self._reading
        else:
            self._whole_reads = 0
        if self._whole_reads > self._limits.head:
            raise self._head_too_large()

    def _head_too_large(self) -> Failure:
        return Failure("head_too_large", f"the request head is larger than {self._limits.head} bytes")

    def _too_large(self) -> Failure:
        return Failure("request_too_large", f"the request body is larger than {self._limits.body} bytes")

    # ---- turn by turn -------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> bool:
        """Write for the current exchange; return whether the client has taken all."""
        if self.outlet.write(data):
            return True
        self.waits()
        return False

    def waits(self) -> None:
        """Bytes of the current exchange wait for the client: watch one that takes nothing."""
        if not self._watching:
            self._watch()

    def answered(self, exchange: Exchange) -> None:
        """An exchange's answer is written."""
        if self._leaving:
            return
        if self._queue and self._queue[0] is exchange:
            self._queue.popleft()
        if self.closing or not exchange.keep_alive or not exchange.complete:
            unread = not exchange.complete or self._deaf or self._parsing is not None
            self._leave(linger=unread or bool(self._queue))
        elif not self._advancing:
            self._advance()

    def abort(self) -> None:
        """Break the connection now."""
        self.closing = self._leaving = True
        self.transport.abortConnection()  # type: ignore[union-attr]

    def close_when_idle(self) -> None:
        """Close now when there is no request, not even a part of one; else after the answer under way."""
        self.closing = True
        if not self._queue and self._parsing is None and not self._leaving:
            self._leave(linger=False)

    def _advance(self) -> None:
        """Let the application work on the exchange whose turn it is, as far as it has come."""
        self._advancing = True
        try:
            while self._queue and not self._leaving:
                exchange = self._queue[0]
                if not exchange.admitted:
                    if self.outlet.held:
                        break  # the client has not taken what it asked for before: see _drained
                    exchange.admitted = True
                    self._admit(exchange)
                if not exchange.handled and not exchange.started:
                    if exchange.failure is not None:
                        exchange.handled = True
                        self._call(self._app.refuse, exchange, exchange.failure)
                    elif exchange.complete:
                        exchange.handled = True
                        self._call(self._app.handle, exchange)
                if not exchange.finished:
                    break
        finally:
            self._advancing = False
        self._set_deadline()

    def _admit(self, exchange: Exchange) -> None:
        if exchange.parsed:
            self._call(self._app.admit, exchange)
        if exchange.started or exchange.complete or exchange.failure is not None:
            return
        length = exchange.header(b"content-length")
        if length is not None and int(length) > self._limits.body:
            exchange.failure = self._too_large()
        elif exchange.version == "1.1" and (exchange.header(b"expect") or b"").lower() == b"100-continue":
            self.outlet.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _call(self, method: Callable[..., None], exchange: Exchange, *failure: Failure) -> None:
        try:
            method(exchange, *failure)
        except Exception:
            self.factory.log.failure("a request failed")
            if exchange.started or exchange.failure is not None:
                exchange.abort()
            else:
                exchange.handled = True
                exchange.failure = Failure("internal", "the request failed inside the gateway")
                self._call(self._app.refuse, exchange, exchange.failure)

    def _refuse(self, failure: Failure) -> None:
        """Answer what broke the rules, after what came before it; then close."""
        exchange = self._parsing or Exchange(self)
        exchange.failure = failure
        exchange.keep_alive = exchange.complete = False
        if not exchange.parsed:
            self._queue.append(exchange)
        self._parsing = None
        self._deaf = True
        self._advance()

    def _overrun(self) -> None:
        """More is pipelined than may wait: answer what is whole, then close. The client asks the rest again."""
        while self._queue and not self._queue[-1].complete:
            self._queue.pop()
        self._parsing = None
        self._deaf = True
        if self._queue:
            self._queue[-1].keep_alive = False
            self._advance()
        else:
            self._leave(linger=True)

    def _leave(self, *, linger: bool) -> None:
        """Close. With unread input in the way a plain close would reset the answer away, so read it off first."""
        self._leaving = True
        self._parsing = None
        self._queue.clear()
        now = self.factory.clock.seconds()
        if linger:
            self._linger_until = now + self._limits.linger_total
            self.outlet.end()
        else:
            self.outlet.close()
        if self.outlet.pending:
            self._watch()
        else:
            self._watching = False
            self.deadline = now + self._limits.linger_timeout

    # ---- time ---------------------------------------------------------------------------------------------------

    def _set_deadline(self) -> None:
        if self._leaving or self._watching:
            return
        limits, now = self._limits, self.factory.clock.seconds()
        if self._queue:
            current = self._queue[0]
            self.deadline = NEVER if current.complete or current.started else now + limits.body_timeout
        elif self._parsing is None:
            self.deadline = now + limits.idle_timeout
        else:  # a head is half there; its time begins with the end of the answer before it
            self.deadline = now + limits.head_timeout

    def _watch(self) -> None:
        """Bytes wait for the client: give it time to take some."""
        self._watching = True
        self._taken = self.outlet.taken
        self.deadline = self.factory.clock.seconds() + self._limits.stall_timeout

    def expired(self) -> None:
        """The sweep found the deadline passed."""
        if self._watching and self.outlet.pending and self.outlet.taken > self._taken:
            self._watch()  # slow, but alive
        elif self._watching or self._leaving:
            self.abort()
        elif self._parsing is not None:
            self._refuse(Failure("request_timeout", "the request did not come in time"))
        elif self._queue:
            self.abort()  # nobody answers what was refused
        else:
            self._leave(linger=False)

    def _drained(self) -> None:
        self._watching = False
        self._set_deadline()
        if not self._queue:
            return
        if self._queue[0].started:
            self._queue[0].on_drained()
        elif not self._queue[0].admitted and not self._advancing:
            self._advance()

    # ---- called by Twisted --------------------------------------------------------------------------------------

    def connectionMade(self) -> None:
        prepare(self.transport)  # type: ignore[arg-type]
        self.outlet = Outlet(self.transport, self._drained)
        self.factory.opened(self)
        self._set_deadline()

    def dataReceived(self, data: bytes) -> None:
        if self._deaf or self._leaving:
            self._read_off()
            return
        before, queued, body_size = self._parsing, len(self._queue), 0
        if before is not None:
            body_size = before.body_size
        elif not queued and not self._watching:
            self.deadline = self.factory.clock.seconds() + self._limits.head_timeout
        self._reading = len(data)
        try:
            self._feed(data)
            if self._parsing is not None:
                self._count_unfinished(before, queued, body_size)
        except _Overrun:
            self._overrun()
        except Failure as failure:
            self._refuse(failure)
        else:
            if self._queue and not self._queue[0].started:
                self._advance()

    def _read_off(self) -> None:
        if self._leaving and not self._watching and self._linger_until is not NEVER:
            now = self.factory.clock.seconds()
            self.deadline = min(now + self._limits.linger_timeout, self._linger_until)

    def connectionLost(self, reason: Any = None) -> None:
        self.factory.closed(self)
        self.outlet.release()
        self.closing = self._leaving = True
        self._parsing = self._parser = None  # the parser holds this connection
        queue, self._queue = self._queue, deque()
        for exchange in queue:
            exchange.gone()


def _check_head(exchange: Exchange) -> None:
    """Refuse what llhttp lets pass and RFC 9112 does not; :raises Failure:."""
    if exchange.version not in ("1.0", "1.1"):
        raise Failure("version_not_supported", "only HTTP/1.0 and HTTP/1.1 are spoken here")
    headers = exchange.headers
    if b"host" in exchange.repeated or (b"host" not in headers and exchange.version == "1.1"):
        raise Failure("invalid_request", "exactly one Host header is needed")
    coding = headers.get(b"transfer-encoding")
    if coding is not None and (coding.lower() != b"chunked" or exchange.version == "1.0"):
        raise Failure("invalid_request", "the only transfer coding understood is chunked, in HTTP/1.1")
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
            connection.close_when_idle()

    def abort_all(self) -> None:
        """Break every connection."""
        for connection in list(self.connections):
            connection.abort()
