"""A node's link to its edge: dial, register, serve, and dial again.

``docs/contracts/wire.md`` (Registration, Liveness and loss). Backoff is exponential with jitter, 0.2 s to 15 s, and
starts anew after a registration that was accepted.
"""

from __future__ import annotations

import platform
import secrets
from collections.abc import Callable
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure as TwistedFailure

import iop
from iop import model as m
from iop.errors import Failure
from iop.node.adapterset import AdapterSet, Applied
from iop.node.health import Checks
from iop.node.reports import Reports, Transport
from iop.node.supervisor import Supervisor
from iop.services import Drain
from iop.wire.frames import PART
from iop.wire.peer import LinkState, Side
from iop.wire.protocol import Link

FIRST_DELAY, LAST_DELAY = 0.2, 15.0
REGISTER_TIMEOUT = 15.0
DRAIN_SECONDS = 30.0


def backoff(attempt: int, chance: float) -> float:
    """Return seconds to wait before an attempt; ``chance`` in 0..1 spreads a fleet over half of the delay."""
    longest = min(LAST_DELAY, 2 * FIRST_DELAY * 2.0 ** min(attempt, 10))
    return longest * (0.5 + chance / 2)


def _hint(reason: str) -> str:
    """Return what to add to a reason that comes of text or TLS where a frame's length should be, or the reverse."""
    foreign = reason.startswith(("a frame of ", "Connection was closed cleanly"))
    if foreign or ("SSL routines" in reason and "certificate" not in reason):
        return " (this does not look like an edge's node port; do both sides speak TLS, or neither?)"
    return ""


