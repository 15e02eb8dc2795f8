"""The console: what operators ask a running edge, as HTTP and JSON over a Unix socket of their own.

``docs/contracts/console.md``. Whoever can open the socket may do everything: its file mode is the only gate.
"""

from __future__ import annotations

import json
import os.path
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger

from iop.edge.refresh import RefreshMode
from iop.edge.refresh.apply import Refresher
from iop.errors import Failure
from iop.http.server import Exchange, Limits

LIMITS: Final = Limits(body=1 << 20)

_JSON: Final = (b"content-type", b"application/json")

_RUNS: Final = b"/v1/runs/"
_NODES: Final = b"/v1/nodes/"

Handler = Callable[[Exchange], None]

Show = Callable[[], dict[str, Any]]


class RefreshAsked(NamedTuple):
    """The body of a refresh request."""

    mode: str = RefreshMode.DRY_RUN
    files: Sequence[str] = ()

    @classmethod
    def parse(cls, body: bytes) -> RefreshAsked:
        """Read it; :raises Failure: for what it may not hold. Whether the mode is known, the refresh says."""
        try:
            document = json.loads(body or b"{}")
        except (ValueError, RecursionError):
            raise Failure("invalid_json", "the body must be JSON") from None
        if not isinstance(document, Mapping) or document.keys() - {"mode", "files"}:
            raise Failure("invalid_value", "the body is an object of `mode` and `files`")
        mode, files = document.get("mode", RefreshMode.DRY_RUN), document.get("files") or ()
        if not isinstance(mode, str):
            raise Failure("invalid_value", "`mode` is dry_run or apply")
        if not isinstance(files, list | tuple) or not all(map(_is_absolute, files)):
            raise Failure("invalid_value", "`files` is a list of absolute paths")
        return cls(mode, tuple(files))


def _is_absolute(path: Any) -> bool:
    return isinstance(path, str) and os.path.isabs(path) and "\0" not in path


