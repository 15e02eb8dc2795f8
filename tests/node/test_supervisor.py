"""A node's runs: numbered, cut to frames, held to their credit, and ended once whatever an adapter does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from doubles import (
    EVENT_STREAM,
    JSON,
    ScriptedAdapter,
    ScriptedFactory,
    ScriptedRun,
    Step,
    boom,
    complete,
    fail,
    piece,
    start,
    wait,
    whole,
)
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from zope.interface.verify import verifyObject

from iop import model as m
from iop.errors import Failure
from iop.interfaces import ISink
from iop.node.adapterset import AdapterSet
from iop.node.supervisor import NodeRun, Supervisor
from iop.wire import translate
from iop.wire.frames import MAX_FRAME, PART
from iop.wire.peer import RunRules

pytestmark = pytest.mark.usefixtures("logged")

KIND = {m.Start: "start", m.Delta: "delta", m.Complete: "complete", m.Whole: "whole", m.Cancelled: "cancelled"}


class FakeLink:
    """Where events go; they are encoded as on a link, and each run's must keep the rules."""

    def __init__(self) -> None:
        self.events: dict[str, list[m.RunEvent]] = {}
        self._rules: dict[str, RunRules] = {}
        self.max_frame = MAX_FRAME

    def send_event(self, run_id: str, seq: int, event: m.RunEvent) -> bool:
        if len(translate.encode_event(run_id, seq, event)) > self.max_frame:
            return False
        self._rules.setdefault(run_id, RunRules()).event(seq, type(event))
        self.events.setdefault(run_id, []).append(event)
        return True


class World:
    """A supervisor with one scripted adapter `a`."""

    def __init__(
        self, *script: Step, adapter: Any = None, can: dict[str, Any] | None = None, roots: Any = (), **traits: Any
    ) -> None:
        self.clock = Clock()
        self.adapter = adapter or ScriptedAdapter(*script, **traits)
        factory = ScriptedFactory(self.adapter)
        factory.capabilities = {**factory.capabilities, **(can or {})}
        adapters = AdapterSet(self.clock, Path(), lambda kind: factory, workspace_roots=roots)
        payload = m.NodePayload("1", (m.AdapterConfig("a", "scripted"),))
        Deferred.fromCoroutine(adapters.register(payload))
        assert adapters.revision == "1"
        self.supervisor = Supervisor(adapters, self.clock)
        self.link = FakeLink()

    def run(self, run_id: str = "r", *, size: int | None = None, **request: Any) -> None:
        made = m.RunRequest(run_id, request.pop("adapter", "a"), "t", **request)
        self.supervisor.run(self.link, made, len(made.input) if size is None else size)

    def events(self, run_id: str = "r") -> list[m.RunEvent]:
        return self.link.events.get(run_id, [])

    def kinds(self, run_id: str = "r") -> list[str]:
        """Return what was said, an error as its code."""
        return [e.failure.code if isinstance(e, m.Error) else KIND[type(e)] for e in self.events(run_id)]

    def body(self, run_id: str = "r") -> bytes:
        return b"".join(e.body for e in self.events(run_id) if isinstance(e, m.Delta))

    @property
    def scripted(self) -> ScriptedRun:
        run: ScriptedRun = self.adapter.runs[-1]
        return run

    @property
    def idle(self) -> bool:
        return not self.supervisor.runs and not self.clock.getDelayedCalls()


# ---- the ways of a run


def test_a_run_is_a_sink() -> None:
    verifyObject(ISink, NodeRun(m.RunRequest("r", "a", "t"), FakeLink(), lambda run: None))


def test_start_pieces_and_end() -> None:
    world = World(start(), piece(b"one"), piece(b"two"), complete("stop", m.Usage(7, 1)))
    world.run(input=b"{}")
    assert world.events() == [
        m.Start(EVENT_STREAM),
        m.Delta(b"one"),
        m.Delta(b"two"),
        m.Complete("stop", m.Usage(7, 1)),
    ]
    assert world.scripted.request.input == b"{}"
    assert world.idle


