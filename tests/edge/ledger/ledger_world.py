"""A ledger whose threads move when the test says, on a disk and with a database that fail when the test says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure as TwistedFailure
from zope.interface import implementer

from iop.edge.ledger.ledger import Ledger
from iop.edge.ledger.memory import MemoryStore
from iop.edge.ledger.row import Row
from iop.edge.ledger.spool import Spool
from iop.edge.record import Record
from iop.errors import Failure
from iop.interfaces import IUsageStore
from iop.model import Usage

BEGUN = 1_785_499_200.0


class Steps:
    """A thread that the test moves.

    :ivar stuck: it hangs in what it was given.
    """

    def __init__(self) -> None:
        self.queue: deque[tuple[Deferred[Any], Callable[..., Any], tuple[Any, ...]]] = deque()
        self.stuck = False
        self.stopped = False

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        waiting: Deferred[Any] = Deferred()
        self.queue.append((waiting, function, arguments))
        return waiting

    def stop(self) -> None:
        self.stopped = True

    def step(self) -> bool:
        """Do one thing; return whether there was one."""
        if self.stuck or not self.queue:
            return False
        waiting, function, arguments = self.queue.popleft()
        if waiting.called:  # given up
            return True
        try:
            result: Any = function(*arguments)
        except Exception:
            result = TwistedFailure()
        if isinstance(result, TwistedFailure):
            waiting.errback(result)
        else:
            waiting.callback(result)
        return True


@implementer(IUsageStore)
class Database:
    """A memory store that outlives ledgers, and goes away.

    :ivar why: a message of its absence; "" while it is there.
    :ivar refuses: it never opens.
    """

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.why = ""
        self.refuses = ""
        self.opened = 0
        self.written = 0
        self.bad: set[str] = set()

    def _there(self) -> None:
        if self.why:
            raise Failure("ledger_away", self.why)

    def open(self) -> None:
        self._there()
        if self.refuses:
            raise Failure("ledger_refused", self.refuses)
        self.opened += 1

    def insert(self, rows: Sequence[Row]) -> int:
        self._there()
        self.written += len(rows)
        self.store.insert([row for row in rows if row.run_id not in self.bad])
        return sum(row.run_id in self.bad for row in rows)

    def sums(self, question: Any) -> Any:
        self._there()
        return self.store.sums(question)

    def close(self) -> None:
        self.opened = 0


def record(run_id: str, **changes: Any) -> Record:
    made = Record(
        at=BEGUN,
        operation="chat",
        outcome="complete",
        status=200,
        token_ref="app",
        principal_ref="alice",
        model="m",
        known=True,
        run_id=run_id,
        admitted=True,
        provider="p1",
        usage=Usage(100, 20, 50, 5),
        queue_ms=10,
        first_ms=200,
        total_ms=1000,
    )
    return made._replace(**changes)


class World:
    """One state directory and one database, and the edges that come and go.

    :ivar recorded: when each run was recorded, in seconds.
    """

    def __init__(self, folder: Path, fsync: Callable[[int], None] = lambda file: None, **spool: Any) -> None:
        self.path = folder / "ledger.spool"
        self.clock = Clock()
        self.database = Database()
        self.recorded: dict[str, float] = {}
        self.fsync = fsync
        self._how = spool
        self.make()

    def make(self) -> None:
        """A new edge's ledger, not started."""
        self.spool = Spool(self.path, fsync=lambda file: self.fsync(file), **self._how)
        self.files, self.thread, self.reading = Steps(), Steps(), Steps()
        self.ledger = Ledger(
            lambda: self.database,
            self.spool,
            clock=self.clock,
            now=lambda: BEGUN + self.clock.seconds(),
            chance=lambda: 1.0,
            files=self.files,
            database=self.thread,
            reading=self.reading,
        )

    def start(self) -> list[Any]:
        return self.later(self.ledger.startService())

    def stop(self) -> list[Any]:
        return self.later(self.ledger.stopService())

    def later(self, work: Any) -> list[Any]:
        """What comes of a coroutine: empty until it has ended."""
        got: list[Any] = []
        Deferred.fromCoroutine(work).addBoth(got.append)
        self.settle()
        return got

    def settle(self) -> None:
        while any(each.step() for each in (self.files, self.thread, self.reading)):
            pass

    def run(self, seconds: float = 0.3) -> None:
        """Let time pass."""
        step = 0.05 if seconds < 5 else 0.25
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            self.settle()

    def record(self, *run_ids: str, **changes: Any) -> None:
        for each in run_ids:
            self.recorded[each] = self.clock.seconds()
            self.ledger.record(record(each, at=BEGUN + self.clock.seconds(), **changes))

    def kill(self) -> None:
        """End the edge as SIGKILL does: what is in memory is gone, what was given to the kernel is not."""
        for call in self.clock.getDelayedCalls():
            call.cancel()
        self.spool.close()

    @property
    def written(self) -> set[str]:
        return set(self.database.store.rows)
