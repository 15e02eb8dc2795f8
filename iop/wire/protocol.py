"""The one place where frames meet a transport. It frames, counts and asks the rules; it has none of its own."""

from __future__ import annotations

from typing import Any, Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IHandshakeListener, IPushProducer, IReactorTime
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.protocols.basic import Int32StringReceiver
from twisted.python.failure import Failure as TwistedFailure
from zope.interface import implementer

from iop import model as m
from iop.sockets import prepare, unsent, unwrap, verify_name
from iop.wire import translate
from iop.wire.calls import Calls
from iop.wire.frames import MAX_FRAME, MAX_FRAME_UNREGISTERED
from iop.wire.liveness import PATIENCE, Check, Liveness
from iop.wire.outbox import Outbox
from iop.wire.peer import ESTABLISHED, LinkState, Peer, Side, Violation


class Receiver(Protocol):
    """One end's answer to what a link brings. A method ``on_KIND`` takes each message; see :data:`HANDLERS`."""

    def link_made(self, link: Link) -> None:
        """The socket is connected; nothing is said yet."""

    def link_lost(self, reason: str) -> None:
        """The link is gone; called once, also for a link that never registered."""

    def link_paused(self) -> None:
        """The peer does not read: send less."""

    def link_resumed(self) -> None:
        """The peer reads again."""


HANDSHAKE_TIMEOUT: Final = 15.0
"""Seconds for the TLS handshake of a link that one dialled."""

HANDLERS: Final = {
    Side.EDGE: {
        "register_request": "on_register_request",
        "run_event": "on_run_event",
        "cancel_response": "answer",
        "node_command_response": "answer",
        "node_config_refresh_response": "on_refresh_response",
        "provider_status": "on_provider_status",
        "node_draining": "on_node_draining",
    },
    Side.NODE: {
        "register_response": "on_register_response",
        "run_request": "on_run_request",
        "run_input": "on_run_input",
        "run_window": "on_run_window",
        "cancel_request": "on_cancel_request",
        "node_command_request": "on_command_request",
        "node_config_refresh_request": "on_refresh_request",
    },
}
"""Which method of the receiver takes which message; ``answer`` goes to :class:`Calls`; ping and pong stay here."""


