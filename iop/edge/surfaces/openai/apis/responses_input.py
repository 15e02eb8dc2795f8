"""The Responses API's input items as a chat's messages. Pure.

One turn of the model is one assistant message, though its reasoning, its text and its calls are items of their own.
Instructions that come first are one system message: many chat templates look at no second one.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from iop.document import JsonObject
from iop.edge.surfaces.openai.apis.members import must_be
from iop.edge.surfaces.openai.apis.responses_tools import chat_name, freeform
from iop.errors import Failure

_SEALED: Final = "iop1:"
"""What ``encrypted_content`` begins with that was written here: the reasoning, in base64, a secret to nobody."""

_ROLES: Final = ("user", "assistant", "system", "developer")
_CALLS: Final = ("function_call", "custom_tool_call")
_OUTPUTS: Final = ("function_call_output", "custom_tool_call_output")


def sealed(reasoning: str) -> str:
    """Return a reasoning as ``encrypted_content``."""
    return _SEALED + base64.b64encode(reasoning.encode("utf-8", "surrogatepass")).decode("ascii")


def unsealed(content: Any) -> str:
    """Return the reasoning again; "" for somebody else's secret."""
    if not isinstance(content, str) or not content.startswith(_SEALED):
        return ""
    try:
        return base64.b64decode(content[len(_SEALED) :], validate=True).decode("utf-8", "surrogatepass")
    except (binascii.Error, UnicodeError, ValueError):
        return ""


def messages_of(instructions: str | None, given: str | list[Any]) -> list[JsonObject]:
    """Return a request's messages; :raises Failure: ``invalid_value``, ``unsupported_parameter``."""
    messages = _Messages()
    if instructions:
        messages.add({"role": "system", "content": instructions})
    if isinstance(given, str):
        messages.add({"role": "user", "content": given})
        given = []
    for number, item in enumerate(given):
        where = f"input[{number}]"
        if not isinstance(item, dict):
            raise must_be(where, "an object")
        messages.read(item, where)
    return messages.whole()


class _Messages:
    """Messages, as items come. Texts of several items are joined once, however many they are.

    :ivar made: those so far; the texts of the first and of the last may be missing.
    """

    def __init__(self) -> None:
        self.made: list[JsonObject] = []
        self._instructions: list[str] = []  # of the first message
        self._reasoning: list[str] = []  # before the turn that it belongs to
        self._said: list[str] = []  # in the assistant's turn that may go on
        self._thought: list[str] = []  # likewise

    def whole(self) -> list[JsonObject]:
        """Return all of them, when there are no more."""
        self._settle()
        if self._instructions:
            self.made[0] = {"role": "system", "content": "\n\n".join(self._instructions)}
        return self.made

    def read(self, item: JsonObject, where: str) -> None:
        """Take an item in; what only the API's own host understands is passed over."""
        kind = item.get("type", "message" if "role" in item else None)
        if kind == "message":
            self._message(item, where)
        elif kind in _CALLS:
            self._call(item, where, custom=kind == "custom_tool_call")
        elif kind in _OUTPUTS:
            self._output(item, where)
        elif kind == "reasoning":
            self._reasoning.append(_reasoning(item))
        elif not isinstance(kind, str):
            raise must_be(f"{where}.type", "a string")

    def add(self, message: JsonObject) -> None:
        """Append a message that is nobody's answer; instructions at the beginning are one."""
        self._reasoning = []
        self._settle()
        content = message["content"]
        if message["role"] == "system" and isinstance(content, str):
            if len(self.made) == 1 and self._instructions:
                self._instructions.append(content)
                return
            if not self.made:
                self._instructions = [content]
        self.made.append(message)

    def _message(self, item: JsonObject, where: str) -> None:
        role = item.get("role")
        if role not in _ROLES:
            raise must_be(f"{where}.role", "one of " + ", ".join(_ROLES))
        content = _content(item.get("content"), f"{where}.content", "" if role == "assistant" else "\n")
        if role != "assistant":
            self.add({"role": "system" if role == "developer" else role, "content": content})
            return
        turn = self._turn(more=bool(self.made) and "tool_calls" in self.made[-1])
        if isinstance(content, str):
            self._said.append(content)
        else:
            self._said, turn["content"] = [], content

    def _call(self, item: JsonObject, where: str, *, custom: bool) -> None:
        said = item.get("input" if custom else "arguments")
        for name, value in (("call_id", item.get("call_id")), ("name", item.get("name"))):
            if not isinstance(value, str) or not value:
                raise must_be(f"{where}.{name}", "a non-empty string")
        if not isinstance(said, str):
            raise must_be(f"{where}.{'input' if custom else 'arguments'}", "a string")
        function = {"name": chat_name(item), "arguments": freeform(said) if custom else said}
        calls = self._turn(more=True).setdefault("tool_calls", [])
        calls.append({"id": item["call_id"], "type": "function", "function": function})

    def _output(self, item: JsonObject, where: str) -> None:
        if not isinstance(item.get("call_id"), str):
            raise must_be(f"{where}.call_id", "a string")
        content = _content(item.get("output"), f"{where}.output", "\n")
        self.add({"role": "tool", "tool_call_id": item["call_id"], "content": content})

    def _turn(self, *, more: bool) -> JsonObject:
        """Return the assistant's message that goes on (``more``) or begins, with the reasoning before it."""
        if not more or not self.made or self.made[-1]["role"] != "assistant":
            self._settle()
            self.made.append({"role": "assistant", "content": None})
        self._thought += filter(None, self._reasoning)
        self._reasoning = []
        return self.made[-1]

    def _settle(self) -> None:
        """Write what the assistant's turn says: it does not go on."""
        if self._said:
            self.made[-1]["content"] = "".join(self._said)
        if self._thought:
            self.made[-1]["reasoning_content"] = "\n\n".join(self._thought)
        self._said, self._thought = [], []


