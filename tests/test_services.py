"""Ordered start and stop, the deadline sweep, the latch and the drain."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher

from iop.services import NEVER, Drain, Latch, OrderedServices, Sweep


@pytest.fixture
def logged() -> Any:
    """The log's events."""
    events: list[Any] = []
    globalLogPublisher.addObserver(events.append)
    yield events
    globalLogPublisher.removeObserver(events.append)


# ---- Latch ------------------------------------------------------------------------------------------------------


def test_a_latch_tells_everybody_once() -> None:
    latch, told = Latch(), []
    for name in "abc":
        latch.wait().addCallback(lambda _, name=name: told.append(name))
    assert not latch.happened
    latch.fire()
    latch.fire()
    latch.wait().addCallback(lambda _: told.append("late"))
    assert told == ["a", "b", "c", "late"]


def test_who_waits_no_more_is_no_one_elses_loss() -> None:
    latch, told = Latch(), []
    impatient = latch.wait()
    impatient.addErrback(lambda reason: told.append(reason.check(CancelledError)))
    latch.wait().addCallback(lambda _: told.append("patient"))
    impatient.cancel()
    latch.fire()
    assert told == [CancelledError, "patient"]


def test_one_who_is_told_may_cancel_another() -> None:
    latch, told = Latch(), []
    first, second = latch.wait(), latch.wait()
    first.addCallback(lambda _: second.cancel())
    second.addErrback(lambda reason: told.append(reason.check(CancelledError)))
    latch.wait().addCallback(told.append)
    latch.fire()
    assert told == [CancelledError, None]


# ---- Sweep ------------------------------------------------------------------------------------------------------


class Due:
    def __init__(self, deadline: float = NEVER) -> None:
        self.deadline = deadline
        self.times = 0
        self.then: Any = lambda: None

    def expired(self) -> None:
        self.times += 1
        self.deadline = NEVER
        self.then()


def test_a_deadline_is_noticed_within_the_interval() -> None:
    clock = Clock()
    sweep = Sweep(clock, 0.25)
    due, never = Due(1.0), Due()
    sweep.add(due)
    sweep.add(never)
    clock.pump([0.25] * 3)
    assert due.times == 0
    clock.pump([0.25] * 8)
    assert (due.times, never.times) == (1, 0)
    due.deadline = clock.seconds() + 5  # moved freely
    clock.pump([0.25] * 10)
    due.deadline += 5
    clock.pump([0.25] * 20)
    assert due.times == 1


def test_an_empty_sweep_has_no_timer() -> None:
    clock = Clock()
    sweep = Sweep(clock)
    dues = [Due() for _ in range(3)]
    assert clock.getDelayedCalls() == []
    for due in dues:
        sweep.add(due)
        sweep.add(due)
    assert (len(clock.getDelayedCalls()), len(sweep)) == (1, 3)
    for due in dues:
        sweep.discard(due)
        sweep.discard(due)
    assert (clock.getDelayedCalls(), len(sweep)) == ([], 0)


def test_one_may_take_another_or_all_away_and_bring_new_ones() -> None:
    clock = Clock()
    sweep = Sweep(clock)
    first, second, third = Due(1), Due(1), Due(1)
    for due in (first, second):
        sweep.add(due)

    def swap() -> None:
        sweep.discard(first)
        sweep.discard(second)
        sweep.add(third)

    first.then = swap
    clock.advance(2)
    assert (first.times, second.times, third.times) == (1, 0, 0)
    clock.advance(0.25)
    assert third.times == 1
    assert len(clock.getDelayedCalls()) == 1
    third.deadline, third.then = 0, lambda: sweep.discard(third)
    clock.advance(0.25)
    assert clock.getDelayedCalls() == []


def test_an_exception_is_logged_and_the_others_are_told(logged: Any) -> None:
    clock = Clock()
    sweep = Sweep(clock)
    bad, good = Due(1), Due(1)
    bad.then = lambda: 1 / 0
    sweep.add(bad)
    sweep.add(good)
    clock.advance(1)
    assert good.times == 1
    assert [event["log_level"].name for event in logged] == ["critical"]
    good.deadline = 0
    clock.advance(0.25)
    assert good.times == 2


# ---- Drain ------------------------------------------------------------------------------------------------------


def test_a_drain_ends_when_idle() -> None:
    clock = Clock()
    work = [1]
    done: list[bool] = []
    Drain(clock).wait(lambda: not work, 10).addCallback(done.append)
    clock.pump([0.05] * 20)
    assert done == []
    work.clear()
    clock.advance(0.05)
    assert done == [True]
    assert clock.getDelayedCalls() == []


def test_a_drain_ends_when_time_is_up_or_somebody_is_in_a_hurry() -> None:
    clock = Clock()
    done: list[bool] = []
    drain = Drain(clock)
    drain.wait(lambda: False, 1).addCallback(done.append)
    clock.pump([0.05] * 21)
    assert done == [False]
    drain.wait(lambda: False, 100).addCallback(done.append)
    drain.hurry()
    clock.advance(0.05)
    drain.wait(lambda: False, 100).addCallback(done.append)
    drain.wait(lambda: True, 100).addCallback(done.append)
    assert done == [False, False, False, True]
    assert clock.getDelayedCalls() == []


