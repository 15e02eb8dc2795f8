"""Runs over a backend's OpenAI HTTP API. ``docs/contracts/adapters.md`` (openai_compat)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure as TwistedFailure
from zope.interface import implementer, provider

from iop import model as m
from iop.document import Document
from iop.errors import Failure
from iop.http.client import Client, Origin, Timers
from iop.http.fetch import fetch
from iop.interfaces import IAdapter, IAdapterFactory
from iop.node.adapters.environment import Environment, Run
from iop.node.adapters.openai_compat import urls
from iop.node.adapters.openai_compat.answer import PassingAnswer
from iop.node.adapters.openai_compat.assemble import Assembly
from iop.node.adapters.openai_compat.models import model_ids
from iop.settings import OPENAI_COMPAT_SETTINGS

STREAMED_UPSTREAM: Final = frozenset({"llama_cpp"})
"""Backends that go on generating after a non-streaming client has left; llama.cpp also writes no null content."""

UNTIMED: Final = Timers(connect=0, first_byte=0, gap=0)
"""Of a check: whoever asked for it knows how long to wait."""


@implementer(IAdapter)
class OpenAICompatAdapter:
    """One backend."""

    def __init__(self, settings: Mapping[str, Any], environment: Environment) -> None:
        self._base_url = settings["base_url"]
        self._label = settings.get("provider") or ""
        self._stream_upstream = settings.get("stream_upstream") or "auto"
        try:
            origin = Origin.of(self._base_url, settings.get("ca_file") or "")
        except ValueError as error:
            raise Failure("invalid_value", f"base_url: {error}") from None
        self._headers = urls.credentials(self._base_url) | {
            name.lower().encode("latin-1"): value.encode("latin-1", "replace")
            for name, value in (settings.get("headers") or {}).items()
        }
        if b"host" in self._headers:
            raise Failure("invalid_value", "headers: the host is that of base_url")
        self._timers = Timers(
            connect=_seconds(settings, "connect_timeout_ms"),
            first_byte=_seconds(settings, "first_byte_timeout_ms"),
            gap=_seconds(settings, "gap_timeout_ms"),
            total=_seconds(settings, "request_timeout_ms"),
        )
        maximum = settings.get("max_connections") or 1024
        self._client = Client(environment.reactor, origin, max_connections=maximum, max_idle=min(256, maximum))
        # a check and a list of models beside it: they do not wait until a run leaves them a connection
        self._checking = Client(environment.reactor, origin, max_connections=2, max_idle=1)
        self._targets: dict[str, str] = {}

    # ---- IAdapter -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self._client.close()
        self._checking.close()

    def run(self, run: Run, sink: Any) -> Deferred[None]:
        request = run.request
        if request.http is None:
            raise Failure("invalid_value", "this adapter runs passthrough requests only")
        body, assembly = request.input, None
        if self._streams_upstream(run):
            body, streamed = _streamed(body)
            assembly = Assembly("" if self._goes_on(run) else None) if streamed else None
        answer = PassingAnswer(sink, assembly, strip_usage=request.metadata.get("openai_strip_usage") == "true")
        answer.call = self._client.request(
            request.http.method,
            self._target(request.http.path),
            self._request_headers(request).items(),
            body,
            answer,
            self._timers,
        )
        sink.attach(answer)
        return answer.done

    def probe(self, path: str = "") -> Deferred[m.Health]:
        # without a path: some servers have no list of models, or not for this key; one that says so serves
        target, refused = (urls.beside(self._base_url, path), 400) if path else (self._target("/v1/models"), 500)

        def unanswered(reason: TwistedFailure) -> m.Health:
            failure = reason.value
            if not isinstance(failure, Failure):  # a cancelled check: that backend is silent, not down
                reason.raiseException()
            return m.Health.UP if failure.code == "answer_too_large" else m.Health.DOWN

        asked = fetch(self._checking, "GET", target, self._headers.items(), timers=UNTIMED)
        return asked.addCallbacks(lambda got: m.Health.DOWN if got[0] >= refused else m.Health.UP, unanswered)

    def models(self) -> Deferred[list[str]]:
        asked = fetch(self._checking, "GET", self._target("/v1/models"), self._headers.items())
        return asked.addCallback(lambda got: model_ids(got[1]) if got[0] == 200 else [])

    def sessions(self) -> list[Mapping[str, Any]]:
        return []

    def terminate_session(self, session_id: str) -> bool:
        return False

    # ---- requests -----------------------------------------------------------------------------------------------

    def _target(self, path: str) -> str:
        target = self._targets.get(path)
        if target is None:
            target = urls.target(self._base_url, path)
            if len(self._targets) < 64:
                self._targets[path] = target
        return target

    def _request_headers(self, request: m.RunRequest) -> dict[bytes, bytes]:
        """The caller's, under the configured ones, under those of this run alone."""
        assert request.http is not None
        headers = {b"content-type": b"application/json", b"accept-encoding": b"identity"}
        for name, value in request.http.headers:
            headers[name.encode("latin-1")] = value.encode("latin-1", "replace")
        headers.update(self._headers)
        for name, value in request.secret_headers:
            headers[name.lower().encode("latin-1")] = value.encode("latin-1", "replace")
        return headers

    def _streams_upstream(self, run: Run) -> bool:
        assert run.request.http is not None
        if self._stream_upstream == "never" or run.request.http.path != "/v1/chat/completions":
            return False
        return self._stream_upstream == "always" or self._goes_on(run)

    def _goes_on(self, run: Run) -> bool:
        return run.type in STREAMED_UPSTREAM or (run.provider or self._label) in STREAMED_UPSTREAM


def _seconds(settings: Mapping[str, Any], key: str) -> float:
    value = settings.get(key)
    return float(OPENAI_COMPAT_SETTINGS["properties"][key]["default"] if value is None else value) / 1000


def _streamed(body: bytes) -> tuple[bytes, bool]:
    """Return a chat request as a streaming one, and whether it was made so here."""
    document = Document.parse(body)
    if document.get("stream"):
        return body, False
    return document.with_raw({"stream": "true", "stream_options": '{"include_usage": true}'}).encode(), True


@provider(IAdapterFactory)
class factory:
    """Finds itself by ``type: openai_compat``."""

    name = "openai_compat"
    title = "Servers that speak the OpenAI HTTP API"
    settings_schema = OPENAI_COMPAT_SETTINGS
    capabilities: Mapping[str, Any] = {
        "modes": {m.Mode.PASSTHROUGH},
        "endpoints": (),
        "sessions": False,
        "embeddings": False,
    }

    @staticmethod
    def make(settings: Mapping[str, Any], environment: Environment) -> OpenAICompatAdapter:
        """Return an adapter; :raises Failure: when the settings cannot work."""
        return OpenAICompatAdapter(settings, environment)