def test_text_and_reasoning_travel_apart() -> None:
    world = World(start(None), piece(text="answer", reasoning="hm"), complete())
    world.run()
    assert world.events()[1:3] == [m.Delta(reasoning="hm"), m.Delta(text="answer")]


CHAT = m.HttpRequestHead("POST", "/v1/chat/completions")
EMBEDDINGS = CHAT._replace(path="/v1/embeddings")


@pytest.mark.parametrize("modes", [{m.Mode.NORMALIZED}, set()])
def test_embeddings_go_to_an_adapter_that_can_as_http_though_it_takes_nothing_else_so(modes: set[m.Mode]) -> None:
    world = World(whole(b"{}"), can={"modes": modes, "embeddings": True})
    world.run(http=EMBEDDINGS, input=b"{}")
    assert (world.scripted.request.mode, world.scripted.request.http) == (m.Mode.PASSTHROUGH, EMBEDDINGS)
    assert world.kinds() == ["whole"]
    world.run("other", http=EMBEDDINGS._replace(path="/v1/rerank"))
    assert world.kinds("other") == ["unknown_url"]
    assert world.idle


def test_an_adapter_of_embeddings_alone_is_asked_for_no_chat() -> None:
    world = World(whole(b"{}"), can={"modes": set(), "embeddings": True})
    world.run(http=CHAT)
    assert world.kinds() == ["unknown_url"]


def test_what_an_edge_takes_for_bytes_a_drop_in_without_http_is_given_as_a_document() -> None:
    """The edge does not know what a drop-in can."""
    world = World(start(None), complete(), can={"modes": {m.Mode.NORMALIZED}})
    world.run(http=CHAT, input=b"{}")
    assert (world.scripted.request.mode, world.scripted.request.http) == (m.Mode.NORMALIZED, None)
    world.run("other", http=EMBEDDINGS)
    assert world.kinds("other") == ["unknown_url"]
    world = World(start(), complete(), can={"modes": {m.Mode.PASSTHROUGH}})
    world.run(mode=m.Mode.NORMALIZED)
    assert world.kinds() == ["unknown_url"]
    assert world.idle


def test_a_workspace_is_the_nodes_to_allow(tmp_path: Path) -> None:
    """Only for an adapter that works in one: to any other the word is the caller's own."""
    (tmp_path / "w").mkdir()
    world = World(start(None), complete(), roots=[tmp_path.resolve()])
    world.run(workspace=f"{tmp_path}/w/../w")
    assert world.scripted.request.workspace == str((tmp_path / "w").resolve())
    world.run("other", workspace="/etc")
    assert world.kinds("other") == ["workspace_invalid"]
    world = World(start(None), complete(), can={"sessions": False})
    world.run(workspace="anything")
    assert world.kinds() == ["start", "complete"]


def test_an_answer_at_hand_whole_is_one_event() -> None:
    world = World(whole(b"{}", usage=m.Usage(1, 2)))
    world.run()
    assert world.events() == [m.Whole(JSON, b"{}", "stop", m.Usage(1, 2))]
    assert world.idle


def test_an_answer_at_hand_whole_but_long_is_several() -> None:
    world = World(whole(b"x" * (PART + 1)))
    world.run()
    assert world.kinds() == ["start", "delta", "delta", "complete"]
    assert world.body() == b"x" * (PART + 1)
    assert world.idle


def test_pieces_are_cut_to_frames() -> None:
    world = World(start(), piece(b"x" * (2 * PART + 1)), piece(text="那" * PART), complete())
    world.run(window_bytes=1 << 30)
    assert [len(e.body) for e in world.events() if isinstance(e, m.Delta) and e.body] == [PART, PART, 1]
    texts = [e.text for e in world.events() if isinstance(e, m.Delta) and e.text]
    assert "".join(texts) == "那" * PART
    assert all(len(text.encode()) <= PART for text in texts)


