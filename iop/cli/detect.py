"""What serves models on this machine: asked on the usual ports, by ``GET /v1/models``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from twisted.internet.defer import Deferred, gatherResults

from iop.errors import Failure
from iop.http.client import Call, Client, Origin, Timers


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
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


@dataclass(frozen=True, slots=True)
class Found:
    """A server that answered, and the names of its models."""

    usual: Usual
    base_url: str
    models: tuple[str, ...]


class _Asked:
    """The answer of one port; None when it is no model server."""

    def __init__(self) -> None:
        self.done: Deferred[bytes | None] = Deferred()
        self.call: Call | None = None
        self._status = 0
        self._body = b""

    def head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._status = status

    def block(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > _LONGEST and self.call is not None:
            self.call.cancel()
            self.done.callback(None)

    def ended(self) -> None:
        self.done.callback(self._body if self._status == 200 else None)

    def failed(self, failure: Failure) -> None:
        self.done.callback(None)


def detect(reactor: Any, usual: Iterable[Usual] = USUAL) -> Deferred[list[Found]]:
    """Ask every port at once; fires with those that serve models, in the order given."""

    def one(server: Usual) -> Deferred[Found | None]:
        base_url = f"http://127.0.0.1:{server.port}"
        asked = _Asked()
        client = Client(reactor, Origin.of(base_url))
        asked.call = client.request("GET", "/v1/models", [], b"", asked, _PATIENCE)

        def judge(body: bytes | None) -> Found | None:
            client.close()
            models = model_ids(body) if body is not None else ()
            return Found(server, base_url, models) if models else None

        return asked.done.addCallback(judge)

    asked = gatherResults([one(server) for server in usual])
    return asked.addCallback(lambda found: [server for server in found if server is not None])


def model_ids(body: bytes) -> tuple[str, ...]:
    """Return the ids in a ``/v1/models`` document, none when it is something else."""
    try:
        said = json.loads(body)
    except ValueError:
        return ()
    data = said.get("data") if isinstance(said, dict) else None
    entries = data if isinstance(data, list) else []
    ids = [entry.get("id") for entry in entries if isinstance(entry, dict)]
    return tuple(id for id in ids if isinstance(id, str) and id)


def public_name(target: str) -> str:
    """Return what clients call a model: its own name, or, where that is a path or odd, what is usable of it."""
    if _ID.fullmatch(target):
        return target
    name = re.sub(r"[^A-Za-z0-9._:-]+", "-", re.split(r"[/\\]", target)[-1]).strip("-._:")[:128]
    return name or "model"
