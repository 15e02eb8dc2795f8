"""A gateway as its operator starts it: ``twistd iop-edge`` and ``twistd iop-node`` on ports of their own."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

import openai
from running import HERE, TWISTD, Child, answers, free_port, get, python

from iop.cli.ask import ask

KEY = "sk-the-key-of-these-tests"
NODE_TOKEN = "the-node-token-of-these-tests"
TWISTED = (TWISTD, "-n", "--pidfile=")
AGENT = str(HERE.parent / "node" / "fake_agent.py")


class Backend:
    """A model server: llama.cpp with a model file, or the fake one."""

    def __init__(self, name: str, folder: Path, script: str, *arguments: object) -> None:
        self.name = name
        self.port = free_port()
        self._folder = folder
        self._command = python(script, *[self.port if a is PORT else a for a in arguments])
        self.child: Child
        self.start()

    def start(self) -> None:
        self.child = Child(self.name, self._command, self._folder)

    def ready(self) -> Backend:
        answers(self.child, f"{self.url}/v1/models")
        return self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def stats(self) -> dict[str, Any]:
        """What the fake backend has counted."""
        said: dict[str, Any] = json.loads(get(f"{self.url}/stats")[1])
        return said

    @property
    def busy(self) -> int:
        """How many of llama.cpp's slots are at work."""
        return sum(slot["is_processing"] for slot in json.loads(get(f"{self.url}/slots")[1]))


PORT = object()
"""Stands for a backend's port on its command line."""


def provider(id: str, backend: Backend, type: str, **settings: Any) -> dict[str, Any]:
    """Return a provider that serves the backend as the model ``id``; see :class:`Gateway`.

    Nobody checks the backend unless ``health`` says so: what a test sees of a failure is what its requests found.
    """
    own = {name: settings.pop(name) for name in ("apis",) if name in settings}
    capacity = settings.pop("capacity", 2000)
    target = settings.pop("target", id)
    health = settings.pop("health", {"interval_ms": 0})
    adapter_type = "ollama" if type == "ollama" else "openai_compat"
    adapter = {"name": id, "type": adapter_type, "base_url": f"{backend.url}/v1", **settings}
    entry = {"id": id, "type": type, "category": "api", "adapter": id, "models": [target]}
    entry |= {"capacity": capacity, "health": health, **own}
    return {"adapter": adapter, "provider": entry}


def both_ways(backend: Backend, target: str) -> list[dict[str, Any]]:
    """Return llama.cpp as two models: of ``native`` every API passes through, of ``translated`` only what must."""
    options: dict[str, Any] = {"target": target, "capacity": 2}
    return [
        provider("native", backend, "llama_cpp", apis=["responses", "messages"], **options),
        provider("translated", backend, "llama_cpp", apis=[], **options),
    ]


def agent(id: str, **settings: Any) -> dict[str, Any]:
    """Return a provider that runs the fake agent as the model ``id``, in sessions."""
    capacity = settings.pop("capacity", 2000)
    adapter = {"name": id, "type": "cli", "command": sys.executable, "args": ["-S", AGENT], "mode": "session"}
    adapter |= {"output_format": "claude_stream_json", "resume_args": ["--resume", "{session}"], **settings}
    entry = {"id": id, "type": "cli", "category": "cli", "adapter": id, "models": [id]}
    entry |= {"capacity": capacity, "health": {"interval_ms": 0}}
    return {"adapter": adapter, "provider": entry}


