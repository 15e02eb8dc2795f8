"""Adapters: one backend protocol each; and all of a node that an adapter may know."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twisted.logger import Logger

from iop import model as m


@dataclass(frozen=True, slots=True)
class Environment:
    """What an adapter is given when it is made; nothing else of the node.

    :ivar name: the instance's name, for its log lines.
    :ivar reactor: time, sockets, processes.
    :ivar state_dir: where it may keep what must outlive the node.
    :ivar sessions: the session store, or None.
    """

    name: str
    reactor: Any
    state_dir: Path
    sessions: Any = None
    log: Logger = field(default_factory=lambda: Logger(namespace="iop.adapter"))


@dataclass(frozen=True, slots=True)
class Run:
    """A run as an adapter sees it.

    :ivar provider: the label of who the backend is, as in ``vllm``; "" when nobody said.
    """

    request: m.RunRequest
    provider: str = ""
