"""The Makefile and the interpreter it is given."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def test_an_interpreter_that_is_too_old_leaves_nothing_behind(tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text('#!/bin/sh\ncase "$*" in *print*) echo 3.9;; *) exit 1;; esac\n')
    old.chmod(0o755)
    done = make("up", f"PYTHON={old}", f"VENV={tmp_path}/venv")
    assert done.returncode != 0
    assert done.stderr.startswith(f"error: IOP needs Python 3.11 or later; {old} is 3.9.")
    assert not (tmp_path / "venv").exists()


def test_an_interpreter_that_is_not_there(tmp_path: Path) -> None:
    done = make("check", f"PYTHON={tmp_path}/nothing", f"VENV={tmp_path}/venv")
    assert done.stderr.startswith("error: IOP needs Python 3.11 or later;")
    assert not (tmp_path / "venv").exists()


def test_a_directory_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    for target in ("up", "clean"):
        done = make(target, f"VENV={tmp_path}")
        assert done.returncode != 0
        assert "no virtual environment" in done.stderr
    assert (tmp_path / "mine").exists()
