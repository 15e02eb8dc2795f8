"""An HTTP/1.1 client: llhttp parses, this file keeps connections, timers and the right to pause.

``Agent`` costs 9 to 18 times more on a gateway's path and does not repeat a POST that met a dead pooled connection
(``docs/decisions/0002-own-http.md``). A body arrives as one block per socket read, however it was chunked.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import httptools
from OpenSSL import SSL
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.error import ConnectError, ConnectionDone, DNSLookupError
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.ssl import Certificate, optionsForClientTLS, trustRootFromCertificates
from twisted.python.failure import Failure as TwistedFailure

from iop.errors import Failure
from iop.services import NEVER, Sweep
from iop.sockets import prepare, send_now, unwrap

RawHeaders = Iterable[tuple[bytes, bytes]]

_INFLATE_PIECE: Final = 256 << 10
_LONGEST_DIAL: Final = 300.0  # a call's own patience comes first
_NO_BODY: Final = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Origin:
    """Where connections go. ``ca_file`` replaces the system's trust roots."""

    scheme: str
    host: str
    port: int
    ca_file: str = ""

    @classmethod
    def of(cls, url: str, ca_file: str = "") -> Origin:
        """Take it from an http or https URL; :raises ValueError: for another."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("an http:// or https:// URL with a host is needed")
        return cls(parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80), ca_file)

    @property
    def authority(self) -> bytes:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = self.port == (443 if self.scheme == "https" else 80)
        return (host if default else f"{host}:{self.port}").encode("idna" if not host.isascii() else "ascii")


@dataclass(frozen=True, slots=True)
class Timers:
    """Patience in seconds; 0 is without end. ``total`` counts from the request to the answer's last byte."""

    connect: float = 5.0
    first_byte: float = 600.0
    gap: float = 300.0
    total: float = 0.0


