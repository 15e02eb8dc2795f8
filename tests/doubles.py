"""Stand-ins that were checked: each provides its interface, and the adapter passes the shared contract."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from iop import model as m
from iop.errors import Failure
from iop.interfaces import IAdapter, IAdapterFactory, ISink
from iop.node.adapters.environment import Environment, Run

EVENT_STREAM = m.HttpResponseHead(200, (("content-type", "text/event-stream"),))
JSON = m.HttpResponseHead(200, (("content-type", "application/json"),))

_BUILT_IN = (
    "^(base_url|headers|keep_alive|context_size|max_connections|ca_file|tools|messages|stream_upstream|.*_timeout_ms"
    "|command|args|env|mode|resume_args|output_format|fields|prompt|grace_ms)$"
)
"""Settings of built-in types, for whose adapters a scripted one may stand."""

Step = Callable[[Any], None]
"""What a script does next, to a sink."""


def start(http: m.HttpResponseHead | None = EVENT_STREAM, metadata: Mapping[str, str] | None = None) -> Step:
    return lambda sink: sink.start(http, metadata)


def piece(body: bytes = b"", *, text: str = "", reasoning: str = "") -> Step:
    return lambda sink: sink.delta(body, text, reasoning)


def complete(reason: str = "stop", usage: m.Usage | None = None, metadata: Mapping[str, str] | None = None) -> Step:
    return lambda sink: sink.complete(reason, usage, metadata)


def whole(body: bytes, http: m.HttpResponseHead = JSON, usage: m.Usage | None = None) -> Step:
    return lambda sink: sink.whole(http, body, "stop", usage)


def fail(failure: Failure) -> Step:
    return lambda sink: sink.fail(failure)


def boom(_: Any) -> None:
    """The adapter has a bug."""
    raise ZeroDivisionError("a bug of the adapter")


def wait(_: Any) -> None:
    """Nothing more until somebody says go (see :meth:`ScriptedRun.go`)."""


class ScriptedRun:
    """One run of a scripted adapter; also the source that flow control pauses.

    :param deaf: goes on although it is told to pause.
    :param stubborn: is not done when it is cancelled, but only when ``gave_in`` fires.
    """

    def __init__(self, run: Run, sink: Any, steps: Iterable[Step], *, deaf: bool, stubborn: bool) -> None:
        self.request = run.request
        self.provider = run.provider
        self.paused = False
        self.pauses = 0
        self.cancelled = False
        self.over = False
        self._sink = sink
        self._steps = deque(steps)
        self._deaf = deaf
        self._passes = 0
        self._acting = False
        self.done: Deferred[Any] = Deferred(self._cancel)
        self.gave_in: Deferred[None] = Deferred()
        if stubborn:
            self.done.addErrback(lambda _: self.gave_in)

    def _cancel(self, _: Any) -> None:
        self.cancelled = self.over = True

    def pause(self) -> None:
        self.paused = True
        self.pauses += 1

    def resume(self) -> None:
        self.paused = False
        self.act()

    def go(self) -> None:
        """Go past the next wait."""
        self._passes += 1
        self.act()

    def say(self, *steps: Step) -> None:
        """Put something before the next wait, and do it."""
        self._steps.extendleft(reversed(steps))
        self.act()

    def act(self) -> None:
        """Go on as far as the script lets it."""
        if self._acting or self.over:
            return
        self._acting = True
        try:
            while self._steps and not self.over and (self._deaf or not self.paused):
                if self._steps[0] is wait:
                    if not self._passes:
                        return
                    self._passes -= 1
                    self._steps.popleft()
                else:
                    self._steps.popleft()(self._sink)
            if not self._steps:
                self.over = True
        except Exception as error:
            self.over = True
            self.done.errback(error)
        finally:
            self._acting = False
        if self.over and not self.done.called:
            self.done.callback(None)

    def shut(self) -> None:
        """The adapter stops."""
        if not self.over:
            self.over = True
            self._sink.fail(Failure("upstream_error", "the adapter is stopping"))
            self.done.callback(None)


@implementer(IAdapter)
class ScriptedAdapter:
    """Does what its script says, for every run anew.

    :ivar runs: every run there was, the newest last.
    """

    def __init__(self, *script: Step, deaf: bool = False, stubborn: bool = False) -> None:
        self.script: tuple[Step, ...] = script
        self.deaf = deaf
        self.stubborn = stubborn
        self.runs: list[ScriptedRun] = []
        self.started = self.stopped = 0
        self.health = m.Health.UP
        self.targets: list[str] = ["m"]
        self.known_sessions: dict[str, Mapping[str, Any]] = {}
        self.start_with: Any = None
        self.stop_with: Any = None

    @property
    def open(self) -> int:
        """How many runs it works on."""
        return sum(not run.over for run in self.runs)

    def start(self) -> Any:
        self.started += 1
        return self.start_with

    def stop(self) -> Any:
        self.stopped += 1
        for run in self.runs:
            run.shut()
        return self.stop_with

    def run(self, request: Run, sink: Any) -> Deferred[None]:
        run = ScriptedRun(request, sink, self.script, deaf=self.deaf, stubborn=self.stubborn)
        self.runs.append(run)
        if self.script[:1] == (boom,):
            run.over = True
            boom(sink)
        sink.attach(run)
        run.act()
        return run.done

    def probe(self, path: str = "") -> Deferred[m.Health]:
        probed: Deferred[m.Health] = Deferred()
        probed.callback(self.health)
        return probed

    def models(self) -> Deferred[list[str]]:
        listed: Deferred[list[str]] = Deferred()
        listed.callback(list(self.targets))
        return listed

    def sessions(self) -> list[Mapping[str, Any]]:
        return list(self.known_sessions.values())

    def terminate_session(self, session_id: str) -> Deferred[bool]:
        ended: Deferred[bool] = Deferred()
        ended.callback(self.known_sessions.pop(session_id, None) is not None)
        return ended


@implementer(IAdapterFactory)
class ScriptedFactory:
    """Makes scripted adapters.

    :param make: makes one of its settings; without it the one that is given, or an adapter that never answers.
    :ivar made: every adapter that was made, with its settings.
    """

    name = "scripted"
    title = "Does what a test says"
    settings_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {"word": {"type": "string"}, "provider": {"type": "string"}},
        "patternProperties": {_BUILT_IN: {}},
        "additionalProperties": False,
    }
    capabilities: Mapping[str, Any] = {
        "modes": {m.Mode.PASSTHROUGH, m.Mode.NORMALIZED},
        "endpoints": (),
        "sessions": True,
        "embeddings": False,
    }

    def __init__(self, adapter: ScriptedAdapter | None = None) -> None:
        self._adapter = adapter
        self.made: list[tuple[ScriptedAdapter, Mapping[str, Any], Environment]] = []

    def make(self, settings: Mapping[str, Any], environment: Environment) -> ScriptedAdapter:
        if settings.get("word") == "refuse":
            raise Failure("invalid_value", "word: this one cannot work")
        if settings.get("word") == "broken":
            raise ZeroDivisionError("a bug of the factory")
        adapter = self._adapter if self._adapter is not None else ScriptedAdapter(wait)
        self.made.append((adapter, settings, environment))
        return adapter


@implementer(ISink)
class RecordingSink:
    """Keeps what an adapter says, and refuses what it may not say.

    :ivar events: values of :mod:`iop.model`, in order.
    """

    def __init__(self) -> None:
        self.events: list[m.RunEvent] = []
        self.source: Any = None

    @property
    def started(self) -> bool:
        return any(isinstance(event, m.Start | m.Whole) for event in self.events)

    @property
    def end(self) -> m.RunEvent | None:
        """The terminal event, if it came."""
        last = self.events[-1] if self.events else None
        return last if isinstance(last, m.Complete | m.Whole | m.Error) else None

    @property
    def body(self) -> bytes:
        return b"".join(event.body for event in self.events if isinstance(event, m.Delta | m.Whole))

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, m.Delta))

    @property
    def said(self) -> bytes:
        """The answer, whichever way the run went: its bytes, or its text as UTF-8."""
        return self.body or self.text.encode()

    @property
    def http(self) -> m.HttpResponseHead | None:
        return next((event.http for event in self.events if isinstance(event, m.Start | m.Whole)), None)

    @property
    def failure(self) -> Failure:
        assert isinstance(self.end, m.Error), self.events
        return self.end.failure

    def _take(self, event: m.RunEvent) -> None:
        assert self.end is None, f"{event} after {self.end}"
        self.events.append(event)

    def attach(self, source: Any) -> None:
        self.source = source

    def start(self, http: m.HttpResponseHead | None = None, metadata: Mapping[str, str] | None = None) -> None:
        assert not self.events, "a run starts once, first of all"
        self._take(m.Start(http, metadata or {}))

    def delta(self, body: bytes = b"", text: str = "", reasoning: str = "") -> None:
        assert self.started, "a piece before the start"
        if body or text or reasoning:
            self._take(m.Delta(bytes(body), text, reasoning))

    def complete(
        self, finish_reason: str = "", usage: m.Usage | None = None, metadata: Mapping[str, str] | None = None
    ) -> None:
        assert self.started, "an end before the start"
        self._take(m.Complete(finish_reason, usage, metadata or {}))

    def whole(
        self,
        http: m.HttpResponseHead,
        body: bytes,
        finish_reason: str = "",
        usage: m.Usage | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        assert not self.events, "whole is all there is"
        self._take(m.Whole(http, bytes(body), finish_reason, usage, metadata or {}))

    def fail(self, failure: Failure, usage: m.Usage | None = None) -> None:
        assert isinstance(failure, Failure)
        self._take(m.Error(failure, usage))


class RaisingSink(RecordingSink):
    """Takes no piece: telling it one raises what no adapter expects, in the midst of its work."""

    def delta(self, body: bytes = b"", text: str = "", reasoning: str = "") -> None:
        boom(self)
