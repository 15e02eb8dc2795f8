"""The reactor of edge and node: Twisted's epoll reactor without a log context around every event, with ends of turns.

``EPollReactor`` makes a context with the event's log prefix for each event, which nothing here reads
(``twisted.logger`` has namespaces) and which costs as much as a small request's framing: a tenth of edge and node
together (``docs/decisions/0007-lean-reactor.md``). What it hands out at once can leave together at the end of a turn
(``docs/decisions/0003-sweep-and-immediate-writes.md``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from select import EPOLLIN

from twisted.internet.main import installReactor
from twisted.python import log

try:
    from twisted.internet.epollreactor import EPollReactor
except ImportError:  # no epoll here: whatever Twisted chooses serves as well, for a little more
    EPollReactor = None  # type: ignore[assignment, misc]


def install() -> None:
    """Install it, unless a reactor is installed already, as by ``twistd --reactor``."""
    if EPollReactor is not None and "twisted.internet.reactor" not in sys.modules:
        installReactor(_lean())


def _lean() -> EPollReactor:
    class LeanReactor(EPollReactor):
        """Handles what epoll reports, and nothing around it."""

        def __init__(self) -> None:
            super().__init__()
            self._ends: list[Callable[[], None]] = []

        def at_turn_end(self, call: Callable[[], None]) -> None:
            """Call something when what is ready now has been handled, before the reactor waits again."""
            self._ends.append(call)

        def _end_turn(self) -> None:
            while self._ends:
                ends, self._ends = self._ends, []
                for call in ends:
                    try:
                        call()
                    except BaseException:
                        log.err()

        # Called by Twisted.

        def doPoll(self, timeout: float | None) -> None:
            if self._ends:  # of what timers and threads did; it may have set timers anew
                self._end_turn()
                due = self.timeout()
                if timeout is None or (due is not None and due < timeout):
                    timeout = due
            try:
                ready = self._poller.poll(-1 if timeout is None else timeout, len(self._selectables))
            except InterruptedError:
                return
            selectable_of = self._selectables.get
            handle = self._doReadOrWrite  # catches, logs and disconnects by itself
            for fd, event in ready:
                selectable = selectable_of(fd)
                if selectable is None:
                    continue
                if event != EPOLLIN:
                    handle(selectable, fd, event)
                    continue
                try:  # what handle does with a read, without its questions
                    lost = selectable.doRead()
                except BaseException:
                    lost = sys.exc_info()[1]
                    log.err()
                if lost:
                    self._disconnectSelectable(selectable, lost, True)
            if self._ends:
                self._end_turn()

        doIteration = doPoll

    return LeanReactor()