class Answer(Protocol):
    """What a request's answer is told to. After ``ended`` or ``failed`` nothing more comes."""

    def head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Status and headers; names in lower case."""

    def block(self, data: bytes) -> None:
        """What one socket read held of the body, decoded."""

    def ended(self) -> None:
        """The body is whole."""

    def failed(self, failure: Failure) -> None:
        """``upstream_connect``, ``upstream_timeout`` or ``upstream_error``."""


class Call:
    """One request under way: what its maker may still do with it."""

    __slots__ = (
        "_client",
        "answer",
        "connecting",
        "connection",
        "data",
        "deadline_total",
        "paused",
        "timers",
    )

    def __init__(self, client: Client, data: bytes, answer: Answer, timers: Timers) -> None:
        self._client = client
        self.connecting: Deferred[Any] | None = None
        self.data = data
        self.answer: Answer | None = answer
        self.timers = timers
        self.connection: Connection | None = None
        self.paused = False
        self.deadline_total = client.clock.seconds() + timers.total if timers.total else NEVER

    def pause(self) -> None:
        """Stop reading; the backend feels it through its socket."""
        self.paused = True
        if self.connection is not None:
            self.connection.pause()

    def resume(self) -> None:
        """Read again."""
        self.paused = False
        if self.connection is not None:
            self.connection.resume()

    def cancel(self) -> None:
        """Nobody wants the answer any more: close the connection at once."""
        self.answer = None
        if self.connecting is not None:
            self.connecting.cancel()
        if self.connection is not None:
            self.connection.drop()

    def fail(self, failure: Failure) -> None:
        """Tell the answer, once."""
        answer, self.answer = self.answer, None
        if answer is not None:
            answer.failed(failure)


class Connection(TwistedProtocol):
    """One connection to an origin: idle in the pool, or busy with one call."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.call: Call | None = None
        self.deadline = NEVER
        self.reused = False
        self.lost = False
        self._parser: Any = None
        self._blocks: list[bytes] = []
        self._held: list[bytes] = []
        self._inflate: Any = None
        self._answering = self._ended = self._keep = self._paused = self._until_close = False
        self._headers: list[tuple[bytes, bytes]] = []

    def begin(self, call: Call) -> None:
        """Send a call's request."""
        self.call, call.connection = call, self
        self._parser = httptools.HttpResponseParser(self)
        self._headers = []
        self._inflate = None
        self._answering = self._ended = self._keep = self._until_close = False
        self._wait(call.timers.first_byte)
        send_now(self.transport, call.data)
        if call.paused:
            self.pause()

    def pause(self) -> None:
        if not self._paused and not self.lost:
            self._paused = True
            self.deadline = self.call.deadline_total if self.call else NEVER
            self.transport.pauseProducing()  # type: ignore[union-attr]

    def resume(self) -> None:
        if not self._paused:
            return
        self._paused = False
        if self.call is not None:
            self._wait(self.call.timers.gap)
        if not self.lost:
            self.transport.resumeProducing()  # type: ignore[union-attr]
        self._deliver()

    def drop(self) -> None:
        """Close at once, without a word to anybody."""
        self.call = None
        self.deadline = NEVER
        if not self.lost:
            self.lost = True
            self.transport.abortConnection()  # type: ignore[union-attr]

    def expired(self) -> None:
        """A timer ran out."""
        call = self.call
        self.drop()
        if call is None:
            return
        what = "did not begin to answer" if not self._answering else "stopped in the middle of its answer"
        if self._client.clock.seconds() >= call.deadline_total:
            what = "took longer than its request_timeout_ms"
        call.fail(Failure("upstream_timeout", f"the backend {what}"))

    def _wait(self, seconds: float) -> None:
        call = self.call
        total = call.deadline_total if call is not None else NEVER
        self.deadline = min(total, self._client.clock.seconds() + seconds) if seconds else total

    # ---- called by llhttp ---------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._answering:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            self._headers = []
            return
        self._answering = True
        headers = self._headers
        names = dict(headers)
        if names.get(b"content-encoding", b"").strip().lower() in (b"gzip", b"x-gzip", b"deflate"):
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
            headers = [h for h in headers if h[0] not in (b"content-encoding", b"content-length")]
        framed = b"content-length" in names or b"transfer-encoding" in names
        self._until_close = not framed and status not in _NO_BODY
        if self.call is not None and self.call.answer is not None:
            self.call.answer.head(status, headers)

    def on_body(self, data: bytes) -> None:
        self._blocks.append(data)

    def on_message_complete(self) -> None:
        if self._answering:
            self._ended = True
            self._keep = self._parser.should_keep_alive()

    # ---- the body, as far as it may flow ------------------------------------------------------------------------

    def _take(self, call: Call, data: bytes) -> None:
        """Take what a read brought of the body: straight on, nearly always."""
        self._blocks = []
        if self._inflate is None and not self._held and not self._paused and call.answer is not None:
            call.answer.block(data)
        else:
            self._held.append(data)

    def _deliver(self) -> None:
        """Hand over what has come, unless paused; then the end, if it has come too."""
        call = self.call
        while self._held and not self._paused and call is not None and call.answer is not None:
            data = self._next_block()
            if data:
                call.answer.block(data)
        if call is not None and self._ended and not self._held and not self._paused:
            self._finish(call)

    def _next_block(self) -> bytes:
        data = self._held.pop(0)
        if self._inflate is None:
            return data
        try:
            made: bytes = self._inflate.decompress(data, _INFLATE_PIECE)
        except zlib.error:
            raise Failure("upstream_error", "the backend's compressed answer is damaged") from None
        if self._inflate.unconsumed_tail:
            self._held.insert(0, self._inflate.unconsumed_tail)
        return made

    def _finish(self, call: Call) -> None:
        if self._inflate is not None and not self._inflate.eof:
            self._break(Failure("upstream_error", "the backend's compressed answer is cut short"))
            return
        self.call, call.connection = None, None
        answer, call.answer = call.answer, None
        self._client.free(self, keep=self._keep and not self.lost)
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
            cause = error.__context__
            if isinstance(error, httptools.HttpParserCallbackError) and not isinstance(cause, Failure):
                self._break(Failure("internal", "the answer could not be taken"))
                raise
            if not self._ended:
                self._break(Failure("upstream_error", "the backend's answer is not well-formed HTTP"))
                return
            self._keep = False  # bytes after the end
        if self.call is None:
            return
        try:
            if self._blocks:
                self._take(call, self._blocks[0] if len(self._blocks) == 1 else b"".join(self._blocks))
            if self._ended or self._held:
                self._deliver()
            elif not self._paused:
                self._wait(call.timers.gap if self._answering else call.timers.first_byte)
        except Failure as failure:
            self._break(failure)

    def connectionLost(self, reason: Any = None) -> None:
        self.lost = True
        self._client.gone(self)
        call = self.call
        if call is None:
            return
        if self._until_close and self._answering and reason is not None and reason.check(ConnectionDone):
            self._ended, self._keep = True, False
            self._deliver()
            return
        if self._ended:
            self._keep = False
            return  # whole, but paused: the end comes with resume()
        untouched = not self._answering and not self._headers
        self.call, call.connection = None, None
        if self.reused and untouched and call.answer is not None:
            self._client.dial(call)  # the one repetition of a call that met a stale connection
            return
        call.fail(
            Failure(
                "upstream_error",
                "the backend closed the connection in the middle of its answer"
                if self._answering
                else "the backend closed the connection without an answer",
            )
        )


