"""How a child is asked to end, and how long it may take: real processes, whose time passes when a test says so."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_twisted import ensureDeferred
from socket_doubles import until
from test_cli_adapter import World, gone, said
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

pytestmark = pytest.mark.usefixtures("logged")


class Patient(World):
    """An adapter with the usual grace time, for agents that leave word of how far they came."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        super().__init__(folder, grace_ms=5_000, env={"FOLDER": str(folder)})

    async def noted(self, name: str) -> None:
        """Wait for an agent's word."""
        await until((self.folder / name).exists, 10)

    async def over(self, done: Deferred[Any]) -> None:
        """Wait until a run is over."""
        fired: list[Any] = []
        done.addBoth(fired.append)
        await until(lambda: fired, 10)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Patient]:
    made = Patient(tmp_path)
    yield made
    for pid in made.alive:
        os.kill(pid, signal.SIGKILL)


@ensureDeferred
async def test_who_is_asked_to_end_may_finish(world: Patient) -> None:
    """CL-05: SIGINT, to its children too; nobody is killed before the grace time has passed."""
    os.mkfifo(world.folder / "go")
    with open(world.folder / "go", "r+b", buffering=0) as go:  # both ends: neither side waits for the other
        sink, done = world.begin("finish")
        await said(sink, "begun")
        done.cancel()
        await world.noted("asked")
        await world.noted("alone")
        world.clock.advance(4.999)
        go.write(b".")
        await world.over(done)
    assert (world.folder / "finished").exists()
    await gone(world)


@ensureDeferred
async def test_who_does_not_is_killed(world: Patient) -> None:
    """CL-05"""
    sink, done = world.begin("deaf")
    await said(sink, "begun")
    done.cancel()
    world.clock.advance(5)
    await world.over(done)
    await gone(world)


@ensureDeferred
async def test_one_that_nobody_reads_may_finish_what_it_says(world: Patient) -> None:
    """CL-04, CL-05: it waits on a full pipe when it is asked to end, and has more to say than a pipe holds."""
    sink, done = world.begin("insist")
    sink.source.pause()
    await world.noted("full")
    done.cancel()
    await world.noted("finished")
    await world.over(done)
    assert sink.events == []
    await gone(world)
