"""Runs over Ollama's native API. ``docs/contracts/adapters.md`` (ollama)."""

from __future__ import annotations

from collections.abc import Mapping
from secrets import token_hex
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer, provider

from iop import model as m
from iop.errors import Failure
from iop.interfaces import IAdapter, IAdapterFactory
from iop.node.adapters import urls
from iop.node.adapters.attempt import Again, Attempts
from iop.node.adapters.backend import Backend
from iop.node.adapters.environment import Environment, Run
from iop.node.adapters.fallback import MARK, rewritten
from iop.node.adapters.ollama.answer import ChatAnswer, EmbedAnswer
from iop.node.adapters.ollama.chat import ChatRequest, chat_request, encoded, parsed
from iop.node.adapters.ollama.embed import embed_request
from iop.node.adapters.ollama.models import model_names, tools_of
from iop.node.adapters.ollama.reply import Reply, refuses_tools
from iop.settings import DEFAULT_CONTEXT_SIZE, OLLAMA_SETTINGS


@implementer(IAdapter)
class OllamaAdapter:
    """One Ollama server."""

    def __init__(self, settings: Mapping[str, Any], environment: Environment) -> None:
        self._name = environment.name
        self._log = environment.log
        self._backend = Backend(settings, OLLAMA_SETTINGS, environment.reactor)
        self._base_url = self._backend.base_url.rstrip("/").removesuffix("/api")
        self._context_size = settings.get("context_size")
        self._keep_alive = settings.get("keep_alive")
        self._unsized: set[str] = set()
        self._refused_tools: set[str] = set()
        self._knows_tools: dict[str, bool] = {}

    # ---- IAdapter -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self._backend.close()

    def run(self, run: Run, sink: Any) -> Deferred[None]:
        request = run.request
        if request.mode is m.Mode.PASSTHROUGH:
            return self._embed(request, sink)
        attempts = self._attempts(request, sink)
        sink.attach(attempts)
        attempts.start()
        return attempts.done

    def probe(self, path: str = "") -> Deferred[m.Health]:
        return self._backend.probe(self._target(path or "/api/version"), refused=400 if path else 500)

    def models(self) -> Deferred[list[str]]:
        return self._backend.listed(self._target("/api/tags"), self._listed)

    def sessions(self) -> list[Mapping[str, Any]]:
        return []

    def terminate_session(self, session_id: str) -> bool:
        return False

    # ---- requests -----------------------------------------------------------------------------------------------

    def _attempts(self, request: m.RunRequest, sink: Any) -> Attempts:
        """Return a run's request, to be made; once more with its tools as text, where the model knows none."""
        document = parsed(request.input)
        body, warnings = self._chat(request, document)
        num_ctx = body["options"]["num_ctx"]
        for warning in warnings:
            self._log.warn("{adapter}, {run}: {warning}", adapter=self._name, run=request.run_id, warning=warning)
        has_tools = "tools" in body
        without = request.target in self._refused_tools or not self._knows_tools.get(request.target, True)
        as_text = has_tools and without
        timing = self._backend.timing()

        def begin(again: Again) -> ChatAnswer:
            asked = self._chat(request, rewritten(document)).body if as_text else body
            reply = Reply(lambda: f"call_{token_hex(12)}", num_ctx, empty=not body["messages"])
            answer = ChatAnswer(sink, reply, again, MARK if as_text else {})
            target = self._target("/api/chat")
            answer.call = self._backend.send(request, "POST", target, encoded(asked), answer, timing())
            return answer

        def refused(failure: Failure) -> bool:
            nonlocal as_text
            if as_text or not has_tools or not refuses_tools(failure):
                return False
            as_text = True
            self._learn(request.target)
            return True

        return Attempts(begin, refused)

    def _embed(self, request: m.RunRequest, sink: Any) -> Deferred[None]:
        """Ask for vectors: of a run with HTTP that is all there is here; :raises Failure: for anything else."""
        if request.http is None or request.http.path != m.EMBEDDINGS:
            raise Failure("unknown_url", "the provider does not serve this")
        num_ctx = self._num_ctx(request.target)
        asked = embed_request(parsed(request.input), request.target, num_ctx, keep_alive=self._keep_alive)
        answer = EmbedAnswer(sink, asked)
        answer.call = self._backend.send(request, "POST", self._target("/api/embed"), encoded(asked), answer)
        sink.attach(answer)
        return answer.done

    def _listed(self, body: bytes) -> list[str]:
        """The names of a list of models, which may say too what they can."""
        self._knows_tools = tools_of(body)
        return model_names(body)

    def _learn(self, target: str) -> None:
        if target not in self._refused_tools:
            self._refused_tools.add(target)
            line = "{adapter}: {target} knows no tools; from now on they travel as text"
            self._log.info(line, adapter=self._name, target=target)

    def _target(self, path: str) -> str:
        return urls.beside(self._base_url, path)

    def _chat(self, request: m.RunRequest, document: dict[str, Any]) -> ChatRequest:
        return chat_request(
            document,
            request.target,
            num_ctx=self._num_ctx(request.target),
            keep_alive=self._keep_alive,
            thinking=request.thinking,
        )

    def _num_ctx(self, target: str) -> int:
        sizes = self._context_size
        size: int | None = sizes.get(target) if isinstance(sizes, Mapping) else sizes
        if size is not None:
            return size
        if target not in self._unsized:
            self._unsized.add(target)
            line = "{adapter}: no context_size for {target}: it gets {size} tokens, and longer prompts are refused"
            self._log.info(line, adapter=self._name, target=target, size=DEFAULT_CONTEXT_SIZE)
        return DEFAULT_CONTEXT_SIZE


@provider(IAdapterFactory)
class factory:
    """Finds itself by ``type: ollama``."""

    name = "ollama"
    title = "Ollama, by its native API"
    settings_schema = OLLAMA_SETTINGS
    capabilities: Mapping[str, Any] = {
        "modes": {m.Mode.NORMALIZED},
        "endpoints": (),
        "sessions": False,
        "embeddings": True,
    }

    @staticmethod
    def make(settings: Mapping[str, Any], environment: Environment) -> OllamaAdapter:
        """Return an adapter; :raises Failure: when the settings cannot work."""
        return OllamaAdapter(settings, environment)
