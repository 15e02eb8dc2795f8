"""``claude_stream_json``: what ``claude -p --output-format stream-json`` writes, and qwen much alike. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

from iop import model as m
from iop.node.adapters.cli.failures import Said, is_status, object_of
from iop.node.adapters.cli.lines import Event, JsonLines, count, mapping, string, total

#: qwen tells a failed call as if it were the model's answer, in a message and in a result that is no error.
_MARK: Final = "[API Error:"
_API_ERROR: Final = re.compile(r"\s*\[API Error:.*\]\s*", re.DOTALL)
_LONGEST_HELD: Final = 4000

_NO_WORDS: Final = {
    "error_max_turns": "it reached its turn limit",
    "error_max_budget_usd": "it reached its budget",
}


class Claude(JsonLines):
    """Deltas (``stream_event``), snapshots of messages (``assistant``, one a block) and a ``result``.

    What has a ``parent_tool_use_id`` is a sub-agent's talk: a tool at work, not the answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self._message = ""  # the id of the message that goes on, "" where it has none
        self._announced = False  # whether deltas said whose they are
        self._told = False  # whether a snapshot of the message came
        self._held = ""  # the begin of a message that may be an API error

    def event(self, event: Event) -> None:
        """Take an event; every one names the session."""
        self.found_session(event.get("session_id"))
        if not event.get("parent_tool_use_id"):
            super().event(event)

    def _system(self, event: Event) -> None:
        if event.get("subtype") == "api_retry":
            status = event.get("error_status")
            kind = string(event.get("error"))
            self.hint = Said(kind.replace("_", " "), status if is_status(status) else None, kind)

    def _stream_event(self, event: Event) -> None:
        inner = mapping(event.get("event"))
        kind = inner.get("type")
        if kind == "message_start":
            self._begin(string(mapping(inner.get("message")).get("id")))
            self._announced = True
        elif kind == "content_block_start":
            block = mapping(inner.get("content_block"))
            if block.get("type") == "tool_use":
                self.apart()
            self._delta(string(block.get("text")), string(block.get("thinking")))
        elif kind == "content_block_delta":
            delta = mapping(inner.get("delta"))
            self._delta(string(delta.get("text")), string(delta.get("thinking")))

    def _assistant(self, event: Event) -> None:
        message = mapping(event.get("message"))
        content = message.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        if event.get("error") or message.get("model") == "<synthetic>":
            # claude's own words; where they are the answer, the result says so
            words = "".join(string(mapping(block).get("text")) for block in blocks)
            self.hint = Said(words, None, string(event.get("error")))
            return
        id = string(message.get("id"))
        if (id and self._message and id != self._message) or (not id and self._told and not self.text.streaming):
            self._begin(id)
        self._message = id or self._message
        self._told = True
        self.hint = Said()
        self._snapshot(blocks)

    def _user(self, event: Event) -> None:
        self._begin("")

    def _result(self, event: Event) -> None:
        self.usage = _usage(mapping(event.get("usage"))) or self.usage
        words = string(event.get("result"))
        bad = event.get("is_error") is True or (not words and string(event.get("subtype")).startswith("error"))
        if bad or _API_ERROR.fullmatch(words):
            self._held = ""
            self.fail(_said(event, words))
            return
        self._release()
        if self.text.silent and not self.text.said_last(words):
            self.show(self.text.delta(words))
        self.succeed()

    handlers = {
        "system": _system,
        "stream_event": _stream_event,
        "assistant": _assistant,
        "user": _user,
        "result": _result,
    }

    def _begin(self, message: str) -> None:
        self._release()
        self.fresh()
        self._message = message
        self._announced = self._told = False
        self.hint = Said()

    def _delta(self, text: str, thinking: str) -> None:
        if not (text or thinking):
            return
        if self._told and not self._announced:
            self._begin("")
        self.show(reasoning=self.reasoning.delta(thinking) if thinking else "")
        if not text:
            return
        if self.text.silent:
            self._held += text
            if self._may_be_error(self._held):
                return
            text, self._held = self._held, ""
        self.show(self.text.delta(text))

    def _snapshot(self, blocks: list[Any]) -> None:
        """Show what of a message's blocks is new. Neighbours are one text: deltas do not tell them apart either."""
        run: dict[str, list[str]] = {"text": [], "thinking": []}
        for block in [*map(mapping, blocks), {}]:
            kind = block.get("type")
            if kind in run:
                run[kind].append(string(block.get(kind)))
                continue
            self._run("".join(run["text"]), "".join(run["thinking"]))
            run = {"text": [], "thinking": []}
            if kind == "tool_use":
                self._release()
                self.apart()

    def _run(self, text: str, thinking: str) -> None:
        if thinking:
            self.show(reasoning=self.reasoning.snapshot(thinking))
        if not text:
            return
        if self.text.silent and self._may_be_error(text):
            self._held = text  # told again, where deltas told it
            return
        self._held = ""
        self.show(self.text.snapshot(text))

    def _release(self) -> None:
        """Show what was held: the run goes on, so it was no error."""
        if self._held:
            self.show(self.text.delta(self._held))
            self._held = ""

    @staticmethod
    def _may_be_error(text: str) -> bool:
        return len(text) < _LONGEST_HELD and _MARK.startswith(text[: len(_MARK)])


def _said(event: Event, words: str) -> Said:
    """Return the error that a result tells: ``subtype`` may say "success" all the same."""
    errors = event.get("errors")
    told = [string(error) for error in (errors if isinstance(errors, list) else ())]
    words = words or "; ".join(word for word in told if word and not word.startswith("[ede_diagnostic]"))
    words = words or object_of(event).words  # newer qwen's place for it
    if not words and string(event.get("terminal_reason")).startswith("aborted"):
        words = "it was interrupted"
    status = event.get("api_error_status")
    return Said(
        words or _NO_WORDS.get(string(event.get("subtype")), ""),
        status if is_status(status) else None,
        string(event.get("api_error_type")),
    )


def _usage(counted: Any) -> m.Usage | None:
    """Return a usage in which the input holds what came from a cache, as OpenAI counts.

    claude counts that apart; qwen does not, and tells a total.
    """
    if not counted:
        return None
    cached = counted.get("cache_read_input_tokens")
    apart = () if "total_tokens" in counted else (cached, counted.get("cache_creation_input_tokens"))
    return m.Usage(
        total(counted.get("input_tokens"), *apart),
        count(counted.get("output_tokens")),
        count(cached),
        count(mapping(counted.get("output_tokens_details")).get("thinking_tokens")),
    )
