"""One request to a backend, as its maker sees it: its patience, its answer, and what may still be done with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from iop.errors import Failure
from iop.services import NEVER


@dataclass(frozen=True, slots=True)
class Timers:
    """Patience in seconds; 0 is without end.

    ``connect`` includes TLS; ``first_byte`` is for the answer's head, and for a connection to come free before that;
    ``total`` counts from the request to the answer's last byte.
    """

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
        """``upstream_connect``, ``upstream_busy``, ``upstream_timeout`` or ``upstream_error``."""


class Carrier(Protocol):
    """What a call needs of the connection it is on."""

    def pause(self) -> None:
        """Hand nothing over."""

    def resume(self) -> None:
        """Hand over again."""

    def drop(self) -> None:
        """Close at once, without a word to anybody."""


class Maker(Protocol):
    """What a call needs of its client."""

    clock: IReactorTime

    def forget(self, call: Call) -> None:
        """It waits for a connection no more."""


class Call:
    """One request under way: what its maker may still do with it.

    :ivar framed: whether HTTP says where the answer's body ends; else only the connection's end does.
    """

    __slots__ = (
        "_client",
        "answer",
        "connecting",
        "connection",
        "data",
        "deadline",
        "deadline_total",
        "framed",
        "paused",
        "timers",
    )

    def __init__(self, client: Maker, data: bytes, answer: Answer, timers: Timers) -> None:
        self._client = client
        self.connecting: Deferred[Any] | None = None
        self.data = data
        self.answer: Answer | None = answer
        self.timers = timers
        self.connection: Carrier | None = None
        self.paused = False
        self.framed = True
        self.deadline = NEVER
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
        if self.connection is not None:
            self.connection.drop()
        elif self.connecting is not None:
            self.connecting.cancel()
        else:
            self._client.forget(self)

    def fail(self, failure: Failure) -> None:
        """Tell the answer, once."""
        answer, self.answer = self.answer, None
        if answer is not None:
            answer.failed(failure)

    def expired(self) -> None:
        """No connection came free in time."""
        self._client.forget(self)
        self.fail(Failure("upstream_busy", "the backend had no free connection in time", http_status=504))