def test_a_failure_of_the_backend() -> None:
    world = World(fail(Failure("rate_limited", "slow down", retry_after_ms=7000)))
    world.run()
    assert world.kinds() == ["rate_limited"]
    assert world.idle


def test_a_failure_after_the_start() -> None:
    world = World(start(), piece(b"x"), fail(Failure("upstream_error", "it broke")))
    world.run()
    assert world.kinds() == ["start", "delta", "upstream_error"]


# ---- adapters that do not do what they should


def test_an_adapter_that_raises_at_once(logged: Any) -> None:
    world = World(boom)
    world.run()
    assert world.kinds() == ["internal"]
    assert [type(error) for error in logged.failures()] == [ZeroDivisionError]
    assert world.idle


def test_an_adapter_that_raises_in_the_middle(logged: Any) -> None:
    world = World(start(), piece(b"x"), wait, boom)
    world.run()
    world.scripted.go()
    assert world.kinds() == ["start", "delta", "internal"]
    assert [type(error) for error in logged.failures()] == [ZeroDivisionError]
    assert world.idle


def test_an_adapter_that_raises_a_failure_means_it() -> None:
    def refuse(_: Any) -> None:
        raise Failure("workspace_invalid", "no such directory: /x")

    world = World(refuse)
    world.run()
    assert world.kinds() == ["workspace_invalid"]


def test_an_adapter_that_ends_silently() -> None:
    for script in ([], [start()], [start(), piece(b"x")]):
        world = World(*script)
        world.run()
        assert world.kinds()[-1] == "internal"
        assert world.idle


@pytest.mark.parametrize("returned", [None, "text", 7])
def test_an_adapter_that_returns_no_deferred(logged: Any, returned: Any) -> None:
    class Odd(ScriptedAdapter):
        def run(self, request: Any, sink: Any) -> Any:
            return returned

    world = World(adapter=Odd())
    world.run()
    assert world.kinds() == ["internal"]
    assert logged.failures()
    assert world.idle


@pytest.mark.parametrize(
    "script",
    [[piece(b"x")], [complete()], [start(), start()], [start(), start(), complete()]],
    ids=["piece first", "end first", "two starts", "two starts and an end"],
)
def test_an_adapter_out_of_turn_harms_only_its_run(logged: Any, script: list[Step]) -> None:
    world = World(*script)
    world.run()
    world.adapter.script = (start(), complete())
    world.run("other")
    assert world.kinds()[-1] == "internal"
    assert world.kinds("other") == ["start", "complete"]
    assert [type(error) for error in logged.failures()] == [RuntimeError]
    assert world.idle


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ([boom], ["internal"]),
        ([start(), piece(b"x"), boom], ["start", "delta", "internal"]),
        ([wait], []),
        ([start(), lambda sink: sink.delta(7)], ["start", "internal"]),
    ],
    ids=["raises at once", "raises in the middle", "never answers", "says what is nothing"],
)
def test_an_adapter_that_does_wrong_by_one_run_serves_the_others(
    logged: Any, script: list[Step], told: list[str]
) -> None:
    """The contract: one that was under way goes on, and one that comes later is answered."""
    world = World(start(), piece(b"one"), wait, piece(b"two"), complete())
    world.run("before")
    before = world.scripted
    world.adapter.script = tuple(script)
    world.run("wrong")
    world.adapter.script = (start(), piece(b"three"), complete())
    world.run("after")
    before.go()
    assert world.kinds("wrong") == told
    assert (world.kinds("before"), world.body("before")) == (["start", "delta", "delta", "complete"], b"onetwo")
    assert (world.kinds("after"), world.body("after")) == (["start", "delta", "complete"], b"three")
    assert len(logged.failures()) == (1 if told else 0)
    assert world.supervisor.cancel("wrong") is (not told)
    assert world.idle