class Client:
    """Makes calls to one origin, over connections kept for a while.

    :param reactor: dials, and is the clock of every timer.
    :param max_connections: at most so many at a time; calls beyond that wait their turn.
    :param max_idle: at most so many idle ones.
    :param idle_timeout: how long an idle one is kept, in seconds: below the 5 s of common backends.
    """

    def __init__(
        self,
        reactor: Any,
        origin: Origin,
        *,
        max_connections: int = 1024,
        max_idle: int = 256,
        idle_timeout: float = 4.0,
    ) -> None:
        self._reactor = reactor
        self.clock = reactor
        self.sweep = Sweep(reactor)
        self.idle_timeout = idle_timeout
        self._origin = origin
        self._host = b" HTTP/1.1\r\nhost: " + origin.authority + b"\r\n"
        self._max_connections = max_connections
        self._max_idle = max_idle
        self._idle: deque[Connection] = deque()
        self._count = 0
        self._waiting: deque[Call] = deque()
        self._endpoint: IStreamClientEndpoint | None = None
        self._open: set[Connection] = set()

    def request(
        self,
        method: str,
        target: str,
        headers: RawHeaders,
        body: bytes,
        answer: Answer,
        timers: Timers = Timers(),
    ) -> Call:
        """Ask; ``headers`` without Host and framing. The answer may fail before this returns."""
        lines = [f"{method} {target}".encode("ascii"), self._host]
        lines += [b"%b: %b\r\n" % header for header in headers]
        if body or method not in ("GET", "HEAD"):
            lines.append(b"content-length: %d\r\n\r\n" % len(body))
        else:
            lines.append(b"\r\n")
        lines.append(body)
        call = Call(self, b"".join(lines), answer, timers)
        self._place(call)
        return call

    def close(self) -> None:
        """Drop every connection; what is under way fails."""
        for connection in list(self._open):
            call = connection.call
            connection.drop()
            if call is not None:
                call.fail(Failure("upstream_error", "the gateway is stopping"))

    # ---- connections --------------------------------------------------------------------------------------------

    def _place(self, call: Call) -> None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.lost:
                connection.reused = True
                connection.begin(call)
                return
        if self._count < self._max_connections:
            self.dial(call)
        else:
            self._waiting.append(call)

    def dial(self, call: Call) -> None:
        """Take a call to a fresh connection."""
        self._count += 1
        try:
            endpoint = self._endpoint = self._endpoint or self._make_endpoint()
        except (OSError, ValueError, SSL.Error):
            self._uncount()
            call.fail(Failure("upstream_connect", "the backend's trust file cannot be used"))
            return
        factory = Factory.forProtocol(lambda: Connection(self))
        factory.noisy = False
        connecting = endpoint.connect(factory)
        if call.timers.connect:
            connecting.addTimeout(call.timers.connect, self._reactor)
        call.connecting = connecting
        connecting.addCallbacks(self._dialled, self._undialled, (call,), errbackArgs=(call,))

    def _dialled(self, protocol: Any, call: Call) -> None:
        call.connecting = None
        connection: Connection = protocol
        self._open.add(connection)
        self.sweep.add(connection)
        if call.answer is None:
            self.free(connection, keep=True)
        elif connection.lost:
            call.fail(Failure("upstream_connect", "the backend closed the connection at once"))
        else:
            connection.begin(call)

    def _undialled(self, reason: TwistedFailure, call: Call) -> None:
        call.connecting = None
        self._uncount()
        if call.answer is None:
            return
        if reason.check(ConnectTimeout, CancelledError, DeferredTimeout):
            call.fail(Failure("upstream_connect", "the backend did not take the connection in time", http_status=504))
        elif reason.check(SSL.Error):
            call.fail(Failure("upstream_connect", "the backend's TLS certificate was refused"))
        elif reason.check(DNSLookupError):
            call.fail(Failure("upstream_connect", "the backend's name is not known"))
        elif reason.check(ConnectError, OSError):
            call.fail(Failure("upstream_connect", "the backend refused the connection"))
        else:
            call.fail(Failure("upstream_connect", "the backend could not be reached"))

    def _make_endpoint(self) -> IStreamClientEndpoint:
        origin = self._origin
        plain = HostnameEndpoint(self._reactor, origin.host, origin.port, timeout=_LONGEST_DIAL)
        if origin.scheme != "https":
            return plain
        trust = None
        if origin.ca_file:
            with open(origin.ca_file, "rb") as file:
                trust = trustRootFromCertificates(_certificates(file.read()))
        secured: IStreamClientEndpoint = wrapClientTLS(optionsForClientTLS(origin.host, trustRoot=trust), plain)
        return secured

    def free(self, connection: Connection, *, keep: bool) -> None:
        """A call has ended on a connection."""
        if keep and self._waiting and (call := _next_wanted(self._waiting)) is not None:
            connection.reused = True
            connection.begin(call)
        elif keep and len(self._idle) < self._max_idle:
            connection.deadline = self.clock.seconds() + self.idle_timeout
            self._idle.append(connection)
        else:
            connection.transport.loseConnection()  # type: ignore[union-attr]

    def gone(self, connection: Connection) -> None:
        """A connection is lost."""
        if connection in self._open:
            self._open.discard(connection)
            self.sweep.discard(connection)
            if connection in self._idle:
                self._idle.remove(connection)
        self._uncount()

    def _uncount(self) -> None:
        self._count -= 1
        if self._waiting and (call := _next_wanted(self._waiting)) is not None:
            self.dial(call)


def _next_wanted(waiting: deque[Call]) -> Call | None:
    while waiting:
        call = waiting.popleft()
        if call.answer is not None:
            return call
    return None


def _certificates(text: bytes) -> list[Certificate]:
    end = b"-----END CERTIFICATE-----"
    return [Certificate.loadPEM(part + end) for part in text.split(end)[:-1]]
