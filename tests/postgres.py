"""A PostgreSQL of the tests' own: a real cluster in a temporary directory, on a Unix socket alone."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest

_numbers = count(1)


def binaries() -> Path | None:
    """Return where Debian, or the PATH, has the server; None for nowhere."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


class Cluster:
    """A running server; its superuser is ``iop``, with a password that nobody checks.

    :param command: that runs it. It ends with the thread that started it.
    """

    def __init__(self, folder: Path, command: Sequence[str | Path]) -> None:
        self._folder = folder
        self._command = command
        self.process: subprocess.Popen[bytes]
        self.start()

    def start(self) -> None:
        """Run it, also again; :meth:`ready` waits until it takes connections."""
        nothing = subprocess.DEVNULL
        self.process = subprocess.Popen(self._command, stdin=nothing, stdout=nothing, stderr=nothing, cwd="/")

    def ready(self) -> Cluster:
        _wait_for(self._folder, self.process)
        return self

    def url(self, name: str = "postgres") -> str:
        return f"postgresql://iop:hidden%20word@/{name}?host={self._folder}"

    def database(self) -> str:
        """Make an empty database; return its URL."""
        import psycopg

        name = f"t{next(_numbers)}"
        with psycopg.connect(host=str(self._folder), user="iop", dbname="postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def kill(self) -> None:
        """End the server and everything that it runs without a warning: it recovers when it is started again."""
        family = _family(self.process.pid)
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        for pid in family[1:]:  # while one of them lives, no other server touches the data
            while Path(f"/proc/{pid}").exists():
                time.sleep(0.005)

    def stand_still(self, still: bool) -> None:
        """Stop the server and everything that it runs, or let it go on: connections hang, and none is refused."""
        for pid in _family(self.process.pid):
            os.kill(pid, signal.SIGSTOP if still else signal.SIGCONT)

    def end_connections(self, url: str) -> None:
        """End everybody's connections to a database, as a restart of the server does."""
        import psycopg

        name = urlsplit(url).path[1:]
        with psycopg.connect(host=str(self._folder), user="iop", dbname="postgres", autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Run a server; it ends with this process, however that ends. Skips the test where it cannot."""
    where = binaries()
    setpriv = shutil.which("setpriv")
    if where is None or setpriv is None:
        pytest.skip("PostgreSQL's server or setpriv is not installed")
    pytest.importorskip("psycopg")
    folder = Path(tempfile.mkdtemp(prefix="iop-pg-"))
    who = [setpriv, "--pdeathsig", "QUIT"]
    if os.getuid() == 0:  # the server refuses to run as root
        user = _somebody()
        os.chown(folder, user.pw_uid, user.pw_gid)
        who += [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    data = folder / "data"
    quick = ("--no-sync", "--auth=trust", "--username=iop", "--encoding=UTF8", "--locale=C")
    subprocess.run([*who, where / "initdb", *quick, "-D", data], check=True, capture_output=True, cwd="/")
    settings = ("fsync=off", "listen_addresses=", f"unix_socket_directories={folder}", "max_connections=20")
    options = [word for each in settings for word in ("-c", each)]
    made = Cluster(folder, [*who, where / "postgres", "-D", data, *options])
    try:
        yield made.ready()
    finally:
        process = made.process
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGQUIT)  # at once
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _family(pid: int) -> list[int]:
    """Return a process and what it started."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def _somebody() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            pass
    pytest.skip("there is no user but root to run PostgreSQL")


def _wait_for(folder: Path, process: subprocess.Popen[bytes]) -> None:
    import psycopg

    until = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(host=str(folder), user="iop", dbname="postgres").close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.05)
