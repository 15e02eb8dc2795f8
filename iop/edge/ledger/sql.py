"""The ledger's rows in SQLite or PostgreSQL. ``docs/contracts/ledger.md`` (Storage).

It is imported when a ledger opens: SQLAlchemy takes a third of a second. What a driver says goes into no message
before the password is out of it.
"""

from __future__ import annotations

import importlib.util
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, quote_plus

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Connection,
    Engine,
    MetaData,
    SmallInteger,
    Table,
    Text,
    create_engine,
    event,
    func,
    literal,
    make_url,
    select,
)
from sqlalchemy.exc import ArgumentError, DatabaseError, DataError, IntegrityError, ProgrammingError, SQLAlchemyError
from zope.interface import implementer

from iop.edge.ledger.migrations import migrate
from iop.edge.ledger.question import MOST_GROUPS, SPANS, Question, Sums
from iop.edge.ledger.row import COLUMNS, Row
from iop.errors import Failure, printable
from iop.interfaces import IUsageStore

CONNECT_SECONDS: Final = 5
"""Until a PostgreSQL that does not answer counts as away."""

STATEMENT_SECONDS: Final = 60
"""Until PostgreSQL gives a statement up."""

_BUSY_SECONDS: Final = 5

_NEVER: Final = "ledger_row"

_TEXTS: Final = frozenset(COLUMNS[:1] + COLUMNS[2:10])

USAGE: Final = Table(
    "iop_usage",
    MetaData(),
    *(
        Column(name, Text if name in _TEXTS else SmallInteger if name == "estimated" else BigInteger)
        for name in COLUMNS
    ),
)

_Result = TypeVar("_Result")


def open_store(url: str, state_dir: Path) -> SQLStore:
    """Return the database that ``ledger.url`` names; nothing is connected yet.

    :param state_dir: where a relative path of ``sqlite:`` begins.
    :raises Failure: ``ledger_refused`` for a URL that cannot be, or a driver that is missing.
    """
    if url.startswith("sqlite:"):
        return SQLStore(_sqlite(state_dir / url.removeprefix("sqlite:")))
    try:
        parsed = make_url(url)
        if not 0 < (parsed.port or 5432) < 65536:
            raise ValueError
    except (ArgumentError, ValueError):
        message = "`ledger.url` cannot be read; it is postgresql://USER:PASSWORD@HOST:PORT/NAME, percent-encoded"
        raise Failure("ledger_refused", message) from None
    if importlib.util.find_spec("psycopg") is None:
        message = "`ledger.url` names PostgreSQL, whose driver is not installed: pip install 'iop[postgres]'"
        raise Failure("ledger_refused", message)
    return SQLStore(_postgresql(parsed), _secrets(parsed))


@implementer(IUsageStore)
class SQLStore:
    """Rows in a table of a database.

    :param engine: of the database; it has a connection for each of the two threads.
    :param secrets: what is left out of every message.
    """

    def __init__(self, engine: Engine, secrets: Sequence[str] = ()) -> None:
        self._engine = engine
        self._secrets = secrets
        database = engine.url.database
        self._path = Path(database) if engine.dialect.name == "sqlite" and database is not None else None
        self._file: tuple[int, int] | None = None
        marks = ", ".join(["?" if engine.dialect.name == "sqlite" else "%s"] * len(COLUMNS))
        self._insert = f"INSERT INTO {USAGE.name} ({', '.join(COLUMNS)}) VALUES ({marks}) ON CONFLICT DO NOTHING"

    def open(self) -> None:
        """Connect and migrate."""
        if self._path is not None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._path.touch(mode=0o600)  # SQLite's own mode would let others read it
            except (IsADirectoryError, NotADirectoryError, FileExistsError):
                raise Failure("ledger_refused", f"`ledger.url`: {self._path} cannot be a file") from None
            except OSError as error:
                raise Failure("ledger_away", f"its file cannot be made: {error.strerror}") from None
            if self._path.is_dir():
                raise Failure("ledger_refused", f"`ledger.url`: {self._path} is a directory")
        self._do(migrate)
        self._file = _identity(self._path)

    def insert(self, rows: Sequence[Row]) -> int:
        """Write rows in one transaction; one by one where the database takes some of them never."""
        if not rows:
            return 0
        if self._path is not None and _identity(self._path) != self._file:
            self._engine.dispose()  # what was written to it now, nobody would find
            self.open()
            raise Failure("ledger_away", "its file was moved or removed; there is a new one now")
        try:
            self._write(rows)
        except Failure as failure:
            if failure.code != _NEVER:
                raise
            return sum(self.insert((row,)) for row in rows) if len(rows) > 1 else 1
        return 0

    def sums(self, question: Question) -> list[Sums]:
        """Let the database sum."""
        return self._do(lambda connection: _sums(connection, question), reading=True)

    def close(self) -> None:
        """Close its connections."""
        self._engine.dispose()

    def _write(self, rows: Sequence[Row]) -> None:
        # the driver's own: made of columns anew for each batch, it takes several times as long
        values = [tuple(row) for row in rows]
        self._do(lambda connection: connection.exec_driver_sql(self._insert, values))

    def _do(self, what: Callable[[Connection], _Result], reading: bool = False) -> _Result:
        try:
            with self._engine.connect().execution_options(iop_reading=reading) as connection, connection.begin():
                return what(connection)
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> Failure:
        cause = getattr(error, "orig", None) or error
        if isinstance(error, DatabaseError) and getattr(cause, "sqlite_errorname", "") == "SQLITE_NOTADB":
            return Failure("ledger_refused", f"{self._engine.url.database} is no SQLite database: move it away")
        if isinstance(error, DataError | IntegrityError):
            return Failure(_NEVER, "a row has something that the database cannot hold")
        words = " ".join(str(cause).split("\n", 1)[0].split())
        for secret in self._secrets:
            words = words.replace(secret, "…")
        said = printable(words)[:300] or type(cause).__name__
        if isinstance(error, ProgrammingError) and not getattr(cause, "sqlstate", "x"):  # libpq read the URL
            return Failure("ledger_refused", f"`ledger.url` cannot be used: {said}")
        return Failure("ledger_away", said)