def test_a_drain_that_nobody_waits_for_looks_no_more() -> None:
    clock = Clock()
    waiting = Drain(clock).wait(lambda: False, 100)
    waiting.addErrback(lambda _: None)
    waiting.cancel()
    assert clock.getDelayedCalls() == []


# ---- OrderedServices --------------------------------------------------------------------------------------------


class Child(Service):
    def __init__(self, name: str, log: list[str], *, slow: bool = False, broken: str = "") -> None:
        self.name = name  # type: ignore[assignment]
        self.log = log
        self.broken = broken
        self.starting: Deferred[None] | None = Deferred() if slow else None
        self.stopping: Deferred[None] | None = Deferred() if slow else None

    def startService(self) -> Any:
        super().startService()
        self.log.append(f"+{self.name}")
        if "start" in self.broken:
            raise RuntimeError(self.name)
        return self.starting

    def stopService(self) -> Any:
        super().stopService()
        self.log.append(f"-{self.name}")
        if "stop" in self.broken:
            raise RuntimeError(self.name)
        return self.stopping


def fire(waiting: Any, value: Any = None) -> None:
    assert isinstance(waiting, Deferred)
    waiting.callback(value)


def test_children_start_in_order_and_stop_in_reverse_each_waited_for() -> None:
    log: list[str] = []
    a, b, c = Child("a", log), Child("b", log, slow=True), Child("c", log)
    whole = OrderedServices([a, b, c], pytest.fail)
    whole.startService()
    assert log == ["+a", "+b"]
    assert not whole.ready.happened
    fire(b.starting)
    assert log == ["+a", "+b", "+c"]
    assert whole.ready.happened
    done: list[Any] = []
    whole.stopService().addCallback(done.append)
    assert log[3:] == ["-c", "-b"]
    assert done == []
    fire(b.stopping)
    assert log[3:] == ["-c", "-b", "-a"]
    assert done == [None]


@pytest.mark.parametrize("broken", ["start", "start stop"])
def test_a_child_that_fails_stops_the_whole_and_is_told_of(broken: str) -> None:
    log: list[str] = []
    failures: list[BaseException] = []
    children = [Child("a", log), Child("b", log), Child("c", log, broken=broken), Child("d", log)]
    whole = OrderedServices(children, failures.append)
    whole.startService()
    assert log == ["+a", "+b", "+c", "-b", "-a"]
    assert [str(failure) for failure in failures] == ["c"]
    assert not whole.ready.happened
    whole.stopService()
    assert len(log) == 5


def test_a_child_that_fails_later_stops_the_whole() -> None:
    log: list[str] = []
    failures: list[BaseException] = []
    a, b = Child("a", log, slow=True), Child("b", log, slow=True)
    whole = OrderedServices([a, b], failures.append)
    whole.startService()
    fire(a.starting)
    assert b.starting is not None
    b.starting.errback(RuntimeError("later"))
    assert log == ["+a", "+b", "-a"]
    assert failures == []  # only when the others are down
    done: list[Any] = []
    whole.stopService().addCallback(done.append)
    assert done == []  # the same stop is waited for
    fire(a.stopping)
    assert [str(failure) for failure in failures] == ["later"]
    assert done == [None]


def test_a_stop_that_raises_is_logged_and_the_others_stop(logged: Any) -> None:
    log: list[str] = []
    whole = OrderedServices([Child("a", log), Child("b", log, broken="stop")], pytest.fail)
    whole.startService()
    done: list[Any] = []
    whole.stopService().addCallback(done.append)
    assert log == ["+a", "+b", "-b", "-a"]
    assert done == [None]
    assert [event["child"] for event in logged] == ["Child"]


@pytest.mark.parametrize("ends", ["starts", "fails"])
def test_a_stop_while_a_child_starts(ends: str) -> None:
    log: list[str] = []
    failures: list[BaseException] = []
    a, b, c = Child("a", log), Child("b", log, slow=True), Child("c", log)
    whole = OrderedServices([a, b, c], failures.append)
    whole.startService()
    done: list[Any] = []
    whole.stopService().addCallback(done.append)
    assert log == ["+a", "+b", "-b"]
    assert b.starting is not None
    if ends == "starts":
        b.starting.callback(None)
    else:
        b.starting.errback(RuntimeError("told to stop"))
    fire(b.stopping)
    assert log == ["+a", "+b", "-b", "-a"]
    assert done == [None]
    assert failures == []
    assert not whole.ready.happened


def test_two_who_stop_it_wait_for_the_same() -> None:
    log: list[str] = []
    child = Child("a", log, slow=True)
    whole = OrderedServices([child], pytest.fail)
    whole.startService()
    fire(child.starting)
    done: list[Any] = []
    whole.stopService().addCallback(done.append)
    whole.stopService().addCallback(done.append)
    assert log == ["+a", "-a"]
    fire(child.stopping)
    assert done == [None, None]
