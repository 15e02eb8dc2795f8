"""Push: a new payload for the nodes whose payload differs, asked all at once; taken back when one refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from twisted.internet.defer import Deferred

from iop import model as m
from iop.edge.config.redact import redact_url
from iop.edge.nodes.link import NodeLink
from iop.edge.nodes.registry import Entry, Registry, Told
from iop.edge.refresh.model import NodeReport, ReportStatus
from iop.errors import printable
from iop.wire.calls import Unanswered

_LONGEST: Final = 300


class _Answer(NamedTuple):
    """What a node made of a payload; ``silent``: nobody knows, it did not answer in time."""

    status: ReportStatus
    message: str = ""
    silent: bool = False


class Push:
    """One refresh on its way to the nodes. ``docs/contracts/refresh.md``, Apply.

    :param told: every node as the new configuration has it.
    :ivar changed: the nodes whose payload differs.
    """

    def __init__(self, nodes: Registry, told: Mapping[str, Told]) -> None:
        self._nodes = nodes
        self._new = {id: new.payload for id, new in told.items() if _differs(nodes.entries[id], new.payload)}
        self._old = {id: nodes.entries[id].payload for id in self._new}
        self._links: dict[str, NodeLink] = {}
        self._answers = {id: _Answer(ReportStatus.UNCHANGED) for id in told}
        self.changed = frozenset(self._new)

    @property
    def reports(self) -> tuple[NodeReport, ...]:
        """What became of each node so far."""
        return tuple(NodeReport(id, *self._answers[id][:2]) for id in sorted(self._answers))

    @property
    def failed(self) -> tuple[NodeReport, ...]:
        """Those that did not take it."""
        return tuple(report for report in self.reports if report.status is ReportStatus.FAILED)

    async def send(self) -> None:
        """Ask every node that is there; one that is not gets its payload when it registers."""
        self._answers |= dict.fromkeys(self._new, _Answer(ReportStatus.OFFLINE))
        links = {id: self._nodes.entries[id].link for id in self._new}
        self._links = {id: link for id, link in links.items() if link is not None}
        self._answers |= await self._ask(self._new, self._links)

    async def take_back(self) -> None:
        """Give the old payload to those that took the new one; who cannot take it is dropped, and registers anew.

        One that did not answer may take the new one yet: it is sent the old one behind it, and not waited for.
        """
        taken = {id: link for id, link in self._links.items() if self._answers[id].status is ReportStatus.APPLIED}
        for id in (id for id in self._links if self._answers[id].silent):
            _start(self._links[id], self._old[id]).addCallback(_keep_or_drop, self._links[id])
        for id, answer in (await self._ask(self._old, taken)).items():
            if answer.status is ReportStatus.APPLIED:
                answer = _Answer(ReportStatus.ROLLED_BACK)
            elif answer.status is ReportStatus.FAILED:
                taken[id].drop("it could not take its old payload back")
                answer = _Answer(ReportStatus.FAILED, f"disconnected, for it could not go back: {answer.message}")
            self._answers[id] = answer

    async def _ask(self, payloads: Mapping[str, m.NodePayload], links: Mapping[str, NodeLink]) -> dict[str, _Answer]:
        asked = {id: _start(link, payloads[id]) for id, link in links.items()}
        return {id: await answer for id, answer in asked.items()}


def _start(link: NodeLink, payload: m.NodePayload) -> Deferred[_Answer]:
    return Deferred.fromCoroutine(_asked(link, payload))


def _differs(entry: Entry, payload: m.NodePayload) -> bool:
    """Whether a node must be told: its payload changes, or it said that it runs another one."""
    link = entry.link
    stale = link is not None and link.ready and bool(link.revision) and link.revision != payload.revision
    return payload != entry.payload or stale


async def _asked(link: NodeLink, payload: m.NodePayload) -> _Answer:
    try:
        response = await link.refresh(payload)
    except Unanswered as error:
        if link.wire is None or link.wire.lost:
            return _Answer(ReportStatus.OFFLINE)
        return _Answer(ReportStatus.FAILED, str(error), silent=True)
    if not isinstance(response, m.NodeConfigRefreshResponse):
        return _Answer(ReportStatus.FAILED, "it answered something else", silent=True)
    if response.status is m.RefreshStatus.APPLIED:
        return _Answer(ReportStatus.APPLIED)
    return _Answer(ReportStatus.FAILED, _said(response))


def _keep_or_drop(answer: _Answer, link: NodeLink) -> None:
    if answer.status is ReportStatus.FAILED and not answer.silent:
        link.drop("it could not take its old payload back")


def _said(response: m.NodeConfigRefreshResponse) -> str:
    """A node's refusal in one line, whatever it wrote."""
    words = printable(" ".join(redact_url(response.message).split()))[:_LONGEST]
    return f"{response.status.value}: {words}" if words else response.status.value
