"""The rules of a link and of a run, as tables; what a table does not hold is a violation.

``docs/contracts/wire.md`` (Registration, Runs). Plain values: no socket, no clock, no protobuf.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum

from iop import model as m


class Violation(Exception):
    """The other side broke a rule; the message says which."""


class Side(Enum):
    """Who one is on a link."""

    EDGE = "edge"
    NODE = "node"


class LinkState(Enum):
    """How far a link has come, seen from one side."""

    OPEN = "open"
    REGISTERING = "registering"
    REGISTERED = "registered"
    CLOSED = "closed"


_UP = {LinkState.REGISTERED: LinkState.REGISTERED}

RECEIVES: Mapping[Side, Mapping[str, Mapping[LinkState, LinkState]]] = {
    Side.EDGE: {
        "register_request": {LinkState.OPEN: LinkState.REGISTERING},
        "run_event": _UP,
        "cancel_response": _UP,
        "node_command_response": _UP,
        "node_config_refresh_response": _UP,
        "provider_status": _UP,
        "node_draining": _UP,
        "ping": _UP,
        "pong": _UP,
    },
    Side.NODE: {
        "register_response": {LinkState.REGISTERING: LinkState.REGISTERED},
        "run_request": _UP,
        "run_input": _UP,
        "run_window": _UP,
        "cancel_request": _UP,
        "node_command_request": _UP,
        "node_config_refresh_request": _UP,
        "ping": _UP,
        "pong": _UP,
    },
}
"""Which message may arrive in which state, and the state after it."""

SENDS: Mapping[Side, Mapping[str, Mapping[LinkState, LinkState]]] = {
    Side.EDGE: {
        **dict.fromkeys(RECEIVES[Side.NODE], _UP),
        "register_response": {LinkState.REGISTERING: LinkState.REGISTERED},
    },
    Side.NODE: {
        **dict.fromkeys(RECEIVES[Side.EDGE], _UP),
        "register_request": {LinkState.OPEN: LinkState.REGISTERING},
    },
}
"""The same for what one sends: breaking it is a bug of ours, not of the peer's."""


ESTABLISHED: Mapping[Side, frozenset[str]] = {
    side: frozenset(kind for kind, states in table.items() if states is _UP) for side, table in RECEIVES.items()
}
"""What may arrive on a registered link and changes nothing about the link: nearly every message."""


class Peer:
    """One side's view of a link."""

    __slots__ = ("_receives", "_sends", "state")

    def __init__(self, side: Side) -> None:
        self._receives = RECEIVES[side]
        self._sends = SENDS[side]
        self.state = LinkState.OPEN

    def received(self, kind: str) -> None:
        """Take note of a message; :raises Violation: when it has no place now."""
        self.state = self._step(self._receives, kind, "received")

    def sent(self, kind: str) -> None:
        """Take note of an own message; :raises Violation: when it has no place now."""
        self.state = self._step(self._sends, kind, "sent")

    def _step(self, table: Mapping[str, Mapping[LinkState, LinkState]], kind: str, verb: str) -> LinkState:
        try:
            return table[kind][self.state]
        except KeyError:
            raise Violation(f"{kind} {verb} on a link that is {self.state.value}") from None


class RunState(IntEnum):
    """How far a run has come, seen through its events."""

    ASKED = 0
    STARTED = 1
    ENDED = 2


RUN: Mapping[tuple[RunState, type], RunState] = {
    (RunState.ASKED, m.Start): RunState.STARTED,
    (RunState.ASKED, m.Whole): RunState.ENDED,
    (RunState.ASKED, m.Error): RunState.ENDED,
    (RunState.ASKED, m.Cancelled): RunState.ENDED,
    (RunState.STARTED, m.Delta): RunState.STARTED,
    (RunState.STARTED, m.Complete): RunState.ENDED,
    (RunState.STARTED, m.Error): RunState.ENDED,
    (RunState.STARTED, m.Cancelled): RunState.ENDED,
}
"""``RunRequest → START → DELTA* → COMPLETE | ERROR | CANCELLED``, or COMPLETE alone with everything in it.

Nothing comes after a terminal event.
"""


class RunRules:
    """One run's events in order: ``seq`` counts from 0 without a gap, types follow :data:`RUN`."""

    __slots__ = ("seq", "state")

    def __init__(self) -> None:
        self.state = RunState.ASKED
        self.seq = 0

    def event(self, seq: int, kind: type) -> None:
        """Take note of an event; :raises Violation: on a gap, a repetition or a type out of turn."""
        if seq != self.seq:
            raise Violation(f"event {seq} where {self.seq} was due")
        state = RUN.get((self.state, kind))
        if state is None:
            raise Violation(f"{kind.__name__} in a run that is {self.state.name.lower()}")
        self.seq = seq + 1
        self.state = state
