"""An OpenAI chat request as Ollama's ``/api/chat`` takes it. Pure."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from iop import model as m
from iop.document import JsonObject
from iop.errors import Failure
from iop.node.adapters.ollama.messages import Conversation, wrong
from iop.node.adapters.switches import SWITCHES, said_in

SAMPLING: Final = ("temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty")
"""Members that are options under the same name."""

EFFORTS: Final[dict[str, bool | str]] = {
    "none": False,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "max",
    "max": "max",
}
"""A word of effort → ``think``."""


class ChatRequest(NamedTuple):
    """The body of a request, and what was changed in it that somebody should know."""

    body: JsonObject
    warnings: tuple[str, ...]


def parsed(body: bytes) -> JsonObject:
    """Return a run's input as a document; :raises Failure: ``invalid_json``, ``invalid_value``."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise Failure("invalid_json", "the request body is not JSON") from None
    if not isinstance(document, dict):
        raise Failure("invalid_value", "the request body must be a JSON object")
    return document


def encoded(body: JsonObject) -> bytes:
    """Return it as ASCII, so that a lone surrogate breaks nothing; :raises Failure: for what JSON cannot carry."""
    try:
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise Failure("invalid_value", "the request has a number that is none, or is nested too deeply") from None


def chat_request(
    document: JsonObject,
    target: str,
    num_ctx: int,
    *,
    keep_alive: int | str | None = None,
    thinking: m.Thinking = m.UNSET,
) -> ChatRequest:
    """Return what to ask for; :raises Failure: ``invalid_value`` with ``param`` where Ollama cannot do it.

    :param num_ctx: the same at every request for a target, since another one makes the server load the model anew.
        A client's own ``options.num_ctx`` is not sent: a smaller one is met by this, a larger one is not to be had.
    """
    if document.get("n") not in (None, 1):
        raise wrong("n", "1")
    conversation = Conversation.of(document.get("messages"))
    tools, instruction = _tools(document)
    if instruction:
        conversation.instructions.append(instruction)
    body: JsonObject = {
        "model": target,
        "messages": conversation.messages(),
        "stream": True,
        "truncate": False,  # else a prompt longer than the context loses its oldest messages; so it is refused
        "options": _options(document) | {"num_ctx": num_ctx},
    }
    optional = {
        "tools": tools or None,
        "format": _format(document.get("response_format")),
        "think": _think(document, thinking, target),
        "keep_alive": keep_alive,
        "logprobs": document.get("logprobs"),
        "top_logprobs": document.get("top_logprobs"),
    }
    body |= {name: value for name, value in optional.items() if value is not None}
    return ChatRequest(body, tuple(conversation.warnings))


def _options(document: JsonObject) -> JsonObject:
    options = {name: document[name] for name in SAMPLING if document.get(name) is not None}
    for name in ("max_completion_tokens", "max_tokens"):
        limit = document.get(name)
        if limit is not None:
            if isinstance(limit, bool) or not isinstance(limit, int | float) or limit < 1 or limit % 1:
                raise wrong(name, "a whole number above 0")
            options["num_predict"] = int(limit)
            break
    stop = document.get("stop")
    if stop is not None:
        options["stop"] = [stop] if isinstance(stop, str) else stop
    return options


def _tools(document: JsonObject) -> tuple[list[JsonObject], str]:
    """Return the tools to send, and what a ``tool_choice`` asks for in words: Ollama has none of its own."""
    tools, choice = document.get("tools"), document.get("tool_choice")
    if tools is not None and not isinstance(tools, list):
        raise wrong("tools", "a list")
    for number, tool in enumerate(tools or ()):
        if not isinstance(_function(tool), str):
            raise wrong(f"tools[{number}]", "a function with a name")
    if not tools or choice == "none":
        return [], ""
    if choice in (None, "auto"):
        return tools, ""
    if choice == "required":
        return tools, "You must call at least one function."
    name = _function(choice)
    chosen = [tool for tool in tools if _function(tool) == name]
    if not chosen:
        raise wrong("tool_choice", "none, auto, required or one of the functions in `tools`")
    return chosen, f"You must call the function `{name}`."


def _function(tool: Any) -> Any:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    return function.get("name") if isinstance(function, dict) else None


def _format(wanted: Any) -> Any:
    if wanted is None:
        return None
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return "json"
    if kind != "json_schema":
        raise wrong("response_format.type", "text, json_object or json_schema")
    schema = wanted.get("json_schema")
    schema = schema.get("schema") if isinstance(schema, dict) else None
    if not isinstance(schema, dict):
        raise wrong("response_format.json_schema.schema", "a JSON Schema")
    return schema


def _think(document: JsonObject, thinking: m.Thinking, target: str) -> bool | str | None:
    """Return ``think``, None where nobody asked: a model that cannot think refuses to be told to.

    A budget does not ask: Ollama has none, and the one of a model's configuration comes with every request.
    """
    said = said_in(document)
    if not said:
        return {"off": False, "on": True if thinking.budget is None else None}.get(thinking.mode)
    meant = [_meant(path, value) for path, value in said.items()]
    if False in meant:
        return False
    level = next((level for level in meant if isinstance(level, str)), None)
    if level == "max" and "gpt-oss" in target.lower():
        return "high"
    return level or (True if True in meant else None)


def _meant(path: str, value: Any) -> bool | str | None:
    """Return what one switch says, None where it leaves that to the model."""
    no = SWITCHES[path]
    if value == no:
        return False
    if path == "thinking.type":
        return True if value == "enabled" else None
    levels = EFFORTS if path == "think" or no == "none" else {}
    if isinstance(value, str) and value in levels:
        return levels[value]
    if no is False and value is True:
        return True
    plain = ("true", "false") if no is False else ()
    raise wrong(path, "one of " + ", ".join((*plain, *levels)))
