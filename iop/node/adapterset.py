"""A node's adapters, as its payload names them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from jsonschema import Draft202012Validator, ValidationError
from twisted.internet.defer import DeferredLock, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure as TwistedFailure

from iop import model as m
from iop.errors import Failure, printable
from iop.node.adapters.environment import Environment
from iop.node.adapters.workspace import resolved
from iop.node.hiding import Hiding
from iop.node.sessions import SessionStore

PATIENCE = 30.0
"""Seconds that an adapter may take to start, and to stop."""

MOST_FAULTS = 8
"""Broken rules of one adapter's schema that are told."""

ANYTHING: Final = (Exception, SystemExit)
"""What code of an adapter may raise: a library that means to end the process ends its own run."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a payload: which adapters changed, which could not be made, and why."""

    status: m.RefreshStatus
    message: str = ""
    changed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class Capabilities(NamedTuple):
    """What an adapter can, as its factory says."""

    title: str
    modes: frozenset[m.Mode]
    endpoints: tuple[str, ...]
    sessions: bool
    embeddings: bool

    @classmethod
    def of(cls, factory: Any) -> Capabilities:
        """Read a factory's."""
        said = factory.capabilities
        return cls(
            str(factory.title),
            frozenset(m.Mode(mode) for mode in said["modes"]),
            tuple(said.get("endpoints", ())),
            bool(said.get("sessions")),
            bool(said.get("embeddings")),
        )


