"""What serves models on this machine: asked on the usual ports, by ``GET /v1/models``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from twisted.internet.defer import Deferred, gatherResults

from iop.http.client import Client, Origin, Timers
from iop.http.fetch import fetch
from iop.node.adapters.openai_compat.models import model_ids


@dataclass(frozen=True, slots=True)
class Usual:
    """A server one may find. ``capacity`` is how many runs it is given at a time; it queues by itself too."""

    type: str
    title: str
    port: int
    capacity: int


USUAL: Final = (
    Usual("openai_compat", "Ollama", 11434, 8),
    Usual("vllm", "vLLM", 8000, 128),
    Usual("sglang", "SGLang", 30000, 128),
    Usual("llama_cpp", "llama.cpp", 8080, 8),
    Usual("lm_studio", "LM Studio", 1234, 8),
)

_PATIENCE: Final = Timers(connect=0.5, first_byte=2.0, gap=2.0, total=3.0)
_LONGEST: Final = 1 << 20
_LONGEST_NAME: Final = 512
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


@dataclass(frozen=True, slots=True)
class Found:
    """A server that answered, and the names of its models."""

    usual: Usual
    base_url: str
    models: tuple[str, ...]


def detect(reactor: Any, usual: Iterable[Usual] = USUAL) -> Deferred[list[Found]]:
    """Ask every port at once; fires with those that serve models, in the order given."""

    def one(server: Usual) -> Deferred[Found | None]:
        base_url = f"http://127.0.0.1:{server.port}"
        client = Client(reactor, Origin.of(base_url))
        asked = fetch(client, "GET", "/v1/models", timers=_PATIENCE, largest=_LONGEST)

        def judge(answer: tuple[int, bytes]) -> Found | None:
            status, body = answer
            models = tuple(filter(_usable, model_ids(body))) if status == 200 else ()
            return Found(server, base_url, models) if models else None

        def closed(found: Found | None) -> Found | None:
            client.close()
            return found

        return asked.addCallbacks(judge, lambda _: None).addCallback(closed)

    asked = gatherResults([one(server) for server in usual])
    return asked.addCallback(lambda found: [server for server in found if server is not None])


def _usable(target: str) -> bool:
    """Whether a configuration can hold a stranger's name for a model."""
    return target.isprintable() and len(target) <= _LONGEST_NAME


def public_name(target: str) -> str:
    """Return what clients call a model: its own name, or, where that is a path or odd, what is usable of it."""
    if _ID.fullmatch(target):
        return target
    name = re.sub(r"[^A-Za-z0-9._:-]+", "-", re.split(r"[/\\]", target)[-1]).strip("-._:")[:128]
    return name or "model"
