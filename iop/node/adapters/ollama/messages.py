"""The messages of an OpenAI chat request as Ollama takes them. Pure."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from typing import Any, Final

from iop.document import JsonObject
from iop.errors import Failure

_IMAGE: Final = re.compile(r"data:[^,]*;base64,", re.IGNORECASE)


def wrong(param: str, what: str) -> Failure:
    """Return what refuses a request, naming the member at fault."""
    return Failure("invalid_value", f"`{param}` must be {what}", param=param)


NO_OBJECT: Final = "not_a_json_object"
"""Under this name the backend gets arguments that are no object: the model shall see what it wrote."""


class Conversation:
    """Messages, taken one by one.

    :ivar instructions: every system and developer message. Ollama gets them as one message, the first: some of its
        templates drop all but the first system message, wherever it stands.
    :ivar turns: the other messages.
    :ivar warnings: what was changed so that the backend takes it.
    """

    def __init__(self) -> None:
        self.instructions: list[str] = []
        self.turns: list[JsonObject] = []
        self.warnings: list[str] = []
        self._functions: dict[str, str] = {}

    @classmethod
    def of(cls, messages: Any) -> Conversation:
        """Take all of a request; :raises Failure: ``invalid_value``, naming the message and what is wrong in it."""
        if not isinstance(messages, list):
            raise wrong("messages", "a list")
        conversation = cls()
        for number, message in enumerate(messages):
            path = f"messages[{number}]"
            if not isinstance(message, dict):
                raise wrong(path, "an object")
            conversation._take(message, path)
        return conversation

    def messages(self) -> list[JsonObject]:
        """Return them for ``/api/chat``."""
        if not self.instructions:
            return self.turns
        return [{"role": "system", "content": "\n\n".join(self.instructions)}, *self.turns]

    def _take(self, message: JsonObject, path: str) -> None:
        role, content = message.get("role"), message.get("content")
        if content is None and role in ("assistant", "tool"):
            content = ""
        text, images = _content(content, f"{path}.content")
        if role in ("system", "developer"):
            if images:
                raise wrong(f"{path}.content", "text")
            self.instructions.append(text)
            return
        turn: JsonObject = {"role": role, "content": text}
        if images:
            turn["images"] = images
        if role == "assistant":
            self._assistant(turn, message, path)
        elif role == "tool":
            self._result(turn, message)
        elif role != "user":
            raise wrong(f"{path}.role", "system, developer, user, assistant or tool")
        self.turns.append(turn)

    def _assistant(self, turn: JsonObject, message: JsonObject, path: str) -> None:
        thinking = message.get("reasoning_content") or message.get("reasoning")
        if isinstance(thinking, str):
            turn["thinking"] = thinking
        calls = message.get("tool_calls")
        if calls is not None and not isinstance(calls, list):
            raise wrong(f"{path}.tool_calls", "a list")
        if calls:
            turn["tool_calls"] = [self._call(n, call, f"{path}.tool_calls[{n}]") for n, call in enumerate(calls)]

    def _call(self, index: int, call: Any, path: str) -> JsonObject:
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            raise wrong(f"{path}.function.name", "the name of a function")
        assert isinstance(function, dict)
        arguments = self._arguments(function.get("arguments"), f"{path}.function.arguments")
        made: JsonObject = {"function": {"index": index, "name": name, "arguments": arguments}}
        id = call.get("id")
        if isinstance(id, str) and id:
            self._functions[id] = name
            made["id"] = id
        return made

    def _arguments(self, arguments: Any, path: str) -> JsonObject:
        """Return them as the object that Ollama wants; the model wrote them, so they need not be one."""
        written = arguments
        if isinstance(arguments, str) and arguments.strip():
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError):
                arguments = None
        elif arguments is None or isinstance(arguments, str):
            arguments = {}
        if isinstance(arguments, dict):
            return arguments
        self.warnings.append(f"{path} is no JSON object, the backend gets it as {NO_OBJECT}")
        return {NO_OBJECT: written}

    def _result(self, turn: JsonObject, message: JsonObject) -> None:
        id, name = message.get("tool_call_id"), message.get("name")
        if isinstance(id, str) and id:
            turn["tool_call_id"] = id
            name = self._functions.get(id, name)
        if isinstance(name, str) and name:
            turn["tool_name"] = name


def _content(content: Any, path: str) -> tuple[str, list[str]]:
    """Return text and images of a message's content."""
    if isinstance(content, str):
        return content, []
    if not isinstance(content, list):
        raise wrong(path, "a string or a list of parts")
    texts, images = [], []
    for number, part in enumerate(content):
        where = f"{path}[{number}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("text", "refusal"):
            if not isinstance(part.get(kind), str):
                raise wrong(f"{where}.{kind}", "a string")
            texts.append(part[kind])
        elif kind == "image_url":
            images.append(_image(part.get("image_url"), f"{where}.image_url"))
        else:
            raise wrong(where, "a part of type text or image_url")
    return "\n".join(texts), images


def _image(image: Any, path: str) -> str:
    """Return an image as bare base64. Nothing is fetched: a gateway that fetches reaches what its client cannot."""
    if isinstance(image, dict):
        image, path = image.get("url"), f"{path}.url"
    begin = _IMAGE.match(image) if isinstance(image, str) else None
    data = image[begin.end() :] if begin is not None else ""
    try:
        known = bool(b64decode(data, validate=True))
    except ValueError:
        known = False
    if not known:
        raise wrong(path, "a data: URL in base64; images are not fetched")
    return str(data)
