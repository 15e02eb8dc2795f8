"""``iop-node``, as a person sees it: what it says when its edge is none."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from iop.cli import node
from iop.node.adapters import plugin


def test_an_unknown_option_shows_the_usage_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        node.main(["adapters", "--wat"])
    assert leaving.value.code == 2
    assert "usage: iop-node adapters" in capsys.readouterr().err


class Ghost:
    """A plugin that names what is not there."""

    @property
    def title(self) -> str:
        raise ModuleNotFoundError("No module named 'nope'\x1b")


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_plugin_that_cannot_be_used_is_told_beside_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], format: str
) -> None:
    found = plugin.found()
    monkeypatch.setattr(plugin, "found", lambda: {**found, "ghost": Ghost()})
    assert node.main(["adapters", "--format", format]) == 1
    out = capsys.readouterr().out
    why = "ModuleNotFoundError: No module named 'nope'?"
    if format == "json":
        told = {each["type"]: each for each in json.loads(out)}
        assert told["ghost"] == {"type": "ghost", "title": "", "error": why}
        assert told["cli"]["title"]
    else:
        assert f"ghost            cannot be used: {why}\n" in out
        assert "\ncli " in f"\n{out}"
    monkeypatch.undo()
    assert node.main(["adapters"]) == 0


def run(state_dir: Path, edge: str, until: str) -> str:
    """Run a node until it says something of a kind; return that line."""
    command = [sys.executable, "-P", "-m", "iop.cli.node", "run", "--edge", edge, "--state-dir", str(state_dir)]
    environ = {**os.environ, "IOP_NODE_TOKEN": "tok-A1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ) as process:
        assert process.stdout is not None
        try:
            return next((line for line in process.stdout if until in line), "")
        finally:
            process.kill()


@pytest.fixture
def http_port() -> Iterator[int]:
    """Where something answers that is no edge."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            connection.recv(100)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        yield listener.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_what_is_no_edge_is_said_to_be_none(tmp_path: Path, http_port: int, kind: str) -> None:
    edge = f"{kind}:127.0.0.1:{http_port}"
    line = run(tmp_path, edge, "again and again")
    assert f"the edge at {edge} did not register this node" in line
    assert "does not look like an edge's node port" in line


@pytest.mark.slow
def test_an_edge_that_is_not_there_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    line = run(tmp_path, f"tcp:127.0.0.1:{port}", "again and again")
    assert f"the edge at tcp:127.0.0.1:{port} cannot be reached" in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "--edge ENDPOINT is needed, as in tcp:edge.example:4610"),
        (("--edge", "127.0.0.1:4610"), "--edge is not a client endpoint: write tcp:127.0.0.1:4610"),
        (("--wat",), "option --wat not recognized"),
    ],
)
def test_run_refuses_in_a_sentence(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    command = [sys.executable, "-P", "-m", "iop.cli.node", "run", "--state-dir", str(tmp_path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith(f"iop-node run: {sentence}")