@implementer(IPushProducer, IHandshakeListener)
class Link(Int32StringReceiver):
    """One connection between an edge and a node, seen from one side.

    :param heartbeat_ms: of silence before it asks whether the other side lives.
    :ivar calls: questions that wait for an answer.
    :ivar full: the peer does not read; not ``paused``, which is Twisted's for a receiver that is to hear nothing.
    """

    log = Logger()
    MAX_LENGTH = MAX_FRAME_UNREGISTERED

    def __init__(
        self, side: Side, receiver: Any, clock: IReactorTime, heartbeat_ms: int = 10_000, tls_host: str = ""
    ) -> None:
        self._tls_host = tls_host
        self._handshaking: IDelayedCall | None = None
        self.peer = Peer(side)
        self._established = ESTABLISHED[side]
        self.calls = Calls(clock)
        self.heartbeat_ms = heartbeat_ms
        self.max_frame = MAX_FRAME
        self.lost = False
        self.full = False
        self.bytes_in = self.bytes_out = self.frames_in = self.frames_out = 0
        if side is Side.NODE:  # whom one has dialled is no stranger, and its first answer holds the whole payload
            self.MAX_LENGTH = MAX_FRAME
        self._receiver = receiver
        self._handlers = {kind: getattr(receiver, name) for kind, name in HANDLERS[side].items() if name != "answer"}
        self._on_event: Any = self._handlers.get("run_event")
        self._clock = clock
        self._liveness = Liveness()
        self._beating: IDelayedCall | None = None
        self._nonce = 0
        self._full_beats = 0
        self._taken = 0
        self._unknown: set[str] = set()
        self._reason = ""

    @property
    def heard(self) -> int:
        """A number that grows with every byte that comes: half a frame is a sign of life too."""
        return self.bytes_in + len(self._unprocessed)

    @property
    def stuck(self) -> bool:
        """Whether the peer has not read for a heartbeat; a link that is only full at the moment is none."""
        return self._full_beats > 0

    # ---- sending ------------------------------------------------------------------------------------------------

    def send(self, message: Any) -> None:
        """Send any message but a run event or a long input; a lost link swallows it."""
        if self.lost or self.peer.state is LinkState.CLOSED:
            return
        kind = translate.KINDS[type(message)]
        self.peer.sent(kind)
        if not self.send_envelope(translate.encode(message)):
            self._refuse(f"{kind} to send is longer than a frame")
        elif self._beating is None:
            self._registered()

    def send_event(self, run_id: str, seq: int, event: m.RunEvent) -> bool:
        """Send a run's event; False when it is longer than a frame and was not sent."""
        envelope = translate.encode_event(run_id, seq, event)
        size = len(envelope)
        if size > self.max_frame:
            return False
        if not self.lost:  # send_envelope once more, a call less: this is made per block
            self.frames_out += 1
            self.bytes_out += size + 4
            self._outbox.write(size.to_bytes(4, "big") + envelope)
        return True

    def send_run(self, request: m.RunRequest, first: bytes) -> bool:
        """Send a run's request with the first part of its input; False when that is longer than a frame."""
        return self.send_envelope(translate.encode_run(request, first))

    def send_envelope(self, envelope: bytes) -> bool:
        """Send what is already encoded; False when it is longer than a frame and was not sent."""
        size = len(envelope)
        if size > self.max_frame:
            return False
        if self.lost:
            return True
        self.frames_out += 1
        self.bytes_out += size + 4
        self._outbox.write(size.to_bytes(4, "big") + envelope)
        return True

    def ping(self) -> None:
        """Ask whether the other side lives."""
        self._nonce += 1
        self.send(m.Ping(self._nonce))

    def close(self, reason: str) -> None:
        """Close once everything is written."""
        self._end(reason)
        if self.transport is not None:
            self._outbox.flush()
            self.transport.unregisterProducer()  # type: ignore[attr-defined]
            self.transport.loseConnection()

    def drop(self, reason: str) -> None:
        """Break the link now, with a reason for the log."""
        self._end(reason)
        if self.transport is not None:
            self._outbox.clear()
            self.transport.abortConnection()  # type: ignore[attr-defined]

    def _end(self, reason: str) -> None:
        self._reason = self._reason or reason
        self.peer.state = LinkState.CLOSED

    # ---- receiving ----------------------------------------------------------------------------------------------

    def dataReceived(self, data: bytes) -> None:
        if (
            not self._unprocessed
            and len(data) - 4 == int.from_bytes(data[:4], "big") <= self.MAX_LENGTH
            and len(data) > 4
        ):
            self.stringReceived(data[4:])  # one whole frame, as nearly always while streams are paced
        else:
            super().dataReceived(data)

    def stringReceived(self, string: bytes) -> None:
        if self.lost or self.peer.state is LinkState.CLOSED:
            return
        self.frames_in += 1
        self.bytes_in += len(string) + 4
        try:
            kind, envelope = translate.parse(string)
            if kind in self._established and self.peer.state is LinkState.REGISTERED:
                if kind == "run_event":
                    event = envelope.run_event
                    body = event.body
                    if body and event.type == translate.DELTA:  # nearly always: no call for it
                        self._on_event(event.run_id, event.seq, m.Delta(body))
                    else:
                        self._on_event(event.run_id, event.seq, translate.decode_event(event))
                else:
                    self._received(kind, translate.decode(kind, envelope))
            elif kind is None:
                self._unknown_body(translate.unknown_kind(envelope))
            else:
                self.peer.received(kind)
                self._received(kind, translate.decode(kind, envelope))
                self._registered()
        except (Violation, translate.Malformed) as error:
            self._refuse(str(error))
        except Exception:
            self.log.failure("a message on a link could not be handled")

    def _received(self, kind: str, message: Any) -> None:
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(message)
        elif kind == "ping":
            self.send(m.Pong(message.nonce))
        elif kind == "pong":
            pass  # being heard is all it is for
        elif not self.calls.answered(message.request_id, message):
            self.log.debug("an answer that nobody waits for: {kind}", kind=kind)

    def _unknown_body(self, kind: str) -> None:
        if self.peer.state is not LinkState.REGISTERED:
            raise Violation(f"an unknown body ({kind}) before registration")
        if kind not in self._unknown and len(self._unknown) < 32:
            self._unknown.add(kind)
            self.log.warn("skipping a kind of message unknown here: {kind}", kind=kind)

    def _refuse(self, reason: str) -> None:
        self.log.warn("closing a link: {reason}", reason=reason)
        self.drop(reason)

    def _registered(self) -> None:
        if self.peer.state is LinkState.REGISTERED and self._beating is None and not self.lost:
            self.MAX_LENGTH = MAX_FRAME
            self._beat_later()

    def _beat_later(self) -> None:
        self._beating = self._clock.callLater(self.heartbeat_ms / 1000, self._beat)

    def _beat(self) -> None:
        check = self._liveness.beat(self.heard)
        waiting = unsent(self.transport) + self._outbox.size
        taken = self.bytes_out - waiting
        reads = waiting > 0 and taken > self._taken  # a transport that shows nothing of its buffer has 0 there
        if self.full and not reads:
            self._full_beats += 1
            self._receiver.link_paused()  # once more: now it is stuck
        elif self._full_beats:
            self._full_beats = 0
            self._receiver.link_paused()
        self._taken = taken
        if check is Check.LOST or self._full_beats > PATIENCE:
            self._refuse("the other side does not read" if self._full_beats > PATIENCE else "the other side is silent")
            return
        if check is Check.ASK:
            self.ping()
        self._beat_later()

    # ---- called by Twisted --------------------------------------------------------------------------------------

    def connectionMade(self) -> None:
        assert self.transport is not None
        prepare(self.transport)
        unwrap(self)
        self._outbox = Outbox(self.transport, getattr(self._clock, "at_turn_end", None))
        self.transport.registerProducer(self, True)  # type: ignore[attr-defined]
        if not self._tls_host:
            self._receiver.link_made(self)
        else:
            self._handshaking = self._clock.callLater(HANDSHAKE_TIMEOUT, self.drop, "no TLS handshake in time")

    def _handshake_over(self) -> None:
        if self._handshaking is not None and self._handshaking.active():
            self._handshaking.cancel()

    def handshakeCompleted(self) -> None:
        if not self._tls_host:
            return
        self._handshake_over()
        try:
            verify_name(self.transport.getHandle(), self._tls_host)  # type: ignore[union-attr]
        except Exception:
            self.drop("the other side's certificate does not name it")
        else:
            self._receiver.link_made(self)

    def lengthLimitExceeded(self, length: int) -> None:
        self._refuse(f"a frame of {length} bytes, more than {self.MAX_LENGTH}")

    def connectionLost(self, reason: TwistedFailure = connectionDone) -> None:
        if self.lost:
            return
        self.lost = True
        self._outbox.clear()
        self.peer.state = LinkState.CLOSED
        self._handshake_over()
        if self._beating is not None and self._beating.active():
            self._beating.cancel()
        self.calls.lost()
        self._receiver.link_lost(self._reason or reason.getErrorMessage())

    def pauseProducing(self) -> None:
        self.full = True
        self._receiver.link_paused()

    def resumeProducing(self) -> None:
        self.full = False
        self._full_beats = 0
        self._receiver.link_resumed()

    def stopProducing(self) -> None:
        self.full = True
