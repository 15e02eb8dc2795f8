"""One run: admitted, dispatched, perhaps to another provider again, and ended exactly once.

A run holds its lease from admission until its terminal event, the loss of its link, or, after a cancel that nobody
confirms, the end of patience (``docs/contracts/wire.md``, Cancel; ``docs/contracts/pool.md``, Failover).
"""

from __future__ import annotations

import secrets
from collections.abc import Set
from itertools import count
from typing import Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from iop import model as m
from iop.edge.nodes.link import CANCEL_PATIENCE, NodeLink
from iop.edge.nodes.registry import Registry
from iop.edge.pool.admission import Group, Place
from iop.edge.pool.lease import Lease, Verdict
from iop.edge.pool.pool import Pool
from iop.edge.pool.queue import NOBODY, Attempted, Claim, Decided, Routed
from iop.edge.record import Attempt, Record
from iop.edge.runs.ask import Answer, Ask
from iop.edge.runs.sessions import Sessions
from iop.edge.runs.tally import Tally
from iop.errors import Failure
from iop.wire.peer import RunRules, RunState, Violation
from iop.wire.window import Window

LONGEST_NAME: Final = 200
"""Characters that are kept of a model that a client made up."""

WINDOW = 1 << 20
"""Bytes of an answer that may be on their way to one client."""

_NOTHING_RAN: Final = frozenset({"adapter_unavailable", "session_busy"})
"""Failures after which even a run that may change something is sent elsewhere."""


class Service(Protocol):
    """What a run needs of what runs it."""

    clock: IReactorTime
    log: Logger
    nodes: Registry
    pool: Pool
    sessions: Sessions
    window: int

    def knows(self, model: str) -> bool:
        """Whether the configuration has a model."""

    def over(self, run: Run, record: Record) -> None:
        """A run has ended."""


