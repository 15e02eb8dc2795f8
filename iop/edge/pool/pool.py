"""The slots of every provider, the leases on them, and who waits. Admission belongs to the edge.

``docs/contracts/pool.md``. The simulator runs this very code on a clock of its own, so nothing here knows a reactor.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Final

from zope.interface import implementer

from iop.edge.config import model as config
from iop.edge.pool.admission import Group, Resource, choose, too_large
from iop.edge.pool.alarm import Alarm, Clock
from iop.edge.pool.configured import Prepared, prepared, resources_of
from iop.edge.pool.lease import Lease, Verdict
from iop.edge.pool.queue import Claim, Decided, Lane, Queue
from iop.edge.pool.turns import AT_ONCE, Turns
from iop.errors import Failure
from iop.interfaces import IRefreshable
from iop.model import Health

BARE_MS: Final = 60_000
"""How long a pending run stays without any candidate."""

_RETRY_AFTER_MS: Final = 1_000
_LONGEST_RETRY_AFTER_MS: Final = 60_000
_NEW: Final = 0.2


@implementer(IRefreshable)
class Pool:
    """Admits runs to providers, now or when it is their turn.

    Nobody waits who could run: whenever anything changes, those whom it can concern are looked at from the oldest.

    :param settings: the configuration whose providers are the resources.
    :param at_once: how many pending runs get slots, or end, before others are heard.
    :ivar last: who was served last, by model: outlives refreshes.
    """

    def __init__(self, settings: config.EdgeConfig, clock: Clock, at_once: float = AT_ONCE) -> None:
        self.resources = resources_of(settings)
        self.queue = Queue()
        self.last: dict[str, str] = {}
        self.groups: dict[str, Group] = {}
        self._arrivals = 0
        self._at_once = at_once
        self._clock = clock
        self._of_node: dict[str, list[Resource]] = {}
        for resource in self.resources.values():
            self._of_node.setdefault(resource.node_id, []).append(resource)
        self._turns = Turns(self.queue, self._serve, lambda model: self.groups[model].resources, clock, at_once)
        self._alarm = Alarm(clock, self._time)
        self._shut: set[Resource] = set()
        self.commit(prepared(settings, self.resources))

    def now(self) -> int:
        """In milliseconds of the clock."""
        return self._alarm.now()

    # ---- admission ----------------------------------------------------------------------------------------------

    def admit(self, claim: Claim) -> Lease | None:
        """Take a slot for a run that arrives; None: it waits, and is told.

        :raises Failure: ``model_not_found``, ``context_length_exceeded``, ``no_provider``,
            ``long_context_unavailable`` or ``queue_full``.
        """
        self._arrivals += 1
        now = self.now()
        claim.seq, claim.arrived, claim.since = self._arrivals, now, now
        group = self._judged(claim)
        if not group.has_candidate(claim.ruled_out):
            raise _no_provider()
        if claim.long and not group.has_long_slots(claim.ruled_out):
            raise _long_context_unavailable()
        chosen, considered = choose(group.turn(self.last.get(group.model)), claim.long, claim.ruled_out)
        if chosen is not None and self._turns.settled:
            claim.trail.append(Decided(now, considered, chosen))
            return self._lease(group, chosen, claim.long, now)
        claim.trail.append(Decided(now, considered, None))
        if chosen is None and self.queue.size >= self.policy.max_queue:
            raise Failure("queue_full", "the queue is full", retry_after_ms=self._retry_after(group))
        lane = self._wait(claim, group, now)
        if chosen is not None:
            self._turns.joined(lane)  # one is free: whoever is being served is not to be overtaken, no more
        return None

    def _judged(self, claim: Claim) -> Group:
        """The group of a run, by the policy as it is now; :raises Failure:."""
        group = self.groups.get(claim.model)
        if group is None:
            raise Failure("model_not_found", "the model does not exist", param="model")
        unfit = claim.unfit(group)
        claim.ruled_out = claim.tried | unfit if claim.tried else unfit
        claim.long = claim.tokens >= self.policy.long_threshold
        if too_large(claim.tokens, claim.exact, group.window):
            raise Failure(
                "context_length_exceeded",
                f"the request is {'' if claim.exact else 'about '}{claim.tokens} tokens long, and the model's context "
                f"window is {group.window}",
                param="messages",
            )
        return group

    def _lease(self, group: Group, resource: Resource, long: bool, now: int) -> Lease:
        self.last[group.model] = resource.provider_id
        return Lease(resource, group, long, now, self._released)

    def _wait(self, claim: Claim, group: Group, now: int) -> Lane:
        lane = self.queue.add(claim)
        if len(lane.claims) == 1 and not group.has_candidate(claim.ruled_out):
            lane.bare_since = now
            self._alarm.at(now + BARE_MS)
        self.queue.limit(claim, self.policy.queue_timeout_ms)
        if claim.deadline:
            self._alarm.at(claim.deadline)
        return lane

    def again(self, claim: Claim, lease: Lease, failure: Failure, verdict: Verdict) -> bool:
        """Release a run's slot and look for another provider, those ruled out apart; whether there may be one.

        It keeps its place in the order of arrival, and waits whatever the length of the queue.
        """
        with self.together():
            claim.tried |= {lease.resource.provider_id}
            claim.first_failure = claim.first_failure or failure
            lease.release(verdict)
            try:
                group = self._judged(claim)
            except Failure:
                return False
            if not group.has_candidate(claim.ruled_out) or (claim.long and not group.has_long_slots(claim.ruled_out)):
                return False
            claim.since = self.now()
            self._turns.joined(self._wait(claim, group, claim.since))
        return True

    def withdraw(self, claim: Claim) -> None:
        """A pending run is not wanted any more."""
        if claim.lane is not None:
            self._leave(claim)

    def _released(self, lease: Lease, verdict: Verdict) -> None:
        resource = lease.resource
        if verdict is Verdict.SERVED:
            resource.unconfirmed = False
            group = self.groups.get(lease.group.model)  # a refresh may have made it anew
            if group is not None:
                took, before = self.now() - lease.since, group.service_ms
                group.service_ms = before + _NEW * (took - before) if before else took
        elif verdict is Verdict.UNCONFIRMED:
            resource.unconfirmed = True
        connecting = resource.connecting
        if verdict is Verdict.UNREACHED:
            if connecting.failed(lease.trial, self.now()):
                self._shut.add(resource)
                self._candidates_changed((resource,))
                self._alarm.at(connecting.until or 0)
        elif verdict is Verdict.SERVED or verdict is Verdict.REACHED:
            connecting.reached(lease.trial)
        else:
            connecting.returned(lease.trial)
        if self.queue.size:
            self._turns.changed(resource)

    def reached(self, lease: Lease) -> None:
        """A run has an answer, though not its end: its provider can be connected to."""
        resource = lease.resource
        if resource.connecting.reached(lease.trial) and self.queue.size:
            self._turns.changed(resource)

    # ---- what changes -------------------------------------------------------------------------------------------

    def node_changed(self, node_id: str, reachable: bool, health: Callable[[str], tuple[Health, str]]) -> None:
        """A node came, went, drains, or said how its providers are."""
        of_node, back = self._of_node.get(node_id, ()), []
        for resource in of_node:
            served = resource.candidate and not resource.connecting.why_not
            before, (resource.health, resource.said) = resource.health, health(resource.provider_id)
            resource.reachable = reachable
            if resource.health is Health.UP and before is not Health.UP:
                resource.connecting.clear()  # it has just been connected to
                self._shut.discard(resource)
            if resource.candidate and not resource.connecting.why_not and not served:
                back.append(resource)
        self._candidates_changed(of_node)
        if back:
            self._turns.changed(*back)

    def _candidates_changed(self, resources: Iterable[Resource]) -> None:
        """Runs may have got their first candidate, or lost their last one."""
        now = self.now()
        groups = {group.model: group for each in resources if each.tell_groups() for group in each.groups}
        for group in groups.values():
            for lane in self.queue.lanes_of(group.model):
                if group.has_candidate(lane.ruled_out):
                    lane.bare_since = None
                elif lane.bare_since is None:
                    lane.bare_since = now
                    self._alarm.at(now + BARE_MS)

    def together(self) -> AbstractContextManager[None]:
        """What happens inside happens at once: pending runs are looked at when all of it has happened."""
        return self._turns.together()

    def _serve(self, lane: Lane) -> int:
        group = self.groups[lane.model]
        chosen, considered = choose(group.turn(self.last.get(group.model)), lane.long, lane.ruled_out)
        assert chosen is not None
        claim, now = lane.first, self.now()
        self._leave(claim)
        claim.trail.append(Decided(now, considered, chosen))
        claim.granted(self._lease(group, chosen, lane.long, now))
        return len(group.resources)

    def _leave(self, claim: Claim) -> None:
        """It waits no longer."""
        claim.waited += self.now() - claim.since
        self.queue.remove(claim)
        if not self.queue.size and not self._shut:
            self._alarm.off()

    # ---- time ---------------------------------------------------------------------------------------------------

    def _due(self) -> int | None:
        times = [self.queue.next_deadline()]
        times += [lane.bare_since + BARE_MS for lane in self.queue.lanes() if lane.bare_since is not None]
        times += [resource.connecting.until for resource in self._shut]
        return min((time for time in times if time is not None), default=None)

    def _time(self) -> None:
        """End the waits that have lasted too long, the timeouts first; let shut providers be tried again.

        Not all at once, when they are many: the alarm rings again for the rest.
        """
        now, left = self.now(), self._at_once
        retry_after: dict[str, int] = {}
        with self.together():
            late = self.queue.overdue(now, left)
            leaving = Counter(claim.model for claim in late)
            for claim in late:
                left -= 1
                if claim.model not in retry_after:
                    retry_after[claim.model] = self._retry_after(self.groups.get(claim.model), leaving[claim.model])
                self._end_wait(claim, _timed_out(retry_after[claim.model]))
            for claim in self._bare(now)[: int(min(left, self.queue.size))]:
                self._end_wait(claim, claim.first_failure or _no_provider())
            for resource in [each for each in self._shut if (each.connecting.until or 0) <= now]:
                self._shut.discard(resource)
                resource.connecting.try_again()
                self._candidates_changed((resource,))
                self._turns.changed(resource)
        self._set_alarm()

    def _bare(self, now: int) -> list[Claim]:
        """Return the runs that have had no candidate for as long as they may, oldest first."""
        lanes = [x for x in self.queue.lanes() if x.bare_since is not None and x.bare_since + BARE_MS <= now]
        return sorted((claim for lane in lanes for claim in lane.claims.values()), key=lambda claim: claim.seq)

    def _set_alarm(self) -> None:
        due = self._due()
        if due is not None:
            self._alarm.at(due)

    def _end_wait(self, claim: Claim, failure: Failure) -> None:
        if claim.lane is None:  # what became of another one ended it
            return
        self._leave(claim)
        claim.refused(failure)

    def _retry_after(self, group: Group | None, leaving: int = 0) -> int:
        """When a slot may be free for one more, by how long runs took lately.

        :param leaving: how many of those that wait for one are about to leave.
        """
        if group is None or not group.service_ms:
            return _RETRY_AFTER_MS
        slots = sum(resource.capacity for resource in group.resources if resource.candidate)
        ahead = 1 - leaving + sum(len(lane.claims) for lane in self.queue.lanes_of(group.model))
        wait = math.ceil(group.service_ms * ahead / max(1, slots))
        return min(max(wait, _RETRY_AFTER_MS), _LONGEST_RETRY_AFTER_MS)

    # ---- IRefreshable: resources stay, so that leases in hand do ------------------------------------------------

    def prepare(self, config: config.EdgeConfig) -> Prepared:
        """Make the new groups; :raises Failure: for providers that come or go, which a restart alone can do."""
        if {provider.id for node in config.nodes for provider in node.providers} != self.resources.keys():
            raise Failure("internal", "providers come and go with a restart only")
        return prepared(config, self.resources)

    def commit(self, token: Prepared) -> None:
        """Go over; a capacity may now be less than what is in flight. :meth:`judge` follows."""
        for id, settings in token.settings.items():
            for name, value in settings.items():
                setattr(self.resources[id], name, value)
        for id in token.groups.keys() & self.groups.keys():
            token.groups[id].service_ms = self.groups[id].service_ms
        for resource in self.resources.values():
            resource.groups = []
            resource.tell_groups()
        for group in token.groups.values():
            group.look()
            for resource in group.resources:
                resource.groups.append(group)
        self.groups, self.policy = token.groups, token.policy

    def abandon(self, token: Prepared) -> None:
        """Forget it."""

    def judge(self) -> None:
        """Judge every pending run again, from the oldest, as if it arrived now, but for its place and its waiting."""
        now = self.now()
        bare = {claim.seq: lane.bare_since for lane in self.queue.lanes() for claim in lane.claims.values()}
        pending, refused, latest = list(self.queue), [], dict[Lane, int]()
        for claim in pending:
            self.queue.remove(claim)
        self.queue.unlimit()
        with self.together():
            self._turns.changed(*self.resources.values())
            for claim in pending:
                try:
                    group = self._judged_again(claim, now)
                except Failure as failure:
                    refused.append((claim, failure))
                    continue
                lane, since = self._wait(claim, group, now), bare[claim.seq]
                if lane.bare_since is not None:
                    latest[lane] = max(latest.get(lane, 0), now if since is None else since)
            for lane, since in latest.items():
                lane.bare_since = since  # a refresh does not begin their sixty seconds anew, nor end anybody's early
            self._refuse([(claim, why, claim.waited + now - claim.since) for claim, why in refused])
        self._set_alarm()

    def _refuse(self, refused: list[tuple[Claim, Failure, int]]) -> None:
        """Tell pending runs why they are refused and how long they waited; not all at once, when they are many."""
        many = int(min(self._at_once, len(refused)))
        for claim, why, waited in refused[:many]:
            claim.waited = waited
            claim.refused(why)
        if len(refused) > many:
            self._clock.callLater(0, lambda: self._refuse(refused[many:]))

    def _judged_again(self, claim: Claim, now: int) -> Group:
        group = self._judged(claim)
        if claim.long and not group.has_long_slots(claim.ruled_out):
            if claim.first_failure is not None and group.has_long_slots():
                raise claim.first_failure  # those that could have served it have failed
            raise _long_context_unavailable()
        timeout = self.policy.queue_timeout_ms
        if timeout and claim.waited + now - claim.since >= timeout:
            raise _timed_out(self._retry_after(group))
        return group

    # ---- seen from outside --------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether any provider of any model group can serve."""
        return any(group.has_candidate() for group in self.groups.values())

    @property
    def in_flight(self) -> int:
        """Leases held, all providers together."""
        return sum(resource.in_flight for resource in self.resources.values())

    def queued(self, resource: Resource, *, long: bool = False) -> int:
        """Count the pending runs for which a provider is a candidate; only the long ones, if so asked."""
        if not resource.candidate:
            return 0
        return sum(
            len(lane.claims)
            for group in resource.groups
            for lane in self.queue.lanes_of(group.model)
            if resource.provider_id not in lane.ruled_out and (lane.long or not long)
        )


def _timed_out(retry_after_ms: int) -> Failure:
    return Failure("queue_timeout", "no slot of the model became free in time", retry_after_ms=retry_after_ms)


def _no_provider() -> Failure:
    return Failure("no_provider", "no provider of the model is up", retry_after_ms=_RETRY_AFTER_MS)


def _long_context_unavailable() -> Failure:
    return Failure("long_context_unavailable", "no provider of the model takes requests as long as this one")
