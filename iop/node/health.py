"""How a node's providers are: their backends asked again and again, the edge told what is news.

``docs/contracts/pool.md`` (Health). A backend that refuses or answers errors is down at once. One that is silent may
only be busy: it is degraded, and down when it was silent several times in a row and no run goes on there from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure as TwistedFailure

from iop import model as m
from iop.errors import Failure
from iop.node.adapterset import ANYTHING, AdapterSet

SILENT_IN_A_ROW: Final = 3
"""Checks without an answer after which a backend is down."""

SOON_MS: Final = 2_000
"""Longest time between two checks of a backend that is not up: it may be back at any moment."""

PATIENCE_MS: Final = 2_000
"""Longest wait for an answer where the payload leaves it open."""

MODELS_TOLD: Final = 256
"""Most models of one backend that the edge is told of."""

LONGEST_MODEL: Final = 256
"""Characters of a model's name that is told: all together must fit a frame."""

Tell = Callable[[m.ProviderStatus], None]


class Check:
    """One provider's backend, looked at until it is stopped.

    :param busy: whether a run of an adapter goes on.
    :param tell: is told what is news.
    :ivar told: what was told last; None before the first answer.
    """

    log = Logger()

    def __init__(
        self,
        provider: m.ProviderConfig,
        adapters: AdapterSet,
        busy: Callable[[str], bool],
        tell: Tell,
        clock: IReactorTime,
    ) -> None:
        self.provider = provider
        self._adapters = adapters
        self._busy = busy
        self._tell = tell
        self._clock = clock
        self.told: m.Health | None = None
        self._silent = 0
        self._asking: Deferred[Any] | None = None
        self._listing: Deferred[Any] | None = None
        self._timer: IDelayedCall | None = None

    def look(self) -> None:
        """Ask now, and again when it is time."""
        try:
            adapter = self._adapters.adapter(self.provider.adapter)
        except Failure:
            self._found(m.Health.DOWN, "its adapter is not enabled or could not be made")
            return
        patience_ms = self.provider.health.timeout_ms or PATIENCE_MS
        self._timer = self._clock.callLater(patience_ms / 1000, self._unanswered)
        path = self.provider.health.path
        asking = self._asking = maybeDeferred(adapter.probe, *([path] if path else []))
        asking.addCallbacks(self._answered, self._broken, callbackArgs=(adapter, asking), errbackArgs=(asking,))

    def stop(self) -> None:
        """Ask no more, tell no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._give_up()

    def _answered(self, said: Any, adapter: Any, asking: Deferred[Any]) -> None:
        try:
            health = m.Health(said)
        except ValueError:
            self._broken(TwistedFailure(), asking)
            return
        if not self._over(asking):
            return
        self._silent = 0
        news = self._found(health, "" if health is m.Health.UP else "its backend refuses or answers errors")
        if news and health is m.Health.UP:
            self._give_up()
            listing = self._listing = maybeDeferred(adapter.models)
            listing.addCallback(self._listed, listing).addErrback(lambda _: None)

    def _listed(self, models: list[str], listing: Deferred[Any]) -> None:
        """What a backend has is told beside its health: it may be long in coming, or never come."""
        if listing is self._listing and self.told is m.Health.UP:
            seen = tuple(model for model in models if len(model) <= LONGEST_MODEL)[:MODELS_TOLD]
            self._tell(m.ProviderStatus(self.provider.id, m.Health.UP.value, "", seen))

    def _broken(self, reason: TwistedFailure, asking: Deferred[Any]) -> None:
        if not self._over(asking):
            return
        self._silent = 0
        if isinstance(reason.value, Failure):
            hidden = self._adapters.hiding(self.provider.adapter).failure(reason.value)
            self._found(m.Health.DOWN, hidden.message)
            return
        self._log_broken(reason)
        self._found(m.Health.UNKNOWN, "its adapter broke the check")

    def _log_broken(self, reason: TwistedFailure) -> None:
        name = self.provider.adapter
        reason = self._adapters.hiding(name).reason(reason)
        self.log.failure("the adapter {name} broke its check", failure=reason, name=name)

    def _over(self, asking: Deferred[Any]) -> bool:
        """Whether this is what was waited for: an adapter may answer later than it is given up."""
        if asking is not self._asking:
            return False
        self._asking = None
        if self._timer is not None:
            self._timer.cancel()
        return True

    def _unanswered(self) -> None:
        self._timer = None
        self._give_up()
        self._silent += 1
        down = self._silent >= SILENT_IN_A_ROW and not self._busy(self.provider.adapter)
        self._found(m.Health.DOWN if down else m.Health.DEGRADED, "its backend does not answer the check in time")

    def _give_up(self) -> None:
        asked, self._asking, self._listing = (self._asking, self._listing), None, None
        for each in asked:
            if each is not None:
                try:
                    each.cancel()
                except ANYTHING:  # whatever it makes of that, the others are checked on
                    self._log_broken(TwistedFailure())

    def _found(self, health: m.Health, why: str) -> bool:
        """Look again when it is time; return whether this is news."""
        interval = self.provider.health.interval_ms
        wait = interval if health is m.Health.UP else min(interval, SOON_MS)
        self._timer = self._clock.callLater(wait / 1000, self.look)
        if health is self.told:
            return False
        self.told = health
        self._tell(m.ProviderStatus(self.provider.id, health.value, why))
        return True


class Checks:
    """The backends of the payload in force, while there is a link to tell of them.

    :param busy: whether a run of an adapter goes on.
    """

    def __init__(self, adapters: AdapterSet, busy: Callable[[str], bool], clock: IReactorTime) -> None:
        self._adapters = adapters
        self._busy = busy
        self._clock = clock
        self._checks: dict[str, Check] = {}

    def begin(self, tell: Tell) -> None:
        """Check what the payload names, from scratch: whoever is told now knows nothing yet."""
        self.stop()
        self.follow(tell)

    def follow(self, tell: Tell) -> None:
        """Check what the payload names from now on; a provider that is the same goes on. An interval of 0 is none."""
        wanted = {each.id: each for each in self._adapters.payload.providers if each.health.interval_ms}
        for provider_id in [key for key, check in self._checks.items() if wanted.get(key) != check.provider]:
            self._checks.pop(provider_id).stop()
        for provider_id, provider in wanted.items():
            if provider_id not in self._checks:
                check = self._checks[provider_id] = Check(provider, self._adapters, self._busy, tell, self._clock)
                check.look()

    def health_of(self, provider_id: str) -> m.Health:
        """Return what a provider's backend was when it was looked at last."""
        check = self._checks.get(provider_id)
        return m.Health.UNKNOWN if check is None or check.told is None else check.told

    def stop(self) -> None:
        """Check nothing any more."""
        checks, self._checks = self._checks, {}
        for check in checks.values():
            check.stop()
