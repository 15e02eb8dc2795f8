"""The OpenAI-compatible surface's part of the configuration."""

# ruff: noqa: RUF009 - setting() is a dataclass field

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from iop.edge.config.setting import ID, SHA256, TEXT, Effect, setting
from iop.settings import END, HEADER_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalToken:
    """A bearer token by its hash, and who a request that carries it is accounted to."""

    IDENTITY: ClassVar[str] = "token_ref"

    token_ref: str = setting(
        Effect.RESTART, "Names the token, so that usage can be split by app.", **ID, examples=["alice-editor"]
    )
    token_hash_sha256: str = setting(
        Effect.RESTART,
        "SHA-256 of the token; never the token.",
        secret=True,
        **SHA256,
        examples=["${env:ALICE_EDITOR_SHA256}"],
    )
    principal_ref: str = setting(Effect.RESTART, "Who the request is accounted to.", **TEXT, examples=["alice"])
    principal_alias: str | None = setting(
        Effect.RESTART, "A name for people.", default=None, **TEXT, examples=["Alice"]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAuth:
    """Forwarding of a request's own provider token, which is kept nowhere."""

    enabled: bool = setting(Effect.RESTART, "Whether a provider token is forwarded.", default=False)
    from_header: str = setting(
        Effect.RESTART,
        "The request's header that holds it.",
        default="X-IOP-Provider-Authorization",
        **HEADER_NAME,
    )
    target_header: str = setting(
        Effect.RESTART, "The backend's header it is put into.", default="Authorization", **HEADER_NAME
    )
    scheme: str = setting(
        Effect.RESTART,
        "Put before the token, unless it is there already; empty for none.",
        default="Bearer",
        pattern=f"^[A-Za-z0-9._~+/-]*{END}",
        expected="an authentication scheme such as Bearer, or empty text",
    )
    required: bool = setting(Effect.RESTART, "Whether a request without it is refused.", default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRoute:
    """Older catalog: a model that is one adapter's target, outside the pool."""

    IDENTITY: ClassVar[str] = "model"

    model: str = setting(Effect.RESTART, "The name a client asks for.", **ID, examples=["coder"])
    adapter: str = setting(Effect.RESTART, "An adapter instance's name.", **ID, examples=["claude"])
    target: str = setting(Effect.RESTART, "What the adapter runs.", minLength=1, examples=["opus"])
    node: str | None = setting(
        Effect.RESTART,
        "The node's id; without it the first connected one that has the adapter.",
        default=None,
        **ID,
        examples=["gpu-1"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAI:
    """The OpenAI-compatible surface."""

    listen: str = setting(
        Effect.RESTART,
        "Where it is served.",
        default="tcp:4600:interface=127.0.0.1",
        examples=["unix:/run/iop/openai.sock"],
    )
    principal_tokens: tuple[PrincipalToken, ...] = setting(Effect.RESTART, "The tokens accepted.", default=())
    allow_anonymous: bool = setting(
        Effect.RESTART,
        "Whether a request without a token is served; default: only without principal_tokens, on a loopback "
        "or Unix socket.",
        default=False,
        derived=True,
    )
    allowed_origins: tuple[str, ...] = setting(
        Effect.RESTART,
        "Web pages that may call the surface.",
        default=(),
        items={
            "pattern": rf"^[a-z][a-z0-9+.-]*://[^\s/?#@*]+{END}",
            "x-expected": "an origin such as https://chat.example: a scheme and a host, without a path",
        },
        examples=[["https://chat.example"]],
    )
    allowed_hosts: tuple[str, ...] = setting(
        Effect.RESTART,
        "Host names an anonymous surface answers to, besides localhost and IP addresses.",
        default=(),
        items={"pattern": rf"^[^\s/@*]+{END}", "x-expected": "a host's name, without scheme and path"},
        examples=[["models.lan"]],
    )
    provider_auth: ProviderAuth = setting(Effect.RESTART, "Forwarding of provider tokens.", default=ProviderAuth())
    model_routes: tuple[ModelRoute, ...] = setting(
        Effect.RESTART, "Older catalog of models, outside the pool.", default=()
    )
    max_body_bytes: int = setting(Effect.RESTART, "The largest request body.", default=32 * 1024 * 1024, minimum=1)
    stall_timeout_ms: int = setting(
        Effect.RESTART, "A client that takes nothing for this long is cut.", default=60000, minimum=1
    )
    expose_provider: bool = setting(
        Effect.RESTART, "Whether answers name the provider and the wait in their headers.", default=False
    )