class AdapterSet:
    """The adapter instances of a node, by name.

    :param factory: finds an adapter factory by its type word.
    :param sessions: where adapters keep conversations that go on.
    :param workspace_roots: under which runs may name their workspace.
    """

    log = Logger()

    def __init__(
        self,
        reactor: Any,
        state_dir: Path,
        factory: Callable[[str], Any],
        sessions: SessionStore | None = None,
        workspace_roots: Sequence[Path] = (),
    ) -> None:
        self._reactor = reactor
        self._state_dir = state_dir
        self._factory = factory
        self._adapters: dict[str, Any] = {}
        self._sessions = sessions
        self._roots = workspace_roots
        self._capabilities: dict[str, Capabilities] = {}
        self._hidings: dict[str, Hiding] = {}
        self._backends: dict[str, tuple[str, str]] = {}
        self._labels: dict[str, str] = {}
        self._turn = DeferredLock()
        self._stopped = False
        self.payload = m.NodePayload()

    @property
    def revision(self) -> str:
        """Of the payload that is in force; "" before the first."""
        return self.payload.revision

    def adapter(self, name: str) -> Any:
        """Return an instance; :raises Failure: ``adapter_unavailable``."""
        adapter = self._adapters.get(name)
        if adapter is None:
            raise Failure("adapter_unavailable", "the node has no such adapter")
        return adapter

    def workspace(self, path: str) -> str:
        """Return a workspace with its links resolved; :raises Failure: ``workspace_invalid``."""
        return resolved(path, self._roots)

    def capabilities(self, name: str) -> Capabilities | None:
        """Return what an instance can; None where there is none of that name."""
        return self._capabilities.get(name)

    def hiding(self, name: str) -> Hiding:
        """Return what hides an adapter's credentials."""
        return self._hidings.get(name) or Hiding()

    def sessions(self) -> list[Mapping[str, Any]]:
        """Return the sessions of every adapter, each with its ``adapter``; one that cannot say has none."""
        found: list[Mapping[str, Any]] = []
        for name, adapter in self._adapters.items():
            try:
                found += [{**each, "adapter": name} for each in adapter.sessions()]
            except Exception:
                self._broke("the adapter {name} could not say its sessions", name)
        return found

    def backend(self, request: m.RunRequest) -> tuple[str, str]:
        """Return the label and the type of the backend that a run goes to."""
        return self._backends.get(request.provider_id) or (self._labels.get(request.adapter, ""), "")

    async def register(self, payload: m.NodePayload) -> Applied:
        """Make what a registration's payload names; adapters that are the same are kept. One payload at a time."""
        await self._turn.acquire()
        try:
            return await self._register(payload)
        finally:
            self._turn.release()

    async def _register(self, payload: m.NodePayload) -> Applied:
        wanted = {adapter.instance: adapter for adapter in payload.adapters if adapter.enabled}
        had = {adapter.instance: adapter for adapter in self.payload.adapters if adapter.enabled}
        for name in [name for name in self._adapters if wanted.get(name) != had.get(name)]:
            await self._stop(name)
        failed, reasons, changed = [], [], []
        for name, config in wanted.items():
            if name in self._adapters:
                continue
            changed.append(name)
            try:
                self._adapters[name] = await self._make(name, config)
            except Failure as failure:
                failed.append(name)
                reasons.append(f"{name}: {failure.message}")
        if self._stopped:
            await self.stop()
        self._take(payload)
        return Applied(m.RefreshStatus.APPLIED, "; ".join(reasons), tuple(sorted(changed)), tuple(sorted(failed)))

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until every payload that came before is in force, and keep others waiting meanwhile.

        What is done with a payload is done inside: whoever waits next goes on within the release.
        """
        await self._turn.acquire()
        try:
            yield
        finally:
            self._turn.release()

    def refresh(self, payload: m.NodePayload) -> Applied:
        """Take a payload while runs go on: its adapters must be those there are."""
        if payload.adapters != self.payload.adapters:
            return Applied(m.RefreshStatus.RESTART_REQUIRED, "adapters differ: register anew")
        self._take(payload)
        return Applied(m.RefreshStatus.APPLIED)

    def _take(self, payload: m.NodePayload) -> None:
        self.payload = payload
        self._labels = {a.instance: str(a.settings.get("provider") or "") for a in payload.adapters}
        self._backends = {p.id: (p.provider or self._labels.get(p.adapter, ""), p.type) for p in payload.providers}

    async def _make(self, name: str, config: m.AdapterConfig) -> Any:
        try:
            factory = self._factory(config.type)
            self._hidings[name] = Hiding(config.settings, factory.settings_schema)
            faults = _faults(factory.settings_schema, config.settings)
            if faults:
                raise Failure("invalid_value", faults)
            state_dir = self._state_dir / "adapters" / name
            environment = Environment(name, self._reactor, state_dir, self._sessions, self.workspace)
            adapter = factory.make(config.settings, environment)
            can = Capabilities.of(factory)
        except Failure as failure:
            raise self.hiding(name).failure(failure) from None
        except Exception as error:
            self._broke("the adapter {name} could not be made", name)
            raise Failure("adapter_unavailable", f"it could not be made: {type(error).__name__}") from error
        try:
            await maybeDeferred(adapter.start).addTimeout(PATIENCE, self._reactor)
        except Exception as error:
            self._broke("the adapter {name} could not be started", name)
            await self._end(name, adapter)
            if isinstance(error, Failure):
                raise self.hiding(name).failure(error) from None
            raise Failure("adapter_unavailable", f"it could not be started: {type(error).__name__}") from error
        self._capabilities[name] = can
        return adapter

    async def _stop(self, name: str) -> None:
        del self._capabilities[name]
        await self._end(name, self._adapters.pop(name))

    async def _end(self, name: str, adapter: Any) -> None:
        try:
            await maybeDeferred(adapter.stop).addTimeout(PATIENCE, self._reactor)
        except Exception:
            self._broke("the adapter {name} did not stop cleanly", name)

    def _broke(self, words: str, name: str) -> None:
        """Log the exception that an adapter has raised."""
        self.log.failure(words, failure=self.hiding(name).reason(TwistedFailure()), name=name)

    async def stop(self) -> None:
        """Stop every adapter, those too that are being made."""
        self._stopped = True
        for name in list(self._adapters):
            await self._stop(name)
        if self._sessions is not None:
            self._sessions.close()


def _faults(schema: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Say which settings break the schema, and how, never with a value; "" when none does."""
    errors = Draft202012Validator(schema).iter_errors(dict(settings))
    said = [_fault(error) for error in sorted(errors, key=lambda error: list(map(str, error.path)))]
    return ", ".join(list(dict.fromkeys(said))[:MOST_FAULTS])


def _fault(error: ValidationError) -> str:
    rule: Any = error.validator
    demand: Any = error.validator_value
    schema: Any = error.schema
    instance: Any = error.instance
    where = printable(".".join(map(str, error.path)))[:200]
    inside = f" in {where}" if where else ""
    if rule == "required":
        return f"{_names(name for name in demand if name not in instance)} must be given{inside}"
    if rule == "additionalProperties" and demand is False:
        known, patterns = schema.get("properties", ()), schema.get("patternProperties", ())
        others = (name for name in instance if name not in known)
        odd = (name for name in others if not any(re.search(pattern, name) for pattern in patterns))
        return f"no setting of this type{inside}: {_names(odd)}"
    wanted = f": {demand}" if isinstance(demand, str | int | float) and len(str(demand)) < 40 else ""
    return f"{where or 'the whole'} breaks the rule {rule!r} of the adapter's schema{wanted}"


def _names(names: Iterable[str]) -> str:
    return " and ".join(printable(name)[:64] for name in islice(names, MOST_FAULTS))
