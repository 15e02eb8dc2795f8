"""Coding agents that have the edge as their model's API, the mock as a chat backend behind it. ``docs/agents.md``.

Codex speaks ``/v1/responses``, Claude Code ``/v1/messages``, the others ``/v1/chat/completions``. Each asks the edge,
and the mock with nothing in between; the first two ask the edge twice, where their API passes through and where it is
translated.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from agents import AGENTS, Agent, documented
from aimock import ANSWER, PRINTED, REFUSED, SECOND, USED, Mock
from packages import program
from real_gateway import KEY, Gateway, provider

PATIENCE = 120.0
CLIENTS = [agent for agent in AGENTS if agent.name != "gemini"]
"""Gemini's API is not one of the edge's."""

MODELS = ["mock-model", "claude-sonnet-4-5", "claude-haiku-4-5"]
_KEYS: dict[str, Mapping[str, str]] = {
    # the one is sent as x-api-key, the other as a bearer
    "claude": {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_DEFAULT_HAIKU_MODEL": "claude-haiku-4-5"},
    "codex": {"OPENAI_API_KEY": KEY},
    "qwen": {"OPENAI_API_KEY": KEY},
}


@pytest.fixture(scope="module")
def edges(work: Path, mock: Mock) -> Iterator[Callable[[str], Gateway]]:
    """An edge and a node before the mock, by the way of its APIs; models have the names that agents ask for."""
    made: dict[str, Gateway] = {}

    def edge(way: str) -> Gateway:
        if way not in made:
            apis = ["responses", "messages"] if way == "native" else []
            made[way] = Gateway(
                work / f"agents-{way}",
                provider("mock", mock, "openai", apis=apis),  # type: ignore[arg-type]  # all it needs is a url
                groups={name: ["mock"] for name in MODELS},
                long_context_threshold_tokens=1_000_000,  # their prompts are long
            ).start()
        return made[way]

    try:
        yield edge
    finally:
        for each in made.values():
            each.stop()


class Way(NamedTuple):
    """An agent, and where its model is."""

    agent: Agent
    name: str

    def __str__(self) -> str:
        return f"{self.agent.name}-{self.name}"


WAYS = [
    Way(agent, name)
    for agent in CLIENTS
    for name in ("native", "translated", "direct")
    if name != "translated" or agent.name in ("claude", "codex")
]


@pytest.fixture(params=WAYS, ids=str)
def way(request: pytest.FixtureRequest) -> Way:
    """Each agent that is installed."""
    program(request.param.agent.package, request.param.agent.name)
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def agent(way: Way) -> Agent:
    return way.agent


@pytest.fixture
def url(way: Way, edges: Callable[[str], Gateway], mock: Mock) -> str:
    return mock.url if way.name == "direct" else edges(way.name).url


Run = Callable[..., str]


@pytest.fixture
def run(agent: Agent, url: str, tmp_path: Path) -> Run:
    """Run an agent once, in a home of its own; return all it prints."""
    adapter = documented()[agent.name]
    home = tmp_path / "home"
    home.mkdir()
    environ = {**adapter.get("env", {}), **agent.offline(home, url), **_KEYS.get(agent.name, {})}
    if agent.name == "claude":
        environ["ANTHROPIC_AUTH_TOKEN"] = ""
    elif agent.name == "opencode":
        environ["OPENCODE_CONFIG_CONTENT"] = environ["OPENCODE_CONFIG_CONTENT"].replace(
            '"apiKey": "k"', f'"apiKey": "{KEY}"'
        )
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(tmp_path), **environ}
    command = program(agent.package, agent.name)

    def ask(prompt: str, *more: str, status: int | None = 0) -> str:
        folder = tmp_path / "work"
        folder.mkdir(exist_ok=True)
        done = subprocess.run(
            [str(command), *adapter["args"], *more],
            env=environ,
            cwd=folder,
            input=prompt,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert status is None or done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    return ask


class Ear:
    """What the mock hears from now on, by connection: the edge keeps its own open."""

    def __init__(self, mock: Mock) -> None:
        self._mock = mock
        self._known = [len(each) for each in mock.heard]

    def heard(self, *words: str) -> bool:
        """Whether all of these words came on one connection."""
        skipped = [*self._known, *[0] * len(self._mock.heard)]
        said = [bytes(each[skip:]) for each, skip in zip(self._mock.heard, skipped, strict=False)]
        return any(all(word.encode() in each for word in words) for each in said)


def said(printed: str) -> str:
    """Every text in what an agent prints, deltas and all."""

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for key, each in value.items():
                if key in ("text", "result", "message", "error") and isinstance(each, str):
                    yield each
                else:
                    yield from texts(each)
        elif isinstance(value, list):
            for each in value:
                yield from texts(each)

    lines = [line for line in printed.splitlines() if line.startswith("{")]
    return "\n".join(text for line in lines for text in texts(json.loads(line)))


def test_answer(run: Run) -> None:
    assert ANSWER in said(run("Hello there"))


def test_tool(run: Run, mock: Mock) -> None:
    """It runs the command, and the model is told what that printed."""
    ear = Ear(mock)
    assert USED in said(run("Please use the tool"))
    assert ear.heard(PRINTED)


def test_what_the_backend_hears(run: Run, way: Way, mock: Mock) -> None:
    """The prompt, and of the edge's key nothing."""
    word = f"word-{secrets.token_hex(8)}"
    ear = Ear(mock)
    run(f"Remember {word}")
    assert ear.heard(word)
    if way.name != "direct":
        assert not ear.heard(KEY)


def test_second_turn(run: Run, agent: Agent, mock: Mock) -> None:
    """A conversation that the agent keeps goes to the model whole."""
    resume = {
        "claude": ["--continue"],
        "codex": ["resume", "--last", "-"],
        "opencode": ["--continue"],
        "qwen": ["--continue"],
    }
    run("Hello there")
    ear = Ear(mock)
    assert SECOND in said(run("This is the second turn", *resume[agent.name]))
    assert ear.heard(ANSWER, "second turn")


def test_refused(run: Run) -> None:
    """A refusal of the backend is told in its words, and is not tried for ever."""
    assert REFUSED in said(run("Please refuse this", status=None))
