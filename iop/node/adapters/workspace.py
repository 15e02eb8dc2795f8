"""Where an agent may work: under the node's own ``--workspace-root``s alone. ``docs/contracts/adapters.md`` (cli)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from iop.errors import Failure


def resolved(path: str, roots: Sequence[Path]) -> str:
    """Return a workspace with its links resolved.

    :raises Failure: ``workspace_invalid``, which names the path and what is wrong with it. What is outside the roots is
        not looked at: whether it is there is nobody's business.
    """
    if not roots:
        raise _invalid(path, "its node has no --workspace-root")
    if not os.path.isabs(path):
        raise _invalid(path, "a workspace is an absolute path")
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(root) for root in roots):
        raise _invalid(path, "it is not under a --workspace-root of its node")
    return usable(str(real), path)


def usable(directory: str, called: str = "") -> str:
    """Return a directory that a program can work in; :raises Failure: ``workspace_invalid``."""
    if not os.path.lexists(directory):
        raise _invalid(called or directory, "there is no such directory")
    if not os.path.isdir(directory):
        raise _invalid(called or directory, "it is no directory")
    if not os.access(directory, os.X_OK):
        raise _invalid(called or directory, "the node may not enter it")
    return directory


def _invalid(path: str, why: str) -> Failure:
    return Failure("workspace_invalid", f"the workspace {path} cannot be used: {why}", param="metadata.workspace")