class Gateway:
    """One edge and one node, which may be ended and started again.

    :param providers: made by :func:`provider` and :func:`agent`; each is a model of its own name.
    :param groups: more models, each with the ids of its providers.
    :param node_options: of the node's command line.
    :param settings: more of the edge's configuration; ``openai`` is merged.
    :ivar node_environ: variables of nodes that are started from now on.
    :ivar node_command: what starts them, with the options behind it.
    """

    def __init__(
        self,
        folder: Path,
        *providers: Mapping[str, Any],
        groups: Mapping[str, Sequence[Any]] = MappingProxyType({}),
        node_options: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.node_options = node_options
        self.port, self.node_port = free_port(), free_port()
        self.config_path = folder / "edge.json"
        self.token_path = folder / "node-token"
        self.token_path.write_text(NODE_TOKEN + "\n")
        self.config_path.write_text(json.dumps(self._config(providers, groups, settings), indent=1))
        self.edge: Child
        self.node: Child
        self._children: list[Child] = []
        self.node_environ: dict[str, str] = {}
        self.node_command = [*TWISTED, "iop-node"]

    def _config(self, providers: Any, groups: Any, settings: dict[str, Any]) -> dict[str, Any]:
        models = {each["provider"]["id"]: [each["provider"]["id"]] for each in providers} | dict(groups)
        token = {"token_ref": "tests", "token_hash_sha256": sha256(KEY.encode()).hexdigest(), "principal_ref": "tests"}
        # a thousand clients come at once; a connection that finds the queue full comes again a second later
        surface = {"listen": f"tcp:{self.port}:interface=127.0.0.1:backlog=1024", "principal_tokens": [token]}
        return {
            "edge": {"id": "integration"},
            "listen": f"tcp:{self.node_port}:interface=127.0.0.1",
            "nodes": [
                {
                    "id": "node-1",
                    "token_hash_sha256": sha256(NODE_TOKEN.encode()).hexdigest(),
                    "adapters": [each["adapter"] for each in providers],
                    "providers": [each["provider"] for each in providers],
                }
            ],
            "models": [{"id": id, "providers": list(ids)} for id, ids in models.items()],
            **settings,
            "openai": surface | settings.get("openai", {}),
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pool(self) -> dict[str, Any]:
        """What ``iop-edge pool status`` is told."""
        return ask(str(self.folder / "edge" / "console.sock"), "GET", "/v1/pool", timeout=5)

    # ---- starting and ending ------------------------------------------------------------------------------------

    def start(self) -> Gateway:
        self.start_edge()
        self.start_node()
        return self.ready()

    def ready(self) -> Gateway:
        """Wait until a provider can serve."""
        answers(self.edge, f"{self.url}/readyz")
        return self

    def start_edge(self) -> None:
        options = ["--config", str(self.config_path), "--state-dir", str(self.folder / "edge")]
        self.edge = self._child("edge", [*TWISTED, "iop-edge", *options])

    def start_node(self) -> None:
        self.node = self.another_node("node", self.token_path, *self.node_options)

    def another_node(self, name: str, token_path: Path, *more: str) -> Child:
        """Start a node beside the gateway's own."""
        options = ["--edge", f"tcp:127.0.0.1:{self.node_port}", "--token-file", str(token_path)]
        options += ["--state-dir", str(self.folder / name), *more]
        return self._child(name, [*self.node_command, *options], self.node_environ)

    def _child(self, name: str, command: list[str], environ: Mapping[str, str] | None = None) -> Child:
        child = Child(name, command, self.folder, measured=True, environ=environ)
        self._children.append(child)
        return child

    def stop(self) -> None:
        """End what runs, all at once; nothing that was ever logged may be a traceback."""
        running = [child for child in self._children if child.status is None]
        for child in running:
            child.signal(signal.SIGTERM)
        for child in running:
            child.stop()
        for child in {child.log_path: child for child in self._children}.values():
            assert "Traceback" not in child.log, f"the {child.name} logged a traceback:\n{child.log[-4000:]}"
            assert "Unhandled" not in child.log, f"the {child.name} left a failure alone:\n{child.log[-4000:]}"

    # ---- asking -------------------------------------------------------------------------------------------------

    def client(self, **options: Any) -> openai.OpenAI:
        """Return the SDK's client, which does not hide a failure behind a retry."""
        return openai.OpenAI(base_url=f"{self.url}/v1", **{"api_key": KEY, "max_retries": 0, "timeout": 20} | options)

    def async_client(self, **options: Any) -> openai.AsyncOpenAI:
        options = {"api_key": KEY, "max_retries": 0, "timeout": 20} | options
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", **options)


def user(text: str) -> list[Any]:
    """Return a conversation of one message."""
    return [{"role": "user", "content": text}]
