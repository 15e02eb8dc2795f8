"""Every run of an edge."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from iop import model as m
from iop.edge.config import model as config
from iop.edge.nodes.link import NodeLink
from iop.edge.nodes.registry import Entry, Registry
from iop.edge.pool.configured import native_apis
from iop.edge.pool.pool import Pool
from iop.edge.pool.queue import Routed
from iop.edge.record import Record
from iop.edge.runs.ask import Answer, Ask
from iop.edge.runs.run import LONGEST_NAME, WINDOW, Run
from iop.edge.runs.sessions import Sessions
from iop.edge.runs.story import Story
from iop.errors import Failure
from iop.settings import TRANSLATED_APIS, WITHOUT_SESSIONS

REMEMBERED = 4096
"""Ended runs whose story can be told; of each only what that needs is left."""

REMEMBERED_REFUSALS = 512
"""The same for runs that were never let in: a storm of them must not drive out the ones that explain it."""


class Runs:
    r"""Every run of an edge.

    :param window: bytes of an answer that may be on their way to one client.
    :param recorders: :class:`iop.interfaces.IRecorder`\ s: who is told of those that have ended.
    :ivar active: those that have not ended, those that wait included.
    """

    log = Logger()

    def __init__(
        self,
        settings: config.EdgeConfig,
        pool: Pool,
        nodes: Registry,
        clock: IReactorTime,
        window: int = WINDOW,
        recorders: Sequence[Any] = (),
    ) -> None:
        self.pool = pool
        self.nodes = nodes
        self.clock = clock
        self.window = window
        self.active: set[Run] = set()
        self.draining = False
        self.recorders = recorders
        self.sessions = Sessions()
        self._ended: deque[Run] = deque(maxlen=REMEMBERED)
        self._refused: deque[Run] = deque(maxlen=REMEMBERED_REFUSALS)
        self._routes = {route.model: route for route in settings.openai.model_routes} if settings.openai else {}
        nodes.changed = self._node_changed
        nodes.registered = self._node_registered
        nodes.together = pool.together

    def start(self, ask: Ask, answer: Answer) -> Run:
        """Admit a run, and dispatch it when it can be; its answer may begin before this returns.

        :raises Failure: why it was not admitted.
        """
        run = Run(self, ask, answer)
        run.arrived = run.since = self.pool.now()  # also of one that the pool is not asked about
        self.active.add(run)
        if self.draining:
            failure = Failure("draining", "the edge is shutting down", retry_after_ms=1000)
            run.turned_away(failure)
            raise failure
        if ask.model in self._routes:
            self._route(run, self._routes[ask.model], ask.session_id)
            return run
        try:
            if ask.chat is not None and ask.api in TRANSLATED_APIS and (ask.translated() or self._translates(run, ask)):
                ask.chat(ask.model)  # what is wrong with it is told before it waits
            lease = self.pool.admit(run)
        except Failure as failure:
            run.turned_away(failure)
            raise
        except BaseException:
            run.turned_away(Failure("internal", "the request could not be admitted"))
            raise
        if lease is None:
            answer.waits()
        else:
            run.start(lease)
        return run

    def can_pass(self, model: str, api: str) -> bool:
        """Whether a provider of a model that has an API itself may serve."""
        group = self.pool.groups.get(model)
        return group is not None and any(api in r.native and r.candidate for r in group.resources)

    def _translates(self, run: Run, ask: Ask) -> bool:
        """Whether a run may go to a provider that does not have its API."""
        group = self.pool.groups.get(run.model)
        return group is not None and any(ask.api not in resource.native for resource in group.resources)

    def _route(self, run: Run, route: config.ModelRoute, session_id: str) -> None:
        """An older route takes no slot: the named node, else the first with that adapter."""
        for entry in self.nodes.entries.values():
            if route.node not in (None, entry.node.id) or not entry.usable or entry.link is None:
                continue
            adapter = next((a for a in entry.node.adapters if a.name == route.adapter and a.enabled), None)
            if adapter is not None:
                if session_id and adapter.type not in WITHOUT_SESSIONS:
                    failure = Failure(
                        "invalid_value",
                        "a session needs a model of `models[]`, not an older route",
                        param="metadata.session_id",
                    )
                    run.turned_away(failure)
                    raise failure
                run.trail.append(Routed(run.arrived, entry.node.id, route.adapter))
                run.send(entry.link, route.adapter, route.target, "", native_apis(adapter.type))
                return
        failure = Failure("no_provider", "no node of the model is up", retry_after_ms=1000)
        run.turned_away(failure)
        raise failure

    def knows(self, model: str) -> bool:
        """Whether the configuration has a model."""
        return model in self.pool.groups or model in self._routes

    def over(self, run: Run, record: Record) -> None:
        """A run has ended."""
        self.active.discard(run)
        if run.session_id:
            self.sessions.end(run.session_id)
        if run.admitted:
            self._ended.append(run)
        else:
            run.model = run.model[:LONGEST_NAME]
            self._refused.append(run)
        self.record(record)

    def record(self, record: Record) -> None:
        """Tell everybody who counts of a request that is over; one that cannot harms no other."""
        for recorder in self.recorders:
            try:
                recorder.record(record)
            except Exception:
                self.log.failure("a request could not be counted")

    def _node_registered(self, entry: Entry, link: NodeLink) -> Deferred[None] | None:
        """Ask a node that may keep sessions which ones it has; it is no candidate before it has said so."""
        if not any(self.pool.resources[provider.id].sessions for provider in entry.node.providers):
            return None

        def learn(response: m.NodeCommandResponse) -> None:
            self.sessions.learn(entry.node.id, response.report.get("sessions", {}).get("sessions", ()))

        return link.query(m.CommandType.SESSIONS.value).addCallbacks(
            learn, lambda _: self.log.warn("node {node} did not say which sessions it has", node=entry.node.id)
        )

    def _node_changed(self, node_id: str) -> None:
        entry = self.nodes.entries[node_id]
        self.pool.node_changed(node_id, entry.usable, entry.health_of)

    def judge_pending(self) -> None:
        """Admission has changed: judge every pending run as if it came now."""
        self.pool.judge()

    def explain(self, id: str) -> dict[str, Any] | None:
        """Return the story of a run, by its id or that of its request; None for one that nobody remembers.

        Of several of one request the newest: ids are counted.
        """
        known = (run for run in (*self.active, *self._ended, *self._refused) if id and id in (run.id, run.request_id))
        found = max(known, key=lambda run: (run.arrived, run.id), default=None)
        return None if found is None else Story(found, self.pool.now()).as_document()

    @property
    def ready(self) -> bool:
        """Whether any model can be served now."""
        if self.draining:
            return False
        return self.pool.ready or any(entry.usable for entry in self.nodes.entries.values() if self._routes)
