"""The adapter: what a node asks of it, done with exchanges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.python.failure import Failure as TwistedFailure
from zope.interface import implementer, provider

from iop import model as m
from iop.errors import Failure
from iop.interfaces import IAdapter, IAdapterFactory
from iop.node.adapters.environment import Environment, Run
from linechat.chat import Answer, question
from linechat.exchange import Exchange

SETTINGS: dict[str, Any] = {
    "type": "object",
    "required": ["port"],
    "properties": {
        "host": {"type": "string", "minLength": 1, "default": "127.0.0.1"},
        "port": {"type": "integer", "minimum": 1, "maximum": 65535},
        "silence_ms": {
            "type": "integer",
            "minimum": 0,
            "default": 60000,
            "description": "Longest wait for the next line; 0 means no limit.",
        },
    },
    "additionalProperties": False,
}


@implementer(IAdapter)
class LinechatAdapter:
    """One backend."""

    def __init__(self, settings: Mapping[str, Any], environment: Environment) -> None:
        host = settings.get("host", SETTINGS["properties"]["host"]["default"])
        silence_ms = settings.get("silence_ms", SETTINGS["properties"]["silence_ms"]["default"])
        self._reactor = environment.reactor
        self._endpoint = HostnameEndpoint(self._reactor, host, settings["port"])
        self._silence = silence_ms / 1000
        self._open: set[Exchange] = set()

    def start(self) -> None:
        pass

    def stop(self) -> None:
        for exchange in list(self._open):
            exchange.end(Failure("upstream_error", "the adapter is stopping"))

    def run(self, run: Run, sink: Any) -> Deferred[None]:
        def failed(reason: TwistedFailure) -> None:
            reason.trap(Failure)  # anything else is a cancelled run, or a bug, which the node reports
            sink.fail(reason.value)

        exchange = self._ask(question(run.request), Answer(sink).take, self._silence)
        sink.attach(exchange)
        return exchange.done.addErrback(failed)

    def probe(self, path: str = "") -> Deferred[m.Health]:
        def down(reason: TwistedFailure) -> m.Health:
            reason.trap(Failure)  # a cancelled check fails: that backend is silent, not down
            return m.Health.DOWN

        return self.models().addCallbacks(lambda _: m.Health.UP, down)

    def models(self) -> Deferred[list[str]]:
        names: list[str] = []

        def take(line: dict[str, Any]) -> bool:
            models = line.get("models")
            if not isinstance(models, list):
                raise Failure("upstream_error", "the backend does not say its models")
            names.extend(name for name in models if isinstance(name, str) and name)
            return True

        # no limit of its own: whoever asked knows how long to wait
        return self._ask({"ask": "models"}, take, 0).done.addCallback(lambda _: names)

    def sessions(self) -> list[Mapping[str, Any]]:
        return []

    def terminate_session(self, session_id: str) -> bool:
        return False

    def _ask(self, question: Mapping[str, Any], take: Callable[[dict[str, Any]], bool], silence: float) -> Exchange:
        exchange = Exchange(question, take, silence, self._reactor)
        self._open.add(exchange)

        def over(result: Any) -> Any:
            self._open.discard(exchange)
            return result

        exchange.done.addBoth(over)
        return exchange.begin(self._endpoint)


@provider(IAdapterFactory)
class factory:
    """Finds itself by ``type: linechat``."""

    name = "linechat"
    title = "A backend that speaks lines of JSON over TCP (example)"
    settings_schema = SETTINGS
    capabilities: Mapping[str, Any] = {
        "modes": {m.Mode.NORMALIZED},
        "endpoints": (),
        "sessions": False,
        "embeddings": False,
    }

    @staticmethod
    def make(settings: Mapping[str, Any], environment: Environment) -> LinechatAdapter:
        """Return an adapter. The node has checked the settings against the schema."""
        return LinechatAdapter(settings, environment)
