"""Apply: a candidate goes over a running edge whole, or not at all, without dropping a run.

``docs/contracts/refresh.md``, Apply. One refresh at a time; a dry run waits for nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger, LogLevel

from iop.edge.config import ConfigError, EdgeConfig, Loaded, Problem, revision
from iop.edge.config.setting import Effect
from iop.edge.nodes.registry import Registry
from iop.edge.refresh.model import RefreshMode, RefreshResult, Status
from iop.edge.refresh.plan import Side, plan
from iop.edge.refresh.push import Push
from iop.errors import Failure, printable

MOST_WAITING: Final = 64
"""Refreshes that may wait for the one before them."""

_MOST_DETAILS: Final = 10
_NO_FILE: Final = Problem("", 1, "", "file", "the edge was started without a file: name one")

#: Calls something pure that takes long, and returns a Deferred of what it returns.
Elsewhere = Callable[..., Deferred[Any]]


class Refresher:
    """Changes the configuration of a running edge.

    :param running: the configuration in force.
    :param files: what the edge was started with.
    :param load: reads files; raises :class:`ConfigError`.
    :param nodes: are asked first, and go over first.
    :param parts: the :class:`~iop.interfaces.IRefreshable` that follow, in their order.
    :param judge: called when all have gone over: pending runs are judged again.
    :param elsewhere: where files are read and compared: a second of that would hold every stream up.
    :ivar told: called with what came of every refresh that was to be applied.
    """

    log = Logger()

    def __init__(
        self,
        running: EdgeConfig,
        *,
        files: Sequence[str],
        load: Callable[[Sequence[str]], Loaded],
        nodes: Registry,
        parts: Iterable[Any],
        judge: Callable[[], None],
        elsewhere: Elsewhere,
    ) -> None:
        self.running = running
        self.told: Callable[[RefreshResult], None] = lambda result: None
        self._revision = ""
        self._files = tuple(files)
        self._load = load
        self._nodes = nodes
        self._parts = (nodes, *parts)
        self._judge = judge
        self._elsewhere = elsewhere
        self._turn = DeferredLock()

    @property
    def revision(self) -> str:
        """Of the configuration in force."""
        self._revision = self._revision or revision(self.running)
        return self._revision

    async def refresh(self, mode: str, files: Sequence[str] = (), cause: str = "refresh") -> RefreshResult:
        """Say what going over to these files would do, or do it; without files, to those the edge was started with.

        :param cause: who asks, for the log.
        :raises Failure: ``queue_full``.
        """
        if mode != RefreshMode.APPLY:
            return (await self._plan(mode, files))[0]
        if len(self._turn.waiting) >= MOST_WAITING:
            raise Failure("queue_full", "too many refreshes wait already")
        await self._turn.acquire()
        try:
            result = await self._apply(files)
        finally:
            self._turn.release()
        self._say(result, cause)
        self.told(result)
        return result

    def hang_up(self) -> None:
        """SIGHUP: apply the files the edge was started with; what came of it is in the log."""

        def failed(reason: Any) -> None:
            if reason.check(Failure):
                self.log.warn("SIGHUP: {why}", why=reason.value.message)
            else:
                self.log.failure("SIGHUP: the refresh failed", failure=reason)

        Deferred.fromCoroutine(self.refresh(RefreshMode.APPLY, cause="SIGHUP")).addErrback(failed)

    # ---- before anything happens --------------------------------------------------------------------------------

    def _plan(self, mode: str, files: Sequence[str]) -> Deferred[tuple[RefreshResult, Side]]:
        running = Loaded(self.running, ())
        return self._elsewhere(self._look, mode, tuple(files) or self._files, running)

    def _look(self, mode: str, files: Sequence[str], running: Loaded) -> tuple[RefreshResult, Side]:
        """Pure but for the files: it runs in another thread."""
        candidate: Side = ConfigError([_NO_FILE])
        if files:
            try:
                candidate = self._load(files)
            except ConfigError as error:
                candidate = error
        return plan(running, candidate, mode), candidate

    # ---- all or nothing -----------------------------------------------------------------------------------------

    async def _apply(self, files: Sequence[str]) -> RefreshResult:
        result, candidate = await self._plan(RefreshMode.APPLY, files)
        if result.status is not Status.APPLIED or isinstance(candidate, ConfigError):
            return result
        try:
            tokens = self._prepare(candidate.config)
        except Failure as failure:
            return replace(result, errors=(_problem("", failure.message),))
        push = Push(self._nodes, tokens[0])
        self._nodes.hold(push.changed)
        try:
            await push.send()
            if push.failed:
                refused = push.failed
                await push.take_back()
                self._abandon(tokens)
                errors = tuple(_problem(f"nodes[{each.node_id}]", each.message) for each in refused)
                return replace(result, reports=push.reports, errors=errors)
            self._commit(tokens, candidate.config, result.revision_after or "")
        finally:
            self._nodes.release()
        return replace(result, reports=push.reports)

    def _prepare(self, config: EdgeConfig) -> list[Any]:
        """Every part's token; when one fails, the others have forgotten theirs."""
        tokens: list[Any] = []
        try:
            for part in self._parts:
                tokens.append(part.prepare(config))  # noqa: PERF401 - those before one that fails count
        except BaseException:
            self._abandon(tokens)
            raise
        return tokens

    def _abandon(self, tokens: Iterable[Any]) -> None:
        for part, token in zip(self._parts, tokens, strict=False):
            part.abandon(token)

    def _commit(self, tokens: Iterable[Any], config: EdgeConfig, revision: str) -> None:
        """The swap: nothing else runs meanwhile."""
        for part, token in zip(self._parts, tokens, strict=True):
            part.commit(token)
        self.running, self._revision = config, revision
        self._judge()

    # ---- what came of it ----------------------------------------------------------------------------------------

    def _say(self, result: RefreshResult, cause: str) -> None:
        """One line, in which no value stands, so no secret."""
        details = [str(error) for error in result.errors]
        if result.status is Status.RESTART_REQUIRED:
            details = [change.path for change in result.changes if change.effect is not Effect.LIVE]
        more = len(details) - _MOST_DETAILS
        words = "; ".join([*details[:_MOST_DETAILS], *([f"and {more} more"] if more > 0 else [])])
        self.log.emit(
            LogLevel.info if result.status is Status.APPLIED else LogLevel.warn,
            "{cause}: {status}, {count} {noun}{details}",
            cause=cause,
            status=result.status.value,
            count=len(result.changes),
            noun="change" if len(result.changes) == 1 else "changes",
            details=f": {printable(words)}" if words else "",
        )


def _problem(path: str, message: str) -> Problem:
    return Problem(path, 1, "", "apply_failed", message)
