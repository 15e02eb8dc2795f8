"""Where a change is: a path of keys and of identities, as a tuple and as people and tools read it."""

from __future__ import annotations

import re
from typing import Final


class Entry(str):
    """A step that is the identity of a list's entry; any other step is a key."""

    __slots__ = ()


Path = tuple[str, ...]

_PLAIN_KEY: Final = re.compile(r"[^\s.\[\]\"']+")


def render(path: Path) -> str:
    """The text of a path, no two paths the same: ``nodes[gpu-1].providers[vllm-a].capacity``."""
    text = ""
    for step in path:
        if isinstance(step, Entry):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step) and step.isprintable():
            text += f".{step}" if text else step
        else:
            text += f"[{step!a}]"
    return text
