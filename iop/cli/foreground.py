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
    start = f"import sys; sys.argv[0] = '{name} run'; from twisted.scripts.twistd import run; run()"
    command = [sys.executable, "-P", "-c", start, "--nodaemon", "--pidfile=", name, *options]
    os.execv(sys.executable, command)
