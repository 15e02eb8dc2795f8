"""The OpenAI surface's description of itself, in OpenAPI 3.1: built from its routes and the table of failures. Pure.

It is the same for every edge of one version: no model, no host and no setting is in it, so anybody may read it.
``docs/contracts/openai.md`` (Description).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from iop import __version__
from iop.document import JsonObject
from iop.edge.surfaces.openai.apis.errors import public_code
from iop.edge.surfaces.openai.openapi_schemas import SCHEMAS, ref
from iop.errors import KINDS, Failure


class Place(NamedTuple):
    """A path and a method that the surface answers, as its route says.

    :ivar path: as a template: what changes stands in braces.
    :ivar open: whether anybody may ask.
    :ivar anthropic: whether it is a path of Anthropic's API.
    """

    path: str
    method: str
    open: bool
    anthropic: bool


class _Told(NamedTuple):
    """What no route says.

    :ivar asked: the schema of the body, by its content type.
    :ivar answered: the schema of the answer, by its content type; None for any content.
    :ivar more: codes of failures, over those that all of its kind have.
    """

    summary: str
    asked: dict[str, str]
    answered: dict[str, str | None]
    more: tuple[str, ...] = ()


_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_FORM: Final = "multipart/form-data"


def _run(summary: str, asked: str, answered: str, *more: str, streams: bool = True) -> _Told:
    kinds: dict[str, str | None] = {_JSON: answered}
    return _Told(summary, {_JSON: asked}, {**kinds, _EVENTS: None} if streams else kinds, more)


def _look(summary: str, answered: str, *more: str) -> _Told:
    return _Told(summary, {}, {_JSON: answered}, more)


PASSED: Final = "/v1/{path}"
"""The template of all paths that are passed on. Its one parameter may have slashes, which OpenAPI cannot say."""

ONE_MODEL: Final = "/v1/models/{id}"

_TOLD: Final[dict[tuple[str, str], _Told]] = {
    ("/v1/chat/completions", "POST"): _run("A chat completion", "ChatRequest", "ChatCompletion"),
    ("/v1/completions", "POST"): _run("A text that goes on", "CompletionRequest", "TextCompletion"),
    ("/v1/embeddings", "POST"): _run("Vectors of texts", "EmbeddingsRequest", "Embeddings", streams=False),
    ("/v1/responses", "POST"): _run("A response; nothing is kept", "ResponsesRequest", "Response"),
    ("/v1/messages", "POST"): _run("A message, as Anthropic's API has it", "MessagesRequest", "Message"),
    ("/v1/messages/count_tokens", "POST"): _run(
        "How long a question is", "CountTokensRequest", "TokenCount", streams=False
    ),
    (PASSED, "POST"): _Told(
        "Whatever else a backend has: up to eight words, with slashes between them, reach it as they are",
        {_JSON: "PassedRequest", _FORM: "PassedForm"},
        {"*/*": None},
        ("method_not_allowed",),
    ),
    ("/v1/models", "GET"): _look("The models that there are", "ModelList"),
    (ONE_MODEL, "GET"): _look("One model; its name may have slashes", "Model", "model_not_found"),
    ("/healthz", "GET"): _look("Whether the edge answers", "Status"),
    ("/readyz", "GET"): _look("Whether a model can be asked", "Status"),
    ("/openapi.json", "GET"): _look("This description", "Description"),
}

_OF_HTTP: Final = (
    "invalid_request",
    "request_timeout",
    "request_too_large",
    "expectation_failed",
    "head_too_large",
    "version_not_supported",
    "internal",
)
"""What any request can be refused with; most of it before its path is known, so that its shape is OpenAI's."""

_OF_KEYS: Final = ("invalid_api_key", "origin_not_allowed", "host_not_allowed")
_OF_PATHS: Final = ("method_not_allowed",)
_OF_RUNS: Final = tuple(code for code in KINDS if code not in {*_OF_HTTP, *_OF_KEYS, *_OF_PATHS})
"""All that is in no other group: a new code is described without a line here."""

_PARAMETERS: Final[dict[str, JsonObject]] = {
    "id": {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}},
    "path": {
        "name": "path",
        "in": "path",
        "required": True,
        "description": "may have slashes; the first word is none of those that need something kept",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]*$"},
        "example": "rerank",
    },
    "request": {
        "name": "X-Request-Id",
        "in": "header",
        "description": "the answer has it again where it is up to 64 letters, digits, dots, dashes and underscores",
        "schema": {"type": "string"},
    },
    "session": {
        "name": "X-IOP-Session",
        "in": "header",
        "description": "as metadata.session_id",
        "schema": {"type": "string", "maxLength": 256},
    },
    "workspace": {
        "name": "X-IOP-Workspace",
        "in": "header",
        "description": "as metadata.workspace",
        "schema": {"type": "string", "maxLength": 4096},
    },
}

