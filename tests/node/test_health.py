"""Whether a node finds out how its backends are, and tells the edge no more than what is news."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from doubles import ScriptedAdapter, ScriptedFactory
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from iop import model as m
from iop.errors import Failure
from iop.model import Health
from iop.node.adapterset import AdapterSet
from iop.node.health import MODELS_TOLD, SILENT_IN_A_ROW, Checks
from iop.wire.frames import MAX_FRAME
from iop.wire.translate import encode

UP, DOWN, DEGRADED, UNKNOWN = Health.UP, Health.DOWN, Health.DEGRADED, Health.UNKNOWN


class Backend(ScriptedAdapter):
    """An adapter whose backend is as the test says.

    :ivar says: a health, None for silence, an exception for an adapter that breaks.
    :ivar asked: the path of each check.
    """

    def __init__(self) -> None:
        super().__init__()
        self.says: Any = UP
        self.asked: list[str] = []
        self.open_checks: list[Deferred[Any]] = []

    def probe(self, path: str = "") -> Deferred[Health]:
        self.asked.append(path)
        if self.says is None:
            self.open_checks.append(Deferred())
            return self.open_checks[-1]
        return fail(self.says) if isinstance(self.says, Exception) else succeed(self.says)

    def models(self) -> Deferred[list[str]]:
        if self.targets == ["silent"]:
            self.open_checks.append(Deferred())
            return self.open_checks[-1]
        return fail(Failure("upstream_error", "no")) if self.targets == ["broken"] else succeed(self.targets)


class World:
    """A payload's providers, checked on a clock of the test's own.

    :ivar told: what the edge was told, as (provider, health).
    """

    def __init__(self, *providers: m.ProviderConfig) -> None:
        self.clock = Clock()
        self.backend = Backend()
        self.adapters = AdapterSet(self.clock, Path(), lambda kind: ScriptedFactory(self.backend))
        self.busy: set[str] = set()
        self.statuses: list[m.ProviderStatus] = []
        self.checks = Checks(self.adapters, self.busy.__contains__, self.clock)
        self.take(*(providers or (provider(),)))
        self.checks.begin(self.statuses.append)

    def take(self, *providers: m.ProviderConfig) -> None:
        payload = m.NodePayload("rev", (m.AdapterConfig("a", "scripted"),), providers)
        Deferred.fromCoroutine(self.adapters.register(payload))

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(status.provider_id, status.health) for status in self.statuses if not status.models]

    @property
    def last(self) -> m.ProviderStatus:
        return self.statuses[-1]

    def wait(self, seconds: float) -> None:
        """Let time pass in steps that floats can count."""
        for _ in range(round(seconds * 8)):
            self.clock.advance(0.125)


def provider(id: str = "p", *, interval_ms: int = 10_000, path: str = "", timeout_ms: int = 1_000) -> m.ProviderConfig:
    return m.ProviderConfig(id, "a", health=m.HealthCheck(interval_ms, path, timeout_ms))


def test_the_first_look_is_at_once_and_only_news_is_told() -> None:
    world = World()
    assert world.told == [("p", UP)]
    world.wait(9.8)
    assert len(world.backend.asked) == 1
    world.wait(0.3)
    assert len(world.backend.asked) == 2
    world.wait(100)
    assert len(world.backend.asked) == 12
    assert world.told == [("p", UP)]


@pytest.mark.parametrize("first", [UP, None])
def test_a_backend_that_refuses_is_down_at_once_and_looked_at_often_until_it_is_back(first: Health | None) -> None:
    world = World()
    if first is None:
        world = World(provider(interval_ms=0))
        world.backend.says = DOWN
        world.take(provider())
        world.checks.follow(world.statuses.append)
    else:
        world.backend.says = DOWN
        world.wait(10.1)
    assert world.told[-1] == ("p", DOWN)
    assert "refuses" in world.last.message
    asked = len(world.backend.asked)
    world.wait(10)
    assert len(world.backend.asked) - asked == 5
    world.backend.says = UP
    world.wait(2.1)
    assert world.told[-2:] == [("p", DOWN), ("p", UP)]
    assert world.last.message == ""


def test_an_interval_shorter_than_that_is_kept() -> None:
    world = World(provider(interval_ms=500))
    world.backend.says = DOWN
    world.wait(1)
    asked = len(world.backend.asked)
    world.wait(5)
    assert len(world.backend.asked) - asked in (9, 10, 11)


def test_a_silent_backend_is_degraded_and_down_when_it_is_so_again_and_again() -> None:
    world = World()
    world.backend.says = None
    world.wait(10 + 1 + 0.2)
    assert world.told == [("p", UP), ("p", DEGRADED)]
    assert "in time" in world.last.message
    world.wait((SILENT_IN_A_ROW - 2) * 3)
    assert world.told[-1] == ("p", DEGRADED)
    world.wait(3)
    assert world.told == [("p", UP), ("p", DEGRADED), ("p", DOWN)]
    assert len(world.backend.open_checks) == SILENT_IN_A_ROW
    assert all(check.called for check in world.backend.open_checks), "a check that is given up is cancelled"


def test_one_that_is_silent_because_it_works_is_not_down() -> None:
    """A server with one thread answers nobody while it generates."""
    world = World()
    world.busy.add("a")
    world.backend.says = None
    world.wait(60)
    assert world.told == [("p", UP), ("p", DEGRADED)]
    world.busy.clear()
    world.wait(5)
    assert world.told[-1] == ("p", DOWN)


def test_an_answer_in_between_begins_the_count_anew() -> None:
    world = World()
    world.backend.says = None
    world.wait(10 + 1 + 3 + 0.2)  # silent twice
    world.backend.says = UP
    world.wait(2)
    assert world.told == [("p", UP), ("p", DEGRADED), ("p", UP)]
    world.backend.says = None
    world.wait(10 + 1 + 3 + 0.2)
    assert world.told[-1] == ("p", DEGRADED)


def test_a_backend_that_is_silent_three_times_in_a_row_is_down() -> None:
    world = World(provider(timeout_ms=1_000, interval_ms=1_000))
    world.backend.says = None
    world.wait(1 + 1 + 1 + 1)
    assert world.told == [("p", UP), ("p", DEGRADED)], "twice"
    world.wait(1.875)
    assert world.told[-1] == ("p", DEGRADED)
    world.wait(0.125)
    assert world.told[-1] == ("p", DOWN)


def test_a_backend_has_two_seconds_where_the_payload_says_nothing() -> None:
    world = World(provider(timeout_ms=0))
    world.backend.says = None
    world.wait(10 + 1.875)
    assert world.told == [("p", UP)]
    world.wait(0.125)
    assert world.told[-1] == ("p", DEGRADED)


def test_an_answer_that_comes_after_all_counts_for_nothing() -> None:
    """An adapter may take no notice of being cancelled."""
    world = World()

    class Deaf(Deferred[Any]):
        def cancel(self) -> None: ...

    late: Deferred[Any] = Deaf()
    world.backend.probe = lambda path="": late  # type: ignore[method-assign]
    world.wait(11.1)
    assert world.told[-1] == ("p", DEGRADED)
    late.callback(DOWN)
    assert world.told[-1] == ("p", DEGRADED)


def test_an_adapter_that_breaks_its_check_harms_nobody(logged: Any) -> None:
    world = World()
    world.backend.says = RuntimeError("boom")
    world.wait(10.1)
    assert world.told[-1] == ("p", UNKNOWN), "unknown is dispatched to: the backend may be well"
    assert [type(failure) for failure in logged.failures()] == [RuntimeError]
    world.backend.says = UP
    world.wait(2.1)
    assert world.told[-1] == ("p", UP)


def test_an_adapter_that_breaks_at_being_given_up_harms_nobody(logged: Any) -> None:
    def broken(_: Any) -> None:
        raise ZeroDivisionError("a bug")

    world = World(provider("p"), provider("q"))
    world.backend.probe = lambda path="": Deferred(broken)  # type: ignore[method-assign]
    world.wait(12)
    assert world.told[-2:] == [("p", DEGRADED), ("q", DEGRADED)]
    world.checks.stop()
    assert world.clock.getDelayedCalls() == []
    assert {type(failure) for failure in logged.failures()} == {ZeroDivisionError}
    assert world.checks.health_of("p") is UNKNOWN


@pytest.mark.parametrize("said", ["banana", None, 7, ()])
def test_a_health_that_is_none_is_an_adapter_that_breaks(logged: Any, said: Any) -> None:
    world = World()
    world.backend.probe = lambda path="": succeed(said)  # type: ignore[method-assign]
    world.wait(10.1)
    assert world.told[-1] == ("p", UNKNOWN)
    assert world.checks.health_of("p") is UNKNOWN
    assert [type(failure) for failure in logged.failures()] == [ValueError]


def test_an_adapter_may_say_in_words_why_its_backend_is_down() -> None:
    world = World()
    world.backend.says = Failure("adapter_unavailable", "there is no program x on the node")
    world.wait(10.1)
    assert (world.told[-1], world.last.message) == (("p", DOWN), "there is no program x on the node")


def test_a_provider_without_its_adapter_is_down() -> None:
    world = World(m.ProviderConfig("p", "not enabled", health=m.HealthCheck(10_000)))
    assert world.told == [("p", DOWN)]
    assert "not enabled or could not be made" in world.last.message


def test_an_interval_of_0_is_no_check() -> None:
    world = World(provider(interval_ms=0))
    world.wait(60)
    assert (world.told, world.backend.asked, world.clock.getDelayedCalls()) == ([], [], [])


def test_the_path_is_handed_on_where_there_is_one() -> None:
    assert World(provider(path="/health")).backend.asked == ["/health"]
    assert World(provider()).backend.asked == [""]


def test_models_are_told_when_a_backend_comes_up() -> None:
    world = World()
    assert world.last.models == ("m",)
    world.backend.says = DOWN
    world.backend.targets = [str(number) for number in range(MODELS_TOLD + 1)]
    world.wait(10.1)
    assert world.last.models == ()
    world.backend.says = UP
    world.wait(2.1)
    assert len(world.last.models) == MODELS_TOLD
    world.backend.says = DOWN
    world.wait(10.1)
    world.backend.says, world.backend.targets = UP, ["broken"]
    world.wait(2.1)
    assert (world.last.health, world.last.models) == (UP, ())


def test_a_backend_that_keeps_its_models_to_itself_is_up() -> None:
    world = World(provider(path="/health"))
    world.backend.says, world.backend.targets = DOWN, ["silent"]
    world.wait(10.1)
    world.backend.says = UP
    world.wait(30)
    assert world.told == [("p", UP), ("p", DOWN), ("p", UP)]
    world.checks.stop()
    assert all(asked.called for asked in world.backend.open_checks)


def test_models_told_fit_a_frame_whatever_a_backend_calls_them() -> None:
    world = World()
    world.backend.says = DOWN
    world.wait(10.1)
    world.backend.says, world.backend.targets = UP, ["x" * 8000, "\ud800", "m"] + ["x" * 256] * 500
    world.wait(2.1)
    assert "x" * 8000 not in world.last.models
    assert len(encode(world.last)) < MAX_FRAME


def test_a_refresh_leaves_alone_what_is_the_same() -> None:
    world = World(provider("same"), provider("gone"), provider("other"))
    world.statuses.clear()
    world.wait(5)
    world.take(provider("same"), provider("other", interval_ms=7_000), provider("new"))
    world.checks.follow(world.statuses.append)
    assert world.told == [("other", UP), ("new", UP)]
    asked = len(world.backend.asked)
    world.wait(5.1)
    assert len(world.backend.asked) - asked == 1, "the one that is the same goes on in its own time"


def test_a_new_link_is_told_everything() -> None:
    world = World()
    world.checks.begin(world.statuses.append)
    assert world.told == [("p", UP)] * 2


@pytest.mark.parametrize("says", [UP, None])
def test_nothing_is_left_of_checks_that_stop(says: Health | None) -> None:
    world = World()
    world.backend.says = says
    world.wait(10.1)
    told = len(world.told)
    world.checks.stop()
    assert world.clock.getDelayedCalls() == []
    assert all(check.called for check in world.backend.open_checks)
    world.wait(60)
    assert len(world.told) == told
