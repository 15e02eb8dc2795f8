"""What requests and answers of the OpenAI surface hold, as JSON Schemas of the surface's own description. Pure.

Named are members that the edge reads, and those without which no client is of use. Every object is open: what is not
named here reaches a backend, or comes from one, as it is.
"""

from __future__ import annotations

from typing import Final

from iop.document import JsonObject

_TEXT: Final[JsonObject] = {"type": "string"}
_COUNT: Final[JsonObject] = {"type": "integer", "minimum": 0}
_NUMBER: Final[JsonObject] = {"type": "number"}
_FLAG: Final[JsonObject] = {"type": ["boolean", "null"]}
_OBJECT: Final[JsonObject] = {"type": "object", "additionalProperties": True}
_OBJECTS: Final[JsonObject] = {"type": "array", "items": _OBJECT}
_TEXTS: Final[JsonObject] = {"type": "array", "items": _TEXT}
_TOKENS: Final[JsonObject] = {"type": "array", "items": {"type": "integer"}, "minItems": 1}
_OTHER_TEXTS: Final[tuple[JsonObject, ...]] = (
    {**_TEXTS, "minItems": 1},
    _TOKENS,
    {"type": "array", "items": _TOKENS, "minItems": 1},
)
"""What stands where a model may also read one text: several, its token ids, or those of several."""

_TEXT_OR_NULL: Final[JsonObject] = {"type": ["string", "null"]}


def ref(name: str) -> JsonObject:
    """Return a reference to one of :data:`SCHEMAS`."""
    return {"$ref": f"#/components/schemas/{name}"}


def _object(*required: str, **members: JsonObject) -> JsonObject:
    """Return an open object."""
    needed = {"required": list(required)} if required else {}
    return {"type": "object", **needed, "properties": members, "additionalProperties": True}


def _either(*schemas: JsonObject) -> JsonObject:
    return {"anyOf": list(schemas)}


_MODEL: Final = ref("ModelName")
_STREAM: Final[JsonObject] = {**_FLAG, "description": "whether the answer is a stream of server-sent events"}
_METADATA: Final[JsonObject] = {
    "type": ["object", "null"],
    "properties": {
        "session_id": {
            **_TEXT,
            "maxLength": 256,
            "description": "the conversation that goes on, where agents keep one",
        },
        "workspace": {**_TEXT, "maxLength": 4096, "description": "the directory in which an agent works"},
    },
    "additionalProperties": True,
}
_STREAM_OPTIONS: Final[JsonObject] = {
    "type": ["object", "null"],
    "properties": {"include_usage": _FLAG},
    "additionalProperties": True,
}

_MESSAGE: Final = _object(
    "role",
    role=_TEXT,
    content=_either(_TEXT_OR_NULL, _OBJECTS),
    reasoning_content=_TEXT_OR_NULL,
    tool_calls={"type": ["array", "null"], "items": _OBJECT},
    tool_call_id=_TEXT,
)

_LIMITS: Final[JsonObject] = {
    "max_tokens": _COUNT,
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "stop": _either(_TEXT, _TEXTS),
    "seed": {"type": "integer"},
}

_USAGE: Final = _object(prompt_tokens=_COUNT, completion_tokens=_COUNT, total_tokens=_COUNT)

_ANTHROPIC_TURN: Final = _object(
    "role", "content", role={"enum": ["user", "assistant", "system"]}, content=_either(_TEXT, _OBJECTS)
)
_ASKED_OF_CLAUDE: Final[JsonObject] = {
    "model": _MODEL,
    "messages": {"type": "array", "items": _ANTHROPIC_TURN, "minItems": 1},
    "system": _either(_TEXT, _OBJECTS),
    "tools": _OBJECTS,
    "tool_choice": _OBJECT,
    "thinking": _object("type", type={"enum": ["enabled", "disabled", "adaptive"]}, budget_tokens=_COUNT),
}

