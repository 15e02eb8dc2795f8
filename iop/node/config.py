"""What a node is told on its command line: where its edge is, its token, and what of its machine it may use."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from iop import endpoints
from iop.errors import Failure

LONGEST_TOKEN = 4 << 10
"""In bytes. What is longer is some other file."""

CREDENTIAL = "iop-node-token"
"""The systemd credential that holds the token."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Everything a node knows before it has met its edge."""

    edge: str
    token: str = field(repr=False)
    state_dir: Path = Path()
    workspace_roots: tuple[Path, ...] = ()


def edge_endpoint(text: str) -> str:
    """Return where the edge is, a client endpoint; :raises Failure: with what to write instead."""
    try:
        endpoints.client(text)
    except endpoints.BadEndpoint as error:
        raise Failure("invalid_value", f"--edge is not a client endpoint: {_advice(text) or error}") from None
    return text


def _advice(text: str) -> str:
    """What somebody meant who wrote a URL, a bare host and port, or an IPv6 address as URLs have it; "" if unclear."""
    if re.match(r"https?://", text):
        return "it is no URL; write tcp:HOST:PORT or tls:HOST:PORT, with the port where the edge listens for nodes"
    brackets = re.fullmatch(r"(?:(tcp|tls):)?\[([0-9A-Fa-f:.]+)\](?::([0-9]+))?", text)
    if brackets:
        kind, address, port = brackets.groups()
        escaped = address.replace(":", "\\:")
        return f"a colon in an address has a backslash before it; write '{kind or 'tcp'}:{escaped}:{port or 'PORT'}'"
    if re.fullmatch(r"[A-Za-z0-9._-]+:[0-9]+", text) and not text.startswith(("tcp:", "tls:", "unix:")):
        return f"write tcp:{text}, or tls:{text}"
    return ""


def read_token(token_file: str | None, environ: Mapping[str, str]) -> str:
    """Return the token: from the file, else ``IOP_NODE_TOKEN``, else the systemd credential.

    :raises Failure: ``invalid_value``, in a sentence for the person at the command line.
    """
    if token_file is not None:
        return token_in(token_file, "--token-file")
    if environ.get("IOP_NODE_TOKEN"):
        return _one_word(environ["IOP_NODE_TOKEN"], "IOP_NODE_TOKEN")
    folder = environ.get("CREDENTIALS_DIRECTORY")
    if folder is not None and os.path.exists(os.path.join(folder, CREDENTIAL)):
        return token_in(os.path.join(folder, CREDENTIAL), f"the credential {CREDENTIAL}")
    raise Failure(
        "invalid_value", f"a token is needed: --token-file FILE, IOP_NODE_TOKEN, or the systemd credential {CREDENTIAL}"
    )


def token_in(path: str, what: str) -> str:
    """Return the token that is all a file holds; :raises Failure: in which ``what`` names the file."""
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
    if len(words) != 1 or not words[0].isprintable():  # neither is half of a surrogate pair
        raise Failure("invalid_value", f"{what} must hold one token and nothing else")
    if len(words[0].encode()) > LONGEST_TOKEN:
        raise Failure("invalid_value", f"{what} holds more than a token: it is longer than {LONGEST_TOKEN >> 10} KiB")
    return words[0]


def roots(paths: Sequence[str]) -> tuple[Path, ...]:
    """Return the workspace roots with their links resolved; :raises Failure: for one that is no directory."""
    found = []
    for path in paths:
        if not path:
            raise Failure("invalid_value", "--workspace-root is empty: name a directory")
        resolved = Path(os.path.expanduser(path)).resolve()
        if not resolved.is_dir():
            raise Failure("invalid_value", f"--workspace-root is not a directory: {path}")
        found.append(resolved)
    return tuple(found)
