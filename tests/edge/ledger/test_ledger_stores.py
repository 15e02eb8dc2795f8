"""The ledger's databases, and their double. docs/contracts/ledger.md (Storage, Schema)."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from contracts.usage_store import UsageStoreContract, row
from postgres import Cluster
from sqlalchemy import text

from iop.edge.ledger import sql
from iop.edge.ledger.memory import MemoryStore
from iop.edge.ledger.migrations import MIGRATIONS
from iop.edge.ledger.question import Question
from iop.edge.ledger.sql import open_store
from iop.errors import Failure

MARKER = "hidden word"


class TestMemory(UsageStoreContract):
    @pytest.fixture(autouse=True)
    def made(self) -> Any:
        self.store = MemoryStore()
        yield
        self.store.close()


class TestSQLite(UsageStoreContract):
    @pytest.fixture(autouse=True)
    def made(self, tmp_path: Path) -> Any:
        self.store = open_store("sqlite:deep/ledger.sqlite3", tmp_path)
        self.store.open()
        yield
        self.store.close()


class TestPostgreSQL(UsageStoreContract):
    @pytest.fixture(autouse=True)
    def made(self, cluster: Cluster, tmp_path: Path) -> Any:
        self.store = open_store(cluster.database(), tmp_path)
        self.store.open()
        yield
        self.store.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'ledger.sqlite3'}"
    made: str = request.getfixturevalue("cluster").database()
    return made


def opened(url: str, tmp_path: Path) -> sql.SQLStore:
    store = open_store(url, tmp_path)
    store.open()
    return store


def refused(url: str, tmp_path: Path) -> Failure:
    with pytest.raises(Failure) as caught:
        opened(url, tmp_path)
    assert MARKER not in str(caught.value)
    assert MARKER.replace(" ", "%20") not in str(caught.value)
    return caught.value


def execute(store: sql.SQLStore, *statements: str) -> None:
    with store._engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


# ---- schema


@pytest.mark.parametrize("version", range(len(MIGRATIONS) + 1))
def test_every_version_is_brought_up_to_date(
    url: str, tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr("iop.edge.ledger.migrations.MIGRATIONS", MIGRATIONS[:version])
        old = opened(url, tmp_path)
        if version:
            old.insert([row(1)])
        old.close()
    store = opened(url, tmp_path)
    store.insert([row(2)])
    assert store.sums(Question())[0].runs == (2 if version else 1)
    with store._engine.begin() as connection:
        assert connection.execute(text("SELECT version FROM iop_ledger_schema ORDER BY 1")).scalars().all() == [1, 2]
    store.close()


def test_a_migration_that_fails_changes_nothing(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        bad = (*MIGRATIONS, ("CREATE TABLE iop_more (x INTEGER)", "nonsense"))
        broken.setattr("iop.edge.ledger.migrations.MIGRATIONS", bad)
        assert refused(url, tmp_path).code == "ledger_away"
    store = opened(url, tmp_path)
    execute(store, "CREATE TABLE iop_more (x INTEGER)")
    store.close()


def test_a_newer_database_is_refused(url: str, tmp_path: Path) -> None:
    store = opened(url, tmp_path)
    execute(store, "INSERT INTO iop_ledger_schema VALUES (9)")
    store.close()
    failure = refused(url, tmp_path)
    assert failure.code == "ledger_refused"
    assert "schema version 9, and this program knows 2" in str(failure)


def test_two_edges_open_one_database_at_once(url: str, tmp_path: Path) -> None:
    stores = [open_store(url, tmp_path) for _ in range(4)]
    troubles: list[Failure] = []

    def go(store: sql.SQLStore) -> None:
        try:
            store.open()
        except Failure as failure:
            troubles.append(failure)

    threads = [threading.Thread(target=go, args=(store,)) for store in stores]
    for each in threads:
        each.start()
    for each in threads:
        each.join(20)
    if url.startswith("postgresql"):  # two edges on one SQLite file are none of ours; the spool's lock is in between
        assert troubles == []
    stores[0].open()
    for number, store in enumerate(stores):
        store.insert([row(number)])
    assert stores[0].sums(Question())[0].runs == 4
    for store in stores:
        store.close()


def test_a_row_that_the_database_never_takes_holds_up_no_other(url: str, tmp_path: Path) -> None:
    store = opened(url, tmp_path)
    execute(store, "DROP TABLE iop_usage")
    execute(store, MIGRATIONS[0][0].replace("model TEXT NOT NULL", "model TEXT NOT NULL CHECK (model <> 'bad')"))
    assert store.insert([row(1), row(2, model="bad"), row(3)]) == 1
    assert store.insert([row(4, model="bad")]) == 1
    assert store.sums(Question())[0].runs == 2
    store.close()


# ---- what cannot be


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("postgresql://iop:hidden word@db:port/iop", "ledger_refused", "cannot be read"),
        ("postgresql://iop:hidden%20word@[::1/iop", "ledger_refused", "cannot be read"),
        ("postgresql://iop:hidden%20word@127.0.0.1:1/iop?nonsense=1", "ledger_refused", "cannot be used"),
        ("postgresql://iop:hidden%20word@127.0.0.1:1/iop", "ledger_away", "refused"),
        ("postgresql://iop:hidden%20word@127.0.0.1:1/iop?sslmode=hidden%20word", "ledger_away", "sslmode"),
        ("postgres://iop@127.0.0.1:1/iop?password=hidden%20word&sslmode=hidden%20word", "ledger_away", "sslmode"),
    ],
)
def test_urls_that_lead_nowhere(url: str, code: str, words: str, tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    failure = refused(url, tmp_path)
    assert failure.code == code
    assert words in str(failure)
    assert "\n" not in str(failure)


def test_a_driver_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql.importlib.util, "find_spec", lambda name: None)
    failure = refused("postgresql://iop:hidden%20word@db/iop", tmp_path)
    assert failure.code == "ledger_refused"
    assert "pip install 'iop[postgres]'" in str(failure)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite3").write_bytes(b"precious" * 1000)
    failure = refused("sqlite:ledger.sqlite3", tmp_path)
    assert (failure.code, "is no SQLite database" in str(failure)) == ("ledger_refused", True)


# ---- SQLite and PostgreSQL as they are


def test_sqlite_is_its_owners_alone(tmp_path: Path) -> None:
    store = opened("sqlite:ledger.sqlite3", tmp_path)
    assert {stat.S_IMODE(os.stat(each).st_mode) for each in tmp_path.iterdir()} == {0o600}
    store.close()


def test_sqlite_commits_last(tmp_path: Path) -> None:
    store = opened("sqlite:ledger.sqlite3", tmp_path)
    with store._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    store.close()


def test_a_locked_sqlite_is_away_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "_BUSY_SECONDS", 0.05)
    store = opened("sqlite:ledger.sqlite3", tmp_path)
    other = sqlite3.connect(tmp_path / "ledger.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Failure, match="locked"):
        store.insert([row(1)])
    assert store.sums(Question())[0].runs == 0, "reading waits for no writer"
    other.execute("ROLLBACK")
    assert store.insert([row(1)]) == 0
    store.close()
    other.close()


def test_a_postgresql_that_was_restarted(cluster: Cluster, tmp_path: Path) -> None:
    url = cluster.database()
    store = opened(url, tmp_path)
    store.insert([row(1)])
    cluster.end_connections(url)
    assert store.insert([row(2)]) == 0, "the connection is looked at before it is used"
    assert store.sums(Question())[0].runs == 2
    store.close()


def test_a_file_that_was_moved_is_made_anew(tmp_path: Path) -> None:
    """Rows that went on into the moved file would be found by nobody."""
    store = open_store("sqlite:usage.db", tmp_path)
    store.open()
    store.insert([row(1)])
    for name in os.listdir(tmp_path):
        os.rename(tmp_path / name, tmp_path / f"old-{name}")
    with pytest.raises(Failure, match="moved or removed") as caught:
        store.insert([row(2)])
    assert caught.value.code == "ledger_away"
    store.insert([row(2)])
    assert [sums.runs for sums in store.sums(Question())] == [1]
    store.close()


@pytest.mark.parametrize("name", ["folder", "file/usage.db"])
def test_a_path_that_can_be_no_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(Failure) as caught:
        open_store(f"sqlite:{name}", tmp_path).open()
    assert caught.value.code == "ledger_refused"


def test_a_port_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="cannot be read"):
        open_store("postgresql://u:x@127.0.0.1:99999/db", tmp_path)
