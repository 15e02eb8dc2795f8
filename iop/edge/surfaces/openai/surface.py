"""The OpenAI-compatible surface: routes, who may use them, and what each answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from iop import model as m
from iop.document import compact
from iop.edge.config import model as config
from iop.edge.pool.estimate import estimate, longest
from iop.edge.record import Record
from iop.edge.runs import Ask, Runs, new_id
from iop.edge.surfaces.openai import codec, openapi, questions
from iop.edge.surfaces.openai.answer import SurfaceAnswer
from iop.edge.surfaces.openai.apis.errors import error_object
from iop.edge.surfaces.openai.apis.messages import count_document
from iop.edge.surfaces.openai.apis.messages_errors import error_document
from iop.edge.surfaces.openai.auth import Gate
from iop.edge.surfaces.openai.policy import NO_POLICY, Policies, Policy
from iop.edge.surfaces.openai.questions import Question
from iop.errors import Failure
from iop.http.server import Exchange
from iop.interfaces import IRefreshable

Handler = Callable[[Exchange, "Context"], None]

STATEFUL: Final = frozenset(
    (
        b"assistants batches chat completions containers conversations embeddings evals files fine_tuning messages"
        b" realtime responses threads uploads vector_stores videos"
    ).split()
)
"""First words of paths under ``/v1`` that clients know from elsewhere, and that no backend of a pool can answer: what
one has stored, another has not."""

KNOWN: Final = frozenset(b"audio classify images moderations pooling rerank score tokenize detokenize".split())
"""First words of paths under ``/v1`` that some backends have: what is wrong with a request there is told, be it only
its method."""

_ANTHROPIC: Final = b"/v1/messages"
"""The path of Anthropic's API, and of what is below it."""

_PASSING: Final = re.compile(rb"/v1(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*){1,8}")


@dataclass(slots=True)
class Context:
    """What the surface knows of a request.

    :ivar headers: go with every answer to it.
    :ivar begun: when its head had come, in seconds since 1970.
    :ivar model: which one was asked, where that is known and it is no run.
    :ivar allowed: whether it comes from a web page that may use the surface.
    :ivar counted: whether it became a run, which tells of itself how it ended.
    :ivar anthropic: whether its path is one of Anthropic's API, also where nothing is served.
    """

    request_id: bytes
    headers: codec.RawHeaders
    begun: float
    route: Route | None = None
    model: str = ""
    allowed: bool = False
    counted: bool = False
    anthropic: bool = False
    principal: config.PrincipalToken | None = None
    secret_headers: m.Headers = field(default=(), repr=False)


class Route(NamedTuple):
    """What answers a path and a method.

    :ivar operation: as what that is counted (:class:`iop.edge.record.Record`).
    :ivar open: whether anybody may ask.
    :ivar anthropic: whether it is a path of Anthropic's API: another shape of errors, another header for the key.
    """

    answer: Handler
    operation: str
    open: bool = False
    anthropic: bool = False


