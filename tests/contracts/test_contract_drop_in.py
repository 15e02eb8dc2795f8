"""The example drop-in passes the adapters' contract, over TCP in memory; and what is its own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import linechat_example  # makes linechat importable
import pytest
from contracts.adapter import AdapterContract
from doubles import RecordingSink
from linechat.adapter import LinechatAdapter, factory
from linechat.exchange import LONGEST_LINE
from memory_net import MemoryNet
from twisted.internet.protocol import Factory, connectionDone
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure as TwistedFailure

from iop import model as m
from iop.errors import Failure
from iop.node.adapters.environment import Environment, Run

PORT = 4700


class Connection(LineReceiver):
    """One question to the backend in memory."""

    delimiter = b"\n"

    def __init__(self, test: World) -> None:
        self._test = test
        self.asked: dict[str, Any] = {}
        self.gone = False

    def say(self, **document: Any) -> None:
        self.sendLine(json.dumps(document).encode())

    def lineReceived(self, line: bytes) -> None:
        self.asked = json.loads(line)
        if self.asked["ask"] == "models":
            self.say(models=["parrot", "", 7])
        else:
            self._test.chats.append(self)
            self._test.answer(self, self._test.kinds.pop(0))

    def connectionLost(self, reason: TwistedFailure = connectionDone) -> None:
        self.gone = True


class World:
    """An adapter and its backend."""

    PIECES: tuple[bytes, ...] = (b"eins", b" and ", "🌍".encode())

    def make(self) -> LinechatAdapter:
        self.net = MemoryNet()
        self.chats: list[Connection] = []
        self.kinds: list[str] = []
        self.port = self.net.listenTCP(PORT, Factory.forProtocol(lambda: Connection(self)))
        adapter = factory.make({"port": PORT, "silence_ms": 5000}, Environment("a", self.net, Path()))
        adapter.start()
        return adapter

    def answer(self, chat: Connection, kind: str) -> None:
        pieces = self.PIECES if kind == "answers" else () if kind in ("refuses", "silent") else self.PIECES[:1]
        for piece in pieces:
            chat.say(text=piece.decode())
        if kind == "answers":
            chat.say(done="stop", input_tokens=1, output_tokens=3)
        elif kind == "refuses":
            chat.say(error="no")
        elif kind == "garbage":
            chat.sendLine(b"\x00\xff\x13 no JSON")
        elif kind == "breaks":
            chat.transport.loseConnection()  # type: ignore[union-attr]


class TestLinechatAdapter(World, AdapterContract):
    factory = factory

    def begin(self, kind: str) -> tuple[Any, RecordingSink]:
        return self.ask(kind, {"messages": [{"role": "user", "content": "hi"}]})

    def ask(self, kind: str, document: Any) -> tuple[Any, RecordingSink]:
        sink = self.sink(kind)
        self.kinds.append(kind)
        request = m.RunRequest("r", "a", "parrot", mode=m.Mode.NORMALIZED, input=json.dumps(document).encode())
        return self.adapter.run(Run(request), sink), sink

    def more(self) -> bytes:
        [chat for chat in self.chats if not chat.gone][-1].say(text="é more")
        return "é more".encode()

    def flush(self) -> None:
        self.net.run(0.5)  # a refused connection is told after the endpoint's attempt delay

    def open(self) -> int:
        return sum(not chat.gone for chat in self.chats)

    def break_backend(self) -> None:
        self.port.stopListening()

    def teardown_method(self) -> None:
        self.adapter.stop()
        self.net.run(1)
        assert self.net.waiting == []
        assert not self.net.ends

    # ---- what is its own ----------------------------------------------------------------------------------------

    def test_what_is_asked_and_what_is_counted(self) -> None:
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        messages = [{"role": "system", "content": "s"}, {"role": "user", "content": parts}]
        _, sink = self.ask("answers", {"messages": messages, "max_tokens": 9})
        self.flush()
        assert self.chats[0].asked == {
            "ask": "chat",
            "model": "parrot",
            "messages": [{"role": "system", "text": "s"}, {"role": "user", "text": "ab"}],
            "max_tokens": 9,
        }
        assert sink.end == m.Complete("stop", m.Usage(1, 3), {})

    @pytest.mark.parametrize(
        ("document", "param"),
        [
            ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
            ({"messages": [], "tools": [{}]}, "tools"),
            ({"messages": [], "n": 2}, "n"),
            ({"messages": ["hi"]}, "messages[0]"),
            ([], "messages"),
        ],
    )
    def test_what_it_cannot_say_is_refused_before_anything_is_dialled(self, document: Any, param: str) -> None:
        with pytest.raises(Failure) as raised:
            self.ask("answers", document)
        assert (raised.value.code, raised.value.param) == ("invalid_value", param)
        assert not self.net.waiting

    @pytest.mark.parametrize(
        "line", [b"hello", b"[]", b"{}", b'{"text": 7}', b"\xff", b"[" * 100_000, b"x" * (LONGEST_LINE + 1)]
    )
    def test_garbage_fails_its_own_run_only(self, line: bytes) -> None:
        _, other = self.begin("goes on")
        fired, sink, _ = self.started("silent")
        self.chats[-1].sendLine(line)
        self.flush()
        assert fired == [None]
        assert sink.failure.code == "upstream_error"
        assert other.end is None
        assert self.open() == 1

    def test_a_silent_backend_is_given_up_but_not_while_the_run_is_paused(self) -> None:
        _, sink, _ = self.started("goes on")
        sink.source.pause()
        self.net.run(60)
        assert sink.end is None
        sink.source.resume()
        self.net.run(6)
        assert sink.failure.code == "upstream_timeout"
        assert self.open() == 0

    def test_a_backend_that_takes_no_connection_is_given_up(self) -> None:
        self.net.silent.add(PORT)
        _, sink = self.begin("answers")
        self.net.run(6)
        assert sink.failure.code == "upstream_timeout"

    def test_a_run_that_is_paused_before_it_is_connected_reads_nothing_until_it_is_resumed(self) -> None:
        _, sink = self.begin("answers")
        sink.source.pause()
        self.net.run(60)
        assert sink.events == []
        sink.source.resume()
        self.flush()
        assert sink.said == b"".join(self.PIECES)

    def test_a_cancelled_check_fails(self) -> None:
        self.net.silent.add(PORT)
        failed: list[Any] = []
        probe = self.adapter.probe()
        probe.addErrback(failed.append)
        probe.cancel()
        assert len(failed) == 1


def test_what_the_guide_quotes_is_in_the_example() -> None:
    def stripped(text: str) -> str:
        return "".join(f"{line.strip()}\n" for line in text.splitlines())

    folder = linechat_example.EXAMPLE
    files = [*folder.glob("linechat/*.py"), *folder.glob("twisted/plugins/*.py"), folder / "linechat.yaml"]
    example = "".join(stripped(file.read_text()) for file in files)
    guide = (folder.parents[2] / "docs" / "writing-an-adapter.md").read_text()
    quoted = re.findall(r"^```(?:python|yaml)\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    assert len(quoted) == 4
    for block in quoted:
        assert stripped(block) in example
