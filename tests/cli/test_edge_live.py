"""``iop-edge status`` and ``iop-edge config refresh`` against a scripted console. docs/contracts/console.md."""

from __future__ import annotations

import io
import json
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.cli import edge, edge_live
from iop.edge.config import Problem
from iop.edge.config.setting import Effect
from iop.edge.refresh import Change, Kind, NodeReport, RefreshResult, ReportStatus

LIVE = RefreshResult(
    mode="apply",
    changes=(Change("nodes[n].providers[p].capacity", Kind.MODIFIED, Effect.LIVE, 4, 8),),
    reports=(NodeReport("n", ReportStatus.UNCHANGED),),
    revision_before="a" * 64,
    revision_after="b" * 64,
)
COSTLY = RefreshResult(mode="dry_run", changes=(Change("listen", Kind.MODIFIED, Effect.RESTART, "a", "b"),))
REJECTED = RefreshResult(
    mode="apply",
    reports=(NodeReport("n", ReportStatus.FAILED, "FAILED: no"),),
    errors=(Problem("nodes[n]", 1, "", "apply_failed", "FAILED: no"),),
)
USAGE = {
    "uptime_ms": 60_000,
    "runs_total": 7,
    "runs_active": 1,
    "runs_failed": 2,
    "input_tokens": 900,
    "output_tokens": 80,
    "resident_bytes": 50 << 20,
}
SILENT = dict.fromkeys(("usage", "capabilities", "sessions", "transport", "providers"))
REPORTS: dict[str, Any] = {
    "usage": USAGE,
    "capabilities": {"adapters": [{"name": "gpu", "type": "openai_compat"}, {"name": "agent\x1b", "type": "cli"}]},
    "sessions": {"active": 2, "busy": 1},
    "transport": {"connected_ms": 60_000, "bytes_in": 2048, "bytes_out": 5 << 20, "reconnects": 2}
    | {"last_loss": "silent"},
    "providers": {
        "providers": [
            {"provider_id": "p", "health": "up", "in_flight": 1},
            {"provider_id": "q", "health": "down", "in_flight": 0},
        ]
    },
}
STATUS = {
    "edge": {"id": "home", "name": "At home"},
    "version": "1.2",
    "uptime_ms": 3_720_000,
    "revision": "c" * 64,
    "draining": False,
    "in_flight": 1,
    "queued": 0,
    "nodes": [
        {"id": "a", "connected": True, "ready": True, "draining": False, "hostname": "box", "agent_version": "1.1"}
        | REPORTS,
        {"id": "b", "connected": False, "ready": False, "draining": False, "hostname": "box", "agent_version": "1.1"}
        | SILENT,
        {"id": "c", "connected": True, "ready": True, "draining": True, "hostname": "", "agent_version": ""} | SILENT,
        {"id": "d", "connected": True, "ready": False, "draining": False, "hostname": "", "agent_version": ""} | SILENT,
    ],
    "providers": [
        {"node_id": "a", "provider_id": "p", "type": "vllm", "status": "online", "health": "up"}
        | {"in_flight": 1, "capacity": 4},
    ],
    "models": [
        {"id": "m", "display_name": None, "providers": [{"id": "p", "node_id": "a", "target": "t"}]},
        {"id": "none", "display_name": None, "providers": []},
    ],
}


