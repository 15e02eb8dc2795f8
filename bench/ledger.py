"""What the ledger costs: a run that is recorded, and rows a second into its spool and its databases.

    python bench/ledger.py [--seconds 2] [--postgresql URL]

The cost of recording is printed with its ratio to an empty loop of the same run. Rows a second are those of batches of
1,000, as after a database was away. PostgreSQL is measured where a URL is given; the rows stay in it.
"""

from __future__ import annotations

import argparse
import secrets
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from iop.edge.ledger.ledger import Ledger
from iop.edge.ledger.memory import MemoryStore
from iop.edge.ledger.question import ask
from iop.edge.ledger.row import Row, of_record
from iop.edge.ledger.spool import Spool
from iop.edge.ledger.sql import open_store
from iop.edge.record import Record
from iop.model import Usage

_BATCH = 1_000


class _AtOnce:
    """No thread: what a thread is given is done at once."""

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        done.callback(function(*arguments))
        return done

    def stop(self) -> None:
        pass


def _record(run_id: str) -> Record:
    usage = Usage(1234, 56, 1000, 7)
    return Record(
        time.time(),
        "chat",
        "complete",
        200,
        token_ref="app",
        principal_ref="alice",
        model="a-model",
        run_id=run_id,
        admitted=True,
        provider="p1",
        usage=usage,
        queue_ms=3,
        first_ms=210,
        total_ms=4321,
    )


def _rows() -> list[Row]:
    name = secrets.token_hex(6)
    return [of_record(_record(f"run-{name}{number:08x}")) for number in range(_BATCH)]


def _each(step: Callable[[], object], seconds: float) -> float:
    """Return the seconds of one step."""
    count, begun = 0, time.perf_counter()
    while (now := time.perf_counter()) - begun < seconds:
        for _ in range(100):
            step()
        count += 100
    return (now - begun) / count


def _recording(folder: Path, seconds: float) -> None:
    clock = Clock()
    thread = _AtOnce()
    how = {"files": thread, "database": thread, "reading": thread}
    ledger = Ledger(MemoryStore, Spool(folder / "s"), clock=clock, now=time.time, chance=lambda: 0.5, **how)
    ledger.running = True
    record = _record("run-1")

    def step() -> None:
        ledger.record(record)
        if len(ledger._pending) > 1000:
            ledger._pending.clear()

    empty = _each(lambda: None, seconds)
    cost = _each(step, seconds)
    print(f"record         {cost * 1e6:8.2f} µs a run, {cost / empty:5.1f} empty loops")


def _rate(words: str, step: Callable[[], object], seconds: float) -> None:
    """Print rows a second; a step takes a batch."""
    count, longest, begun = 0, 0.0, time.perf_counter()
    before = begun
    while before - begun < seconds:
        step()
        now = time.perf_counter()
        count, longest, before = count + _BATCH, max(longest, now - before), now
    print(f"{words:14} {count / (before - begun):9,.0f} rows a second, the longest batch {1000 * longest:.0f} ms")


def _database(words: str, url: str, folder: Path, seconds: float) -> None:
    store = open_store(url, folder)
    store.open()
    _rate(words, lambda: store.insert(_rows()), seconds)
    begun = time.perf_counter()
    (total,) = store.sums(ask("", "", "", time.time()))
    by = store.sums(ask("7d", "", "token_ref,model,day", time.time()))
    took = time.perf_counter() - begun
    print(f"{words:14} {total.runs:9,} rows summed twice, into 1 and {len(by)}, in {1000 * took:.0f} ms")
    store.close()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each figure")
    parser.add_argument("--postgresql", metavar="URL", help="of a database to write to")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _recording(folder, options.seconds)
        spool = Spool(folder / "spool")
        spool.open()

        def through_the_spool() -> None:
            spool.append(_rows())
            batch = spool.take(_BATCH)
            assert batch is not None
            spool.done(batch)

        _rate("spool", through_the_spool, options.seconds)
        spool.close()
        _database("SQLite", "sqlite:ledger.sqlite3", folder, options.seconds)
        if options.postgresql:
            _database("PostgreSQL", options.postgresql, folder, options.seconds)


if __name__ == "__main__":
    main()
