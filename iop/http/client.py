"""An HTTP/1.1 client for one origin: its connections, kept for a while, and who gets which.

``Agent`` costs 9 to 18 times more on a gateway's path and does not repeat a POST that met a dead pooled connection
(``docs/decisions/0002-own-http.md``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure as TwistedFailure

from iop.errors import Failure
from iop.http.call import Answer, Call, Timers
from iop.http.origin import LONGEST_DIAL, Origin, not_connected
from iop.http.upstream import Connection, SecuredConnection
from iop.services import Sweep
from iop.sockets import verify_name

__all__ = ["Answer", "Call", "Client", "Connection", "Origin", "Timers"]

RawHeaders = Iterable[tuple[bytes, bytes]]

_PATIENCE: Final = Timers()


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
        self._dialling: set[Call] = set()
        self._closed = False

    def request(
        self,
        method: str,
        target: str,
        headers: RawHeaders,
        body: bytes,
        answer: Answer,
        timers: Timers = _PATIENCE,
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
        if self._closed:
            call.fail(_stopping())
        else:
            self._place(call)
        return call

    def close(self) -> None:
        """Drop every connection; what is under way fails."""
        self._closed = True
        calls = [*self._waiting, *self._dialling]
        for connection in list(self._open):
            if connection.call is not None:
                calls.append(connection.call)
            else:
                connection.drop()
        for call in calls:
            answer = call.answer
            call.cancel()
            if answer is not None:
                answer.failed(_stopping())

    def forget(self, call: Call) -> None:
        """A call waits for a connection no more."""
        if call in self._waiting:
            self._waiting.remove(call)
            self.sweep.discard(call)

    # ---- connections --------------------------------------------------------------------------------------------

    def _place(self, call: Call) -> None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.lost:
                connection.reused = True
                connection.begin(call)
                return
        if self._count < self._max_connections:
            self._dial(call)
        else:
            wait = call.timers.first_byte
            call.deadline = min(call.deadline_total, self.clock.seconds() + wait) if wait else call.deadline_total
            self._waiting.append(call)
            self.sweep.add(call)

    def _dial(self, call: Call) -> None:
        self._count += 1
        try:
            endpoint = self._endpoint = self._endpoint or self._origin.endpoint(self._reactor)
        except Failure as failure:
            self._count -= 1
            call.fail(failure)
            return
        secure = self._origin.scheme == "https"
        factory = Factory.forProtocol(lambda: (SecuredConnection if secure else Connection)(self))
        factory.noisy = False
        connecting: Deferred[Any] = endpoint.connect(factory)
        if secure:
            connecting.addCallback(lambda connection: connection.secured)
        patience = min(call.timers.connect or LONGEST_DIAL, call.deadline_total - self.clock.seconds())
        connecting.addTimeout(max(patience, 0), self._reactor)
        call.connecting = connecting
        self._dialling.add(call)
        connecting.addCallbacks(self._dialled, self._undialled, (call,), errbackArgs=(call,))

    def _dialled(self, connection: Connection, call: Call) -> None:
        call.connecting = None
        self._dialling.discard(call)
        if connection.lost:
            self._count -= 1
            call.fail(Failure("upstream_connect", "the backend closed the connection at once"))
            self._serve_next()
            return
        self._open.add(connection)
        self.sweep.add(connection)
        if call.answer is None:
            self.free(connection, keep=True)
        else:
            connection.begin(call)

    def _undialled(self, reason: TwistedFailure, call: Call) -> None:
        call.connecting = None
        self._dialling.discard(call)
        self._count -= 1
        call.fail(not_connected(reason))
        self._serve_next()

    def verify(self, secured: Any) -> None:
        """Check that a TLS backend is the one that was dialled."""
        verify_name(secured, self._origin.host)

    def free(self, connection: Connection, *, keep: bool) -> None:
        """A call has ended on a connection."""
        keep = keep and not self._closed
        if keep and self._waiting:
            connection.reused = True
            connection.begin(self._next_waiting())
        elif keep and len(self._idle) < self._max_idle:
            connection.deadline = self.clock.seconds() + self.idle_timeout
            self._idle.append(connection)
        else:
            connection.retire()

    def gone(self, connection: Connection, again: Call | None = None) -> None:
        """A connection is lost; ``again`` is the call that it should have carried."""
        if connection not in self._open:
            return  # it never was one
        self._open.discard(connection)
        self.sweep.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._count -= 1
        if again is not None:
            self._dial(again)
        else:
            self._serve_next()

    def _serve_next(self) -> None:
        if self._waiting and self._count < self._max_connections:
            self._dial(self._next_waiting())

    def _next_waiting(self) -> Call:
        call = self._waiting.popleft()
        self.sweep.discard(call)
        return call


def _stopping() -> Failure:
    return Failure("upstream_error", "the gateway is stopping")
