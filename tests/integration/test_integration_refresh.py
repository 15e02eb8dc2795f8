"""Refreshing a running edge, with real processes: no stream is dropped, and all of it happens or nothing.

docs/contracts/refresh.md, Apply; docs/contracts/console.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from raw_http import Wire, ask, chat
from real_gateway import Backend, Gateway, provider
from running import TWISTD, Child, until

from iop import model as m
from iop.wire import translate
from iop.wire.frames import MAX_FRAME

pytestmark = pytest.mark.slow

MARKER = "marker-secret"
STREAMS = 50


class Console:
    """The console of a gateway, as its operator uses it."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.printed: list[str] = []

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run ``iop-edge``; its exit status and all it prints."""
        command = [sys.executable, "-P", "-m", "iop.cli.edge", *arguments]
        state_dir = str(self.gateway.folder / "edge")
        done = subprocess.run(
            [*command, "--state-dir", state_dir], capture_output=True, text=True, timeout=40, check=False
        )
        self.printed.append(done.stdout + done.stderr)
        return done.returncode, done.stdout + done.stderr

    def refresh(self, *files: Path, mode: str = "--apply") -> dict[str, Any]:
        _, out = self.run("config", "refresh", mode, "--format", "json", *map(str, files))
        result: dict[str, Any] = json.loads(out)
        return result

    @property
    def status(self) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.run("status", "--format", "json")[1])
        return shown


class Configuration:
    """The configuration of a gateway, to be changed."""

    def __init__(self, gateway: Gateway) -> None:
        self._path = gateway.config_path
        self._folder = gateway.folder
        self.document: dict[str, Any] = json.loads(self._path.read_text())

    def set(self, *, capacity: int | None = None, concurrency: int | None = None, **root: Any) -> Configuration:
        """Change the first node's first provider, every node's payload, or a key of the root."""
        if capacity is not None:
            self.document["nodes"][0]["providers"][0]["capacity"] = capacity
        if concurrency is not None:
            for node in self.document["nodes"]:
                node["runtime"] = {"concurrency": concurrency}
        self.document |= root
        return self

    def write(self, name: str = "") -> Path:
        """Write it over the file the edge was started with, or to another one."""
        path = self._folder / f"{name}.json" if name else self._path
        path.write_text(json.dumps(self.document))
        return path


class ScriptedNode:
    """A node that speaks the wire itself and answers refreshes as told, or not at all."""

    def __init__(self, port: int, token: str, word: m.RefreshStatus | None) -> None:
        self.word = word
        self.payloads: list[m.NodePayload] = []
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._send(m.RegisterRequest(token, hostname="scripted", agent_version="0"))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _send(self, message: Any) -> None:
        envelope = translate.encode(message)
        self._socket.sendall(len(envelope).to_bytes(4, "big") + envelope)

    def _serve(self) -> None:
        file = self._socket.makefile("rb")
        try:
            while size := int.from_bytes(file.read(4), "big"):
                assert size <= MAX_FRAME
                kind, envelope = translate.parse(file.read(size))
                self._answer(kind, translate.decode(kind, envelope))
        except (OSError, ValueError):
            pass

    def _answer(self, kind: str | None, message: Any) -> None:
        if kind == "register_response":
            self.payloads.append(message.config)
            self._send(m.NodeConfigRefreshResponse("", message.config.revision, m.RefreshStatus.APPLIED))
        elif kind == "ping":
            self._send(m.Pong(message.nonce))
        elif kind == "node_config_refresh_request":
            self.payloads.append(message.payload)
            if self.word is not None:
                revision = message.payload.revision
                answer = m.NodeConfigRefreshResponse(message.request_id, revision, self.word, "not today")
                self._send(answer)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._socket.close()


MakeGateway = Callable[..., Gateway]


def with_second_node(gateway: Gateway, token: str = "second-token") -> Gateway:
    """Give it a second node, without providers, before it starts."""
    made = Configuration(gateway)
    hashed = hashlib.sha256(token.encode()).hexdigest()
    made.document["nodes"].append({"id": "node-2", "token_hash_sha256": hashed, "runtime": {"concurrency": 1}})
    made.write()
    return gateway


@pytest.fixture
def gateway(make_gateway: MakeGateway, fake: Backend) -> Gateway:
    """A gateway with a marked secret wherever one can stand."""
    headers = {"X-Key": MARKER, "Authorization": f"Bearer {MARKER}"}
    made = make_gateway(
        provider("fake", fake, "openai", headers=headers, capacity=STREAMS),
        control_plane={"endpoint": "tcp:127.0.0.1:9", "token": MARKER},
    )
    document = Configuration(made)
    document.document["nodes"][0]["adapters"][0]["base_url"] = f"http://user:{MARKER}@127.0.0.1:{fake.port}/v1"
    document.write()
    return made


@pytest.fixture
def console(gateway: Gateway) -> Iterator[Console]:
    """Its console; at the end no secret may have been printed or logged."""
    made = Console(gateway)
    yield made
    for output in [*made.printed, gateway.edge.log]:
        assert MARKER not in output
        assert "second-token" not in output


def test_a_live_change_drops_no_stream(gateway: Gateway, console: Console, fake: Backend) -> None:
    Configuration(gateway).set(provider_pool={"max_queue": 1}).write()
    gateway.start()
    with ExitStack() as stack:
        streams = [stack.enter_context(Wire(gateway.port)) for _ in range(STREAMS)]
        for stream in streams:
            stream.send(chat("drip 60 0.05", stream=True))
        for stream in streams:
            stream.begin()
        assert console.status["in_flight"] == STREAMS
        waiting = stack.enter_context(Wire(gateway.port))
        waiting.send(chat("hello"))
        until(lambda: console.status["queued"] == 1, "the request waits")
        full = ask(gateway, chat("hello"))
        assert (full.status, full.error["code"]) == (429, "queue_full")

        made = Configuration(gateway).set(capacity=STREAMS + 2, concurrency=7)
        made.document["models"].append({"id": "another", "providers": [{"id": "fake", "target": "fake"}]})
        made.write()
        result = console.refresh()
        assert (result["status"], result["errors"]) == ("applied", [])
        assert result["reports"] == [{"node_id": "node-1", "status": "applied", "message": ""}]
        assert result["changed_models"] == ["another"]
        assert waiting.answer().status == 200, "the change gave it a slot"
        assert ask(gateway, chat("hello", model="another")).status == 200

        made.set(capacity=1).write()
        assert console.refresh()["status"] == "applied"
        shrunk = console.status
        assert (shrunk["in_flight"], shrunk["providers"][0]["in_flight"]) == (STREAMS, STREAMS)
        assert shrunk["providers"][0]["capacity"] == 1
        waiting.send(chat("hello"))
        until(lambda: console.status["queued"] == 1, "the request waits")
        assert ask(gateway, chat("hello")).status == 429

        for stream in streams:
            events = stream.rest().events
            assert events[-1] == "[DONE]"
            assert len(events) >= 60
        assert waiting.answer().status == 200
    until(lambda: console.status["in_flight"] == 0, "every lease is given back")
    assert ask(gateway, chat("hello")).status == 200
    assert fake.stats["requests"] == 0


def test_a_restart_required_change_applies_nothing(gateway: Gateway, console: Console) -> None:
    gateway.start()
    before = console.status
    Configuration(gateway).set(capacity=1, heartbeat_ms=5000).write()
    status, said = console.run("config", "refresh", "--apply")
    assert status == 3
    assert "~ heartbeat_ms 10000 → 5000 restart required" in said
    assert said.splitlines()[-1].startswith("restart required by 1 of 2 changes; nothing was applied")
    after = console.status
    assert (after["revision"], after["providers"]) == (before["revision"], before["providers"])
    gateway.edge.stop()
    gateway.start_edge()
    gateway.ready()
    assert console.status["providers"][0]["capacity"] == 1, "the node came back by itself"


def test_a_broken_candidate_leaves_the_edge_as_it_was(gateway: Gateway, console: Console) -> None:
    gateway.start()
    before = console.status["revision"]
    good = gateway.config_path.read_text()
    Configuration(gateway).set(capacity=0).write()
    for _ in range(2):
        status, said = console.run("config", "refresh", "--apply")
        assert status == 4
        assert "nodes[0].providers[0].capacity: " in said
        assert said.splitlines()[-1] == "rejected: 1 error; nothing was applied"
    gateway.config_path.write_text(good.replace('"nodes"', f'"{MARKER}": [\n, "nodes"'))
    assert console.run("config", "refresh", "--apply")[0] == 4
    gateway.config_path.unlink()
    assert console.run("config", "refresh", "--apply")[0] == 4
    assert console.status["revision"] == before
    assert ask(gateway, chat("hello")).status == 200


def test_a_node_that_refuses_rolls_all_back(gateway: Gateway, console: Console) -> None:
    with_second_node(gateway).start()
    second = ScriptedNode(gateway.node_port, "second-token", m.RefreshStatus.FAILED)
    until(lambda: console.status["nodes"][1]["ready"], "the second node is ready")
    before = console.status
    result = console.refresh(Configuration(gateway).set(capacity=3, concurrency=9).write("candidate"))
    assert result["status"] == "rejected"
    assert {each["node_id"]: each["status"] for each in result["reports"]} == {
        "node-1": "rolled_back",
        "node-2": "failed",
    }
    assert [error["path"] for error in result["errors"]] == ["nodes[node-2]"]
    after = console.status
    assert after["revision"] == before["revision"]
    assert after["nodes"][0]["revision"] == before["nodes"][0]["revision"]
    assert after["providers"][0]["capacity"] == STREAMS
    assert ask(gateway, chat("hello")).status == 200
    second.close()


def test_a_node_that_hangs_delays_what_concerns_it_alone(gateway: Gateway, console: Console) -> None:
    with_second_node(gateway).start()
    second = ScriptedNode(gateway.node_port, "second-token", None)
    until(lambda: console.status["nodes"][1]["ready"], "the second node is ready")
    begun = time.monotonic()
    assert console.refresh(Configuration(gateway).set(capacity=3).write("one"))["status"] == "applied"
    assert time.monotonic() - begun < 5
    begun = time.monotonic()
    result = console.refresh(Configuration(gateway).set(capacity=4, concurrency=9).write("two"))
    assert 9 < time.monotonic() - begun < 18
    assert result["status"] == "rejected"
    assert "no answer within 10 s" in result["errors"][0]["message"]
    shown = console.status
    assert shown["providers"][0]["capacity"] == 3
    assert shown["nodes"][1]["connected"]
    assert [payload.concurrency for payload in second.payloads] == [1, 9, 1]
    second.close()


def test_ten_at_once_end_in_the_last_ones(gateway: Gateway, console: Console) -> None:
    gateway.start()
    made = Configuration(gateway)
    files = [made.set(capacity=n, concurrency=n).write(f"candidate-{n}") for n in range(1, 11)]
    address = str(gateway.folder / "edge" / "console.sock")
    connections = []
    for file in files:  # each is written before the next one connects: their order is known
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(30)
        connection.connect(address)
        body = json.dumps({"mode": "apply", "files": [str(file)]}).encode()
        head = b"POST /v1/config/refresh HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        connection.sendall(head % len(body) + body)
        connections.append(connection)
    results = []
    for connection in connections:
        with connection, connection.makefile("rb") as file_:
            results.append(json.loads(file_.read().partition(b"\r\n\r\n")[2]))
    assert [result["status"] for result in results] == ["applied"] * 10
    assert [a["revision_after"] for a in results[:-1]] == [b["revision_before"] for b in results[1:]]
    shown = console.status
    assert shown["revision"] == results[-1]["revision_after"]
    assert shown["providers"][0]["capacity"] == 10


def test_commands_at_once_end_in_one_whole_configuration(gateway: Gateway, console: Console) -> None:
    gateway.start()
    made = Configuration(gateway)
    files = [made.set(capacity=n, concurrency=n).write(f"candidate-{n}") for n in range(1, 5)]
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(console.refresh, files))
    shown = console.status
    assert shown["revision"] in [result["revision_after"] for result in results]
    assert {result["status"] for result in results} == {"applied"}


def test_a_hangup_applies_the_files_of_the_start(gateway: Gateway, console: Console) -> None:
    gateway.start()

    def hang_up(line: str) -> None:
        before = gateway.edge.log.count(line)
        gateway.edge.signal(signal.SIGHUP)
        until(lambda: gateway.edge.log.count(line) > before, f"the log says {line!r}")

    Configuration(gateway).set(capacity=3).write()
    hang_up("SIGHUP: applied, 1 change")
    assert console.status["providers"][0]["capacity"] == 3
    Configuration(gateway).set(heartbeat_ms=5).write()
    hang_up("SIGHUP: restart_required, 1 change: heartbeat_ms")
    Configuration(gateway).set(heartbeat_ms=0).write()
    hang_up("SIGHUP: rejected, 0 changes: ")
    assert ask(gateway, chat("hello")).status == 200


def test_the_socket_of_a_dead_edge_is_replaced_and_a_living_ones_is_not(gateway: Gateway, console: Console) -> None:
    gateway.start()
    path = gateway.folder / "edge" / "console.sock"
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(path.parent).st_mode & 0o777 == 0o700
    other = Configuration(gateway).set(listen="tcp:0:interface=127.0.0.1").write("other")

    command = [TWISTD, "-n", "--pidfile=", "iop-edge"]
    second = Child("second", [*command, "--config", str(other), "--state-dir", str(path.parent)], gateway.folder)
    assert second.wait() == 1
    assert "console.sock: another process answers there" in second.log
    assert "Traceback" not in second.log
    assert console.status["edge"]["id"] == "integration"
    gateway.edge.kill()
    assert path.exists()
    assert console.run("status")[0] == 1
    gateway.start_edge()
    gateway.ready()
    assert console.status["nodes"][0]["ready"]


def test_no_secret_is_shown(gateway: Gateway, console: Console) -> None:
    """Every output of a change of every secret; the fixture searches them, and the log."""
    gateway.start()
    made = Configuration(gateway)
    made.document["control_plane"]["token"] = MARKER * 2
    node = made.document["nodes"][0]
    node["adapters"][0]["headers"] = {"X-Key": MARKER * 2, "X-New": MARKER}
    node["adapters"][0]["base_url"] = f"http://other:{MARKER}-2@127.0.0.1:9/v1"
    del node["token_hash_sha256"]
    node["token"] = MARKER
    path = made.write()
    for form in ("text", "json"):
        for mode in ("--dry-run", "--apply"):
            status, said = console.run("config", "refresh", mode, "--format", form)
            assert status == 3, said
            assert "***" in said
        console.run("status", "--format", form)
        broken = path.read_text().replace('"capacity": 50', f'"capacity": "{MARKER}"')
        (gateway.folder / "broken.json").write_text(broken)
        assert console.run("config", "refresh", "--format", form, str(gateway.folder / "broken.json"))[0] == 4
    gateway.edge.signal(signal.SIGHUP)
    until(lambda: "SIGHUP: " in gateway.edge.log, "the result is logged")
