"""The simulator: the pool itself on a virtual clock, living through a trace.

``docs/contracts/pool.md`` (Simulator). Times are milliseconds; everything that happens at one time happens in this
order: runs complete in the order they started, waits end, then the trace's lines. Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatchmethod
from heapq import heappop, heappush
from typing import Any, Final

from iop.edge.config import model as config
from iop.edge.pool.lease import Lease
from iop.edge.pool.pool import Pool
from iop.edge.pool.queue import Claim
from iop.edge.pool.trace import Arrival, Cancel, Event, NodeDown, NodeUp, Refresh
from iop.errors import Failure
from iop.model import Health

WAITING: Final = "waiting"
_PERCENTILES: Final = (50, 95, 99)


class _Call:
    """A call that a clock will make."""

    def __init__(self, at: int, call: Callable[[], None]) -> None:
        self.at = at
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class VirtualClock:
    """Time that passes when it is told to. It counts whole milliseconds, so that what is due at once is due at once."""

    def __init__(self) -> None:
        self.now = 0
        self._calls: list[tuple[int, int, _Call]] = []
        self._made = 0

    def seconds(self) -> float:
        """As a reactor says it."""
        return self.now / 1000

    def callLater(self, delay: float, callable: Callable[[], None], /) -> _Call:
        """As a reactor does it."""
        made = _Call(self.now + round(delay * 1000), callable)
        self._made += 1
        heappush(self._calls, (made.at, self._made, made))
        return made

    def next_call(self) -> float:
        """When the next call is due; infinity when there is none."""
        while self._calls and self._calls[0][2].call is None:
            heappop(self._calls)
        return self._calls[0][0] if self._calls else math.inf

    def make_calls(self) -> None:
        """Make the calls that are due."""
        while self.next_call() <= self.now:
            call = heappop(self._calls)[2].call
            assert call is not None
            call()


class SimulatedRun(Claim):
    """One request of a trace, and what became of it.

    :ivar outcome: "complete", "cancelled", "node_lost", a refusal's code, or "waiting".
    :ivar admitted: it was not refused at its arrival.
    :ivar node: where it runs, or ran.
    """

    __slots__ = (
        "_simulation",
        "admitted",
        "ended_at",
        "id",
        "lease",
        "node",
        "order",
        "outcome",
        "provider",
        "service_ms",
        "started_at",
    )

    def __init__(self, simulation: Simulation, arrival: Arrival) -> None:
        super().__init__(arrival.model, arrival.tokens, exact=True)
        self._simulation = simulation
        self.id = arrival.id
        self.service_ms = arrival.service_ms
        self.outcome = WAITING
        self.admitted = False
        self.lease: Lease | None = None
        self.node: str | None = None
        self.provider: str | None = None
        self.order = 0
        self.started_at: int | None = None
        self.ended_at: int | None = None

    def granted(self, lease: Lease) -> None:
        self.lease, self.provider = lease, lease.resource.name
        self._simulation.started(self, lease.resource.node_id)

    def refused(self, failure: Failure) -> None:
        self.end(failure.code)

    def end(self, outcome: str) -> None:
        """It is over."""
        self.outcome = outcome
        self.ended_at = self._simulation.happened()
        if self.lease is not None:
            self.lease.release()


@dataclass(slots=True)
class Load:
    """What a provider did: slots taken and slots offered, each times milliseconds, and the runs it was sent."""

    busy: int = 0
    offered: int = 0
    runs: int = 0

    @property
    def utilisation(self) -> float:
        """Between 0 and 1; above it where a refresh took slots away that were taken."""
        return round(self.busy / self.offered, 4) if self.offered else 0.0


@dataclass(slots=True)
class Summary:
    """A simulation in numbers.

    :ivar queued_ms: waits of the runs that were not refused at arrival: percentiles by nearest rank, and the longest.
    :ivar max_pending: the most runs that waited at one time.
    """

    outcomes: dict[str, int]
    providers: dict[str, Load]
    queued_ms: dict[str, int]
    max_pending: int

    def as_document(self) -> dict[str, Any]:
        """As JSON."""
        providers = {
            name: {"utilisation": load.utilisation, "runs": load.runs} for name, load in self.providers.items()
        }
        return {
            "outcomes": self.outcomes,
            "providers": providers,
            "queued_ms": self.queued_ms,
            "max_pending": self.max_pending,
        }


class Simulation:
    """One trace lived through.

    :param settings: the configuration it begins with.
    :param configs: the configurations of the trace's refreshes, by the names it gives them; each is a live change.
    """

    def __init__(self, settings: config.EdgeConfig, configs: Mapping[str, config.EdgeConfig] | None = None) -> None:
        self._settings = settings
        self._configs = configs or {}
        self._clock = VirtualClock()
        self.pool = Pool(settings, self._clock, at_once=math.inf)
        self._routes = {route.model: route for route in settings.openai.model_routes} if settings.openai else {}
        self._up = {node.id for node in settings.nodes}
        for node in self._up:
            self._tell(node)
        self.runs: dict[str, SimulatedRun] = {}
        self._running: list[tuple[int, int, SimulatedRun]] = []
        self._started = 0
        self._offered = dict.fromkeys((resource.name for resource in self.pool.resources.values()), 0)
        self._offered_until = 0
        self._last = 0
        self._max_pending = 0

    def live_through(self, trace: Sequence[Event]) -> None:
        """Let it all happen, until nothing more can."""
        ahead = 0
        while True:
            line = trace[ahead].at if ahead < len(trace) else math.inf
            completion = self._running[0][0] if self._running else math.inf
            now = min(line, completion, self._clock.next_call())
            if now == math.inf:
                break
            self._clock.now = int(now)
            while self._running and self._running[0][0] == now:
                run = heappop(self._running)[2]
                if run.ended_at is None:
                    run.end("complete")
            self._clock.make_calls()
            while ahead < len(trace) and trace[ahead].at == now:
                self.happened()
                self._happen(trace[ahead])
                self._max_pending = max(self._max_pending, self.pool.queue.size)
                ahead += 1
        self._clock.now = self._last
        for claim in self.pool.queue:
            claim.waited += self._last - claim.since
        self._offer()

    def happened(self) -> int:
        """Something does, now: return when that is."""
        self._last = self._clock.now
        return self._last

    def started(self, run: SimulatedRun, node: str) -> None:
        """A run was dispatched."""
        self._started += 1
        run.order, run.node, run.started_at = self._started, node, self.happened()
        heappush(self._running, (run.started_at + run.service_ms, run.order, run))

    # ---- the trace's lines --------------------------------------------------------------------------------------

    @singledispatchmethod
    def _happen(self, event: Event) -> None:
        raise TypeError(event)

    @_happen.register
    def _(self, arrival: Arrival) -> None:
        run = self.runs[arrival.id] = SimulatedRun(self, arrival)
        if run.model in self._routes and run.model not in self.pool.groups:
            self._route(run)
            return
        try:
            lease = self.pool.admit(run)
        except Failure as failure:
            run.refused(failure)
            return
        run.admitted = True
        if lease is not None:
            run.granted(lease)

    def _route(self, run: SimulatedRun) -> None:
        """An older route takes no slot: the named node, else the first with that adapter."""
        route = self._routes[run.model]
        for node in self._settings.nodes:
            has_it = any(adapter.name == route.adapter and adapter.enabled for adapter in node.adapters)
            if has_it and node.id in self._up and route.node in (None, node.id):
                run.admitted = True
                self.started(run, node.id)
                return
        run.end("no_provider")

    @_happen.register
    def _(self, cancel: Cancel) -> None:
        run = self.runs.get(cancel.id)
        if run is not None and run.ended_at is None:
            self.pool.withdraw(run)
            run.end("cancelled")

    @_happen.register
    def _(self, down: NodeDown) -> None:
        with self.pool.together():
            self._up.discard(down.node)
            self._tell(down.node)
            running = sorted((run.order, run) for _, _, run in self._running if run.node == down.node)
            for _, run in running:
                if run.ended_at is None:
                    run.end("node_lost")

    @_happen.register
    def _(self, up: NodeUp) -> None:
        self._up.add(up.node)
        self._tell(up.node)

    @_happen.register
    def _(self, refresh: Refresh) -> None:
        self._offer()
        self._settings = self._configs[refresh.config]
        self.pool.commit(self.pool.prepare(self._settings))
        self.pool.judge()

    def _tell(self, node: str) -> None:
        self.pool.node_changed(node, node in self._up, lambda _: (Health.UNKNOWN, ""))

    def _offer(self) -> None:
        """Count the slots that were offered until now."""
        past = self._clock.now - self._offered_until
        self._offered_until = self._clock.now
        for resource in self.pool.resources.values():
            self._offered[resource.name] += resource.capacity * past * resource.enabled

    # ---- what came of it ----------------------------------------------------------------------------------------

    def summary(self) -> Summary:
        """Return it in numbers."""
        waits = sorted(run.waited for run in self.runs.values() if run.admitted)
        loads = {name: Load(offered=offered) for name, offered in self._offered.items()}
        for run in self.runs.values():
            if run.provider is not None and run.started_at is not None and run.ended_at is not None:
                loads[run.provider].runs += 1
                loads[run.provider].busy += run.ended_at - run.started_at
        return Summary(
            outcomes=dict(sorted(Counter(run.outcome for run in self.runs.values()).items())),
            providers=loads,
            queued_ms={f"p{p}": _percentile(waits, p) for p in _PERCENTILES} | {"max": waits[-1] if waits else 0},
            max_pending=self._max_pending,
        )

    def as_document(self) -> dict[str, Any]:
        """As ``iop-edge pool simulate`` prints it."""
        return {"runs": [_document(run) for run in self.runs.values()], "summary": self.summary().as_document()}


def _percentile(values: Sequence[int], percent: int) -> int:
    """By nearest rank, of sorted values."""
    return values[math.ceil(percent / 100 * len(values)) - 1] if values else 0


def _document(run: SimulatedRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "outcome": run.outcome,
        "provider": run.provider,
        "queued_ms": run.waited,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
    }
