"""The spool: what it promises of a disk. docs/contracts/ledger.md (Spool)."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from contracts.usage_store import row
from hypothesis import given
from hypothesis import strategies as st

from iop.edge.ledger.row import COLUMNS, LARGEST, Row, of_line, of_record
from iop.edge.ledger.spool import Spool
from iop.edge.record import Record
from iop.errors import Failure
from iop.model import Usage


class Disk:
    """An fsync that fails when the test says."""

    def __init__(self) -> None:
        self.error = 0
        self.calls = 0

    def fsync(self, file: int) -> None:
        self.calls += 1
        if self.error:
            raise OSError(self.error, os.strerror(self.error))


def made(path: Path, disk: Disk | None = None, **how: Any) -> Spool:
    spool = Spool(path / "ledger.spool", fsync=(disk or Disk()).fsync, **how)
    spool.open()
    return spool


def taken(spool: Spool, most: int = 1000) -> list[str]:
    """Take everything, as the database does."""
    found: list[str] = []
    while (batch := spool.take(most)) is not None:
        found += [each.run_id for each in batch.rows]
        spool.done(batch)
    return found


def size(path: Path) -> int:
    return (path / "ledger.spool").stat().st_size


# ---- lines


@given(
    st.builds(
        Row,
        run_id=st.text(min_size=1, max_size=20),
        at_ms=st.integers(0, 10**13),
        **{name: st.text(max_size=20) for name in COLUMNS[2:10]},
        **{name: st.none() | st.integers(0, LARGEST) for name in (*COLUMNS[10:14], "first_ms")},
        **{name: st.integers(0, LARGEST) for name in ("estimated", "queue_ms", "total_ms")},
    )
)
def test_a_line_is_the_row_that_it_was(one: Row) -> None:
    line = one.line()
    assert line.count(b"\n") == 1
    read = of_line(line)
    assert read is not None
    assert of_line(read.line()) == read
    assert read == one._replace(**{name: clean(getattr(one, name)) for name in ("run_id", *COLUMNS[2:10])})


def clean(words: str) -> str:
    return words.encode("utf-8", "replace").decode().replace("\0", "?")


@given(st.binary(max_size=200) | st.from_regex(rb'\A\{"run_id":"r","at_ms":.{0,20}\}\Z', fullmatch=True))
def test_a_line_that_is_none(line: bytes) -> None:
    found = of_line(line)
    assert found is None or found.run_id


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"7", b'{"run_id":"r"}', b'{"run_id":"","at_ms":1}', b"[" * 9_999])
def test_what_is_no_row(line: bytes) -> None:
    assert of_line(line) is None


def test_a_row_of_another_version_is_read() -> None:
    found = of_line(b'{"run_id":"r","at_ms":1,"new":[1]}')
    assert found is not None
    assert (found.model, found.input_tokens, found.total_ms) == ("", None, 0)


def test_a_record_becomes_what_every_database_takes() -> None:
    usage = Usage(10**30, -1, None, 3)
    found = of_record(
        Record(-5.0, "chat", "x" * 999, 200, model="a\0\ud800b", run_id="r", usage=usage, estimated=True, first_ms=None)
    )
    assert (found.at_ms, found.model, len(found.outcome)) == (0, "a??b", 400)
    assert found[10:15] == (LARGEST, 0, None, 3, 1)
    assert (found.first_ms, found.surface) == (None, "openai")


# ---- rows come and go


def test_rows_last_until_they_are_done(tmp_path: Path) -> None:
    spool = made(tmp_path)
    spool.append([row(1), row(2)])
    first = spool.take(10)
    assert first is not None
    spool.append([row(3)])
    spool.done(first)
    spool.close()
    assert taken(made(tmp_path)) == ["run-1", "run-2", "run-3"], "what is done is written again after a crash: once"


def test_it_is_empty_when_all_is_done(tmp_path: Path) -> None:
    spool = made(tmp_path)
    for number in range(5):
        spool.append([row(number)])
        assert taken(spool) == [f"run-{number}"]
        assert size(tmp_path) == 0
    assert spool.take(1) is None


def test_so_many_at_a_time(tmp_path: Path) -> None:
    spool = made(tmp_path)
    spool.append([row(number) for number in range(7)])
    batch = spool.take(3)
    assert batch is not None
    assert len(batch.rows) == 3
    assert spool.take(3) == batch, "until it is done"
    assert taken(spool, 3) == [f"run-{number}" for number in range(7)]


@given(st.data())
def test_a_write_that_was_cut_anywhere(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("spool")
    spool = made(path)
    spool.append([row(1), row(2)])
    spool.append([row(3)])
    spool.close()
    whole = (path / "ledger.spool").read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    (path / "ledger.spool").write_bytes(whole[:cut])
    spool = made(path)
    spool.append([row(4)])
    kept = whole[:cut].count(b"\n")
    assert taken(spool) == [f"run-{number}" for number in range(1, kept + 1)] + ["run-4"]
    spool.close()


def test_lines_that_are_none_go_by(tmp_path: Path) -> None:
    (tmp_path / "ledger.spool").write_bytes(b"nonsense\n" + row(1).line() + b"{}\n" + b"x" * 100_000 + b"\n")
    spool = made(tmp_path)
    assert taken(spool, 2) == ["run-1"]
    assert size(tmp_path) == 0


def test_what_the_database_has_is_left_away_when_it_is_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iop.edge.ledger.spool._TIDY", 2000)
    spool = made(tmp_path)
    spool.append([row(number) for number in range(20)])
    before = size(tmp_path)
    found = []
    for number in range(20, 60):
        batch = spool.take(2)
        assert batch is not None
        found += [each.run_id for each in batch.rows]
        spool.append([row(number)])  # in the middle of the writing
        spool.done(batch)
        assert size(tmp_path) <= 2 * before
    assert found + taken(spool) == [f"run-{number}" for number in range(60)]
    assert [each.name for each in tmp_path.iterdir() if each.name.endswith("new")] == []


# ---- bounds and troubles


def test_what_has_no_room_is_dropped_and_counted(tmp_path: Path) -> None:
    line = len(row(1).line())
    spool = made(tmp_path, most_bytes=3 * line + 5)
    spool.append([row(1), row(2)])
    spool.append([row(3), row(4), row(5)])
    assert (spool.dropped, spool.trouble) == (2, "")
    assert size(tmp_path) == 3 * line
    assert taken(spool) == ["run-1", "run-2", "run-3"]
    spool.append([row(6)])
    assert taken(spool) == ["run-6"]


def test_room_is_made_where_the_database_has_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iop.edge.ledger.spool._TIDY", 1)
    spool = made(tmp_path, most_bytes=4 * len(row(1).line()))
    spool.append([row(number) for number in range(4)])
    batch = spool.take(1)
    assert batch is not None
    spool.done(batch)
    spool.append([row(4)])
    assert spool.dropped == 0
    assert taken(spool) == ["run-1", "run-2", "run-3", "run-4"]


def test_a_full_disk_keeps_rows_in_memory(tmp_path: Path) -> None:
    disk = Disk()
    spool = made(tmp_path, disk, most_held=3)
    disk.error = errno.ENOSPC
    spool.append([row(1), row(2)])
    assert spool.trouble == "No space left on device"
    spool.append([row(3), row(4)])
    assert spool.dropped == 1
    batch = spool.take(2)
    assert batch is not None
    assert [each.run_id for each in batch.rows] == ["run-1", "run-2"]
    disk.error = 0
    spool.append([row(5)])
    assert spool.trouble == ""
    spool.done(batch)
    assert sorted(taken(spool)) == ["run-1", "run-2", "run-3", "run-5"]
    spool.close()


def test_a_held_row_is_not_taken_for_another(tmp_path: Path) -> None:
    """In the middle of the writing the disk takes what was held, and then takes nothing again."""
    disk = Disk()
    spool = made(tmp_path, disk)
    disk.error = errno.EIO
    spool.append([row(1)])
    batch = spool.take(9)
    assert batch is not None
    disk.error = 0
    spool.append([row(2)])
    disk.error = errno.EIO
    spool.append([row(3)])
    spool.done(batch)
    assert set(taken(spool)) == {"run-1", "run-2", "run-3"}


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    spool = made(tmp_path / "file" / "state")
    assert spool.trouble == "Not a directory"
    spool.append([row(1)])
    assert taken(spool) == ["run-1"]
    (tmp_path / "file").unlink()
    spool.append([row(2)])
    assert (spool.trouble, taken(spool)) == ("", ["run-2"])
    spool.close()
    spool.close()


def test_two_edges_do_not_share_one(tmp_path: Path) -> None:
    spool = made(tmp_path)
    with pytest.raises(Failure, match="another edge keeps its usage in") as caught:
        made(tmp_path)
    assert caught.value.code == "ledger_refused"
    spool.close()
    made(tmp_path).close()
