"""A node's runs: each adapter's answer, numbered, cut to frames, and held to its credit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure as TwistedFailure
from zope.interface import implementer

from iop import model as m
from iop.errors import Failure
from iop.interfaces import ISink
from iop.node.adapters.environment import Run
from iop.node.adapterset import ANYTHING, AdapterSet, Capabilities
from iop.node.hiding import Hiding
from iop.wire.frames import PART, parts, text_parts
from iop.wire.window import Credit


class Source(Protocol):
    """What a run reads from, and what flow control stops; a ``usage`` it may have is what was counted until now."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class EventWriter(Protocol):
    """Where events go: the link."""

    def send_event(self, run_id: str, seq: int, event: m.RunEvent) -> bool: ...


@implementer(ISink)
class NodeRun:
    """One run on this node, and the sink its adapter talks to.

    :ivar ended: its terminal event is made; it may still wait behind others for credit.
    :ivar hiding: of its adapter.
    """

    log = Logger()

    def __init__(self, request: m.RunRequest, link: EventWriter, done: Callable[[NodeRun], None]) -> None:
        self.request = request
        self.id = request.run_id
        self.ended = False
        self.started = False
        self.cancelled = False
        self.hiding = Hiding()
        self.input: list[bytes] = []
        self.missing = 0
        self.end: m.RunEvent | None = None
        self.working: Deferred[Any] | None = None
        self.deadline: IDelayedCall | None = None
        self._link = link
        self._link_paused = False
        self._done = done
        self._credit = Credit(request.window_bytes)
        self._seq = 0
        self._waiting: deque[m.RunEvent] = deque()
        self._source: Source | None = None
        self._source_paused = False

    # ---- ISink --------------------------------------------------------------------------------------------------

    def attach(self, source: Source) -> None:
        self._source = source
        self._source_paused = False
        self._regulate()

    def start(self, http: m.HttpResponseHead | None = None, metadata: Mapping[str, str] | None = None) -> None:
        if self.ended:
            return
        if self.started:
            raise RuntimeError("a run starts once")
        self.started = True
        self._put(m.Start(http, metadata or {}))

    def delta(self, body: bytes = b"", text: str = "", reasoning: str = "") -> None:
        if self.ended:
            return
        if not self.started:
            raise RuntimeError("a piece before the start")
        credit = self._credit
        if body and not self._waiting and credit.left > 0 and len(body) <= PART:  # nearly always
            self._link.send_event(self.id, self._seq, m.Delta(body))
            self._seq += 1
            credit.left -= len(body)
            if credit.left <= 0:
                self._regulate()
            return
        for part in parts(body) if body else ():
            self._put(m.Delta(part))
        for part_of_reasoning in text_parts(reasoning) if reasoning else ():
            self._put(m.Delta(reasoning=part_of_reasoning))
        for part_of_text in text_parts(text) if text else ():
            self._put(m.Delta(text=part_of_text))

    def complete(
        self, finish_reason: str = "", usage: m.Usage | None = None, metadata: Mapping[str, str] | None = None
    ) -> None:
        if not self.started and not self.ended:
            raise RuntimeError("an end before the start")
        self._end(m.Complete(finish_reason, usage, metadata or {}))

    def whole(
        self,
        http: m.HttpResponseHead,
        body: bytes,
        finish_reason: str = "",
        usage: m.Usage | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        if not self.started and not self.ended and len(body) <= PART and self._credit.left > 0:
            self.started = self.ended = True
            self._source = None
            if self.deadline is not None and self.deadline.active():
                self.deadline.cancel()
            self._send(m.Whole(http, body, finish_reason, usage, metadata or {}))
            return
        self.start(http, None)
        self.delta(body)
        self.complete(finish_reason, usage, metadata)

    def fail(self, failure: Failure, usage: m.Usage | None = None) -> None:
        self._end(m.Error(self.hiding.failure(failure, self.request.secret_headers), usage))

    # ---- credit -------------------------------------------------------------------------------------------------

    def credit(self, size: int) -> None:
        """The edge gave credit back."""
        self._credit.add(size)
        self._flush()
        self._regulate()

    def link_paused(self, paused: bool) -> None:
        """The link takes no more for now, or takes again."""
        self._link_paused = paused
        self._regulate()

    def _put(self, event: m.RunEvent) -> None:
        if self._waiting or self._credit.left <= 0:
            self._waiting.append(event)
            self._flush()
        else:
            self._send(event)
        self._regulate()

    def _flush(self) -> None:
        while self._waiting and (self._credit.left > 0 or type(self._waiting[0]) is not m.Delta):
            self._send(self._waiting.popleft())

    def _send(self, event: m.RunEvent) -> None:
        seq, self._seq = self._seq, self._seq + 1
        try:
            sent = self._link.send_event(self.id, seq, event)
        except Exception:  # a value that no message can carry
            self.log.failure("what an adapter said of {run} cannot be sent", run=self.id)
            self._unsendable(seq, Failure("internal", "the adapter's answer cannot be sent"))
            return
        if not sent:
            self._unsendable(seq, Failure("answer_too_large", "what the answer says of itself is larger than a frame"))
        elif type(event) is m.Delta:
            body = event.body or (event.text + event.reasoning).encode("utf-8", "surrogatepass")
            self._credit.spend(len(body))
        elif type(event) is not m.Start:
            self.end = event
            self._done(self)

    def _unsendable(self, seq: int, failure: Failure) -> None:
        """End the run in the place of an event that cannot go out."""
        self._close()
        self._waiting.clear()
        self._link.send_event(self.id, seq, m.Error(failure))
        self._done(self)
        self.cancelled = True
        self._stop_working()

    def _regulate(self) -> None:
        """Let the source go on exactly while there is credit and the link takes more."""
        stop = self._link_paused or bool(self._waiting) or self._credit.left <= 0
        if self._source is not None and stop is not self._source_paused and not self.ended:
            self._source_paused = stop
            try:
                self._source.pause() if stop else self._source.resume()
            except ANYTHING:
                working = self.working
                self._broke(TwistedFailure())
                self.working = working
                self._stop_working()

    def _end(self, event: m.RunEvent) -> None:
        if self.ended:
            return
        self._close()
        if isinstance(event, m.Cancelled | m.Error):
            self._waiting = deque(e for e in self._waiting if type(e) is m.Start)  # nobody needs the rest
        self._put(event)

    def _close(self) -> None:
        self.ended = True
        self._source = None
        if self.deadline is not None and self.deadline.active():
            self.deadline.cancel()

    # ---- its life -----------------------------------------------------------------------------------------------

    def execute(self, adapter: Any, label: str, type: str) -> None:
        """Hand the run to its adapter."""
        try:
            self.working = adapter.run(Run(self.request, label, type), self)
            self.working.addCallbacks(self._worked, self._broke)
        except ANYTHING:
            self._broke(TwistedFailure())
        if self.cancelled:  # while it was being started
            self._stop_working()

    def _stop_working(self) -> None:
        """Cancel what the adapter does. What it makes of that is its own: nobody else's run hears of it."""
        working = self.working
        if working is None:
            return
        try:
            working.cancel()
        except ANYTHING:
            self._broke(TwistedFailure())

    @property
    def _usage(self) -> m.Usage | None:
        """What the adapter has counted until now."""
        try:
            usage = getattr(self._source, "usage", None)
        except ANYTHING:
            return None
        return usage if isinstance(usage, m.Usage) else None

    def _worked(self, _: Any) -> None:
        self.working = None
        if self.cancelled:
            self._end(m.Cancelled(self._usage))
        elif not self.ended:
            self.fail(Failure("internal", "the adapter ended without an answer"))

    def _broke(self, reason: TwistedFailure) -> None:
        self.working = None
        if self.cancelled:
            if not reason.check(CancelledError, Failure):
                self._log_broken(reason)
            self._end(m.Cancelled(self._usage))
        elif isinstance(reason.value, Failure):
            self.fail(reason.value)
        elif reason.check(CancelledError):
            self.fail(Failure("cancelled", "the run was cancelled"))
        else:
            self._log_broken(reason)
            self.fail(Failure("internal", "the adapter failed"))

    def _log_broken(self, reason: TwistedFailure) -> None:
        reason = self.hiding.reason(reason, self.request.secret_headers)
        self.log.failure("an adapter failed on {run}", failure=reason, run=self.id)

    def cancel(self) -> None:
        """Stop the backend; the CANCELLED event follows when that is done."""
        if self.cancelled:
            return
        self.cancelled = True
        if self.ended and self._waiting:  # done here, but the client did not take it all
            self._waiting.clear()
            self._send(m.Cancelled(getattr(self.end, "usage", None)))
        if self.working is not None:
            self._stop_working()
        elif not self.ended:
            self._end(m.Cancelled(self._usage))

    def abandon(self) -> None:
        """The link is lost: stop, and wait for nobody."""
        self._credit.add(1 << 62)
        self._flush()
        self.cancel()

    def out_of_time(self) -> None:
        """Its deadline has passed."""
        self.fail(Failure("deadline_exceeded", "the run's deadline has passed"))
        self._stop_working()


class Supervisor:
    """Every run of a node. Knows links only as where events go.

    :ivar runs: by id, until their terminal event is sent.
    """

    log = Logger()

    def __init__(self, adapters: AdapterSet, clock: IReactorTime) -> None:
        self._adapters = adapters
        self._clock = clock
        self.runs: dict[str, NodeRun] = {}
        self.total = self.failed = 0
        self.input_tokens = self.output_tokens = 0
        self._link_paused = False

    def run(self, link: EventWriter, request: m.RunRequest, input_size: int) -> None:
        """A run is asked for."""
        if request.run_id in self.runs:
            link.send_event(request.run_id, 0, m.Error(Failure("duplicate_run", "this run is under way already")))
            return
        self.total += 1
        run = NodeRun(request, link, self._ended)
        self.runs[run.id] = run
        if request.deadline_ms:
            run.deadline = self._clock.callLater(request.deadline_ms / 1000, run.out_of_time)
        if self._link_paused:
            run.link_paused(True)
        run.missing = input_size - len(request.input)
        self._go_on(run)

    def input(self, part: m.RunInput) -> None:
        """The next part of a long input."""
        run = self.runs.get(part.run_id)
        if run is None or run.missing <= 0:
            return
        run.input.append(part.data)
        run.missing -= len(part.data)
        self._go_on(run)

    def _go_on(self, run: NodeRun) -> None:
        if not run.missing:
            self._execute(run)
        elif run.missing < 0:
            run.missing = 0
            run.fail(Failure("protocol_error", "the run's input is longer than it was said to be"))

    def _execute(self, run: NodeRun) -> None:
        if run.input:
            run.request = run.request._replace(input=b"".join((run.request.input, *run.input)))
            run.input = []
        try:
            adapter = self._adapters.adapter(run.request.adapter)
            can = self._adapters.capabilities(run.request.adapter)
            assert can is not None
            run.request = _in_a_mode_of(can, run.request)
            if can.sessions and run.request.workspace:
                run.request = run.request._replace(workspace=self._adapters.workspace(run.request.workspace))
        except Failure as failure:
            run.fail(failure)
            return
        run.hiding = self._adapters.hiding(run.request.adapter)
        run.execute(adapter, *self._adapters.backend(run.request))

    def busy(self, adapter: str) -> bool:
        """Whether a run of an adapter goes on."""
        return any(run.request.adapter == adapter for run in self.runs.values())

    def window(self, window: m.RunWindow) -> None:
        """Credit for a run."""
        run = self.runs.get(window.run_id)
        if run is not None:
            run.credit(window.add_bytes)

    def cancel(self, run_id: str) -> bool:
        """Cancel a run; return whether there was one."""
        run = self.runs.get(run_id)
        if run is None:
            return False
        run.cancel()
        return True

    async def terminate_session(self, adapter: str, session_id: str) -> bool:
        """End a session and its child; return whether there was one."""
        return bool(await maybeDeferred(self._adapters.adapter(adapter).terminate_session, session_id))

    def link_paused(self, paused: bool) -> None:
        """The link takes no more for now, or takes again."""
        self._link_paused = paused
        for run in list(self.runs.values()):
            run.link_paused(paused)

    def cancel_all(self) -> None:
        """Nobody can receive the answers any more."""
        self._link_paused = False
        for run in list(self.runs.values()):
            run.abandon()

    def of_provider(self, provider_id: str) -> int:
        """Return how many runs of a provider go on."""
        return sum(run.request.provider_id == provider_id for run in self.runs.values())

    def _ended(self, run: NodeRun) -> None:
        if self.runs.get(run.id) is run:
            del self.runs[run.id]
            self.failed += isinstance(run.end, m.Error)
            usage = getattr(run.end, "usage", None)
            if usage is not None:
                self.input_tokens += usage.input_tokens or 0
                self.output_tokens += usage.output_tokens or 0


def _in_a_mode_of(can: Capabilities, request: m.RunRequest) -> m.RunRequest:
    """Return a run as its adapter can run it: the edge does not know what a drop-in can. :raises Failure:"""
    if request.mode in can.modes:
        return request
    path = request.http.path if request.mode is m.Mode.PASSTHROUGH and request.http is not None else ""
    if path == m.EMBEDDINGS and can.embeddings:
        return request
    if path == m.CHAT and m.Mode.NORMALIZED in can.modes:
        return request._replace(mode=m.Mode.NORMALIZED, http=None)
    raise Failure("unknown_url", "the provider does not serve this")
