"""Requests of APIs that a provider does not have, as chat requests. Pure. ``docs/contracts/openai.md`` (Translated)."""

from __future__ import annotations

import json
from functools import cached_property

from iop import model as m
from iop.document import Document, compact, too_deep
from iop.edge.pool.estimate import estimate
from iop.edge.surfaces.openai.apis.shape import Chattable
from iop.edge.surfaces.openai.policy import Policies


class AsChat:
    """A request of another API as a chat request, under its model's policy; translated when it is first needed.

    :param policies: asked each time: a refresh may have changed it.
    :param own: the client's own wish for thinking.
    """

    def __init__(self, request: Chattable, policies: Policies, own: m.Thinking = m.UNSET) -> None:
        self._request = request
        self._policies = policies
        self._own = own

    @cached_property
    def _document(self) -> Document:
        try:
            return Document.of(compact(self._request.chat()).decode())
        except RecursionError:
            raise too_deep() from None

    def __call__(self, target: str) -> bytes:
        """Return it for a target; :raises Failure: for what a chat cannot say."""
        document = self._document
        limits = self._policies(self._request.model).limits(document, "max_tokens")
        return document.with_raw({"model": json.dumps(target), **limits}).encode()

    @property
    def tokens(self) -> int:
        """Return how long it is, estimated; :raises Failure: for what a chat cannot say."""
        return estimate(self._document)

    def by_default(self) -> bool:
        """Whether it is to think as its model's policy says: no API but chat can say how much."""
        return self._own == m.UNSET and self.wish() != m.UNSET

    def wish(self) -> m.Thinking:
        """How much it is to think."""
        policy = self._policies(self._request.model)
        if self._own != m.UNSET or not policy.thinking_budget:
            return self._own
        return policy.thinking(self._document)


def unset() -> m.Thinking:
    """What a request says that is not to think by anybody's word."""
    return m.UNSET


def no() -> bool:
    """That it goes as it is."""
    return False
