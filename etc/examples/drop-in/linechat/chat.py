"""What a chat request is in linechat's words, and what of its answer goes to the run. Pure.

::

    > {"ask": "chat", "model": "parrot", "messages": [{"role": "user", "text": "Hi"}], "max_tokens": 100}
    < {"text": "H"}
    < {"text": "i"}
    < {"done": "stop", "input_tokens": 1, "output_tokens": 2}      or {"error": "a sentence"}
"""

from __future__ import annotations

import json
from typing import Any

from iop import model as m
from iop.errors import Failure


def question(request: m.RunRequest) -> dict[str, Any]:
    """Return the question; :raises Failure: ``invalid_value`` for a request that linechat cannot express."""
    try:
        document = json.loads(request.input)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("messages"), list):
        raise Failure("invalid_value", "messages must be a list", param="messages")
    if document.get("tools"):
        raise Failure("invalid_value", "this provider knows no tools", param="tools")
    if document.get("n") not in (None, 1):
        raise Failure("invalid_value", "this provider gives one answer", param="n")
    messages = [_message(each, f"messages[{index}]") for index, each in enumerate(document["messages"])]
    asked = {"ask": "chat", "model": request.target, "messages": messages}
    limit = document.get("max_completion_tokens") or document.get("max_tokens")
    return asked | ({"max_tokens": limit} if limit else {})


def _message(message: Any, where: str) -> dict[str, str]:
    if not isinstance(message, dict):
        raise Failure("invalid_value", "a message must be an object", param=where)
    return {"role": str(message.get("role")), "text": _text(message.get("content"), f"{where}.content")}


def _text(content: Any, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    try:
        return "".join(part["text"] for part in content)
    except (TypeError, KeyError):
        raise Failure("invalid_value", "this provider reads text only", param=where) from None


class Answer:
    """One run's answer, from lines to the sink's calls."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self._started = False

    def take(self, line: dict[str, Any]) -> bool:
        """Tell the sink of a line; return whether it was the last. :raises Failure: for an error or nonsense."""
        if "error" in line:
            raise Failure("upstream_error", f"the backend says: {str(line['error'])[:500]}")
        if not self._started:
            self._started = True
            self._sink.start()
        if "done" in line:
            reason = "length" if line["done"] == "length" else "stop"
            self._sink.complete(reason, m.Usage(_count(line, "input_tokens"), _count(line, "output_tokens")))
            return True
        text = line.get("text")
        if not isinstance(text, str):
            raise Failure("upstream_error", "a line of the backend's answer says nothing")
        self._sink.delta(text=text)
        return False


def _count(line: dict[str, Any], name: str) -> int | None:
    count = line.get(name)
    return count if type(count) is int and 0 <= count < 1 << 31 else None
