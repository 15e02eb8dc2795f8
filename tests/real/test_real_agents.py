"""Coding agents as they are installed, from the ``openai`` SDK through edge and node, offline. ``docs/agents.md``."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import openai
import pytest
from agents import MARK, Agent
from aimock import ANSWER, HANGS, PRINTED, REFUSED, SECOND, USED, Mock
from real_gateway import Gateway, user
from running import until

PATIENCE = 120.0


@pytest.fixture
def client(gateway: Gateway) -> openai.OpenAI:
    return gateway.client(timeout=PATIENCE)


def ask(client: openai.OpenAI, agent: Agent, prompt: str, session: str = "") -> str:
    """Return an agent's answer."""
    metadata = {"session_id": session} if session else {}
    answer = client.chat.completions.create(model=agent.name, messages=user(prompt), metadata=metadata)
    assert answer.choices[0].finish_reason == "stop"
    return answer.choices[0].message.content or ""


class Kept:
    """The node's file of sessions: this is where it writes down the agents' own ids."""

    def __init__(self, gateway: Gateway) -> None:
        self._path = gateway.folder / "node" / "sessions.sqlite3"

    def id(self, agent: Agent, session: str) -> str:
        """Return the agent's own id of a session."""
        with closing(sqlite3.connect(self._path)) as database:
            rows = database.execute("SELECT session_id, agent_session FROM sessions WHERE adapter = ?", (agent.name,))
            (found,) = [id for key, id in rows if json.loads(key)[1] == session]
            return str(found)

    def forge(self, agent: Agent, id: str, other: str) -> None:
        """Write another id in place of one."""
        with closing(sqlite3.connect(self._path, timeout=10)) as database, database:
            where = (other, agent.name, id)
            database.execute("UPDATE sessions SET agent_session = ? WHERE adapter = ? AND agent_session = ?", where)


@pytest.fixture
def kept(gateway: Gateway) -> Kept:
    return Kept(gateway)


def processes(mark: str) -> dict[int, str]:
    """Return the processes that carry a mark, or a marker of a run, with their command lines."""
    runs: set[bytes] = {f"{MARK}={mark}".encode()}
    found: dict[int, str] = {}
    environs: dict[int, list[bytes]] = {}
    for each in Path("/proc").glob("[0-9]*"):
        try:
            environs[int(each.name)] = (each / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
    for environ in environs.values():
        if not runs.isdisjoint(environ):
            runs.update(variable for variable in environ if variable.startswith(b"IOP_RUN="))
    for pid, environ in environs.items():
        if pid != os.getpid() and not runs.isdisjoint(environ):
            try:
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
    return found


def test_answer(client: openai.OpenAI, agent: Agent) -> None:
    assert ask(client, agent, "Hello there") == ANSWER


def test_stream(client: openai.OpenAI, agent: Agent) -> None:
    chunks = list(client.chat.completions.create(model=agent.name, messages=user("Hello there"), stream=True))
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == ANSWER
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["stop"]


def test_tool(client: openai.OpenAI, agent: Agent, mock: Mock) -> None:
    before = len(mock.heard)
    assert USED in ask(client, agent, "Please use the tool")
    assert any(PRINTED.encode() in heard for heard in mock.heard[before:])


def test_resume(client: openai.OpenAI, agent: Agent, mock: Mock, kept: Kept) -> None:
    session, word = secrets.token_hex(8), f"word-{secrets.token_hex(8)}"
    assert ask(client, agent, f"Remember {word}", session) == ANSWER
    first = kept.id(agent, session)
    assert first
    before = len(mock.heard)
    assert ask(client, agent, "This is the second turn", session) == SECOND
    assert kept.id(agent, session) == first
    told = [word.encode(), ANSWER.encode(), b"second turn"]
    assert any(all(words in heard for words in told) for heard in mock.heard[before:])


def test_strange_session(client: openai.OpenAI, agent: Agent, kept: Kept) -> None:
    session = secrets.token_hex(8)
    ask(client, agent, "Hello there", session)
    for stranger in agent.strangers:
        kept.forge(agent, kept.id(agent, session), stranger)
        with pytest.raises(openai.APIStatusError) as raised:
            ask(client, agent, "This is the second turn", session)
        assert (raised.value.status_code, raised.value.code) == (410, "session_gone")


def _read(client: openai.OpenAI, asked: dict[str, Any]) -> list[Any]:
    """Return an answer, or every chunk of it."""
    answer = client.chat.completions.create(**asked)
    return list(answer) if asked["stream"] else [answer]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_refused_by_its_api(client: openai.OpenAI, agent: Agent, stream: bool) -> None:
    with pytest.raises(openai.APIError) as raised:
        _read(client, {"model": agent.name, "messages": user("Please refuse this"), "stream": stream})
    assert raised.value.code == "upstream_error"
    assert REFUSED in raised.value.message
    assert isinstance(raised.value.body, dict)
    assert {"message", "type", "param", "code"} <= set(raised.value.body)


def test_cancel(client: openai.OpenAI, agent: Agent, gateway: Gateway, mark: str) -> None:
    stream = client.chat.completions.create(model=agent.name, messages=user("Please hang the tool"), stream=True)
    try:
        until(lambda: any(HANGS in line for line in processes(mark).values()), f"{agent.name}'s tool runs", PATIENCE)
    finally:
        stream.close()
    until(lambda: not processes(mark), f"nothing of {agent.name} is left")
    assert ask(client, agent, "Hello there") == ANSWER
    assert not processes(mark)
