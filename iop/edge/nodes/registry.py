"""Who may connect, and who is connected.

``docs/contracts/wire.md`` (Registration): the token alone identifies a node; a second link of the same node waits
while the first is asked whether it lives.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, NoReturn

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Factory
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure as TwistedFailure
from zope.interface import implementer

from iop import model as m
from iop.edge.config import model as config
from iop.edge.nodes.link import QUERY_PATIENCE, NodeLink
from iop.edge.nodes.payload import payload_of
from iop.errors import Failure, printable
from iop.interfaces import IRefreshable
from iop.wire.calls import Unanswered
from iop.wire.peer import Side
from iop.wire.protocol import Link

DUPLICATE_PATIENCE: Final = 2.0
"""Seconds that a first link has to answer when a second one of the same node comes."""

_LONGEST_WORDS: Final = 200

_SEEN: Final = ("provider_id", "type", "health", "models", "in_flight")
"""What a node knows of a provider: slots and queues are the edge's (``docs/contracts/wire.md``, Queries)."""


@dataclass
class Entry:
    """A configured node and its link, if it has one.

    :ivar health: what the node last said of a provider, and in what words; ``down`` also for one whose adapter it could
        not build.
    """

    node: config.Node
    payload: m.NodePayload
    link: NodeLink | None = None
    hostname: str = ""
    agent_version: str = ""
    adapter_types: tuple[str, ...] = ()
    health: dict[str, tuple[m.Health, str]] = field(default_factory=dict)

    def health_of(self, provider_id: str) -> tuple[m.Health, str]:
        """Return what the node last said of a provider."""
        return self.health.get(provider_id, (m.Health.UNKNOWN, ""))

    @property
    def usable(self) -> bool:
        """Whether runs may go there."""
        link = self.link
        return link is not None and link.ready and not link.draining and link.wire is not None and not link.wire.stuck


class Told(NamedTuple):
    """A node as another configuration has it, and what it would be told."""

    node: config.Node
    payload: m.NodePayload


