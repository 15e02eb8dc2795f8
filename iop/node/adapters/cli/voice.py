"""What an agent says, put together so that a client reads it once. Pure.

An agent tells the same text as deltas, again as the snapshot of a message, and again in its result. A :class:`Voice`
knows what was told of the message that goes on, so that only the rest of a snapshot is shown.
"""

from __future__ import annotations

from typing import NamedTuple

from iop.wire.frames import clean_text


class Piece(NamedTuple):
    """What a client gets next: of the answer, and of the thinking before it."""

    text: str = ""
    reasoning: str = ""


class Voice:
    """One stream of text made of messages, with a blank line between them.

    :ivar silent: nothing was said since the last message ended or a tool was used.
    """

    __slots__ = ("_apart", "_half", "_latest", "_settled", "_shown", "_unsettled", "silent")

    def __init__(self) -> None:
        self.silent = True
        self._apart = False
        self._half = ""  # of a character whose other half is in the next delta
        self._shown = ""  # the last two characters that were shown
        self._latest: list[str] = []  # of the last message that said anything
        self._unsettled: list[str] = []  # deltas that no snapshot has told again yet
        self._settled = ""  # what the last snapshot of this message told

    def fresh(self) -> None:
        """Another message begins."""
        self.apart()
        self._half = ""
        self._unsettled.clear()

    def apart(self) -> None:
        """What follows stands apart, though it may belong to the same message: a tool was used, say."""
        self.silent = True
        self._apart = True
        self._settled = ""

    def say(self, text: str) -> str:
        """Take words that nothing will tell again, so that nothing of them is kept; return what is to be shown."""
        if not text:
            return ""
        self.silent = False
        text, self._half = self._half + text, ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
            if not text:
                return ""
        text = self._gap(text) + clean_text(text)
        self._shown = (self._shown + text[-2:])[-2:]
        return text

    @property
    def streaming(self) -> bool:
        """Whether deltas came that no snapshot has told again yet."""
        return bool(self._unsettled)

    def delta(self, text: str) -> str:
        """Take the next part of the message; return what is to be shown."""
        if not text:
            return ""
        self._unsettled.append(text)
        return self._remember(text)

    def snapshot(self, whole: str) -> str:
        """Take the message (or its next block) as a whole; return what of it is still to be shown."""
        whole = clean_text(whole)
        streamed = clean_text("".join(self._unsettled))
        self._unsettled.clear()
        said, self._settled = streamed or self._settled, whole
        if streamed.startswith(whole):  # the deltas of several blocks, told again one by one
            if len(streamed) > len(whole):
                self._unsettled.append(streamed[len(whole) :])
            return ""
        if whole.startswith(said):
            return self._remember(whole[len(said) :])
        return "" if streamed else self._remember(whole)

    def said_last(self, text: str) -> bool:
        """Whether the last message that said anything was this one."""
        return clean_text("".join(self._latest)).strip() == clean_text(text).strip()

    def _remember(self, text: str) -> str:
        if text:
            if self.silent:
                self._latest.clear()
            self._latest.append(text)
        return self.say(text)

    def _gap(self, text: str) -> str:
        apart, self._apart = self._apart and self._shown != "", False
        if not apart:
            return ""
        line_ends = len(self._shown) - len(self._shown.rstrip("\n")) + len(text) - len(text.lstrip("\n"))
        return "\n" * (2 - line_ends)
