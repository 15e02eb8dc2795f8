"""Tool calls that a model writes as text, in the form it was asked for or the one it was trained on. Pure.

Only for a run marked ``openai_text_tool_fallback``: text is never parsed on another. ``docs/contracts/openai.md``.

- A call names a function of the request, or it is text: nothing is lost and nothing made up. A block (all that one
  opening marker opens) is calls altogether or text altogether.
- A call must be whole. Brackets, or the tag that closes the call itself, say so; what only wraps it may be missing.
- Nothing inside ``<think>`` is a call, nor anything inside a string or an argument of a block.
- Without a marker, the whole text must be the call: JSON objects, a list of them, or a Python list of calls, which a
  code fence may surround. It must say at once that it is a call: objects start with ``"name": "f"`` (f is offered),
  ``"type": "function"`` or ``"function"``. So a JSON answer is not held back.
- White space is dropped where nothing else stands before a call, between two calls, or after the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from iop.edge.surfaces.openai.tools.formats import READERS, Reader, whole_text
from iop.edge.surfaces.openai.tools.text import NotACall, Reads, Source, Words, spaces
from iop.edge.surfaces.openai.tools.values import Call, Tools

__all__ = ["Call", "TextToolCalls"]

_LONGEST_BLANK: Final = 32
"""White space that waits for what follows it: a model that writes nothing else must be seen to do so."""

_OUTSIDE: Final = Words(*READERS, "<think>", "</think>")
_THINKING: Final = Words("</think>")


class TextToolCalls:
    """Reads a model's text as it streams and takes tool calls out of it."""

    def __init__(self, tools: Mapping[str, Mapping[str, Any]]) -> None:
        """:param tools: the request's functions, by name the JSON Schema of its parameters ({} when it has none)."""
        self._tools = Tools(tools)
        self._source = Source()
        self._reading: Reads[list[Call]] | None = None
        self._thinking = False
        self._fresh = True  # nothing stands before: the whole text may be a call
        self._called = False
        self._waits = True  # white space waits for what follows it
        self._blank = ""
        self._shown: list[str | Call] = []

    def feed(self, text: str) -> list[str | Call]:
        """Return what may be shown now, in order: texts, never empty, and whole calls."""
        self._source.add(text)
        while self._outside() if self._reading is None else self._inside(self._reading):
            pass
        shown, self._shown = self._shown, []
        return shown

    def end(self) -> list[str | Call]:
        """Return what is left when the text is over."""
        self._source.over = True
        shown = self.feed("")
        if self._blank and not self._called:
            shown.append(self._blank)
        self._blank = ""
        return shown

    def _outside(self) -> bool:
        """Show text up to the next marker; whether there is one."""
        source = self._source
        if self._fresh:
            blank = spaces(source.text, source.at)
            self._show(source.text[source.at : blank])
            source.at = blank
            if blank == len(source.text):
                return False
            self._fresh = False
            if source.text[blank] in "{[`":
                self._begin("", whole_text)
                return True
        at, marker = (_THINKING if self._thinking else _OUTSIDE).find(source.text, source.at, source.over)
        self._show(source.text[source.at : at])
        source.at = at
        if marker in READERS:
            self._begin(marker, READERS[marker])
        elif marker:
            self._show(marker)
            source.at += len(marker)
            self._thinking = marker == "<think>"
            self._fresh = not self._thinking
        return bool(marker)

    def _begin(self, marker: str, reader: Reader) -> None:
        self._source.begin(marker)
        self._reading = reader(self._source, self._tools)

    def _inside(self, reading: Reads[list[Call]]) -> bool:
        """Read on in a block; whether it has ended."""
        try:
            next(reading)
            return False
        except StopIteration as ended:
            calls: list[Call] = ended.value
        except NotACall:
            calls = []
        self._reading = None
        if calls:
            self._shown += calls
            self._called = self._waits = True
            self._blank = ""
        else:
            self._show("".join(self._source.taken))
        return True

    def _show(self, text: str) -> None:
        if self._waits:
            self._blank = text = self._blank + text
            if len(text) <= _LONGEST_BLANK and not text.strip():
                return
            self._waits, self._blank = False, ""
        if text:
            self._shown.append(text)
