"""Lines for people and lines for programs. docs/contracts/config.md, Logging."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import (
    LegacyLogObserverWrapper,
    Logger,
    LogLevel,
    LogPublisher,
    globalLogPublisher,
    textFileLogObserver,
)
from twisted.python import log as older
from twisted.python.failure import Failure as TwistedFailure

from iop import logs
from iop.logs import is_secret, json_line, observer, of_twistd, redacted


def lines(level: str = "debug", format: str = "json") -> tuple[Logger, io.StringIO]:
    """A logger, and the file that an observer writes what it logs to."""
    file = io.StringIO()
    return Logger("tests", observer=observer(file, level, format)), file


def parsed(file: io.StringIO) -> list[dict[str, Any]]:
    assert file.getvalue().endswith("\n")
    return [json.loads(line) for line in file.getvalue().splitlines()]


# ---- json


def test_an_event_is_one_object() -> None:
    log, file = lines()
    log.warn("{run} failed: {code}", run="run-1", code="node_lost", node="n1")
    (line,) = parsed(file)
    ts = line.pop("ts")
    assert len(ts) == len("2026-01-01T00:00:00.000Z")
    assert ts.endswith("Z")
    assert list(line.items()) == [
        ("level", "warn"),
        ("ns", "tests"),
        ("msg", "run-1 failed: node_lost"),
        ("run", "run-1"),
        ("code", "node_lost"),
        ("node", "n1"),
    ]


def test_a_time_is_utc() -> None:
    assert json.loads(json_line({"log_time": 1_700_000_000.5}))["ts"] == "2023-11-14T22:13:20.500Z"


def test_a_traceback_is_one_string() -> None:
    log, file = lines()
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.failure("{run} broke", run="r")
    (line,) = parsed(file)
    assert file.getvalue().count("\n") == 1
    assert (line["level"], line["msg"], line["run"]) == ("critical", "r broke", "r")
    assert line["exc"].startswith("Traceback")
    assert line["exc"].endswith("ValueError: two\nlines")
    assert "failure" not in line


class Odd:
    def __str__(self) -> str:
        raise RuntimeError("no words")


KNOT: list[Any] = []
KNOT.append(KNOT)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        (10**30, 10**30),
        (["a", {"b": 1}], ["a", {"b": 1}]),
        ("\ud800 é\n\u2028", "\ud800 é\n\u2028"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (b"bytes", "b'bytes'"),
        (Path("/x"), "/x"),
        ({b"k": 1}, "{b'k': 1}"),
        ({"deep": [float("nan")]}, "{'deep': [nan]}"),
        (Odd(), "<Odd>"),
        (LogLevel.info, "<LogLevel=info>"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_a_field_is(value: Any, shown: Any) -> None:
    line = json_line({"log_format": "x", "field": value})
    assert line.isascii()
    assert line.count("\n") == 1
    assert json.loads(line)["field"] == shown


def test_a_knot_is_cut() -> None:
    assert json.loads(json_line({"log_format": "x", "field": KNOT}))["field"] == "[[...]]"


def test_a_field_does_not_take_the_place_of_ours() -> None:
    line = json.loads(json_line({"log_format": "{msg} {level}", "msg": "theirs", "level": 3, "exc": 1}))
    assert (line["msg"], line["level"]) == ("theirs 3", "info")
    assert "exc" not in line


def test_a_message_that_cannot_be_made() -> None:
    assert "Unable to format" in json.loads(json_line({"log_format": "{missing}"}))["msg"]


def test_events_of_the_older_log() -> None:
    file = io.StringIO()
    to = observer(file, "info", "json")
    globalLogPublisher.addObserver(to)
    try:
        older.msg("old words", system="HTTPChannel,1")
    finally:
        globalLogPublisher.removeObserver(to)
    (line,) = parsed(file)
    assert line.keys() == {"ts", "level", "ns", "msg"}
    assert line["msg"] == "old words"


def test_an_event_that_an_older_observer_has_seen() -> None:
    file = io.StringIO()
    both = LogPublisher(LegacyLogObserverWrapper(lambda event: None), observer(file, "info", "json"))  # type: ignore[arg-type]
    Logger("tests", observer=both).failure("{run} broke", TwistedFailure(ValueError("x")), run="r")
    (line,) = parsed(file)
    assert line.keys() == {"ts", "level", "ns", "msg", "run", "exc"}


# ---- text


def test_text_is_what_twisted_writes() -> None:
    ours, theirs = io.StringIO(), io.StringIO()
    both = LogPublisher(observer(ours, "info", "text"), textFileLogObserver(theirs))
    log = Logger("tests", observer=both)
    log.info("{run} went\non", run="r")
    log.failure("broke", TwistedFailure(ValueError("x")))
    assert ours.getvalue() == theirs.getvalue() != ""


# ---- levels


@pytest.mark.parametrize("format", ["text", "json"])
@pytest.mark.parametrize(("level", "count"), [("debug", 5), ("info", 4), ("warn", 3), ("error", 2), ("critical", 1)])
def test_the_least_level(format: str, level: str, count: int) -> None:
    log, file = lines(level, format)
    for each in ("debug", "info", "warn", "error", "critical"):
        getattr(log, each)("x")
    assert len(file.getvalue().splitlines()) == count


# ---- secrets


@pytest.mark.parametrize(
    "name",
    [
        "authorization",
        "Authorization",
        "proxy-authorization",
        "cookie",
        "Set-Cookie",
        "password",
        "token",
        "provider_token",
        "token_hash_sha256",
        "api_key",
        "x-api-key",
        "secret",
        "secret_headers",
        "client_secret",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)
    for format in ("json", "text"):
        log, file = lines(format=format)
        log.info("{it} {more[" + name + "]}", it=1, more={name: "marker-1"}, **{name: "marker-2"})
        assert "marker" not in file.getvalue()
        assert "***" in file.getvalue()


@pytest.mark.parametrize("name", ["token_ref", "tokens", "input_tokens", "keys", "author", "secretary", "run", "code"])
def test_names_that_are_none(name: str) -> None:
    assert not is_secret(name)


def test_an_event_without_a_secret_is_not_copied() -> None:
    event = {"log_format": "x", "run": "r", "more": {"a": 1}}
    assert redacted(event) is event


# ---- where twistd logs


def made(**options: Any) -> Any:
    return of_twistd(options, "info", "json")


def test_in_the_foreground_it_is_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("", "-"):
        Logger("tests", observer=made(nodaemon=True, logfile=name)).info("x")
        assert json.loads(capsys.readouterr().out)["msg"] == "x"


def test_a_daemon_has_no_stdout() -> None:
    with pytest.raises(SystemExit):
        made(nodaemon=False, logfile="-")


@pytest.mark.parametrize("name", ["twistd.log", "other.log"])
def test_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logs.signal, "signal", lambda *_: None)
    log = Logger("tests", observer=made(nodaemon=False, logfile="" if name == "twistd.log" else name))
    log.info("é")
    assert json.loads((tmp_path / name).read_text())["msg"] == "é"


def test_a_file_is_rotated_on_sigusr1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[int] = []
    monkeypatch.setattr(logs.signal, "signal", lambda number, handler: installed.append(number))
    made(nodaemon=True, logfile=str(tmp_path / "log"))
    monkeypatch.setattr(logs.signal, "getsignal", lambda number: print)
    made(nodaemon=True, logfile=str(tmp_path / "log"))
    assert installed == [signal.SIGUSR1]


@pytest.mark.parametrize("format", ["text", "json"])
def test_syslog(monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    import syslog

    from twisted.python.syslog import SyslogObserver

    opened: list[Any] = []
    said: list[tuple[int, str]] = []
    monkeypatch.setattr(SyslogObserver, "openlog", lambda self, prefix, *_: opened.append(prefix))
    monkeypatch.setattr(SyslogObserver, "syslog", lambda self, priority, line: said.append((priority, line)))
    log = Logger("tests", observer=of_twistd({"syslog": True, "prefix": "edge"}, "info", format))
    log.debug("no")
    log.warn("yes", token="marker")
    ((priority, line),) = said
    assert opened == ["edge"]
    assert "marker" not in line
    if format == "json":
        assert priority == syslog.LOG_WARNING
        assert json.loads(line)["msg"] == "yes"
    else:
        assert line.endswith("yes")


# ---- a whole program


def log_of(tmp_path: Path, *options: str, logging: str) -> str:
    """What an edge without a surface that is refused its port says, started as twistd starts it."""
    (tmp_path / "edge.yaml").write_text(
        f"edge: {{id: e}}\nlisten: unix:{tmp_path}/missing/nodes\nopenai: false\nlogging: {logging}\n"
        f"console: {{listen: 'unix:{tmp_path}/console'}}\n"
    )
    start = "from iop.cli.foreground import twistd; twistd()"
    command = [sys.executable, "-P", "-c", start, "--nodaemon", "--pidfile=", *options, "iop-edge"]
    command += ["--config", "edge.yaml", "--state-dir", str(tmp_path / "state")]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False, env=environ)
    assert (done.returncode, done.stderr) == (1, "")
    return done.stdout


def test_an_edge_logs_json_where_twistd_logs(tmp_path: Path) -> None:
    said = [json.loads(line) for line in log_of(tmp_path, logging="{format: json}").splitlines()]
    assert said[0]["msg"].startswith("twistd ")
    assert "cannot listen" in next(line["msg"] for line in said if line["level"] == "critical")


def test_an_edge_logs_into_twistds_file(tmp_path: Path) -> None:
    assert log_of(tmp_path, "--logfile", "edge.log", logging="{format: json, level: error}") == ""
    said = [json.loads(line) for line in (tmp_path / "edge.log").read_text().splitlines()]
    assert [line["level"] for line in said] == ["critical"]


def test_an_edge_logs_text_as_ever(tmp_path: Path) -> None:
    said = log_of(tmp_path, logging="{}").splitlines()
    assert "starting up." in said[0]
    assert said[0].split()[1].startswith("[twisted")


def test_a_logger_of_the_command_line_goes_first(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(
        "import sys\nfrom twisted.logger import textFileLogObserver\n"
        "def logger():\n    return textFileLogObserver(sys.stdout)\n"
    )
    said = log_of(tmp_path, "--logger", "theirs.logger", logging="{format: json, level: critical}").splitlines()
    assert "starting up." in said[0]
    assert not said[0].startswith("{")
