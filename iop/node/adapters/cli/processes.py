"""Children of this machine: started in a process group of their own, signalled, swept, and found again after a crash.

``docs/contracts/adapters.md`` (cli). Agents put their tools into sessions of their own, so a group alone does not hold
them: every process of a run carries a marker in its environment. Linux only in that part: it reads ``/proc``.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from twisted.internet.error import ProcessExitedAlready
from twisted.internet.interfaces import IReactorProcess
from twisted.internet.protocol import ProcessProtocol

MARKER: Final = "IOP_RUN"
"""The variable by which a run's processes are known."""

LARGEST_PIPE: Final = 1 << 20
"""Bytes that a pipe may hold, pipe(7)."""

PROC: Final = Path("/proc")
"""proc(5)."""

_LOOKS: Final = 40
_LOOK: Final = 0.0005
"""Seconds between so many looks at a process that is being made another program; nothing else happens meanwhile."""

_WITHOUT_MEMORY: Final = 0x00200000 | 0x00000004
"""Flags of a process that has no memory of its own: PF_KTHREAD, and PF_EXITING, after which it has none."""

_LAUNCHER: Final = str(Path(__file__).with_name("launcher.py"))


class Started(NamedTuple):
    """A child.

    :ivar begun: when, in clock ticks since the machine did.
    :ivar transport: its pipes (``iop.interfaces`` of Twisted's ``IProcessTransport``).
    :ivar group: its process group, which is its own id.
    """

    transport: Any
    group: int
    marker: str
    begun: int = -1


class Processes:
    """Starts children and ends them.

    :param records: a directory in which those that run are written down.
    """

    def __init__(self, reactor: IReactorProcess, records: Path) -> None:
        self._reactor = reactor
        self._records = records

    def start(
        self, protocol: ProcessProtocol, program: str, words: Sequence[str], environ: Mapping[str, str], cwd: str
    ) -> Started:
        """Start a program; its words begin with its own name. Trouble after this is told on its stderr.

        It is written down before it is there: whenever this process dies, the next one finds what it left.
        """
        marker = secrets.token_hex(16)
        command = [sys.executable, "-I", "-S", _LAUNCHER, program, *words]
        self._write_down(marker)
        try:
            transport = self._reactor.spawnProcess(
                protocol,
                sys.executable,
                command,
                {**environ, MARKER: marker},
                cwd,
                childFDs={0: "w", 1: "r", 2: "r"},
            )
        except BaseException:
            self._unlink(marker)
            raise
        pid = int(transport.pid)
        child = Started(transport, pid, marker, _begun(pid))
        try:
            self._write_down(marker, pid, child.begun)
        except OSError:
            self.kill(child)  # nobody could find all of it again
            self._unlink(marker)
            raise
        return child

    def signal(self, child: Started, number: int) -> bool:
        """Signal its group; return False while it leads none yet, as in the moments after :meth:`start`."""
        try:
            os.killpg(child.group, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True

    def kill(self, child: Started) -> None:
        """Kill one that has not ended, with everything that is left of it."""
        if not self.signal(child, signal.SIGKILL):
            with contextlib.suppress(ProcessExitedAlready):
                child.transport.signalProcess("KILL")
        self.sweep(child)

    def sweep(self, child: Started) -> None:
        """Kill everything that is left of it, wherever it put itself."""
        _kill(child.group, child.marker, child.begun)

    def rest(self, child: Started) -> tuple[bytes, bytes]:
        """Return what is left in a dead child's stdout and stderr: all that it can still say."""
        pipes = getattr(child.transport, "pipes", {})
        return _rest(pipes.get(1)), _rest(pipes.get(2))

    def forget(self, child: Started) -> None:
        """Nothing of it is left."""
        self._unlink(child.marker)

    def _write_down(self, marker: str, group: int = 0, begun: int = 0) -> None:
        """Write a record, whole or not at all; of what is about to be started only the marker is known."""
        self._records.mkdir(parents=True, exist_ok=True, mode=0o700)
        record = self._record(marker)
        beside = record.with_suffix(".new")
        beside.write_text(json.dumps({"group": group, "marker": marker, "begun": begun}))
        os.replace(beside, record)

    def _unlink(self, marker: str) -> None:
        with contextlib.suppress(OSError):
            self._record(marker).unlink()

    def _record(self, marker: str) -> Path:
        return self._records / f"{marker}.json"


def reap_orphans(records: Path) -> int:
    """Kill the children that are written down in a directory; return how many of them were still there.

    An id may be another process's by now: its start time and its marker must both be those written down.
    """
    found = 0
    for path in list(records.glob("*.new")):
        with contextlib.suppress(OSError):
            path.unlink()
    for path in list(records.glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            said = json.loads(path.read_text())
            group, marker, begun = int(said["group"]), str(said["marker"]), int(said["begun"])
            same = group > 0 and begun == _begun(group) and _carries(group, marker)
            found += _kill(group if same else 0, marker, begun) > 0
        with contextlib.suppress(OSError):
            path.unlink()
    return found


def _kill(group: int, marker: str, begun: int) -> int:
    """Kill, again and again, whoever is of a group or its session (0: none), or carries a marker; return how many.

    :param begun: nobody that was there before is looked at.
    """
    killed: set[int] = set()
    for _ in range(8):  # one that was just forked may carry on
        found = {pid for pid in _pids() if pid not in killed and _is_of(pid, group, marker, begun)}
        if not found:
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found
    return len(killed)


def _is_of(pid: int, group: int, marker: str, begun: int) -> bool:
    fields = _stat(pid)
    if len(fields) < 20 or fields[0] == b"Z" or int(fields[19]) < begun:
        return False
    return (group > 0 and group in (int(fields[2]), int(fields[3]))) or _carries(pid, marker)


def _rest(pipe: Any) -> bytes:
    """Read a pipe until it is empty, or has given more than one can hold: then somebody else talks on."""
    found = bytearray()
    while pipe is not None and len(found) < LARGEST_PIPE:
        try:
            data = os.read(pipe.fileno(), 1 << 16)
        except OSError:
            break
        if not data:
            break
        found += data
    return bytes(found)


def _pids() -> Iterator[int]:
    own = os.getpid()
    with contextlib.suppress(OSError):
        yield from (int(name) for name in os.listdir(PROC) if name.isdigit() and int(name) != own)


def _stat(pid: int) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` behind the name, proc(5): state, parent, group, session, …"""
    try:
        return (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def _begun(pid: int) -> int:
    """Return when a process began, in clock ticks since the machine did; -1 for none."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else -1


def _carries(pid: int, marker: str) -> bool:
    return f"{MARKER}={marker}".encode() in _environ(pid).split(b"\0")


def _environ(pid: int) -> bytes:
    """Return what is in a process's environment, b"" when it has none that can be read.

    While execve(2) makes another program of it there is none to see for some microseconds, or for as long as a busy
    machine lets it wait; one that an agent has just left behind would never be found again.
    """
    for _ in range(_LOOKS):
        try:
            environ = (PROC / str(pid) / "environ").read_bytes()
        except OSError:
            return b""
        if environ or _has_none(pid):
            return environ
        time.sleep(_LOOK)
    return b""


def _has_none(pid: int) -> bool:
    """Whether a process really has no environment: its place, ``env_start`` to ``env_end`` of proc(5), is empty."""
    fields = _stat(pid)
    if len(fields) < 49 or fields[0] == b"Z" or int(fields[6]) & _WITHOUT_MEMORY:
        return True
    return fields[47] == fields[48] != b"0"
