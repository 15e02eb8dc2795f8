"""Server and client on real loopback sockets, plain and TLS."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from http_doubles import App, Heard, read_answers
from pytest_twisted import ensureDeferred
from socket_doubles import Authority, collectors, drink, later, shut, unread_client, until
from twisted.internet import reactor
from twisted.internet.threads import deferToThread

from iop.http.client import Client, Origin, Timers
from iop.http.server import Limits, Server
from iop.sockets import listen

pytestmark = pytest.mark.filterwarnings("ignore:Passing pyOpenSSL")

PLAIN = "tcp:0:interface=127.0.0.1"
GET = b"GET /now HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def secured(authority: Authority, *names: str) -> str:
    key, certificate = authority.issue(*names)
    return f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}"


class Listening:
    """A server on a port of its own, and a client for it."""

    def __init__(self, where: str = PLAIN, **limits: Any) -> None:
        self.app = App()
        self.server = Server(self.app, reactor, Limits(**limits))  # type: ignore[arg-type]
        self.where = where
        self.port: Any = None
        self.clients: list[Client] = []

    async def __aenter__(self) -> Listening:
        self.port = await listen(reactor, self.where, self.server)
        return self

    @property
    def number(self) -> int:
        number: int = self.port.getHost().port
        return number

    def client(self, ca_file: str = "", host: str = "localhost", **settings: Any) -> Client:
        url = f"{'https' if self.where.startswith('ssl') else 'http'}://{host}:{self.number}"
        self.clients.append(Client(reactor, Origin.of(url, ca_file), **settings))
        return self.clients[-1]

    async def __aexit__(self, *_: Any) -> None:
        for client in self.clients:
            client.close()
        self.server.abort_all()
        await shut(self.port)
        await until(lambda: not self.server.connections)
        await until(lambda: not any(client._open or client._dialling for client in self.clients))


async def ask(client: Client, path: str = "/now", body: bytes = b"{}", timers: Timers | None = None) -> Heard:
    heard = Heard()
    client.request("POST", path, [], body, heard, timers or Timers())
    await until(lambda: heard.over)
    return heard


def talk(port: int, data: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """Send, then read to the end; a blocking client, for a thread."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
        client = context.wrap_socket(raw, server_hostname="localhost") if context else raw
        client.sendall(data)
        got = b""
        while piece := client.recv(65536):
            got += piece
        return got


# ---- plain ------------------------------------------------------------------------------------------------------


@ensureDeferred
async def test_client_and_server_over_one_connection() -> None:
    async with Listening() as here:
        client = here.client()
        for size in (2, 3_000_000, 0):
            heard = await ask(client, body=b"b" * size)
            assert heard.body == (b"b" * size or b"ok")
        assert len(here.server.connections) == 1


@ensureDeferred
async def test_the_kernel_gets_a_small_answer_at_once() -> None:
    async with Listening() as here:
        client = here.client()
        heard = Heard()
        client.request("POST", "/stream", [], b"", heard, Timers())
        await until(lambda: here.app.waiting)
        assert here.app.waiting[0].write(b"token")
        await until(lambda: heard.blocks)
        assert heard.blocks == [b"token"]
        here.app.waiting[0].finish()
        await until(lambda: heard.over)


@ensureDeferred
async def test_a_large_body_is_refused_and_the_client_can_read_why() -> None:
    async with Listening(body=1 << 20) as here:
        for framing in (b"Content-Length: 17000000", b"Transfer-Encoding: chunked"):
            body = b"b" * 17_000_000 if b"Length" in framing else b"ffff\r\n%b\r\n" % (b"b" * 0xFFFF) * 260
            head = b"POST /now HTTP/1.1\r\nHost: h\r\n" + framing + b"\r\n\r\n"
            got = await deferToThread(talk, here.number, head + body)
            (answer,) = read_answers(got, ["POST"])
            assert (answer.status, answer.closes) == (413, True)
        assert here.app.handled == []


