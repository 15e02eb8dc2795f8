"""A request of the Responses API: its stateless subset, told to a backend that has it or as a chat. Pure.

What would have to be kept between two requests is refused, and named; ``store`` counts as false. Unknown members mean
nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from iop.document import Document, JsonObject
from iop.edge.surfaces.openai.apis.errors import error_object
from iop.edge.surfaces.openai.apis.members import model_of, must_be, plain, read, spliced, wrong
from iop.edge.surfaces.openai.apis.responses_answer import Frame, ResponsesDocument, ResponsesStream, event_bytes
from iop.edge.surfaces.openai.apis.responses_input import item_references, messages_of
from iop.edge.surfaces.openai.apis.responses_tools import Tools
from iop.errors import Failure

_STATEFUL: Final = ("previous_response_id", "conversation", "background", "prompt")

_SAME: Final = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "logit_bias",
    "user",
    "metadata",
    "top_k",
    "min_p",
    "repetition_penalty",
    "chat_template_kwargs",
    "thinking_token_budget",
)
"""Members that a chat has under the same name. Not all are this API's own, but clients send them to local backends."""

_SHAPES: Final[dict[str, tuple[type, str]]] = {
    "instructions": (str, "a string"),
    "stream": (bool, "true or false"),
    "text": (tuple, "an object"),
    "reasoning": (tuple, "an object"),
    "metadata": (tuple, "an object"),
    "include": (list, "a list"),
    "tools": (list, "a list"),
}
"""What a member must be that is there and not null, as a :class:`Document` has it."""

_CALLED_HERE: Final = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
}
"""What members of a chat request, by which a node refuses one, are in this API."""

_ENCRYPTED: Final = "reasoning.encrypted_content"


class ResponsesRequest:
    """What a client asks (:class:`~iop.edge.surfaces.openai.apis.shape.Request`).

    :ivar body: as it came, a byte order mark apart.
    :ivar document: the same, read.
    :ivar model: the model's name, never empty.
    :ivar stream: whether the client wants events.
    """

    def __init__(self, body: bytes, document: Document, model: str, stream: bool) -> None:
        self.body = body
        self.document = document
        self.model = model
        self.stream = stream

    @classmethod
    def parse(cls, body: bytes) -> ResponsesRequest:
        """Read it; :raises Failure: ``invalid_json``, ``invalid_value``, ``unsupported_parameter``."""
        body, document = read(body)
        model, given = model_of(document), document.get("input")
        _refuse_state(document, given)
        if not isinstance(given, str | list):
            raise wrong(document, "input", "a string, or a list of items")
        for name, (shape, what) in _SHAPES.items():
            value = document.get(name)
            if value is not None and type(value) is not shape:
                raise wrong(document, name, what)
        return cls(body, document, model, document.get("stream") is True)

    def native(self, target: str, changes: Mapping[str, str]) -> bytes:
        """Return the body for a backend that has this API: nothing of it is kept there either."""
        kept = {"store": "false"} if self.document.get("store") is True else {}
        return spliced(self, target, {**kept, **changes})

    def chat(self) -> JsonObject:
        """Return the same question as a chat request, ``stream`` left out.

        :raises Failure: ``invalid_value``, ``unsupported_parameter``: for what a chat cannot say.
        """
        asked = self._asked
        made: JsonObject = {"model": self.model, "messages": messages_of(asked.get("instructions"), asked["input"])}
        if all(message["role"] == "system" for message in made["messages"]) and not messages_of(None, asked["input"]):
            raise Failure("invalid_value", "`input` has nothing in it that a model could answer", param="input")
        made.update(self._tools.chat)
        if "tools" in made and asked.get("parallel_tool_calls") is not None:
            made["parallel_tool_calls"] = asked["parallel_tool_calls"]
        made.update({name: asked[name] for name in _SAME if asked.get(name) is not None})
        text, reasoning = asked.get("text") or {}, asked.get("reasoning") or {}
        others = {
            "max_tokens": asked.get("max_output_tokens"),
            "response_format": _response_format(text.get("format")),
            "verbosity": text.get("verbosity"),
            "reasoning_effort": reasoning.get("effort"),
        }
        return {**made, **{name: value for name, value in others.items() if value is not None}}

    def building(self, id: str, created: int) -> ResponsesStream | ResponsesDocument:
        """Return what makes the answer out of events.

        :param id: unique, without the API's own prefix.
        :param created: seconds since 1970.
        """
        made = ResponsesStream if self.stream else ResponsesDocument
        seal = _ENCRYPTED in (self._asked.get("include") or ())
        return made(id, Frame(id, created, self._asked), self._tools, seal=seal)

    def error(self, failure: Failure, request_id: str) -> JsonObject:
        """Return the document of a failure; what a chat request calls otherwise is called as it is here."""
        document = error_object(failure)
        param = document["error"]["param"]
        if param is not None and param not in self.document:
            head = param.partition("[")[0].partition(".")[0]
            document["error"]["param"] = _CALLED_HERE.get(head, param)
        return document

    def broken(self, failure: Failure, request_id: str) -> bytes:
        """Return the last event of a backend's own stream that broke.

        Its response is another than the backend's, whose id and whose count of events nobody has read.
        """
        try:
            asked = self._asked
        except Failure:
            asked = {"model": self.model}
        return event_bytes(Frame(request_id, 0, asked).failed(failure, []), 0)

    @cached_property
    def _asked(self) -> JsonObject:
        """The request as plain values; :raises Failure: for what could not be said again."""
        return plain(self.body)

    @cached_property
    def _tools(self) -> Tools:
        return Tools.parse(self._asked.get("tools"), self._asked.get("tool_choice"))


def _refuse_state(document: Document, given: Any) -> None:
    """Refuse what needs something that an earlier request left; :raises Failure: which names it."""
    for name in _STATEFUL:
        if document.get(name) not in (None, False):
            message = f"`{name}` is not supported: nothing is kept between requests; send the whole `input`"
            raise Failure("unsupported_parameter", message, param=name)
    for number in item_references(given):
        message = f"`input[{number}]`: nothing is kept between requests; send the item itself, not its id"
        raise Failure("unsupported_parameter", message, param=f"input[{number}]")


def _response_format(form: Any) -> JsonObject | None:
    """Return ``text.format`` as chat has it; None for plain text."""
    if form is None:
        return None
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "json_object"}
    if kind != "json_schema":
        raise must_be("text.format", "an object of type text, json_object or json_schema")
    members = ("name", "description", "schema", "strict")
    return {"type": "json_schema", "json_schema": {name: form[name] for name in members if form.get(name) is not None}}
