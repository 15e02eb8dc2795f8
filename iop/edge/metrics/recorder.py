"""The counters and histograms of requests that are over, and the registry that everything is shown from.

Counting is on the path of every request: the children of a metric are found by a dictionary, since ``labels()`` alone
costs more than all that is counted (``bench/metrics.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder
from zope.interface import implementer

from iop.edge.metrics import names, words
from iop.edge.metrics.histogram import Histograms, Shown
from iop.edge.metrics.live import Live, Reading
from iop.edge.metrics.names import Named
from iop.edge.record import Attempt, Record
from iop.interfaces import IRecorder
from iop.model import Usage

MOST_MODELS: Final = 200
MOST_NODES: Final = 500

_MOST_TOKENS: Final = 1 << 48
"""What a backend counts beyond this it has not counted."""


class _Children(dict[tuple[str, ...], Counter]):
    """A counter's children by the values of their labels, made when first asked for."""

    def __init__(self, metric: Counter) -> None:
        super().__init__()
        self._metric = metric

    def __missing__(self, values: tuple[str, ...]) -> Counter:
        child = self[values] = self._metric.labels(*values)
        return child


class _Requests(_Children):
    """Requests by operation, model and outcome: all outcomes from the first request on.

    A counter that begins at 1 has not risen, as Prometheus sees it: the first failure would alarm nobody.
    """

    def __missing__(self, values: tuple[str, ...]) -> Counter:
        operation, model, _ = values
        for outcome in words.OUTCOMES:
            super().__missing__((operation, model, outcome))
        return self[values]


@implementer(IRecorder)
class Metrics:
    """What an edge counts.

    :param now: the time, in seconds since 1970.
    :ivar read: makes the readings of the live gauges; given once the parts are there that they are of.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        disable_created_metrics()
        self._now = now
        self._registry = registry = CollectorRegistry()
        self._model = words.Capped(MOST_MODELS)
        self._node = words.Capped(MOST_NODES)
        self._requests = _Requests(self._counter(names.REQUESTS))
        self._duration = self._histograms(names.DURATION)
        self._first = self._histograms(names.FIRST)
        self._per_token = self._histograms(names.PER_TOKEN)
        self._queue = self._histograms(names.QUEUE)
        self._input = _Children(self._counter(names.INPUT))
        self._output = _Children(self._counter(names.OUTPUT))
        self._rejections = _Children(self._counter(names.REJECTIONS))
        self._attempts = _Children(self._counter(names.ATTEMPTS))
        self._retries = _Children(self._counter(names.RETRIES))
        self._fallback = _Children(self._counter(names.FALLBACK))
        self._auth = _Children(self._counter(names.AUTH))
        self._reloads = _Children(self._counter(names.RELOADS))
        self._reloaded = Gauge(names.RELOADED.name, names.RELOADED.help, registry=registry)
        self._reloaded.set(now())
        self._lag = self._histograms(names.LAG)[()]
        self.read: Callable[[], Iterable[Reading]] = tuple
        self._live = Live(self._model, self._node)
        registry.register(self._live)
        self._begin()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

    def _begin(self) -> None:
        """What has a few known words begins at 0."""
        for counter, known in (
            (self._rejections, words.REJECTIONS.values()),
            (self._retries, (*words.RETRIES.values(), "other")),
            (self._reloads, words.RELOADS),
        ):
            for word in known:
                counter[word,].inc(0)
        for reason in words.AUTH.values():
            self._auth["openai", reason].inc(0)

    def _counter(self, named: Named) -> Counter:
        return Counter(named.name, named.help, named.labels, registry=self._registry)

    def _histograms(self, named: Named) -> Histograms:
        made = Histograms(named)
        self._registry.register(Shown(named, made))
        return made

    # ---- IRecorder ----------------------------------------------------------------------------------------------

    def record(self, record: Record) -> None:
        """Count a request; the probes of a load balancer are none."""
        if record.operation == "health":
            return
        operation = words.operation_of(record.operation)
        model = self._model(record.model) if record.known else words.UNKNOWN
        outcome = words.outcome_of(record.outcome, record.status)
        self._requests[operation, model, outcome].inc()
        if record.admitted or outcome == "ok":
            self._time(record, operation, model)
        self._tokens(record.usage, model)
        if record.attempts:
            self._tried(record.attempts)
        elif record.outcome in words.REJECTIONS:
            self._rejections[words.REJECTIONS[record.outcome],].inc()
        if record.fallback in words.FALLBACKS:
            self._fallback[model, record.fallback].inc()
        if outcome == "auth_error":
            surface = record.surface if record.surface in words.SURFACES else "other"
            self._auth[surface, words.AUTH[record.outcome]].inc()

    def _time(self, record: Record, operation: str, model: str) -> None:
        self._duration[operation, model].observe(record.total_ms / 1000)
        if record.admitted:
            self._queue[model,].observe(record.queue_ms / 1000)
        if not record.stream or record.first_ms is None:
            return
        self._first[operation, model].observe(record.first_ms / 1000)
        output = record.usage.output_tokens or 0
        if output >= 2 and not record.estimated and record.outcome == "complete":
            streamed = max(0, record.total_ms - record.first_ms) / 1000
            self._per_token[operation, model].observe(streamed / (output - 1))

    def _tokens(self, usage: Usage, model: str) -> None:
        if usage.input_tokens:
            self._parts(self._input, model, "miss", usage.input_tokens, "hit", usage.cached_input_tokens)
        if usage.output_tokens:
            self._parts(self._output, model, "answer", usage.output_tokens, "reasoning", usage.reasoning_tokens)

    def _parts(self, metric: _Children, model: str, rest: str, all: int, part: str, of_them: int | None) -> None:
        """Count a number of tokens in two parts; a backend may say anything."""
        all = min(max(all, 0), _MOST_TOKENS)
        if of_them is None and rest == "miss":
            metric[model, "unknown"].inc(all)
            return
        of_them = min(max(of_them or 0, 0), all)
        metric[model, rest].inc(all - of_them)
        if of_them:
            metric[model, part].inc(of_them)

    def _tried(self, attempts: tuple[Attempt, ...]) -> None:
        for attempt in attempts:
            self._attempts[self._node(attempt.node), words.outcome_of(attempt.outcome, attempt.status)].inc()
        for attempt in attempts[:-1]:
            self._retries[words.RETRIES.get(attempt.outcome, "other"),].inc()

    # ---- what else happens --------------------------------------------------------------------------------------

    def refreshed(self, outcome: str) -> None:
        """A refresh that was to be applied is over.

        :param outcome: one of :data:`~iop.edge.metrics.words.RELOADS`.
        """
        self._reloads[outcome,].inc()
        if outcome == "applied":
            self._reloaded.set(self._now())

    def lagged(self, seconds: float) -> None:
        """A timer was so late."""
        self._lag.observe(seconds)

    # ---- what is shown ------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Read the live gauges: what :meth:`exposition` shows of them, in whichever thread it is called."""
        self._live.take(self.read())

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics as text, and its content type.

        :param accept: the ``Accept`` header of whoever asks.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
