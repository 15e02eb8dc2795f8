"""The ledger between runs, spool and database. docs/contracts/ledger.md (Guarantees, Reading)."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from ledger_world import World, record
from twisted.python.failure import Failure as TwistedFailure
from zope.interface.verify import verifyObject

from iop.edge.ledger import ledger as module
from iop.errors import Failure
from iop.interfaces import IRecorder, IUsageStore

pytestmark = pytest.mark.usefixtures("logged")


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    assert made.start() == [None]
    return made


def failure(got: list[Any]) -> Failure:
    (found,) = got
    assert isinstance(found, TwistedFailure)
    assert isinstance(found.value, Failure)
    return found.value


# ---- what is recorded


def test_the_doubles_are_what_they_stand_for(world: World) -> None:
    assert verifyObject(IRecorder, world.ledger)
    assert verifyObject(IUsageStore, world.database)


def test_a_run_is_in_the_database_within_a_second(world: World) -> None:
    world.record("r1", "r2")
    assert world.clock.getDelayedCalls()[0].getTime() == 0.25
    world.settle()
    assert world.written == set()
    world.run(0.3)
    assert world.written == {"r1", "r2"}
    assert world.path.stat().st_size == 0
    assert world.clock.getDelayedCalls() == []


def test_what_was_no_run_is_not_kept(world: World) -> None:
    world.ledger.record(record(""))
    world.ledger.record(record("r1", admitted=False))
    assert world.clock.getDelayedCalls() == []


def test_what_is_kept(world: World) -> None:
    world.record("r1", outcome="cancelled", first_ms=None, estimated=True, principal_alias="Alice")
    world.run()
    assert world.database.store.rows["r1"]._asdict() == {
        "run_id": "r1",
        "at_ms": 1_785_499_200_000,
        "surface": "openai",
        "operation": "chat",
        "token_ref": "app",
        "principal_ref": "alice",
        "principal_alias": "Alice",
        "model": "m",
        "provider": "p1",
        "outcome": "cancelled",
        "input_tokens": 100,
        "output_tokens": 20,
        "cached_tokens": 50,
        "reasoning_tokens": 5,
        "estimated": 1,
        "queue_ms": 10,
        "first_ms": None,
        "total_ms": 1000,
    }


def test_a_record_that_cannot_be_kept_takes_no_other_with_it(world: World, logged: Any) -> None:
    world.ledger.record(record("r1", at=float("nan")))
    world.ledger.record(record("r2", model=None))
    world.record("r3")
    world.run()
    assert (world.written, world.ledger.dropped) == ({"r3"}, 2)
    assert "usage is lost, of 2 runs up to now" in logged.lines("error")[0]


def test_rows_that_come_while_others_are_made_to_last(world: World) -> None:
    world.record("r1")
    world.clock.advance(0.25)  # the spool's thread has it now
    world.record("r2")
    world.run(0.6)
    assert world.written == {"r1", "r2"}


def test_rows_that_a_slow_disk_held_up_are_not_gathered_again(world: World) -> None:
    world.record("r1")
    world.clock.advance(0.25)
    world.record("r2")
    world.clock.advance(0.2)
    world.record("r3")
    world.clock.advance(0.2)  # r2 has waited long enough; the disk still has r1
    world.settle()
    assert world.written == {"r1", "r2", "r3"}
    world.record("r4")
    world.settle()
    assert "r4" not in world.written  # nor is anything spooled sooner because of it
    world.run()
    assert "r4" in world.written


def test_it_takes_no_more_than_it_can_hold(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PENDING", 2)
    world.files.stuck = True
    world.record("r1", "r2", "r3")
    assert world.ledger.dropped == 1
    world.files.stuck = False
    world.run()
    assert world.written == {"r1", "r2"}


def test_a_row_that_no_database_takes_is_counted(world: World, logged: Any) -> None:
    world.database.bad = {"r1"}
    world.record("r1", "r2")
    world.run()
    assert (world.written, world.ledger.dropped) == ({"r2"}, 1)
    assert len(logged.lines("error")) == 1


# ---- a database that goes away


def test_it_goes_away_and_comes_back(world: World, logged: Any) -> None:
    world.database.why = "connection refused"
    for number in range(5):
        world.record(f"r{number}")
        world.run(1)
    assert world.written == set()
    assert world.ledger.away
    world.database.why = ""
    world.run(35)
    assert len(world.written) == 5
    assert not world.ledger.away
    assert logged.lines() == [
        "the ledger's database is away, and runs wait in the spool: connection refused",
        "the ledger's database is back",
    ]


def test_it_is_asked_ever_more_rarely(world: World) -> None:
    world.database.why = "away"
    world.record("r1")
    world.run(0.3)
    waits = []
    for _ in range(9):
        (call,) = world.clock.getDelayedCalls()
        waits.append(round(call.getTime() - world.clock.seconds(), 2))
        world.clock.advance(waits[-1])
        world.settle()
    assert waits[1:] == [1, 2, 4, 8, 16, 30, 30, 30]


def test_it_is_away_at_the_start_and_opened_later(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.database.why = "away"
    assert world.start() == [None]
    assert "is away: away" in failure(world.later(world.ledger.usage())).message
    world.database.why = ""
    world.run(2)
    assert world.database.opened == 1
    assert world.later(world.ledger.usage())[0]["usage"][0]["runs"] == 0


def test_it_hangs_at_the_start(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.thread.stuck = True
    started = world.start()
    world.record("r1")
    world.run(2.9)
    assert started == []
    world.run(0.2)
    assert started == [None]
    world.run(1)
    assert world.path.stat().st_size > 0
    world.thread.stuck = False
    world.run(5)
    assert world.written == {"r1"}


def test_a_database_that_hangs_holds_up_no_row(world: World, logged: Any) -> None:
    world.thread.stuck = True
    for number in range(20):
        world.record(f"r{number}")
        world.run(0.5)
    assert world.path.read_bytes().count(b"\n") == 20
    assert logged.warnings() == ["the ledger's database is away, and runs wait in the spool: no answer for 5 s"]
    world.thread.stuck = False
    world.run(1)
    assert len(world.written) == 20
    assert world.database.written == 20, "each once"


def test_a_fault_of_the_program_is_not_the_end(world: World, logged: Any) -> None:
    world.database.insert = lambda rows: 1 // 0  # type: ignore[method-assign]
    world.record("r1")
    world.run()
    assert len(logged.failures()) == 1
    del world.database.insert  # type: ignore[method-assign]
    world.run(2)
    assert world.written == {"r1"}


def test_what_never_gets_better_stops_the_start(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.database.refuses = "it was made by a newer iop"
    assert failure(world.start()).code == "ledger_refused"
    assert world.files.stopped
    world.make()
    world.database.refuses = ""
    assert world.start() == [None], "its lock is free"


# ---- a disk that takes nothing


def test_a_full_disk_fails_nothing(tmp_path: Path, logged: Any) -> None:
    error = errno.ENOSPC

    def fsync(file: int) -> None:
        if error:
            raise OSError(error, os.strerror(error))

    world = World(tmp_path, fsync)
    assert world.start() == [None]
    for number in range(3):
        world.record(f"r{number}")
        world.run()
    assert len(world.written) == 3
    error = 0
    world.record("r3")
    world.run()
    assert len(world.written) == 4
    assert logged.lines() == [
        "the usage of runs cannot be kept on disk, and waits in memory: No space left on device",
        "the usage of runs is kept on disk again",
    ]


# ---- the end


def test_the_end_writes_what_is_there(world: World) -> None:
    world.record("r1")
    assert world.stop() == [None]
    assert world.written == {"r1"}
    assert world.clock.getDelayedCalls() == []
    assert world.files.stopped
    assert world.thread.stopped
    world.ledger.record(record("r2"))
    assert world.clock.getDelayedCalls() == []


def test_the_end_in_the_middle_of_everything(world: World) -> None:
    world.record("r1")
    world.clock.advance(0.25)
    world.record("r2")
    assert world.stop() == [None]
    assert world.written == {"r1", "r2"}


@pytest.mark.parametrize("hangs", [False, True])
def test_the_end_waits_for_no_database(world: World, hangs: bool) -> None:
    world.record("r0")
    world.run()
    world.database.why = "" if hangs else "away"
    world.thread.stuck = hangs
    world.record("r1")
    world.run()
    world.record("r2")
    stopped = world.stop()
    world.run(5.5)
    assert stopped == [None]
    assert world.clock.getDelayedCalls() == []
    assert world.path.read_bytes().count(b"\n") == 2
    world.database.why = ""
    world.make()
    world.start()
    assert world.written == {"r0", "r1", "r2"}


# ---- reading


def test_usage(world: World) -> None:
    world.record("r1", "r2")
    world.record("r3", model="n")
    world.run()
    (found,) = world.later(world.ledger.usage("1h", "", "model, day"))
    assert (found["since"], found["until"], found["by"]) == ("2026-07-31T11:00:00Z", None, ["model", "day"])
    assert [(each["model"], each["day"], each["runs"]) for each in found["usage"]] == [
        ("m", "2026-07-31", 2),
        ("n", "2026-07-31", 1),
    ]
    assert not found["truncated"]


def test_a_question_that_is_none(world: World) -> None:
    assert failure(world.later(world.ledger.usage("yesterday"))).code == "invalid_value"


def test_a_database_that_is_away_is_a_sentence(world: World) -> None:
    world.database.why = "connection refused"
    found = failure(world.later(world.ledger.usage()))
    assert (found.code, found.http_status) == ("ledger_away", 503)
    assert found.message == "the ledger's database is away: connection refused"


def test_questions_wait_no_longer_than_this(world: World) -> None:
    world.reading.stuck = True
    asked = [world.later(world.ledger.usage()) for _ in range(8)]
    assert failure(world.later(world.ledger.usage())).code == "ledger_busy"
    world.record("r1")
    world.run(61)
    assert {failure(each).code for each in asked} == {"ledger_away"}
    assert world.written == {"r1"}, "reading holds up no writing"
    world.reading.stuck = False
    assert world.later(world.ledger.usage())[0]["usage"][0]["runs"] == 1


def test_nobody_is_answered_after_the_end(world: World) -> None:
    world.stop()
    assert "stopping" in failure(world.later(world.ledger.usage())).message
