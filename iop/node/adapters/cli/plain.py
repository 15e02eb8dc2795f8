"""``text`` and ``jsonl``: what a program without a protocol of its own says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iop import model as m
from iop.errors import Failure
from iop.node.adapters.cli.failures import ESCAPES, object_of, signal_name, tail, without_result
from iop.node.adapters.cli.lines import Event, JsonLines, count, string
from iop.node.adapters.cli.voice import Piece


class Text:
    """Every line is the answer's, without escape codes and the empty lines around it. Exit status 0 is success."""

    def __init__(self) -> None:
        self.session = ""
        self.noise = 0  # every line is the answer's
        self.usage: m.Usage | None = None
        self._last = ""
        self._line_ends = 0  # not shown yet: they may be the answer's last

    def line(self, line: bytes) -> Piece | None:
        """See :meth:`Parser.line`."""
        text = ESCAPES.sub("", line.decode("utf-8", "replace")).removesuffix("\r")
        if not text.strip():
            self._line_ends += bool(self._last)
            return None
        text, self._line_ends, self._last = "\n" * self._line_ends + text, 1, text
        return Piece(text)

    def end(self, exit_status: int | None, signal: int | None, stderr_tail: str) -> Piece | Failure | None:
        """See :meth:`Parser.end`."""
        if signal is not None:
            return Failure("upstream_error", f"the agent was killed by {signal_name(signal)}")
        if exit_status == 0:
            return None
        return without_result("the agent failed", exit_status, stderr_tail if tail(stderr_tail) else self._last)


class Fields(JsonLines):
    """Objects of any shape, with a dotted path to each thing that matters; a number in a path is a list's index.

    There is no word for "done": exit status 0 with a text, and without an error, is success.
    """

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__()
        self._paths = {name: path.split(".") for name, path in fields.items()}

    def event(self, event: Event) -> None:
        """Take an object."""
        self.found_session(self._at(event, "session"))
        error = self._at(event, "error")
        if error:
            self.fail(object_of(error))
        text, reasoning = string(self._at(event, "text")), string(self._at(event, "reasoning"))
        self.show(self.text.say(text), self.reasoning.say(reasoning))
        read, made = count(self._at(event, "input_tokens")), count(self._at(event, "output_tokens"))
        if read is not None or made is not None:
            before = self.usage or m.Usage()
            self.usage = m.Usage(
                before.input_tokens if read is None else read, before.output_tokens if made is None else made
            )

    def end(self, exit_status: int | None, signal: int | None, stderr_tail: str) -> Piece | Failure | None:
        """See :meth:`Parser.end`."""
        if self.failed is None and exit_status == 0 and not self.text.silent:
            return None
        return super().end(exit_status, signal, stderr_tail)

    def _at(self, event: Event, name: str) -> Any:
        path = self._paths.get(name)
        value: Any = None if path is None else event
        for step in path or ():
            if isinstance(value, dict):
                value = value.get(step)
            elif isinstance(value, list) and step.isdecimal() and int(step[:9]) < len(value):
                value = value[int(step)]
            else:
                return None
        return value