@ensureDeferred
async def test_an_abort_is_a_reset_even_where_the_end_is_a_close() -> None:
    async with Listening() as here:
        client = here.client()
        heard = Heard()
        client.request("POST", "/later", [], b"", heard, Timers())
        await until(lambda: here.app.waiting)
        exchange = here.app.waiting[0]
        exchange.version = "1.0"
        exchange.start(200, [])
        exchange.write(b"half")
        await until(lambda: heard.blocks)
        exchange.abort()
        await until(lambda: heard.over)
        assert heard.failure is not None
        assert heard.body == b"half"


@ensureDeferred
async def test_a_client_that_leaves_is_noticed_at_once() -> None:
    async with Listening() as here:
        client = here.client()
        for number, path in enumerate(["/later", "/stream"], 1):
            call = client.request("POST", path, [], b"", Heard(), Timers())
            await until(lambda number=number: len(here.app.waiting) == number)
            call.cancel()
            await until(lambda number=number: len(here.app.gone) == number, 1)
        await until(lambda: not here.server.connections)


@ensureDeferred
async def test_a_client_that_does_not_read_holds_up_only_itself() -> None:
    async with Listening() as here:
        raw = unread_client(here.number)
        raw.sendall(GET.replace(b"/now", b"/stream"))
        await until(lambda: here.app.waiting)
        while here.app.waiting[0].write(b"d" * 100_000):
            pass
        assert (await ask(here.client())).body == b"{}"
        raw.close()
        await until(lambda: here.app.gone)


@ensureDeferred
async def test_a_client_that_drains_what_the_kernel_holds_is_not_stalled() -> None:
    """Megabytes may wait in the kernel: nothing leaves this process for long, and yet the client reads."""
    async with Listening() as here:
        raw = unread_client(here.number)
        raw.sendall(GET.replace(b"/now", b"/stream"))
        await until(lambda: here.app.waiting)
        while here.app.waiting[0].write(b"d" * 100_000):
            pass
        (connection,) = here.server.connections
        outlet = connection.outlet
        await later(0.05)
        taken, waiting = outlet.taken, outlet.pending
        await later(0.05)
        assert outlet.taken == taken
        await drink(raw, 20_000)
        await until(lambda: outlet.taken > taken)
        assert outlet.pending == waiting
        raw.close()
        await until(lambda: here.app.gone)


@ensureDeferred
async def test_two_hundred_clients_that_vanish() -> None:
    async with Listening() as here:
        for number in range(200):
            raw = socket.create_connection(("127.0.0.1", here.number))
            raw.sendall(GET.replace(b"/now", b"/later")[: 10 + number])
            if number % 2:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await later(0)
            raw.close()
        await until(lambda: not here.server.connections)
        assert len(here.app.gone) == len(here.app.waiting)


@ensureDeferred
async def test_a_backend_that_resets_in_a_body_until_close() -> None:
    factory, made = collectors()
    port: Any = await listen(reactor, PLAIN, factory)
    client = Client(reactor, Origin("http", "127.0.0.1", port.getHost().port))
    for end, whole in (("loseConnection", True), ("abortConnection", False)):
        heard = Heard()
        client.request("POST", "/", [], b"", heard, Timers())
        await until(lambda: made and made[-1].data)
        made[-1].transport.write(b"HTTP/1.1 200 OK\r\n\r\nbody")  # type: ignore[union-attr]
        await until(lambda heard=heard: heard.blocks)
        getattr(made[-1].transport, end)()
        await until(lambda heard=heard: heard.over)
        assert (heard.ends == 1) == whole
        made.pop()
    client.close()
    await shut(port)


@ensureDeferred
async def test_an_early_answer_to_a_request_still_being_sent() -> None:
    factory, made = collectors()
    port: Any = await listen(reactor, PLAIN, factory)
    client = Client(reactor, Origin("http", "127.0.0.1", port.getHost().port))
    heard = Heard()
    client.request("POST", "/", [], b"b" * 50_000_000, heard, Timers())
    await until(lambda: made)
    made[0].transport.pauseProducing()  # type: ignore[union-attr]
    made[0].transport.write(b"HTTP/1.1 429 Slow\r\ncontent-length: 2\r\n\r\nno")  # type: ignore[union-attr]
    await until(lambda: heard.over)
    assert (heard.status, heard.body, heard.ends) == (429, b"no", 1)
    assert not client._idle  # half a request stands in the way of the next
    client.close()
    await later(0)
    made[0].transport.abortConnection()  # type: ignore[union-attr]
    await shut(port)