class Brittle(ScriptedAdapter):
    """An adapter of which a part breaks when it is used."""

    def __init__(self, part: str, breaks: BaseException) -> None:
        super().__init__(start(), piece(b"x"), wait)
        self.part, self.breaks = part, breaks

    def run(self, run: Any, sink: Any) -> Deferred[Any]:
        def broken(*_: Any) -> Any:
            raise self.breaks

        if self.part == "run":
            broken()
        done = super().run(run, sink)
        if self.part == "cancel":
            return Deferred(broken)
        if self.part == "usage":
            type(self.runs[-1]).usage = property(broken)  # type: ignore[attr-defined]
        setattr(self.runs[-1], self.part, broken) if self.part in ("pause", "resume") else None
        return done


@pytest.mark.parametrize("breaks", [ZeroDivisionError("a bug"), SystemExit(1)], ids=["a bug", "an exit"])
@pytest.mark.parametrize("part", ["run", "cancel", "pause", "resume", "usage"])
def test_whatever_breaks_of_an_adapter_its_run_ends_and_nothing_else(
    logged: Any, monkeypatch: pytest.MonkeyPatch, part: str, breaks: BaseException
) -> None:
    """The contract: an adapter that raises harms only its own run, wherever it is asked."""
    monkeypatch.setattr(ScriptedRun, "usage", None, raising=False)
    world = World(adapter=Brittle(part, breaks))
    world.run("wrong")
    world.adapter.part = ""
    world.run("other")
    world.supervisor.link_paused(True)
    world.supervisor.link_paused(False)
    assert world.kinds("other") == ["start", "delta"]
    world.supervisor.cancel("wrong")
    assert world.kinds("wrong")[-1] == ("cancelled" if part in ("cancel", "usage") else "internal")
    world.supervisor.cancel_all()
    assert world.kinds("other") == ["start", "delta", "cancelled"]
    assert [type(error) for error in logged.failures()] == ([] if part == "usage" else [type(breaks)])
    assert world.idle


def test_a_lost_link_ends_every_run_though_one_breaks_at_that(logged: Any) -> None:
    world = World(adapter=Brittle("cancel", ZeroDivisionError("a bug")))
    world.run("wrong")
    world.adapter.part = ""
    world.run("other")
    world.supervisor.cancel_all()
    assert (world.kinds("wrong")[-1], world.kinds("other")[-1]) == ("cancelled", "cancelled")
    assert world.idle
    assert len(logged.failures()) == 1


def test_what_an_adapter_says_after_its_end_is_nothing() -> None:
    world = World(start(), complete(), start(), piece(b"x"), complete(), fail(Failure("internal", "")), whole(b""))
    world.run()
    assert world.kinds() == ["start", "complete"]
    assert world.idle


@pytest.mark.parametrize(
    "garbage",
    [
        complete("stop", m.Usage(-1)),
        complete("stop", m.Usage(1 << 70)),
        complete("stop", {"prompt_tokens": 1}),  # type: ignore[arg-type]
        complete(7),  # type: ignore[arg-type]
        complete("stop", None, {"k": 7}),  # type: ignore[dict-item]
        piece(text=7),  # type: ignore[arg-type]
    ],
)
def test_values_that_no_message_can_carry_end_the_run_in_their_place(logged: Any, garbage: Step) -> None:
    world = World(start(), garbage, wait)
    world.run()
    assert world.kinds() == ["start", "internal"]
    assert logged.failures()
    assert world.idle


def test_a_lone_surrogate_is_no_garbage() -> None:
    world = World(start(None), piece(text="a\ud83c"), complete("\ud83c"))
    world.run()
    assert world.kinds() == ["start", "delta", "complete"]


def test_an_end_that_fits_no_frame_is_answer_too_large() -> None:
    world = World(start(), complete("stop", None, {"openai_tool_calls": "x" * MAX_FRAME}))
    world.run()
    assert world.kinds() == ["start", "answer_too_large"]
    assert world.idle


def test_a_start_that_fits_no_frame_stops_the_backend() -> None:
    head = m.HttpResponseHead(200, (("x", "y" * MAX_FRAME),))
    world = World(wait, start(head), piece(b"x"), wait)
    world.run()
    world.scripted.go()
    assert world.kinds() == ["answer_too_large"]
    assert world.scripted.cancelled
    assert world.idle


