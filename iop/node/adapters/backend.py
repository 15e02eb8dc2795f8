"""The server behind an adapter, as its settings name it: where it is, and what goes with every request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure as TwistedFailure

from iop import model as m
from iop.errors import Failure
from iop.http.client import Answer, Call, Client, Origin, Timers
from iop.http.fetch import fetch
from iop.node.adapters import urls
from iop.settings import Schema, chosen

UNTIMED: Final = Timers(connect=0, first_byte=0, gap=0)
"""Of a check: whoever asked for it knows how long to wait."""


class Backend:
    """One server over HTTP.

    :param settings: of the adapter; :raises Failure: ``invalid_value`` when they cannot work.
    :param schema: of the settings, for their defaults.
    :ivar timers: how long a run may wait.
    """

    def __init__(self, settings: Mapping[str, Any], schema: Schema, reactor: Any) -> None:
        value = partial(chosen, settings, schema)
        self.base_url: str = value("base_url")
        try:
            origin = Origin.of(self.base_url, value("ca_file") or "")
        except ValueError as error:
            raise Failure("invalid_value", f"base_url: {error}") from None
        self._headers = urls.credentials(self.base_url) | _encoded(value("headers").items())
        if b"host" in self._headers:
            raise Failure("invalid_value", "headers: the host is that of base_url")
        self.timers = Timers(
            connect=value("connect_timeout_ms") / 1000,
            first_byte=value("first_byte_timeout_ms") / 1000,
            gap=value("gap_timeout_ms") / 1000,
            total=value("request_timeout_ms") / 1000,
        )
        maximum = value("max_connections")
        self._clock = reactor
        self._client = Client(reactor, origin, max_connections=maximum, max_idle=min(256, maximum))
        # a check and a list of models beside it: they do not wait until a run leaves them a connection
        self._checking = Client(reactor, origin, max_connections=2, max_idle=1)

    def close(self) -> None:
        """Drop every connection; what is under way fails."""
        self._client.close()
        self._checking.close()

    def timing(self) -> Callable[[], Timers]:
        """A run begins: return what gives the timers of its next attempt. The longest time is of all of them."""
        if not self.timers.total:
            return lambda: self.timers
        end = self._clock.seconds() + self.timers.total
        return lambda: replace(self.timers, total=max(end - self._clock.seconds(), 0.001))

    def send(
        self,
        request: m.RunRequest,
        method: str,
        target: str,
        body: bytes,
        answer: Answer,
        timers: Timers | None = None,
    ) -> Call:
        """Ask on behalf of a run: its caller's headers, under the configured ones, under those of this run alone.

        :param timers: instead of the configured ones, for what is left of a run's time.
        """
        headers = {b"content-type": b"application/json", b"accept-encoding": b"identity"}
        if request.http is not None:
            for name, value in request.http.headers:
                headers[name.encode("latin-1")] = value.encode("latin-1", "replace")
        else:
            headers.update(_trace(request.metadata))
        headers.update(self._headers)
        if request.secret_headers:
            headers.update(_encoded(request.secret_headers))
        return self._client.request(method, target, headers.items(), body, answer, timers or self.timers)

    def listed(self, target: str, names: Callable[[bytes], list[str]]) -> Deferred[list[str]]:
        """Return the names in a small document; none where it is refused. Fails as :func:`iop.http.fetch.fetch`."""
        asked = fetch(self._checking, "GET", target, self._headers.items())
        return asked.addCallback(lambda got: names(got[1]) if got[0] == 200 else [])

    def probe(self, target: str, refused: int = 500) -> Deferred[m.Health]:
        """Return how it is: up when it answers, with a status below ``refused``. Fails only when it is cancelled."""

        def unanswered(reason: TwistedFailure) -> m.Health:
            failure = reason.value
            if not isinstance(failure, Failure):  # a cancelled check: that backend is silent, not down
                reason.raiseException()
            return m.Health.UP if failure.code == "answer_too_large" else m.Health.DOWN

        asked = fetch(self._checking, "GET", target, self._headers.items(), timers=UNTIMED)
        return asked.addCallbacks(lambda got: m.Health.DOWN if got[0] >= refused else m.Health.UP, unanswered)


def _trace(metadata: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return the trace that a run without HTTP belongs to, as headers: never what could end one."""
    said = {name: metadata.get(name, "") for name in m.TRACE}
    return {name.encode(): value.encode() for name, value in said.items() if _is_line(value)}


def _is_line(value: str) -> bool:
    return bool(value) and value.isascii() and value.isprintable()


def _encoded(headers: Any) -> dict[bytes, bytes]:
    return {name.lower().encode("latin-1"): value.encode("latin-1", "replace") for name, value in headers}
