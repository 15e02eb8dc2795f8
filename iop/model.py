"""Frozen values that edge and node share: what a run is, what it says, what a node is told.

Protobuf stops at :mod:`iop.wire.translate`; everything above it speaks these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from iop.errors import Failure

PROTOCOL_VERSION = 1

Headers = tuple[tuple[str, str], ...]


class Mode(StrEnum):
    """How a run travels: as a document answered by text events, or as HTTP bytes both ways."""

    NORMALIZED = "NORMALIZED"
    PASSTHROUGH = "PASSTHROUGH"


CHAT = "/v1/chat/completions"
"""The path of the requests that can also be answered by events."""

EMBEDDINGS = "/v1/embeddings"
"""The path of the requests that an adapter without HTTP can answer too, with a whole document."""


class HttpRequestHead(NamedTuple):
    """What a passthrough run asks of its backend, apart from the body."""

    method: str
    path: str
    headers: Headers = ()


class HttpResponseHead(NamedTuple):
    """What a backend answered, apart from the body: end-to-end headers only."""

    status: int
    headers: Headers = ()


class Usage(NamedTuple):
    """Tokens as the backend counted them; None where it said nothing."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None


class Thinking(NamedTuple):
    """The caller's wish for reasoning: ``mode`` is ``unset``, ``off`` or ``on``; ``budget`` in tokens."""

    mode: str = "unset"
    budget: int | None = None


UNSET = Thinking()
"""No wish: whoever is asked thinks as it does by itself."""


TRACE = ("traceparent", "tracestate")
"""Metadata of a run without HTTP: the trace that its client's request belongs to, for the backend."""

STRIP_USAGE = "openai_strip_usage"
"""A run's metadata, "true": its client did not ask for the usage that the edge asked the backend for."""

TOOL_CALLS = "openai_tool_calls"
"""A COMPLETE's metadata: the backend's native tool calls, a JSON array as OpenAI has it."""

TEXT_TOOL_FALLBACK = "openai_text_tool_fallback"
"""A START's and COMPLETE's metadata, "true": the tools travelled as text, and so may the calls."""


class RunRequest(NamedTuple):
    """One execution, as the edge asks a node for it.

    :ivar input: bytes that the adapter interprets.
    :ivar secret_headers: go to the backend with this run; never logged, never stored.
    :ivar deadline_ms: from receipt; 0 means none.
    :ivar window_bytes: credit that the run begins with (``docs/contracts/wire.md``, Flow control).
    """

    run_id: str
    adapter: str
    target: str
    provider_id: str = ""
    mode: Mode = Mode.PASSTHROUGH
    input: bytes = b""
    http: HttpRequestHead | None = None
    secret_headers: Headers = ()
    thinking: Thinking = UNSET
    metadata: Mapping[str, str] = {}
    deadline_ms: int = 0
    window_bytes: int = 1 << 20
    workspace: str = ""
    session_id: str = ""

    def __repr__(self) -> str:
        return f"RunRequest({self.run_id!r}, adapter={self.adapter!r}, target={self.target!r})"


# ---- what a run says: START DELTA* COMPLETE, or all in one. Tuples, because a DELTA is made per block. ----------


class Start(NamedTuple):
    """The answer begins. ``http`` only where bytes follow; without it the events are normalized."""

    http: HttpResponseHead | None = None
    metadata: Mapping[str, str] = {}


class Delta(NamedTuple):
    """A piece of the answer: ``body`` on a passthrough run, ``text`` and ``reasoning`` on a normalized one."""

    body: bytes = b""
    text: str = ""
    reasoning: str = ""


class Complete(NamedTuple):
    """The answer is whole."""

    finish_reason: str = ""
    usage: Usage | None = None
    metadata: Mapping[str, str] = {}


class Whole(NamedTuple):
    """A short passthrough answer, whole at once: what START, one DELTA and COMPLETE would say, in one event."""

    http: HttpResponseHead
    body: bytes = b""
    finish_reason: str = ""
    usage: Usage | None = None
    metadata: Mapping[str, str] = {}


class Error(NamedTuple):
    """The run failed; ``usage`` is what was counted until then."""

    failure: Failure
    usage: Usage | None = None
    metadata: Mapping[str, str] = {}


class Cancelled(NamedTuple):
    """The run was cancelled and its backend stopped."""

    usage: Usage | None = None


RunEvent = Start | Delta | Complete | Whole | Error | Cancelled


