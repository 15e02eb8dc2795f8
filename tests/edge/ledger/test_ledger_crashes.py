"""Whatever the database does and whenever the edge is killed: every row once. docs/contracts/ledger.md (Guarantees)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from contracts.usage_store import row
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from ledger_world import World


class Crashes(RuleBasedStateMachine):
    """Runs end while the database goes away, hangs and comes back, and the edge is killed and stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.world = World(self.folder)
        self.owed: set[str] = set()
        self.recorded: set[str] = set()
        self.count = 0

    @initialize()
    def begins(self) -> None:
        self.world.start()

    @rule(count=st.integers(1, 3))
    def runs_end(self, count: int) -> None:
        for _ in range(count):
            self.count += 1
            self.world.record(f"r{self.count}")

    @rule(seconds=st.sampled_from([0.05, 0.25, 1.2, 1.2, 7.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.run(seconds)

    @rule()
    def a_timer_fires_and_no_thread_moves(self) -> None:
        self.world.clock.advance(0.25)

    @rule(which=st.sampled_from(["files", "thread"]))
    def a_thread_does_one_thing(self, which: str) -> None:
        getattr(self.world, which).step()

    @rule()
    def it_goes_away(self) -> None:
        self.world.database.why = "away"

    @rule()
    def it_hangs(self) -> None:
        self.world.thread.stuck = True

    @rule()
    def it_is_back(self) -> None:
        self.world.database.why = ""
        self.world.thread.stuck = False

    @rule(committed=st.booleans(), torn=st.integers(0, 400))
    def it_is_killed(self, committed: bool, torn: int) -> None:
        """Perhaps after the commit and before anybody heard of it; perhaps in the middle of a line."""
        world = self.world
        now = world.clock.seconds()
        world.settle()  # a thread that is not stuck is never a second late
        self.owed |= {run for run, at in world.recorded.items() if at < now - 1.0}
        if committed and world.thread.queue:
            world.thread.stuck = False
            world.thread.step()
        world.kill()
        with world.path.open("ab") as file:
            file.write(row(0).line()[:torn].rstrip(b"\n"))
        self._again()

    @rule()
    def it_is_stopped(self) -> None:
        world = self.world
        stopped = world.stop()
        world.run(6)
        assert stopped == [None]
        self.owed |= set(world.recorded)
        world.kill()
        self._again()

    def _again(self) -> None:
        self.recorded |= set(self.world.recorded)
        self.world.recorded.clear()
        self.world.make()
        self.world.start()

    @invariant()
    def nothing_is_dropped(self) -> None:
        assert self.world.ledger.dropped == 0

    def teardown(self) -> None:
        self.it_is_back()
        self.world.run(120)
        owed = self.owed | set(self.world.recorded)
        assert owed <= self.world.written <= owed | self.recorded
        assert self.world.path.stat().st_size == 0
        assert self.world.clock.getDelayedCalls() == []
        self.world.kill()
        shutil.rmtree(self.folder)


Crashes.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestCrashes = Crashes.TestCase
