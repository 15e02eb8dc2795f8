"""Real threads, and real processes that are killed. docs/contracts/ledger.md (Guarantees)."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from postgres import Cluster
from twisted.internet import reactor as installed
from twisted.internet.defer import Deferred, gatherResults

from iop.edge.ledger.question import Question
from iop.edge.ledger.sql import open_store
from iop.edge.ledger.threads import OneThread

reactor: Any = installed

SLACK = 2.0
"""Seconds. The promise is one (``test_ledger_crashes.py``, on a clock); a machine that runs tests may be late."""

#: An edge's ledger alone: a run ends every 5 ms, and each says so, with its time, before it is recorded.
WRITER = """
import random, sys, time
from pathlib import Path
from twisted.internet import reactor, task
from twisted.internet.defer import Deferred
from iop.edge.ledger.ledger import make_ledger
from iop.edge.record import Record

name, url, state_dir = sys.argv[1:]
ledger = make_ledger(url, Path(state_dir), reactor, time.time, random.random)
number = 0

def ends():
    global number
    number += 1
    print(f"{name}-{number} {time.time()}", flush=True)
    ledger.record(Record(time.time(), "chat", "complete", 200, run_id=f"{name}-{number}", admitted=True))

runs = task.LoopingCall(ends)

def stop():
    runs.stop()
    return Deferred.fromCoroutine(ledger.stopService())

def begin():
    Deferred.fromCoroutine(ledger.startService()).addErrback(lambda reason: (print(reason.value), reactor.stop()))
    runs.start(0.005)

reactor.callWhenRunning(begin)
reactor.addSystemEventTrigger("before", "shutdown", stop)
reactor.run()
"""


def lived(name: str, url: str, folder: Path, seconds: float, end: signal.Signals) -> dict[str, float]:
    """Let a writer live for so long once it writes; return what it recorded, with the age of each at its end."""
    command = [sys.executable, "-P", "-c", WRITER, name, url, str(folder / "state")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(seconds)
        process.send_signal(end)
        now = time.time()
        lines = [first, *process.stdout]
        process.wait(15)
    told = [line.split() for line in lines if line.endswith("\n")]
    return {run: now - float(at) for run, at in told}


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return "sqlite:ledger.sqlite3"
    made: str = request.getfixturevalue("cluster").database()
    return made


@pytest.mark.slow
def test_a_killed_edge_loses_nothing_that_is_older_than_this(url: str, tmp_path: Path) -> None:
    recorded: dict[str, float] = {}
    for number, seconds in enumerate((2.7, 2.2)):
        recorded |= lived(f"killed{number}", url, tmp_path, seconds, signal.SIGKILL)
    owed = {run for run, age in recorded.items() if age > SLACK}
    assert owed
    recorded |= (last := lived("stopped", url, tmp_path, 0.5, signal.SIGTERM))
    owed |= set(last)
    store = open_store(url, tmp_path / "state")
    with store._engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT run_id FROM iop_usage").scalars().all()
    assert len(found) == len(set(found)) == store.sums(Question())[0].runs
    assert owed <= set(found) <= set(recorded)
    store.close()
    assert (tmp_path / "state" / "ledger.spool").stat().st_size == 0


@pytest.mark.slow
def test_a_postgresql_that_hangs(cluster: Cluster, tmp_path: Path) -> None:
    """The server stands still while an edge lives and is killed: its rows are in the spool, and then there, once."""
    url = cluster.database()
    lived("before", url, tmp_path, 0.5, signal.SIGTERM)
    cluster.stand_still(True)
    try:
        recorded = lived("hung", url, tmp_path, 2.5, signal.SIGKILL)
        recorded |= lived("stopped", url, tmp_path, 0.2, signal.SIGTERM)
    finally:
        cluster.stand_still(False)
    owed = {run for run, age in recorded.items() if age > SLACK or run.startswith("stopped")}
    lived("after", url, tmp_path, 1.0, signal.SIGTERM)
    store = open_store(url, tmp_path / "state")
    with store._engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT run_id FROM iop_usage").scalars().all()
    assert owed <= set(found)
    store.close()


# ---- threads


@pytest_twisted.inlineCallbacks
def test_one_thread_in_order() -> Any:
    thread = OneThread(reactor, "test")
    done: list[int] = []

    def work(number: int) -> str:
        done.append(number)
        return threading.current_thread().name

    found = yield gatherResults([thread(work, number) for number in range(9)])
    assert done == list(range(9))
    assert len(set(found)) == 1
    assert found[0].startswith("PoolThread-test")
    with pytest.raises(ZeroDivisionError):
        yield thread(lambda: 1 // 0)
    thread.stop()


@pytest_twisted.inlineCallbacks
def test_a_thread_that_hangs_is_left_behind() -> Any:
    thread = OneThread(reactor, "test")
    go = threading.Event()
    called: list[str] = []
    hanging, waiting, last = thread(go.wait), thread(called.append, "given up"), thread(called.append, "called")
    waiting.addErrback(lambda reason: None)
    waiting.cancel()
    begun = time.monotonic()
    thread.stop()
    assert time.monotonic() - begun < 1
    go.set()
    yield hanging
    yield last
    assert called == ["called"]
    settled: Deferred[None] = Deferred()
    reactor.callLater(0, settled.callback, None)
    yield settled
    thread.stop()
