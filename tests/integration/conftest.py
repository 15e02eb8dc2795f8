"""Real model servers and a real gateway, once for all tests of this folder."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_model
from real_gateway import PORT, Backend, Gateway, both_ways, provider
from running import Child, end_all

FILES = 8192
"""Descriptors a process may have: a thousand clients take a thousand in every process on their way."""


@pytest.fixture(scope="session", autouse=True)
def _children_end() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES if hard < 0 else min(FILES, hard), hard))
    try:
        yield
    finally:
        end_all()


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("integration")


# ---- backends -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def endless_model(work: Path) -> Path:
    path = work / "endless.gguf"
    tiny_model.write(path, tiny_model.SLOW, endless=True)
    return path


@pytest.fixture(scope="session")
def _backends(work: Path, endless_model: Path) -> dict[str, Backend]:
    tiny_model.write(work / "tiny.gguf")
    started = {
        "tiny": Backend("tiny", work, "llama_server.py", work / "tiny.gguf", "tiny", PORT, 2048, "embedding"),
        "ranks": Backend("ranks", work, "llama_server.py", work / "tiny.gguf", "ranks", PORT, 2048, "ranking"),
        "endless": Backend("endless", work, "llama_server.py", endless_model, "endless", PORT, 32768),
    }
    return {name: backend.ready() for name, backend in started.items()}


@pytest.fixture(scope="session")
def tiny(_backends: dict[str, Backend]) -> Backend:
    """llama.cpp with a model that says one sentence, or calls a tool; it embeds, too."""
    return _backends["tiny"]


@pytest.fixture(scope="session")
def ranks(_backends: dict[str, Backend]) -> Backend:
    """llama.cpp that ranks texts."""
    return _backends["ranks"]


@pytest.fixture(scope="session")
def endless(_backends: dict[str, Backend]) -> Backend:
    """llama.cpp with a model that says one sentence again and again."""
    return _backends["endless"]


@pytest.fixture(scope="session")
def fake(work: Path) -> Backend:
    """A backend that obeys the last message."""
    return Backend("fake", work, "fake_openai.py", PORT).ready()


# ---- gateways -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def gateway(work: Path, tiny: Backend, ranks: Backend, endless: Backend, fake: Backend) -> Iterator[Gateway]:
    """One edge and one node in front of all backends, for tests that leave them alive."""
    made = Gateway(
        work / "gateway",
        provider("tiny", tiny, "llama_cpp", capacity=2),
        *both_ways(tiny, "tiny"),
        provider("ranks", ranks, "llama_cpp"),
        provider("endless", endless, "llama_cpp", capacity=2),
        provider("fake", fake, "openai"),
        provider("renamed", fake, "openai", target="vendor/fake:7b"),
        provider("hasty", fake, "openai", first_byte_timeout_ms=400, gap_timeout_ms=400),
        openai={"max_body_bytes": 1 << 20, "stall_timeout_ms": 1500},
    )
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def make_gateway(tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    """Make gateways that this test alone may break."""
    made: list[Gateway] = []

    def make(*providers: Any, **settings: Any) -> Gateway:
        made.append(Gateway(tmp_path / f"gateway-{len(made)}", *providers, **settings))
        return made[-1]

    yield make
    for each in made:
        each.stop()


OF_THEIR_OWN = {f"test_integration_{name}" for name in ("chaos", "openapi", "secrets", "drop_in", "soak", "ways")}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of this folder with one worker: they share servers, and each keeps more than one core busy.

    Those with servers of their own go to whoever has time.
    """
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            alone = item.path.stem if item.path.stem in OF_THEIR_OWN else "integration"
            item.add_marker(pytest.mark.xdist_group(alone))


# ---- when a test fails ----------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show the end of what every program has logged."""
    report: Any = yield
    if report.failed:
        for child in Child.started:
            report.sections.append((f"log of {child.name} in {child.log_path.parent.name}", child.log[-6000:]))
    if report.when == "teardown":
        Child.started = list(Child.alive)
    return report
