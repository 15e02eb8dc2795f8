"""Runs over a backend's OpenAI HTTP API. ``docs/contracts/adapters.md`` (openai_compat)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred
from zope.interface import implementer, provider

from iop import model as m
from iop.http.client import Timers
from iop.interfaces import IAdapter, IAdapterFactory
from iop.node.adapters import urls
from iop.node.adapters.attempt import Again, Attempt, Attempts
from iop.node.adapters.backend import Backend
from iop.node.adapters.environment import Environment, Run
from iop.node.adapters.openai_compat.answer import NormalizedAnswer, PassingAnswer
from iop.node.adapters.openai_compat.asking import Asking, Lessons, offers_tools
from iop.node.adapters.openai_compat.assemble import Assembly
from iop.node.adapters.openai_compat.models import model_ids
from iop.node.adapters.openai_compat.thinking import fields_of
from iop.settings import OPENAI_COMPAT_SETTINGS

STREAMED_UPSTREAM: Final = frozenset({"llama_cpp"})
"""Backends that go on generating after a non-streaming client has left; llama.cpp also writes no null content."""

_NORMALIZED: Final = m.HttpRequestHead("POST", m.CHAT)


@implementer(IAdapter)
class OpenAICompatAdapter:
    """One backend."""

    def __init__(self, settings: Mapping[str, Any], environment: Environment) -> None:
        self._backend = Backend(settings, OPENAI_COMPAT_SETTINGS, environment.reactor)
        self._label = settings.get("provider") or ""
        self._tools = settings.get("tools") or "auto"
        self._plain = settings.get("messages") == "plain"
        self._lessons = Lessons()
        self._stream_upstream = settings.get("stream_upstream") or "auto"
        self._targets: dict[str, str] = {}

    # ---- IAdapter -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self._backend.close()

    def run(self, run: Run, sink: Any) -> Deferred[None]:
        if self._passes(run):
            assert run.request.http is not None
            answer = PassingAnswer(sink, path=run.request.http.path, strip_usage=_strips(run))
            self._ask(run, run.request.input, answer, self._backend.timers)
            sink.attach(answer)
            return answer.done
        labels = (run.provider, self._label, run.type)
        asking = Asking(
            run.request,
            self._lessons,
            self._tools,
            fields_of(*labels),
            assembles=self._streams_upstream(run),
            plain=self._plain,
        )
        timing = self._backend.timing()
        attempts = Attempts(lambda again: self._attempt(run, asking, sink, again, timing()), asking.refused)
        sink.attach(attempts)
        attempts.start()
        return attempts.done

    def probe(self, path: str = "") -> Deferred[m.Health]:
        if path:
            return self._backend.probe(urls.beside(self._backend.base_url, path), refused=400)
        return self._backend.probe(self._target("/v1/models"))  # who has no such list, or not for this key, serves

    def models(self) -> Deferred[list[str]]:
        return self._backend.listed(self._target("/v1/models"), model_ids)

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

    def _passes(self, run: Run) -> bool:
        """Whether a run's bytes go to the backend as they are, whatever it says of them: nearly always."""
        request = run.request
        if request.http is None:
            return False
        if request.http.path != m.CHAT:
            return True
        if self._plain or request.thinking != m.UNSET or self._streams_upstream(run):
            return False
        return self._tools == "native" or not offers_tools(request.input)

    def _attempt(self, run: Run, asking: Asking, sink: Any, again: Again, timers: Timers) -> Attempt:
        body = asking.body()
        answer: Attempt
        if asking.normalized:
            ids = f"call_{run.request.run_id}_"
            answer = NormalizedAnswer(sink, again, metadata=asking.metadata, ids=ids)
        else:
            assembly = Assembly("" if self._goes_on(run) else None) if asking.assembled else None
            answer = PassingAnswer(sink, assembly, strip_usage=_strips(run), again=again)
        self._ask(run, body, answer, timers)
        return answer

    def _ask(self, run: Run, body: bytes, answer: Attempt, timers: Timers) -> None:
        http = run.request.http or _NORMALIZED
        answer.call = self._backend.send(run.request, http.method, self._target(http.path), body, answer, timers)

    def _streams_upstream(self, run: Run) -> bool:
        if self._stream_upstream == "never" or run.request.http is None or run.request.http.path != m.CHAT:
            return False
        return self._stream_upstream == "always" or self._goes_on(run)

    def _goes_on(self, run: Run) -> bool:
        return run.type in STREAMED_UPSTREAM or (run.provider or self._label) in STREAMED_UPSTREAM


def _strips(run: Run) -> bool:
    return run.request.metadata.get(m.STRIP_USAGE) == "true"


@provider(IAdapterFactory)
class factory:
    """Finds itself by ``type: openai_compat``."""

    name = "openai_compat"
    title = "Servers that speak the OpenAI HTTP API"
    settings_schema = OPENAI_COMPAT_SETTINGS
    capabilities: Mapping[str, Any] = {
        "modes": {m.Mode.PASSTHROUGH, m.Mode.NORMALIZED},
        "endpoints": (),
        "sessions": False,
        "embeddings": False,
    }

    @staticmethod
    def make(settings: Mapping[str, Any], environment: Environment) -> OpenAICompatAdapter:
        """Return an adapter; :raises Failure: when the settings cannot work."""
        return OpenAICompatAdapter(settings, environment)
