"""The life of a run: where pool and nodes meet.

A run holds its lease from admission until its terminal event, the loss of its link, or, after a cancel that nobody
confirms, the end of patience (``docs/contracts/wire.md``, Cancel). It ends exactly once.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from itertools import count
from typing import NamedTuple, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger, LogLevel

from iop import model as m
from iop.edge.config import model as config
from iop.edge.nodes.link import CANCEL_PATIENCE, NodeLink
from iop.edge.nodes.registry import Registry
from iop.edge.pool.pool import Lease, Pool
from iop.errors import Failure
from iop.wire.peer import RunRules, RunState, Violation
from iop.wire.window import Window

WINDOW = 1 << 20
"""Bytes of an answer that may be on their way to one client."""


class Ask(NamedTuple):
    """What a surface wants run.

    :ivar input: makes the adapter's input for a target: which one is known only after admission.
    :ivar request_id: by which the client knows its request; for the log.
    """

    model: str
    input: Callable[[str], bytes]
    http: m.HttpRequestHead | None = None
    secret_headers: m.Headers = ()
    metadata: Mapping[str, str] = {}
    request_id: str = ""


class Answer(Protocol):
    """Where a run's answer goes. After ``completed`` or ``failed`` nothing more comes."""

    def started(self, start: m.Start) -> None:
        """The answer begins."""

    def delta(self, delta: m.Delta) -> None:
        """A piece came; :meth:`Run.taken` says when it has left the edge."""

    def completed(self, complete: m.Complete) -> None:
        """The answer is whole."""

    def whole(self, whole: m.Whole) -> None:
        """The answer came whole, at once: nothing came before."""

    def failed(self, failure: Failure, usage: m.Usage | None) -> None:
        """The run failed."""


class Run:
    """One run on its way. :meth:`cancel` may be called at any time, and more than once."""

    __slots__ = (
        "_answer",
        "_patience",
        "_request",
        "_rules",
        "_runs",
        "_window",
        "ended",
        "id",
        "lease",
        "link",
    )

    def __init__(self, runs: Runs, ask: Ask, answer: Answer, link: NodeLink, lease: Lease | None) -> None:
        self._runs = runs
        self.id = new_id("run")
        self._request = ask.request_id, ask.model
        self._answer: Answer | None = answer
        self.link = link
        self.lease = lease
        self._rules = RunRules()
        self._window = Window(runs.window)
        self._patience: IDelayedCall | None = None
        self.ended = False

    def taken(self, size: int) -> None:
        """So many bytes of the answer have left the edge: let the node send as many."""
        window = self._window
        window.taken += size
        if window.taken >= window.step and not self.ended:
            self.link.give(self.id, window.give())

    def cancel(self) -> None:
        """Nobody wants the answer any more; the slot stays taken until the backend has stopped."""
        if self.ended or self._answer is None:
            return
        self._answer = None
        patience = CANCEL_PATIENCE if self.lease is None else self.lease.resource.cancel_patience
        self._patience = self._runs.clock.callLater(patience, self._unconfirmed)
        self.link.cancel(self.id).addCallbacks(self._cancel_answered, lambda _: None)

    def _cancel_answered(self, response: m.CancelResponse) -> None:
        if not response.found:
            self._end()

    def _unconfirmed(self) -> None:
        self._patience = None
        self._runs.log.warn("{run} was cancelled and never ended; its provider is degraded", run=self.id)
        if self.lease is not None:
            self.lease.resource.unconfirmed = True
        self._end()

    # ---- what the link brings -----------------------------------------------------------------------------------

    def event(self, seq: int, event: m.RunEvent) -> None:
        kind = type(event)
        answer = self._answer
        if answer is None:  # cancelled: only its end still matters
            if kind is not m.Start and kind is not m.Delta:
                self._end()
            return
        rules = self._rules
        if kind is m.Delta and seq == rules.seq and rules.state is RunState.STARTED:  # RUN's usual line, without a call
            rules.seq = seq + 1
            answer.delta(event)  # type: ignore[arg-type]
            return
        try:
            rules.event(seq, kind)
        except Violation as violation:
            self.stop(Failure("protocol_error", "the node broke the protocol of the run"), f" ({violation})")
            return
        if kind is m.Delta:
            answer.delta(event)  # type: ignore[arg-type]
        elif kind is m.Start:
            answer.started(event)  # type: ignore[arg-type]
        else:
            self._end()
            try:
                self._tell_end(answer, event)
            except Exception:
                self._runs.log.failure("the end of {run} could not be told", run=self.id)
                answer.failed(Failure("internal", "the answer could not be handled"), None)

    def _tell_end(self, answer: Answer, event: m.RunEvent) -> None:
        if isinstance(event, m.Whole | m.Complete):
            if self.lease is not None:
                self.lease.resource.unconfirmed = False
            if isinstance(event, m.Whole):
                answer.whole(event)
            else:
                answer.completed(event)
        elif isinstance(event, m.Error):
            self._tell_failure(answer, event.failure, event.usage)
        elif isinstance(event, m.Cancelled):
            self._tell_failure(answer, Failure("cancelled", "the run was cancelled on its node"), event.usage)

    def _tell_failure(self, answer: Answer, failure: Failure, usage: m.Usage | None = None, why: str = "") -> None:
        """Tell the client, and the log in one line; a failure's message stays out of it: it may quote the prompt."""
        request_id, model = self._request
        self._runs.log.emit(
            LogLevel.warn if failure.http_status >= 500 else LogLevel.info,
            "{run} failed: {code}, {status}{why} (request {request}, model {model}, provider {provider}, node {node})",
            run=self.id,
            code=failure.code[:64] or "no code",
            status=failure.http_status,
            why=why,
            request=request_id or "-",
            model=model,
            provider=self.lease.resource.provider_id if self.lease is not None else "-",
            node=self.link.node_id,
        )
        answer.failed(failure, usage)

    def stop(self, failure: Failure, why: str = "") -> None:
        """End it from this side, for a reason that the client is told; the slot stays taken as after a cancel.

        :param why: for the log.
        """
        answer = self._answer
        self.cancel()
        if answer is not None:
            self._tell_failure(answer, failure, why=why)

    def link_lost(self) -> None:
        answer = self._answer
        self._end()
        if answer is not None:
            self._tell_failure(answer, Failure("node_lost", "the node that ran this was lost"))

    def abandon(self) -> None:
        """It never left this edge."""
        self._end()

    def _end(self) -> None:
        if self.ended:
            return
        self.ended = True
        self._answer = None
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        self.link.forget(self.id)
        if self.lease is not None:
            self.lease.release()
        self._runs.active.discard(self)