def _reasoning(item: JsonObject) -> str:
    """Return what an earlier reasoning says, from wherever it is told most fully."""
    own = _texts(item.get("content"), "reasoning_text", "")
    return own or unsealed(item.get("encrypted_content")) or _texts(item.get("summary"), "summary_text", "\n\n")


def _texts(parts: Any, kind: str, between: str) -> str:
    found = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return between.join(str(part.get("text") or "") for part in found if part.get("type") == kind)


def _content(content: Any, where: str, between: str) -> str | list[JsonObject]:
    """Return a message's content: a text, where it is nothing but texts, since that is understood everywhere."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise must_be(where, "text, or a list of parts")
    parts = [_part(part, f"{where}[{number}]") for number, part in enumerate(content)]
    if all(part["type"] == "text" for part in parts):
        return between.join(part["text"] for part in parts)
    return parts


def _part(part: Any, where: str) -> JsonObject:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("input_text", "output_text", "text", "refusal"):
        text = part.get("refusal" if kind == "refusal" else "text")
        if not isinstance(text, str):
            raise must_be(f"{where}.{'refusal' if kind == 'refusal' else 'text'}", "a string")
        return {"type": "text", "text": text}
    if kind == "input_image":
        return _image(part, where)
    if kind == "input_audio" and isinstance(part.get("input_audio"), dict):
        return {"type": "input_audio", "input_audio": part["input_audio"]}
    if kind == "input_file":
        raise Failure("unsupported_parameter", f"`{where}`: files are not taken here; send their text", param=where)
    raise must_be(where, "a part of a known `type`")


def _image(part: JsonObject, where: str) -> JsonObject:
    if part.get("file_id") is not None:
        message = f"`{where}.file_id`: no files are kept here; send `image_url`, which may be a data URL"
        raise Failure("unsupported_parameter", message, param=f"{where}.file_id")
    if not isinstance(part.get("image_url"), str):
        raise must_be(f"{where}.image_url", "a string")
    detail = {"detail": part["detail"]} if isinstance(part.get("detail"), str) else {}
    return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}


def item_references(given: Any) -> list[int]:
    """Return which items of an input are no items but name kept ones; ``given`` as a document has it."""
    if not isinstance(given, list):
        return []
    return [at for at, item in enumerate(given) if type(item) is tuple and ("type", "item_reference") in item]
