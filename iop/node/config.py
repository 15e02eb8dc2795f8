"""What a node is told on its command line: where its edge is, its token, and what of its machine it may use."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from iop.errors import Failure

CREDENTIAL = "iop-node-token"
"""The systemd credential that holds the token."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Everything a node knows before it has met its edge."""

    edge: str
    token: str = field(repr=False)
    state_dir: Path = Path()
    workspace_roots: tuple[Path, ...] = ()


def read_token(token_file: str | None, environ: Mapping[str, str]) -> str:
    """Return the token: from the file, else ``IOP_NODE_TOKEN``, else the systemd credential.

    :raises Failure: ``invalid_value``, in a sentence for the person at the command line.
    """
    if token_file is not None:
        return _one_line(token_file, "--token-file")
    if environ.get("IOP_NODE_TOKEN"):
        return _one_word(environ["IOP_NODE_TOKEN"], "IOP_NODE_TOKEN")
    folder = environ.get("CREDENTIALS_DIRECTORY")
    if folder is not None and os.path.exists(os.path.join(folder, CREDENTIAL)):
        return _one_line(os.path.join(folder, CREDENTIAL), f"the credential {CREDENTIAL}")
    raise Failure(
        "invalid_value", f"a token is needed: --token-file FILE, IOP_NODE_TOKEN, or the systemd credential {CREDENTIAL}"
    )


def _one_line(path: str, what: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(64 << 10)
    except OSError as error:
        raise Failure("invalid_value", f"{what} cannot be read: {error.strerror}: {path}") from None
    except UnicodeDecodeError:
        raise Failure("invalid_value", f"{what} is not text: {path}") from None
    return _one_word(text, f"{what} {path}")


def _one_word(text: str, what: str) -> str:
    words = text.split()
    try:
        text.encode()
    except UnicodeEncodeError:
        words = []
    if len(words) != 1:
        raise Failure("invalid_value", f"{what} must hold one token and nothing else")
    return words[0]


def roots(paths: Sequence[str]) -> tuple[Path, ...]:
    """Return the workspace roots with their links resolved; :raises Failure: for one that is no directory."""
    found = []
    for path in paths:
        resolved = Path(os.path.expanduser(path)).resolve()
        if not resolved.is_dir():
            raise Failure("invalid_value", f"--workspace-root is not a directory: {path}")
        found.append(resolved)
    return tuple(found)
