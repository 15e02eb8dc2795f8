"""The cli adapter passes the adapters' contract, with children in memory."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contracts.adapter import AdapterContract
from doubles import RecordingSink
from memory_net import MemoryNet
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure as TwistedFailure

from iop import model as m
from iop.node.adapters.cli.adapter import CLIAdapter, factory
from iop.node.adapters.cli.processes import Processes, Started
from iop.node.adapters.environment import Environment, Run
from iop.node.sessions import SessionStore


class Pipe:
    """A child's stdout, which may be paused."""

    def __init__(self, child: MemoryChild) -> None:
        self._child = child
        self.paused = False

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False
        self._child.flush()


class MemoryChild:
    """A child's transport, and what the test makes of it."""

    def __init__(self, protocol: ProcessProtocol, pid: int) -> None:
        self.protocol = protocol
        self.pid = pid
        self.pipes = {1: Pipe(self)}
        self.alive = True
        self._pending: list[bytes] = []
        protocol.makeConnection(self)  # type: ignore[arg-type]

    def write(self, data: bytes) -> None: ...

    def closeStdin(self) -> None: ...

    def loseConnection(self) -> None: ...

    def say(self, text: str) -> None:
        delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        self.write_line({"type": "stream_event", "event": delta})

    def write_line(self, event: Any) -> None:
        self.write_out(json.dumps(event).encode() + b"\n")

    def write_out(self, data: bytes) -> None:
        self._pending.append(data)
        self.flush()

    def flush(self) -> None:
        while self._pending and not self.pipes[1].paused:
            self.protocol.outReceived(self._pending.pop(0))

    def take_rest(self) -> list[bytes]:
        pending, self._pending = self._pending, []
        return pending

    def end(self, status: int = 0, number: int | None = None) -> None:
        if self.alive:
            self.alive = False
            how = ProcessDone(0) if not status and number is None else ProcessTerminated(status, number)
            self.protocol.processExited(TwistedFailure(how))
            self.protocol.processEnded(TwistedFailure(how))


class MemoryProcesses(Processes):
    """Children that are objects."""

    def __init__(self) -> None:
        self.children: list[MemoryChild] = []
        self.kinds: list[str] = []

    def start(
        self, protocol: ProcessProtocol, program: str, words: Sequence[str], environ: Mapping[str, str], cwd: str
    ) -> Started:
        child = MemoryChild(protocol, 100 + len(self.children))
        self.children.append(child)
        return Started(child, child.pid, str(child.pid))

    def signal(self, child: Started, number: int) -> bool:
        self.children[child.group - 100].end(0, number)
        return True

    def sweep(self, child: Started) -> None: ...

    def rest(self, child: Started) -> tuple[bytes, bytes]:
        return b"".join(self.children[child.group - 100].take_rest()), b""

    def forget(self, child: Started) -> None: ...


class TestCLIAdapter(AdapterContract):
    factory = factory
    PIECES = (b"one ", b"two")

    def make(self) -> CLIAdapter:
        self.net = MemoryNet()
        self.processes = MemoryProcesses()
        settings = {"command": "sh", "output_format": "claude_stream_json", "mode": "session"}
        environment = Environment("a", self.net, self.folder, SessionStore(None, self.net.seconds))
        adapter = CLIAdapter(settings, environment, self.processes, {"PATH": "/usr/bin:/bin"})
        adapter.start()
        return adapter

    def setup_method(self) -> None:
        import tempfile

        self._kept = tempfile.TemporaryDirectory()
        self.folder = Path(self._kept.name)
        super().setup_method()

    def teardown_method(self) -> None:
        self.adapter.stop()
        self.net.run(10)
        assert self.net.waiting == []
        self._kept.cleanup()

    def begin(self, kind: str) -> tuple[Any, RecordingSink]:
        sink = self.sink(kind)
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": kind}]}).encode()
        done = self.adapter.run(Run(m.RunRequest("r", "a", "t", mode=m.Mode.NORMALIZED, input=body)), sink)
        self.processes.kinds.append(kind)
        return done, sink

    def flush(self) -> None:
        for child in self.processes.children[: len(self.processes.kinds)]:
            kind = self.processes.kinds[child.pid - 100]
            self.processes.kinds[child.pid - 100] = ""
            if not child.alive:
                continue
            if kind not in ("", "refuses", "silent"):
                child.say("one ")
            if kind == "answers":
                child.say("two")
                child.write_line({"type": "result", "subtype": "success", "is_error": False, "result": "one two"})
                child.end()
            elif kind == "garbage":
                child.write_out(b'\x00\xff\x13 no JSON\n{"type":\n')
                child.end()
            elif kind == "breaks":
                child.end(0, signal.SIGSEGV)
            elif kind == "refuses":
                child.write_line({"type": "result", "subtype": "success", "is_error": True, "result": "no"})
                child.end(1)
        self.net.run(0.5)

    def more(self) -> bytes:
        newest = next(child for child in reversed(self.processes.children) if child.alive)
        newest.say("more")
        return b"more"

    def open(self) -> int:
        return sum(child.alive for child in self.processes.children)

    def break_backend(self) -> None:
        self.adapter._environ = {"PATH": "/nowhere"}
