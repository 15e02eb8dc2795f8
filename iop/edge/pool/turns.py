"""Whose turn it is: pending runs get what has become free, from the oldest. ``docs/contracts/pool.md`` (Queue). Pure.

Nobody waits who could run, but for who comes while others are being served. Only the lanes that a changed provider can
serve are looked at, and those that somebody joined though there may be a slot; and of each only the oldest run.
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

    :param serve: gives a slot to the oldest run of a lane that can run, and returns how many providers it looked at.
    :param resources_of: a model's providers.
    :param most: how many pending runs get slots before others are heard.
    """

    def __init__(
        self,
        queue: Queue,
        serve: Callable[[Lane], int],
        resources_of: Callable[[str], Iterable[Resource]],
        clock: Clock,
        most: float = AT_ONCE,
    ) -> None:
        self._queue = queue
        self._serve = serve
        self._resources_of = resources_of
        self._clock = clock
        self._most = most
        self._changed: set[Resource] = set()
        self._joined: set[Lane] = set()
        self._scanning = self._again_soon = False
        self._together = 0

    @property
    def settled(self) -> bool:
        """Whether everybody who could run does: a newcomer overtakes nobody."""
        return not self._changed and not self._joined and not self._scanning

    def changed(self, *resources: Resource) -> None:
        """These may be able to serve one more: look who waits for them."""
        self._changed.update(resources)
        self._scan()

    def joined(self, lane: Lane) -> None:
        """Somebody waits in a lane though there may be a slot: look for one."""
        self._joined.add(lane)
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
            while (self._changed or self._joined) and self._queue.size:
                left = self._give(left)
                if not left:
                    self._soon()
                    return
            self._changed.clear()
            self._joined.clear()
        finally:
            self._scanning = False

    def _give(self, left: float) -> float:
        """Give what is free; return how many runs more may be served in this turn.

        What is not done, or has to be done anew because something ended meanwhile, stays changed.
        """
        changed, self._changed = self._changed, set()
        joined, self._joined = self._joined, set()
        free = self._free(changed, joined)
        lanes = [lane for model in free for lane in self._queue.lanes_of(model) if _can_run(lane, free)]
        heads = [(lane.first.seq, lane) for lane in lanes]
        heapify(heads)
        while heads:
            if not left:
                self._changed |= changed
                self._joined |= joined
                break
            lane = heappop(heads)[1]
            if not lane.claims or not _can_run(lane, free):
                continue  # nothing that happens here makes a slot free for it
            looked_at = self._serve(lane)
            left = max(0, left - 1 - looked_at // _LOOKED_AT)
            if self._changed or self._joined:  # something ended meanwhile: somebody older may be next
                self._changed |= changed
                self._joined |= joined
                break
            if not joined and len(changed) == 1 and all(each.in_flight >= each.capacity for each in changed):
                break
            if lane.claims:
                heappush(heads, (lane.first.seq, lane))
        return left

    def _free(self, changed: Iterable[Resource], joined: Iterable[Lane]) -> Free:
        """Return who may have a slot for whom, by model: of models that somebody joined every provider is asked."""
        free: Free = {}
        for resource in changed:
            if not resource.why_not(False):
                for group in resource.groups:
                    if self._queue.lanes_of(group.model):
                        free.setdefault(group.model, []).append(resource)
        for model in {lane.model for lane in joined if lane.claims}:
            free[model] = [each for each in self._resources_of(model) if not each.why_not(False)]
        return free

    def _soon(self) -> None:
        self._again_soon = True

        def go_on() -> None:
            self._again_soon = False
            self._scan()

        self._clock.callLater(0, go_on)


Free = dict[str, list[Resource]]
"""Providers with a slot, by model. Those that have none any more are dropped when they are met."""


def _can_run(lane: Lane, free: Free) -> bool:
    """Whether one of these has a slot for the runs of a lane."""
    of_model = free[lane.model]
    while of_model and of_model[-1].why_not(False):
        of_model.pop()
    ruled_out, long = lane.ruled_out, lane.long
    return any(each.provider_id not in ruled_out and not each.why_not(long) for each in of_model)