def test_a_start_that_fits_no_frame_stops_a_backend_that_began_at_once() -> None:
    head = m.HttpResponseHead(200, (("x", "y" * MAX_FRAME),))
    world = World(start(head), piece(b"x"), wait)
    world.run()
    assert world.kinds() == ["answer_too_large"]
    assert world.scripted.cancelled
    assert world.idle


# ---- what the edge asks


def test_an_unknown_adapter() -> None:
    world = World()
    world.run(adapter="b")
    assert world.kinds() == ["adapter_unavailable"]
    assert world.idle


def test_a_run_id_in_use() -> None:
    world = World(start(), wait, complete())
    world.run()
    other = FakeLink()
    world.supervisor.run(other, m.RunRequest("r", "a", "t"), 0)
    assert [e.failure.code for e in other.events["r"] if isinstance(e, m.Error)] == ["duplicate_run"]
    world.scripted.go()
    assert world.kinds() == ["start", "complete"]
    assert world.idle


def test_the_deadline_stops_the_backend() -> None:
    world = World(start(), piece(b"x"), wait)
    world.run(deadline_ms=1500)
    world.clock.advance(1.4)
    assert world.kinds() == ["start", "delta"]
    world.clock.advance(0.2)
    assert world.kinds() == ["start", "delta", "deadline_exceeded"]
    assert world.scripted.cancelled
    assert world.idle


def test_a_deadline_before_the_input_is_whole() -> None:
    world = World()
    world.run(input=b"ab", size=4, deadline_ms=1000)
    world.clock.advance(1)
    assert world.kinds() == ["deadline_exceeded"]
    world.supervisor.input(m.RunInput("r", b"cd"))
    assert world.adapter.runs == []
    assert world.idle


def test_a_run_that_ends_in_time_leaves_no_deadline() -> None:
    for script in ([start(), complete()], [whole(b"{}")], [fail(Failure("upstream_error", "no"))]):
        world = World(*script)
        world.run(deadline_ms=1000)
        assert world.idle


def test_a_long_input_comes_in_parts() -> None:
    world = World(start(), complete())
    world.run(input=b"ab", size=6)
    world.supervisor.input(m.RunInput("r", b"cd"))
    assert world.adapter.runs == []
    world.supervisor.input(m.RunInput("r", b"ef"))
    assert world.scripted.request.input == b"abcdef"
    assert world.kinds() == ["start", "complete"]


@pytest.mark.parametrize(("first", "size", "more"), [(b"abc", 2, []), (b"a", 3, [b"bcd"]), (b"a", 3, [b"b", b"cd"])])
def test_an_input_longer_than_it_was_said_to_be(first: bytes, size: int, more: list[bytes]) -> None:
    world = World()
    world.run(input=first, size=size)
    for part in [*more, b"even more"]:
        world.supervisor.input(m.RunInput("r", part))
    assert world.kinds() == ["protocol_error"]
    assert world.adapter.runs == []
    assert world.idle


def test_parts_that_nobody_waits_for_are_dropped() -> None:
    world = World(start(), wait)
    world.supervisor.input(m.RunInput("nobody", b"x"))
    world.run(input=b"ab")
    world.supervisor.input(m.RunInput("r", b"x"))
    assert world.kinds() == ["start"]
    assert world.scripted.request.input == b"ab"


# ---- cancelling


def test_cancel_stops_the_backend_and_says_so() -> None:
    world = World(start(), piece(b"x"), wait)
    world.run()
    assert world.supervisor.cancel("r")
    assert world.scripted.cancelled
    assert world.kinds() == ["start", "delta", "cancelled"]
    assert not world.supervisor.cancel("r")
    assert world.idle


def test_cancel_before_anything_was_said() -> None:
    world = World(wait)
    world.run()
    world.supervisor.cancel("r")
    assert world.kinds() == ["cancelled"]
    assert world.idle


