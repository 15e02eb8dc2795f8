"""The ledger: takes what runs were, and sees to it that the database has it. ``docs/contracts/ledger.md``.

Three threads: one makes rows last in the spool, one writes them to the database, one reads. A database that hangs
holds up neither the spool nor a run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from iop.edge.ledger.question import Question, WrongWords, ask, document
from iop.edge.ledger.row import Row, of_record
from iop.edge.ledger.spool import Spool
from iop.edge.ledger.threads import Elsewhere, OneThread
from iop.edge.record import Record
from iop.errors import Failure
from iop.interfaces import IRecorder, IUsageStore
from iop.services import Latch

GATHER_SECONDS: Final = 0.25
"""For how long rows are gathered before they are written together."""

OPEN_SECONDS: Final = 3.0
"""For how long the start waits for the database; it is opened later then."""

HANG_SECONDS: Final = 5.0
"""Until a database that does not answer is called away."""

STOP_SECONDS: Final = 5.0
"""For how long the end waits for the database; what it does not have stays in the spool."""

READ_SECONDS: Final = 60.0
"""Until a question is given up."""

RETRY_SECONDS: Final = (0.5, 30.0)
"""Until the database is tried again, the first time and at most."""

MOST_PENDING: Final = 50_000
"""Records that wait for a disk that hangs; those beyond are dropped."""

_BATCH: Final = 1_000
_MOST_QUESTIONS: Final = 8


@implementer(IRecorder)
class Ledger(Service):
    """Keeps one row of every run that was admitted and has ended.

    :param open_store: makes the :class:`iop.interfaces.IUsageStore`; called in the database's thread.
    :param now: seconds since 1970.
    :param chance: a random number in 0..1, anew at each call.
    :param files, database, reading: where the spool, the writing and the reading are done.
    :ivar away: the database does not take rows at the moment.
    """

    log = Logger()

    def __init__(
        self,
        open_store: Callable[[], IUsageStore],
        spool: Spool,
        *,
        clock: IReactorTime,
        now: Callable[[], float],
        chance: Callable[[], float],
        files: Elsewhere,
        database: Elsewhere,
        reading: Elsewhere,
    ) -> None:
        self._open_store = open_store
        self._spool = spool
        self._clock = clock
        self._now = now
        self._chance = chance
        self._files = files
        self._database = database
        self._reading = reading
        self._store: IUsageStore | None = None
        self._open = False
        self._pending: list[Record] = []
        self._pending_since = 0.0
        self._gathering: IDelayedCall | None = None
        self._spooling: Latch | None = None
        self._writing: Latch | None = None
        self._retry: IDelayedCall | None = None
        self._failures = 0
        self._questions = 0
        self._lost = 0
        self._trouble = ("", 0)
        self._why = ""
        self.away = False

    @property
    def dropped(self) -> int:
        """Rows that were lost since the process began, for want of room or because no database takes them."""
        return self._lost + self._spool.dropped

    # ---- iop.interfaces.IRecorder -------------------------------------------------------------------------------

    def record(self, record: Record) -> None:
        """Take a run that has ended; what was no run, or was not let in, is none of the ledger's."""
        if not record.run_id or not record.admitted:
            return
        if len(self._pending) >= MOST_PENDING:
            self._lost += 1
            return
        if not self._pending:
            self._pending_since = self._clock.seconds()
        self._pending.append(record)
        self._gather_soon()

    # ---- reading ------------------------------------------------------------------------------------------------

    async def usage(self, since: str = "", until: str = "", by: str = "") -> dict[str, Any]:
        """Answer a question in an operator's words.

        :raises Failure: ``invalid_value`` for words that are no question, ``ledger_away``, ``ledger_busy``.
        """
        try:
            question = ask(since, until, by, self._now())
        except WrongWords as wrong:
            raise Failure("invalid_value", str(wrong)) from None
        if not self._open or not self.running:
            raise _away((self._why or "it is being opened") if self.running else "the edge is stopping")
        if self._questions >= _MOST_QUESTIONS:
            raise Failure("ledger_busy", "other questions wait already; ask again later", http_status=429)
        self._questions += 1
        try:
            asked = self._reading(self._answer, question).addTimeout(READ_SECONDS, self._clock)
            found: dict[str, Any] = await asked
        except TimeoutError:
            raise _away(f"it did not answer within {READ_SECONDS:g} s") from None
        except Failure as failure:
            raise _away(failure.message) from None
        finally:
            self._questions -= 1
        return found

    def _answer(self, question: Question) -> dict[str, Any]:
        assert self._store is not None
        return document(question, self._store.sums(question))

    # ---- its life -----------------------------------------------------------------------------------------------

    async def startService(self) -> None:
        """Take what the spool holds, and open the database; one that is away is tried again later.

        :raises Failure: ``ledger_refused`` for what will not get better.
        """
        super().startService()
        await self._files(self._spool.open)
        self._say_trouble()
        try:
            await self._ask_database(self._opened).addTimeout(OPEN_SECONDS, self._clock)
        except Failure as failure:
            if failure.code == "ledger_refused":
                super().stopService()
                await self._files(self._spool.close)
                self._stop_threads()
                raise
            self._failed(failure.message)
        except TimeoutError:
            self._failed(f"it did not answer within {OPEN_SECONDS:g} s")
        self._gather_soon()
        self._write_soon()

    async def stopService(self) -> None:
        """Write what can be written within :data:`STOP_SECONDS`; the rest waits in the spool."""
        super().stopService()
        for call in (self._gathering, self._retry):
            if call is not None:
                call.cancel()
        self._gathering = self._retry = None
        try:
            await Deferred.fromCoroutine(self._finish()).addTimeout(STOP_SECONDS, self._clock)
        except TimeoutError:
            self.log.warn("the usage of some runs is not in the database yet; it is when the edge runs again")
            self._files(self._spool.close)
        self._stop_threads()

    async def _finish(self) -> None:
        if self._spooling is not None:
            await self._spooling.wait()
        if self._pending:
            await self._spool_pending()
        if self._writing is not None:
            await self._writing.wait()
        await self._write()
        if self._store is not None:
            await self._database(self._store.close)
        await self._files(self._spool.close)

    def _stop_threads(self) -> None:
        for each in (self._files, self._database, self._reading):
            each.stop()

    # ---- from runs to the spool ---------------------------------------------------------------------------------

    def _gather_soon(self) -> None:
        """Spool what is pending once it has been gathered for long enough; at once, if a slow disk held it up."""
        if not self._pending or self._gathering is not None or self._spooling is not None or not self.running:
            return
        wait = self._pending_since + GATHER_SECONDS - self._clock.seconds()
        if wait > 0:
            self._gathering = self._clock.callLater(wait, self._gathered)
        else:
            _run(self._spool_pending())

    def _gathered(self) -> None:
        self._gathering = None
        _run(self._spool_pending())

    async def _spool_pending(self) -> None:
        records, self._pending = self._pending, []
        spooling = self._spooling = Latch()
        try:
            lost = await self._files(_append, self._spool, records)
            self._lost += lost
        except CancelledError:
            raise
        except Exception:
            self._lost += len(records)
            self.log.failure("the usage of {count} runs is lost", count=len(records))
        finally:
            self._spooling = None
            spooling.fire()
        self._say_trouble()
        self._gather_soon()
        self._write_soon()

    def _say_trouble(self) -> None:
        """Log when the disk, or what was lost, is not as it was: once each time it begins, and once when it ends."""
        before, lost_before = self._trouble
        trouble, lost = self._spool.trouble, self.dropped
        if trouble and not before:
            self.log.error("the usage of runs cannot be kept on disk, and waits in memory: {why}", why=trouble)
        elif before and not trouble:
            self.log.info("the usage of runs is kept on disk again")
        if lost and not lost_before:
            words = "usage is lost, of {count} runs up to now: the spool is full, or no database takes it"
            self.log.error(words, count=lost)
        self._trouble = trouble, lost

    # ---- from the spool to the database -------------------------------------------------------------------------

    def _write_soon(self) -> None:
        if self.running and self._writing is None and self._retry is None:
            _run(self._write())

    async def _write(self) -> None:
        """Write what is in the spool, until nothing is, or the database is away."""
        writing = self._writing = Latch()
        try:
            while await self._write_some():
                pass
        except Failure as failure:
            self._failed(failure.message)
        except CancelledError:
            raise
        except Exception:
            self.log.failure("the ledger could not write")
            self._failed("a fault of the program")
        finally:
            self._writing = None
            writing.fire()

    async def _write_some(self) -> bool:
        """Write a batch; return whether there was one. :raises Failure:."""
        if not self._open:
            await self._ask_database(self._opened)
            self._is_back()
        batch = await self._files(self._spool.take, _BATCH)
        if batch is None:
            return False
        assert self._store is not None
        refused = await self._ask_database(self._store.insert, batch.rows)
        self._is_back()
        self._lost += refused
        await self._files(self._spool.done, batch)
        self._say_trouble()
        return True

    def _opened(self) -> None:
        """Open the database, in its thread."""
        if self._store is None:
            self._store = self._open_store()
        self._store.open()
        self._open = True

    def _ask_database(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """Call it in the database's thread, and notice when it hangs."""
        noticing = self._clock.callLater(HANG_SECONDS, self._is_away, f"no answer for {HANG_SECONDS:g} s")

        def answered(result: Any) -> Any:
            if noticing.active():
                noticing.cancel()
            return result

        return self._database(function, *arguments).addBoth(answered)

    def _is_away(self, why: str) -> None:
        if not self.away:
            self.away = True
            self.log.warn("the ledger's database is away, and runs wait in the spool: {why}", why=why)

    def _is_back(self) -> None:
        self._failures = 0
        if self.away:
            self.away = False
            self.log.info("the ledger's database is back")

    def _failed(self, why: str) -> None:
        """Try again later."""
        self._why = why
        self._is_away(why)
        first, most = RETRY_SECONDS
        wait = min(first * 2 ** min(self._failures, 20), most) * (0.5 + self._chance() / 2)
        self._failures += 1
        if self.running and self._retry is None:
            self._retry = self._clock.callLater(wait, self._tried_again)

    def _tried_again(self) -> None:
        self._retry = None
        self._write_soon()


def _append(spool: Spool, records: list[Record]) -> int:
    """Make records last, in the spool's thread; return how many are none that can be kept."""
    rows: list[Row] = []
    for record in records:
        try:
            rows.append(of_record(record))
        except (ValueError, TypeError, AttributeError, OverflowError):
            pass
    spool.append(rows)
    return len(records) - len(rows)


def _away(why: str) -> Failure:
    return Failure("ledger_away", f"the ledger's database is away: {why}", http_status=503)


def _run(work: Any) -> None:
    Deferred.fromCoroutine(work)


def make_ledger(
    url: str, state_dir: Path, reactor: Any, now: Callable[[], float], chance: Callable[[], float]
) -> Ledger:
    """Return the ledger of an edge.

    :param url: ``ledger.url``, and not ``none``.
    :param state_dir: where its spool is.
    """

    def open_store() -> IUsageStore:
        from iop.edge.ledger.sql import open_store  # SQLAlchemy is loaded when a ledger opens, in its thread

        return open_store(url, state_dir)

    files, database, reading = (OneThread(reactor, f"ledger-{name}") for name in ("spool", "database", "reading"))
    return Ledger(
        open_store,
        Spool(state_dir / "ledger.spool"),
        clock=reactor,
        now=now,
        chance=chance,
        files=files,
        database=database,
        reading=reading,
    )
