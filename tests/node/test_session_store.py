"""How long a conversation is there, and how long it is known that it was. ``docs/contracts/adapters.md`` (cli)."""

from __future__ import annotations

import pytest

from iop.node.sessions import SessionStore

HOUR = 3_600
DAY = 86_400
BEGAN = 1_700_000_000


class Days:
    """Sessions of one adapter, and the time that passes over them."""

    def __init__(self) -> None:
        self.now = BEGAN
        self._store = SessionStore(None, lambda: self.now)

    def use(self, session_id: str = "s") -> None:
        self._store.keep("agent", session_id, "agent's own", "")

    def end(self, session_id: str = "s") -> bool:
        return self._store.terminate("agent", session_id)

    def state(self, session_id: str = "s") -> str | None:
        found = self._store.find("agent", session_id)
        known = {each.session_id: each.state for each in self._store.known("agent")}
        assert known.get(session_id) == (found and found.state)
        return found and found.state


@pytest.fixture
def days() -> Days:
    return Days()


def test_a_session_goes_on_for_a_day(days: Days) -> None:
    days.use()
    days.now = BEGAN + 24 * HOUR
    assert days.state() == "active"
    days.now += 1
    assert days.state() == "expired"
    assert not days.end(), "it went on no more"
    assert days.state() == "expired"


def test_a_day_without_use_not_a_day_of_life(days: Days) -> None:
    days.use()
    days.now = BEGAN + 23 * HOUR
    days.use()
    for hour in (40, 47):
        days.now = BEGAN + hour * HOUR
        assert days.state() == "active"
    days.now += 1
    assert days.state() == "expired"


def test_what_expired_is_known_for_thirty_days(days: Days) -> None:
    """And is still known when a session that is used has somebody forgotten."""
    days.use()
    days.now = BEGAN + 31 * DAY
    days.use("another")
    assert days.state() == "expired"
    days.now += 1
    assert days.state() is None
    assert days.state("another") == "active"


def test_what_was_terminated_is_known_for_thirty_days(days: Days) -> None:
    days.use()
    days.now = BEGAN + 23 * HOUR
    assert days.end()
    days.now += 30 * DAY
    days.use("another")
    assert days.state() == "terminated"
    days.now += 1
    assert days.state() is None
    days.use("a third one, an hour later")
    assert days.state() is None


def test_an_id_that_nobody_knows_any_more_may_begin_anew(days: Days) -> None:
    days.use()
    days.now = BEGAN + 32 * DAY
    days.use()
    assert days.state() == "active"