def test_cancel_before_the_input_is_whole() -> None:
    world = World()
    world.run(input=b"a", size=9)
    assert world.supervisor.cancel("r")
    assert world.kinds() == ["cancelled"]
    assert world.idle


def test_cancel_of_nobody() -> None:
    assert not World().supervisor.cancel("nobody")


def test_cancel_while_pieces_wait_for_credit() -> None:
    world = World(start(), piece(b"x" * 10), piece(b"y" * 10), wait, deaf=True)
    world.run(window_bytes=5)
    assert world.kinds() == ["start", "delta"]
    world.supervisor.cancel("r")
    assert world.kinds() == ["start", "delta", "cancelled"]
    assert world.idle


def test_cancel_when_the_backend_is_done_but_the_client_did_not_take_it_all() -> None:
    world = World(start(), piece(b"x" * 10), piece(b"y" * 10), complete(), deaf=True)
    world.run(window_bytes=5)
    assert world.kinds() == ["start", "delta"]
    assert world.supervisor.cancel("r")
    assert world.kinds() == ["start", "delta", "cancelled"]
    assert world.idle


def test_an_adapter_that_does_not_end_when_it_is_cancelled_keeps_its_run() -> None:
    world = World(start(), wait, stubborn=True)
    world.run()
    world.supervisor.cancel("r")
    world.supervisor.cancel("r")
    assert world.kinds() == ["start"]
    assert "r" in world.supervisor.runs
    world.scripted.gave_in.callback(None)
    assert world.kinds() == ["start", "cancelled"]
    assert world.idle


def test_cancelling_from_within_the_adapters_start() -> None:
    world = World(start(), wait)
    world.adapter.script = (start(), lambda _: world.supervisor.cancel("r"), wait)
    world.run()
    assert world.kinds() == ["start", "cancelled"]
    assert world.scripted.cancelled
    assert world.idle


# ---- credit


def test_it_sends_while_credit_is_positive_and_one_event_may_overdraw() -> None:
    world = World(start(), piece(b"a" * 6), piece(b"b" * 6), piece(b"c" * 6), complete())
    world.run(window_bytes=10)
    assert world.body() == b"a" * 6 + b"b" * 6
    assert world.scripted.paused
    world.supervisor.window(m.RunWindow("r", 2))
    assert world.scripted.paused, "credit is 0, which is not positive"
    world.supervisor.window(m.RunWindow("r", 1))
    assert world.body() == b"a" * 6 + b"b" * 6 + b"c" * 6
    assert world.scripted.paused
    world.supervisor.window(m.RunWindow("r", 10))
    assert world.kinds() == ["start", "delta", "delta", "delta", "complete"]
    assert world.idle


def test_a_source_that_does_not_stop_waits_here() -> None:
    """Memory is bounded by the source then, not lost: everything comes in order."""
    pieces = [bytes([65 + number]) * 5 for number in range(8)]
    world = World(start(), *map(piece, pieces), complete("stop"), deaf=True)
    world.run(window_bytes=10)
    assert world.body() == b"".join(pieces[:2])
    for _ in range(8):
        world.supervisor.window(m.RunWindow("r", 5))
    assert world.body() == b"".join(pieces)
    assert world.kinds()[-1] == "complete"
    assert world.idle


def test_terminal_events_need_no_credit() -> None:
    world = World(start(), piece(b"x" * 10), wait, complete(), deaf=True)
    world.run(window_bytes=10)
    world.scripted.go()
    assert world.kinds() == ["start", "delta", "complete"]
    assert world.idle


def test_terminal_events_come_after_what_waits() -> None:
    world = World(start(), piece(b"x" * 10), piece(b"y"), complete(), deaf=True)
    world.run(window_bytes=10)
    assert world.kinds() == ["start", "delta"]
    world.supervisor.window(m.RunWindow("r", 10))
    assert world.kinds() == ["start", "delta", "delta", "complete"]


