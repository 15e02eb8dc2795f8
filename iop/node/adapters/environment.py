"""All of a node that an adapter may know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from twisted.logger import Logger

from iop import model as m


@dataclass(frozen=True, slots=True)
class Environment:
    """What an adapter is given when it is made; nothing else of the node.

    :ivar name: the instance's name, for its log lines.
    :ivar reactor: time, sockets, processes.
    :ivar state_dir: where it may keep what must outlive the node.
    :ivar sessions: the session store, or None.
    :ivar workspace: returns a directory that runs may work in with its links resolved, or raises a Failure
        (``workspace_invalid``); a run's own has gone through it.
    """

    name: str
    reactor: Any
    state_dir: Path
    sessions: Any = None
    workspace: Callable[[str], str] = field(default=lambda path: path)
    log: Logger = field(default_factory=lambda: Logger(namespace="iop.adapter"))


class Run(NamedTuple):
    """A run as an adapter sees it.

    :ivar provider: the label of who the backend is, as in ``vllm``; "" when nobody said.
    :ivar type: the provider's type as configured; "" for a run without a provider.
    """

    request: m.RunRequest
    provider: str = ""
    type: str = ""
