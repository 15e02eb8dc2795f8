"""Programs as children of the tests: started, waited for, looked at, ended for certain."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

HERE = Path(__file__).parent
TWISTD = os.path.join(sysconfig.get_path("scripts"), "twistd")
PATIENCE = 20.0
"""Seconds in which anything that should happen has happened, on a slow machine too."""


def until(look: Callable[[], T], what: str, seconds: float = PATIENCE) -> T:
    """Look again and again; return the first true thing seen."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"within {seconds:g} s not: {what}; last seen: {seen!r}")
        time.sleep(0.01)


def free_port() -> int:
    """Return a port that nobody listens on, and that no outgoing connection is given while nobody does."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        lowest = int(file.read().split()[0])
    for _ in range(100):
        port = random.randrange(10_000, lowest) if lowest > 11_000 else 0
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise AssertionError("no free port")


class Child:
    """One program.

    :cvar alive: every child that was started and has not been seen to end.
    :cvar started: every child with a log worth showing.
    :param measured: whether it is part of the product, so that a coverage run follows it.
    :param environ: variables over those of the tests.
    """

    alive: list[Child] = []
    started: list[Child] = []

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        *,
        measured: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log_path = folder / f"{name}.log"
        inherited = {k: v for k, v in os.environ.items() if measured or not k.startswith("COVERAGE_")}
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=inherited | dict(environ or {}),
            )
        Child.alive.append(self)
        Child.started.append(self)

    # ---- looking ------------------------------------------------------------------------------------------------

    @property
    def log(self) -> str:
        """Everything it has printed, under this name."""
        return self.log_path.read_text(errors="replace")

    @property
    def status(self) -> int | None:
        """Its exit status, None while it runs."""
        return self._process.poll()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def resident(self) -> int:
        """Bytes of memory it holds now."""
        with open(f"/proc/{self._process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def sockets(self) -> int:
        """How many sockets it has open."""
        count = 0
        folder = f"/proc/{self._process.pid}/fd"
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                count += os.readlink(f"{folder}/{name}").startswith("socket:")
        return count

    # ---- ending -------------------------------------------------------------------------------------------------

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = PATIENCE) -> int:
        """Wait for its end; return its exit status."""
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {seconds:g} s") from None
        if self in Child.alive:
            Child.alive.remove(self)
        return status

    def kill(self) -> None:
        """End it without a warning."""
        self._process.kill()
        self.wait()

    def stop(self, seconds: float = 5.0) -> None:
        """Ask it to end, then make it."""
        if self.status is None:
            self._process.terminate()
            with contextlib.suppress(AssertionError):
                self.wait(seconds)
                return
        self.kill()


def python(script: str, *arguments: object) -> list[str]:
    """Return the command that runs a script of this folder."""
    return [sys.executable, str(HERE / script), *map(str, arguments)]


def get(url: str) -> tuple[int, bytes]:
    """Ask; return status and body, status 0 when nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, b""


def answers(child: Child, url: str, status: int = 200) -> None:
    """Wait until a URL of a child answers with this status."""

    def look() -> bool:
        assert child.status is None, f"{child.name} ended with status {child.status}"
        return get(url)[0] == status

    until(look, f"{child.name} answers {url} with {status}")


def end_all() -> None:
    """End whatever still runs."""
    for child in list(Child.alive):
        with contextlib.suppress(ProcessLookupError):
            child.signal(signal.SIGKILL)
        child.wait()