def test_a_failure_does_not_wait_behind_pieces() -> None:
    world = World(start(), piece(b"x" * 10), piece(b"y"), fail(Failure("upstream_error", "it broke")), deaf=True)
    world.run(window_bytes=10)
    assert world.kinds() == ["start", "delta", "upstream_error"]
    assert world.idle


def test_a_start_needs_no_credit() -> None:
    world = World(start(), piece(b"x"), complete(), deaf=True)
    world.run(window_bytes=0)
    assert world.kinds() == ["start"]
    world.supervisor.window(m.RunWindow("r", 1))
    assert world.kinds() == ["start", "delta", "complete"]


def test_text_spends_its_bytes() -> None:
    world = World(start(None), piece(text="那那"), piece(reasoning="那"), piece(text="x"), wait)
    world.run(window_bytes=9)
    assert world.kinds() == ["start", "delta", "delta"]
    assert world.scripted.paused


def test_credit_for_nobody_is_nothing() -> None:
    World().supervisor.window(m.RunWindow("nobody", 10))


def test_a_source_is_paused_once_and_resumed_once() -> None:
    world = World(start(), piece(b"x" * 10), wait)
    world.run(window_bytes=10)
    world.supervisor.link_paused(True)
    world.supervisor.link_paused(True)
    assert world.scripted.pauses == 1
    world.supervisor.window(m.RunWindow("r", 100))
    assert world.scripted.paused, "the link still takes nothing"
    world.supervisor.link_paused(False)
    assert not world.scripted.paused
    assert world.scripted.pauses == 1


def test_a_run_that_begins_while_the_link_takes_nothing_begins_paused() -> None:
    world = World(start(), wait)
    world.supervisor.link_paused(True)
    world.run()
    assert world.scripted.paused
    world.supervisor.link_paused(False)
    assert not world.scripted.paused


@given(
    st.integers(0, 40),
    st.lists(st.binary(min_size=1, max_size=20), max_size=12),
    st.lists(st.integers(1, 30), max_size=40),
    st.booleans(),
)
def test_whatever_the_credit_everything_comes_in_order_and_in_bounds(
    window: int, pieces: list[bytes], gives: list[int], deaf: bool
) -> None:
    world = World(start(), *map(piece, pieces), complete(), deaf=deaf)
    world.run(window_bytes=window)
    allowed, everything = window, b"".join(pieces)
    for give in [0, *gives]:
        if give:
            world.supervisor.window(m.RunWindow("r", give))
        allowed += give
        assert len(world.body()) < allowed + 20 or not world.body()
        assert everything.startswith(world.body())
    world.supervisor.window(m.RunWindow("r", 1000))
    assert world.body() == everything
    assert world.kinds()[-1] == "complete"
    assert world.idle


# ---- the link is lost


def test_on_loss_every_backend_is_stopped() -> None:
    world = World(start(), wait)
    for run_id in ("one", "two"):
        world.run(run_id)
    world.run("three", input=b"a", size=2)
    world.supervisor.cancel_all()
    assert [run.cancelled for run in world.adapter.runs] == [True, True]
    assert world.idle


def test_on_loss_what_waits_for_credit_waits_no_longer() -> None:
    world = World(start(), piece(b"x" * 10), piece(b"y" * 10), complete(), deaf=True)
    world.run(window_bytes=1)
    assert world.supervisor.runs
    world.supervisor.cancel_all()
    assert world.idle


def test_after_a_loss_the_next_link_is_not_paused() -> None:
    world = World(start(), wait)
    world.supervisor.link_paused(True)
    world.supervisor.cancel_all()
    world.run()
    assert not world.scripted.paused


def test_runs_side_by_side() -> None:
    world = World(start(), piece(b"x"), wait, complete())
    for number in range(50):
        world.run(f"r{number}")
    for run in world.adapter.runs[::2]:
        run.go()
    for number in range(1, 50, 2):
        world.supervisor.cancel(f"r{number}")
    assert [world.kinds(f"r{number}")[-1] for number in range(50)] == ["complete", "cancelled"] * 25
    assert world.idle
    assert world.supervisor.total == 50
