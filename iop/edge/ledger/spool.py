"""The file in which rows wait until the database has them. ``docs/contracts/ledger.md`` (Spool).

Blocking, for one thread: nothing here knows of Twisted. A row is a line of JSON. Rows that the disk does not take are
kept in memory, up to a number.
"""

from __future__ import annotations

import fcntl
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import IO, Final, NamedTuple

from iop.edge.ledger.row import Row, of_line
from iop.errors import Failure

MOST_BYTES: Final = 64 << 20
"""Of the file; rows beyond are dropped."""

MOST_HELD: Final = 10_000
"""Rows in memory that the disk did not take; rows beyond are dropped."""

_TIDY: Final = 1 << 20


class Batch(NamedTuple):
    """Rows to be written to the database.

    :ivar end: how many bytes of all that went through the file since it was opened are done with them.
    """

    rows: Sequence[Row]
    end: int


class Spool:
    """Rows on their way to the database, on disk.

    :param path: of the file; its directory is made where it is missing. Beside it is a lock.
    :param fsync: makes a file's content last, by its descriptor.
    :ivar trouble: why the disk takes nothing at the moment; "" while it does.
    :ivar dropped: rows that found no room, since the process began.
    """

    def __init__(
        self,
        path: Path,
        *,
        fsync: Callable[[int], None] = os.fsync,
        most_bytes: int = MOST_BYTES,
        most_held: int = MOST_HELD,
    ) -> None:
        self._path = path
        self._fsync = fsync
        self._most_bytes = most_bytes
        self._most_held = most_held
        self._lock: IO[str] | None = None
        self._file = -1
        self._base = 0  # bytes that were in front of the file and are cut off
        self._read = 0  # bytes in the file that the database has
        self._size = 0  # bytes in the file that are whole lines
        self._held: list[Row] = []
        self._fresh: deque[tuple[Row, int]] = deque()  # the last rows of the file, with the lengths of their lines
        self._fresh_at = 0  # where they begin, counted as a batch's end
        self.trouble = ""
        self.dropped = 0

    def open(self) -> None:
        """Take what an edge before this one left. A disk that does not let us is :attr:`trouble`, no error.

        :raises Failure: ``ledger_refused`` when another edge has it: two would cut each other's rows away.
        """
        try:
            self._open()
        except OSError as error:
            self.trouble = _why(error)

    def append(self, rows: Sequence[Row]) -> None:
        """Make rows last: on disk, or in memory where that fails. What has no room is counted and gone."""
        lines = [row.line() for row in (*self._held, *rows)]
        try:
            self._open()
            fit = self._fitting(lines)
            if fit:
                self._write(b"".join(lines[:fit]))
                self._remember([*self._held, *rows][:fit], lines)
        except (OSError, Failure) as error:
            self.trouble = _why(error)
            kept = min(len(rows), self._most_held - len(self._held))
            self._held.extend(rows[:kept])
            self.dropped += len(rows) - kept
            return
        self.trouble = ""
        self._held.clear()
        self.dropped += len(lines) - fit

    def _remember(self, rows: Sequence[Row], lines: Sequence[bytes]) -> None:
        """Keep rows that have just been written, so that they need not be read again; not of a database long away."""
        if len(self._fresh) + len(rows) > self._most_held:
            self._fresh.clear()
            return
        lengths = [len(line) for line, _ in zip(lines, rows, strict=False)]
        if not self._fresh:
            self._fresh_at = self._base + self._size - sum(lengths)
        self._fresh.extend(zip(rows, lengths, strict=True))

    def take(self, most: int) -> Batch | None:
        """Return the next rows for the database, so many at most; None when it has all. Lines that are none go by."""
        if self._read == self._size:
            return Batch(self._held[:most], self._base + self._read) if self._held else None
        left = self._size - self._read
        if self._fresh and self._fresh_at == self._base + self._read:
            fresh = list(islice(self._fresh, most))
            return Batch([row for row, _ in fresh], self._fresh_at + sum([length for _, length in fresh]))
        try:
            data = os.pread(self._file, min(left, 1024 * most), self._read)
            if b"\n" not in data:
                data = os.pread(self._file, left, self._read)
        except OSError as error:
            self.trouble = _why(error)
            return None
        lines = data.split(b"\n")[:-1][:most]
        end = self._base + self._read + sum(len(line) + 1 for line in lines)
        return Batch([row for row in map(of_line, lines) if row is not None], end) if lines else None

    def done(self, batch: Batch) -> None:
        """The database has these: cut them off."""
        if self._held:
            gone = {row.run_id for row in batch.rows}
            self._held = [row for row in self._held if row.run_id not in gone]
        self._read = max(self._read, batch.end - self._base)
        while self._fresh and self._fresh_at < batch.end:
            self._fresh_at += self._fresh.popleft()[1]
        try:
            if self._read and self._read == self._size:
                self._cut_all()
            elif self._read >= max(_TIDY, self._size - self._read):
                self._cut()
        except OSError:  # they are written again after a crash, which changes nothing
            pass

    def close(self) -> None:
        """Let go of it; what is left waits for the next edge."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _open(self) -> None:
        """Open the file where it is not open, and cut off what is no whole line."""
        if self._file >= 0:
            return
        if self._lock is None:
            self._lock = _alone(self._path)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            whole = _whole(file)
            os.ftruncate(file, whole)
            self._sync_directory()
        except BaseException:
            os.close(file)
            raise
        self._file, self._size = file, whole

    def _fitting(self, lines: Sequence[bytes]) -> int:
        """Return how many of the first lines have room; make some where the database has much of the file."""
        needed = sum(map(len, lines))
        if self._size + needed > self._most_bytes and self._read >= _TIDY:
            self._cut()
        room = self._most_bytes - self._size
        if needed <= room:
            return len(lines)
        ends = list(accumulate(map(len, lines)))
        return bisect_right(ends, room)

    def _write(self, data: bytes) -> None:
        """Add whole lines, or none."""
        os.ftruncate(self._file, self._size)  # a write that failed may have left something
        _write_at(self._file, data, self._size)
        self._fsync(self._file)
        self._size += len(data)

    def _cut_all(self) -> None:
        self._base += self._size
        self._size = self._read = 0
        os.ftruncate(self._file, 0)

    def _cut(self) -> None:
        """Leave away what the database has: in another file, so that a crash finds this one or that."""
        rest = os.pread(self._file, self._size - self._read, self._read)
        beside = self._path.with_name(self._path.name + ".new")
        file = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_at(file, rest, 0)
            self._fsync(file)
            os.replace(beside, self._path)
        except BaseException:
            os.close(file)
            beside.unlink(missing_ok=True)
            raise
        os.close(self._file)
        self._file, self._size = file, len(rest)
        self._base += self._read
        self._read = 0
        self._sync_directory()

    def _sync_directory(self) -> None:
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._fsync(directory)
        finally:
            os.close(directory)


def _alone(path: Path) -> IO[str]:
    """Return a lock on a spool, which its process holds until it ends; :raises Failure: when another one has it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = open(path.with_name(path.name + ".lock"), "w", encoding="utf-8")  # noqa: SIM115 - held for as long as open
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        message = f"another edge keeps its usage in {path.parent}: give each its own state directory"
        raise Failure("ledger_refused", message) from None
    return lock


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _write_at(file: int, data: bytes, where: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(file, left, where)
        left, where = left[written:], where + written


def _whole(file: int) -> int:
    """Return where the last whole line ends."""
    end = os.fstat(file).st_size
    while end > 0:
        start = max(end - 4096, 0)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
