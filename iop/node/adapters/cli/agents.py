"""``codex_jsonl``, ``gemini_stream_json`` and ``opencode_json``: three agents whose events need little memory. Pure."""

from __future__ import annotations

from typing import Any

from iop import model as m
from iop.errors import Failure
from iop.node.adapters.cli.failures import Said, is_status, object_of, session_gone
from iop.node.adapters.cli.lines import Event, JsonLines, count, mapping, string, total
from iop.node.adapters.cli.voice import Piece, Voice


class _Parts(JsonLines):
    """A parser of texts that come whole, each with an id; one that is told again only adds what is new."""

    def __init__(self) -> None:
        super().__init__()
        self._part: dict[Voice, str] = {}

    def part(self, voice: Voice, id: str, text: str) -> str:
        """Return what is to be shown of a text."""
        if not id or self._part.get(voice) != id:
            voice.fresh()
            self._part[voice] = id
        return voice.snapshot(text)


class Codex(_Parts):
    """``codex exec --json``: items, no deltas. Only ``turn.completed`` and ``turn.failed`` end a turn.

    An ``error`` may be a reconnect, and an item of type ``error`` is a warning.
    """

    def _thread(self, event: Event) -> None:
        self.found_session(event.get("thread_id"))

    def _turn(self, event: Event) -> None:
        self.reopen()

    def _item(self, event: Event) -> None:
        item = mapping(event.get("item"))
        id, text = string(item.get("id")), string(item.get("text"))
        if item.get("type") == "agent_message":
            self.hint = Said()
            self.show(self.part(self.text, id, text))
        elif item.get("type") == "reasoning":
            self.show(reasoning=self.part(self.reasoning, id, text))

    def _error(self, event: Event) -> None:
        self.hint = object_of(event)

    def _completed(self, event: Event) -> None:
        self._count(event)
        self.succeed()

    def _failed(self, event: Event) -> None:
        self._count(event)
        self.fail(object_of(event))

    def _count(self, event: Event) -> None:
        counted = event.get("usage")
        if isinstance(counted, dict):
            self.usage = m.Usage(
                count(counted.get("input_tokens")),
                count(counted.get("output_tokens")),
                count(counted.get("cached_input_tokens")),
                count(counted.get("reasoning_output_tokens")),
            )

    handlers = {
        "thread.started": _thread,
        "turn.started": _turn,
        "item.started": _item,
        "item.updated": _item,
        "item.completed": _item,
        "error": _error,
        "turn.completed": _completed,
        "turn.failed": _failed,
    }


class Gemini(JsonLines):
    """``gemini -o stream-json``: real deltas, no ids; a tool stands between two messages."""

    def _init(self, event: Event) -> None:
        self.found_session(event.get("session_id"))

    def _message(self, event: Event) -> None:
        if event.get("role") != "assistant":
            return  # the prompt, told again
        content = string(event.get("content"))
        if event.get("delta"):
            self.show(self.text.delta(content))
        else:
            self.show(self.text.snapshot(content))
            self.fresh()

    def _tool(self, event: Event) -> None:
        self.fresh()

    def _error(self, event: Event) -> None:
        self.hint = object_of(event)

    def _result(self, event: Event) -> None:
        self._count(mapping(event.get("stats")))
        if event.get("status") == "success":
            self.succeed()
        else:
            self.fail(object_of(event) if event.get("error") else self.hint)

    def _count(self, counted: Any) -> None:
        if counted:
            self.usage = m.Usage(
                count(counted.get("input_tokens")), count(counted.get("output_tokens")), count(counted.get("cached"))
            )

    handlers = {
        "init": _init,
        "message": _message,
        "tool_use": _tool,
        "tool_result": _tool,
        "error": _error,
        "result": _result,
    }

    def end(self, exit_status: int | None, signal: int | None, stderr_tail: str) -> Piece | Failure | None:
        """See :meth:`Parser.end`. The exit status is 42 for a session that does not exist, among other input."""
        if exit_status == 42 and not self.done and ("session" in stderr_tail or not stderr_tail.strip()):
            return session_gone()
        return super().end(exit_status, signal, stderr_tail)


class OpenCode(_Parts):
    """``opencode run --format json``: whole parts of text; the last step's reason tells whether the turn is over."""

    def event(self, event: Event) -> None:
        """Take an event; every one names the session."""
        self.found_session(event.get("sessionID"))
        super().event(event)

    def _text(self, event: Event) -> None:
        part = mapping(event.get("part"))
        self.show(self.part(self.text, string(part.get("id")), string(part.get("text"))))

    def _reasoning(self, event: Event) -> None:
        part = mapping(event.get("part"))
        self.show(reasoning=self.part(self.reasoning, string(part.get("id")), string(part.get("text"))))

    def _step_start(self, event: Event) -> None:
        self.reopen()

    def _step_finish(self, event: Event) -> None:
        part = mapping(event.get("part"))
        self._count(mapping(part.get("tokens")))
        if part.get("reason") != "tool-calls":
            self.succeed()

    def _error(self, event: Event) -> None:
        error = mapping(event.get("error"))
        data = mapping(error.get("data"))
        status = data.get("statusCode")
        words = string(data.get("message")) or object_of(error).words
        self.fail(Said(words, status if is_status(status) else None, string(error.get("name"))))

    handlers = {
        "text": _text,
        "reasoning": _reasoning,
        "step_start": _step_start,
        "step_finish": _step_finish,
        "error": _error,
    }

    def _count(self, tokens: Any) -> None:
        """Add a step's tokens: it counts what came from a cache and what was thought apart from the rest."""
        if not tokens:
            return
        cache, before = mapping(tokens.get("cache")), self.usage or m.Usage()
        thought = tokens.get("reasoning")
        read = total(tokens.get("input"), cache.get("read"), cache.get("write"))
        made = total(tokens.get("output"), thought)
        if count(tokens.get("total")) is not None and total(read, tokens.get("output")) == tokens["total"]:
            made = count(tokens.get("output"))  # the thoughts are in it
        self.usage = m.Usage(
            total(before.input_tokens, read),
            total(before.output_tokens, made),
            total(before.cached_input_tokens, cache.get("read")),
            total(before.reasoning_tokens, thought),
        )
