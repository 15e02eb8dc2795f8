"""The conversation of a Messages request as chat messages. Pure.

- The results of tools stand before all else that their turn says, behind the calls they answer.
- Texts that a user or a system says in several blocks are paragraphs; an assistant's are one text as it was written,
  a paragraph where something else stood between.
- A tool's message is text, since backends take nothing else there: what it shows follows as the user's.
- A system turn amid the conversation is said by the user, marked as what it is, before what else that turn says; so
  Claude Code says it to models that know no system turns. Many chat templates refuse a second system message, and
  moving it to the front would make every prompt before it new to a cache.
- What only Anthropic can read is dropped: signatures, encrypted thinking, what its own servers' tools did.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from iop.document import JsonObject
from iop.edge.surfaces.openai.apis.members import must_be

_PARAGRAPH: Final = "\n\n"

_BILLING: Final = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n?")
"""A line that Claude Code puts before its system prompt. It differs at every request, so no prompt would be cached."""

_DROPPED: Final = frozenset({"redacted_thinking", "server_tool_use", "mcp_tool_use", "fallback", "mcp_tool_listing"})


def chat_messages(system: Any, turns: Any) -> list[JsonObject]:
    """Return the messages of the chat request; :raises Failure: ``invalid_value``, naming what is wrong.

    :param system: the request's ``system``, None where it has none.
    :param turns: the request's ``messages``.
    """
    conversation = _Conversation()
    conversation.instruct("" if system is None else _system(system, "system"))
    for number, turn in enumerate(turns):
        conversation.take(turn, f"messages[{number}]")
    return conversation.whole()


def _system(content: Any, path: str) -> str:
    """Return a system prompt, which is a text or text blocks."""
    texts: list[str] = []
    for block, where in _blocks(content, path):
        if block["type"] == "text":
            texts.append(_string(block, "text", where))
        elif block["type"] not in ("tool_addition", "tool_removal"):  # every tool is offered from the beginning
            raise must_be(f"{where}.type", "text")
    if texts:
        texts[0] = _BILLING.sub("", texts[0])
    return _PARAGRAPH.join(filter(None, texts))


class _Conversation:
    """Turns, taken one by one.

    :ivar messages: what they are as a chat, the system prompt apart.
    """

    def __init__(self) -> None:
        self.messages: list[JsonObject] = []
        self._instructions: list[str] = []
        self._calls: set[str] = set()  # of the last assistant's message
        self._answers_at = 0
        self._open: JsonObject | None = None  # the user's message that may go on
        self._reminders: list[JsonObject] = []  # in it
        self._parts: list[JsonObject] = []

    def instruct(self, text: str) -> None:
        """Begin with a system prompt, or go on with it."""
        if text:
            self._instructions.append(text)

    def whole(self) -> list[JsonObject]:
        """Return all of it, when there is no more."""
        self._settle()
        said = [{"role": "system", "content": _PARAGRAPH.join(self._instructions)}] if self._instructions else []
        return [*said, *self.messages]

    def take(self, turn: Any, path: str) -> None:
        if not isinstance(turn, dict):
            raise must_be(path, "an object")
        role, content = turn.get("role"), turn.get("content")
        if role == "user":
            self._user(content, f"{path}.content")
        elif role == "assistant":
            self._assistant(content, f"{path}.content")
        elif role == "system":
            self._amid(_system(content, f"{path}.content"))
        else:
            raise must_be(f"{path}.role", "user, assistant or system")

    def _amid(self, text: str) -> None:
        if self.messages:
            self._say([_text(f"<system-reminder>\n{text}\n</system-reminder>")] if text else [], [])
        else:
            self.instruct(text)

    # ---- the user -----------------------------------------------------------------------------------------------

    def _user(self, content: Any, path: str) -> None:
        said: list[JsonObject] = []
        shown: list[JsonObject] = []
        results = 0
        for block, where in _blocks(content, path):
            if block["type"] == "tool_result":
                shown += self._result(block, where)
                results += 1
            else:
                said += _parts(block, where)
        self._say([], shown + said or ([] if results else [_text("")]))

    def _result(self, block: JsonObject, path: str) -> list[JsonObject]:
        """Put a tool's result behind its call, and return what it shows apart from text."""
        id, content = _string(block, "tool_use_id", path), block.get("content")
        parts = [] if content is None else _all_parts(content, f"{path}.content")
        text = _joined(parts)
        if block.get("is_error") is True and not text.lstrip().lower().startswith(("error", "<tool_use_error>")):
            text = f"Error: {text}"
        message = {"role": "tool", "tool_call_id": id, "content": text}
        if id in self._calls:
            self.messages.insert(self._answers_at, message)
            self._answers_at += 1
        else:
            self.messages.append(message)
        images = [part for part in parts if part["type"] != "text"]
        return [_text(f"The tool result {id} shows:"), *images] if images else []

    def _say(self, reminders: list[JsonObject], parts: list[JsonObject]) -> None:
        """Let the user say something: turns one behind the other are one."""
        if not reminders and not parts:
            return
        if not self.messages or self.messages[-1]["role"] != "user":
            self._settle()
            self._open = {"role": "user"}
            self.messages.append(self._open)
        self._reminders += reminders
        self._parts += parts

    def _settle(self) -> None:
        """Write what the user has said so far: once for all turns that are one, however many."""
        if self._open is None:
            return
        said = [*self._reminders, *self._parts]
        plain = all(part["type"] == "text" for part in said)
        self._open["content"] = _joined(said) if plain else [part for part in said if part.get("text") != ""]
        self._open, self._reminders, self._parts = None, [], []

    # ---- the assistant ------------------------------------------------------------------------------------------

    def _assistant(self, content: Any, path: str) -> None:
        text, thoughts, calls, apart = "", list[str](), list[JsonObject](), False
        for block, where in _blocks(content, path):
            kind = block["type"]
            if kind == "text":
                text += (_PARAGRAPH if apart and text else "") + _string(block, "text", where)
            elif kind == "thinking":
                thoughts.append(_string(block, "thinking", where))
            elif kind == "tool_use":
                calls.append(_call(block, where))
            elif kind == "compaction":
                text += block["content"] if isinstance(block.get("content"), str) else ""
            elif kind not in _DROPPED and not kind.endswith("_tool_result"):
                raise must_be(f"{where}.type", "text, thinking, redacted_thinking or tool_use")
            apart = kind != "text"
        message: JsonObject = {"role": "assistant", "content": text if text or not calls else None}
        if any(thoughts):
            message["reasoning_content"] = _PARAGRAPH.join(filter(None, thoughts))
        if calls:
            message["tool_calls"] = calls
        self.messages.append(message)
        self._calls = {call["id"] for call in calls}
        self._answers_at = len(self.messages)


