"""Files as a configuration may name them: read without ever waiting for whoever might write them."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_PIPES = ("/dev/stdin", "/dev/fd/")


def read_bytes(path: Path, limit: int) -> bytes:
    """Return at most ``limit`` and one bytes of a regular file, or of this process's own standard input.

    :raises OSError: also for a FIFO or a device, which an edge would wait for with its configuration locked.
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(number, "rb") as stream:
        kind = os.fstat(number).st_mode
        if stat.S_ISDIR(kind):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if stat.S_ISFIFO(kind) and str(path).startswith(_PIPES):
            os.set_blocking(number, True)
        elif not stat.S_ISREG(kind):
            raise OSError(errno.EINVAL, "not a regular file")
        return stream.read(limit + 1)
