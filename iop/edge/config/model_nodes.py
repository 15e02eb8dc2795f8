"""The nodes' part of the configuration: adapters, and the providers under them."""

# ruff: noqa: RUF009 - setting() is a dataclass field

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from iop.edge.config.setting import ID, NUMBER, SHA256, TEXT, Effect, declared, setting
from iop.settings import CLI_SETTINGS, HEADERS, OLLAMA_SETTINGS, OPENAI_COMPAT_SETTINGS, TRANSLATED_APIS

#: Provider types that are other names for an adapter type. Every other type is its own runtime type.
RUNTIME_TYPES: Final = dict.fromkeys(
    ("vllm", "llama_cpp", "sglang", "lm_studio", "openai", "seulgivibe_claude", "seulgivibe_openai"),
    "openai_compat",
)


def runtime_type(type_: str) -> str:
    """The adapter type that runs a provider of this type."""
    return RUNTIME_TYPES.get(type_, type_)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One named adapter instance of a node.

    ``settings`` stand beside the name in the document, checked by the type's own schema. ``of_provider`` is the
    provider whose inline settings made the instance, so that a change can be shown where it was written; it is no
    setting, and two spellings of one thing are equal.
    """

    IDENTITY: ClassVar[str] = "name"

    name: str = setting(Effect.RESTART, "The instance's name, unique in its node.", **ID, examples=["vllm"])
    type: str = setting(
        Effect.RESTART, "The adapter type: openai_compat, ollama, cli, or a drop-in's word.", **ID, examples=["cli"]
    )
    enabled: bool = setting(Effect.RESTART, "Whether the node makes it.", default=True)
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    of_provider: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How the node checks a provider's backend."""

    interval_ms: int = setting(Effect.RESTART, "Time between two checks; 0 means none.", default=10000)
    path: str | None = setting(
        Effect.RESTART,
        "The path asked for; default what suits the backend.",
        default=None,
        pattern=r'^/[!"$-~]*$(?!\n)',
        examples=["/health"],
        expected="a path that begins with /, in printable ASCII without a space or #",
    )
    timeout_ms: int = setting(Effect.RESTART, "Longest wait for its answer.", default=2000, minimum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """Whether the node may start and stop a provider's backend."""

    managed: bool = setting(Effect.RESTART, "Whether it may.", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A resource under a node: something with capacity that can serve models."""

    IDENTITY: ClassVar[str] = "id"

    id: str = setting(Effect.RESTART, "Unique in the whole configuration.", **ID, examples=["vllm-a"])
    type: str = setting(
        Effect.RESTART, "What the backend is: vllm, ollama, cli …, or a drop-in adapter type.", **ID, examples=["vllm"]
    )
    runtime_type: str = setting(
        Effect.RESTART,
        "The adapter type that runs it: derived, may be given if right.",
        default="",
        derived=True,
        examples=["openai_compat"],
    )
    adapter: str = setting(
        Effect.RESTART,
        "An enabled adapter instance of the node, by name, or by type when there is only one.",
        default="",
        derived=True,
        **ID,
        examples=["vllm"],
    )
    provider: str = setting(
        Effect.RESTART,
        "Label of who the backend is; default the type.",
        default="",
        derived=True,
        **TEXT,
        examples=["vllm"],
    )
    category: str = setting(Effect.RESTART, "Its kind of resource.", enum=["api", "cli", "local_inference"])
    enabled: bool = setting(Effect.LIVE, "Whether it is a candidate for runs.", default=True)
    capacity: int = setting(Effect.LIVE, "Slots: runs at a time.", default=1, minimum=1)
    long_context_capacity: int = setting(Effect.LIVE, "How many of them may be long.", default=0)
    total_context_tokens: int | None = setting(
        Effect.LIVE,
        "What the backend can hold; must cover every model's window × long_context_capacity. 0 means unset.",
        default=None,
        maximum=2**53 - 1,
        examples=[262144],
    )
    priority: int = setting(Effect.LIVE, "Tie-breaker; lower goes first.", default=0)
    models: tuple[str, ...] = setting(
        Effect.RESTART,
        "The names the backend serves, in any order.",
        default=(),
        unordered=True,
        items={"minLength": 1, "maxLength": 512},
        examples=[["qwen3", "qwen3-embedding"]],
    )
    apis: tuple[str, ...] | None = setting(
        Effect.LIVE,
        "Which of the Responses and the Anthropic Messages API the backend has itself; a request of another one is "
        "translated into a chat completion. Default: what is known of the type or the label.",
        default=None,
        unordered=True,
        items={"enum": list(TRANSLATED_APIS)},
        examples=[["responses", "messages"]],
    )
    health: Health = setting(Effect.RESTART, "How the node checks the backend.", default=Health())
    lifecycle: Lifecycle = setting(Effect.RESTART, "Whether the node may start and stop it.", default=Lifecycle())


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Older metadata of a node; no admission depends on it."""

    concurrency: int | None = setting(Effect.LIVE, "Carried and reported only.", default=None, examples=[4])


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine that has something to run.

    ``token_hash_sha256`` is always filled: by the hash of ``token`` when that is what the file gives.
    """

    IDENTITY: ClassVar[str] = "id"

    id: str = setting(Effect.RESTART, "The node's stable identity.", **ID, examples=["gpu-1"])
    alias: str = setting(
        Effect.RESTART, "Its name for people; default the id.", default="", derived=True, **ID, examples=["workshop"]
    )
    token: str | None = setting(
        Effect.RESTART,
        "What the node proves itself with. Exactly one of token and token_hash_sha256.",
        default=None,
        secret=True,
        minLength=1,
        maxLength=4096,
        examples=["${env:GPU_1_TOKEN}"],
    )
    token_hash_sha256: str = setting(
        Effect.RESTART,
        "SHA-256 of the token.",
        default="",
        derived=True,
        secret=True,
        **SHA256,
        examples=["${file:gpu-1.sha256}"],
    )
    agent_kind: str = setting(Effect.RESTART, "What the node is for.", default="generic", **TEXT)
    runtime: Runtime = setting(Effect.LIVE, "Older metadata.", default=Runtime())
    adapters: tuple[Adapter, ...] = setting(Effect.RESTART, "Named adapter instances.", default=())
    providers: tuple[Provider, ...] = setting(Effect.RESTART, "What the node can serve with.", default=())


def _inline(settings: dict[str, Any], key: str) -> dict[str, Any]:
    """An adapter's setting, as a provider may carry it itself. It has no default there: absent is absent."""
    plain = {word: value for word, value in settings["properties"][key].items() if word != "default"}
    return {**plain, "x-effect": Effect.RESTART.value}


#: Inline execution: settings a provider may carry itself instead of naming an adapter. The runtime type's schema
#: decides in the end; these are the types that hold for every runtime type.
INLINE: Final[dict[str, dict[str, Any]]] = {
    "endpoint": declared(
        Effect.RESTART, "Another name of base_url.", type="string", minLength=1, examples=["http://127.0.0.1:8000"]
    ),
    "base_url": declared(
        Effect.RESTART, "Where the backend's API is.", type="string", minLength=1, examples=["http://127.0.0.1:8000/v1"]
    ),
    "headers": {key: value for key, value in HEADERS.items() if key != "default"} | {"x-effect": Effect.RESTART.value},
    "command": _inline(CLI_SETTINGS, "command"),
    "args": _inline(CLI_SETTINGS, "args"),
    "env": _inline(CLI_SETTINGS, "env"),
    "mode": declared(
        Effect.RESTART, "A program's oneshot or session.", type="string", minLength=1, examples=["session"]
    ),
    "resume_args": _inline(CLI_SETTINGS, "resume_args"),
    "output_format": declared(
        Effect.RESTART, "What a program writes.", type="string", minLength=1, examples=["claude_stream_json"]
    ),
    "context_size": _inline(OLLAMA_SETTINGS, "context_size"),
    "request_timeout_ms": _inline(OPENAI_COMPAT_SETTINGS, "request_timeout_ms") | {"examples": [600_000]},
}

#: Older queue policy of a provider, read only when `provider_pool` is absent.
OLDER_QUEUE: Final[dict[str, dict[str, Any]]] = {
    "max_queue": declared(
        Effect.LIVE, "Older form of provider_pool.max_queue.", type="integer", **NUMBER, examples=[16]
    ),
    "queue_timeout_ms": declared(
        Effect.LIVE, "Older form of provider_pool.queue_timeout_ms.", type="integer", **NUMBER, examples=[30000]
    ),
}