def _call(block: JsonObject, path: str) -> JsonObject:
    input = block.get("input")
    if not isinstance(input, dict | None):
        raise must_be(f"{path}.input", "an object")
    arguments = json.dumps(input or {}, ensure_ascii=False, separators=(",", ":"))
    function = {"name": _string(block, "name", path, least=1), "arguments": arguments}
    return {"id": _string(block, "id", path, least=1), "type": "function", "function": function}


# ---- blocks ---------------------------------------------------------------------------------------------------------


def _blocks(content: Any, path: str) -> Iterator[tuple[JsonObject, str]]:
    """Iterate over content blocks and where they stand; a string is one; :raises Failure: for what is none."""
    if isinstance(content, str):
        yield {"type": "text", "text": content}, path
        return
    if not isinstance(content, list):
        raise must_be(path, "a string or a list of blocks")
    for number, block in enumerate(content):
        where = f"{path}[{number}]"
        if not isinstance(block, dict):
            raise must_be(where, "a block")
        if not isinstance(block.get("type"), str):
            raise must_be(f"{where}.type", "a string")
        yield block, where


def _all_parts(content: Any, path: str) -> list[JsonObject]:
    return [part for block, where in _blocks(content, path) for part in _parts(block, where)]


def _parts(block: JsonObject, path: str) -> list[JsonObject]:
    """Return what a block that shows something is in a chat."""
    kind = block["type"]
    if kind == "text":
        return [_text(_string(block, "text", path))]
    if kind == "image":
        return [_image(_source(block, path), f"{path}.source")]
    if kind == "document":
        return _document(block, path)
    if kind == "search_result":
        found = _all_parts(block.get("content"), f"{path}.content")
        return [_text(_lines(block.get("title"), block.get("source"))), *found]
    if kind == "tool_reference":
        return [_text(_string(block, "tool_name", path))]
    raise must_be(f"{path}.type", "text, image, document, search_result or tool_result")


def _image(source: JsonObject, path: str) -> JsonObject:
    kind = source.get("type")
    if kind == "base64":
        url = f"data:{_string(source, 'media_type', path)};base64,{_string(source, 'data', path)}"
    elif kind == "url":
        url = _string(source, "url", path)
    else:
        raise must_be(f"{path}.type", "base64 or url")
    return {"type": "image_url", "image_url": {"url": url}}


def _document(block: JsonObject, path: str) -> list[JsonObject]:
    source, where = _source(block, path), f"{path}.source"
    head = _lines(block.get("title"), block.get("context"))
    if source.get("type") == "text":
        parts = [_text(_string(source, "data", where))]
    elif source.get("type") == "content":
        parts = _all_parts(source.get("content"), f"{where}.content")
    else:
        raise must_be(f"{where}.type", "text or content: no model here reads a document in another form")
    return [_text(head), *parts] if head else parts


def _source(block: JsonObject, path: str) -> JsonObject:
    source = block.get("source")
    if not isinstance(source, dict):
        raise must_be(f"{path}.source", "an object")
    return source


def _string(block: JsonObject, name: str, path: str, *, least: int = 0) -> str:
    value = block.get(name)
    if not isinstance(value, str) or len(value) < least:
        raise must_be(f"{path}.{name}", "a non-empty string" if least else "a string")
    return value


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _lines(*said: Any) -> str:
    return "\n".join(line for line in said if isinstance(line, str) and line)


def _joined(parts: list[JsonObject]) -> str:
    """Return the texts of parts as one."""
    return _PARAGRAPH.join(part["text"] for part in parts if part["type"] == "text" and part["text"])
