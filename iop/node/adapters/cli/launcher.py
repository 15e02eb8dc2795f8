"""Puts a child into a session and process group of its own, then becomes it.

Run as a script, with nothing but the standard library: ``launcher.py PROGRAM WORD…``; the first word is the program's
name for itself. ``spawnProcess`` can do this for a child on a terminal only.
"""

import os
import signal
import sys


def forget_coercion() -> None:
    """Undo what Python makes of LC_CTYPE for itself where its environment names no locale (PEP 538)."""
    try:
        with open("/proc/self/environ", "rb") as file:
            given = [each[9:] for each in file.read().split(b"\0") if each.startswith(b"LC_CTYPE=")]
    except OSError:  # no Linux: the agent has it
        return
    os.environb.pop(b"LC_CTYPE", None)
    for value in given:
        os.environb[b"LC_CTYPE"] = value


if __name__ == "__main__":
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGHUP):  # what Python or a shell in the background set aside
        signal.signal(number, signal.SIG_DFL)
    forget_coercion()
    os.setsid()  # from here on its group can be signalled, and heeds it
    try:
        os.execv(sys.argv[1], sys.argv[2:])
    except OSError as error:
        sys.stderr.write(f"it cannot be executed: {error.strerror}\n")
        os._exit(126)