def _identity(path: Path | None) -> tuple[int, int] | None:
    """Return what tells a file from another one of its name; None for none."""
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)


def _sqlite(path: Path) -> Engine:
    engine = create_engine(
        URL.create("sqlite+pysqlite", database=str(path)),
        connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False},
        pool_size=2,
        max_overflow=0,
    )

    @event.listens_for(engine, "connect")
    def _(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # we say ourselves when a transaction begins
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _(connection: Connection) -> None:
        reading = connection.get_execution_options().get("iop_reading")
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    return engine


def _postgresql(url: URL) -> Engine:
    usual: dict[str, Any] = {
        "connect_timeout": CONNECT_SECONDS,
        "tcp_user_timeout": 10_000,
        "keepalives_idle": 30,
        "application_name": "iop-edge",
    }
    arguments = {name: value for name, value in usual.items() if name not in url.query}
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        connect_args={**arguments, "prepare_threshold": None},  # a pooler in between may not keep what was prepared
        pool_size=2,
        max_overflow=0,
        pool_pre_ping=True,
        hide_parameters=True,
    )

    @event.listens_for(engine, "connect")
    def _(connection: Any, _: Any) -> None:
        connection.execute(f"SET statement_timeout = '{STATEMENT_SECONDS}s'")
        connection.commit()

    return engine


def _secrets(url: URL) -> list[str]:
    """Return everything of a URL that no message may hold, as it may stand there."""
    hidden = [str(url.password)] if url.password else []
    for name, value in url.query.items():
        if "pass" in name:
            hidden.extend([value] if isinstance(value, str) else value)
    written = {form(each) for each in hidden for form in (str, quote, quote_plus)}
    return sorted(written - {""}, key=len, reverse=True)


def _sums(connection: Connection, question: Question) -> list[Sums]:
    columns = USAGE.c
    groups: list[Any] = [
        columns.at_ms // literal(SPANS[name], BigInteger) if name in SPANS else columns[name] for name in question.by
    ]
    numbered = [each.label(f"group_{number}") for number, each in enumerate(groups)]
    totals = [
        func.coalesce(func.sum(columns[name]), 0)
        for name in ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "estimated", "queue_ms")
    ]
    answered = [func.count(columns.first_ms), func.coalesce(func.sum(columns.first_ms), 0)]
    total = func.coalesce(func.sum(columns.total_ms), 0)
    asked = select(*numbered, func.count(), *totals, *answered, total).select_from(USAGE)
    if question.since_ms is not None:
        asked = asked.where(columns.at_ms >= question.since_ms)
    if question.until_ms is not None:
        asked = asked.where(columns.at_ms < question.until_ms)
    if numbered:
        asked = asked.group_by(*(each.name for each in numbered)).limit(MOST_GROUPS + 1)
    split = len(numbered)
    return [Sums(tuple(row[:split]), *map(int, row[split:])) for row in connection.execute(asked)]
