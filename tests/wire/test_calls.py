"""Questions that wait for an answer."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from iop.wire.calls import Calls, Unanswered


def asked(calls: Calls, timeout: float = 5.0) -> tuple[str, list[Any], Any]:
    request_id, deferred = calls.ask(timeout)
    got: list[Any] = []
    deferred.addBoth(got.append)
    return request_id, got, deferred


def test_an_answer_finds_its_question_and_leaves_no_timer() -> None:
    clock = Clock()
    calls = Calls(clock)
    one, got_one, _ = asked(calls)
    other, got_other, _ = asked(calls)
    assert one != other
    assert calls.answered(other, "b")
    assert calls.answered(one, "a")
    assert (got_one, got_other) == (["a"], ["b"])
    assert len(calls) == 0
    assert clock.getDelayedCalls() == []


def test_an_answer_to_nobody() -> None:
    calls = Calls(Clock())
    request_id, got, _ = asked(calls)
    assert not calls.answered("unheard of", "x")
    assert calls.answered(request_id, "x")
    assert not calls.answered(request_id, "again")
    assert got == ["x"]


def test_no_answer_in_time() -> None:
    clock = Clock()
    calls = Calls(clock)
    request_id, got, _ = asked(calls, 2.0)
    clock.advance(1.9)
    assert got == []
    clock.advance(0.2)
    (failure,) = got
    assert isinstance(failure, Failure)
    assert failure.check(Unanswered)
    assert "2 s" in failure.getErrorMessage()
    assert not calls.answered(request_id, "late")
    assert len(calls) == 0


def test_a_question_taken_back() -> None:
    clock = Clock()
    calls = Calls(clock)
    request_id, got, deferred = asked(calls)
    deferred.cancel()
    assert got[0].check(CancelledError)
    assert not calls.answered(request_id, "x")
    assert clock.getDelayedCalls() == []


def test_a_lost_link_fails_every_question() -> None:
    clock = Clock()
    calls = Calls(clock)
    questions = [asked(calls) for _ in range(3)]
    calls.lost()
    assert [got[0].check(Unanswered) for _, got, _ in questions] == [Unanswered] * 3
    assert clock.getDelayedCalls() == []
    calls.lost()


def test_asking_again_while_all_fail_is_no_trouble() -> None:
    clock = Clock()
    calls = Calls(clock)
    _, deferred = calls.ask(1.0)
    again: list[Any] = []
    deferred.addErrback(lambda _: again.append(calls.ask(1.0)))
    calls.lost()
    assert len(again) == 1
    assert len(calls) == 1
    again[0][1].addErrback(lambda _: None)
    clock.advance(2)
    assert len(calls) == 0
