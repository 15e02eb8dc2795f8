"""Many clients, and clients that do not read: memory stays bounded, slots come back, neighbours notice nothing.

``docs/contracts/wire.md`` (Flow control), ``docs/contracts/openai.md`` (Client gone, Slow client).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import cycle

import pytest
from raw_http import Wire, ask, chat
from real_gateway import Backend, Gateway, provider
from running import until

MakeGateway = Callable[..., Gateway]

MEGABYTE = 1 << 20
STALL = 1.5
"""The gateway's ``stall_timeout_ms``, in seconds."""


def still(fake: Backend) -> None:
    until(lambda: fake.stats["requests"] == 0, "nothing is in flight on the backend")


@pytest.fixture(autouse=True)
def _still(fake: Backend) -> None:
    still(fake)


# ---- clients that do not read ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False])
def test_client_that_stops_reading(gateway: Gateway, fake: Backend, stream: bool) -> None:
    """It holds its window and no more, its neighbour on the same link is as fast as ever, and it is cut in the end."""
    sent = fake.stats["sent"]
    held = gateway.edge.resident, gateway.node.resident
    with Wire(gateway.port, buffer=4096) as stalled:
        begun = time.monotonic()
        stalled.send(chat(f"flood {400 * MEGABYTE}", stream=stream))
        neighbour_is_served(gateway)
        assert settled(fake) - sent < 40 * MEGABYTE  # the windows of the run and of four sockets
        neighbour_is_served(gateway)
        assert fake.stats["requests"] == 1
        assert gateway.edge.resident - held[0] < 8 * MEGABYTE
        assert gateway.node.resident - held[1] < 8 * MEGABYTE
        still(fake)
        assert STALL * 0.9 < time.monotonic() - begun < STALL + 4
        assert cut(stalled)
    assert ask(gateway, chat("hello")).status == 200


def neighbour_is_served(gateway: Gateway) -> None:
    """A stream and some whole answers take their usual time."""
    with Wire(gateway.port) as wire:
        begun = time.monotonic()
        assert wire.ask(chat("drip 20 0.01", stream=True)).events[-1] == "[DONE]"
        for number in range(10):
            assert wire.ask(chat(f"number {number}")).status == 200
        assert time.monotonic() - begun < 1.0


def settled(fake: Backend) -> int:
    """Wait until nothing flows any more; return how many bytes have."""
    seen = [-1]

    def look() -> bool:
        seen.append(fake.stats["sent"])
        time.sleep(0.05)
        return seen[-1] == seen[-2]

    until(look, "nothing flows any more")
    return seen[-1]


def cut(wire: Wire) -> bool:
    """Read what is left; return whether it ends in a break."""
    last = b""
    try:
        while data := wire.socket.recv(MEGABYTE):
            last = (last + data)[-16:]
    except ConnectionError:
        return True
    return not last.endswith(b"0\r\n\r\n")


@pytest.mark.slow
def test_many_clients_that_stop_reading(make_gateway: MakeGateway, fake: Backend) -> None:
    gateway = make_gateway(provider("fake", fake, "openai")).start()
    neighbour_is_served(gateway)
    held = gateway.edge.resident, gateway.node.resident
    asked, count = fake.stats["asked"], 20
    wires = [Wire(gateway.port, buffer=4096) for _ in range(count)]
    for wire in wires:
        wire.send(chat(f"flood {100 * MEGABYTE}", stream=True))
    until(lambda: fake.stats["asked"] == asked + count, "the backend has them all")
    settled(fake)
    neighbour_is_served(gateway)
    # a window of 1 MiB and what one read may overdraw it by, in each process at most
    assert gateway.edge.resident - held[0] < count * 2 * MEGABYTE
    assert gateway.node.resident - held[1] < count * 2 * MEGABYTE
    assert fake.stats["requests"] == count
    for wire in wires:
        wire.socket.close()
    still(fake)
    neighbour_is_served(gateway)


@pytest.mark.slow
def test_slow_reader_is_not_cut(gateway: Gateway, fake: Backend) -> None:
    """Whoever takes a little now and then may go on, longer than the stall timeout."""
    with Wire(gateway.port, buffer=1 << 16) as wire:
        begun = time.monotonic()
        wire.send(chat(f"flood {400 * MEGABYTE}", stream=True))
        while time.monotonic() - begun < 1.5 * STALL:
            for _ in range(8):
                wire.socket.recv(1 << 16)
            time.sleep(0.05)
        assert fake.stats["requests"] == 1


# ---- clients that vanish --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_thousand_clients_vanish(gateway: Gateway, fake: Backend) -> None:
    """Before the first byte, in the middle of a stream, before a whole answer; with a farewell and without."""
    asked = fake.stats["asked"]
    sockets = gateway.edge.sockets, gateway.node.sockets
    orders = cycle([chat("silence", stream=True), chat("drip 1000 1", stream=True), chat("silence")])
    wires = []
    for _ in range(1000):
        wires.append(Wire(gateway.port))
        wires[-1].send(next(orders))
    until(lambda: fake.stats["requests"] == 1000, "the backend has them all")
    assert ask(gateway, chat("hello")).status == 200
    for number, wire in enumerate(wires):
        wire.reset() if number % 2 else wire.socket.close()
    still(fake)
    assert fake.stats["asked"] == asked + 1001
    for child, before in zip((gateway.edge, gateway.node), sockets, strict=True):
        until(
            lambda child=child, before=before: child.sockets <= before + 1, f"the {child.name} has closed its sockets"
        )
    assert ask(gateway, chat("hello", stream=True)).events[-1] == "[DONE]"
    assert gateway.edge.status is None
    assert gateway.node.status is None


@pytest.mark.slow
def test_memory_is_flat_over_cancelled_streams(make_gateway: MakeGateway, fake: Backend) -> None:
    gateway = make_gateway(provider("fake", fake, "openai", capacity=60)).start()
    cancel_streams(gateway, fake, 1500)  # until the allocators have what they need
    before = gateway.edge.resident, gateway.node.resident
    sockets = gateway.edge.sockets, gateway.node.sockets
    cancel_streams(gateway, fake, 2000)
    grown = gateway.edge.resident - before[0], gateway.node.resident - before[1]
    assert max(grown) < 4 * MEGABYTE, grown  # 2 KB lost with each would be as much
    assert (gateway.edge.sockets, gateway.node.sockets) <= sockets
    cancel_streams(gateway, fake, 60)  # as many as there are slots: none was lost


def cancel_streams(gateway: Gateway, fake: Backend, count: int) -> None:
    """Begin streams, as many at a time as there are slots, and leave each in its middle."""
    for _ in range(0, count, 50):
        wires = [Wire(gateway.port) for _ in range(50)]
        for wire in wires:
            wire.send(chat("drip 1000 0.2", stream=True))
        for wire in wires:
            assert wire.socket.recv(12, 0x40) == b"HTTP/1.1 200"
        for number, wire in enumerate(wires):
            wire.reset() if number % 2 else wire.socket.close()
        still(fake)
