"""The settings of the built-in adapter types, as JSON Schema (2020-12).

One constant a type. The edge checks a configuration against them before a node sees it, the node checks again what
it was sent: a leaf module, so that both may import it. ``x-expected`` is the sentence a person reads when a
``pattern`` does not match; ``x-secret`` hides a value in every output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Schema = dict[str, Any]

#: Python's ``$`` also matches before a last newline; this end does not, in Python and in ECMA-262 alike.
END: Final = r"$(?!\n)"

#: The largest count or time a setting may hold: what a signed 32-bit field of the wire carries.
INT_MAX: Final = 2**31 - 1

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_USERINFO: Final = r"([^\s/?#@]*@)?"
_HOST: Final = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(:[0-9]{1,5})?"
_ENDPOINTS: Final = (
    r"(chat/completions|completions|embeddings|responses|messages|models|rerank|api/(chat|generate|embed|tags))"
)


def _milliseconds(doc: str, default: int) -> Schema:
    return {"type": "integer", "minimum": 0, "maximum": INT_MAX, "default": default, "description": doc}


def _strings(doc: str) -> Schema:
    return {"type": "array", "items": {"type": "string", **NO_NUL}, "default": [], "description": doc}


#: A header's name is a token of RFC 9110; its value holds no line end.
HEADER_NAME: Final[Schema] = {
    "pattern": f"^{_TOKEN}{END}",
    "x-expected": "a header name: letters, digits and hyphens",
}
HEADER_VALUE: Final[Schema] = {
    "pattern": r"^(?![\s\S]*[\r\n\u0000])",
    "x-expected": "a header value: one line of text, without CR, LF or NUL",
}
NO_NUL: Final[Schema] = {"pattern": r"^(?![\s\S]*\u0000)", "x-expected": "text without NUL"}

BASE_URL: Final[Schema] = {
    "type": "string",
    "maxLength": 2048,
    "pattern": rf"^https?://{_USERINFO}{_HOST}(?![^?#]*/{_ENDPOINTS}/*{END})(/[^\s?#]*)?{END}",
    "x-expected": (
        "the base of the backend's API, such as http://host:8000 or http://host:8000/v1: http or https, "
        "without a query, and without an endpoint's path such as /chat/completions"
    ),
    "examples": ["http://127.0.0.1:8000/v1"],
}

HEADERS: Final[Schema] = {
    "type": "object",
    "propertyNames": HEADER_NAME,
    "additionalProperties": {"type": "string", "x-secret": True, **HEADER_VALUE},
    "default": {},
    "description": "Sent with every request. Take credentials from ${env:NAME} or ${file:PATH}.",
    "examples": [{"Authorization": "Bearer ${env:BACKEND_KEY}"}],
}

_REQUEST_TIMEOUT: Final = _milliseconds("Longest time of one whole run; 0 means no limit.", 0)

_HTTP: Final[dict[str, Schema]] = {
    "headers": HEADERS,
    "request_timeout_ms": _REQUEST_TIMEOUT,
    "connect_timeout_ms": _milliseconds("Longest time to connect to the backend; 0 means no limit.", 5000),
    "first_byte_timeout_ms": _milliseconds("Longest wait for the first byte of an answer; 0 means no limit.", 600_000),
    "gap_timeout_ms": _milliseconds("Longest silence inside an answer; 0 means no limit.", 300_000),
    "max_connections": {
        "type": "integer",
        "minimum": 1,
        "maximum": 65535,
        "default": 1024,
        "description": "The size of the connection pool.",
    },
    "ca_file": {
        "type": ["string", "null"],
        "minLength": 1,
        **NO_NUL,
        "description": (
            "A PEM file on the node with the certificates to trust instead of the system's. "
            "The backend's certificate is always verified."
        ),
        "examples": ["/etc/ssl/private-ca.pem"],
    },
}

OPENAI_COMPAT_SETTINGS: Final[Schema] = {
    "title": "openai_compat",
    "description": "A backend that speaks the OpenAI HTTP API: vLLM, SGLang, llama.cpp, LM Studio, a cloud API.",
    "type": "object",
    "required": ["base_url"],
    "properties": {
        "base_url": {**BASE_URL, "description": "Where the backend's API is, with or without /v1."},
        "provider": {
            "type": ["string", "null"],
            "minLength": 1,
            "maxLength": 200,
            "description": "Who the backend is; decides the fields it is sent. A provider's own label goes first.",
            "examples": ["vllm"],
        },
        **_HTTP,
        "tools": {
            "type": "string",
            "enum": ["auto", "native", "text", "off"],
            "default": "auto",
            "description": (
                "How tools travel: natively with a fallback to text (auto), natively only, as text only, or not at all."
            ),
        },
        "messages": {
            "type": "string",
            "enum": ["as_is", "plain"],
            "default": "as_is",
            "description": (
                "How a chat's messages reach the backend: as the client wrote them, or with a string as each content "
                "and system for developer (plain), for templates that know no more."
            ),
        },
        "stream_upstream": {
            "type": "string",
            "enum": ["auto", "always", "never"],
            "default": "auto",
            "description": "Whether a non-streaming run is streamed from the backend and put together by the node.",
        },
    },
    "additionalProperties": False,
}

#: ``num_ctx`` for a target of an Ollama server without a ``context_size``.
DEFAULT_CONTEXT_SIZE: Final = 8192

OLLAMA_SETTINGS: Final[Schema] = {
    "title": "ollama",
    "description": "An Ollama server, by its native API.",
    "type": "object",
    "properties": {
        "base_url": {
            **BASE_URL,
            "default": "http://127.0.0.1:11434",
            "description": "Where the Ollama server is.",
            "examples": ["http://127.0.0.1:11434"],
        },
        **_HTTP,
        "context_size": {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": INT_MAX},
                {
                    "type": "object",
                    "additionalProperties": {"type": "integer", "minimum": 1, "maximum": INT_MAX},
                },
                {"type": "null"},
            ],
            "description": (
                "num_ctx of every request, in tokens: one number, or one for each target by name; "
                f"{DEFAULT_CONTEXT_SIZE} where there is none. A longer prompt is refused."
            ),
            "examples": [32768, {"qwen3:8b": 32768}],
        },
        "keep_alive": {
            "anyOf": [{"type": "integer"}, {"type": "string", "minLength": 1, "maxLength": 32}, {"type": "null"}],
            "description": "How long a model stays loaded: seconds, or a duration such as 10m; negative is forever.",
            "examples": ["10m", -1],
        },
    },
    "additionalProperties": False,
}

CLI_SETTINGS: Final[Schema] = {
    "title": "cli",
    "description": "A coding agent, or any program, run as a child process of the node.",
    "type": "object",
    "required": ["command"],
    "properties": {
        "command": {
            "type": "string",
            "minLength": 1,
            **NO_NUL,
            "description": "The program: a path, or a name found in PATH. No shell reads it.",
            "examples": ["claude"],
        },
        "args": {
            **_strings("Its arguments, before the prompt."),
            "examples": [["-p", "--output-format", "stream-json", "--verbose"]],
        },
        "env": {
            "type": "object",
            "propertyNames": {"pattern": f"^[A-Za-z_][A-Za-z0-9_]*{END}", "x-expected": "a variable's name"},
            "additionalProperties": {"type": "string", "x-secret": True, **NO_NUL},
            "default": {},
            "description": "Added to the child's environment; of the node's own it gets only the harmless part.",
            "examples": [{"ANTHROPIC_API_KEY": "${env:ANTHROPIC_API_KEY}"}],
        },
        "mode": {
            "type": "string",
            "enum": ["oneshot", "session"],
            "default": "oneshot",
            "description": "A new conversation each run, or one that goes on under the run's session id.",
        },
        "resume_args": {
            **_strings("Arguments that resume a session; {session} is the agent's own session id."),
            "examples": [["--resume", "{session}"]],
        },
        "output_format": {
            "type": "string",
            "enum": ["text", "claude_stream_json", "codex_jsonl", "gemini_stream_json", "opencode_json", "jsonl"],
            "default": "text",
            "description": "What the program writes to stdout.",
        },
        "fields": {
            "type": "object",
            "propertyNames": {"enum": ["text", "reasoning", "session", "error", "input_tokens", "output_tokens"]},
            "additionalProperties": {"type": "string", "minLength": 1},
            "default": {},
            "description": "For jsonl: where in a line's object each thing stands, as a dotted path.",
            "examples": [{"text": "message.content", "session": "session_id"}],
        },
        "prompt": {
            "type": "string",
            "enum": ["stdin", "argument"],
            "default": "stdin",
            "description": "How the program gets the prompt: on stdin, or as the last argument after `--`.",
        },
        "request_timeout_ms": _REQUEST_TIMEOUT,
        "grace_ms": {
            **_milliseconds("Time between SIGINT and SIGKILL when a run is cancelled.", 5000),
            "maximum": 20_000,
        },
    },
    "additionalProperties": False,
}

#: Types whose backends speak no OpenAI HTTP API. What a drop-in's can is known to its node alone.
NORMALIZED: Final = frozenset({"ollama", "cli"})

#: APIs that the edge makes chat requests of, for a backend that does not have them itself.
TRANSLATED_APIS: Final = ("responses", "messages")

#: Backends that have some of them, by the type or the label of their provider.
NATIVE_APIS: Final[Mapping[str, tuple[str, ...]]] = {
    "vllm": TRANSLATED_APIS,
    "sglang": TRANSLATED_APIS,
    "llama_cpp": ("messages",),  # its Responses events have no index, which SDKs need
    "lm_studio": ("responses",),
    "openai": ("responses",),
    "seulgivibe_openai": ("responses",),
    "seulgivibe_claude": ("messages",),
}

#: What a type of :data:`NORMALIZED` has of the OpenAI HTTP API all the same.
BESIDE_EVENTS: Final[Mapping[str, frozenset[str]]] = {"ollama": frozenset({"embedding"})}

#: Types that keep no conversation. A drop-in may.
WITHOUT_SESSIONS: Final = frozenset({"openai_compat", "ollama"})


def chosen(settings: Mapping[str, Any], schema: Schema, name: str) -> Any:
    """Return a setting, or what its schema says where nobody set it."""
    value = settings.get(name)
    return schema["properties"][name].get("default") if value is None else value


#: Adapter type → its settings. A type that is not here is a drop-in, whose settings its node checks.
SETTINGS: Final[dict[str, Schema]] = {
    "openai_compat": OPENAI_COMPAT_SETTINGS,
    "ollama": OLLAMA_SETTINGS,
    "cli": CLI_SETTINGS,
}
