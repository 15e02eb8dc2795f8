"""The counters and histograms of requests that are over, and the registry that everything is shown from.

Counting is on the path of every request (``bench/metrics.py``), so it adds to numbers in dictionaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from zope.interface import implementer

from iop.edge.metrics import names, words
from iop.edge.metrics.live import Live, Reading
from iop.edge.metrics.names import Named
from iop.edge.metrics.series import Counts, Histograms, ShownCounts, ShownHistograms
from iop.edge.record import Attempt, Record
from iop.interfaces import IRecorder
from iop.model import Usage

MOST_MODELS: Final = 200
MOST_NODES: Final = 500

_MOST_TOKENS: Final = 1 << 48
"""What a backend counts beyond this it has not counted."""


class _Requests(Counts):
    """Requests by operation, model and outcome: all outcomes from the first request on.

    A counter that begins at 1 has not risen, as Prometheus sees it: the first failure would alarm nobody.
    """

    def __missing__(self, values: tuple[str, ...]) -> int:
        operation, model, _ = values
        for outcome in words.OUTCOMES:
            self[operation, model, outcome] = 0
        return 0


@implementer(IRecorder)
class Metrics:
    """What an edge counts.

    :param now: the time, in seconds since 1970.
    :ivar read: makes the readings of the live gauges; given once the parts are there that they are of.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._registry = registry = CollectorRegistry()
        self._model = words.Capped(MOST_MODELS)
        self._node = words.Capped(MOST_NODES)
        self._requests = self._counts(names.REQUESTS, _Requests())
        self._duration = self._histograms(names.DURATION)
        self._first = self._histograms(names.FIRST)
        self._per_token = self._histograms(names.PER_TOKEN)
        self._queue = self._histograms(names.QUEUE)
        self._input = self._counts(names.INPUT)
        self._output = self._counts(names.OUTPUT)
        self._rejections = self._counts(names.REJECTIONS)
        self._attempts = self._counts(names.ATTEMPTS)
        self._retries = self._counts(names.RETRIES)
        self._fallback = self._counts(names.FALLBACK)
        self._auth = self._counts(names.AUTH)
        self._reloads = self._counts(names.RELOADS)
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
                counter[word,] = 0
        for reason in words.AUTH.values():
            self._auth["openai", reason] = 0

    def _counts(self, named: Named, counts: Counts | None = None) -> Counts:
        made = Counts() if counts is None else counts
        self._registry.register(ShownCounts(named, made))
        return made

    def _histograms(self, named: Named) -> Histograms:
        made = Histograms(named)
        self._registry.register(ShownHistograms(named, made))
        return made

    # ---- IRecorder ----------------------------------------------------------------------------------------------

    def record(self, record: Record) -> None:
        """Count a request; the probes of a load balancer are none."""
        if record.operation == "health":
            return
        operation = words.operation_of(record.operation)
        model = self._model(record.model) if record.known else words.UNKNOWN
        outcome = words.outcome_of(record.outcome, record.status)
        self._requests[operation, model, outcome] += 1
        if record.admitted or outcome == "ok":
            self._time(record, operation, model)
        self._tokens(record.usage, model)
        if record.attempts:
            self._tried(record.attempts)
        elif record.outcome in words.REJECTIONS:
            self._rejections[words.REJECTIONS[record.outcome],] += 1
        if record.fallback in words.FALLBACKS:
            self._fallback[model, record.fallback] += 1
        if outcome == "auth_error":
            surface = record.surface if record.surface in words.SURFACES else "other"
            self._auth[surface, words.AUTH[record.outcome]] += 1

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

    def _parts(self, metric: Counts, model: str, rest: str, all: int, part: str, of_them: int | None) -> None:
        """Count a number of tokens in two parts; a backend may say anything."""
        all = min(max(all, 0), _MOST_TOKENS)
        if of_them is None and rest == "miss":
            metric[model, "unknown"] += all
            return
        of_them = min(max(of_them or 0, 0), all)
        metric[model, rest] += all - of_them
        if of_them:
            metric[model, part] += of_them

    def _tried(self, attempts: tuple[Attempt, ...]) -> None:
        for attempt in attempts:
            self._attempts[self._node(attempt.node), words.outcome_of(attempt.outcome, attempt.status)] += 1
        for attempt in attempts[:-1]:
            self._retries[words.RETRIES.get(attempt.outcome, "other"),] += 1

    # ---- what else happens --------------------------------------------------------------------------------------

    def refreshed(self, outcome: str) -> None:
        """A refresh that was to be applied is over.

        :param outcome: one of :data:`~iop.edge.metrics.words.RELOADS`.
        """
        self._reloads[outcome,] += 1
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
