"""Where a chat request says whether the model thinks, under any backend's name. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from iop.document import Document

SWITCHES: Final[Mapping[str, Any]] = {
    "think": False,
    "enable_thinking": False,
    "chat_template_kwargs.enable_thinking": False,
    "chat_template_kwargs.thinking": False,
    "reasoning.enabled": False,
    "reasoning_effort": "none",
    "reasoning.effort": "none",
    "thinking.type": "disabled",
}
"""Dotted paths, and the value there that says no."""


def said_in(document: Document | Mapping[str, Any]) -> dict[str, Any]:
    """Return what a request says at its switches, by path; null says nothing."""
    values = {path: at(document, path) for path in SWITCHES}
    return {path: value for path, value in values.items() if value is not None}


def at(document: Document | Mapping[str, Any], path: str) -> Any:
    """Return the value at a path of one or two names; None where there is none."""
    top, _, leaf = path.partition(".")
    value = document.get(top)
    if not leaf:
        return value
    return dict(value).get(leaf) if isinstance(value, tuple | dict) else None
