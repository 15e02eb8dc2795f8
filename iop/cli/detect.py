"""What this machine has: model servers, asked on their usual ports, and coding agents, looked for in PATH."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from twisted.internet.defer import Deferred, gatherResults

from iop.errors import Failure
from iop.http.client import Client, Origin, Timers
from iop.http.fetch import fetch
from iop.node.adapters.ollama.models import model_names
from iop.node.adapters.openai_compat.models import model_ids


@dataclass(frozen=True, slots=True)
class Usual:
    """A server one may find. ``capacity`` is how many runs it is given at a time; it queues by itself too."""

    type: str
    title: str
    port: int
    capacity: int

    @property
    def adapter(self) -> str:
        """The adapter type that speaks with it."""
        return "ollama" if self.type == "ollama" else "openai_compat"


USUAL: Final = (
    Usual("ollama", "Ollama", 11434, 8),
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
class Agent:
    """A coding agent one may find: its command, and how a run of it is made (``docs/agents.md``)."""

    command: str
    args: tuple[str, ...]
    resume_args: tuple[str, ...]
    output_format: str

    @property
    def model(self) -> str:
        """What clients call it."""
        return f"{self.command}-agent"


AGENTS: Final = (
    Agent(
        "claude",
        ("-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"),
        ("--resume", "{session}"),
        "claude_stream_json",
    ),
    Agent("codex", ("exec", "--skip-git-repo-check", "--json"), ("resume", "{session}", "-"), "codex_jsonl"),
    Agent("gemini", ("--output-format", "stream-json"), ("--resume", "{session}"), "gemini_stream_json"),
    Agent("opencode", ("run", "--format", "json"), ("--session", "{session}"), "opencode_json"),
)

AGENT_CAPACITY: Final = 2
"""Runs of one agent at a time: each is a process that works for minutes."""


def agents(which: Callable[[str], str | None] = shutil.which, known: Iterable[Agent] = AGENTS) -> list[Agent]:
    """Return the agents that are installed; whether they are logged in, their first run shows."""
    return [agent for agent in known if which(agent.command) is not None]


@dataclass(frozen=True, slots=True)
class Found:
    """A server that answered, and the names of its models."""

    usual: Usual
    base_url: str
    models: tuple[str, ...]


def detect(reactor: Any, usual: Iterable[Usual] = USUAL) -> Deferred[list[Found]]:
    """Ask every port at once; fires with those that serve models, in the order given."""

    asked = gatherResults([Deferred.fromCoroutine(_ask(reactor, server)) for server in usual])
    return asked.addCallback(lambda found: [server for server in found if server is not None])


async def _ask(reactor: Any, server: Usual) -> Found | None:
    """Ask in the server's own language, then in OpenAI's: another one may have its port."""
    base_url = f"http://127.0.0.1:{server.port}"
    client = Client(reactor, Origin.of(base_url))
    try:
        if server.adapter == "ollama":
            models = await _listed(client, "/api/tags", model_names)
            if models:
                return Found(server, base_url, models)
            server = replace(server, type="openai_compat")
        models = await _listed(client, "/v1/models", model_ids)
        return Found(server, base_url, models) if models else None
    finally:
        client.close()


async def _listed(client: Client, path: str, names: Callable[[bytes], list[str]]) -> tuple[str, ...]:
    try:
        status, body = await fetch(client, "GET", path, timers=_PATIENCE, largest=_LONGEST)
    except Failure:
        return ()
    return tuple(filter(_usable, names(body))) if status == 200 else ()


def _usable(target: str) -> bool:
    """Whether a configuration can hold a stranger's name for a model."""
    return target.isprintable() and len(target) <= _LONGEST_NAME


def public_name(target: str) -> str:
    """Return what clients call a model: its own name, or, where that is a path or odd, what is usable of it."""
    if _ID.fullmatch(target):
        return target
    name = re.sub(r"[^A-Za-z0-9._:-]+", "-", re.split(r"[/\\]", target)[-1]).strip("-._:")[:128]
    return name or "model"
