"""Text as it arrives, and what the readers of tool calls take out of it. Pure.

A reader is a generator: it takes what it knows, and yields where only the text that is still to come can decide. So
a text reads the same however it was cut, little of it is looked at twice, and a reader says no soon after the first
character that does not belong.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator
from functools import lru_cache
from typing import Final, TypeVar

T = TypeVar("T")
Reads = Generator[None, None, T]

LONGEST_CALL: Final = 256 * 1024
"""Characters of a block, markers and all. One that has not closed by then is text again."""

_LOOK_PAST: Final = 256
"""White space that may stand before a word that is looked for."""

_SPACE: Final = re.compile(r"\s*")
_WORD: Final = re.compile(r"[\w.:/-]*")
_PLAIN: Final = re.compile(r"[\w\s,:.+=-]*")
_CLOSES: Final = {"{": "}", "[": "]", "(": ")"}


def spaces(text: str, at: int, end: int = sys.maxsize) -> int:
    """Return where the white space that starts there ends."""
    found = _SPACE.match(text, at, end)
    return at if found is None else found.end()


class NotACall(Exception):
    """What looked like a call is text."""


class Words:
    """Words to find in a text that is still arriving."""

    def __init__(self, *words: str) -> None:
        self._pattern = re.compile("|".join(map(re.escape, words)))
        self._firsts = re.compile("[" + "".join(re.escape(word[0]) for word in words) + "]")
        self._beginnings = frozenset(word[:end] for word in words for end in range(1, len(word)))
        self._longest = max(map(len, words))

    def find(self, text: str, at: int, over: bool) -> tuple[int, str]:
        """Return where the first word stands, and the word; or else how far the text certainly holds none."""
        found = self._pattern.search(text, at)
        if found is not None:
            return found.start(), found.group()
        if not over:
            for first in self._firsts.finditer(text, max(at, len(text) - self._longest + 1)):
                if text[first.start() :] in self._beginnings:
                    return first.start(), ""
        return len(text), ""


_words = lru_cache(maxsize=128)(Words)


class Source:
    """The text not read yet, and what of it belongs to the block that is being read.

    :ivar over: no more text comes; a reader that would wait takes what is there.
    :ivar taken: the block's text so far, which is what is shown if it turns out to be no call.
    """

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.over = False
        self.taken: list[str] = []
        self._room = 0

    def add(self, text: str) -> None:
        """Put more text behind what is unread, which is never long."""
        self.text = self.text[self.at :] + text
        self.at = 0

    def begin(self, opener: str) -> None:
        """Start a block with its marker, which comes next."""
        self.taken, self._room = [], LONGEST_CALL
        self.take(len(opener))

    def take(self, count: int) -> str:
        """Take characters into the block. The limit is exact, or where it falls would depend on the cuts."""
        part = self.text[self.at : self.at + min(count, self._room)]
        self.at += len(part)
        self._room -= len(part)
        self.taken.append(part)
        if len(part) < count:
            raise NotACall
        return part

    def run(self, pattern: re.Pattern[str]) -> Reads[str]:
        """Take all that the pattern, which repeats a class of characters, matches."""
        parts = []
        while True:
            found = pattern.match(self.text, self.at)
            parts.append(self.take(0 if found is None else found.end() - self.at))
            if self.at < len(self.text) or self.over:
                return "".join(parts)
            yield

    def ahead(self, *words: str) -> Reads[str]:
        """Return the longest of the words that comes next, past white space; "" for none. Takes nothing."""
        longest = max(map(len, words))
        while True:
            start = spaces(self.text, self.at, self.at + _LOOK_PAST)
            rest = self.text[start : start + longest]
            if self.over or not any(len(word) > len(rest) and word.startswith(rest) for word in words):
                return max((word for word in words if rest.startswith(word)), key=len, default="")
            yield

    def next(self, *words: str) -> Reads[str]:
        """Take the word that comes next and the space before it; "" for none."""
        word = yield from self.ahead(*words)
        if word:
            self.take(self.text.index(word, self.at) + len(word) - self.at)
        return word

    def need(self, *words: str) -> Reads[str]:
        """Take the word that must come next."""
        word = yield from self.next(*words)
        if not word:
            raise NotACall
        return word

    def close(self, *words: str) -> Reads[None]:
        """Take what closes the block, if the model did not forget it; small ones say one brace too many."""
        yield from self.next(*(before + word for word in words for before in ("", "}", "}\n")))

    def word(self) -> Reads[str]:
        """Take a function's name."""
        yield from self.run(_SPACE)
        return (yield from self.run(_WORD))

    def until(self, *ends: str) -> Reads[str]:
        """Take the text before the first of the ends, and the end too."""
        words, parts = _words(*ends), []
        while True:
            at, end = words.find(self.text, self.at, self.over)
            parts.append(self.take(at - self.at))
            if end:
                self.take(len(end))
                return "".join(parts)
            if self.over:
                raise NotACall
            yield

    def tag(self, name: str) -> Reads[bool]:
        """Take ``<name>``, which may have a suffix: ``<name:suffix>``."""
        found = (yield from self.ahead(f"<{name}>", f"<{name}:")) != ""
        if found:
            yield from self.next(f"<{name}")
            yield from self.rest_of_tag()
        return found

    def rest_of_tag(self) -> Reads[None]:
        """Take what closes a tag whose name was taken."""
        if (yield from self.need(">", ":")) == ":":
            yield from self.word()
            yield from self.need(">")

    def ending(self) -> Reads[None]:
        """Go on only if nothing but white space is left of the whole text."""
        yield from self.run(_SPACE)
        if self.at < len(self.text):
            raise NotACall

    def balanced(self, opened: str = "") -> Reads[str]:
        """Take ``{…}`` or ``[…]``, JSON or Python; what stands in a string closes nothing.

        :param opened: the brackets that were taken already, and are not returned.
        """
        mark = len(self.taken)
        open_ = list(opened) or [(yield from self.need("{", "["))]
        string_before = False
        while open_:
            yield from self.run(_SPACE if string_before else _PLAIN)
            if self.at == len(self.text):
                raise NotACall
            sign = self.text[self.at]
            if string_before:
                # A string that swallowed a quote shows here, long before the brackets would.
                if sign not in ",:}])":
                    raise NotACall
                string_before = False
                continue
            if sign == _CLOSES[open_[-1]]:
                open_.pop()
            elif sign in _CLOSES:
                open_.append(sign)
            elif sign not in "\"'":
                raise NotACall
            self.take(1)
            if sign in "\"'":
                yield from self._string(sign)
                string_before = True
        return "".join(self.taken[mark:])

    def _string(self, quote: str) -> Reads[None]:
        while True:
            yield from self.until(quote, "\\")
            if self.taken[-1] == quote:
                return
            while self.at == len(self.text) and not self.over:
                yield
            self.take(1)
