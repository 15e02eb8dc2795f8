"""The items of an answer of the Responses API, and the events that tell of them. Pure.

Items are strictly one after the other: each is closed before the next begins. Reasoning is shown as a summary, since
that is what agents show of it. An event is a dict here; it has its number when it is sent.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from iop.document import JsonObject
from iop.edge.surfaces.openai.apis.responses_input import sealed
from iop.edge.surfaces.openai.apis.responses_tools import Tools


class _Kind(NamedTuple):
    """How one kind of text is told.

    :ivar frame: the item, without what changes.
    :ivar parts: the item's member that holds the one part.
    :ivar part: the part, without its text.
    :ivar counter: the member of an event that counts parts.
    :ivar part_event: what the events of a part begin with.
    :ivar text_event: likewise of the text in it.
    :ivar extra: members of each event of the text.
    """

    prefix: str
    frame: JsonObject
    parts: str
    part: JsonObject
    counter: str
    part_event: str
    text_event: str
    extra: JsonObject


_MESSAGE: Final = _Kind(
    "msg",
    {"type": "message", "role": "assistant"},
    "content",
    {"type": "output_text", "annotations": [], "logprobs": []},
    "content_index",
    "response.content_part",
    "response.output_text",
    {"logprobs": []},
)
_REASONING: Final = _Kind(
    "rs",
    {"type": "reasoning"},
    "summary",
    {"type": "summary_text"},
    "summary_index",
    "response.reasoning_summary_part",
    "response.reasoning_summary_text",
    {},
)

_CALLED_WITH: Final = {
    "function_call": ("fc", "arguments", "response.function_call_arguments"),
    "custom_tool_call": ("ctc", "input", "response.custom_tool_call_input"),
}
"""By a call's type: its id's prefix, the member that holds what it is called with, and the events that tell it."""


class _Text:
    """An item that is being written: a message or a reasoning, of one part.

    :param seal: whether the reasoning is wanted as ``encrypted_content`` too.
    """

    def __init__(self, kind: _Kind, id: str, index: int, *, seal: bool) -> None:
        self.kind = kind
        self._id = f"{kind.prefix}_{id}_{index}"
        self._index = index
        self._seal = seal
        self._at = {"item_id": self._id, "output_index": index, kind.counter: 0}
        self._pieces: list[str] = []

    def begin(self) -> list[JsonObject]:
        kind = self.kind
        return [
            _item_event("added", self._index, self._item("in_progress", [])),
            {"type": f"{kind.part_event}.added", **self._at, "part": {**kind.part, "text": ""}},
        ]

    def add(self, text: str) -> JsonObject:
        self._pieces.append(text)
        return {"type": f"{self.kind.text_event}.delta", **self._at, "delta": text, **self.kind.extra}

    def end(self, status: str) -> tuple[JsonObject, list[JsonObject]]:
        """Return the item, and the events that close it."""
        kind, item = self.kind, self.whole(status)
        (part,) = item[kind.parts]
        return item, [
            {"type": f"{kind.text_event}.done", **self._at, "text": part["text"], **kind.extra},
            {"type": f"{kind.part_event}.done", **self._at, "part": part},
            _item_event("done", self._index, item),
        ]

    def whole(self, status: str) -> JsonObject:
        """Return the item with all that was said so far."""
        text = "".join(self._pieces)
        item = self._item(status, [{**self.kind.part, "text": text}])
        return {**item, "encrypted_content": sealed(text)} if self._seal else item

    def _item(self, status: str, parts: list[JsonObject]) -> JsonObject:
        item = {"id": self._id, **self.kind.frame, self.kind.parts: parts}
        return {**item, "status": status} if self.kind is _MESSAGE else item


class Output:
    """All items of one answer.

    :ivar items: those that are closed.
    :param id: of the answer, for ids of its items.
    :param seal: whether reasoning is wanted as ``encrypted_content`` too.
    """

    def __init__(self, id: str, tools: Tools, *, seal: bool) -> None:
        self.items: list[JsonObject] = []
        self._id = id
        self._tools = tools
        self._seal = seal
        self._open: _Text | None = None

    def reasoning(self, text: str) -> list[JsonObject]:
        """Add to what the model thinks; return the events of it, as all of these do."""
        return self._text(_REASONING, text) if text else []

    def piece(self, piece: str | JsonObject) -> list[JsonObject]:
        """Add a text, or a chat's tool call."""
        return self._text(_MESSAGE, piece) if isinstance(piece, str) else self._call(piece)

    def close(self, status: str = "completed") -> list[JsonObject]:
        """End the item that is being written, if one is."""
        if self._open is None:
            return []
        item, events = self._open.end(status)
        self._open = None
        self.items.append(item)
        return events

    def so_far(self) -> list[JsonObject]:
        """Return the items, also the one that nobody will end."""
        return self.items if self._open is None else [*self.items, self._open.whole("incomplete")]

    def _text(self, kind: _Kind, text: str) -> list[JsonObject]:
        begun: list[JsonObject] = []
        if self._open is None or self._open.kind is not kind:
            begun = self.close()
            seal = self._seal and kind is _REASONING
            self._open = _Text(kind, self._id, len(self.items), seal=seal)
            begun += self._open.begin()
        return [*begun, self._open.add(text)] if text else begun

    def _call(self, call: JsonObject) -> list[JsonObject]:
        events, index = self.close(), len(self.items)
        made = self._tools.item(call)
        prefix, member, told = _CALLED_WITH[made["type"]]
        said = made[member]
        item = {"id": f"{prefix}_{self._id}_{index}", **made, "status": "completed"}
        at: dict[str, Any] = {"item_id": item["id"], "output_index": index}
        events.append(_item_event("added", index, {**item, member: "", "status": "in_progress"}))
        if said:
            events.append({"type": f"{told}.delta", **at, "delta": said})
        events.append({"type": f"{told}.done", **at, member: said})
        events.append(_item_event("done", index, item))
        self.items.append(item)
        return events


def _item_event(what: str, index: int, item: JsonObject) -> JsonObject:
    return {"type": f"response.output_item.{what}", "output_index": index, "item": item}
