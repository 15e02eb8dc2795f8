"""A small document, asked for and collected."""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import Deferred

from iop.errors import Failure
from iop.http.client import Call, Client, RawHeaders, Timers

LARGEST: Final = 4 << 20
PATIENCE: Final = Timers(connect=5.0, first_byte=5.0, gap=5.0, total=10.0)


def fetch(
    client: Client,
    method: str,
    target: str,
    headers: RawHeaders = (),
    body: bytes = b"",
    timers: Timers = PATIENCE,
    largest: int = LARGEST,
) -> Deferred[tuple[int, bytes]]:
    """Ask; fires with status and body, fails with :class:`Failure`: as the client's, or ``answer_too_large``."""
    collected = _Collected(largest)
    collected.call = client.request(method, target, headers, body, collected, timers)
    return collected.done


class _Collected:
    def __init__(self, largest: int) -> None:
        self.call: Call | None = None
        self._largest = largest
        self._status = 0
        self._body = bytearray()
        self.done: Deferred[tuple[int, bytes]] = Deferred(lambda _: self._cancel())

    def _cancel(self) -> None:
        if self.call is not None:
            self.call.cancel()

    def head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._status = status

    def block(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > self._largest:
            self._cancel()
            self.done.errback(Failure("answer_too_large", "the document is larger than expected"))

    def ended(self) -> None:
        self.done.callback((self._status, bytes(self._body)))

    def failed(self, failure: Failure) -> None:
        self.done.errback(failure)