class Catalog(NamedTuple):
    """The models that clients may ask for: as they are shown, and their policies."""

    models: dict[str, dict[str, Any]]
    policies: dict[str, Policy]


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
        self._expose = settings.openai.expose_provider
        self._models: dict[str, dict[str, Any]] = {}
        self._policies: dict[str, Policy] = {}
        self.commit(self.prepare(settings))
        models = {b"GET": Route(self._list_models, "models")}
        self._routes: dict[bytes, dict[bytes, Route]] = {
            b"/v1/chat/completions": {b"POST": Route(self._running(questions.chat), "chat")},
            b"/v1/completions": {b"POST": Route(self._running(questions.completion), "completion")},
            b"/v1/embeddings": {b"POST": Route(self._running(questions.embedding), "embedding")},
            b"/v1/responses": {b"POST": Route(self._running(questions.responses), "responses")},
            b"/v1/messages": {b"POST": Route(self._running(questions.messages), "messages", anthropic=True)},
            b"/v1/messages/count_tokens": {b"POST": Route(self._count_tokens, "count_tokens", anthropic=True)},
            b"/v1/models": models,
            b"/v1/models/": models,
            b"/healthz": {b"GET": Route(self._healthz, "health", open=True)},
            b"/readyz": {b"GET": Route(self._readyz, "health", open=True)},
            b"/openapi.json": {b"GET": Route(self._describe, "health", open=True)},
        }
        self._one_model = {b"GET": Route(self._show_model, "models")}
        self._passing = {b"POST": Route(self._pass, "passthrough")}
        self._description = compact(openapi.document(self.places()))

    def places(self) -> Iterator[openapi.Place]:
        """Iterate over all that is served; a last slash, which changes nothing, apart."""
        whole = {path.decode(): methods for path, methods in self._routes.items() if not path.endswith(b"/")}
        for path, methods in {**whole, openapi.ONE_MODEL: self._one_model, openapi.PASSED: self._passing}.items():
            for method, route in methods.items():
                yield openapi.Place(path, method.decode(), route.open, route.anthropic)

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
            {model.id: Policy.of(model) for model in config.models},
        )

    def commit(self, token: Catalog) -> None:
        """Show it."""
        self._models, self._policies = token

    def abandon(self, token: Catalog) -> None:
        """Forget it."""

    # ---- iop.http.server.Application ----------------------------------------------------------------------------

    def admit(self, exchange: Exchange) -> None:
        """Find the route and let the request in, or answer why not."""
        context = self._context(exchange)
        exchange.on_gone = partial(self._ended, context, 499, "cancelled")  # until it has an answer
        try:
            if exchange.method == b"OPTIONS" and exchange.header(b"access-control-request-method") is not None:
                self._preflight(exchange, context)
                return
            context.route = self._route(exchange, context)
            if context.route.open:
                return
            context.principal = self._gate.admit(exchange.headers, exchange.repeated, api_key=context.anthropic)
            if exchange.method == b"POST":
                context.secret_headers = self._gate.provider_token(exchange.headers, exchange.repeated)
                if b"content-encoding" in exchange.headers:
                    self._read_plainly(exchange.headers[b"content-encoding"], context)
        except Failure as failure:
            self.refuse(exchange, failure)

    def handle(self, exchange: Exchange) -> None:
        """Answer."""
        context: Context = exchange.context
        assert context.route is not None
        try:
            context.route.answer(exchange, context)
        except Failure as failure:
            if failure.code == "model_not_found":
                failure = Failure("model_not_found", codec.NO_SUCH_MODEL, param="model")
            self.refuse(exchange, failure)

    def refuse(self, exchange: Exchange, failure: Failure) -> None:
        """Answer with an error."""
        context: Context = exchange.context or self._context(exchange)
        headers = [*codec.error_headers(failure), *context.headers]
        if context.anthropic:
            document = error_document(failure, context.request_id.decode("ascii"))
        else:
            document = error_object(failure)
        exchange.respond(failure.http_status, headers, compact(document))
        self._ended(context, failure.http_status, failure.code)

    def _respond(
        self,
        exchange: Exchange,
        context: Context,
        body: bytes,
        status: int = 200,
        headers: Iterable[Any] = (codec.JSON,),
    ) -> None:
        """Answer a request that is no run."""
        exchange.respond(status, [*headers, *context.headers], body)
        self._ended(context, status, "complete")

    def _ended(self, context: Context, status: int, outcome: str) -> None:
        """A request has its answer: count it, unless it became a run."""
        if context.counted:
            return
        now, who = self._clock.seconds(), context.principal
        record = Record(
            at=now,
            operation="" if context.route is None else context.route.operation,
            outcome=outcome,
            status=status,
            request_id=context.request_id.decode("ascii"),
            token_ref="" if who is None else who.token_ref,
            principal_ref="" if who is None else who.principal_ref,
            principal_alias="" if who is None else who.principal_alias or "",
            model=context.model,
            known=bool(context.model),
            total_ms=round((now - context.begun) * 1000),
        )
        self._runs.record(record)

    def _context(self, exchange: Exchange) -> Context:
        id = codec.request_id(exchange.header(b"x-request-id")) or new_id("req").encode()
        context = Context(id, [(b"x-request-id", id)], self._clock.seconds())
        origin = exchange.header(b"origin")
        if origin is not None and self._gate.allows_origin(origin):
            context.allowed = True
            context.headers += [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
        exchange.context = context
        return context

    def _route(self, exchange: Exchange, context: Context) -> Route:
        path = exchange.path
        methods = self._routes.get(path)
        if methods is None and path.startswith(b"/v1/models/"):
            methods = self._one_model
        elif methods is None and (exchange.method == b"POST" or _is_known(path)) and _passes(path):
            methods = self._passing
        context.anthropic = path == _ANTHROPIC or path.startswith(_ANTHROPIC + b"/")
        if context.anthropic:
            context.headers.append((b"request-id", context.request_id))
        if methods is None:
            raise self._nothing_at(path)
        route = methods.get(b"GET" if exchange.method == b"HEAD" else exchange.method)
        if route is None:
            allowed = sorted({*methods, *([b"HEAD"] if b"GET" in methods else [])})
            context.headers.append((b"allow", b", ".join(allowed)))
            raise Failure("method_not_allowed", f"use {' or '.join(a.decode() for a in allowed)} here")
        return route

    def _nothing_at(self, path: bytes) -> Failure:
        """Return why there is nothing, and where to look."""
        shown = path.decode("latin-1")[:200]
        versioned = b"/v1" + path.rstrip(b"/")
        if versioned in self._routes or path.startswith(b"/models/"):
            return Failure("unknown_url", f"there is nothing at {shown}: the path is /v1{shown.rstrip('/')}")
        if path.rstrip(b"/") in self._routes:
            return Failure("unknown_url", f"there is nothing at {shown}: the path is {shown.rstrip('/')}")
        if path.startswith(b"/v1/") and path.split(b"/", 3)[2] in STATEFUL:
            return Failure(
                "unknown_url",
                f"{shown} is not served: an edge keeps nothing for later, and has only the APIs' main paths",
            )
        if _passes(path):
            return Failure("unknown_url", f"there is nothing at {shown}, unless a model is asked there by POST")
        return Failure("unknown_url", f"there is nothing at {shown}")

    def _read_plainly(self, coding: bytes, context: Context) -> None:
        """Refuse a body that would have to be decoded first; :raises Failure:."""
        if coding.lower() not in (b"", b"identity"):
            context.headers.append((b"accept-encoding", b"identity"))
            raise Failure("unsupported_media_type", "send the request body without a Content-Encoding")

    def _preflight(self, exchange: Exchange, context: Context) -> None:
        if not context.allowed:
            raise Failure("origin_not_allowed", "this web page's origin is not in openai.allowed_origins")
        asked = exchange.header(b"access-control-request-headers") or b"authorization, content-type"
        headers = [
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", asked),
            (b"access-control-max-age", b"600"),
        ]
        self._respond(exchange, context, b"", 204, headers)

    # ---- runs ---------------------------------------------------------------------------------------------------

    def _running(self, read: Callable[[bytes, Policies], Question]) -> Handler:
        """Return what runs the requests of one API."""
        return lambda exchange, context: self._run(exchange, context, read(exchange.body, self._policy))

    def _policy(self, model: str) -> Policy:
        """A model's policy as it is now."""
        return self._policies.get(model, NO_POLICY)

    def _count_tokens(self, exchange: Exchange, context: Context) -> None:
        """Let a backend count that can; else the estimate is the answer."""
        question, chat = questions.count_tokens(exchange.body)
        model = question.request.model
        if model not in self._models:
            raise Failure("model_not_found", codec.NO_SUCH_MODEL, param="model")
        if self._runs.can_pass(model, "messages"):
            self._run(exchange, context, question)
        else:
            context.model = model
            self._respond(exchange, context, compact(count_document(chat.tokens)))

    def _pass(self, exchange: Exchange, context: Context) -> None:
        kind = (exchange.header(b"content-type") or b"").decode("latin-1")
        try:
            question = questions.passing(exchange.body, kind)
        except Failure:
            if _is_known(exchange.path):
                raise
            raise self._nothing_at(exchange.path) from None
        self._run(exchange, context, question)

    def _run(self, exchange: Exchange, context: Context, question: Question) -> None:
        assert context.route is not None
        request, runs = question.request, self._runs
        errand = codec.Errand.parse(request.document, exchange.headers)
        principal, id = context.principal, context.request_id.decode("ascii")
        headers = codec.forwarded(exchange.headers, id)
        if question.content_type:
            headers += (("content-type", question.content_type),)
        answer = SurfaceAnswer(exchange, context.headers, runs.window, self._clock, question, expose=self._expose)
        ask = Ask(
            model=request.model,
            api=question.api or context.route.operation,
            operation=context.route.operation,
            native=question.native,
            chat=question.chat,
            http=m.HttpRequestHead("POST", exchange.path.decode("latin-1"), headers),
            principal=principal,
            stream=request.stream,
            secret_headers=context.secret_headers,
            metadata={**errand.metadata, **codec.STRIP_USAGE} if question.strips_usage else errand.metadata,
            request_id=id,
            tokens=estimate(request.document) if question.tokens is None else question.tokens,
            longest=longest(request.document) if context.route.operation in _SEVERAL else None,
            thinking=question.thinking,
            translated=question.translated,
            session_id=codec.session_of("" if principal is None else principal.principal_ref, errand.session_id),
            workspace=errand.workspace,
            trace=codec.trace_of(exchange.headers),
        )
        if question.unserved is not None:
            ask = ask._replace(unserved=question.unserved)
        context.counted = True
        answer.run = runs.start(ask, answer)

    # ---- what needs no run --------------------------------------------------------------------------------------

    def _list_models(self, exchange: Exchange, context: Context) -> None:
        self._respond(exchange, context, compact({"object": "list", "data": list(self._models.values())}))

    def _show_model(self, exchange: Exchange, context: Context) -> None:
        id = unquote(exchange.path[len(b"/v1/models/") :].decode("latin-1"))
        model = self._models.get(id)
        if model is None:
            raise Failure("model_not_found", codec.NO_SUCH_MODEL, param="model")
        self._respond(exchange, context, compact(model))

    def _healthz(self, exchange: Exchange, context: Context) -> None:
        self._respond(exchange, context, b'{"status":"ok"}')

    def _describe(self, exchange: Exchange, context: Context) -> None:
        self._respond(exchange, context, self._description)

    def _readyz(self, exchange: Exchange, context: Context) -> None:
        if self._runs.ready:
            self._respond(exchange, context, b'{"status":"ready"}')
        else:
            self._respond(exchange, context, b'{"status":"no provider can serve"}', 503)


_SEVERAL: Final = frozenset({"completion", "embedding", "passthrough"})
"""Operations in which a list of texts is several requests in one; elsewhere it is one conversation."""


def _passes(path: bytes) -> bool:
    """Whether requests at a path are passed on to a backend without being known here."""
    return _PASSING.fullmatch(path) is not None and path.split(b"/", 3)[2] not in STATEFUL


def _is_known(path: bytes) -> bool:
    """Whether a path is one that some backends have."""
    return path.startswith(b"/v1/") and path.split(b"/", 3)[2] in KNOWN
