"""Counters and histograms that cost a request little: prometheus_client's own take a lock or two for each number.

They are written by one thread. Another one that shows them meanwhile may see an observation's bucket before its sum.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from iop.edge.metrics.names import Named


class Counts(dict[tuple[str, ...], int]):
    """A counter's numbers by the values of their labels: 0 until something is added."""

    def __missing__(self, values: tuple[str, ...]) -> int:
        return 0


class Histogram:
    """Observations for one set of labels' values.

    :ivar counts: how many fell into each bucket, the one without a bound last.
    """

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds


class Histograms(dict[tuple[str, ...], Histogram]):
    """A metric's histograms by the values of their labels, made when first asked for."""

    def __init__(self, metric: Named) -> None:
        super().__init__()
        self._metric = metric

    def __missing__(self, values: tuple[str, ...]) -> Histogram:
        made = self[values] = Histogram(self._metric.buckets)
        return made


class _Shown(Collector):
    """Shows a metric, whenever somebody looks at the registry."""

    def __init__(self, metric: Named) -> None:
        self._metric = metric

    def describe(self) -> Iterator[Metric]:
        """What it shows, for the registry, which allows a name once."""
        yield self._family()

    @abstractmethod
    def _family(self) -> Metric:
        """The metric, without a number."""


class ShownCounts(_Shown):
    """Shows a counter."""

    def __init__(self, metric: Named, counts: Counts) -> None:
        super().__init__(metric)
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        """Called at each look at the registry."""
        family = self._family()
        for values, count in self._counts.copy().items():
            family.add_metric(values, count)
        yield family

    def _family(self) -> CounterMetricFamily:
        return CounterMetricFamily(self._metric.name, self._metric.help, labels=self._metric.labels)


class ShownHistograms(_Shown):
    """Shows a metric's histograms."""

    def __init__(self, metric: Named, histograms: Histograms) -> None:
        super().__init__(metric)
        self._histograms = histograms
        self._bounds = [*map(floatToGoString, metric.buckets), "+Inf"]

    def collect(self) -> Iterator[Metric]:
        """Called at each look at the registry."""
        family = self._family()
        for values, histogram in self._histograms.copy().items():
            below, buckets = 0, []
            for bound, count in zip(self._bounds, histogram.counts.copy(), strict=True):
                below += count
                buckets.append((bound, below))
            family.add_metric(values, buckets, histogram.sum)
        yield family

    def _family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self._metric.name, self._metric.help, labels=self._metric.labels)
