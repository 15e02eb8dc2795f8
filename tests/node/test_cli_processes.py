"""Whose a process is, in the moments too in which it becomes another program; over a ``/proc`` of files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from iop.node.adapters.cli import processes
from iop.node.adapters.cli.processes import MARKER

BEGUN = 500
PID = 4_190_001  # nobody's: above what a kernel gives by default on a machine without many cores
MEMBER = PID + 1
"""Of the group that the other one leads, where it leads one; it has thrown its marker away."""
ENVIRON = f"A=b\0{MARKER}=mine\0".encode()


class Proc:
    """A process that belongs to no group, and whoever else there is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.slept = 0
        self.while_asleep: Callable[[], None] = lambda: None

    def has(
        self,
        environ: bytes,
        place: tuple[int, int] = (7000, 7100),
        state: str = "S",
        flags: int = 0x400000,
        *,
        pid: int = PID,
        group: int = 0,
    ) -> None:
        fields = [state, *["0"] * 51]
        fields[2], fields[6], fields[19] = str(group), str(flags), str(BEGUN)
        fields[47], fields[48] = map(str, place)
        folder = self._folder / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_text(f"{pid} (a )name) {' '.join(fields)}\n")
        (folder / "environ").write_bytes(environ)

    def sleep(self, seconds: float) -> None:
        self.slept += 1
        self.while_asleep()


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proc:
    made = Proc(tmp_path)
    monkeypatch.setattr(processes, "PROC", tmp_path)
    monkeypatch.setattr(processes.time, "sleep", made.sleep)
    return made


@pytest.fixture
def killed(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
    return killed


def test_who_carries_the_marker_is_killed(proc: Proc, killed: list[int]) -> None:
    proc.has(ENVIRON)
    assert processes._kill(1, "mine", BEGUN) == 1
    assert killed == [PID]
    assert proc.slept == 0


@pytest.mark.parametrize(("marker", "begun"), [("other", BEGUN), ("mine", BEGUN + 1)])
def test_nobody_else_is(proc: Proc, killed: list[int], marker: str, begun: int) -> None:
    proc.has(ENVIRON)
    assert processes._kill(1, marker, begun) == 0
    assert killed == []


@pytest.mark.parametrize("place", [(0, 0), (7000, 7100)], ids=["no place yet", "the one before was looked at"])
def test_one_that_becomes_another_program_is_looked_at_again(
    proc: Proc, killed: list[int], place: tuple[int, int]
) -> None:
    """Agents leave such children behind: the parent of a vfork goes on, and may end, in the middle of an exec."""
    proc.has(b"", place)
    proc.while_asleep = lambda: proc.has(ENVIRON) if proc.slept == 3 else None
    assert processes._kill(1, "mine", BEGUN) == 1
    assert killed == [PID]
    assert proc.slept == 3


@pytest.mark.parametrize(
    ("place", "state", "flags"),
    [((7000, 7000), "S", 0x400000), ((0, 0), "S", 0x208040), ((0, 0), "R", 0x400004), ((0, 0), "Z", 0x400004)],
    ids=["an empty environment", "a kernel thread", "one that ends", "one that has ended"],
)
def test_who_has_none_is_not_waited_for(
    proc: Proc, killed: list[int], place: tuple[int, int], state: str, flags: int
) -> None:
    proc.has(b"", place, state, flags)
    assert processes._kill(1, "mine", BEGUN) == 0
    assert killed == []
    assert proc.slept == 0


def test_nobody_is_waited_for_for_long(proc: Proc, killed: list[int]) -> None:
    proc.has(b"", (0, 0))
    assert processes._kill(1, "mine", BEGUN) == 0
    assert proc.slept == processes._LOOKS


@pytest.mark.parametrize(
    ("marker", "begun", "found"),
    [
        ("mine", BEGUN, [PID, MEMBER]),
        ("other", BEGUN, []),
        ("mine", BEGUN - 1, [PID]),
        ("mine", BEGUN + 1, []),
        ("other", BEGUN - 1, []),
    ],
    ids=["it", "another run", "its run, later", "its run, before", "a stranger"],
)
def test_a_group_is_a_dead_nodes_only_by_its_start_and_its_marker(
    proc: Proc, killed: list[int], tmp_path: Path, marker: str, begun: int, found: list[int]
) -> None:
    """One that began later and carries the marker is of the run, but its id says nothing any more of a group."""
    proc.has(ENVIRON, group=PID)
    proc.has(b"A=b\0", pid=MEMBER, group=PID)
    record = tmp_path / "children" / "record.json"
    record.parent.mkdir()
    record.write_text(json.dumps({"group": PID, "marker": marker, "begun": begun}))
    assert processes.reap_orphans(record.parent) == bool(found)
    assert sorted(set(killed)) == found
    assert not record.exists()
