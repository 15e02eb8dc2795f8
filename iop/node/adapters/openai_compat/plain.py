"""Messages for a backend whose chat template takes strings alone, and knows no developer. Pure.

``docs/contracts/adapters.md`` (Plain messages).
"""

from __future__ import annotations

from typing import Any

from iop.errors import Failure
from iop.node.adapters.fallback import text_of


def plain(messages: Any) -> list[Any]:
    """Return the messages of a chat request with a string as each content, and system for developer.

    Nothing is dropped and the order stays: parts are joined, a content that is null or missing is empty.

    :raises Failure: ``invalid_value``, which names a part that is no text.
    """
    if not isinstance(messages, list):
        raise Failure("invalid_value", "messages must be a list", param="messages")
    made: list[Any] = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise Failure("invalid_value", "a message must be an object", param=f"messages[{index}]")
        content = text_of(message.get("content"), f"messages[{index}].content")
        role = {"role": "system"} if message.get("role") == "developer" else {}
        made.append({**message, **role, "content": content})
    return made
