"""The edge's end of one link: registration, runs, inputs that take turns."""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from iop import model as m
from iop.errors import Failure
from iop.wire.frames import PART
from iop.wire.protocol import Link

REGISTER_TIMEOUT = 10.0
"""Seconds that a stranger has to say who it is."""

QUERY_PATIENCE = 5.0
"""Seconds that a node has to answer a query."""

SESSION_PATIENCE = 60.0
"""Seconds that a node has to end a session: its agent has a grace time."""

REFRESH_PATIENCE = 10.0
"""Seconds that a node has to take a new payload."""

CANCEL_PATIENCE = 10.0
"""Seconds until a cancelled run without an end counts as lost; at least the grace time of its adapter and 5 s."""


class RemoteRun(Protocol):
    """What a link brings to a run of its."""

    def event(self, seq: int, event: m.RunEvent) -> None:
        """An event came."""

    def stop(self, failure: Failure) -> None:
        """An event could not be handled: end it."""

    def link_lost(self) -> None:
        """Nothing more will come."""


class Registrar(Protocol):
    """Who decides whether a link is a node's."""

    def register(self, link: NodeLink, request: m.RegisterRequest) -> None: ...

    def acknowledged(self, link: NodeLink, response: m.NodeConfigRefreshResponse) -> None: ...

    def provider_status(self, link: NodeLink, status: m.ProviderStatus) -> None: ...

    def draining(self, link: NodeLink) -> None: ...

    def flow(self, link: NodeLink) -> None: ...

    def lost(self, link: NodeLink, reason: str) -> None: ...

    def together(self) -> AbstractContextManager[None]:
        """What happens inside happens at once."""


