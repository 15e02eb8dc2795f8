"""What came of a run's present attempt, as far as it is counted. Pure. ``docs/contracts/openai.md`` (Access log)."""

from __future__ import annotations

from typing import Final

from iop import model as m

_WRITTEN: Final = frozenset({"chat", "completion", "responses", "messages"})
"""Operations whose answers are text, of so many tokens."""

_CHARACTERS: Final = 4
"""Of a token, about, where nobody counted."""


class Tally:
    """One attempt's; another attempt has another.

    :ivar first_at: when the first piece of the answer came, in ms of the pool's clock; None until then.
    :ivar pieces: how many came. ``said``: characters of those that are text.
    :ivar fallback: as in :class:`iop.edge.record.Record`.
    """

    __slots__ = ("fallback", "first_at", "pieces", "said")

    def __init__(self) -> None:
        self.first_at: int | None = None
        self.pieces = self.said = 0
        self.fallback = ""

    def tokens(self, usage: m.Usage | None, operation: str, estimate: int) -> tuple[m.Usage, bool]:
        """Return what was used, and whether that is a guess: nothing where no answer began.

        :param usage: what the backend counted; without input tokens it counted nothing but events.
        :param estimate: input tokens, as the edge guessed them when the run came.
        """
        if usage is not None and usage.input_tokens is not None:
            return usage, False
        if self.first_at is None or operation == "count_tokens":
            return m.Usage(0, 0), False
        if operation not in _WRITTEN:
            return m.Usage(estimate, 0), True
        if usage is not None and usage.output_tokens is not None:
            return m.Usage(estimate, usage.output_tokens), True
        return m.Usage(estimate, self.said // _CHARACTERS or self.pieces), True
