"""Real agents behind a real gateway, real clients before it; ``tox -e real`` installs them.

The agents' models are a mock on loopback, the clients' is llama.cpp with a tiny model.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import real_gateway
import tiny_model
from agents import AGENTS, Agent, provider
from aimock import Mock
from install import AIMOCK
from packages import program
from real_gateway import PORT, Backend, Gateway
from running import Child, end_all


@pytest.fixture(scope="session", autouse=True)
def _children_end() -> Iterator[None]:
    try:
        yield
    finally:
        end_all()


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("real")


def installed(agent: Agent) -> Path | None:
    """Return an agent's command, None when it is not there."""
    try:
        return program(agent.package, agent.name)
    except pytest.skip.Exception:
        return None


@pytest.fixture(scope="session")
def mock(work: Path) -> Mock:
    """The API of every agent's model."""
    return Mock(program(AIMOCK, "llmock"), work)


@pytest.fixture(scope="session")
def mark() -> str:
    """What the agents of these tests are known by, beside others of the machine."""
    return secrets.token_hex(16)


@pytest.fixture(scope="session")
def gateway(work: Path, mock: Mock, mark: str) -> Iterator[Gateway]:
    """One edge and one node with every agent there is, and with the mock as an Ollama server."""
    ollama = {"name": "ollama", "type": "ollama", "base_url": mock.url}
    entry = {"id": "ollama", "type": "ollama", "category": "local_inference", "adapter": "ollama"}
    providers = [{"adapter": ollama, "provider": {**entry, "models": ["ollama"], "health": {"interval_ms": 0}}}]
    for agent in AGENTS:
        command = installed(agent)
        if command is not None:
            providers.append(provider(agent, command, work / agent.name, mock.url, mark))
    made = Gateway(work / "gateway", *providers)
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture(scope="session")
def tiny(work: Path) -> Backend:
    """llama.cpp with a model that says one sentence, or calls a tool; it embeds, too."""
    tiny_model.write(work / "tiny.gguf")
    return Backend("tiny", work, "llama_server.py", work / "tiny.gguf", "tiny", PORT, 4096, "embedding").ready()


@pytest.fixture(scope="session")
def models(work: Path, tiny: Backend) -> Iterator[Gateway]:
    """One edge and one node before llama.cpp."""
    providers = [real_gateway.provider("tiny", tiny, "llama_cpp", capacity=2), *real_gateway.both_ways(tiny, "tiny")]
    made = Gateway(work / "models", *providers)
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture(params=AGENTS, ids=[agent.name for agent in AGENTS])
def agent(request: pytest.FixtureRequest) -> Agent:
    """Each agent that is installed."""
    program(request.param.package, request.param.name)
    return request.param  # type: ignore[no-any-return]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show the end of what every program has logged."""
    report = yield
    if report.failed:  # type: ignore[attr-defined]
        for child in Child.started:
            report.sections.append((f"log of {child.name}", child.log[-4000:]))  # type: ignore[attr-defined]
    return report
