"""The seam to sockets: listening, dialling, writing at once, knowing when the kernel has taken everything."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from pytest_twisted import ensureDeferred
from socket_doubles import Authority, PlainWire, collectors, drink, later, shut, unread_client, until
from twisted.internet import reactor
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock, RaisingMemoryReactor, StringTransport

from iop.errors import Failure
from iop.sockets import CannotListen, Outlet, dialler, listen, prepare, send_now, unsent, unwrap

# ---- listen and dialler -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("description", ["tcp:notaport", "nonsense:1", "ssl:0:privateKey=/not/there", ""])
def test_a_listener_that_makes_no_sense_is_one_sentence(description: str) -> None:
    with pytest.raises(CannotListen, match="cannot listen on"):
        listen(MemoryReactorClock(), description, Factory())


def test_a_listener_that_cannot_be_had_is_one_sentence() -> None:
    refusals: list[Any] = []
    busy = CannotListenError("", 1, OSError(98, "Address already in use"))
    listen(RaisingMemoryReactor(listenException=busy), "tcp:1", Factory()).addErrback(
        lambda reason: refusals.append(reason.value)
    )
    assert isinstance(refusals[0], CannotListen)
    assert str(refusals[0]) == "cannot listen on tcp:1: Address already in use"


@ensureDeferred
async def test_a_busy_port_says_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        description = f"tcp:{taken.getsockname()[1]}:interface=127.0.0.1"
        with pytest.raises(CannotListen, match="Address already in use"):
            await listen(reactor, description, Factory())


@pytest.mark.parametrize("description", ["ssl:h:1", "nonsense:1", "tcp:h", ""])
def test_a_dialler_that_makes_no_sense_is_a_failure(description: str) -> None:
    with pytest.raises(Failure):
        dialler(MemoryReactorClock(), description)


def test_a_dialler() -> None:
    clock = MemoryReactorClock()
    dialler(clock, "tcp:127.0.0.1:4610")
    dialler(clock, "tls:h:4610")
    dialler(clock, "unix:/tmp/x")


# ---- small things -----------------------------------------------------------------------------------------------


class Quiet(Protocol):
    def connectionLost(self, reason: Any = None) -> None:
        pass


def plain(room: int = 1 << 30) -> PlainWire:
    return PlainWire(Quiet(), MemoryReactorClock(), room)


def test_prepare_is_content_with_less_than_a_socket() -> None:
    prepare(StringTransport())
    wire = plain()
    prepare(wire.transport)
    wire.transport.connectionLost(_done())
    prepare(wire.transport)


def test_unwrap_makes_a_plain_socket_call_its_protocol_directly() -> None:
    wire = plain()
    inner = Quiet()
    inner.transport = wire.transport
    unwrap(inner)
    assert wire.transport.protocol is inner
    inner.transport = StringTransport()  # type: ignore[assignment]
    unwrap(inner)


def _done() -> Any:
    from twisted.internet.error import ConnectionDone
    from twisted.python.failure import Failure as TwistedFailure

    return TwistedFailure(ConnectionDone())


# ---- send_now ---------------------------------------------------------------------------------------------------


def test_what_the_kernel_takes_is_sent_at_once() -> None:
    wire = plain()
    assert send_now(wire.transport, b"hello")
    assert wire.socket.sent == b"hello"
    assert wire.transport not in wire.reactor.writers


def test_what_it_does_not_take_follows_in_order() -> None:
    wire = plain(room=3)
    assert not send_now(wire.transport, b"hello")
    wire.socket.room = 100
    assert not send_now(wire.transport, b" world")  # not before the rest
    assert wire.socket.sent == b"hel"
    assert unsent(wire.transport) == 8
    wire.turn()
    assert wire.socket.sent == b"hello world"
    assert unsent(wire.transport) == 0
    assert send_now(wire.transport, b"!")


def test_much_goes_out_in_one_call_when_the_kernel_takes_it() -> None:
    wire = plain()
    data = bytes(range(256)) * 4096
    assert send_now(wire.transport, data)
    assert wire.socket.sent == data
    assert wire.transport not in wire.reactor.writers


def test_a_broken_socket_is_found_out_by_the_transport() -> None:
    wire = plain()
    wire.socket.broken = True
    assert not send_now(wire.transport, b"hello")
    wire.turn()
    assert wire.transport.disconnected
    assert not send_now(wire.transport, b"hello")


def test_after_a_close_nothing_is_sent() -> None:
    wire = plain(room=2)
    send_now(wire.transport, b"hello")
    wire.transport.loseConnection()
    wire.socket.room = 100
    assert not send_now(wire.transport, b"late")
    wire.turn()
    assert wire.socket.closed
    assert not send_now(wire.transport, b"later")
    assert b"later" not in wire.socket.sent


def test_another_transport_just_writes() -> None:
    transport = StringTransport()
    assert not send_now(transport, b"hello")
    assert transport.value() == b"hello"
    assert unsent(transport) == 0


# ---- Outlet -----------------------------------------------------------------------------------------------------


def outlet(room: int) -> tuple[PlainWire, Outlet, list[int]]:
    wire, drained = plain(room), []
    return wire, Outlet(wire.transport, lambda: drained.append(len(wire.socket.sent))), drained


def test_an_outlet_knows_when_the_kernel_has_everything() -> None:
    wire, out, drained = outlet(room=8)
    assert out.write(b"12345")
    assert not out.held
    assert not out.write(b"67890")
    assert out.held
    assert out.pending == 2
    before = out.taken
    assert not out.write(b"abc")
    assert (out.pending, out.taken) == (5, before)
    wire.read(1)
    assert (out.pending, out.taken, drained) == (4, before + 1, [])
    wire.read(100)
    assert (out.pending, out.held, drained) == (0, False, [13])
    assert out.write(b"!")
    assert wire.socket.sent == b"1234567890abc!"
    assert drained == [13]


def test_writing_when_told_that_all_is_drained() -> None:
    wire = plain(room=1)
    said: list[bool] = []
    out = Outlet(wire.transport, lambda: said.append(out.write(b"next")) if len(said) < 3 else None)
    out.write(b"first")
    for _ in range(4):
        wire.read(5)
    wire.read(100)
    assert wire.socket.sent == b"first" + b"next" * 3
    assert not out.held


@pytest.mark.parametrize("room", [2, 100])
def test_close_waits_for_what_is_written(room: int) -> None:
    wire, out, drained = outlet(room)
    out.write(b"hello")
    out.close()
    out.close()
    wire.turn()
    assert wire.socket.closed == (room == 100)
    wire.read(100)
    assert wire.socket.sent == b"hello"
    assert wire.socket.closed
    assert not wire.socket.reset
    assert drained == []


@pytest.mark.parametrize("room", [2, 100])
def test_end_waits_for_what_is_written_and_reads_on(room: int) -> None:
    wire, out, _ = outlet(room)
    out.write(b"hello")
    out.end()
    wire.turn()
    wire.read(100)
    assert wire.socket.sent == b"hello"
    assert wire.socket.ended
    assert not wire.socket.closed
    assert wire.transport in wire.reactor.readers


def test_a_transport_that_is_lost_drains_nothing() -> None:
    wire, out, drained = outlet(room=2)
    out.write(b"hello")
    wire.transport.connectionLost(_done())
    assert not out.held
    assert not out.write(b"more")
    assert drained == []
    out.release()


def test_an_outlet_of_another_transport_follows_its_buffer() -> None:
    transport, drained = StringTransport(), []
    out = Outlet(transport, lambda: drained.append(True))
    assert out.write(b"1")
    transport.producer.pauseProducing()
    assert (out.held, out.pending) == (True, 1)
    assert not out.write(b"2")
    transport.producer.resumeProducing()
    transport.producer.resumeProducing()
    assert drained == [True]
    assert out.write(b"3")
    out.end()
    assert transport.disconnecting
    assert transport.producer is None
    out.close()


# ---- real sockets -----------------------------------------------------------------------------------------------


@ensureDeferred
@pytest.mark.filterwarnings("ignore:Passing pyOpenSSL")
@pytest.mark.parametrize("secure", [False, True], ids=["tcp", "tls"])
async def test_a_client_that_stops_reading_and_reads_again(secure: bool, tmp_path: Path) -> None:
    factory, made = collectors()
    where = "tcp:0:interface=127.0.0.1"
    if secure:
        key, certificate = Authority(tmp_path).issue("localhost")
        where = f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}"
    port: Any = await listen(reactor, where, factory)
    client: Any = unread_client(port.getHost().port)
    try:
        if secure:
            client = await _handshake(client)
        await until(lambda: made)
        drained: list[bool] = []
        out = Outlet(made[0].transport, lambda: drained.append(True))
        written = await _fill(out)
        assert out.pending > 0
        drained.clear()
        before = out.taken
        got = 0
        while out.taken <= before:
            got += len(await drink(client, 10_000))
            await later(0)
            assert got < written
        assert len(await drink(client, written - got)) == written - got
        await until(lambda: drained)
        assert not out.held
        assert drained == [True]
        assert out.write(b"on")
        assert await drink(client, 2) == b"on"
        out.close()
    finally:
        client.close()
        await until(lambda: not made or made[0].lost is not None)
        await shut(port)


async def _fill(out: Outlet) -> int:
    """Write until the kernel takes no more; return how much was written."""
    written = 0
    while True:
        written += 10_000
        assert written < 50_000_000
        if not out.write(b"d" * 10_000):
            await later(0.02)
            if out.held:
                return written


async def _handshake(client: socket.socket) -> Any:
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    wrapped = context.wrap_socket(client, do_handshake_on_connect=False)
    while True:
        try:
            wrapped.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            await later(0.005)
        else:
            return _Blocking(wrapped)


class _Blocking:
    """A TLS socket whose ``recv`` says what a plain one says."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def recv(self, size: int) -> bytes:
        import ssl

        try:
            data: bytes = self._wrapped.recv(size)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        return data

    def close(self) -> None:
        self._wrapped.close()


@ensureDeferred
async def test_a_client_that_leaves_with_bytes_waiting() -> None:
    factory, made = collectors()
    port: Any = await listen(reactor, "tcp:0:interface=127.0.0.1", factory)
    client = unread_client(port.getHost().port)
    await until(lambda: made)
    drained: list[bool] = []
    out = Outlet(made[0].transport, lambda: drained.append(True))
    while out.write(b"d" * 100_000):
        pass
    client.close()
    await until(lambda: made[0].lost is not None)
    assert drained == []
    assert not out.held
    await shut(port)
