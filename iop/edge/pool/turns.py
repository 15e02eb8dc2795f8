"""Whose turn it is: pending runs get what has become free, from the oldest. ``docs/contracts/pool.md`` (Queue). Pure.

Nobody waits who could run, but for who comes while others are being served. Only the lanes that a changed provider can
serve are looked at, and of each only the oldest run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from typing import Final

from iop.edge.pool.admission import Resource
from iop.edge.pool.alarm import Clock
from iop.edge.pool.queue import Lane, Queue

AT_ONCE: Final = 128
"""Pending runs that get slots, or end, before others are heard: sending one costs up to a tenth of a millisecond."""

_LOOKED_AT: Final = 8
"""Providers that may be looked at for the time that sending a run takes."""


class Turns:
    """Looks at a queue when something has changed.

    :param serve: gives a slot to the oldest run of a lane, and returns how many providers it looked at; 0: there was
        none for it.
    :param most: how many pending runs get slots before others are heard.
    """

    def __init__(self, queue: Queue, serve: Callable[[Lane], int], clock: Clock, most: float = AT_ONCE) -> None:
        self._queue = queue
        self._serve = serve
        self._clock = clock
        self._most = most
        self._changed: set[Resource] = set()
        self._scanning = self._again_soon = False
        self._together = 0

    @property
    def settled(self) -> bool:
        """Whether everybody who could run does: a newcomer overtakes nobody."""
        return not self._changed and not self._scanning

    def changed(self, *resources: Resource) -> None:
        """These may be able to serve one more: look who waits for them."""
        self._changed.update(resources)
        self._scan()

    @contextmanager
    def together(self) -> Iterator[None]:
        """What happens inside happens at once: pending runs are looked at when all of it has happened."""
        self._together += 1
        try:
            yield
        finally:
            self._together -= 1
            self._scan()

    def _scan(self) -> None:
        if self._scanning or self._together or self._again_soon:
            return
        self._scanning = True
        left = self._most
        try:
            while self._changed and self._queue.size:
                changed, self._changed = self._changed, set()
                left = self._give(changed, left)
                if not left:
                    self._soon()
                    return
            self._changed.clear()
        finally:
            self._scanning = False

    def _give(self, changed: set[Resource], left: float) -> float:
        """Give what these have free; return how many runs more may be served in this turn.

        What is not done, or has to be done anew because something ended meanwhile, stays changed.
        """
        heads = [(lane.first.seq, lane) for lane in self._served_by(changed)]
        heapify(heads)
        while heads:
            if not left:
                self._changed |= changed
                break
            lane = heappop(heads)[1]
            if not lane.claims:
                continue
            looked_at = self._serve(lane)
            if not looked_at:
                continue  # nothing that happens here makes a slot free for it
            left = max(0, left - 1 - looked_at // _LOOKED_AT)
            if self._changed:  # something ended meanwhile: somebody older may be next
                self._changed |= changed
                break
            if len(changed) == 1 and all(resource.in_flight >= resource.capacity for resource in changed):
                break
            if lane.claims:
                heappush(heads, (lane.first.seq, lane))
        return left

    def _served_by(self, resources: Iterable[Resource]) -> Iterable[Lane]:
        """The lanes that one of these can serve now."""
        found = {}
        for resource in resources:
            for group in resource.groups:
                for lane in self._queue.lanes_of(group.model):
                    if not resource.why_not(lane.long) and resource.provider_id not in lane.ruled_out:
                        found[id(lane)] = lane
        return found.values()

    def _soon(self) -> None:
        self._again_soon = True

        def go_on() -> None:
            self._again_soon = False
            self._scan()

        self._clock.callLater(0, go_on)
