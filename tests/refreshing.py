"""An edge without listeners that can be refreshed, and nodes that take a new payload, or do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway_in_memory import document, node
from memory_net import MemoryNet
from twisted.internet.defer import Deferred, execute
from twisted.internet.endpoints import clientFromString
from twisted.internet.protocol import Factory
from zope.interface import implementer

from iop import model as m
from iop.edge.config import ConfigError, Loaded, Problem, load_document
from iop.edge.nodes.registry import Entry, Registry
from iop.edge.pool.pool import Pool
from iop.edge.refresh import RefreshResult
from iop.edge.refresh.apply import Refresher
from iop.edge.runs import Runs
from iop.edge.surfaces.openai.surface import OpenAISurface
from iop.errors import Failure
from iop.interfaces import IRefreshable
from iop.wire.peer import Side
from iop.wire.protocol import HANDLERS, Link

BAD = ConfigError([Problem("heartbeat_ms", 2, "bad.yaml", "range", "must be 1 or more")])

TAKE, FAIL, RESTART, SILENT, CUT = "take", "fail", "restart", "silent", "cut"
STATUS = {TAKE: m.RefreshStatus.APPLIED, FAIL: m.RefreshStatus.FAILED, RESTART: m.RefreshStatus.RESTART_REQUIRED}


class ScriptedNode:
    """A node's link, which answers refreshes as its script says, the last word of it for ever.

    :ivar response: how its registration was answered.
    :ivar payload: what it runs.
    :ivar asked: every refresh it was sent.
    :ivar lost: why it lost its link.
    """

    wire: Link

    def __init__(self, net: MemoryNet, token: str, *script: str, acknowledge: bool = True) -> None:
        self._token = token
        self._acknowledge = acknowledge
        self.script = list(script or (TAKE,))
        self.response: m.RegisterResponse | None = None
        self.payload = m.NodePayload()
        self.asked: list[m.NodeConfigRefreshRequest] = []
        self.lost: list[str] = []
        self.reports: dict[str, Any] = {"USAGE": {"runs_total": 7}}
        self.deaf_to_queries = False
        self.cancels: list[m.CancelRequest] = []
        for name in HANDLERS[Side.NODE].values():
            if not hasattr(self, name):
                setattr(self, name, lambda message: None)
        factory = Factory.forProtocol(lambda: Link(Side.NODE, self, net, 10_000))
        factory.noisy = False
        clientFromString(net, "tcp:127.0.0.1:4610").connect(factory)
        net.run()

    def link_made(self, link: Link) -> None:
        self.wire = link
        link.send(m.RegisterRequest(self._token, hostname="host", agent_version="9"))

    def on_cancel_request(self, request: m.CancelRequest) -> None:
        self.cancels.append(request)
        self.wire.send(m.CancelResponse(request.request_id, True))

    def on_command_request(self, request: m.NodeCommandRequest) -> None:
        if self.deaf_to_queries:
            return
        report = self.reports.get(request.type, {})
        error = "" if request.type in self.reports or request.type == "SESSIONS" else "no such query"
        report_of = {} if error or report is None else {request.type.lower(): report}
        self.wire.send(m.NodeCommandResponse(request.request_id, error, False, report_of))

    def on_register_response(self, response: m.RegisterResponse) -> None:
        self.response = response
        self.payload = response.config
        if self._acknowledge:
            self.acknowledge()

    def acknowledge(self) -> None:
        self.wire.send(m.NodeConfigRefreshResponse("", self.payload.revision, m.RefreshStatus.APPLIED))

    def link_paused(self) -> None: ...

    def link_resumed(self) -> None: ...

    def link_lost(self, reason: str) -> None:
        self.lost.append(reason)

    def on_refresh_request(self, request: m.NodeConfigRefreshRequest) -> None:
        self.asked.append(request)
        word = self.script[0] if len(self.script) == 1 else self.script.pop(0)
        if word == CUT:
            self.wire.transport.cut()  # type: ignore[union-attr]
        elif word != SILENT:
            self.answer(request, word)

    def answer(self, request: m.NodeConfigRefreshRequest, word: str) -> None:
        if word == TAKE:
            self.payload = request.payload
        message = "" if word == TAKE else "no:\nhttp://user:marker-said@backend/"
        status = STATUS[word]
        self.wire.send(m.NodeConfigRefreshResponse(request.request_id, self.payload.revision, status, message))


@implementer(IRefreshable)
class Part:
    """One more part of the edge, which says what it is told to do."""

    def __init__(self, said: list[str], name: str, fails: bool = False) -> None:
        self._said, self._name, self._fails = said, name, fails

    def prepare(self, config: Any) -> str:
        if self._fails:
            raise Failure("internal", f"{self._name} cannot")
        self._said.append(f"{self._name} prepares")
        return self._name

    def commit(self, token: str) -> None:
        self._said.append(f"{token} commits")

    def abandon(self, token: str) -> None:
        self._said.append(f"{token} abandons")


def two_nodes(one: int = 1, two: int = 1, **provider: Any) -> dict[str, Any]:
    """A configuration of n1 (p1) and n2 (p2), each payload told apart by its number."""
    made = document(node("n1", "p1", **provider), node("n2", "p2", **provider))
    for each, number in zip(made["nodes"], (one, two), strict=True):
        each["runtime"] = {"concurrency": number}
    return made


def load(made: dict[str, Any]) -> Loaded:
    return load_document(made, state_dir=Path("/state"))


class World:
    """A refresher over a registry, a pool and a surface.

    :ivar candidates: what files hold, by name.
    :ivar said: what further parts were told, in order.
    """

    def __init__(self, made: dict[str, Any] | None = None, *, slow: float = 0.0, failing: bool = False) -> None:
        self.net = MemoryNet()
        self.candidates: dict[str, dict[str, Any] | ConfigError] = {"start": made or two_nodes()}
        settings = self.load(["start"]).config
        self.nodes = Registry(settings.nodes, heartbeat_ms=settings.heartbeat_ms, clock=self.net)
        self.pool = Pool(settings, self.net)
        self.runs = Runs(settings, self.pool, self.nodes, self.net)
        self.surface = OpenAISurface(settings, self.runs, self.net)
        self.said: list[str] = []
        self.net.listenTCP(4610, self.nodes.factory())
        self.slow = slow
        self.refresher = Refresher(
            settings,
            files=["start"],
            load=self.load,
            nodes=self.nodes,
            parts=[self.pool, self.surface, Part(self.said, "one"), Part(self.said, "two", failing)],
            judge=lambda: self.said.append("judge"),
            elsewhere=self.elsewhere,
        )

    def load(self, files: Any) -> Loaded:
        found = self.candidates[files[-1]]
        if isinstance(found, ConfigError):
            raise found
        return load(found)

    def elsewhere(self, pure: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        if not self.slow:
            return execute(pure, *arguments)
        later: Deferred[Any] = Deferred()
        self.net.callLater(self.slow, lambda: execute(pure, *arguments).chainDeferred(later))
        return later

    def node(self, token: str, *script: str, **how: Any) -> ScriptedNode:
        return ScriptedNode(self.net, token, *script, **how)

    def entry(self, id: str) -> Entry:
        return self.nodes.entries[id]

    def start(self, made: dict[str, Any] | ConfigError, mode: str = "apply") -> list[Any]:
        """Begin a refresh; its result, or its failure, is put into the list that is returned."""
        name = str(len(self.candidates))
        self.candidates[name] = made
        got: list[Any] = []
        Deferred.fromCoroutine(self.refresher.refresh(mode, [name])).addBoth(got.append)
        return got

    def refresh(self, made: dict[str, Any] | ConfigError, mode: str = "apply", seconds: float = 0.0) -> RefreshResult:
        """Refresh; it must be over in so many seconds."""
        got = self.start(made, mode)
        self.net.run(seconds)
        assert len(got) == 1, "it is not over"
        result: RefreshResult = got[0]
        assert isinstance(result, RefreshResult), result
        return result


def reports(result: RefreshResult) -> dict[str, str]:
    return {report.node_id: report.status.value for report in result.reports}
