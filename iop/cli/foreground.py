"""``iop-edge run`` and ``iop-node run``: a ``twistd`` plugin in the foreground, for people who do not know twistd."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn


def run_plugin(name: str, options: Sequence[str]) -> NoReturn:
    """Become ``twistd --nodaemon --pidfile= NAME OPTIONS…``.

    ``-P`` keeps the working directory out of what is imported.
    """
    start = f"import sys; sys.argv[0] = '{name} run'; from iop.cli.foreground import twistd; twistd()"
    command = [sys.executable, "-P", "-c", start, "--nodaemon", "--pidfile=", name, *options]
    os.execv(sys.executable, command)


def twistd() -> None:
    """What ``twistd`` does, but for its way with a wrong command line: one sentence, and no list of every option."""
    from twisted.python import usage
    from twisted.scripts.twistd import ServerOptions, runApp  # type: ignore[attr-defined]

    options = ServerOptions()
    options.synopsis = f"Usage: {sys.argv[0]} [options], which is twistd --nodaemon --pidfile="  # NAME [options]
    try:
        options.parseOptions()
    except usage.UsageError as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        sys.exit(1)
    runApp(options)
