"""Runs over a backend's OpenAI HTTP API. ``docs/contracts/adapters.md`` (openai_compat)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred
from zope.interface import implementer, provider

from iop import model as m
from iop.document import Document
from iop.errors import Failure
from iop.interfaces import IAdapter, IAdapterFactory
from iop.node.adapters import urls
from iop.node.adapters.backend import Backend
from iop.node.adapters.environment import Environment, Run
from iop.node.adapters.openai_compat.answer import PassingAnswer
from iop.node.adapters.openai_compat.assemble import Assembly
from iop.node.adapters.openai_compat.models import model_ids
from iop.settings import OPENAI_COMPAT_SETTINGS

STREAMED_UPSTREAM: Final = frozenset({"llama_cpp"})
"""Backends that go on generating after a non-streaming client has left; llama.cpp also writes no null content."""


@implementer(IAdapter)
class OpenAICompatAdapter:
    """One backend."""

    def __init__(self, settings: Mapping[str, Any], environment: Environment) -> None:
        self._backend = Backend(settings, OPENAI_COMPAT_SETTINGS, environment.reactor)
        self._label = settings.get("provider") or ""
        self._stream_upstream = settings.get("stream_upstream") or "auto"
        self._targets: dict[str, str] = {}

    # ---- IAdapter -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self._backend.close()

    def run(self, run: Run, sink: Any) -> Deferred[None]:
        request = run.request
        if request.http is None:
            raise Failure("invalid_value", "this adapter runs passthrough requests only")
        body, assembly = request.input, None
        if self._streams_upstream(run):
            body, streamed = _streamed(body)
            assembly = Assembly("" if self._goes_on(run) else None) if streamed else None
        answer = PassingAnswer(sink, assembly, strip_usage=request.metadata.get("openai_strip_usage") == "true")
        target = self._target(request.http.path)
        answer.call = self._backend.send(request, request.http.method, target, body, answer)
        sink.attach(answer)
        return answer.done

    def probe(self, path: str = "") -> Deferred[m.Health]:
        if path:
            return self._backend.probe(urls.beside(self._backend.base_url, path), refused=400)
        return self._backend.probe(self._target("/v1/models"))  # who has no such list, or not for this key, serves

    def models(self) -> Deferred[list[str]]:
        asked = self._backend.fetch(self._target("/v1/models"))
        return asked.addCallback(lambda got: model_ids(got[1]) if got[0] == 200 else [])

    def sessions(self) -> list[Mapping[str, Any]]:
        return []

    def terminate_session(self, session_id: str) -> bool:
        return False

    # ---- requests -----------------------------------------------------------------------------------------------

    def _target(self, path: str) -> str:
        target = self._targets.get(path)
        if target is None:
            target = urls.target(self._backend.base_url, path)
            if len(self._targets) < 64:
                self._targets[path] = target
        return target

    def _streams_upstream(self, run: Run) -> bool:
        assert run.request.http is not None
        if self._stream_upstream == "never" or run.request.http.path != "/v1/chat/completions":
            return False
        return self._stream_upstream == "always" or self._goes_on(run)

    def _goes_on(self, run: Run) -> bool:
        return run.type in STREAMED_UPSTREAM or (run.provider or self._label) in STREAMED_UPSTREAM


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
