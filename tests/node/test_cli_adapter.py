"""Agents as real child processes: what they are given, what becomes of what they say, and every way they end."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from doubles import RecordingSink
from pytest_twisted import ensureDeferred
from socket_doubles import later, until
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from iop import model as m
from iop.errors import Failure
from iop.node.adapters.cli.adapter import CLIAdapter, factory
from iop.node.adapters.cli.processes import MARKER, Processes, reap_orphans
from iop.node.adapters.environment import Environment, Run
from iop.node.adapters.workspace import resolved
from iop.node.sessions import SessionStore

pytestmark = pytest.mark.usefixtures("logged")

AGENT = str(Path(__file__).with_name("fake_agent.py"))
DAY = 86_400


class World:
    """An adapter for the fake agent.

    :cvar clock: what its adapter's time is.
    """

    clock: Any = reactor

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.now = 1_000_000.0
        self.root = folder.resolve()
        self.store = SessionStore(folder / "sessions.sqlite3", lambda: self.now)
        self.made: list[CLIAdapter] = []
        self.settings = {
            "command": sys.executable,
            "args": ["-S", AGENT],
            "output_format": "claude_stream_json",
            "resume_args": ["--resume", "{session}"],
            "mode": "session",
            "grace_ms": 200,
            **settings,
        }
        self.adapter = self.another()

    def another(self) -> CLIAdapter:
        """Make an adapter over the same state, as a node that was started again would."""
        environment = Environment("agent", self.clock, self.folder, self.store, partial(resolved, roots=[self.root]))
        processes = Processes(reactor, self.folder / "children")  # type: ignore[arg-type]
        adapter = CLIAdapter(self.settings, environment, processes, {**os.environ, "SECRET": "s"})
        self.made.append(adapter)
        return adapter

    def begin(self, prompt: Any, **request: Any) -> tuple[RecordingSink, Deferred[Any]]:
        messages = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
        body = json.dumps({"model": "m", "messages": messages}).encode()
        sink = RecordingSink()
        made = m.RunRequest("r", "agent", "t", mode=m.Mode.NORMALIZED, input=body, **request)
        return sink, self.adapter.run(Run(made), sink)

    async def ask(self, prompt: Any, **request: Any) -> RecordingSink:
        sink, done = self.begin(prompt, **request)
        await done
        return sink

    async def told(self, what: str, **request: Any) -> Any:
        """Return what the agent says of its surroundings."""
        return json.loads((await self.ask(f"tell {what}", **request)).text)

    async def refused(self, prompt: str, **request: Any) -> Failure:
        with pytest.raises(Failure) as raised:
            self.begin(prompt, **request)
        return raised.value

    @property
    def alive(self) -> list[int]:
        """The processes of every run, wherever they put themselves."""
        return [
            pid
            for pid in pids()
            if MARKER.encode() + b"=" in environ(pid) and str(self.folder).encode() in environ(pid)
        ]


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


async def said(sink: RecordingSink, text: str) -> None:
    """Wait until a run has said this."""
    deadline = time.monotonic() + 10
    while sink.text != text:
        assert time.monotonic() < deadline, sink.events
        await later(0.005)


async def gone(world: World) -> None:
    """See that nothing is left; what was killed takes a moment to be gone."""
    deadline = time.monotonic() + 2
    while left := world.alive:
        assert time.monotonic() < deadline, left
        await later(0.005)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for _ in range(200):  # what was killed takes a moment to be gone
        left = [pid for pid in pids() if f"FOLDER={tmp_path}".encode() in environ(pid)]
        if not left:
            break
        time.sleep(0.005)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


@pytest.fixture
def world(folder: Path) -> World:
    return World(folder, env={"FOLDER": str(folder)})


# ---- what an agent is given


@ensureDeferred
async def test_an_answer(world: World) -> None:
    sink = await world.ask("hello there")
    assert (sink.text, sink.end) == ("hello there", m.Complete("stop", m.Usage(9, 3, 2)))
    assert not list((world.folder / "children").iterdir())


@ensureDeferred
async def test_it_leads_a_group_and_a_session_of_its_own(world: World) -> None:
    assert await world.told("leads")


@ensureDeferred
async def test_it_gets_its_own_environment_and_the_harmless_part_of_the_nodes(world: World) -> None:
    environ = await world.told("environ")
    assert environ["FOLDER"] == str(world.folder)
    assert environ["PATH"] == os.environ["PATH"]
    assert "SECRET" not in environ
    assert set(environ) <= {"PATH", "HOME", "LANG", "TMPDIR", "TERM", "FOLDER", MARKER, "LC_CTYPE", "LC_ALL"}


@ensureDeferred
async def test_it_gets_nothing_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by the node nor by what makes it a child; each that it gets is the node's."""
    given = {
        "HOME": "/home/of-the-node",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "LC_TIME": "en_DK.UTF-8",
        "TMPDIR": "/tmp/of-the-node",
        "TERM": "vt100",
    }
    for name, value in {**given, "USER": "node", "LCNAME": "no LC_", "PYTHONPATH": "/nowhere"}.items():
        monkeypatch.setenv(name, value)
    world = World(folder, command="env", args=[], output_format="text", mode="oneshot", env={"KEY": "k"})
    environ = dict(line.split("=", 1) for line in (await world.ask("hello")).text.splitlines())
    assert re.fullmatch("[0-9a-f]{32}", environ.pop("IOP_RUN"))
    assert environ == {"PATH": os.environ["PATH"], **given, "KEY": "k"}


