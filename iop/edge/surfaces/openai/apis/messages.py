"""The Messages API of Anthropic: a request read, and asked again as a chat. Pure.

What is not understood is ignored, so that a client newer than this module is served; what would make the answer another
one than the client means is refused. ``docs/contracts/openai.md`` (Messages).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iop import model as m
from iop.document import Document, too_deep
from iop.edge.surfaces.openai.apis.members import model_of, plain, read, spliced, streams, wrong
from iop.edge.surfaces.openai.apis.messages_answer import MessagesDocument, MessagesStream
from iop.edge.surfaces.openai.apis.messages_errors import error_document, error_event
from iop.edge.surfaces.openai.apis.messages_options import chat_options, schemas_of, thinking_of
from iop.edge.surfaces.openai.apis.messages_turns import chat_messages
from iop.errors import Failure


class CountTokensRequest:
    """A question that is to be counted, not answered.

    :ivar document: the body, as it came.
    :ivar model: the model's name, never empty.
    :ivar stream: whether the client wants events.
    """

    def __init__(self, body: bytes, document: Document, stream: bool = False) -> None:
        self.body = body
        self.document = document
        self.model: str = document.get("model")
        self.stream = stream

    @classmethod
    def parse(cls, body: bytes) -> CountTokensRequest:
        """Read it; :raises Failure: ``invalid_json``, ``invalid_value``. What it says is read by :meth:`chat` alone."""
        return cls(*_checked(body))

    def native(self, target: str, changes: Mapping[str, str]) -> bytes:
        """Return the body for a backend that has this API."""
        return spliced(self, target, changes)

    def chat(self) -> dict[str, Any]:
        """Return the question as a chat request, ``stream`` left out.

        What it says of thinking is not in it: no member of a chat request says that to every backend.

        :raises Failure: ``invalid_value`` and ``unsupported_parameter``, with the member at fault as ``param``.
        """
        asked = plain(self.body)
        thinking_of(asked)
        try:
            messages = chat_messages(asked.get("system"), asked["messages"])
        except RecursionError:
            raise too_deep() from None
        return {"model": self.model, "messages": messages, **chat_options(asked)}

    def error(self, failure: Failure, request_id: str) -> dict[str, Any]:
        """Return the document of a failure."""
        return error_document(failure, request_id)

    def broken(self, failure: Failure, request_id: str) -> bytes:
        """Return the last event of a backend's own stream that broke."""
        return error_event(failure, request_id)


class MessagesRequest(CountTokensRequest):
    """A question that is to be answered."""

    @classmethod
    def parse(cls, body: bytes) -> MessagesRequest:
        """Read it; :raises Failure: ``invalid_json``, ``invalid_value``. What it says is read by :meth:`chat` alone."""
        body, document = _checked(body)
        most = document.get("max_tokens")
        if type(most) is not int or most < 1:
            raise wrong(document, "max_tokens", "a whole number above 0")
        return cls(body, document, streams(document))

    @property
    def thinking(self) -> m.Thinking:
        """The client's own wish for thinking, to go with a run that asks :meth:`chat`; :raises Failure:."""
        wish = self.document.get("thinking")
        return thinking_of({"thinking": dict(wish) if type(wish) is tuple else wish})

    def building(self, id: str, created: int) -> MessagesStream | MessagesDocument:
        """Return what makes the answer out of events; ``created`` has no place in it."""
        choice = self.document.get("tool_choice")
        one_call = type(choice) is tuple and dict(choice).get("disable_parallel_tool_use") is True
        made = MessagesStream if self.stream else MessagesDocument
        return made(f"msg_{id}", self.model, lambda: self.tools, one_call=one_call)

    @property
    def tools(self) -> dict[str, Any]:
        """The JSON Schemas of the tools' inputs, by name; what is no tool of the client's own is left out."""
        return schemas_of(plain(self.body)["tools"]) if "tools" in self.document else {}


def count_document(tokens: int) -> dict[str, Any]:
    """Return the answer to a :class:`CountTokensRequest`."""
    return {"input_tokens": tokens}


def _checked(body: bytes) -> tuple[bytes, Document]:
    """Return a body with what every request must have."""
    body, document = read(body)
    model_of(document)
    messages = document.get("messages")
    if not isinstance(messages, list) or not messages:
        raise wrong(document, "messages", "a list of at least one message")
    return body, document
