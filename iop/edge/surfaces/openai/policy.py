"""What a model's policy adds to a request. ``docs/contracts/openai.md`` (Model policy). Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from iop import model as m
from iop.document import Document
from iop.edge.config import model as config

_LIMITS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""Members by which clients limit an answer, in any API."""


class Policy(NamedTuple):
    """One model's, in tokens; 0 for none."""

    default_max_tokens: int = 0
    min_max_tokens: int = 0
    thinking_budget: int = 0

    @classmethod
    def of(cls, model: config.ModelGroup) -> Policy:
        """Return what a configuration says of a model."""
        return cls(model.default_max_tokens or 0, model.min_max_tokens or 0, model.default_thinking_token_budget or 0)

    def limits(self, document: Document, name: str) -> dict[str, str]:
        """Return what is set of a request's limits, as JSON texts.

        :param name: the member by which the request's API limits an answer.
        """
        if not self.default_max_tokens and not self.min_max_tokens:
            return {}
        given = [limit for limit in _LIMITS if document.get(limit) is not None]
        if not given:
            return {name: str(self.default_max_tokens)} if self.default_max_tokens else {}
        return {
            limit: str(self.min_max_tokens) for limit in given if _is_less(document.get(limit), self.min_max_tokens)
        }

    def thinking(self, document: Document) -> m.Thinking:
        """Return what is added to a request that says nothing of thinking."""
        if not self.thinking_budget:
            return m.UNSET
        if document.get("reasoning_effort") == "none" or any(name in document for name in _THINKING):
            return m.UNSET
        template = document.get("chat_template_kwargs")
        if type(template) is tuple and _TEMPLATE_SWITCHES & dict(template).keys():
            return m.UNSET
        return m.Thinking("on", self.thinking_budget)


Policies = Callable[[str], Policy]
"""A model's policy as it is now."""

NO_POLICY: Final = Policy()


def _is_less(value: object, least: int) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < least


_THINKING: Final = (
    "reasoning",
    "thinking",
    "think",
    "enable_thinking",
    "thinking_token_budget",
    "thinking_budget",
    "thinking_budget_tokens",
    "reasoning_budget_tokens",
    "custom_params",
    "nvext",
    "extra_body",
)
"""Members by which a client says how much to think, under any backend's name: then that holds. An effort is no amount:
the node makes one of it where the backend knows none, and the default caps it."""

_TEMPLATE_SWITCHES: Final = frozenset(("enable_thinking", "thinking"))