# ---- what a node is and is told ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """One adapter instance. An empty ``name`` means the one instance of its type, named like the type."""

    name: str
    type: str
    enabled: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def instance(self) -> str:
        """The name by which runs address it."""
        return self.name or self.type


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """How a node checks a backend: not at all where the interval is 0; a path of "" is the adapter's choice."""

    interval_ms: int = 0
    path: str = ""
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """Whether a node may start and stop a provider's backend."""

    managed: bool = False


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """What a node knows of a provider under it.

    :ivar type: as configured, ``vllm`` or ``llama_cpp`` say.
    :ivar provider: the label of who the backend is; the type where nobody chose one.
    """

    id: str
    adapter: str
    type: str = ""
    provider: str = ""
    models: tuple[str, ...] = ()
    health: HealthCheck = HealthCheck()
    lifecycle: Lifecycle = Lifecycle()


@dataclass(frozen=True, slots=True)
class NodePayload:
    """A node's whole configuration. ``concurrency`` is old metadata, never a gate."""

    revision: str = ""
    adapters: tuple[AdapterConfig, ...] = ()
    providers: tuple[ProviderConfig, ...] = ()
    concurrency: int = 0


class Health(StrEnum):
    """How a provider is, as far as anybody knows (``docs/contracts/pool.md``)."""

    UP = "up"
    DEGRADED = "degraded"
    DOWN = "down"
    UNKNOWN = "unknown"
    DISABLED = "disabled"


# ---- messages of the link, apart from runs ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegisterRequest:
    """A node's first words. The token alone says who it is."""

    token: str = field(repr=False)
    protocol_version: int = PROTOCOL_VERSION
    agent_version: str = ""
    instance_id: str = ""
    hostname: str = ""
    platform: str = ""
    adapter_types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisterResponse:
    """Accepted with the node's whole configuration, or refused with a reason word."""

    accepted: bool
    reason: str = ""
    message: str = ""
    node_id: str = ""
    alias: str = ""
    heartbeat_ms: int = 10_000
    max_frame_bytes: int = 1 << 20
    config: NodePayload = NodePayload()


class RunInput(NamedTuple):
    """The next part of a long input."""

    run_id: str
    data: bytes


class RunWindow(NamedTuple):
    """Credit given back: so many bytes of the answer were taken."""

    run_id: str
    add_bytes: int


class CancelAction(StrEnum):
    """What is to end."""

    CANCEL_RUN = "CANCEL_RUN"
    TERMINATE_SESSION = "TERMINATE_SESSION"


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """End a run, or a session with its child."""

    request_id: str
    action: CancelAction
    run_id: str = ""
    adapter: str = ""
    session_id: str = ""


@dataclass(frozen=True, slots=True)
class CancelResponse:
    """Whether there was anything to end."""

    request_id: str
    found: bool
    message: str = ""


class CommandType(StrEnum):
    """The queries a node answers."""

    USAGE = "USAGE"
    CAPABILITIES = "CAPABILITIES"
    SESSIONS = "SESSIONS"
    TRANSPORT = "TRANSPORT"
    PROVIDERS = "PROVIDERS"


@dataclass(frozen=True, slots=True)
class NodeCommandRequest:
    """A query. It never executes a run."""

    request_id: str
    type: str


@dataclass(frozen=True, slots=True)
class NodeCommandResponse:
    """The answer to a query: ``report`` by the query's own word, or ``error``."""

    request_id: str
    error: str = ""
    truncated: bool = False
    report: Mapping[str, Any] = field(default_factory=dict)


class RefreshStatus(StrEnum):
    """What a node made of a payload."""

    APPLIED = "APPLIED"
    RESTART_REQUIRED = "RESTART_REQUIRED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class NodeConfigRefreshRequest:
    """A new payload for a running node."""

    request_id: str
    payload: NodePayload


@dataclass(frozen=True, slots=True)
class NodeConfigRefreshResponse:
    """What a node made of a payload; an empty ``request_id`` is about the one it registered with."""

    request_id: str
    revision: str
    status: RefreshStatus
    message: str = ""
    changed_adapters: tuple[str, ...] = ()
    failed_adapters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """What a node saw of a provider's backend."""

    provider_id: str
    health: str
    message: str = ""
    models: tuple[str, ...] = ()


class NodeDraining(NamedTuple):
    """No new runs, please."""


class Ping(NamedTuple):
    """Are you there?"""

    nonce: int


class Pong(NamedTuple):
    """I am."""

    nonce: int
