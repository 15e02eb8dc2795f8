"""A node's adapters, as its payload names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from doubles import ScriptedAdapter, ScriptedFactory
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock

from iop import model as m
from iop.errors import Failure
from iop.node.adapters import plugin
from iop.node.adapters.openai_compat.adapter import OpenAICompatAdapter
from iop.node.adapterset import AdapterSet, Applied

pytestmark = pytest.mark.usefixtures("logged")

APPLIED = m.RefreshStatus.APPLIED


class World:
    def __init__(self, find: Any = None) -> None:
        self.clock = Clock()
        self.factory = ScriptedFactory()
        self.adapters = AdapterSet(self.clock, Path("/state"), find or self._find)

    def _find(self, kind: str) -> Any:
        if kind != "scripted":
            raise Failure("adapter_unavailable", f"no adapter type {kind!r} here")
        return self.factory

    def register(self, *configs: m.AdapterConfig, revision: str = "1", providers: Any = ()) -> list[Applied]:
        applied: list[Applied] = []
        registering = Deferred.fromCoroutine(self.adapters.register(m.NodePayload(revision, configs, tuple(providers))))
        registering.addCallback(applied.append)
        registering.addErrback(lambda reason: reason.raiseException())
        return applied

    @property
    def made(self) -> list[ScriptedAdapter]:
        return [adapter for adapter, _, _ in self.factory.made]


def scripted(name: str, **settings: Any) -> m.AdapterConfig:
    return m.AdapterConfig(name, "scripted", True, settings)


def test_adapters_are_made_started_and_found_by_name() -> None:
    world = World()
    assert world.register(scripted("a"), scripted("", word="b")) == [Applied(APPLIED, "", ("a", "scripted"), ())]
    assert [adapter.started for adapter in world.made] == [1, 1]
    assert world.adapters.adapter("a") is world.made[0]
    assert world.adapters.adapter("scripted") is world.made[1], "no name: the one instance of its type"
    environment = world.factory.made[0][2]
    assert (environment.name, environment.state_dir) == ("a", Path("/state/adapters/a"))


def test_an_unknown_or_disabled_adapter_is_unavailable() -> None:
    world = World()
    world.register(m.AdapterConfig("a", "scripted", enabled=False))
    for name in ("a", "b"):
        with pytest.raises(Failure) as raised:
            world.adapters.adapter(name)
        assert raised.value.code == "adapter_unavailable"
    assert world.made == []


def test_what_is_the_same_is_kept_what_differs_is_made_anew() -> None:
    world = World()
    world.register(scripted("same"), scripted("other", word="x"), scripted("gone"))
    (applied,) = world.register(scripted("same"), scripted("other", word="y"), scripted("new"), revision="2")
    assert applied.changed == ("new", "other")
    same, other, gone, _, _ = world.made
    assert (same.stopped, other.stopped, gone.stopped) == (0, 1, 1)
    assert world.adapters.adapter("same") is same
    assert world.adapters.adapter("other") is not other
    assert world.adapters.revision == "2"


def test_an_adapter_that_cannot_be_made_is_listed_and_harms_no_other(logged: Any) -> None:
    world = World()
    (applied,) = world.register(
        scripted("a"),
        scripted("refuses", word="refuse"),
        scripted("broken", word="broken"),
        scripted("odd", colour="blue"),
        scripted("wrong", word=7),
        m.AdapterConfig("alien", "x"),
    )
    assert applied.status is APPLIED
    assert applied.failed == ("alien", "broken", "odd", "refuses", "wrong")
    assert "refuses: word: this one cannot work" in applied.message
    assert "alien: no adapter type 'x' here" in applied.message
    assert "broken: it could not be made: ZeroDivisionError" in applied.message
    assert "wrong: word breaks the rule 'type' of the adapter's schema: string" in applied.message
    assert "odd: no setting of this type: colour" in applied.message
    assert world.adapters.adapter("a") is world.made[0]
    assert [type(error) for error in logged.failures()] == [ZeroDivisionError]


def test_a_message_about_settings_never_holds_their_value() -> None:
    world = World()
    (applied,) = world.register(scripted("a", word=["sk-secret"]), scripted("b", password="sk-secret"))
    assert applied.failed == ("a", "b")
    assert "sk-secret" not in applied.message


def test_every_fault_of_the_settings_is_said_and_names_the_setting() -> None:
    world = World()
    world.factory.settings_schema = {
        "required": ["host", "port"],
        "properties": {
            "host": {"type": "string"},
            "port": {"type": "integer"},
            "inner": {"required": ["a"], "additionalProperties": False},
        },
        "patternProperties": {"_ms$": {"type": "integer", "maximum": 10}},
        "additionalProperties": False,
    }
    (applied,) = world.register(scripted("a", host="sk-secret", gap_ms=11, inner={"b": "sk-secret"}, two="2", three=3))
    said = applied.message.removeprefix("a: ").split(", ")
    assert sorted(said) == [
        "a must be given in inner",
        "gap_ms breaks the rule 'maximum' of the adapter's schema: 10",
        "no setting of this type in inner: b",
        "no setting of this type: two and three",
        "port must be given",
    ]
    (applied,) = world.register(scripted("a", host="h", port=1, **{"\x1b[2J" + "x" * 500: 1}))
    assert applied.message == f"a: no setting of this type: ?[2J{'x' * 60}"


def test_one_that_failed_is_tried_again_with_the_next_registration() -> None:
    world = World()
    world.register(scripted("a", word="refuse"))
    (applied,) = world.register(scripted("a", word="refuse"))
    assert (applied.changed, applied.failed) == (("a",), ("a",))


def test_a_start_that_takes_time_is_waited_for() -> None:
    world = World()
    adapter = ScriptedAdapter()
    adapter.start_with = Deferred()
    world.factory._adapter = adapter
    applied = world.register(scripted("a"))
    assert applied == []
    adapter.start_with.callback(None)
    assert applied == [Applied(APPLIED, "", ("a",), ())]
    assert world.clock.getDelayedCalls() == []


def test_a_start_without_end_is_given_up(logged: Any) -> None:
    world = World()
    adapter = ScriptedAdapter()
    adapter.start_with = Deferred()
    world.factory._adapter = adapter
    applied = world.register(scripted("a"))
    world.clock.advance(31)
    assert applied[0].failed == ("a",)
    assert logged.failures()


@pytest.mark.parametrize("how", ["fails", "refuses", "never"])
def test_one_that_cannot_be_started_is_stopped_and_not_kept(logged: Any, how: str) -> None:
    """A node registers again and again: each attempt must leave nothing behind."""
    world = World()
    made: list[ScriptedAdapter] = []

    def make(settings: Any, environment: Any) -> ScriptedAdapter:
        adapter = ScriptedAdapter()
        made.append(adapter)
        if how == "never":
            adapter.start_with = Deferred()
        else:
            adapter.start_with = fail(
                Failure("invalid_value", "no such thing") if how == "refuses" else ZeroDivisionError("sk-secret")
            )
        return adapter

    world.factory.make = make  # type: ignore[method-assign]
    for attempt in range(1, 4):
        applied = world.register(scripted("a"), revision=str(attempt))
        world.clock.advance(31)
        assert applied[0].failed == ("a",)
        assert "sk-secret" not in applied[0].message
        assert [(adapter.started, adapter.stopped) for adapter in made] == [(1, 1)] * attempt
        with pytest.raises(Failure):
            world.adapters.adapter("a")
    assert world.clock.getDelayedCalls() == []
    Deferred.fromCoroutine(world.adapters.stop())
    assert [adapter.stopped for adapter in made] == [1, 1, 1]
    assert logged.failures()


def test_a_payload_waits_for_the_one_before() -> None:
    """A link lost while adapters start: the next registration makes none of them twice."""
    world = World()
    adapter = ScriptedAdapter()
    adapter.start_with = Deferred()
    world.factory._adapter = adapter
    first, second = world.register(scripted("a")), world.register(scripted("a"), revision="2")
    assert (first, second) == ([], [])
    adapter.start_with.callback(None)
    assert first == [Applied(APPLIED, "", ("a",), ())]
    assert second == [Applied(APPLIED, "", (), ())]
    assert adapter.started == 1
    assert world.adapters.revision == "2"


def test_stop_stops_every_adapter_even_after_one_that_fails(logged: Any) -> None:
    world = World()
    world.register(scripted("a"), scripted("b"))
    world.made[0].stop = lambda: 1 / 0  # type: ignore[method-assign]
    Deferred.fromCoroutine(world.adapters.stop())
    assert world.made[1].stopped == 1
    assert [type(error) for error in logged.failures()] == [ZeroDivisionError]
    with pytest.raises(Failure):
        world.adapters.adapter("a")


def test_an_adapter_that_is_being_made_when_the_node_stops_is_stopped_too() -> None:
    world = World()
    adapter = ScriptedAdapter()
    adapter.start_with = Deferred()
    world.factory._adapter = adapter
    world.register(scripted("a"))
    Deferred.fromCoroutine(world.adapters.stop())
    adapter.start_with.callback(None)
    assert (adapter.started, adapter.stopped) == (1, 1)


def test_a_stop_without_end_is_given_up(logged: Any) -> None:
    world = World()
    world.register(scripted("a"), scripted("b"))
    world.made[0].stop_with = Deferred()
    stopped: list[None] = []
    Deferred.fromCoroutine(world.adapters.stop()).addCallback(stopped.append)
    assert stopped == []
    world.clock.advance(31)
    assert stopped == [None]
    assert world.made[1].stopped == 1
    assert logged.failures()


# ---- a refresh


def test_a_refresh_that_changes_no_adapter_is_applied() -> None:
    world = World()
    world.register(scripted("a"))
    assert world.adapters.refresh(m.NodePayload("2", (scripted("a"),), (), 9)) == Applied(APPLIED)
    assert world.adapters.payload.concurrency == 9
    assert world.adapters.revision == "2"


def test_a_refresh_that_changes_adapters_needs_a_restart() -> None:
    world = World()
    world.register(scripted("a"))
    applied = world.adapters.refresh(m.NodePayload("2", (scripted("b"),)))
    assert applied.status is m.RefreshStatus.RESTART_REQUIRED
    assert world.adapters.revision == "1"


# ---- whose backend it is


@pytest.mark.parametrize(
    ("provider_id", "adapter", "backend"),
    [
        ("p", "a", ("vllm at home", "vllm")),
        ("q", "b", ("of the adapter", "openai_compat")),
        ("", "b", ("of the adapter", "")),
        ("", "a", ("", "")),
        ("gone", "b", ("of the adapter", "")),
    ],
)
def test_the_label_of_a_runs_backend(provider_id: str, adapter: str, backend: tuple[str, str]) -> None:
    world = World()
    world.register(
        scripted("a"),
        scripted("b", provider="of the adapter"),
        providers=[
            m.ProviderConfig("p", "a", type="vllm", provider="vllm at home"),
            m.ProviderConfig("q", "b", type="openai_compat"),
        ],
    )
    assert world.adapters.backend(m.RunRequest("r", adapter, "t", provider_id)) == backend


# ---- the plugins of this machine


def test_every_plugin_is_there() -> None:
    """Discovery swallows import errors, so the full set is stated here."""
    found = plugin.found()
    assert set(found) == {"openai_compat", "ollama", "cli"}
    for name, factory in found.items():
        assert factory.name == name
        assert factory.title
        assert factory.settings_schema["type"] == "object"
        assert factory.capabilities["modes"]


def test_an_unknown_type_lists_those_there_are() -> None:
    with pytest.raises(Failure) as raised:
        plugin.factory("telepathy")
    assert raised.value.code == "adapter_unavailable"
    assert "'telepathy'" in raised.value.message
    assert "openai_compat" in raised.value.message


def test_the_built_in_adapter_is_made_of_its_plugin() -> None:
    world = World(plugin.factory)
    (applied,) = world.register(
        m.AdapterConfig("a", "openai_compat", True, {"base_url": "http://127.0.0.1:1/v1"}),
        m.AdapterConfig("b", "openai_compat", True, {}),
    )
    assert applied.failed == ("b",)
    assert isinstance(world.adapters.adapter("a"), OpenAICompatAdapter)


def test_payloads_that_wait_for_a_slow_registration_come_in_their_order() -> None:
    """A roll-back follows what it takes back; the other way round, the node would run what was rejected."""
    starting: Deferred[None] = Deferred()
    adapter = ScriptedAdapter()
    adapter.start_with = starting
    world = World()
    world.factory = ScriptedFactory(adapter)
    slow = m.NodePayload("1", (scripted("a"),))
    registering = Deferred.fromCoroutine(world.adapters.register(slow))
    taken: list[str] = []

    async def refresh(revision: str) -> None:
        async with world.adapters.turn():
            world.adapters.refresh(m.NodePayload(revision, slow.adapters))
            taken.append(revision)

    waiting = [Deferred.fromCoroutine(refresh(revision)) for revision in ("2", "3")]
    starting.callback(None)
    assert registering.called
    assert all(one.called for one in waiting)
    assert taken == ["2", "3"]
    assert world.adapters.revision == "3"