@implementer(IRefreshable)
class Registry:
    """The nodes of an edge.

    :ivar changed: called with a node's id whenever what it can serve may have changed.
    :ivar registered: called with a node and its link when it has acknowledged its payload; a Deferred that it returns
        keeps the node from being a candidate.
    :ivar together: a context in which the runs of a lost link end, all at once.
    """

    log = Logger()

    def __init__(self, nodes: Iterable[config.Node], *, heartbeat_ms: int, clock: IReactorTime) -> None:
        self._clock = clock
        self._heartbeat_ms = heartbeat_ms
        self._by_hash = {}
        self.entries: dict[str, Entry] = {}
        for node in nodes:
            self.entries[node.id] = Entry(node, payload_of(node))
            self._by_hash[node.token_hash_sha256] = node.id
        self.changed: Callable[[str], None] = lambda node_id: None
        self.registered: Callable[[Entry, NodeLink], Deferred[None] | None] = lambda entry, link: None
        self.together: Callable[[], AbstractContextManager[None]] = nullcontext
        self.closing = False
        self._strangers: set[NodeLink] = set()
        self._held: Collection[str] = ()
        self._waiting: list[tuple[NodeLink, m.RegisterRequest]] = []

    def factory(self) -> Factory[Link]:
        """Return what listens for nodes."""
        made = Factory.forProtocol(self._build)
        made.noisy = False
        return made

    def _build(self) -> Link:
        link = NodeLink(self, self._clock)
        self._strangers.add(link)
        return Link(Side.EDGE, link, self._clock, self._heartbeat_ms)

    def links(self) -> list[NodeLink]:
        """Return every link, registered or not."""
        return [e.link for e in self.entries.values() if e.link is not None] + list(self._strangers)

    def query(self, node_id: str, type: str, patience: float = QUERY_PATIENCE) -> Deferred[dict[str, Any]]:
        """Ask a node how it is; return a Deferred of its report, ``truncated`` where something was left out.

        It fails with a Failure: ``unknown_url`` for no such node or query, ``no_provider`` for one that is not there,
        ``upstream_timeout`` for one that does not answer, ``upstream_error`` for one that answers with an error.
        """
        type = type.upper()
        if type not in m.CommandType.__members__:
            known = ", ".join(each.lower() for each in m.CommandType)
            return fail(Failure("unknown_url", f"nodes are asked for {known}"))

        def report(response: m.NodeCommandResponse) -> dict[str, Any]:
            if response.error:
                raise Failure("upstream_error", f"node {node_id}: {printable(response.error)[:_LONGEST_WORDS]}")
            if type.lower() not in response.report:
                raise Failure("upstream_error", f"node {node_id} answered something else")
            report = dict(response.report[type.lower()])
            if "providers" in report:  # a snapshot's other members are not the node's to know
                report["providers"] = [{name: each[name] for name in _SEEN} for each in report["providers"]]
            return {**report, "truncated": response.truncated}

        return self._ask(node_id, lambda link: link.query(type, patience)).addCallback(report)

    def end_session(self, node_id: str, adapter: str, session_id: str) -> Deferred[dict[str, Any]]:
        """End a session of a node, and a run of it; return a Deferred of ``{"found": whether there was one}``.

        It fails with a Failure, as :meth:`query`.
        """

        def ended(response: m.CancelResponse) -> dict[str, Any]:
            if response.message:
                raise Failure("upstream_error", f"node {node_id}: {printable(response.message)[:_LONGEST_WORDS]}")
            return {"found": response.found}

        return self._ask(node_id, lambda link: link.end_session(adapter, session_id)).addCallback(ended)

    def _ask(self, node_id: str, ask: Callable[[NodeLink], Deferred[Any]]) -> Deferred[Any]:
        entry = self.entries.get(node_id)
        if entry is None:
            return fail(Failure("unknown_url", f"there is no node {printable(node_id)[:_LONGEST_WORDS]}"))
        if entry.link is None or not entry.link.ready:
            return fail(Failure("no_provider", f"node {node_id} is not connected"))

        def unanswered(reason: TwistedFailure) -> NoReturn:
            reason.trap(Unanswered)
            raise Failure("upstream_timeout", f"node {node_id}: {reason.getErrorMessage()}")

        return ask(entry.link).addErrback(unanswered)

    # ---- Registrar ----------------------------------------------------------------------------------------------

    def register(self, link: NodeLink, request: m.RegisterRequest) -> None:
        """Decide about a newcomer."""
        entry = self._identify(request.token)
        if self.closing:
            self._refuse(link, "draining", "the edge is draining")
        elif entry is None:
            self._refuse(link, "unknown_token", "no node of this edge has this token")
        elif request.protocol_version != m.PROTOCOL_VERSION:
            message = f"the edge speaks protocol version {m.PROTOCOL_VERSION}, the node {request.protocol_version}"
            self._refuse(link, "protocol_version", message)
        elif entry.link is None:
            self._accept(entry, link, request)
        else:
            self._challenge(entry, entry.link, link, request)

    def _identify(self, token: str) -> Entry | None:
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
        node_id = self._by_hash.get(digest)
        if node_id is None or not hmac.compare_digest(self.entries[node_id].node.token_hash_sha256, digest):
            return None
        return self.entries[node_id]

    def _challenge(self, entry: Entry, first: NodeLink, second: NodeLink, request: m.RegisterRequest) -> None:
        assert first.wire is not None
        heard = first.wire.heard
        first.wire.ping()

        def judge() -> None:
            assert first.wire is not None
            if second.wire is None or second.wire.lost:
                return
            if entry.link is first and first.wire.heard != heard:
                self._refuse(second, "already_connected", "this node is connected already")
                return
            if entry.link is first:
                first.drop("replaced by a newer link of the same node")
                self.lost(first, "replaced by a newer link of the same node")
            if entry.link is None:
                self._accept(entry, second, request)
            else:
                self._refuse(second, "already_connected", "this node is connected already")

        self._clock.callLater(DUPLICATE_PATIENCE, judge)

    def _refuse(self, link: NodeLink, reason: str, message: str) -> None:
        assert link.wire is not None
        self.log.warn("refused a node: {reason}", reason=reason)
        link.wire.send(m.RegisterResponse(accepted=False, reason=reason, message=message))
        link.close(reason)

    def _accept(self, entry: Entry, link: NodeLink, request: m.RegisterRequest) -> None:
        assert link.wire is not None
        if entry.node.id in self._held:
            self._waiting.append((link, request))
            return
        self._strangers.discard(link)
        link.node_id = entry.node.id
        entry.link = link
        entry.hostname, entry.agent_version = request.hostname, request.agent_version
        entry.adapter_types = request.adapter_types
        link.wire.send(
            m.RegisterResponse(
                accepted=True,
                node_id=entry.node.id,
                alias=entry.node.alias,
                heartbeat_ms=self._heartbeat_ms,
                config=entry.payload,
            )
        )

    def acknowledged(self, link: NodeLink, response: m.NodeConfigRefreshResponse) -> None:
        """A node has its payload: from now on it is a candidate."""
        entry = self.entries.get(link.node_id)
        if entry is None or entry.link is not link:
            return
        failed = set(response.failed_adapters)
        none_works = response.status is not m.RefreshStatus.APPLIED
        broken = [p.id for p in entry.payload.providers if none_works or p.adapter in failed]
        entry.health = dict.fromkeys(broken, (m.Health.DOWN, "its adapter could not be made"))
        self.log.info(
            "node {node} is connected{failed}",
            node=link.node_id,
            failed=f"; it could not make {', '.join(sorted(failed))}: {response.message}" if failed else "",
        )
        waits = self.registered(entry, link)
        if waits is None:
            self._ready(entry, link)
        else:
            waits.addBoth(lambda _: self._ready(entry, link))

    def _ready(self, entry: Entry, link: NodeLink) -> None:
        """A node is a candidate from now on."""
        if entry.link is link:
            link.ready = True
            self.changed(link.node_id)

    def provider_status(self, link: NodeLink, status: m.ProviderStatus) -> None:
        """A node saw how a provider is."""
        entry = self.entries.get(link.node_id)
        if entry is None or status.provider_id not in {p.id for p in entry.payload.providers}:
            return
        try:
            health = m.Health(status.health)
        except ValueError:
            return
        if health is m.Health.DISABLED:  # that is the configuration's to say
            return
        was, _ = entry.health_of(status.provider_id)
        said = printable(" ".join(status.message.split()))[:_LONGEST_WORDS]
        entry.health[status.provider_id] = health, said
        if health is not was:
            self.log.emit(
                LogLevel.warn if health is m.Health.DOWN else LogLevel.info,
                "provider {provider} of node {node} is {health}{why}",
                provider=status.provider_id,
                node=link.node_id,
                health=health.value,
                why=f": {said}" if said else "",
            )
        self.changed(link.node_id)

    def draining(self, link: NodeLink) -> None:
        """A node takes no new runs."""
        self.log.info("node {node} is draining", node=link.node_id)
        self.changed(link.node_id)

    def flow(self, link: NodeLink) -> None:
        """A node does not read at the moment, or for long, or reads again."""
        if link.node_id:
            self.changed(link.node_id)

    def lost(self, link: NodeLink, reason: str) -> None:
        """A link is gone."""
        self._strangers.discard(link)
        entry = self.entries.get(link.node_id)
        if entry is None or entry.link is not link:
            return
        entry.link = None
        entry.health = {}  # nobody knows any more
        self.log.info("node {node} is gone: {reason}", node=link.node_id, reason=reason)
        self.changed(link.node_id)

    # ---- another configuration ----------------------------------------------------------------------------------

    def prepare(self, config: config.EdgeConfig) -> dict[str, Told]:
        """Make the payloads; :raises Failure: for nodes that come or go, which a restart alone can do."""
        if {node.id for node in config.nodes} != self.entries.keys():
            raise Failure("internal", "nodes come and go with a restart only")
        return {node.id: Told(node, self._payload(node)) for node in config.nodes}

    def _payload(self, node: config.Node) -> m.NodePayload:
        entry = self.entries[node.id]
        return entry.payload if node == entry.node else payload_of(node)

    def commit(self, token: dict[str, Told]) -> None:
        """From now on nodes are told this when they register."""
        for id, told in token.items():
            self.entries[id].node, self.entries[id].payload = told

    def abandon(self, token: dict[str, Told]) -> None:
        """Forget it."""

    def hold(self, node_ids: Collection[str]) -> None:
        """Answer none of these nodes that registers, until :meth:`release`: what it is told is being decided."""
        self._held = node_ids

    def release(self) -> None:
        """Answer those that registered meanwhile."""
        self._held = ()
        waiting, self._waiting = self._waiting, []
        for link, request in waiting:
            if link.wire is not None and not link.wire.lost:
                self.register(link, request)

    # ---- the end ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every link."""
        self.closing = True
        for link in self.links():
            link.close("the edge is stopping")
