"""What serves models on this machine."""

from __future__ import annotations

import socket

import pytest
import pytest_twisted
from twisted.internet import reactor

from iop.cli.demo import DemoBackend
from iop.cli.detect import AGENTS, Usual, agents, detect, public_name
from iop.http.server import Server
from iop.sockets import listen


class Odd:
    """Something on the usual port that is no model server."""

    def __init__(self, status, body):
        self.status, self.body = status, body

    def admit(self, exchange):
        pass

    def handle(self, exchange):
        exchange.respond(self.status, [], self.body)

    def refuse(self, exchange, failure):
        exchange.respond(failure.http_status, [], b"")


async def served(*applications):
    ports = [await listen(reactor, "tcp:0:interface=127.0.0.1", Server(a, reactor)) for a in applications]
    usual = [Usual("vllm", str(number), port.getHost().port, 1) for number, port in enumerate(ports)]
    try:
        return await detect(reactor, usual)
    finally:
        for port in ports:
            await port.stopListening()


@pytest_twisted.ensureDeferred
async def test_those_that_answer_are_found_in_order():
    listed = b'{"data": [{"id": "a"}, {"id": "b/c"}]}'
    found = await served(DemoBackend(reactor), Odd(200, b"<html>"), Odd(404, listed), Odd(200, listed))
    assert [(f.usual.title, f.models) for f in found] == [("0", ("demo",)), ("3", ("a", "b/c"))]


@pytest_twisted.ensureDeferred
async def test_nobody_there_and_one_that_never_answers():
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        ports = [silent.getsockname()[1], closed.getsockname()[1]]
        assert await detect(reactor, [Usual("vllm", "x", port, 1) for port in ports]) == []


@pytest_twisted.ensureDeferred
async def test_an_endless_list_is_not_read_to_its_end():
    assert await served(Odd(200, b" " * (2 << 20))) == []


@pytest_twisted.ensureDeferred
async def test_strange_answers_are_no_model_server():
    """Neither what is nested too deeply, nor names that no configuration can hold."""
    deep = Odd(200, b"[" * 100_000)
    odd = Odd(200, b'{"data": [{"id": "a\\u0000b"}, {"id": "\\ud800"}, {"id": "' + b"x" * 600 + b'"}, {"id": "fine"}]}')
    found = await served(deep, odd)
    assert [f.models for f in found] == [("fine",)]


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("qwen3:8b", "qwen3:8b"),
        ("org/model", "org/model"),
        ("/models/a b.gguf", "a-b.gguf"),
        ("C:\\models\\x.gguf", "x.gguf"),
        ("///", "model"),
        ("é", "model"),
    ],
)
def test_public_name(target, name):
    assert public_name(target) == name


class Ollama(Odd):
    """A server that speaks Ollama's own API."""

    def handle(self, exchange):
        found = exchange.path == b"/api/tags"
        exchange.respond(200 if found else 404, [], b'{"models": [{"name": "qwen3:8b"}]}' if found else b"")


@pytest_twisted.ensureDeferred
async def test_ollama_is_asked_in_its_own_language_and_whoever_has_its_port_in_openais():
    native = await listen(reactor, "tcp:0:interface=127.0.0.1", Server(Ollama(0, b""), reactor))
    other = await listen(reactor, "tcp:0:interface=127.0.0.1", Server(Odd(200, b'{"data": [{"id": "a"}]}'), reactor))
    try:
        usual = [Usual("ollama", "Ollama", port.getHost().port, 8) for port in (native, other)]
        found = await detect(reactor, usual)
    finally:
        for port in (native, other):
            await port.stopListening()
    assert [(f.usual.type, f.usual.adapter, f.models) for f in found] == [
        ("ollama", "ollama", ("qwen3:8b",)),
        ("openai_compat", "openai_compat", ("a",)),
    ]


def test_agents_are_those_in_path():
    assert [agent.model for agent in agents({"codex": "/bin/codex"}.get)] == ["codex-agent"]
    assert agents(lambda command: None) == []
    assert [agent.command for agent in agents(lambda command: command)] == [agent.command for agent in AGENTS]
