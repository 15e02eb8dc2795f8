"""Sockets for tests: one that takes what it is told to take, real ones on loopback, certificates made on the spot."""

from __future__ import annotations

import datetime
import errno
import ipaddress
import socket
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from twisted.internet import reactor, tcp
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure as TwistedFailure


class Socket:
    """Enough of a kernel's socket for Twisted's own TCP transport; it takes ``room`` bytes."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.sent = bytearray()
        self.ended = self.closed = self.reset = False
        self.broken = False

    def send(self, data: Any) -> int:
        if self.broken:
            raise OSError(errno.EPIPE, "gone")
        size = min(len(data), self.room)
        if not size and len(data):
            raise OSError(errno.EWOULDBLOCK, "full")
        self.room -= size
        self.sent += bytes(data[:size])
        return size

    def shutdown(self, how: int) -> None:
        self.ended = True

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        self.reset = self.reset or isinstance(value, bytes)

    def setblocking(self, flag: bool) -> None:
        pass

    def fileno(self) -> int:
        return 99

    def close(self) -> None:
        self.closed = True


class PlainWire:
    """Twisted's TCP transport over a :class:`Socket`: what a plain connection is in production."""

    def __init__(self, protocol: Any, reactor: MemoryReactorClock, room: int = 1 << 30) -> None:
        self.socket = Socket(room)
        self.reactor = reactor
        self.transport: Any = tcp.Connection(self.socket, protocol, reactor)  # type: ignore[arg-type]
        self.transport.connected = 1
        self.transport.startReading()
        protocol.makeConnection(self.transport)

    def turn(self) -> None:
        """One turn of the reactor: what wants to write may."""
        self.reactor.advance(0)
        while self.transport in self.reactor.writers and hasattr(self.transport, "socket"):
            room = self.socket.room
            why = self.transport.doWrite()
            if why is not None:
                self.reactor.removeWriter(self.transport)
                self.transport.connectionLost(TwistedFailure(why))
            elif self.socket.room == room and self.transport.dataBuffer:
                break

    def read(self, size: int) -> None:
        """The peer reads: the kernel has room for so many bytes again."""
        self.socket.room += size
        self.turn()

    def feed(self, data: bytes) -> None:
        if self.transport in self.reactor.readers:
            self.transport.protocol.dataReceived(data)


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = self._builder(self.name, self.key).add_extension(constraints, True).sign(
            self.key, hashes.SHA256()
        )  # fmt: skip
        self.ca_file = self.write(f"{name}.pem", self.certificate.public_bytes(serialization.Encoding.PEM))

    def _builder(self, subject: x509.Name, key: Any) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )

    def write(self, name: str, data: bytes) -> str:
        path = self.folder / name
        path.write_bytes(data)
        return str(path)

    def issue(self, *names: str) -> tuple[str, str]:
        """Return the files of a key and of a certificate for these host names or addresses; for none without any."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives: list[x509.GeneralName] = []
        for name in names:
            try:
                alternatives.append(x509.IPAddress(ipaddress.ip_address(name)))
            except ValueError:
                alternatives.append(x509.DNSName(name))
        file = names[0] if names else "nobody"
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        builder = self._builder(subject, key)
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), False)
        certificate = builder.sign(self.key, hashes.SHA256())
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return (
            self.write(f"{file}.key", secret),
            self.write(f"{file}.crt", certificate.public_bytes(serialization.Encoding.PEM)),
        )


def later(seconds: float) -> Deferred[None]:
    """A Deferred of time gone by."""
    waiting: Deferred[None] = Deferred()
    reactor.callLater(seconds, waiting.callback, None)  # type: ignore[attr-defined]
    return waiting


async def until(condition: Any, seconds: float = 5.0) -> None:
    """Wait until it is true; :raises AssertionError: when it does not come true."""
    for _ in range(int(seconds / 0.005)):
        if condition():
            return
        await later(0.005)
    raise AssertionError("it did not come true")


class Collector(Protocol):
    """Keeps what it is sent; a client or a server's side that says nothing by itself."""

    def __init__(self) -> None:
        self.data = b""
        self.lost: Any = None

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Any = None) -> None:
        self.lost = reason


def collectors() -> tuple[Factory, list[Collector]]:
    """Return a factory of collectors, and those it has made."""
    made: list[Collector] = []

    def build() -> Collector:
        made.append(Collector())
        return made[-1]

    factory = Factory.forProtocol(build)  # type: ignore[arg-type]
    factory.noisy = False
    return factory, made


def unread_client(port: int) -> socket.socket:
    """A client with small buffers that reads only when told."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.setblocking(False)
    return client


async def drink(client: socket.socket, size: int) -> bytes:
    """Read so many bytes."""
    got = b""
    while len(got) < size:
        try:
            data = client.recv(65536)
        except BlockingIOError:
            await later(0.002)
            continue
        if not data:
            break
        got += data
    return got


async def shut(port: Any) -> None:
    """Stop a listener."""
    await maybeDeferred(port.stopListening)
