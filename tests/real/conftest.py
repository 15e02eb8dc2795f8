"""Real agents behind a real gateway, their models a mock on loopback; ``tox -e real`` installs them."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from agents import AGENTS, Agent, provider
from aimock import Mock
from install import PACKAGES
from real_gateway import Gateway
from running import Child, end_all

AIMOCK = "@copilotkit/aimock"


@pytest.fixture(scope="session", autouse=True)
def _children_end() -> Iterator[None]:
    try:
        yield
    finally:
        end_all()


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("real")


def program(package: str, command: str) -> Path:
    """Return a command that npm has installed, in the version that was asked for; skip when it has not."""
    folder = Path(os.environ.get("IOP_REAL_NPM", "node_modules-not-installed")) / "node_modules"
    wanted = json.loads(PACKAGES.read_text())["dependencies"][package]
    try:
        found = json.loads((folder / package / "package.json").read_text())["version"]
    except OSError:
        pytest.skip(f"npm has not installed {package}")
    if found != wanted:
        pytest.skip(f"{package} {found} is installed, and {wanted} is asked for")
    return folder / ".bin" / command


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
