"""Gauges that are read when somebody looks, so that what is gone is not shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

import iop
from iop.edge.metrics import names
from iop.edge.metrics.names import Named

_LIVE = (
    *(names.IN_FLIGHT, names.QUEUED, names.NODES, names.NODE_UP, names.NODE_IN_FLIGHT, names.NODE_CAPACITY),
    *(names.REPLICAS, names.LINK_BYTES, names.LEDGER_AWAY, names.LEDGER_DROPPED),
)


class Reading(NamedTuple):
    """A metric's value for the values of its labels, names of models and nodes as they are configured."""

    metric: Named
    labels: tuple[str, ...]
    value: float


class Live(Collector):
    """Shows what was read last. What is of models and nodes beyond the first so many is summed.

    :param model: makes a model's label; ``node`` a node's.
    """

    def __init__(self, model: Callable[[str], str], node: Callable[[str], str]) -> None:
        self._label = {"model": model, "node": node}
        self._sums: dict[Named, dict[tuple[str, ...], float]] = {}

    def take(self, readings: Iterable[Reading]) -> None:
        """Show these from now on."""
        sums: dict[Named, dict[tuple[str, ...], float]] = {metric: {} for metric in _LIVE}
        for metric, labels, value in readings:
            values = tuple(
                self._label[name](label) if name in self._label else label
                for name, label in zip(metric.labels, labels, strict=True)
            )
            of_metric = sums[metric]
            of_metric[values] = of_metric.get(values, 0) + value
        sums[names.BUILD] = {(iop.__version__, "edge"): 1}
        self._sums = sums

    def describe(self) -> Iterator[Metric]:
        """What it may show, for the registry, which allows a name once."""
        yield from map(_family, (names.BUILD, *_LIVE))

    def collect(self) -> Iterator[Metric]:
        """Called at each look at the registry, in whichever thread that happens."""
        for metric, of_metric in self._sums.items():
            family = _family(metric)
            for values, value in of_metric.items():
                family.add_metric(values, value)
            yield family


def _family(metric: Named) -> CounterMetricFamily | GaugeMetricFamily:
    if metric.type == "counter":
        return CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
