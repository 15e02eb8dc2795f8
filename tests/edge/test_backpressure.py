"""Clients that do not read: their own run waits, in bounded memory, and nobody else's does."""

from __future__ import annotations

from typing import Any

import pytest
from doubles import EVENT_STREAM, JSON, complete, fail, piece, start, wait
from gateway_in_memory import Gateway

from iop.errors import Failure
from iop.http.server import Limits

pytestmark = pytest.mark.usefixtures("logged")

KIB = 1 << 10
PIECE = b"data: " + b"x" * 10_000 + b"\n\n"
SLACK = 200 * KIB
"""What two transports buffer, and one event that overdraws."""


class Counter:
    """An endless answer, piece by piece, that counts what it said."""

    def __init__(self, head: Any = EVENT_STREAM, size: int = 10_000) -> None:
        self.head = head
        self.size = size
        self.said = 0

    def script(self, pieces: int) -> list[Any]:
        def say(sink: Any) -> None:
            self.said += self.size
            sink.delta(b"x" * self.size)

        return [start(self.head), *[say] * pieces, complete()]


def test_a_stalled_client_holds_at_most_its_window_and_slows_nobody() -> None:
    """On one link: a neighbour's run goes on at full speed while the first one waits."""
    window = 64 * KIB
    stalled = Counter()
    gateway = Gateway(*stalled.script(300), window=window)
    slow = gateway.connect()
    slow.stall()
    slow.ask(body={"model": "m", "messages": [], "stream": True})
    gateway.net.run(5)
    assert window <= stalled.said <= window + SLACK
    assert gateway.run.paused
    neighbour = Counter()
    gateway.adapter.script = tuple(neighbour.script(300))
    answer = gateway.chat(stream=True).answer
    assert answer.whole
    assert len(answer.body) == neighbour.said == 3_000_000
    assert stalled.said <= window + SLACK
    slow.go_on()
    gateway.net.run()
    assert stalled.said == len(slow.answer.body) == 3_000_000
    assert slow.answer.whole
    gateway.assert_idle()
    gateway.close()


def test_fifty_stalled_clients_do_not_stop_the_link() -> None:
    window = 16 * KIB
    counter = Counter()
    gateway = Gateway(*counter.script(500), window=window)
    for _ in range(50):
        client = gateway.connect()
        client.stall()
        client.ask(body={"model": "m", "messages": [], "stream": True})
    gateway.net.run(1)
    assert counter.said <= 50 * (window + SLACK)
    assert not gateway.machine.uplink._link.full  # type: ignore[union-attr]
    gateway.adapter.script = (start(), piece(b"data: 1\n\n"), complete())
    assert gateway.chat(stream=True).answer.whole
    for client in gateway.clients:
        client.leave()
    gateway.net.run()
    gateway.assert_idle()
    gateway.close()


def test_a_client_that_takes_nothing_for_long_is_cut_and_its_slot_is_free() -> None:
    counter = Counter()
    gateway = Gateway(*counter.script(1000), window=64 * KIB, limits=Limits(stall_timeout=60.0))
    client = gateway.connect()
    client.stall()
    client.ask(body={"model": "m", "messages": [], "stream": True})
    gateway.net.run(59)
    assert not client.lost
    assert gateway.pool.in_flight == 1
    gateway.net.run(62)
    assert client.lost
    assert gateway.run.cancelled
    gateway.assert_idle()
    gateway.close()


def test_a_slow_client_is_served_at_its_own_speed() -> None:
    window = 64 * KIB
    counter = Counter()
    gateway = Gateway(*counter.script(300), window=window, limits=Limits(stall_timeout=10.0))
    client = gateway.connect()
    client.stall()
    client.ask(body={"model": "m", "messages": [], "stream": True})
    for _ in range(40):
        gateway.net.run(5)
        client.go_on()
        client.transport.deliver()
        client.stall()
        assert counter.said - len(client.data) <= window + 2 * SLACK
    client.go_on()
    gateway.net.run()
    assert client.answer.whole
    assert len(client.answer.body) == 3_000_000


# ---- answers that do not stream


def test_a_document_is_held_until_it_is_whole() -> None:
    first, last = b'{"choices":"' + b"x" * 499_988, b"y" * 499_998 + b'"}'
    gateway = Gateway(start(JSON), piece(first), wait, piece(last), complete())
    client = gateway.chat()
    assert client.data == b""
    gateway.run.go()
    gateway.net.run()
    assert client.answer.whole
    assert client.answer.headers["content-length"] == "1000000"


def test_a_break_in_a_held_document_is_a_502() -> None:
    """SE-01, not streaming: never 200 with half of it."""
    gateway = Gateway(start(JSON), piece(b"x" * 1_000_000), fail(Failure("upstream_error", "it broke")))
    answer = gateway.chat().answer
    assert (answer.status, answer.code) == (502, "upstream_error")


def test_a_long_document_flows_once_it_is_longer_than_the_hold() -> None:
    counter = Counter(JSON)
    gateway = Gateway(*counter.script(500))
    client = gateway.chat()
    answer = client.answer
    assert answer.whole
    assert answer.headers["transfer-encoding"] == "chunked"
    assert len(answer.body) == counter.said == 5_000_000
    gateway.assert_idle()


def test_a_break_in_a_document_that_flows_aborts_the_connection() -> None:
    """Half an answer must not look whole."""
    gateway = Gateway(start(JSON), *[piece(b"x" * 200_000)] * 10, fail(Failure("upstream_error", "it broke")))
    client = gateway.chat()
    gateway.net.run(1)
    assert client.lost
    assert not any(answer.whole for answer in client.answers)
    gateway.assert_idle()
    gateway.close()


@pytest.mark.parametrize("window", [1, 1000, 64 * KIB, 1 << 20])
@pytest.mark.parametrize("head", [EVENT_STREAM, JSON], ids=["stream", "document"])
def test_no_window_is_too_small(window: int, head: Any) -> None:
    counter = Counter(head, 5000)
    gateway = Gateway(*counter.script(300), window=window)
    answer = gateway.chat(stream=head is EVENT_STREAM).answer
    assert answer.whole
    assert len(answer.body) == counter.said == 1_500_000


def test_reads_of_any_size_on_every_socket() -> None:
    """UTF-01, the frame boundary: client, link and surface are cut anywhere, and the text is the same."""
    text = "那🌍é" * 50
    event = f"data: {text}\n\n".encode()
    for read_size in (1, 2, 3, 7, 1000):
        gateway = Gateway(start=False)
        gateway.net.read_size = read_size
        gateway.machine.start()
        gateway.net.run()
        gateway.adapter.script = (start(), piece(event[:100]), piece(event[100:]), complete())
        client = gateway.chat(stream=True, x=text)
        assert client.answer.whole
        assert client.answer.body == event
        assert text.encode("ascii", "backslashreplace")[:6] in gateway.run.request.input
