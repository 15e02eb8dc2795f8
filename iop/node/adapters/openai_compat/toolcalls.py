"""Tool calls put together from what a stream says of them. Pure."""

from __future__ import annotations

import json
from typing import Any


class ToolCalls:
    """The tool calls of one message, in the order they began.

    A fragment belongs to the call of its index, without one to that of its id. Only arguments are appended; id, type
    and name are set once. Some backends count every call as the first: another id with a name begins another call.
    """

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: list[dict[str, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, said: Any) -> None:
        """Take a ``tool_calls`` member: fragments, or whole calls."""
        for part in said if isinstance(said, list) else ():
            if isinstance(part, dict):
                self._fragment(part)

    def _fragment(self, part: dict[str, Any]) -> None:
        call = self._of(part)
        if call is None:
            index = part.get("index")
            index = index if index is not None else len(self._calls)
            call = {"index": index, "function": {"name": "", "arguments": []}}
            self._calls.append(call)
        for key, value in part.items():
            if key == "function" and isinstance(value, dict):
                function = call["function"]
                function["name"] = function["name"] or value.get("name") or ""
                arguments = value.get("arguments") or ""
                function["arguments"].append(arguments if isinstance(arguments, str) else json.dumps(arguments))
            elif key not in ("index", "function") and value is not None and not call.get(key):
                call[key] = value

    def _of(self, part: dict[str, Any]) -> dict[str, Any] | None:
        """Return the call that a fragment goes on with."""
        index, id, function = part.get("index"), part.get("id"), part.get("function")
        key, value = ("index", index) if index is not None else ("id", id)
        call = next((call for call in reversed(self._calls) if value is not None and call.get(key) == value), None)
        named = isinstance(function, dict) and function.get("name")
        if call is not None and named and id and call.get("id") not in (None, "", id):
            return None
        return call

    def whole(self, ids: str = "") -> list[dict[str, Any]]:
        """Return them as OpenAI has them; no arguments are an empty object, others are left as they are.

        :param ids: what an id begins with that the backend did not give; "" gives none.
        """
        return [_whole(call, f"{ids}{number}" if ids else "") for number, call in enumerate(self._calls)]


def _whole(call: dict[str, Any], id: str) -> dict[str, Any]:
    function = {**call["function"], "arguments": "".join(call["function"]["arguments"]) or "{}"}
    rest = {key: value for key, value in call.items() if key not in ("index", "function")}
    made = {"type": "function", "function": function, **rest}
    return {**made, "id": made.get("id") or id} if id else made
