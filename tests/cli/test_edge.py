"""``iop-edge``, as a person and as a program sees it. docs/contracts/config.md, Programs and commands."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import iop
from iop.cli import edge

GOOD = """
edge: {id: home}
nodes:
  - id: gpu-1
    token: marker-token
    adapters: [{name: v, type: openai_compat, base_url: "http://marker-user@h/v1", headers: {A: marker-header}}]
    providers: [{id: p, type: vllm, category: api, adapter: v, models: [m]}]
models: [{id: m, providers: [p]}]
"""
BAD = "edge: {id: home}\nheartbeat_ms: 0\nprovider_pol: {}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(BAD)
    return tmp_path


@pytest.fixture
def call(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command; its exit status, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            status = edge.main(arguments)
        except SystemExit as leaving:
            status = int(leaving.code or 0)
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_check_for_programs(call: Any) -> None:
    status, out, _ = call("config", "check", "good.yaml", "--format", "json")
    document = json.loads(out)
    assert status == 0
    assert (document["valid"], document["errors"]) == (True, [])
    assert {warning["code"] for warning in document["warnings"]} == {"literal_secret"}
    status, out, _ = call("config", "check", "--format", "json", "bad.yaml")
    assert status == 4
    assert json.loads(out)["errors"] == [
        {
            "path": "heartbeat_ms",
            "line": 2,
            "file": "bad.yaml",
            "code": "range",
            "message": "must be 1 or more",
        },
        {
            "path": "provider_pol",
            "line": 3,
            "file": "bad.yaml",
            "code": "schema",
            "message": "unknown key; did you mean `provider_pool`?",
        },
    ]


def test_check_for_people(call: Any) -> None:
    status, out, err = call("config", "check", "bad.yaml")
    assert status == 4
    assert out.splitlines() == [
        "bad.yaml:2: heartbeat_ms: must be 1 or more [range]",
        "bad.yaml:3: provider_pol: unknown key; did you mean `provider_pool`? [schema]",
        "refused: 2 errors",
    ]
    assert err == ""
    status, out, _ = call("config", "check", "good.yaml")
    assert status == 0
    assert out.splitlines()[-1] == "valid: 2 warnings"


def test_several_files_are_one_configuration(call: Any, folder: Path) -> None:
    (folder / "over.yaml").write_text("heartbeat_ms: 5\nprovider_pol: null\n")
    assert call("config", "check", "bad.yaml", "over.yaml")[:2] == (0, "valid\n")


@pytest.mark.parametrize(("name", "why"), [("missing.yaml", "No such file or directory"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read_has_no_line(call: Any, name: str, why: str) -> None:
    assert call("config", "check", name)[1].splitlines()[0] == f"cannot read {name}: {why} [file]"


def test_two_listeners_at_one_port(call: Any, folder: Path) -> None:
    (folder / "ports.yaml").write_text('edge: {id: e}\nlisten: "tcp:4600"\nmetrics: {listen: "tcp:4690"}\n')
    status, out, _ = call("config", "check", "ports.yaml")
    assert status == 4
    assert out.splitlines()[0] == (
        "ports.yaml:1: openai.listen: `listen` listens there already; each listener needs a port of its own [conflict]"
    )


@pytest.mark.parametrize("name", ["missing.yaml", ".", "a\0b"])
def test_a_file_that_cannot_be_read(call: Any, name: str) -> None:
    status, out, _ = call("config", "check", name, "--format", "json")
    (error,) = json.loads(out)["errors"]
    assert status == 4
    assert error["code"] == "file"
    assert error["path"] == ""
    assert name in error["message"]


def test_show_for_programs(call: Any) -> None:
    status, out, err = call("config", "show", "good.yaml", "--format", "json")
    document = json.loads(out)
    assert status == 0
    assert document["edge"] == {"id": "home", "name": "home"}
    assert document["nodes"][0]["token"] == "***"
    assert document["nodes"][0]["adapters"][0]["base_url"] == "http://***@h/v1"
    assert "marker" not in out + err


def test_show_for_people(call: Any) -> None:
    status, out, err = call("config", "show", "good.yaml")
    assert status == 0
    assert yaml.safe_load(out) == json.loads(call("config", "show", "good.yaml", "--format", "json")[1])
    assert err.count("[literal_secret]") == 2
    assert "marker" not in out + err


def test_show_of_what_does_not_load_is_the_check(call: Any) -> None:
    shown = call("config", "show", "bad.yaml", "--format", "json")
    assert shown == call("config", "check", "bad.yaml", "--format", "json")
    assert shown[0] == 4


def test_schema(call: Any) -> None:
    status, out, _ = call("config", "schema")
    assert status == 0
    assert json.loads(out)["properties"]["provider_pool"]
    assert call("config", "schema", "--format", "json")[1] == out


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("config",),
        ("config", "check"),
        ("config", "nonsense"),
        ("nonsense",),
        ("config", "check", "good.yaml", "--format", "xml"),
        ("config", "check", "good.yaml", "--form", "json"),
        ("config", "check", "good.yaml", "--wat"),
        ("config", "schema", "good.yaml"),
    ],
)
def test_wrong_usage(call: Any, arguments: tuple[str, ...]) -> None:
    status, out, err = call(*arguments)
    assert status == 2
    assert out == ""
    assert "usage: iop-edge" in err
    assert "Traceback" not in err


def test_an_unknown_option_shows_the_usage_of_its_command(call: Any) -> None:
    assert "usage: iop-edge config check" in call("config", "check", "good.yaml", "--wat")[2]


def test_version(call: Any) -> None:
    assert call("--version")[:2] == (0, f"iop-edge {iop.__version__}\n")


def test_help(call: Any) -> None:
    for arguments in (("--help",), ("config", "--help"), ("config", "check", "--help")):
        status, out, _ = call(*arguments)
        assert status == 0
        assert "usage: iop-edge" in out
        assert "`" not in out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_only_on_a_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    edge.main(["config", "check", "bad.yaml"])
    assert "\x1b[31m[range]\x1b[0m" in sys.stdout.getvalue()
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    edge.main(["config", "check", "bad.yaml"])
    assert "\x1b" not in sys.stdout.getvalue()


@pytest.mark.parametrize(
    "rest",
    [
        ["--config", "good.yaml"],
        ["--config=good.yaml", "--state-dir", "x"],
        ["--help"],
        ["--config", "a", "--config", "b"],
    ],
)
def test_run_becomes_twistd(call: Any, monkeypatch: pytest.MonkeyPatch, rest: list[str]) -> None:
    became: list[Any] = []
    monkeypatch.setattr(os, "execv", lambda path, arguments: became.append((path, arguments)))
    call("run", *rest)
    ((path, arguments),) = became
    assert path == sys.executable
    assert arguments[-len(rest) - 3 :] == ["--nodaemon", "--pidfile=", "iop-edge", *rest]


def command(folder: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(Path(edge.__file__).parents[2]), **options.pop("env", {})}
    return subprocess.run(
        [sys.executable, "-m", "iop.cli.edge", *arguments],
        cwd=folder,
        env=environ,
        text=True,
        capture_output=True,
        check=False,
        **options,
    )


def test_a_reader_that_has_enough(folder: Path) -> None:
    script = f"{sys.executable} -m iop.cli.edge config schema | head -c 1"
    environ = {**os.environ, "PYTHONPATH": str(Path(edge.__file__).parents[2])}
    done = subprocess.run(script, shell=True, cwd=folder, env=environ, text=True, capture_output=True, check=False)
    assert (done.stdout, done.stderr) == ("{", "")


def test_a_terminal_that_knows_ascii_only(folder: Path) -> None:
    (folder / "name.yaml").write_text("edge: {id: e, name: Labör}\n")
    done = command(folder, "config", "show", "name.yaml", env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert done.returncode == 0
    assert "Lab\\xf6r" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("good.yaml",), "did you mean --config good.yaml?"),
        (("--confg", "good.yaml"), "option --confg not recognized"),
        ((), "--config FILE is needed"),
    ],
)
def test_run_refuses_in_a_sentence(folder: Path, arguments: tuple[str, ...], sentence: str) -> None:
    done = command(folder, "run", *arguments, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"iop-edge run: {sentence}\n")


def test_run_starts_twistd(folder: Path) -> None:
    done = command(folder, "run", "--version", timeout=60)
    assert "Traceback" not in done.stderr
