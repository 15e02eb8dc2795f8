"""What tests of every folder may ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

if "PYTEST_XDIST_WORKER" in os.environ:
    # coverage is of what runs in the tests' own processes: measured edges and nodes would be slow, and tell little more
    os.environ.pop("COVERAGE_PROCESS_CONFIG", None)

settings.register_profile("iop", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("iop")


class Logged:
    """What was logged during a test. Tracebacks that no test asked for fail it."""

    def __init__(self) -> None:
        self.events: list[LogEvent] = []
        self._expected = 0

    def lines(self, *levels: str) -> list[str]:
        """Return the messages of these levels, or of all."""
        return [formatEvent(e) for e in self.events if not levels or e["log_level"].name in levels]

    def warnings(self) -> list[str]:
        return self.lines("warn")

    def failures(self) -> list[Any]:
        """Return the exceptions that were logged; they are expected from now on."""
        found = [e["log_failure"].value for e in self.events if e.get("log_failure") is not None]
        self._expected = len(found)
        return found

    def unexpected(self) -> list[LogEvent]:
        return [e for e in self.events if e.get("log_failure") is not None][self._expected :]


@pytest.fixture
def logged() -> Iterator[Logged]:
    """Record the log; fail on a traceback that the test did not ask for."""
    logged = Logged()
    globalLogPublisher.addObserver(logged.events.append)
    try:
        yield logged
    finally:
        globalLogPublisher.removeObserver(logged.events.append)
    for event in logged.unexpected():
        pytest.fail(f"{formatEvent(event)}\n{event['log_failure'].getTraceback()}")
