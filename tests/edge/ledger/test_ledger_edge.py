"""The ledger as a part of the edge. docs/contracts/ledger.md (Guarantees)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gateway_in_memory import document
from twisted.internet import reactor as installed

from iop.edge.accesslog import AccessLog
from iop.edge.config import load_document
from iop.edge.tap import Edge
from iop.errors import Failure

reactor: Any = installed


def edge(folder: Path, url: str) -> Edge:
    made = {**document(), "ledger": {"url": url}}
    return Edge(load_document(made, state_dir=folder).config, reactor, state_dir=folder)


def test_an_edge_has_its_ledger_among_those_that_are_told(tmp_path: Path) -> None:
    made = edge(tmp_path, "sqlite:ledger.sqlite3")
    assert made.ledger is not None
    assert made.ledger in made.recorders
    names = [type(each).__name__ for each in made._children]
    assert names[:2] == ["ConsoleListener", "Ledger"], "below every surface that runs come from"


def test_none_switches_it_off(tmp_path: Path) -> None:
    made = edge(tmp_path, "none")
    assert made.ledger is None
    assert [type(recorder) for recorder in made.recorders] == [AccessLog]
    with pytest.raises(Failure, match="keeps no usage") as caught:
        made.usage("", "", "")
    assert caught.value.code == "ledger_off"
    assert os.listdir(tmp_path) == []


def started(folder: Path, url: str) -> tuple[int, str]:
    """Start an edge that is to refuse; return its exit status and what it said."""
    config = folder / "edge.yaml"
    config.write_text(f"edge: {{id: e}}\nlisten: tcp:0:interface=127.0.0.1\nopenai: false\nledger: {{url: {url!r}}}\n")
    command = [sys.executable, "-P", "-m", "iop.cli.edge", "run", "--config", str(config), "--state-dir", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, cwd=folder)
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.slow
def test_a_ledger_that_cannot_be_is_one_sentence(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("e")
    status, said = started(folder, "postgresql://iop:marker@db:port/iop")
    assert status == 1
    assert "`ledger.url` cannot be read" in said
    assert "Traceback" not in said
    assert "marker" not in said