_HEADERS: Final[dict[str, JsonObject]] = {
    "x-request-id": {"required": True, "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"}},
    "request-id": {"description": "the same, as Anthropic's SDKs look for it", "schema": {"type": "string"}},
    "WWW-Authenticate": {"required": True, "schema": {"const": "Bearer"}},
    "Allow": {"required": True, "schema": {"type": "string"}},
    "Accept-Encoding": {"schema": {"type": "string"}},
    "Retry-After": {
        "description": "in seconds, where it is known",
        "schema": {"type": "string", "pattern": "^[0-9]+$"},
    },
    "x-should-retry": {"description": "false where the same request will fail again", "schema": {"const": "false"}},
    "x-iop-provider": {"description": "where the edge is told to say it", "schema": {"type": "string"}},
    "x-iop-queue-ms": {"description": "likewise", "schema": {"type": "string", "pattern": "^[0-9]+$"}},
}

_HEADERS_OF: Final = {
    401: ("WWW-Authenticate",),
    405: ("Allow",),
    415: ("Accept-Encoding",),
    429: ("Retry-After", "x-should-retry"),
    502: ("x-should-retry",),
    503: ("Retry-After", "x-should-retry"),
    504: ("x-should-retry",),
}
"""By the status of a failure."""

_INFO: Final = (
    "An edge takes requests as clients of OpenAI's and Anthropic's APIs send them, and has them answered by whichever"
    " backend serves the model. Members that are not described reach that backend as they are. What an edge serves in"
    " fact depends on its models: a path that none of a model's backends has is 404. Where it is configured without"
    " keys no key is needed, and one that is sent is not looked at. A GET may be a HEAD."
)


def document(places: Iterable[Place]) -> JsonObject:
    """Return the description of a surface; :raises KeyError: for a place of which nothing is told."""
    paths: dict[str, JsonObject] = {}
    for place in places:
        paths.setdefault(place.path, {})[place.method.lower()] = _operation(place)
    return {
        "openapi": "3.1.0",
        "info": {"title": "IOP", "version": __version__, "description": _INFO},
        "paths": paths,
        "components": {
            "schemas": {**SCHEMAS, "Description": {"type": "object", "required": ["openapi", "info", "paths"]}},
            "headers": _HEADERS,
            "parameters": _PARAMETERS,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def described() -> set[tuple[str, str]]:
    """Return the paths and methods of which something is told."""
    return set(_TOLD)


def _operation(place: Place) -> JsonObject:
    told = _TOLD[place.path, place.method]
    runs = place.method == "POST"
    names = [name for name in ("id", "path") if f"{{{name}}}" in place.path]
    names += ["request", *(["session", "workspace"] if runs else [])]
    made: JsonObject = {
        "summary": told.summary,
        "operationId": f"{place.method.lower()} {place.path}",
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in names],
        "security": [] if place.open else [{"bearer": []}, *([{"apiKey": []}] if place.anthropic else [])],
        "responses": {"2XX" if "*/*" in told.answered else "200": _answer(place, told, runs), **_failures(place, told)},
    }
    if told.asked:
        content = {kind: {"schema": ref(name)} for kind, name in told.asked.items()}
        made["requestBody"] = {"required": True, "content": content}
    return made


def _answer(place: Place, told: _Told, runs: bool) -> JsonObject:
    content: JsonObject = {kind: {} if name is None else {"schema": ref(name)} for kind, name in told.answered.items()}
    more = ("x-iop-provider", "x-iop-queue-ms") if runs else ()
    return {"description": told.summary, "headers": _headers(place, *more), "content": content}


def _failures(place: Place, told: _Told) -> JsonObject:
    """Return what else a place answers, by status."""
    runs = place.method == "POST"
    codes = {*_OF_HTTP, *told.more, *(() if place.open else _OF_KEYS), *(_OF_RUNS if runs else ())}
    by_status: dict[int, list[str]] = {}
    for code in KINDS:
        if code in codes:
            by_status.setdefault(KINDS[code].http_status, []).append(code)
    made = {str(status): _failure(place, status, by_status[status]) for status in sorted(by_status)}
    if runs:
        made["4XX"] = _failure(place, 0, [])
        made["4XX"]["description"] = "The backend's own refusal, with its own code or none"
    if place.path == "/readyz":
        made["503"] = {**_answer(place, told, False), "description": "No provider can serve"}
    return made


def _failure(place: Place, status: int, codes: list[str]) -> JsonObject:
    runs = place.method == "POST"
    public = sorted({str(public_code(Failure(code, ""))) for code in codes})
    schema = ref("Error")
    if place.anthropic:
        before = any(code in _OF_HTTP for code in codes)
        schema = {"anyOf": [ref("AnthropicError"), schema]} if before else ref("AnthropicError")
    elif not runs:  # no backend has a word here
        only = {"properties": {"error": {"properties": {"code": {"enum": public}}}}}
        schema = {"allOf": [schema, only]}
    more = _HEADERS_OF.get(status, ()) if status else ("x-should-retry",)
    said = f"Code {', '.join(public)}" if public else ""
    return {
        "description": said,
        "headers": _headers(place, *more),
        "content": {_JSON: {"schema": schema}},
    }


def _headers(place: Place, *more: str) -> dict[str, Any]:
    names = ("x-request-id", *(["request-id"] if place.anthropic else []), *more)
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
