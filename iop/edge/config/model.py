"""The configuration of an edge as frozen values: what the rest of the edge reads.

Each setting is declared once, with its type, its default, its meaning and what changing it costs; ``schema``,
``normalize`` and ``document`` walk these declarations. Times are milliseconds, sizes bytes or tokens.
"""

# ruff: noqa: RUF009 - setting() is a dataclass field

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from iop.edge.config.model_nodes import Adapter, Health, Lifecycle, Node, Provider, Runtime
from iop.edge.config.model_openai import ModelRoute, OpenAI, PrincipalToken, ProviderAuth
from iop.edge.config.setting import ID, TEXT, Effect, setting

__all__ = [
    "A2A",
    "Adapter",
    "Bootstrap",
    "Console",
    "ControlPlane",
    "EdgeConfig",
    "EdgeIdentity",
    "GroupProvider",
    "Health",
    "Ledger",
    "Lifecycle",
    "Logging",
    "Metrics",
    "ModelGroup",
    "ModelRoute",
    "Node",
    "OpenAI",
    "PrincipalToken",
    "Provider",
    "ProviderAuth",
    "ProviderPool",
    "Runtime",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeIdentity:
    """Who this edge is."""

    id: str = setting(Effect.RESTART, "The edge's stable identity.", **ID, examples=["home"])
    name: str = setting(
        Effect.RESTART,
        "The edge's name, for people; default the id.",
        default="",
        derived=True,
        **TEXT,
        examples=["The lab"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """How new nodes enrol."""

    listen: str = setting(Effect.RESTART, "Where enrolment is served.", examples=["tcp:4611:interface=127.0.0.1"])
    advertise: str | None = setting(
        Effect.RESTART, "The client endpoint that nodes should dial.", default=None, examples=["tls:edge.example:4610"]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    """What is logged, and how."""

    level: str = setting(
        Effect.RESTART, "The least level logged.", default="info", enum=["debug", "info", "warn", "error", "critical"]
    )
    format: str = setting(
        Effect.RESTART, "Lines for people, or one JSON object a line.", default="text", enum=["text", "json"]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Prometheus text on ``/metrics``."""

    listen: str = setting(Effect.RESTART, "Where it is served.", examples=["tcp:4690:interface=127.0.0.1"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """The operators' surface, which the ``iop-edge`` commands use."""

    listen: str = setting(
        Effect.RESTART,
        "A `unix:` endpoint; default a socket in the state directory.",
        default="",
        derived=True,
        examples=["unix:/run/iop/console.sock:mode=600"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """The link to a control plane, which is told this edge's status."""

    endpoint: str = setting(Effect.RESTART, "A client endpoint.", examples=["tls:fleet.example:4620"])
    token: str | None = setting(
        Effect.RESTART,
        "Proves who this edge is.",
        default=None,
        secret=True,
        minLength=1,
        examples=["${file:secrets/control-plane}"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Where the usage of finished runs is kept."""

    url: str = setting(
        Effect.RESTART,
        "`sqlite:PATH` (default: in the state directory), `postgresql://…`, or `none`.",
        default="",
        derived=True,
        quiet=True,
        pattern=r"^(none$(?!\n)|sqlite:(?![\s\S]*\u0000)|postgres(ql)?://[^\s\u0000]+$(?!\n))",
        examples=["sqlite:/var/lib/iop/ledger.sqlite3", "postgresql://iop@db.example/iop", "none"],
        expected="sqlite:PATH, postgresql://HOST/NAME or none",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class A2A:
    """The agent-to-agent surface."""

    listen: str = setting(Effect.RESTART, "Where it is served.", examples=["tcp:4601:interface=127.0.0.1"])
    public_url: str | None = setting(
        Effect.RESTART,
        "The address agents are told.",
        default=None,
        pattern=r"^https?://[^\s/?#@]+(/[^\s]*)?$(?!\n)",
        examples=["https://agents.example/"],
        expected="an http or https URL without a user",
    )
    card: Mapping[str, Any] = setting(
        Effect.RESTART, "Fields of the agent card.", factory=dict, examples=[{"name": "Lab"}]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderPool:
    """The queue policy of the whole edge."""

    max_queue: int = setting(Effect.LIVE, "Pending runs in the whole edge; 0 means 16.", default=16)
    queue_timeout_ms: int = setting(
        Effect.LIVE, "Longest wait of one pending run; an explicit 0 means no limit.", default=30000
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProvider:
    """One provider of a model group, and the target it is asked for."""

    id: str = setting(Effect.LIVE, "A provider's id.", **ID, examples=["vllm-a"])
    target: str = setting(
        Effect.LIVE,
        "What the provider runs; default the model's own id if it serves that, else its only model.",
        default="",
        derived=True,
        minLength=1,
        examples=["qwen3:8b"],
    )
    node_id: str = setting(
        Effect.LIVE,
        "The provider's node: derived, may be given if right.",
        default="",
        derived=True,
        examples=["gpu-1"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelGroup:
    """A model that clients may ask for, with the providers that may serve it."""

    IDENTITY: ClassVar[str] = "id"

    id: str = setting(Effect.LIVE, "The name a client asks for.", **ID, examples=["qwen3"])
    display_name: str | None = setting(Effect.LIVE, "Its name for people.", default=None, **TEXT, examples=["Qwen 3"])
    providers: tuple[GroupProvider, ...] = setting(
        Effect.LIVE,
        "Provider ids, or `{id, target}`, in the order of the round robin.",
        default=(),
        examples=[["vllm-a", {"id": "ollama-b", "target": "qwen3:8b"}]],
    )
    context_window_tokens: int | None = setting(
        Effect.LIVE,
        "The largest request every one of its providers accepts; 0 means unset.",
        default=None,
        examples=[131072],
    )
    default_max_tokens: int | None = setting(
        Effect.LIVE, "The limit of an answer when the client set none; 0 means unset.", default=None, examples=[4096]
    )
    min_max_tokens: int | None = setting(
        Effect.LIVE, "A smaller limit of a client is raised to this; 0 means unset.", default=None, examples=[256]
    )
    default_thinking_token_budget: int | None = setting(
        Effect.LIVE, "Tokens to think with when the client did not say.", default=None, examples=[1024]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeConfig:
    """Everything an edge is told: itself, its surfaces, its nodes and its models."""

    edge: EdgeIdentity = setting(Effect.RESTART, "Who this edge is.")
    listen: str = setting(
        Effect.RESTART,
        "Where nodes connect.",
        default="tcp:4610:interface=127.0.0.1",
        examples=["ssl:4610:privateKey=edge.pem"],
    )
    heartbeat_ms: int = setting(Effect.RESTART, "Silence after which a link is pinged.", default=10000, minimum=1)
    drain_timeout_ms: int = setting(Effect.RESTART, "How long a stopping edge lets runs finish.", default=30000)
    bootstrap: Bootstrap | None = setting(Effect.RESTART, "How new nodes enrol; off by default.", default=None)
    logging: Logging = setting(Effect.RESTART, "What is logged, and how.", default=Logging())
    metrics: Metrics | None = setting(Effect.RESTART, "Prometheus metrics; off by default.", default=None)
    console: Console = setting(Effect.RESTART, "The operators' surface.", default=Console())
    control_plane: ControlPlane | None = setting(
        Effect.RESTART, "The link to a control plane; off by default.", default=None
    )
    ledger: Ledger = setting(Effect.RESTART, "The usage ledger.", default=Ledger())
    openai: OpenAI | None = setting(
        Effect.RESTART, "The OpenAI-compatible surface; false switches it off.", default=OpenAI(), off=False
    )
    a2a: A2A | None = setting(Effect.RESTART, "The agent-to-agent surface; off by default.", default=None)
    long_context_threshold_tokens: int = setting(
        Effect.LIVE, "A request estimated at this or more is long.", default=100_000, minimum=1
    )
    provider_pool: ProviderPool = setting(Effect.LIVE, "The queue policy.", default=ProviderPool())
    models: tuple[ModelGroup, ...] = setting(Effect.LIVE, "What clients may ask for.", default=())
    nodes: tuple[Node, ...] = setting(Effect.RESTART, "The machines that run it.", default=())
