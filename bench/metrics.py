"""What counting a request costs, what its line in the access log does, and what a scrape does.

    python bench/metrics.py [--requests 50000]

A streamed chat request with everything to count, as one of several models; then the exposition of as many models as
there may be. Every figure is printed with its ratio to an empty loop, or to JSON of the same size, of the same run.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Callable
from typing import Any

from iop.edge.accesslog import AccessLog
from iop.edge.metrics.recorder import MOST_MODELS, Metrics
from iop.edge.record import Attempt, Record
from iop.logs import observer
from iop.model import Usage


def _records(models: int) -> list[Record]:
    return [
        Record(
            at=1.7e9,
            operation="chat",
            outcome="complete",
            status=200,
            request_id="req-1",
            token_ref="app",
            model=f"model-{number % models}",
            known=True,
            stream=True,
            run_id="run-1",
            admitted=True,
            provider="p",
            node="n",
            usage=Usage(1000, 200, 900, 50),
            queue_ms=number % 50,
            first_ms=100 + number % 400,
            total_ms=2000 + number % 5000,
            attempts=(Attempt("n", "p", "complete"),),
        )
        for number in range(1000)
    ]


def _seconds(call: Callable[[Any], Any], of: list[Any], times: int) -> float:
    """The best of three, for one."""
    best = float("inf")
    for _ in range(3):
        begun = time.perf_counter()
        for number in range(times):
            call(of[number % len(of)])
        best = min(best, time.perf_counter() - begun)
    return best / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=50_000)
    requests = parser.parse_args().requests
    records = _records(10)
    metrics = Metrics(time.time)
    nothing = _seconds(lambda record: None, records, requests)
    counted = _seconds(metrics.record, records, requests)
    print(f"a request counted:       {counted * 1e6:8.2f} µs  ({counted / nothing:.0f} times an empty call)")
    for form in ("text", "json"):
        log = AccessLog(observer(io.StringIO(), "info", form))
        written = _seconds(log.record, records, requests // 10)
        print(f"a request logged, {form}:  {written * 1e6:8.2f} µs  ({written / nothing:.0f} times an empty call)")
    for record in _records(MOST_MODELS):
        metrics.record(record)
    text = metrics.exposition("")[0]
    lines = text.decode().splitlines()
    shown = _seconds(metrics.exposition, [""], 5)
    compared = _seconds(json.dumps, [lines], 5)
    print(
        f"a scrape, {MOST_MODELS} models:    {shown * 1e3:8.2f} ms  ({shown / compared:.0f} times JSON of the same"
        f" {len(lines)} lines, {len(text) >> 10} KiB)"
    )


if __name__ == "__main__":
    main()
