"""One process at a time in a state directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class AlreadyRunning(Exception):
    """Another process has the state directory; the message says which."""


class Lock:
    """One process at a time in a state directory. The kernel lets go of it however the process ends.

    :raises AlreadyRunning:
    """

    def __init__(self, path: Path) -> None:
        self._file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - held for as long as the process runs
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with self._file as held:
                held.seek(0)
                raise AlreadyRunning("already running" + held.read(1000).strip()) from None
        self.say("")

    def say(self, base_url: str) -> None:
        """Write down for others who has it, and where that one is reached."""
        self._file.truncate(0)
        self._file.write(f", pid {os.getpid()}" + (f", at {base_url}" if base_url else ""))
        self._file.flush()
