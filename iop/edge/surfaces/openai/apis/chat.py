"""A chat completion as a client asks for it. Pure. ``docs/contracts/openai.md`` (A request)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from iop.document import Document, too_deep
from iop.edge.surfaces.openai.apis.chat_answer import Chunks, Collected
from iop.edge.surfaces.openai.apis.errors import error_object
from iop.edge.surfaces.openai.apis.members import (
    model_of,
    must_be,
    read,
    spliced,
    streams,
    wants_usage,
    with_usage,
    wrong,
)
from iop.errors import Failure
from iop.http import sse


class ChatRequest(NamedTuple):
    """What the edge needs to know of a chat request.

    :ivar include_usage: whether the client asked for the usage chunk of a stream.
    """

    body: bytes
    document: Document
    model: str
    stream: bool
    include_usage: bool

    @property
    def tools(self) -> dict[str, Any]:
        """The JSON Schemas of the tools' parameters, by name; what is no function tool is left out.

        :raises Failure: ``invalid_json``, where they are nested too deeply to be read here.
        """
        if "tools" not in self.document:
            return {}
        made: dict[str, Any] = {}
        try:
            tools = json.loads(self.body)["tools"]
        except RecursionError:
            raise too_deep() from None
        for tool in tools if isinstance(tools, list) else ():
            function = tool.get("function") if isinstance(tool, dict) else None
            if isinstance(function, dict) and isinstance(function.get("name"), str):
                made[function["name"]] = function.get("parameters") or {}
        return made

    @classmethod
    def parse(cls, body: bytes) -> ChatRequest:
        """Read it; :raises Failure: ``invalid_json``, ``invalid_value``."""
        body, document = read(body)
        model, messages = model_of(document), document.get("messages")
        if not isinstance(messages, list):
            raise wrong(document, "messages", "a list")
        if b"null" in body:
            _refuse_silence(messages)
        stream = streams(document)
        return cls(body, document, model, stream, wants_usage(document) and stream)

    @property
    def strips_usage(self) -> bool:
        """Whether the client is not to see the usage that is asked for all the same."""
        return self.stream and not self.include_usage

    def native(self, target: str, changes: Mapping[str, str]) -> bytes:
        """Return the body for a backend: its own name for the model, and usage at the end of a stream."""
        usage = {"stream_options": with_usage(self.document)} if self.strips_usage else {}
        return spliced(self, target, {**changes, **usage})

    def building(self, id: str, created: int) -> Chunks | Collected:
        """Return what makes the answer out of events."""
        id, one_call = f"chatcmpl-{id}", self.document.get("parallel_tool_calls") is False
        if self.stream:
            return Chunks(id, created, self.model, lambda: self.tools, usage=self.include_usage, one_call=one_call)
        return Collected(id, created, self.model, lambda: self.tools, one_call=one_call)

    def error(self, failure: Failure, request_id: str) -> dict[str, Any]:
        """Return the document of a failure."""
        return error_object(failure)

    def broken(self, failure: Failure, request_id: str) -> bytes:
        """Return the last event of a stream that broke."""
        return sse.event(error_object(failure))


def _refuse_silence(messages: list[Any]) -> None:
    """Refuse a user's message that says null; :raises Failure: which names it. Others may be without content."""
    for number, message in enumerate(messages):
        said = dict(message) if type(message) is tuple else {}
        if said.get("role") == "user" and "content" in said and said["content"] is None:
            raise must_be(f"messages[{number}].content", "text, or a list of parts")