class Console:
    """Answers operators; an :class:`iop.http.server.Application`.

    :param status: what the edge is doing now.
    :param pool: how its pool is.
    :param explain: the story of a run, by its id or that of its request.
    :param query: asks a node, by its id and the query's word; returns a Deferred of its report.
    :param usage: sums what runs used, by the words ``since``, ``until`` and ``by``; returns a Deferred of a document.
    :param end_session: ends a session, by its node, adapter and name; returns a Deferred of whether there was one.
    """

    log = Logger()

    def __init__(
        self,
        status: Callable[[], Any],
        pool: Show,
        explain: Callable[[str], Any],
        query: Callable[[str, str], Deferred[dict[str, Any]]],
        end_session: Callable[[str, str, str], Deferred[dict[str, Any]]],
        refresher: Refresher,
        usage: Callable[[str, str, str], Deferred[dict[str, Any]]],
    ) -> None:
        self._status = status
        self._pool = pool
        self._explain = explain
        self._query = query
        self._end_session = end_session
        self._refresher = refresher
        self._usage = usage
        self._routes: Mapping[bytes, tuple[bytes, Handler]] = {
            b"/v1/status": (b"GET", self._show_status),
            b"/v1/pool": (b"GET", self._show_pool),
            b"/v1/usage": (b"GET", self._show_usage),
            _RUNS: (b"GET", self._show_run),
            _NODES: (b"GET", self._show_node),
            b"/v1/config/refresh": (b"POST", self._refresh),
            b"/v1/sessions/end": (b"POST", self._end),
        }

    # ---- iop.http.server.Application ----------------------------------------------------------------------------

    def admit(self, exchange: Exchange) -> None:
        """Find what is asked for, or answer that there is no such thing."""
        path = exchange.path
        route = self._routes.get(next((start for start in (_RUNS, _NODES) if path.startswith(start)), path))
        if route is None:
            self.refuse(exchange, Failure("unknown_url", "there is nothing here"))
        elif exchange.method != route[0]:
            self.refuse(exchange, Failure("method_not_allowed", f"use {route[0].decode()} here"))
        else:
            exchange.context = route[1]

    def handle(self, exchange: Exchange) -> None:
        """Answer."""
        handler: Handler = exchange.context
        try:
            handler(exchange)
        except Failure as failure:
            self.refuse(exchange, failure)

    def refuse(self, exchange: Exchange, failure: Failure) -> None:
        """Answer with an error."""
        _answer(exchange, failure.http_status, {"error": {"code": failure.code, "message": failure.message}})

    # ---- the endpoints ------------------------------------------------------------------------------------------

    def _show_status(self, exchange: Exchange) -> None:
        self._answer_later(exchange, maybeDeferred(self._status), "the status could not be made")

    def _show_pool(self, exchange: Exchange) -> None:
        _answer(exchange, 200, self._pool())

    def _show_usage(self, exchange: Exchange) -> None:
        asked = self._usage(*_question(exchange.target))
        self._answer_later(exchange, asked, "the usage could not be summed")

    def _show_run(self, exchange: Exchange) -> None:
        found = self._explain(unquote(exchange.path[len(_RUNS) :].decode("latin-1")))
        if found is None:
            raise Failure("unknown_url", "nobody remembers such a run")
        _answer(exchange, 200, found)

    def _show_node(self, exchange: Exchange) -> None:
        node_id, _, type = exchange.path[len(_NODES) :].decode("latin-1").rpartition("/")
        asked = self._query(unquote(node_id), unquote(type))
        self._answer_later(exchange, asked, "the node could not be asked")

    def _end(self, exchange: Exchange) -> None:
        """It goes on when the client leaves."""
        asked = self._end_session(*_session(exchange.body))
        self._answer_later(exchange, asked, "the session could not be ended")

    def _refresh(self, exchange: Exchange) -> None:
        """It goes on when the client leaves."""
        asked = RefreshAsked.parse(exchange.body)
        refreshed = Deferred.fromCoroutine(self._refresher.refresh(asked.mode, asked.files, "console"))
        refreshed.addCallback(lambda result: result.as_document())
        self._answer_later(exchange, refreshed, "the refresh failed inside the edge")

    def _answer_later(self, exchange: Exchange, document: Deferred[Any], trouble: str) -> None:
        """Answer with a document when it is there; with an error that says ``trouble`` when something broke."""

        def failed(reason: Any) -> None:
            failure = reason.value
            if not isinstance(failure, Failure):
                self.log.failure("{trouble}", failure=reason, trouble=trouble)
                failure = Failure("internal", trouble)
            if not exchange.finished:
                self.refuse(exchange, failure)

        document.addCallback(lambda found: _answer(exchange, 200, found)).addErrback(failed)


def _question(target: bytes) -> tuple[str, str, str]:
    """Read what of the usage is asked for; :raises Failure:."""
    words = target.partition(b"?")[2].decode("latin-1")
    try:
        asked = parse_qsl(words, keep_blank_values=True, max_num_fields=10)
    except ValueError:
        asked = [("", "")]
    found = dict(asked)
    if found.keys() - {"since", "until", "by"} or len(found) < len(asked):
        raise Failure("invalid_value", "the query has `since`, `until` and `by`, each once")
    return found.get("since", ""), found.get("until", ""), found.get("by", "")


def _session(body: bytes) -> tuple[str, str, str]:
    """Read which session is meant; :raises Failure:."""
    try:
        document = json.loads(body)
        node, adapter, session = (document[name] for name in ("node_id", "adapter", "session_id"))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Failure("invalid_value", "the body is an object of `node_id`, `adapter` and `session_id`") from None
    if not all(isinstance(each, str) and each for each in (node, adapter, session)):
        raise Failure("invalid_value", "`node_id`, `adapter` and `session_id` are texts that are not empty")
    return node, adapter, session


def _answer(exchange: Exchange, status: int, document: Any) -> None:
    if not exchange.finished:
        exchange.respond(status, [_JSON], json.dumps(document).encode())
