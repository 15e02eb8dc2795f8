"""``GET /metrics``: what Prometheus scrapes, on a listener of its own and without a token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from iop.edge.metrics.recorder import Metrics
from iop.errors import Failure
from iop.http.server import Exchange, Limits

LIMITS: Final = Limits(body=1 << 10)

_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
_PATH: Final = b"/metrics"
_METHODS: Final = (b"GET", b"HEAD")


class MetricsPage:
    """Shows metrics; an :class:`iop.http.server.Application`.

    :param elsewhere: calls something that takes long and returns a Deferred of what it returns: of many models the
        text takes a tenth of a second, which no stream should wait for.
    """

    log = Logger()

    def __init__(self, metrics: Metrics, elsewhere: Callable[..., Deferred[Any]]) -> None:
        self._metrics = metrics
        self._elsewhere = elsewhere

    # ---- iop.http.server.Application ----------------------------------------------------------------------------

    def admit(self, exchange: Exchange) -> None:
        """Refuse what is not there before its body comes."""
        if exchange.path != _PATH:
            self.refuse(exchange, Failure("unknown_url", "the metrics are at /metrics"))
        elif exchange.method not in _METHODS:
            self.refuse(exchange, Failure("method_not_allowed", "use GET here"))

    def handle(self, exchange: Exchange) -> None:
        """Answer with the metrics, as text of the kind that is asked for."""
        accept = (exchange.header(b"accept") or b"").decode("latin-1")

        def shown(answer: tuple[bytes, str]) -> None:
            text, content_type = answer
            exchange.respond(200, [(b"content-type", content_type.encode("latin-1"))], text)

        def failed(reason: Any) -> None:
            self.log.failure("the metrics could not be shown", failure=reason)
            self.refuse(exchange, Failure("internal", "the metrics could not be shown"))

        self._metrics.look()
        self._elsewhere(self._metrics.exposition, accept).addCallback(shown).addErrback(failed)

    def refuse(self, exchange: Exchange, failure: Failure) -> None:
        """Answer with an error, for people."""
        headers = [_TEXT]
        if failure.code == "method_not_allowed":
            headers.append((b"allow", b", ".join(_METHODS)))
        exchange.respond(failure.http_status, headers, failure.message.encode() + b"\n")