@ensureDeferred
async def test_it_gets_no_locale_that_the_node_does_not_have(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python, which makes it a child, gives itself one where there is none."""
    for name in list(os.environ):
        if name == "LANG" or name.startswith("LC_"):
            monkeypatch.delenv(name)
    world = World(folder, command="env", args=[], output_format="text", mode="oneshot")
    names = {line.partition("=")[0] for line in (await world.ask("hello")).text.splitlines()}
    assert not {name for name in names if name.startswith(("LANG", "LC_"))}
    world = World(folder, command="env", args=[], output_format="text", mode="oneshot", env={"LC_CTYPE": "C"})
    assert "LC_CTYPE=C" in (await world.ask("hello")).text.splitlines()


@pytest.mark.parametrize("way", ["stdin", "argument"])
@pytest.mark.parametrize(
    "prompt", ["-1 + 2 = ?", "--help", "- [ ] buy milk", "; touch iop-shell-ran; $(id) `id`", "那\n", "x" * 120_000]
)
@ensureDeferred
async def test_a_prompt_arrives_as_it_is(folder: Path, way: str, prompt: str) -> None:
    """CL-03"""
    world = World(folder, prompt=way, env={"FOLDER": str(folder)})
    assert (await world.ask(prompt)).text == prompt
    assert not list(folder.rglob("iop-shell-ran"))


@ensureDeferred
async def test_long_prompts_and_nul_go_by_stdin_alone(folder: Path) -> None:
    """CL-03"""
    world = World(folder, env={"FOLDER": str(folder)})
    for prompt in ("y" * 200_000, "a\0b"):
        assert (await world.ask(prompt)).text == prompt
    world = World(folder, prompt="argument", env={"FOLDER": str(folder)})
    for prompt in ("y" * 200_000, "a\0b"):
        assert (await world.refused(prompt)).code == "invalid_value"


@ensureDeferred
async def test_stdin_is_at_its_end_behind_a_prompt_that_is_an_argument(folder: Path) -> None:
    """CL-04: agents that have a prompt read an open stdin all the same, and wait for its end."""
    world = World(folder, prompt="argument", request_timeout_ms=10_000, env={"FOLDER": str(folder)})
    assert (await world.ask("listen")).text == "heard ''"


@ensureDeferred
async def test_a_long_system_prompt(world: World) -> None:
    """CL-03"""
    talk = [{"role": "system", "content": "y" * 200_000}, {"role": "user", "content": "hello"}]
    said = (await world.ask(talk)).text
    assert len(said) > 200_000
    assert said.endswith("hello")


@ensureDeferred
async def test_noise_is_counted(folder: Path, logged: Any) -> None:
    """CL-02"""
    script = 'cat; echo; echo banner; echo "[1,2]"; echo \'{"type":"result","is_error":false,"result":"fine"}\''
    world = World(folder, command="sh", args=["-c", script])
    assert (await world.ask("now using node")).text == "fine"
    assert "3 lines of an agent were noise" in logged.lines("debug")


@ensureDeferred
async def test_a_run_works_in_its_workspace_else_in_a_directory_of_its_own(world: World, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    assert await world.told("cwd", workspace=str(tmp_path / "w")) == str(tmp_path / "w")
    own = await world.told("cwd")
    assert own.startswith(str(world.folder / "scratch"))
    assert not Path(own).exists()
    kept = await world.told("cwd", session_id="s")
    assert Path(kept).is_dir()
    assert await world.told("cwd", session_id="s") == kept


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-program", "no-such-program is not in the PATH"),
        ("/no/such/program", "there is no program /no/such/program"),
        ("PLAIN", "may not be executed"),
    ],
)
@ensureDeferred
async def test_a_program_that_cannot_be_run(folder: Path, command: str, said: str) -> None:
    """CL-08"""
    plain = folder / "plain"
    plain.write_text("text")
    world = World(folder, command=command.replace("PLAIN", str(plain)))
    failure = await world.refused("hello")
    assert (failure.code, said in failure.message) == ("adapter_unavailable", True)
    told: list[Any] = []
    world.adapter.probe().addErrback(lambda reason: told.append(reason.value.message))
    assert told == [failure.message], "so does whoever looks at the pool hear of it"


@ensureDeferred
async def test_a_program_that_is_none_fails_its_run(folder: Path) -> None:
    """CL-08: executable by its mode alone."""
    script = folder / "script"
    script.write_bytes(b"\x7fELF nonsense")
    script.chmod(0o755)
    sink = await World(folder, command=str(script)).ask("hello")
    assert sink.failure.code == "upstream_error"
    assert "cannot be executed" in sink.failure.message


# ---- what becomes of what it says


@ensureDeferred
async def test_long_lines_and_much_noise(world: World) -> None:
    """CL-01, CL-04"""
    assert (await world.ask("line 300000")).text == "fine"
    assert len((await world.ask("flood 8000")).text) == 8_000_000
    monster = await world.ask("line 9000000")
    assert (monster.failure.code, "longer than 8 MiB" in monster.failure.message) == ("upstream_error", True)


@ensureDeferred
async def test_characters_that_come_in_pieces_are_whole(world: World) -> None:
    """UTF-01 CLI stdout line: two, three and four bytes, each read by itself."""
    assert (await world.ask("drip é那😀")).text == "é那😀"


@ensureDeferred
async def test_a_client_that_does_not_read_stops_the_agent(world: World) -> None:
    """CL-04: nothing is buffered without bound."""
    sink, done = world.begin("flood 3000")
    sink.source.pause()
    await later(0.3)
    before = len(sink.text)
    assert before < 500_000
    sink.source.resume()
    await done
    assert len(sink.text) == 3_000_000


@pytest.mark.parametrize(
    ("prompt", "code", "status", "said"),
    [
        ("fail 1", "upstream_error", 502, "not logged in"),
        ("fail 0", "upstream_error", 502, ""),
        ("refuse 429", "rate_limited", 429, "limit reached"),
        ("die", "upstream_error", 502, "SIGKILL"),
    ],
)
@ensureDeferred
async def test_a_bad_end_is_told(world: World, prompt: str, code: str, status: int, said: str) -> None:
    """CL-01, CL-07"""
    sink = await world.ask(prompt)
    assert (sink.failure.code, sink.failure.http_status) == (code, status)
    assert said in sink.failure.message


@ensureDeferred
async def test_the_last_of_much_that_stderr_says_is_told(world: World) -> None:
    """The error that it begins with would be told if more than the last 4 KiB were kept: it is 4,800 bytes behind."""
    told = (await world.ask("complain 400")).failure.message
    assert told == "the agent ended without a result (exit status 1): number 0398; number 0399; number 0400"
    told = (await world.ask("complain 300")).failure.message
    assert told.endswith("(exit status 1): error: at first; number 0001; number 0002")


@ensureDeferred
async def test_a_run_that_takes_too_long(folder: Path) -> None:
    """CL-05"""
    world = World(folder, request_timeout_ms=300, env={"FOLDER": str(folder)})
    sink = await world.ask("deaf")
    assert (sink.text, sink.failure.code) == ("begun", "upstream_timeout")


# ---- ending it


@pytest.mark.parametrize("prompt", ["hang", "deaf"])
@ensureDeferred
async def test_cancelling_leaves_no_process(world: World, prompt: str) -> None:
    """CL-05: grandchildren that ignore SIGINT and hold stdout, one of them in a session of its own."""
    sink, done = world.begin(prompt)
    await said(sink, "begun")
    assert len(world.alive) == (3 if prompt == "deaf" else 1)
    began = time.monotonic()
    done.cancel()
    await done
    await gone(world)
    assert time.monotonic() - began < 2
    assert sink.end is None


@pytest.mark.parametrize("grace_ms", [0, 20_000])
@ensureDeferred
async def test_cancelling_at_once(folder: Path, grace_ms: int) -> None:
    """CL-05: nobody heeds a signal while a child is being made; it does not last for the grace time, or for ever."""
    sleeper = {"command": "sleep", "args": ["300"], "output_format": "text", "mode": "oneshot"}
    world = World(folder, env={"FOLDER": str(folder)}, grace_ms=grace_ms, **sleeper)
    _, done = world.begin("hang")
    began = time.monotonic()
    done.cancel()
    await done
    await gone(world)
    assert time.monotonic() - began < 5


@ensureDeferred
async def test_cancelling_one_that_nobody_reads(world: World) -> None:
    sink, done = world.begin("flood 3000")
    sink.source.pause()
    await later(0.2)
    done.cancel()
    await done
    await gone(world)


@ensureDeferred
async def test_a_grandchild_that_holds_stdout_delays_nobody_and_is_not_left(world: World) -> None:
    began = time.monotonic()
    assert (await world.ask("leave")).text == "left"
    assert time.monotonic() - began < 2
    await gone(world)


@ensureDeferred
async def test_answers_that_end_together_are_whole(folder: Path) -> None:
    """What a dead child wrote is still in its pipe, however late somebody comes to read it."""
    world = World(folder, command="cat", args=[], output_format="text", mode="oneshot", resume_args=[])
    prompt = "\n".join(map(str, range(4_000)))
    runs = [world.begin(prompt) for _ in range(20)]
    for sink, done in runs:
        await done
        assert sink.text.rstrip("\n") == prompt


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"output_format": "jsonl"}, "fields.text"),
        ({"output_format": "jsonl", "fields": {"session": "id"}}, "fields.text"),
        ({"mode": "session", "output_format": "claude_stream_json"}, "resume_args"),
        ({"mode": "session", "output_format": "text", "resume_args": ["-r", "{session}"]}, "names no {session}"),
    ],
)
def test_settings_that_cannot_work_together(tmp_path: Path, settings: Any, said: str) -> None:
    with pytest.raises(Failure) as raised:
        factory.make({"command": "cat", **settings}, Environment("a", reactor, tmp_path))
    assert said in raised.value.message


@ensureDeferred
async def test_directories_that_nobody_needs_are_removed(world: World) -> None:
    await world.ask("hello", session_id="kept")
    await world.ask("fail 1", session_id="failed before it began")
    scratch = world.folder / "scratch"
    (scratch / "run-left").mkdir()
    world.another().start()
    kept = sorted(path.name for path in scratch.iterdir())
    assert len(kept) == 2
    assert all(name.startswith("session-") for name in kept)
    world.now += DAY + 1
    world.another().start()
    assert list(scratch.iterdir()) == []
    gone = World(world.folder, command="no-such-program", mode="oneshot")
    await gone.refused("hello")
    assert list(scratch.iterdir()) == []


@ensureDeferred
async def test_a_directory_that_cannot_be_made(world: World) -> None:
    (world.folder / "scratch").write_text("in the way")
    assert (await world.refused("hello")).code == "adapter_unavailable"


@ensureDeferred
async def test_several_answers_are_not_to_be_had(world: World) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "hello"}], "n": 2}).encode()
    with pytest.raises(Failure) as raised:
        world.adapter.run(Run(m.RunRequest("r", "agent", "t", mode=m.Mode.NORMALIZED, input=body)), RecordingSink())
    assert raised.value.param == "n"


@ensureDeferred
async def test_stopping_ends_every_run(world: World) -> None:
    runs = [world.begin("deaf"), world.begin("hang", session_id="s")]
    for sink, _ in runs:
        await said(sink, "begun")
    await world.adapter.stop()
    await gone(world)
    for sink, done in runs:
        await done
        assert sink.failure.code == "upstream_error"


@ensureDeferred
async def test_what_a_dead_node_left_is_killed_and_nothing_else(world: World) -> None:
    sink, done = world.begin("deaf")
    await said(sink, "begun")
    (record,) = (world.folder / "children").iterdir()
    copy = record.read_text()
    assert reap_orphans(record.parent) == 1
    await done
    await gone(world)
    assert not list((world.folder / "children").iterdir())
    # another process has the id by now: its marker is not the one written down, though it began at the same time
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as bystander:
        begun = int(Path(f"/proc/{bystander.pid}/stat").read_text().rpartition(")")[2].split()[19])
        record.write_text(json.dumps({**json.loads(copy), "group": bystander.pid, "begun": begun}))
        (world.folder / "children" / "nonsense.json").write_text("{")
        try:
            assert reap_orphans(record.parent) == 0
            assert bystander.poll() is None
        finally:
            bystander.kill()
    assert not list((world.folder / "children").iterdir())


class Died(BaseException):
    """What a node does here instead of dying: nothing handles it."""


@pytest.mark.parametrize("written", [1, 2], ids=["before anything else was written", "while the rest was written"])
@ensureDeferred
async def test_a_node_that_dies_as_it_starts_an_agent_leaves_what_finds_it(
    world: World, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """The agent is there, and its record has its marker only, or is half of another one."""
    replace = os.replace
    calls: list[Any] = []

    def dies(source: Any, target: Any) -> None:
        calls.append(target)
        if len(calls) == 2:
            Path(source).write_text("{" if written == 2 else "")
            raise Died
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", dies)
        with pytest.raises(Died):
            world.begin("deaf")
    world.adapter._children.clear()
    await until(lambda: world.alive)
    assert reap_orphans(world.folder / "children") == 1
    await gone(world)
    assert not list((world.folder / "children").iterdir())


@ensureDeferred
async def test_a_program_that_cannot_be_started_leaves_no_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reactor, "spawnProcess", lambda *_, **__: os.stat("/not/there"))
    assert (await world.refused("hello")).code == "adapter_unavailable"
    assert not list((world.folder / "children").iterdir())


# ---- sessions


@ensureDeferred
async def test_a_session_goes_on(world: World) -> None:
    talk = [{"role": "system", "content": "Be terse."}, {"role": "user", "content": "hello"}]
    first = await world.ask(talk, session_id="s")
    assert "Be terse." in first.text
    (kept,) = world.adapter.sessions()
    assert (kept["session_id"], kept["state"]) == ("s", "active")
    more = [*talk, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "tell arguments"}]
    arguments = json.loads((await world.ask(more, session_id="s")).text)
    assert arguments == ["--resume", kept["agent_session"]]
    again = await World(world.folder, env={"FOLDER": str(world.folder)}).told("arguments", session_id="s")
    assert again == arguments, "a node that was started again knows it"
    assert await world.told("arguments", session_id="other") == []
    assert await world.told("arguments") == []


@ensureDeferred
async def test_one_run_of_a_session_at_a_time(world: World) -> None:
    """CL-11: the first run of a new session too."""
    sink, done = world.begin("hang", session_id="s")
    assert (await world.refused("hello", session_id="s")).code == "session_busy"
    assert (await world.ask("hello", session_id="other")).text == "hello"
    await said(sink, "begun")
    assert [each["state"] for each in world.adapter.sessions() if each["session_id"] == "s"] == ["busy"]
    assert (await world.refused("hello", session_id="s")).code == "session_busy"
    done.cancel()
    await done
    assert (await world.ask("hello", session_id="s")).text == "hello"


@ensureDeferred
async def test_an_agent_that_goes_on_elsewhere_is_not_believed(world: World) -> None:
    await world.ask("hello", session_id="s")
    sink = await world.ask("stray", session_id="s")
    assert sink.failure.code == "session_gone"
    assert sink.text == ""
    assert (await world.ask("still you?", session_id="s")).text == "still you?"


@ensureDeferred
async def test_sessions_that_are_gone_are_not_begun_anew(world: World) -> None:
    await world.ask("hello", session_id="old")
    await world.ask("hello", session_id="ended")
    assert await world.adapter.terminate_session("ended")
    assert not await world.adapter.terminate_session("ended")
    assert not await world.adapter.terminate_session("never there")
    world.now += DAY + 1
    for session_id in ("old", "ended"):
        assert (await world.refused("hello", session_id=session_id)).code == "session_gone"
    assert {each["session_id"]: each["state"] for each in world.adapter.sessions()} == {
        "old": "expired",
        "ended": "terminated",
    }
    world.now += 30 * DAY + 1
    assert (await world.ask("hello", session_id="old")).text == "hello"


@ensureDeferred
async def test_a_session_that_ended_before_its_agent_named_itself_is_gone_too(world: World) -> None:
    _, done = world.begin("mute", session_id="s")
    scratch = next((world.folder / "scratch").iterdir())
    assert await world.adapter.terminate_session("s")
    await done
    assert (await world.refused("hello", session_id="s")).code == "session_gone"
    assert not scratch.exists()


@ensureDeferred
async def test_an_agent_that_does_not_say_where_it_goes_on_is_not_believed(world: World) -> None:
    await world.ask("hello", session_id="s")
    sink = await world.ask("nameless", session_id="s")
    assert sink.failure.code == "session_gone"


@ensureDeferred
async def test_a_child_that_cannot_be_written_down_is_not_left_running(world: World) -> None:
    (world.folder / "children").write_text("in the way")
    failure = await world.refused("deaf")
    assert failure.code == "adapter_unavailable"
    deadline = time.monotonic() + 5
    while world.alive:
        assert time.monotonic() < deadline
        await later(0.01)


@ensureDeferred
async def test_a_run_that_begins_paused_is_not_read(world: World) -> None:
    """CL-04"""

    class Paused(RecordingSink):
        def attach(self, source: Any) -> None:
            super().attach(source)
            source.pause()

    sink = Paused()
    body = json.dumps({"messages": [{"role": "user", "content": "flood 3000"}]}).encode()
    done = world.adapter.run(Run(m.RunRequest("r", "agent", "t", mode=m.Mode.NORMALIZED, input=body)), sink)
    await later(0.3)
    assert sink.events == []
    sink.source.resume()
    await done
    assert len(sink.text) == 3_000_000


@ensureDeferred
async def test_a_grandchild_that_talks_on_delays_nobody(world: World) -> None:
    """CL-05: not even one that has thrown its marker away."""
    began = time.monotonic()
    assert (await world.ask("chatter")).text == "left"
    assert time.monotonic() - began < 3


@ensureDeferred
async def test_what_cannot_be_told_ends_the_run_all_the_same(world: World, logged: Any) -> None:
    sink, done = world.begin("hello", session_id="s")
    (child,) = world.adapter._children
    child._parser.end = lambda *_: 1 / 0  # type: ignore[assignment]
    await done
    assert sink.failure.code == "internal"
    assert [type(failure) for failure in logged.failures()] == [ZeroDivisionError]
    assert world.adapter._children == {}


@ensureDeferred
async def test_sessions_that_cannot_be_kept_are_a_failure_before_anything_runs(world: World) -> None:
    world.store.close()
    failure = await world.refused("hello", session_id="s")
    assert failure.code == "adapter_unavailable"
    await gone(world)


@ensureDeferred
async def test_sessions_that_cannot_be_kept_any_more_leave_nothing_behind(world: World, logged: Any) -> None:
    sink, done = world.begin("fail 1", session_id="s")
    world.store.close()
    await done
    assert sink.failure is not None
    (told,) = logged.lines("critical")
    assert told == "what a run left could not be put in order"
    assert len(logged.failures()) == 1
    assert world.adapter._children == {}
    await gone(world)


def test_a_file_that_is_none_of_ours_is_named(tmp_path: Path) -> None:
    (tmp_path / "sessions.sqlite3").write_text("no database at all, but long enough to be looked at" * 40)
    with pytest.raises(Failure, match=r"sessions\.sqlite3; move it away"):
        SessionStore(tmp_path / "sessions.sqlite3", lambda: 0.0)


@ensureDeferred
async def test_terminating_a_session_ends_its_child(world: World) -> None:
    sink, done = world.begin("deaf", session_id="s")
    await said(sink, "begun")
    assert await world.adapter.terminate_session("s")
    await done
    assert (world.alive, sink.failure.code) == ([], "session_gone")


@ensureDeferred
async def test_a_session_stays_in_its_workspace(world: World, tmp_path: Path) -> None:
    """And in its roots: an agent can put a link in the place of its own directory."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    await world.ask("hello", session_id="s", workspace=one)
    assert await world.told("cwd", session_id="s") == one
    assert await world.told("cwd", session_id="s", workspace=one) == one
    assert (await world.refused("hello", session_id="s", workspace=two)).code == "workspace_invalid"
    shutil.rmtree(one)
    failure = await world.refused("hello", session_id="s")
    assert (failure.code, one in failure.message) == ("workspace_invalid", True)
    Path(one).symlink_to("/etc")
    assert "not under" in (await world.refused("hello", session_id="s")).message


@ensureDeferred
async def test_a_session_of_an_agent_that_names_none_stays_in_its_workspace_too(folder: Path, tmp_path: Path) -> None:
    world = World(folder, command="sh", args=["-c", "pwd"], output_format="text", resume_args=["--continue"])
    (folder / "proj").mkdir()
    proj = str((folder / "proj").resolve())
    said = [(await world.ask("hello", session_id="s", workspace=where)).text.strip() for where in (proj, "", "")]
    assert said == [proj] * 3
    assert [each["workspace"] for each in world.adapter.sessions()] == [proj]


@ensureDeferred
async def test_a_command_is_the_nodes_wherever_the_agent_works(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that is not absolute, or a PATH, begins where the node is: its workspaces are others' to fill."""
    for name, says in ((".", "the node's"), ("proj", "the workspace's")):
        (folder / name).mkdir(exist_ok=True)
        tool = folder / name / "tool"
        tool.write_text(f'#!/bin/sh\necho "{says}"\n')
        tool.chmod(0o755)
    monkeypatch.chdir(folder)
    proj = str((folder / "proj").resolve())
    plain: dict[str, Any] = {"args": [], "output_format": "text", "mode": "oneshot"}
    for command, env in (("./tool", {}), ("tool", {"PATH": f".:{os.environ['PATH']}"})):
        world = World(folder, command=command, env=env, **plain)
        for workspace in (proj, ""):
            assert (await world.ask("hello", workspace=workspace)).text.strip() == "the node's"


@ensureDeferred
async def test_a_provider_without_sessions_says_so(folder: Path) -> None:
    world = World(folder, mode="oneshot")
    failure = await world.refused("hello", session_id="s")
    assert (failure.code, failure.param) == ("invalid_value", "metadata.session_id")
    assert world.adapter.sessions() == []


@ensureDeferred
async def test_any_program(folder: Path) -> None:
    """Neither a session nor a format of its own."""
    world = World(folder, command="cat", args=[], output_format="text", mode="oneshot")
    assert (await world.ask("hello\nthere")).text.rstrip() == "hello\nthere"
