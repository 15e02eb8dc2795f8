"""One request and its answer, as an application of the server sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final, Protocol

from iop.errors import Failure
from iop.sockets import Outlet

RawHeaders = Iterable[tuple[bytes, bytes]]

STATUS_LINES: Final = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}
_NO_BODY: Final = frozenset({204, 304})
_PIECES: Final = 256


class Application(Protocol):
    """What answers. Each method may answer the exchange at once, later, or leave it to the next."""

    def admit(self, exchange: Exchange) -> None:
        """The head is there; an answer now refuses the body."""

    def handle(self, exchange: Exchange) -> None:
        """The whole request is there."""

    def refuse(self, exchange: Exchange, failure: Failure) -> None:
        """The request broke a rule of HTTP or a limit: answer ``failure`` in the surface's shape."""


class Dated(Protocol):
    """What knows the time."""

    def date(self) -> bytes:
        """The Date header of this second."""


class Carrier(Protocol):
    """What an exchange needs of its connection."""

    closing: bool
    outlet: Outlet

    @property
    def factory(self) -> Dated:
        """Whose connection it is."""

    def send(self, data: bytes) -> bool:
        """Write; return whether the kernel has taken everything."""

    def waits(self) -> None:
        """Bytes wait for the client: what :meth:`send` says by itself."""

    def answered(self, exchange: Exchange) -> None:
        """The answer is written."""

    def abort(self) -> None:
        """Break the connection now."""


def _nothing() -> None:
    pass


class Exchange:
    """One request and its answer.

    :ivar target: as sent, path and query.
    :ivar headers: by name in lower case; ``repeated`` names those that stood more than once.
    :ivar parsed: the head is whole and in order.
    :ivar complete: so is the body.
    :ivar context: the application's own.
    :ivar on_gone: called once if the client leaves, or is cut, before the answer is finished.
    :ivar on_drained: called when the client has taken everything after a :meth:`write` that returned False.
    """

    __slots__ = (
        "_body",
        "_chunked",
        "_connection",
        "_silent",
        "_unsent",
        "admitted",
        "body_size",
        "complete",
        "context",
        "failure",
        "finished",
        "handled",
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

    def __init__(self, connection: Carrier) -> None:
        self._connection = connection
        self.method = b""
        self.target = b""
        self.version = "1.1"
        self.headers: dict[bytes, bytes] = {}
        self.repeated: frozenset[bytes] = frozenset()
        self._body: list[bytes | bytearray] = []
        self.body_size = 0
        self.keep_alive = False
        self.parsed = self.complete = self.admitted = self.handled = self.started = self.finished = False
        self._chunked = self._silent = False
        self._unsent = b""
        self.context: Any = None
        self.failure: Failure | None = None
        self.on_gone: Callable[[], None] = _nothing
        self.on_drained: Callable[[], None] = _nothing

    # ---- the request --------------------------------------------------------------------------------------------

    @property
    def body(self) -> bytes:
        """What has come of the body."""
        if len(self._body) != 1 or isinstance(self._body[0], bytearray):
            self._body = [b"".join(self._body)]
        return self._body[0]  # type: ignore[return-value]

    @property
    def path(self) -> bytes:
        """The target without its query, and without scheme and authority if it came with them."""
        path = self.target.partition(b"?")[0]
        if path[:1] != b"/" and b"://" in path:
            return b"/" + path.partition(b"://")[2].partition(b"/")[2]
        return path

    def header(self, name: bytes) -> bytes | None:
        """Return a header, given in lower case; one that stands more than once is joined by commas."""
        return self.headers.get(name)

    def took(self, data: bytes) -> None:
        """Take a piece of the body."""
        body = self._body
        body.append(data)
        self.body_size += len(data)
        if len(body) > _PIECES:  # of many small pieces, a list weighs many times the body
            whole = body[0] if isinstance(body[0], bytearray) else bytearray(body[0])
            whole += b"".join(body[1:])
            self._body = [whole]

    # ---- the answer ---------------------------------------------------------------------------------------------

    def respond(self, status: int, headers: RawHeaders, body: bytes) -> None:
        """Answer whole."""
        if self.started:
            return
        self.started = True
        if status in _NO_BODY:
            answer = self._head(status, headers, b"")
        else:
            answer = self._head(status, headers, b"content-length: %d\r\n" % len(body))
            if self.method != b"HEAD":
                answer += body
        self._connection.send(answer)
        self._end()

    def start(self, status: int, headers: RawHeaders) -> None:
        """Begin an answer of unknown length; its head goes out with the first piece.

        What is written to a ``HEAD`` request, or with a status that has no body, goes nowhere.
        """
        if self.started:
            return
        self.started = True
        chunked = self.version == "1.1" and status not in _NO_BODY
        if self.version != "1.1":
            self.keep_alive = False
        self._unsent = self._head(status, headers, b"transfer-encoding: chunked\r\n" if chunked else b"")
        self._silent = self.method == b"HEAD" or status in _NO_BODY
        self._chunked = chunked and not self._silent

    def write(self, data: bytes) -> bool:
        """Send a piece; return whether the client's socket took all that was ever written."""
        if self.finished or not data:
            return True
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        elif self._silent:
            return True
        if self._unsent:
            data, self._unsent = self._unsent + data, b""
        connection = self._connection
        if connection.outlet.write(data):
            return True
        connection.waits()
        return False

    def finish(self) -> None:
        """The answer is whole."""
        if self.finished or not self.started:
            return
        if self._chunked:
            self._unsent += b"0\r\n\r\n"
        if self._unsent:
            self._connection.send(self._unsent)
        self._end()

    def abort(self) -> None:
        """Break the connection: half an answer must not look whole."""
        if not self.finished:
            self._over()
            self._connection.abort()

    def gone(self) -> None:
        """The connection is lost; whatever the application does now goes nowhere."""
        if not self.finished:
            on_gone = self.on_gone
            self._over()
            on_gone()

    def _end(self) -> None:
        self._over()
        self._connection.answered(self)

    def _over(self) -> None:
        self.started = self.finished = True
        self.on_gone = self.on_drained = _nothing

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