class Runs:
    """Every run of an edge.

    :ivar active: those that have not ended.
    """

    log = Logger()

    def __init__(
        self, settings: config.EdgeConfig, pool: Pool, nodes: Registry, clock: IReactorTime, window: int = WINDOW
    ) -> None:
        self.pool = pool
        self.nodes = nodes
        self.clock = clock
        self.window = window
        self.active: set[Run] = set()
        self.draining = False
        self._routes = {route.model: route for route in settings.openai.model_routes} if settings.openai else {}
        nodes.changed = self._node_changed

    def start(self, ask: Ask, answer: Answer) -> Run:
        """Admit and dispatch a run; its answer may begin before this returns.

        :raises Failure: why it was not admitted.
        """
        if self.draining:
            raise Failure("draining", "the edge is shutting down", retry_after_ms=1000)
        if ask.model in self._routes:
            return self._start_routed(ask, answer, self._routes[ask.model])
        lease = self.pool.admit(ask.model)
        resource = lease.resource
        link = self.nodes.entries[resource.node_id].link
        assert link is not None
        run = Run(self, ask, answer, link, lease)
        self._dispatch(run, ask, resource.adapter, lease.target, resource.provider_id)
        return run

    def _start_routed(self, ask: Ask, answer: Answer, route: config.ModelRoute) -> Run:
        """An older route takes no slot: the named node, else the first with that adapter."""
        for entry in self.nodes.entries.values():
            if route.node not in (None, entry.node.id) or not entry.usable or entry.link is None:
                continue
            if any(a.name == route.adapter and a.enabled for a in entry.node.adapters):
                run = Run(self, ask, answer, entry.link, None)
                self._dispatch(run, ask, route.adapter, route.target, "")
                return run
        raise Failure("no_provider", "no node of the model is up", retry_after_ms=1000)

    def _dispatch(self, run: Run, ask: Ask, adapter: str, target: str, provider_id: str) -> None:
        self.active.add(run)
        try:
            request = m.RunRequest(
                run_id=run.id,
                adapter=adapter,
                target=target,
                provider_id=provider_id,
                mode=m.Mode.PASSTHROUGH if ask.http is not None else m.Mode.NORMALIZED,
                input=ask.input(target),
                http=ask.http,
                secret_headers=ask.secret_headers,
                metadata=ask.metadata,
                window_bytes=self.window,
            )
            run.link.start(request, run)
        except BaseException:
            run.abandon()
            raise

    def _node_changed(self, node_id: str) -> None:
        entry = self.nodes.entries[node_id]
        self.pool.node_changed(node_id, entry.usable, lambda id: entry.health.get(id, m.Health.UNKNOWN))

    def judge_pending(self) -> None:
        """Admission has changed: judge every pending run as if it came now. There is no queue yet: none is pending."""

    @property
    def ready(self) -> bool:
        """Whether any model can be served now."""
        if self.draining:
            return False
        return self.pool.ready or any(entry.usable for entry in self.nodes.entries.values() if self._routes)


_process = secrets.token_hex(6)
_numbers = count(1)


def new_id(kind: str) -> str:
    """Return an id that no other process makes: random per process, then counted."""
    return f"{kind}-{_process}{next(_numbers):08x}"
