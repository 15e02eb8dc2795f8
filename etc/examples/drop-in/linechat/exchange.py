"""One question to the backend and the lines of its answer: a connection of its own, and all that may happen to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.protocol import Factory, connectionDone
from twisted.protocols.basic import LineReceiver
from twisted.protocols.policies import TimeoutMixin
from twisted.python.failure import Failure as TwistedFailure

from iop.errors import Failure

LONGEST_LINE: Final = 8 << 20
"""Bytes of one line of an answer."""


class Exchange(LineReceiver, TimeoutMixin):
    """One question. What a run attaches to its sink: while it is paused, nothing is read.

    :param take: is given each line of the answer; returns whether that was the last. What it raises ends the exchange.
    :param silence: seconds without a line, or without a connection, until it is given up; 0 is never.
    :ivar done: fires with None after the last line, fails with a :class:`Failure`, and may be cancelled. Whichever it
        is, no connection is left.
    """

    delimiter = b"\n"
    MAX_LENGTH = LONGEST_LINE
    transport: Any = None

    def __init__(
        self, question: Mapping[str, Any], take: Callable[[dict[str, Any]], bool], silence: float, reactor: Any
    ) -> None:
        self._question = question
        self._take = take
        self._silence = silence or None
        self._dialling: Deferred[Any] | None = None
        self._over = False
        self._reactor = reactor
        self.done: Deferred[None] = Deferred(lambda _: self._leave())

    def begin(self, endpoint: HostnameEndpoint) -> Exchange:
        """Dial and ask."""
        factory = Factory.forProtocol(lambda: self)
        factory.noisy = False
        self._wait()
        self._dialling = endpoint.connect(factory)
        self._dialling.addCallbacks(self._dialled, self._not_dialled)
        return self

    def end(self, failure: Failure | None = None) -> None:
        """Close the connection: that is how the backend learns that nobody listens."""
        if not self._over:
            self._leave()
            self.done.callback(None) if failure is None else self.done.errback(failure)

    def _leave(self) -> None:
        self._over = True
        self.setTimeout(None)
        if self._dialling is not None:
            self._dialling.cancel()
        if self.transport is not None:
            self.transport.abortConnection()

    def _dialled(self, _: Any) -> None:
        self._dialling = None

    def _not_dialled(self, _: TwistedFailure) -> None:
        self._dialling = None
        self.end(Failure("upstream_connect", "the backend could not be reached"))

    # ---- flow control -------------------------------------------------------------------------------------------

    def pause(self) -> None:
        self.paused = True
        self.setTimeout(None)  # the silence is ours
        if self.transport is not None:
            self.transport.pauseProducing()

    def resume(self) -> None:
        self.paused = False
        if self.transport is not None and not self._over:
            self._wait()
            self.resumeProducing()

    def _wait(self) -> None:
        if not self.paused:
            self.setTimeout(self._silence)

    # ---- Called by Twisted. -------------------------------------------------------------------------------------

    def callLater(self, period: float, func: Callable[[], None]) -> Any:
        return self._reactor.callLater(period, func)

    def connectionMade(self) -> None:
        if self.paused:
            self.transport.pauseProducing()
        self._wait()
        self.sendLine(json.dumps(self._question).encode())

    def lineReceived(self, line: bytes) -> None:
        if self._over:
            return
        self._wait()
        try:
            last = self._take(_document(line))
        except Failure as failure:
            self.end(failure)
        else:
            if last:
                self.end()

    def lineLengthExceeded(self, line: bytes) -> None:
        self.end(Failure("upstream_error", "a line of the backend's answer is too long"))

    def timeoutConnection(self) -> None:
        self.end(Failure("upstream_timeout", "the backend has been silent for too long"))

    def connectionLost(self, reason: TwistedFailure = connectionDone) -> None:
        self.end(Failure("upstream_error", "the backend closed the connection before its answer was whole"))


def _document(line: bytes) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise Failure("upstream_error", "a line of the backend's answer is no JSON object")
    return document
