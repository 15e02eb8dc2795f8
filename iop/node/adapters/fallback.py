"""A chat request for a backend without native tools: they become text. Pure."""

from __future__ import annotations

import json
from typing import Any


def rewritten(document: dict[str, Any]) -> dict[str, Any]:
    """Return a chat request without ``tools`` and ``tool_choice``, told instead in the leading system message."""
    kept = {name: value for name, value in document.items() if name not in ("tools", "tool_choice")}
    tools = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in document.get("tools") or ())
    instruction = f"# Tools\n<tools>\n{tools}\n</tools>"
    messages = list(document["messages"])
    if messages and messages[0].get("role") == "system" and isinstance(messages[0].get("content"), str):
        messages[0] = {**messages[0], "content": f"{messages[0]['content']}\n\n{instruction}"}
    else:
        messages.insert(0, {"role": "system", "content": instruction})
    return {**kept, "messages": messages}