@ensureDeferred
async def test_a_refused_connection_names_no_address() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        number = taken.getsockname()[1]
        heard = await ask(Client(reactor, Origin("http", "127.0.0.1", number)))
    assert heard.failure is not None
    assert heard.failure.code == "upstream_connect"
    assert heard.failure.message == "the backend refused the connection"


# ---- TLS --------------------------------------------------------------------------------------------------------


@ensureDeferred
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_good_certificate_is_accepted(authority: Authority, host: str) -> None:
    async with Listening(secured(authority, "localhost", "127.0.0.1")) as here:
        client = here.client(authority.ca_file, host)
        for size in (2, 2_000_000, 3):
            assert (await ask(client, body=b"b" * size)).body == b"b" * size
        assert len(here.server.connections) == 1


@ensureDeferred
async def test_a_bad_certificate_is_refused(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    cases: list[tuple[str, str]] = [
        (secured(authority, "localhost"), stranger.ca_file),
        (secured(authority, "localhost"), ""),
        (secured(authority, "elsewhere.example"), authority.ca_file),
        (secured(authority, "10.0.0.1"), authority.ca_file),
        (secured(authority), authority.ca_file),
    ]
    for where, ca_file in cases:
        async with Listening(where) as here:
            heard = await ask(here.client(ca_file))
            assert heard.failure is not None
            assert (heard.failure.code, heard.failure.message) == (
                "upstream_connect",
                "the backend's TLS certificate was refused",
            )
            assert heard.failure.retryable
            assert here.app.admitted == []  # the request has not been shown


@ensureDeferred
@pytest.mark.parametrize("text", [None, b"", b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"])
async def test_a_trust_file_that_cannot_be_used(tmp_path: Path, text: bytes | None) -> None:
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_bytes(text)
    heard = await ask(Client(reactor, Origin("https", "localhost", 1, str(path))))
    assert heard.failure is not None
    assert (heard.failure.code, heard.failure.message) == (
        "upstream_connect",
        "the backend's trust file cannot be used",
    )


@ensureDeferred
async def test_a_backend_without_tls(authority: Authority) -> None:
    async with Listening() as here:
        client = Client(reactor, Origin("https", "localhost", here.number, authority.ca_file))
        heard = await ask(client)
        assert heard.failure is not None
        assert heard.failure.message == "the backend does not speak the same TLS"
        client.close()


@ensureDeferred
async def test_a_handshake_that_does_not_end_is_part_of_connecting(authority: Authority) -> None:
    factory, made = collectors()
    port: Any = await listen(reactor, PLAIN, factory)
    number = port.getHost().port
    client = Client(reactor, Origin("https", "localhost", number, authority.ca_file), max_connections=1)
    heard = await ask(client, timers=Timers(connect=0.1))
    assert heard.failure is not None
    assert (heard.failure.code, heard.failure.http_status) == ("upstream_connect", 504)
    await until(lambda: made[0].lost is not None)
    second = Heard()
    client.request("POST", "/", [], b"", second, Timers())
    await until(lambda: len(made) == 2 and made[1].data)
    made[1].transport.loseConnection()  # type: ignore[union-attr]
    await until(lambda: second.over)
    assert second.failure is not None
    assert second.failure.code == "upstream_connect"
    third = Heard()
    call = client.request("POST", "/", [], b"", third, Timers())
    await until(lambda: len(made) == 3 and made[2].data)
    call.cancel()
    await until(lambda: made[2].lost is not None)
    assert not third.over
    assert client._count == 0
    await shut(port)


@ensureDeferred
async def test_cancel_and_stale_connections_under_tls(authority: Authority) -> None:
    async with Listening(secured(authority, "localhost")) as here:
        client = here.client(authority.ca_file)
        assert (await ask(client)).ends == 1
        here.server.abort_all()
        assert (await ask(client)).ends == 1  # repeated, or dialled anew
        call = client.request("POST", "/stream", [], b"", Heard(), Timers())
        await until(lambda: here.app.waiting)
        call.cancel()
        await until(lambda: here.app.gone, 1)


@ensureDeferred
async def test_a_large_body_is_refused_readably_under_tls(authority: Authority) -> None:
    context = ssl.create_default_context(cafile=authority.ca_file)
    async with Listening(secured(authority, "localhost"), body=1 << 20) as here:
        head = b"POST /now HTTP/1.1\r\nHost: h\r\nContent-Length: 5000000\r\n\r\n"
        got = await deferToThread(talk, here.number, head + b"b" * 5_000_000, context)
        (answer,) = read_answers(got, ["POST"])
        assert (answer.status, answer.closes) == (413, True)


@ensureDeferred
async def test_a_close_under_tls_is_an_orderly_one(authority: Authority) -> None:
    context = ssl.create_default_context(cafile=authority.ca_file)
    async with Listening(secured(authority, "localhost")) as here:
        for close in (b"Connection: close\r\n", b"\r\nBAD"):
            request = GET[:-2] + close + b"\r\n"
            got = await deferToThread(talk, here.number, request, context)  # raises on an end without notice
            assert read_answers(got)[0].status == 200


async def _paused_stream(here: Listening, authority: Authority) -> Any:
    """A TLS client that does not read, and a stream that waits for it."""
    context = ssl.create_default_context(cafile=authority.ca_file)
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await deferToThread(raw.connect, ("127.0.0.1", here.number))
    client = await deferToThread(context.wrap_socket, raw, server_hostname="localhost")
    client.sendall(GET.replace(b"/now", b"/stream"))
    await until(lambda: here.app.waiting)
    full = 0
    while full < 3:
        full = full + 1 if not here.app.waiting[0].write(b"d" * 50_000) else 0
        await later(0.01)
    return client


@ensureDeferred
async def test_a_client_that_does_not_read_under_tls_is_cut(authority: Authority) -> None:
    async with Listening(secured(authority, "localhost"), stall_timeout=0.5) as here:
        client = await _paused_stream(here, authority)
        await until(lambda: here.app.gone, 3)
        client.close()


@ensureDeferred
async def test_a_client_that_ends_tls_while_bytes_wait_for_it_is_gone(authority: Authority) -> None:
    async with Listening(secured(authority, "localhost")) as here:
        client = await _paused_stream(here, authority)
        client.setblocking(False)
        with pytest.raises((ssl.SSLError, OSError)):
            client.unwrap()  # says that it will send no more, and reads on
        raw = socket.socket(fileno=client.detach())
        raw.setblocking(False)

        def drunk() -> bool:
            try:
                raw.recv(1 << 20)
            except BlockingIOError:
                pass
            return bool(here.app.gone)

        await until(drunk)
        raw.close()


@ensureDeferred
async def test_drain_under_tls(authority: Authority) -> None:
    async with Listening(secured(authority, "localhost"), linger_timeout=0.5) as here:
        client = here.client(authority.ca_file)
        assert (await ask(client)).ends == 1
        raw = await deferToThread(socket.create_connection, ("127.0.0.1", here.number))  # never says a word
        await until(lambda: len(here.server.connections) == 2)
        here.server.close_idle()
        await until(lambda: not here.server.connections)
        raw.close()


def test_origins() -> None:
    cases: dict[str, Callable[[], Origin] | tuple[Origin, bytes]] = {
        "http://h": (Origin("http", "h", 80), b"h"),
        "https://h": (Origin("https", "h", 443), b"h"),
        "https://h:80/v1": (Origin("https", "h", 80), b"h:80"),
        "http://[::1]:8000/v1": (Origin("http", "::1", 8000), b"[::1]:8000"),
        "http://user:secret@h:1/": (Origin("http", "h", 1), b"h:1"),
        "http://bücher.example:1": (Origin("http", "bücher.example", 1), b"xn--bcher-kva.example:1"),
    }
    for url, expected in cases.items():
        origin = Origin.of(url)
        assert (origin, origin.authority) == expected
    for url in ("ftp://h", "h:80", "http://", "", "http://h:notaport"):
        with pytest.raises(ValueError):
            Origin.of(url)