SCHEMAS: Final[dict[str, JsonObject]] = {
    "ModelName": {**_TEXT, "minLength": 1, "description": "one of GET /v1/models"},
    "Error": _object(
        "error",
        error=_object(
            "message", "type", "param", "code", message=_TEXT, type=_TEXT, param=_TEXT_OR_NULL, code=_TEXT_OR_NULL
        ),
    ),
    "AnthropicError": _object(
        "type",
        "error",
        "request_id",
        type={"const": "error"},
        error=_object("type", "message", type=_TEXT, message=_TEXT),
        request_id=_TEXT_OR_NULL,
    ),
    "Status": _object("status", status=_TEXT),
    "Model": _object(
        "id",
        "object",
        "created",
        "owned_by",
        id=_TEXT,
        object={"const": "model"},
        created=_COUNT,
        owned_by=_TEXT,
        max_model_len={**_COUNT, "description": "tokens of its context window, where the edge knows them"},
    ),
    "ModelList": _object("object", "data", object={"const": "list"}, data={"type": "array", "items": ref("Model")}),
    "ChatRequest": _object(
        "model",
        "messages",
        model=_MODEL,
        messages={"type": "array", "items": _MESSAGE},
        stream=_STREAM,
        stream_options=_STREAM_OPTIONS,
        **_LIMITS,
        max_completion_tokens=_COUNT,
        tools=_OBJECTS,
        tool_choice=_either(_TEXT, _OBJECT),
        response_format=_OBJECT,
        reasoning_effort=_TEXT,
        metadata=_METADATA,
    ),
    "ChatCompletion": _object(
        "choices", choices=_OBJECTS, id=_TEXT, model=_TEXT, usage=_either({"type": "null"}, _USAGE)
    ),
    "CompletionRequest": _object(
        "model",
        "prompt",
        model=_MODEL,
        prompt=_either(_TEXT, *_OTHER_TEXTS),
        stream=_STREAM,
        stream_options=_STREAM_OPTIONS,
        **_LIMITS,
        metadata=_METADATA,
    ),
    "TextCompletion": _object(
        "choices", choices=_OBJECTS, id=_TEXT, model=_TEXT, usage=_either({"type": "null"}, _USAGE)
    ),
    "EmbeddingsRequest": _object(
        "model",
        "input",
        model=_MODEL,
        input=_either({**_TEXT, "minLength": 1}, *_OTHER_TEXTS),
        encoding_format={"enum": ["float", "base64", None]},
        dimensions={"type": "integer", "minimum": 1},
        metadata=_METADATA,
    ),
    "Embeddings": _object(
        "object",
        "data",
        "model",
        "usage",
        object={"const": "list"},
        data={
            "type": "array",
            "items": _object(
                "object",
                "index",
                "embedding",
                object={"const": "embedding"},
                index=_COUNT,
                embedding=_either({"type": "array", "items": _NUMBER}, _TEXT),
            ),
        },
        model=_TEXT,
        usage=_OBJECT,
    ),
    "ResponsesRequest": _object(
        "model",
        "input",
        model=_MODEL,
        input=_either(_TEXT, _OBJECTS),
        instructions=_TEXT_OR_NULL,
        stream=_STREAM,
        max_output_tokens=_COUNT,
        temperature=_NUMBER,
        top_p=_NUMBER,
        tools={"type": ["array", "null"], "items": _object("type", type=_TEXT)},
        tool_choice=_either(_TEXT, _OBJECT),
        text={"type": ["object", "null"], "additionalProperties": True},
        reasoning={"type": ["object", "null"], "additionalProperties": True},
        include={"type": ["array", "null"], "items": _TEXT},
        store={**_FLAG, "description": "counts as false: nothing is kept"},
        metadata=_METADATA,
    ),
    "Response": _object(
        "id", "object", "output", id=_TEXT, object={"const": "response"}, status=_TEXT, output=_OBJECTS
    ),
    "MessagesRequest": _object(
        "model",
        "messages",
        "max_tokens",
        **_ASKED_OF_CLAUDE,
        max_tokens={"type": "integer", "minimum": 1},
        stream=_STREAM,
        temperature=_NUMBER,
        top_p=_NUMBER,
        top_k=_COUNT,
        stop_sequences=_TEXTS,
        metadata=_METADATA,
    ),
    "Message": _object(
        "id",
        "type",
        "role",
        "content",
        id=_TEXT,
        type={"const": "message"},
        role={"const": "assistant"},
        content=_OBJECTS,
        stop_reason=_TEXT_OR_NULL,
        usage=_OBJECT,
    ),
    "CountTokensRequest": _object("model", "messages", **_ASKED_OF_CLAUDE),
    "TokenCount": _object("input_tokens", input_tokens=_COUNT),
    "PassedRequest": _object("model", model=_MODEL, stream=_STREAM, metadata=_METADATA),
    "PassedForm": _object(
        "model", model=_MODEL, file={"type": "string", "contentMediaType": "application/octet-stream"}
    ),
}