class Uplink(Service):
    """Keeps one link to the edge, for as long as the node runs.

    :param endpoint: dials the edge.
    :param chance: a random number in 0..1, anew at each call.
    :param adapter_types: names of the plugins found on this machine.
    :param tls_host: who the edge must prove to be, on a link over TLS.
    :param where: what is dialled, for the log.
    """

    log = Logger()

    def __init__(
        self,
        endpoint: IStreamClientEndpoint,
        token: str,
        adapters: AdapterSet,
        supervisor: Supervisor,
        drain: Drain,
        clock: Any,
        chance: Callable[[], float],
        adapter_types: tuple[str, ...] = (),
        tls_host: str = "",
        where: str = "",
    ) -> None:
        self._edge = f"the edge at {where}" if where else "the edge"
        self._tls_host = tls_host
        self._endpoint = endpoint
        self._token = token
        self._adapters = adapters
        self._supervisor = supervisor
        self._checks = Checks(adapters, supervisor.busy, clock)
        self._reports = Reports(adapters, supervisor, self._checks, adapter_types, clock.seconds)
        self._linked_at = 0.0
        self._links = 0
        self._last_loss = ""
        self._drain = drain
        self._clock = clock
        self._chance = chance
        self._adapter_types = adapter_types
        self._instance = secrets.token_hex(8)
        self._attempt = 0
        self._said = ""
        self._redial: IDelayedCall | None = None
        self._register_timer: IDelayedCall | None = None
        self._dialling: Deferred[Any] | None = None
        self._link: Link | None = None
        self.node_id = ""

    @property
    def registered(self) -> bool:
        """Whether the edge has accepted this node."""
        return self._link is not None and self._link.peer.state is LinkState.REGISTERED

    # ---- dialling -----------------------------------------------------------------------------------------------

    def startService(self) -> None:
        super().startService()
        self._dial()

    def _dial(self) -> None:
        self._redial = None
        factory = Factory.forProtocol(lambda: Link(Side.NODE, self, self._clock, tls_host=self._tls_host))
        factory.noisy = False
        self._dialling = self._endpoint.connect(factory)
        self._dialling.addErrback(self._not_dialled)

    def _not_dialled(self, reason: TwistedFailure) -> None:
        self._dialling = None
        if reason.check(CancelledError) and not self.running:
            return
        self._say("{edge} cannot be reached: {why}", reason.getErrorMessage())
        self._again()

    def _again(self) -> None:
        if not self.running or self._redial is not None:
            return
        delay = backoff(self._attempt, self._chance())
        self._attempt += 1
        self._redial = self._clock.callLater(delay, self._dial)

    def _say(self, text: str, why: str) -> None:
        """Log a reason once, not at each attempt."""
        if self._said != why:
            self._said = why
            self.log.warn(text + "; trying again and again", edge=self._edge, why=why)

    # ---- what the link brings -----------------------------------------------------------------------------------

    def link_made(self, link: Link) -> None:
        if not self.running:
            link.drop("the node is stopping")
            return
        self._dialling = None
        self._link = link
        self._linked_at = self._clock.seconds()
        self._links += 1
        link.send(
            m.RegisterRequest(
                token=self._token,
                agent_version=iop.__version__,
                instance_id=self._instance,
                hostname=platform.node(),
                platform=f"{platform.system()} {platform.machine()}",
                adapter_types=self._adapter_types,
            )
        )
        self._register_timer = self._clock.callLater(REGISTER_TIMEOUT, link.drop, "the edge did not answer")

    def on_register_response(self, response: m.RegisterResponse) -> None:
        link = self._link
        assert link is not None
        self._registering_done()
        if not response.accepted:
            self._say("{edge} refused this node: {why}", f"{response.reason}: {response.message}")
            link.drop(response.reason)  # not close: over TLS that would wait for the other side's goodbye
            return
        self._attempt = 0
        self._said = ""
        self.node_id = response.node_id
        link.heartbeat_ms = response.heartbeat_ms or link.heartbeat_ms
        if response.max_frame_bytes:  # nobody takes less than a part in its envelope
            link.max_frame = min(link.max_frame, max(response.max_frame_bytes, 2 * PART))
        Deferred.fromCoroutine(self._take(link, response.config)).addErrback(
            lambda reason: self.log.failure("the payload could not be taken", failure=reason)
        )

    async def _take(self, link: Link, payload: m.NodePayload) -> None:
        applied = await self._adapters.register(payload)
        self.log.info(
            "registered as {node}: {count} adapters{trouble}",
            node=self.node_id,
            count=len(payload.adapters) - len(applied.failed),
            trouble=f"; {applied.message}" if applied.failed else "",
        )
        self._report(link, "", applied)
        if not link.lost:
            self._checks.begin(link.send)

    def _report(self, link: Link, request_id: str, applied: Applied) -> None:
        link.send(
            m.NodeConfigRefreshResponse(
                request_id=request_id,
                revision=self._adapters.revision,
                status=applied.status,
                message=applied.message,
                changed_adapters=applied.changed,
                failed_adapters=applied.failed,
            )
        )

    def on_refresh_request(self, request: m.NodeConfigRefreshRequest) -> None:
        assert self._link is not None
        Deferred.fromCoroutine(self._refresh(self._link, request)).addErrback(
            lambda reason: self.log.failure("the payload could not be taken", failure=reason)
        )

    async def _refresh(self, link: Link, request: m.NodeConfigRefreshRequest) -> None:
        async with self._adapters.turn():  # the registration's payload may still be in the making
            if not link.lost:  # its successor has been told another one
                self._report(link, request.request_id, self._adapters.refresh(request.payload))
                self._checks.follow(link.send)

    def on_run_request(self, asked: tuple[m.RunRequest, int]) -> None:
        assert self._link is not None
        self._supervisor.run(self._link, *asked)

    def on_run_input(self, part: m.RunInput) -> None:
        self._supervisor.input(part)

    def on_run_window(self, window: m.RunWindow) -> None:
        self._supervisor.window(window)

    def on_cancel_request(self, request: m.CancelRequest) -> None:
        link = self._link
        assert link is not None
        if request.action is m.CancelAction.CANCEL_RUN:
            # answered first: the run's last event may be sent while it is cancelled, and the edge forgets it then
            found = request.run_id in self._supervisor.runs
            link.send(m.CancelResponse(request.request_id, found))
            self._supervisor.cancel(request.run_id)
            return

        def answer(result: Any) -> None:
            failed = isinstance(result, TwistedFailure)
            why = result.value.message if failed and isinstance(result.value, Failure) else ""
            link.send(m.CancelResponse(request.request_id, not failed and bool(result), why))

        Deferred.fromCoroutine(self._supervisor.terminate_session(request.adapter, request.session_id)).addBoth(answer)

    def on_command_request(self, request: m.NodeCommandRequest) -> None:
        assert self._link is not None
        transport = Transport(self._link, self._linked_at, self._links - 1, self._last_loss)
        try:
            answer = self._reports.answer(request, transport)
        except Exception:
            self.log.failure("a report could not be made")
            answer = m.NodeCommandResponse(request.request_id, error="the node could not make this report")
        self._link.send(answer)

    def link_paused(self) -> None:
        self._supervisor.link_paused(True)

    def link_resumed(self) -> None:
        self._supervisor.link_paused(False)

    def link_lost(self, reason: str) -> None:
        unanswered = self._register_timer is not None or self._link is None
        was_registered = self.node_id != "" and not unanswered and not self._said
        self._registering_done()
        self._link = None
        self._last_loss = reason
        self._checks.stop()
        self._supervisor.cancel_all()
        if unanswered and self.running:
            self._say("{edge} did not register this node: {why}", reason + _hint(reason))
        elif was_registered and self.running:
            self.log.warn("the link to {edge} is lost: {reason}", edge=self._edge, reason=reason)
        self._again()

    def _registering_done(self) -> None:
        if self._register_timer is not None and self._register_timer.active():
            self._register_timer.cancel()
        self._register_timer = None

    # ---- leaving ------------------------------------------------------------------------------------------------

    async def stopService(self) -> None:
        """Take no new runs, finish those there are within the drain time, leave."""
        super().stopService()
        if self._redial is not None:
            self._redial.cancel()
            self._redial = None
        if self._dialling is not None:
            self._dialling.cancel()
        link = self._link
        if link is not None:
            if self.registered:
                link.send(m.NodeDraining())
                await self._drain.wait(lambda: not self._supervisor.runs or link.lost, DRAIN_SECONDS)
            link.close("the node is stopping")
        self._checks.stop()
        self._supervisor.cancel_all()
        await self._drain.wait(lambda: not self._supervisor.runs, 5.0)
        await self._adapters.stop()