class Script:
    """A console that answers what it is told to, once a connection.

    :ivar asked: request line and body of every request.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answer: bytes | None = b""
        self.asked: list[tuple[str, Any]] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def says(self, document: Any, status: int = 200) -> None:
        body = json.dumps(document).encode()
        self.answer = b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (status, len(body)) + body

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            with client, client.makefile("rb") as file:
                line = file.readline().decode().strip()
                if not line:
                    continue
                headers = {}
                while (header := file.readline().decode().strip()) != "":
                    name, _, value = header.partition(": ")
                    headers[name.lower()] = value
                body = file.read(int(headers.get("content-length", 0)))
                self.asked.append((line, json.loads(body) if body else None))
                if self.answer is None:
                    file.read(1)  # until the client leaves
                else:
                    client.sendall(self.answer)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A state directory whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@pytest.fixture
def script(folder: Path) -> Iterator[Script]:
    made = Script(folder / "console.sock")
    yield made
    made.close()


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run ``iop-edge``; its exit status, stdout and stderr."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("STATE_DIRECTORY", str(folder))

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            status = edge.main(arguments)
        except SystemExit as leaving:
            status = int(leaving.code or 0)
        out, err = capsys.readouterr()
        return status, out, err

    return run


# ---- refresh


def test_a_dry_run_is_the_default(script: Script, call: Call) -> None:
    script.says(LIVE.as_document())
    assert call("config", "refresh")[0] == 0
    assert call("config", "refresh", "--dry-run")[0] == 0
    assert script.asked == [("POST /v1/config/refresh HTTP/1.1", {"mode": "dry_run", "files": []})] * 2


def test_files_are_absolute(script: Script, call: Call, folder: Path) -> None:
    script.says(LIVE.as_document())
    call("config", "refresh", "--apply", "a.yaml", "/etc/b.yaml")
    assert script.asked[0][1] == {"mode": "apply", "files": [str(folder / "a.yaml"), "/etc/b.yaml"]}


def test_for_people(script: Script, call: Call) -> None:
    script.says(LIVE.as_document())
    assert call("config", "refresh", "--apply") == (
        0,
        (
            "~ nodes[n].providers[p].capacity 4 → 8 live\nn: unchanged\n"
            "1 change was applied live, without dropping a run\n"
        ),
        "",
    )
    script.says(COSTLY.as_document())
    status, out, _ = call("config", "refresh")
    assert (status, out.splitlines()[-1]) == (
        3,
        "restart required by 1 of 1 change; nothing would be applied until the edge is restarted",
    )
    script.says(REJECTED.as_document())
    status, out, _ = call("config", "refresh", "--apply")
    assert (status, out.splitlines()) == (
        4,
        ["nodes[n]: FAILED: no [apply_failed]", "n: failed: FAILED: no", "rejected: 1 error; nothing was applied"],
    )


@pytest.mark.parametrize(("result", "expected"), [(LIVE, 0), (COSTLY, 3), (REJECTED, 4)])
def test_for_programs(script: Script, call: Call, result: RefreshResult, expected: int) -> None:
    script.says(result.as_document())
    status, out, _ = call("config", "refresh", "--format", "json")
    assert (status, json.loads(out)) == (expected, result.as_document())


# ---- the pool, and one run


POOL: dict[str, Any] = {
    "queued": 3,
    "max_queue": 16,
    "queue_timeout_ms": 30_000,
    "providers": [
        {
            "node_id": "a",
            "provider_id": "p",
            "status": "online",
            "health": "degraded",
            "in_flight": 2,
            "capacity": 2,
            "queued": 3,
            "long_in_flight": 1,
            "long_context_capacity": 1,
            "long_queued": 1,
            "priority": 0,
        }
    ],
    "reasons": {"a/p": "slow\x1b"},
    "models": [{"id": "m", "queued": 3, "longest_wait_ms": 1500, "service_ms": 900}],
}

STORY: dict[str, Any] = {
    "id": "run-1",
    "request_id": "req-1",
    "model": "m",
    "tokens": 12,
    "long": False,
    "outcome": "complete",
    "queued_ms": 20,
    "total_ms": 1500,
    "steps": [
        {
            "at_ms": 0,
            "step": "waits",
            "provider": None,
            "considered": [{"provider": "a/p", "in_flight": 2, "priority": 0, "passed_over": "full"}],
        },
        {
            "at_ms": 20,
            "step": "dispatched",
            "provider": "a/p",
            "considered": [{"provider": "a/p", "in_flight": 1, "priority": 0, "passed_over": ""}],
        },
        {"at_ms": 1500, "step": "ended", "provider": "a/p", "outcome": "complete"},
    ],
    "attempts": [],
}


def test_pool_status(script: Script, call: Call) -> None:
    script.says(POOL)
    status, out, err = call("pool", "status")
    assert (status, err) == (0, "")
    first, heads, row, *rest = out.splitlines()
    assert first == "3 of 16 waiting, for 30.0 s at most"
    assert heads.split()[:4] == ["provider", "status", "health", "slots"]
    assert row.split() == ["a/p", "online", "degraded", "2/2", "3", "1/1", "1", "0"]
    assert rest == ["a/p: slow?", "model m: 3 waiting, the longest for 1.5 s"]
    script.says(POOL)
    assert json.loads(call("pool", "status", "--format", "json")[1]) == POOL
    script.says({"queued": 1})
    assert call("pool", "status")[0] == 1


def test_run_explain(script: Script, call: Call) -> None:
    script.says(STORY)
    status, out, err = call("run", "explain", "run/1")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "run-1: complete",
        "model m, about 12 tokens, request req-1",
        "waited 20 ms of 1.5 s",
        "    0 ms  no slot is free",
        "          a/p: full (2 in flight, priority 0)",
        "   20 ms  sent to a/p",
        "          a/p: taken (1 in flight, priority 0)",
        "   1.5 s  a/p: complete",
    ]
    assert script.asked == [("GET /v1/runs/run%2F1 HTTP/1.1", None)]


SESSIONS = {
    "sessions": [
        {"session_id": "s\x1b", "adapter": "claude", "state": "active", "workspace": "", "last_used_ms": 9},
        {"session_id": "t", "adapter": "claude", "state": "busy", "workspace": "", "last_used_ms": 10},
    ],
    "truncated": True,
}


def test_node_ask(script: Script, call: Call) -> None:
    script.says(SESSIONS)
    status, out, err = call("node", "ask", "n/1", "sessions")
    assert (status, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["session_id", "adapter", "state", "last_used_ms"],
        ["s?", "claude", "active", "9"],
        ["t", "claude", "busy", "10"],
        ["the", "report", "is", "longer;", "the", "node", "left", "the", "rest", "out"],
    ]
    script.says({**USAGE, "models": ["a", "b"], "truncated": False})
    assert call("node", "ask", "n", "USAGE")[1].splitlines()[-2:] == ["resident_bytes: 52428800", "models: a, b"]
    assert [asked for asked, _ in script.asked] == [
        "GET /v1/nodes/n%2F1/SESSIONS HTTP/1.1",
        "GET /v1/nodes/n/USAGE HTTP/1.1",
    ]
    script.says(SESSIONS)
    assert json.loads(call("node", "ask", "n", "SESSIONS", "--format", "json")[1]) == SESSIONS


def test_end_session(script: Script, call: Call) -> None:
    script.says({"found": True})
    assert call("node", "end-session", "n", "claude", '["","s"]')[:2] == (0, "the session has ended\n")
    document = {"node_id": "n", "adapter": "claude", "session_id": '["","s"]'}
    assert script.asked == [("POST /v1/sessions/end HTTP/1.1", document)]
    script.says({"found": False})
    assert "no such session" in call("node", "end-session", "n", "claude", "s")[1]


def test_an_id_may_be_any_bytes(script: Script, call: Call) -> None:
    script.says(STORY)
    assert call("run", "explain", os.fsdecode(b"\xff\xfe"))[0] == 0
    assert script.asked == [("GET /v1/runs/%FF%FE HTTP/1.1", None)]


def test_output_that_goes_nowhere(script: Script, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    script.says(POOL)
    monkeypatch.setattr(sys, "stdout", None)
    assert edge.main(["pool", "status", "--console", str(script.path)]) == 0


def test_output_that_cannot_be_written(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    script.says(POOL)
    full = open("/dev/full", "w")
    monkeypatch.setattr(sys, "stdout", full)
    assert edge.main(["pool", "status", "--console", str(script.path)]) == 1


# ---- status


def test_status_for_people(script: Script, call: Call) -> None:
    script.says(STATUS)
    status, out, err = call("status")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "home (At home) up for 1 h 2 min",
        "version 1.2, configuration cccccccccccc, 1 in flight, 0 waiting",
        "node a: ready on box, version 1.1; 7 runs, 2 failed, 900 tokens in, 80 out, 50 MiB",
        "  linked for 1 min, 2 times anew (last lost: silent): 2 KiB in, 5120 KiB out",
        "  adapters: gpu (openai_compat), agent? (cli)",
        "  sessions: 2 active, 1 busy",
        "  sees: p up, 1 running, q down, 0 running",
        "node b: not connected",
        "node c: draining",
        "node d: getting ready",
        "provider a/p (vllm): online, up, 1 of 4 slots",
        "model m: a/p=t",
        "model none: no provider",
    ]
    assert script.asked == [("GET /v1/status HTTP/1.1", None)]


def test_a_node_that_does_not_answer_is_said_to_be_silent(script: Script, call: Call) -> None:
    silent = {"id": "a", "connected": True, "ready": True, "draining": False, "hostname": "", "agent_version": ""}
    script.says({**STATUS, "nodes": [silent | SILENT]})
    assert "node a: ready; it does not answer" in call("status")[1].splitlines()


def test_status_for_programs(script: Script, call: Call) -> None:
    script.says(STATUS)
    status, out, _ = call("status", "--format", "json")
    assert (status, json.loads(out)) == (0, STATUS)


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (0, "0 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (3_600_000, "1 h"),
        (90_000_000, "1 d 1 h"),
        (86_460_000, "1 d 0 h 1 min"),
    ],
)
def test_how_long(milliseconds: int, words: str) -> None:
    assert edge_live._duration(milliseconds) == words


# ---- where the console is


def test_where_the_console_is(folder: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    script = Script(elsewhere / "console.sock")
    script.says(STATUS)
    assert call("status", "--state-dir", str(elsewhere))[0] == 0
    assert call("status", "--console", str(elsewhere / "console.sock"))[0] == 0
    assert call("status", "--console", f"unix:{elsewhere}/console.sock:mode=600")[0] == 0
    monkeypatch.setenv("STATE_DIRECTORY", str(elsewhere))
    assert call("status")[0] == 0
    script.close()


# ---- trouble


def test_no_edge(call: Call, folder: Path) -> None:
    status, out, err = call("status")
    assert (status, out) == (1, "")
    assert err == f"error: no edge answers at {folder}/console.sock: No such file or directory\n"


def test_a_dead_edge(call: Call, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder / "console.sock"))
    status, _, err = call("config", "refresh", "--apply")
    assert (status, err) == (1, f"error: no edge answers at {folder}/console.sock: Connection refused\n")


def test_an_edge_that_does_not_answer(script: Script, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_live, "_STATUS_PATIENCE", 0.05)
    script.answer = None
    status, _, err = call("status")
    assert (status, "did not answer within 0.05 s" in err) == (1, True)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 404 X\r\ncontent-length: 2\r\n\r\n{}",
    ],
)
def test_something_that_is_no_edge(script: Script, call: Call, answer: bytes) -> None:
    script.answer = answer
    status, out, err = call("status")
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert "Traceback" not in err


def test_an_edge_that_will_not(script: Script, call: Call) -> None:
    script.says({"error": {"code": "queue_full", "message": "too many refreshes wait already"}}, 429)
    assert call("config", "refresh") == (1, "", "error: too many refreshes wait already\n")


def test_an_edge_of_another_version(script: Script, call: Call) -> None:
    script.says({"status": "applied"})
    status, _, err = call("config", "refresh")
    assert (status, "of another version" in err) == (1, True)
    script.says({"edge": {}})
    status, _, err = call("status")
    assert (status, "of another version" in err) == (1, True)


@pytest.mark.parametrize(
    "arguments", [("--dry-run", "--apply"), ("--console", "unix:/x:mode=nine"), ("--nothing",), ("--format", "xml")]
)
def test_usage(call: Call, arguments: tuple[str, ...]) -> None:
    status, _, err = call("config", "refresh", *arguments)
    assert status == 2
    assert err.startswith("usage: ")


def test_colours_on_a_terminal_only(script: Script, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    script.says(STATUS)
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert call("status")[0] == 0
    assert "node a: \x1b[32mready\x1b[0m" in terminal.getvalue()


# ---- the document


TEXT = st.text(max_size=5)
VALUES = st.none() | st.integers() | TEXT | st.lists(st.integers(), max_size=2)
RESULTS = st.builds(
    RefreshResult,
    mode=TEXT,
    changes=st.lists(
        st.builds(Change, TEXT, st.sampled_from(Kind), st.sampled_from(Effect), VALUES, VALUES),
        unique_by=lambda c: c.path,
    ).map(lambda changes: tuple(sorted(changes, key=lambda c: c.path))),
    changed_nodes=st.just(("a", "b")),
    reports=st.just((NodeReport("a", ReportStatus.OFFLINE, "x"),)),
    errors=st.lists(st.builds(Problem, TEXT, st.integers(), TEXT, TEXT, TEXT), max_size=2).map(tuple),
    revision_before=st.none() | TEXT,
)


@given(RESULTS)
def test_a_result_survives_its_document(result: RefreshResult) -> None:
    assert RefreshResult.of_document(json.loads(json.dumps(result.as_document()))) == result