class Run(Claim):
    """One run on its way. :meth:`cancel` may be called at any time, and more than once.

    :ivar session_id: of a conversation that goes on, where its model has a provider that keeps some; else "".
    :ivar admitted: whether the pool let it in, to a slot or to the queue.
    :ivar outcome: how it ended: "complete", "cancelled", a failure's code, or its HTTP status where the backend gave no
        code; "" until that is known.
    :ivar ended_at: when it ended, in ms of the pool's clock; 0 until then.
    """

    __slots__ = (
        "_answer",
        "_ask",
        "_node_id",
        "_patience",
        "_place",
        "_rules",
        "_service",
        "_status",
        "_tally",
        "_window",
        "admitted",
        "ended_at",
        "id",
        "lease",
        "link",
        "outcome",
        "request_id",
        "session_id",
    )

    def __init__(self, service: Service, ask: Ask, answer: Answer) -> None:
        super().__init__(ask.model, ask.tokens if ask.longest is None else ask.longest)
        self._service = service
        self._ask: Ask | None = ask
        self._answer: Answer | None = answer
        self._patience: IDelayedCall | None = None
        self._rules = RunRules()
        self._window = Window(service.window)
        self.id = new_id("run")
        self.request_id = ask.request_id
        self.session_id = ""
        self._place: Place | None = None
        self.link: NodeLink | None = None
        self._node_id = ""
        self.lease: Lease | None = None
        self.admitted = True
        self.outcome = ""
        self.ended_at = 0
        self._tally = Tally()
        self._status = 499

    @property
    def ended(self) -> bool:
        """Whether nothing of it goes on, here or on its node."""
        return self.ended_at > 0

    # ---- on its way to a provider -------------------------------------------------------------------------------

    def start(self, lease: Lease) -> None:
        """Send it where it has a slot; what goes wrong is raised, and ends it."""
        resource = lease.resource
        link = self._service.nodes.entries[resource.node_id].link
        assert link is not None
        self.lease = lease
        if self.session_id and resource.sessions:
            self._service.sessions.keep(self.session_id, resource.node_id, resource.adapter)
        self.send(link, resource.adapter, lease.target, resource.provider_id, resource.native)

    def send(self, link: NodeLink, adapter: str, target: str, provider_id: str, native: Set[str]) -> None:
        """Send it over a link; what goes wrong is raised, and ends it.

        :param native: the APIs that the backend has. Of another one the adapter is told nothing of HTTP.
        """
        ask = self._ask
        assert ask is not None
        self.link = link
        self._node_id = link.node_id
        try:
            passes = ask.api in native and not ask.translated()
            request = m.RunRequest(
                run_id=self.id,
                adapter=adapter,
                target=target,
                provider_id=provider_id,
                mode=m.Mode.PASSTHROUGH if passes else m.Mode.NORMALIZED,
                input=ask.native(target) if passes else ask.as_chat(target),
                http=ask.http if passes else None,
                secret_headers=ask.secret_headers,
                thinking=ask.thinking(),
                metadata=ask.metadata if passes else {**ask.metadata, **ask.trace},
                window_bytes=self._service.window,
                workspace=ask.workspace,
                session_id=self.session_id,
            )
            link.start(request, self)
        except Failure as failure:
            self._status = failure.http_status
            self._end(_outcome(failure))
            raise
        except BaseException:
            self._status = 500
            self._end("internal")
            raise

    def unfit(self, group: Group) -> frozenset[str]:
        """Return the providers that do not have its session, or, where no chat says the same, not its API."""
        ask = self._ask
        assert ask is not None
        unfit = NOBODY
        if ask.session_id:
            self._bind(ask.session_id, group)
            if self.session_id:
                unfit = Sessions.unfit(self._place, group)
        if ask.chat is None and (without := group.without(ask.api)):
            unfit = unfit | without if unfit else without
            if unfit.issuperset(group.order):
                raise ask.unserved()
        return unfit

    def _bind(self, session_id: str, group: Group) -> None:
        """Go on in its session where the model has a provider that keeps some; :raises Failure: ``session_busy``.

        A session id is the caller's own word where no provider does.
        """
        sessions = self._service.sessions
        if not group.keeps_sessions:
            sessions.end(self.session_id)
            self.session_id = ""
            return
        if not self.session_id:
            sessions.begin(session_id)
            self.session_id = session_id
        if not self.tried:  # else it has been where nothing ran, which is no place to stay
            self._place = sessions.place_of(session_id)

    def granted(self, lease: Lease) -> None:
        """Its wait is over: send it."""
        answer = self._answer
        assert answer is not None
        try:
            answer.sent()
            self.start(lease)
        except Failure as failure:
            answer.failed(failure, None)
        except Exception:
            self._service.log.failure("{run} could not be sent", run=self.id)
            answer.failed(Failure("internal", "the request could not be sent"), None)

    def turned_away(self, failure: Failure) -> None:
        """It was not admitted; whoever wanted it knows."""
        self.admitted = False
        self._status = failure.http_status
        self._end(_outcome(failure))

    def refused(self, failure: Failure) -> None:
        """Its wait is over: it gets no slot."""
        answer = self._answer
        if answer is not None:
            self._status = answer.status or failure.http_status
        self._end(_outcome(failure))
        if answer is not None:
            answer.failed(failure, None)

    def _goes_on(self, failure: Failure) -> bool:
        """Let another provider do what one could not, if that can be; its slot is given back."""
        answer, lease, link = self._answer, self.lease, self.link
        if not failure.retryable or answer is None or lease is None or link is None:
            return False
        if (lease.resource.once and failure.code not in _NOTHING_RAN) or not answer.again():
            return False
        link.forget(self.id)
        self.lease = self.link = None
        self._rules = RunRules()
        self._window = Window(self._service.window)
        self._attempted(_outcome(failure), failure.http_status)
        self._tally = Tally()
        if not self._service.pool.again(self, lease, failure, _verdict(failure)):
            return False
        self._service.log.info(
            "{run}: {code} at {provider}; another provider is asked",
            run=self.id,
            code=_outcome(failure),
            provider=lease.resource.provider_id,
        )
        if self.lane is not None:
            answer.waits()
        return True

    def _attempted(self, outcome: str, status: int = 0) -> None:
        """It was somewhere; where, its trail says last."""
        sent = self.trail[-1]
        if isinstance(sent, Decided) and sent.chosen is not None:
            name = sent.chosen.provider_id
        else:
            name = sent.adapter if isinstance(sent, Routed) else "-"
        self.trail.append(Attempted(self._service.pool.now(), self._node_id, name, outcome, status))

    # ---- what the client does -----------------------------------------------------------------------------------

    def taken(self, size: int) -> None:
        """So many bytes of the answer have left the edge: let the node send as many."""
        window = self._window
        window.taken += size
        if window.taken >= window.step and self.link is not None and not self.ended:
            self.link.give(self.id, window.give())

    def cancel(self) -> None:
        """Nobody wants the answer any more; the slot stays taken until the backend has stopped."""
        if self.ended or self._answer is None:
            return
        self._answer = None
        link = self.link
        if link is None:
            self._service.pool.withdraw(self)
            self._end("cancelled")
            return
        patience = CANCEL_PATIENCE if self.lease is None else self.lease.resource.cancel_patience
        self._patience = self._service.clock.callLater(patience, self._unconfirmed)
        link.cancel(self.id).addCallbacks(self._cancel_answered, lambda _: None)

    def _cancel_answered(self, response: m.CancelResponse) -> None:
        if not response.found:
            self._end("cancelled")

    def _unconfirmed(self) -> None:
        self._patience = None
        self._service.log.warn("{run} was cancelled and never ended; its provider is degraded", run=self.id)
        self._end("cancelled", Verdict.UNCONFIRMED)

    def stop(self, failure: Failure, why: str = "") -> None:
        """End it from this side, for a reason that the client is told; the slot stays taken as after a cancel.

        :param why: for the log.
        """
        answer = self._answer
        if answer is not None:
            if why:
                self._service.log.warn("{run} was stopped: {why}", run=self.id, why=why)
            self.outcome = failure.code
            self._status = answer.status or failure.http_status
            self.cancel()
            answer.failed(failure, None)

    # ---- what the link brings -----------------------------------------------------------------------------------

    def event(self, seq: int, event: m.RunEvent) -> None:
        kind = type(event)
        answer = self._answer
        if answer is None:  # cancelled: only its end still matters
            if kind is not m.Start and kind is not m.Delta:
                self._end("cancelled", usage=event.usage)  # type: ignore[union-attr]
            return
        rules = self._rules
        if kind is m.Delta and seq == rules.seq and rules.state is RunState.STARTED:  # RUN's usual line, without a call
            rules.seq = seq + 1
            tally = self._tally
            if not tally.pieces:
                tally.first_at = self._service.pool.now()
            tally.pieces += 1
            if not event.body:  # type: ignore[union-attr]
                tally.said += len(event.text) + len(event.reasoning)  # type: ignore[union-attr]
            answer.delta(event)  # type: ignore[arg-type]
            return
        try:
            rules.event(seq, kind)
        except Violation as violation:
            self.stop(Failure("protocol_error", "the node broke the protocol of the run"), str(violation))
            return
        if kind is m.Start:
            if self.lease is not None:
                self._service.pool.reached(self.lease)
            if event.metadata.get(m.TEXT_TOOL_FALLBACK) == "true":  # type: ignore[union-attr]
                self._tally.fallback = "plain_text"
            answer.started(event)  # type: ignore[arg-type]
        else:
            self._over(answer, event)

    def _over(self, answer: Answer, event: m.RunEvent) -> None:
        """Its terminal event came."""
        try:
            if isinstance(event, m.Whole | m.Complete):
                self._completed(answer, event)
            elif isinstance(event, m.Error):
                self._failed(event.failure, event.usage)
            elif isinstance(event, m.Cancelled):
                self._failed(Failure("cancelled", "the run was cancelled on its node"), event.usage)
        except Exception:
            self._service.log.failure("the end of {run} could not be told", run=self.id)
            self._status = answer.status or 500
            self._end("internal")
            answer.failed(Failure("internal", "the answer could not be handled"), None)

    def _completed(self, answer: Answer, event: m.Whole | m.Complete) -> None:
        """The answer is whole, though perhaps not what its client can be given."""
        tally = self._tally
        if tally.first_at is None:
            tally.first_at = self._service.pool.now()
        outcome = "complete"
        try:
            if isinstance(event, m.Whole):
                answer.whole(event)
            else:
                answer.completed(event)
        except Failure as failure:
            outcome = _outcome(failure)
            answer.failed(failure, event.usage)
        self._status = answer.status
        if tally.fallback and answer.called:
            tally.fallback = "parsed"
        self._end(outcome, Verdict.SERVED, event.usage)

    def link_lost(self) -> None:
        self._failed(Failure("node_lost", "the node that ran this was lost"))

    def _failed(self, failure: Failure, usage: m.Usage | None = None) -> None:
        """An attempt failed: go on elsewhere, else end, with what went wrong first."""
        answer = self._answer
        if answer is None:
            self._end("cancelled", usage=usage)
        elif not self._goes_on(failure):
            first = self.first_failure or failure
            if self.lease is not None and self.lease.resource.once and failure.code not in _NOTHING_RAN:
                first.hopeless = True
            self._status = answer.status or first.http_status
            self._end(_outcome(failure), _verdict(failure), usage, _outcome(first), failure.http_status)
            answer.failed(first, usage)

    def _end(
        self,
        outcome: str,
        verdict: Verdict = Verdict.NOTHING,
        usage: m.Usage | None = None,
        told: str = "",
        status: int = 0,
    ) -> None:
        """It is over.

        :param outcome: how its last attempt ended, and ``status`` the HTTP status of that failure.
        :param told: how it ended by what its client is told, where that may be an earlier attempt's failure.
        """
        if self.ended_at:
            return
        self.ended_at = self._service.pool.now() or 1  # 0 is for those that go on
        outcome = self.outcome or outcome
        self.outcome = self.outcome or told or outcome
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self.link is not None:
            self.link.forget(self.id)
            self._attempted(outcome, status)
        record = self._record(usage)
        self._answer = self._ask = self.first_failure = None  # it is remembered without them: they may quote
        if self.lease is not None:
            self.lease.release(verdict)
        self._service.over(self, record)
        self.link = None  # it would keep a lost link, with all that hangs on it

    def _record(self, usage: m.Usage | None) -> Record:
        """Return what is left of it for those who count."""
        ask = self._ask
        assert ask is not None
        who, arrived, ended, tally = ask.principal, self.arrived, self.ended_at, self._tally
        counted, estimated = tally.tokens(usage, ask.operation, ask.tokens)
        attempts = tuple([Attempt(x.node, x.provider, x.outcome, x.status) for x in self.trail if type(x) is Attempted])
        node, provider = attempts[-1][:2] if attempts else ("", "")
        return Record(
            at=ended / 1000,
            operation=ask.operation,
            outcome=self.outcome,
            status=self._status,
            request_id=self.request_id,
            token_ref="" if who is None else who.token_ref,
            principal_ref="" if who is None else who.principal_ref,
            principal_alias="" if who is None else who.principal_alias or "",
            model=self.model[:LONGEST_NAME],
            known=self._service.knows(self.model),
            stream=ask.stream,
            run_id=self.id,
            admitted=self.admitted,
            provider=provider,
            node=node,
            usage=counted,
            estimated=estimated,
            fallback=tally.fallback,
            queue_ms=self.waited,
            first_ms=None if tally.first_at is None else tally.first_at - arrived,
            total_ms=ended - arrived,
            attempts=attempts,
        )


def _outcome(failure: Failure) -> str:
    """How a run ended that failed so: some backends' failures have no code."""
    return failure.code or str(failure.http_status)


def _verdict(failure: Failure) -> Verdict:
    """What a failure says of the provider."""
    if failure.code == "upstream_connect":
        return Verdict.UNREACHED
    return Verdict.REACHED if failure.answered else Verdict.NOTHING


_process = secrets.token_hex(6)
_numbers = count(1)


def new_id(kind: str) -> str:
    """Return an id that no other process makes: random per process, then counted."""
    return f"{kind}-{_process}{next(_numbers):08x}"
