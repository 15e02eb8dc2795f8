"""The OpenAI-compatible surface: routes, who may use them, and what each answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from iop import model as m
from iop.edge.config import model as config
from iop.edge.pool.estimate import estimate
from iop.edge.runs import Ask, Runs, new_id
from iop.edge.surfaces.openai import codec
from iop.edge.surfaces.openai.answer import ChatAnswer
from iop.edge.surfaces.openai.auth import Gate
from iop.errors import Failure
from iop.http.server import Exchange
from iop.interfaces import IRefreshable

Handler = Callable[[Exchange, "Context"], None]

NOT_SERVED: Final = frozenset(
    (
        b"assistants audio batches completions conversations embeddings files fine_tuning images messages moderations"
        b" realtime rerank responses score threads tokenize uploads vector_stores videos"
    ).split()
)
"""First words of paths under ``/v1`` that clients know from elsewhere."""


@dataclass(slots=True)
class Context:
    """What the surface knows of a request.

    :ivar headers: go with every answer to it.
    """

    request_id: bytes
    headers: codec.RawHeaders
    handler: Handler | None = None
    principal: config.PrincipalToken | None = None
    secret_headers: m.Headers = field(default=(), repr=False)


class Catalog(NamedTuple):
    """The models that clients may ask for: as they are shown, and their thinking budgets in tokens, 0 for none."""

    models: dict[str, dict[str, Any]]
    budgets: dict[str, int]


@implementer(IRefreshable)
class OpenAISurface:
    """Answers OpenAI clients; an :class:`iop.http.server.Application`.

    :param settings: the whole configuration; its ``openai`` section is on.
    """

    def __init__(self, settings: config.EdgeConfig, runs: Runs, clock: IReactorTime) -> None:
        assert settings.openai is not None
        self._runs = runs
        self._gate = Gate(settings.openai)
        self._clock = clock
        self._models: dict[str, dict[str, Any]] = {}
        self._budgets: dict[str, int] = {}
        self.commit(self.prepare(settings))
        self._routes: dict[bytes, dict[bytes, Handler]] = {
            b"/v1/chat/completions": {b"POST": self._chat},
            b"/v1/models": {b"GET": self._list_models},
            b"/v1/models/": {b"GET": self._list_models},
            b"/healthz": {b"GET": self._healthz},
            b"/readyz": {b"GET": self._readyz},
        }
        self._open = (self._healthz, self._readyz)

    # ---- IRefreshable -------------------------------------------------------------------------------------------

    def prepare(self, config: config.EdgeConfig) -> Catalog:
        """Make the model list; a model that stays keeps its time of creation."""
        assert config.openai is not None
        now = int(self._clock.seconds())
        catalog = [(model.id, model.context_window_tokens) for model in config.models]
        catalog += [(route.model, 0) for route in config.openai.model_routes]
        known = self._models
        return Catalog(
            {id: codec.model_object(id, known[id]["created"] if id in known else now, w) for id, w in catalog},
            {model.id: model.default_thinking_token_budget or 0 for model in config.models},
        )

    def commit(self, token: Catalog) -> None:
        """Show it."""
        self._models, self._budgets = token

    def abandon(self, token: Catalog) -> None:
        """Forget it."""

    # ---- iop.http.server.Application ----------------------------------------------------------------------------

    def admit(self, exchange: Exchange) -> None:
        """Find the route and let the request in, or answer why not."""
        context = self._context(exchange)
        try:
            if exchange.method == b"OPTIONS" and exchange.header(b"access-control-request-method") is not None:
                self._preflight(exchange, context)
                return
            context.handler = self._route(exchange, context)
            if context.handler in self._open:
                return
            context.principal = self._gate.admit(exchange.headers, exchange.repeated)
            if exchange.method == b"POST":
                context.secret_headers = self._gate.provider_token(exchange.headers, exchange.repeated)
                if b"content-encoding" in exchange.headers:
                    self._read_plainly(exchange.headers[b"content-encoding"], context)
        except Failure as failure:
            self.refuse(exchange, failure)

    def handle(self, exchange: Exchange) -> None:
        """Answer."""
        context: Context = exchange.context
        assert context.handler is not None
        try:
            context.handler(exchange, context)
        except Failure as failure:
            if failure.code == "model_not_found":
                failure = Failure("model_not_found", codec.NO_SUCH_MODEL, param="model")
            self.refuse(exchange, failure)

    def refuse(self, exchange: Exchange, failure: Failure) -> None:
        """Answer with an error."""
        context = exchange.context or self._context(exchange)
        headers = [*codec.error_headers(failure), *context.headers]
        exchange.respond(failure.http_status, headers, codec.dumps(codec.error_object(failure)))

    def _context(self, exchange: Exchange) -> Context:
        id = codec.request_id(exchange.header(b"x-request-id")) or new_id("req").encode()
        context = Context(id, [(b"x-request-id", id)])
        origin = exchange.header(b"origin")
        if origin is not None and self._gate.allows_origin(origin):
            context.headers += [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
        exchange.context = context
        return context

    def _route(self, exchange: Exchange, context: Context) -> Handler:
        path = exchange.path
        methods = self._routes.get(path)
        if methods is None and path.startswith(b"/v1/models/"):
            methods = {b"GET": self._show_model}
        if methods is None:
            raise self._nothing_at(path)
        handler = methods.get(b"GET" if exchange.method == b"HEAD" else exchange.method)
        if handler is None:
            allowed = sorted({*methods, *([b"HEAD"] if b"GET" in methods else [])})
            context.headers.append((b"allow", b", ".join(allowed)))
            raise Failure("method_not_allowed", f"use {' or '.join(a.decode() for a in allowed)} here")
        return handler

    def _nothing_at(self, path: bytes) -> Failure:
        """Return why there is nothing, and where to look."""
        shown = path.decode("latin-1")[:200]
        versioned = b"/v1" + path.rstrip(b"/")
        if versioned in self._routes or path.startswith(b"/models/"):
            return Failure("unknown_url", f"there is nothing at {shown}: the path is /v1{shown.rstrip('/')}")
        if path.rstrip(b"/") in self._routes:
            return Failure("unknown_url", f"there is nothing at {shown}: the path is {shown.rstrip('/')}")
        if path.startswith(b"/v1/") and path.split(b"/", 3)[2] in NOT_SERVED:
            return Failure("unknown_url", f"{shown} is not served by this edge")
        return Failure("unknown_url", f"there is nothing at {shown}")

    def _read_plainly(self, coding: bytes, context: Context) -> None:
        """Refuse a body that would have to be decoded first; :raises Failure:."""
        if coding.lower() not in (b"", b"identity"):
            context.headers.append((b"accept-encoding", b"identity"))
            raise Failure("unsupported_media_type", "send the request body without a Content-Encoding")

    def _preflight(self, exchange: Exchange, context: Context) -> None:
        if len(context.headers) == 1:
            raise Failure("origin_not_allowed", "this web page's origin is not in openai.allowed_origins")
        asked = exchange.header(b"access-control-request-headers") or b"authorization, content-type"
        headers = [
            *context.headers,
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", asked),
            (b"access-control-max-age", b"600"),
        ]
        exchange.respond(204, headers, b"")

    # ---- the endpoints ------------------------------------------------------------------------------------------

    def _chat(self, exchange: Exchange, context: Context) -> None:
        request = codec.ChatRequest.parse(exchange.body)
        headers = codec.forwarded(exchange.headers, context.request_id)
        errand = codec.Errand.parse(request.document, exchange.headers)
        principal = "" if context.principal is None else context.principal.principal_ref
        strip_usage = request.stream and not request.include_usage
        answer = ChatAnswer(exchange, context.headers, self._runs.window, self._clock, request)
        answer.run = self._runs.start(
            Ask(
                model=request.model,
                input=request.body_for,
                http=m.HttpRequestHead("POST", m.CHAT, headers),
                secret_headers=context.secret_headers,
                metadata={**errand.metadata, **codec.STRIP_USAGE} if strip_usage else errand.metadata,
                request_id=headers[0][1],
                tokens=estimate(request.document),
                thinking=codec.thinking_of(request.document, self._budgets.get(request.model)),
                session_id=codec.session_of(principal, errand.session_id),
                workspace=errand.workspace,
            ),
            answer,
        )

    def _list_models(self, exchange: Exchange, context: Context) -> None:
        document = {"object": "list", "data": list(self._models.values())}
        exchange.respond(200, [codec.JSON, *context.headers], codec.dumps(document))

    def _show_model(self, exchange: Exchange, context: Context) -> None:
        id = unquote(exchange.path[len(b"/v1/models/") :].decode("latin-1"))
        model = self._models.get(id)
        if model is None:
            raise Failure("model_not_found", codec.NO_SUCH_MODEL, param="model")
        exchange.respond(200, [codec.JSON, *context.headers], codec.dumps(model))

    def _healthz(self, exchange: Exchange, context: Context) -> None:
        exchange.respond(200, [codec.JSON, *context.headers], b'{"status":"ok"}')

    def _readyz(self, exchange: Exchange, context: Context) -> None:
        if self._runs.ready:
            exchange.respond(200, [codec.JSON, *context.headers], b'{"status":"ready"}')
        else:
            exchange.respond(503, [codec.JSON, *context.headers], b'{"status":"no provider can serve"}')
