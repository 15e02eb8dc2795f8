"""Thinking switches and budgets, as each backend wants them. Pure.

``docs/contracts/adapters.md`` (Thinking). What the client set itself is never touched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from iop import model as m
from iop.document import Document
from iop.node.adapters.switches import SWITCHES, at, said_in

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Fields(NamedTuple):
    """What one kind of backend reads; members by dotted path, values as JSON.

    :ivar budget: what takes the number of tokens.
    :ivar beside: what goes along with a budget.
    :ivar least: the smallest budget it takes.
    :ivar effort: it understands ``reasoning_effort``, which then goes before a default budget.
    """

    budget: tuple[str, ...]
    on: Mapping[str, str] = _NOTHING
    off: Mapping[str, str] = _NOTHING
    beside: Mapping[str, str] = _NOTHING
    least: int = 0
    effort: bool = False


_TEMPLATE: Final = "chat_template_kwargs.enable_thinking"
_ON: Final = {_TEMPLATE: "true"}
_OFF: Final = {_TEMPLATE: "false"}
_ANTHROPIC: Final = Fields(
    ("thinking.budget_tokens",),
    off={"thinking.type": '"disabled"'},
    beside={"thinking.type": '"enabled"'},
    least=1024,
    effort=True,
)

BACKENDS: Final[Mapping[str, Fields]] = {
    "vllm": Fields(("thinking_token_budget",), _ON, _OFF),
    "sglang": Fields(("custom_params.thinking_budget",), _ON, _OFF),
    "llama_cpp": Fields(("reasoning_budget_tokens", "thinking_budget_tokens"), _ON, _OFF),
    "openrouter": Fields(
        ("reasoning.max_tokens",), {"reasoning.enabled": "true"}, {"reasoning.enabled": "false"}, least=1, effort=True
    ),
    "anthropic": _ANTHROPIC,
    "litellm": _ANTHROPIC,
    "dashscope": Fields(
        ("thinking_budget",),
        {"enable_thinking": "true"},
        {"enable_thinking": "false"},
        beside={"enable_thinking": "true"},
        least=1,
    ),
    "nvidia_nim": Fields(("nvext.max_thinking_tokens",), least=1),
}
"""Others have no such field."""

_BUDGETS: Final = (
    "thinking_token_budget",
    "thinking_budget",
    "thinking_budget_tokens",
    "reasoning_budget_tokens",
    "max_thinking_tokens",
    "reasoning.max_tokens",
    "thinking.budget_tokens",
    "custom_params.thinking_budget",
    "nvext.max_thinking_tokens",
)
_EFFORTS: Final = {"minimal": 128, "low": 1024, "medium": 2048, "high": 4096, "xhigh": 8192, "max": 16384}
_LEAST_LEFT: Final = 256


def fields_of(*labels: str) -> Fields | None:
    """Return the fields of the backend that the first known one of these labels and types names."""
    words = (re.sub(r"[^a-z0-9]+", "_", label.lower()) for label in labels)
    return next((BACKENDS[word] for word in words if word in BACKENDS), None)


def additions(document: Document, thinking: m.Thinking, fields: Fields) -> dict[str, str]:
    """Return what a chat request needs of a wish, by dotted path; nothing where the client has spoken itself."""
    said = said_in(document)
    if any(at(document, path) is not None for path in _BUDGETS):
        return {}
    if thinking.mode == "off" or thinking.budget is None:
        added = {"off": fields.off, "on": fields.on}.get(thinking.mode, _NOTHING) if not said else _NOTHING
    else:
        if any(said.get(path) == no for path, no in SWITCHES.items()):
            return {}
        effort = said.get("reasoning_effort") or said.get("reasoning.effort")
        budget = _budget(document, thinking.budget, effort, fields)
        if budget is None:
            return {}
        added = {path: str(budget) for path in fields.budget} | dict(fields.beside)
    return dict(added) if all(_free(document, path) for path in added) else {}


def _budget(document: Document, budget: int, effort: Any, fields: Fields) -> int | None:
    """Return the budget within the effort that the client asks for and the tokens it allows."""
    if effort is not None:
        if fields.effort:
            return None
        budget = min(budget, _EFFORTS.get(effort, budget) if isinstance(effort, str) else budget)
    for name in ("max_completion_tokens", "max_tokens"):
        limit = document.get(name)
        if isinstance(limit, int):
            budget = min(budget, limit - max(_LEAST_LEFT, limit // 4))
            break
    return budget if budget >= fields.least else None


def spliced(document: Document, added: Mapping[str, str]) -> dict[str, str]:
    """Return the top-level members, as JSON, that make a document have what is added, by dotted path."""
    made: dict[str, str] = {}
    inner: dict[str, dict[str, str]] = {}
    for path, raw in added.items():
        top, _, leaf = path.partition(".")
        if leaf:
            inner.setdefault(top, {})[leaf] = raw
        else:
            made[top] = raw
    for top, leaves in inner.items():
        made[top] = (document.inner(top) or Document.of("{}")).with_raw(leaves)
    return made


def _free(document: Document, path: str) -> bool:
    """Whether the client has nothing where a value is to stand."""
    top, _, leaf = path.partition(".")
    value = document.get(top)
    return value is None or (bool(leaf) and type(value) is tuple and dict(value).get(leaf) is None)
