"""A node that does as a test says: one raw link to a real registry on a memory net."""

from __future__ import annotations

from typing import Any

from memory_net import MemoryNet
from twisted.internet.endpoints import clientFromString
from twisted.internet.protocol import Factory

from iop import model as m
from iop.wire.peer import Side
from iop.wire.protocol import HANDLERS, Link


class NodeEnd:
    """One link seen from the node.

    :ivar got: every message, runs as pairs of request and size of the input.
    """

    def __init__(
        self, net: MemoryNet, token: str = "n1", *, acknowledge: bool = True, register: bool = True, sessions: Any = ()
    ) -> None:
        self._token = token
        self._acknowledge = acknowledge
        self._register = register
        self.got: list[Any] = []
        self.lost: list[str] = []
        self.confirm_cancels = True
        self.sessions = sessions
        self.wire: Link
        for name in HANDLERS[Side.NODE].values():
            if not hasattr(self, name):
                setattr(self, name, self.got.append)
        factory = Factory.forProtocol(lambda: Link(Side.NODE, self, net, 10_000))
        factory.noisy = False
        clientFromString(net, "tcp:127.0.0.1:4610").connect(factory)
        net.run()

    def link_made(self, link: Link) -> None:
        self.wire = link
        if self._register:
            link.send(m.RegisterRequest(self._token, hostname="host", agent_version="9"))

    def on_register_response(self, response: m.RegisterResponse) -> None:
        self.got.append(response)
        if response.accepted and self._acknowledge:
            self.acknowledge()

    def acknowledge(self, *failed: str, status: m.RefreshStatus = m.RefreshStatus.APPLIED) -> None:
        self.wire.send(m.NodeConfigRefreshResponse("", "r", status, "it broke" if failed else "", (), failed))

    def on_command_request(self, request: m.NodeCommandRequest) -> None:
        report = {request.type.lower(): {"sessions": self.sessions} if request.type == "SESSIONS" else {}}
        self.wire.send(m.NodeCommandResponse(request.request_id, report=report))

    def on_cancel_request(self, request: m.CancelRequest) -> None:
        self.got.append(request)
        if self.confirm_cancels:
            self.wire.send(m.CancelResponse(request.request_id, True))

    def link_paused(self) -> None: ...

    def link_resumed(self) -> None: ...

    def link_lost(self, reason: str) -> None:
        self.lost.append(reason)

    # ---- what came

    @property
    def response(self) -> m.RegisterResponse | None:
        return next((got for got in self.got if isinstance(got, m.RegisterResponse)), None)

    def of(self, kind: type) -> list[Any]:
        return [got for got in self.got if type(got) is kind]

    @property
    def runs(self) -> list[m.RunRequest]:
        return [got[0] for got in self.got if type(got) is tuple]

    # ---- what it says

    def say(self, run_id: str, *events: m.RunEvent, seq: int = 0) -> None:
        for number, event in enumerate(events, seq):
            self.wire.send_event(run_id, number, event)
