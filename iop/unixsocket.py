"""Listening on a Unix socket of one's own: nobody else reaches it, and what a dead process left is no hindrance."""

from __future__ import annotations

import os
import socket
import stat
from typing import Any

from twisted.internet.endpoints import quoteStringArgument
from twisted.internet.interfaces import IListeningPort, IProtocolFactory

from iop.sockets import CannotListen, listen


async def listen_privately(reactor: Any, path: str, mode: int, factory: IProtocolFactory) -> IListeningPort:
    """Listen on a Unix socket; :raises CannotListen:.

    A directory that is missing is made for this user alone. A socket that a process left behind when it died is
    replaced; one that is answered is not. The socket never has more rights than ``mode``, not for a moment.
    """
    try:
        _make_private(os.path.dirname(path) or ".")
        _remove_stale(path)
    except OSError as error:
        raise CannotListen(f"cannot listen on {path}: {error.strerror or error}") from error
    before = os.umask(0o777 & ~mode)
    try:
        return await listen(reactor, f"unix:{quoteStringArgument(path)}:mode={mode:o}:lockfile=0", factory)
    finally:
        os.umask(before)


def _make_private(folder: str) -> None:
    """Make a directory, or see that no one else can put a socket of theirs into it."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    mode = os.stat(folder).st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise CannotListen(f"cannot listen in {folder}: others may write there; chmod 700 it")


def _remove_stale(path: str) -> None:
    """Remove a socket without a listener; :raises CannotListen: for anything else that is there."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise CannotListen(f"cannot listen on {path}: a file that is no socket is there")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # a full queue of connections is a sign of life too
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except BlockingIOError:
            pass
    raise CannotListen(f"cannot listen on {path}: another process answers there")