class NodeLink:
    """One connection from a node.

    :ivar node_id: who it is, once registered.
    :ivar ready: whether its payload is acknowledged, so that runs may go there.
    :ivar revision: of the payload that the node said it runs.
    :ivar late: events that came for runs unknown here: after a cancel, usually.
    """

    log = Logger()

    def __init__(self, registrar: Registrar, clock: IReactorTime) -> None:
        self._registrar = registrar
        self._clock = clock
        self._runs: dict[str, RemoteRun] = {}
        self._inputs: deque[tuple[str, memoryview]] = deque()
        self._timer: IDelayedCall | None = None
        self.node_id = ""
        self.ready = False
        self.draining = False
        self.revision = ""
        self.late = 0
        self.wire: Link | None = None

    @property
    def runs(self) -> int:
        """How many runs it carries."""
        return len(self._runs)

    # ---- what the edge asks for ---------------------------------------------------------------------------------

    def start(self, request: m.RunRequest, run: RemoteRun) -> None:
        """Send a run; its events go to ``run`` until :meth:`forget`."""
        assert self.wire is not None
        self._runs[request.run_id] = run
        data = request.input
        if not self.wire.send_run(request, data[:PART]):
            raise Failure("request_too_large", "the request's head is larger than a node takes")
        if len(data) > PART:
            self._inputs.append((request.run_id, memoryview(data)[PART:]))
            self._pump()

    def give(self, run_id: str, credit: int) -> None:
        """Let a run send more."""
        assert self.wire is not None
        self.wire.send(m.RunWindow(run_id, credit))

    def cancel(self, run_id: str) -> Any:
        """Ask for a run's end; return a Deferred of the :class:`~iop.model.CancelResponse`."""
        assert self.wire is not None
        self._drop_input(run_id)
        request_id, answer = self.wire.calls.ask(CANCEL_PATIENCE)
        self.wire.send(m.CancelRequest(request_id, m.CancelAction.CANCEL_RUN, run_id))
        return answer

    def refresh(self, payload: m.NodePayload) -> Deferred[m.NodeConfigRefreshResponse]:
        """Ask the node to go over to another payload; fails with :class:`~iop.wire.calls.Unanswered`."""
        assert self.wire is not None
        request_id, answer = self.wire.calls.ask(REFRESH_PATIENCE)
        self.wire.send(m.NodeConfigRefreshRequest(request_id, payload))
        return answer

    def query(self, type: str, patience: float = QUERY_PATIENCE) -> Deferred[m.NodeCommandResponse]:
        """Ask the node how it is; fails with :class:`~iop.wire.calls.Unanswered`."""
        assert self.wire is not None
        request_id, answer = self.wire.calls.ask(patience)
        self.wire.send(m.NodeCommandRequest(request_id, type))
        return answer

    def end_session(self, adapter: str, session_id: str) -> Deferred[m.CancelResponse]:
        """Ask the node to end a session, and a run of it; fails with :class:`~iop.wire.calls.Unanswered`."""
        assert self.wire is not None
        request_id, answer = self.wire.calls.ask(SESSION_PATIENCE)
        self.wire.send(m.CancelRequest(request_id, m.CancelAction.TERMINATE_SESSION, "", adapter, session_id))
        return answer

    def forget(self, run_id: str) -> None:
        """A run has ended here; what comes of it later is dropped, what is left of its input too."""
        self._runs.pop(run_id, None)
        if self._inputs:
            self._drop_input(run_id)

    def close(self, reason: str) -> None:
        """End the link, and with it what runs there: nothing that comes now is heard."""
        if self.wire is not None:
            self.wire.close(reason)
        self._lose_runs()

    def drop(self, reason: str) -> None:
        """Break the link."""
        if self.wire is not None:
            self.wire.drop(reason)

    def _drop_input(self, run_id: str) -> None:
        self._inputs = deque((i, data) for i, data in self._inputs if i != run_id)

    def _pump(self) -> None:
        """Send parts of long inputs, one a run in turn, while the link takes them."""
        assert self.wire is not None
        while self._inputs and not self.wire.full and not self.wire.lost:
            run_id, data = self._inputs.popleft()
            self.wire.send(m.RunInput(run_id, bytes(data[:PART])))
            if len(data) > PART:
                self._inputs.append((run_id, data[PART:]))

    # ---- what the link brings -----------------------------------------------------------------------------------

    def link_made(self, link: Link) -> None:
        self.wire = link
        self._timer = self._clock.callLater(REGISTER_TIMEOUT, link.drop, "nothing registered in time")

    def on_register_request(self, request: m.RegisterRequest) -> None:
        self.stop_waiting()
        self._registrar.register(self, request)

    def on_run_event(self, run_id: str, seq: int, event: m.RunEvent) -> None:
        run = self._runs.get(run_id)
        if run is None:
            self.late += 1
            return
        try:
            run.event(seq, event)
        except Failure as failure:
            run.stop(failure)
        except Exception:  # one run's trouble is no other's
            self.log.failure("an event of {run} could not be handled", run=run_id)
            run.stop(Failure("internal", "the answer could not be handled"))

    def on_refresh_response(self, response: m.NodeConfigRefreshResponse) -> None:
        self.revision = response.revision
        if not response.request_id:
            self._registrar.acknowledged(self, response)
        elif self.wire is not None:
            self.wire.calls.answered(response.request_id, response)

    def on_provider_status(self, status: m.ProviderStatus) -> None:
        self._registrar.provider_status(self, status)

    def on_node_draining(self, _: m.NodeDraining) -> None:
        self.draining = True
        self._registrar.draining(self)

    def link_paused(self) -> None:
        self._registrar.flow(self)

    def link_resumed(self) -> None:
        self._pump()
        self._registrar.flow(self)

    def link_lost(self, reason: str) -> None:
        self.stop_waiting()
        self.ready = False
        self._inputs.clear()
        self._registrar.lost(self, reason)
        self._lose_runs()

    def _lose_runs(self) -> None:
        runs, self._runs = self._runs, {}
        with self._registrar.together():
            for run_id, run in runs.items():
                try:
                    run.link_lost()
                except Exception:
                    self.log.failure("the end of {run} could not be handled", run=run_id)

    def stop_waiting(self) -> None:
        """It said who it is, or is gone."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
