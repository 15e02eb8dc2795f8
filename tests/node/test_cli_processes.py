"""Whose a process is, in the moments too in which it becomes another program; over a ``/proc`` of files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from iop.node.adapters.cli import processes
from iop.node.adapters.cli.processes import MARKER

BEGUN = 500
PID = 4_190_001  # nobody's: above what a kernel gives by default on a machine without many cores
ENVIRON = f"A=b\0{MARKER}=mine\0".encode()


class Proc:
    """A process that belongs to no group of ours."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / str(PID)
        self._folder.mkdir()
        self.slept = 0
        self.while_asleep: Callable[[], None] = lambda: None

    def has(
        self, environ: bytes, place: tuple[int, int] = (7000, 7100), state: str = "S", flags: int = 0x400000
    ) -> None:
        fields = [state, *["0"] * 51]
        fields[6], fields[19], fields[47], fields[48] = str(flags), str(BEGUN), *map(str, place)
        (self._folder / "stat").write_text(f"{PID} (a )name) {' '.join(fields)}\n")
        (self._folder / "environ").write_bytes(environ)

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
