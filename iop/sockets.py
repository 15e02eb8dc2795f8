"""The one seam to sockets: listening, dialling, and writing at once what a socket takes.

Why not ``transport.write`` alone: it waits for the reactor's next turn (an ``epoll_ctl``, a wait, the ``send``, an
``epoll_ctl``) even when the kernel has room, which doubles what a small write costs; and it never tells when the
kernel has taken everything, which is what a run's flow control counts.
"""

from __future__ import annotations

import fcntl
import re
import sys
import termios
from collections.abc import Callable
from typing import Any

from OpenSSL import SSL
from service_identity.pyopenssl import verify_hostname, verify_ip_address
from twisted.internet import tcp, unix
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString, serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import (
    IListeningPort,
    IProtocolFactory,
    IPushProducer,
    IStreamClientEndpoint,
    ITransport,
)
from zope.interface import implementer

from iop.errors import Failure

_PLAIN = (tcp.Connection, unix.Server, unix.Client)


BACKLOG = 1024
"""Connections that may wait to be accepted; the kernel's own limit may be lower."""


class CannotListen(Exception):
    """A listener that cannot be had, in one sentence for the person who started the program."""


def listen(reactor: Any, description: str, factory: IProtocolFactory) -> Deferred[IListeningPort]:
    """Listen on a Twisted server endpoint string; fails with :class:`CannotListen`."""

    def refused(reason: Any) -> None:
        reason.trap(CannotListenError, OSError, ValueError)
        cause = getattr(reason.value, "socketError", reason.value)
        said = getattr(cause, "strerror", None) or str(cause)
        raise CannotListen(f"cannot listen on {description}: {said}")

    try:
        endpoint = serverFromString(reactor, _with_backlog(description))
    except Exception as error:
        raise CannotListen(f"cannot listen on {description}: {error}") from error
    listening: Deferred[IListeningPort] = endpoint.listen(factory)
    listening.addErrback(refused)
    return listening


def _with_backlog(description: str) -> str:
    """Ask for a queue that a burst of clients fits into; Twisted's own of 50 makes a thousand wait for seconds."""
    if description.split(":", 1)[0] not in ("tcp", "tcp6", "ssl", "unix") or ":backlog=" in description:
        return description
    return f"{description}:backlog={BACKLOG}"


def dialler(reactor: Any, description: str) -> IStreamClientEndpoint:
    """Return a client endpoint; :raises Failure: for one that would verify nothing."""
    if description.startswith("ssl:"):
        raise Failure("invalid_value", "ssl: endpoints verify nothing; use tls:HOST:PORT")
    try:
        endpoint: IStreamClientEndpoint = clientFromString(reactor, description)
    except Exception as error:
        # Twisted's error about trustRoots that is no directory says nothing itself
        said = str(error) or str(getattr(error, "originalException", "")) or type(error).__name__
        raise Failure("invalid_value", f"not a client endpoint: {said}") from error
    return endpoint


def verify_name(secured: SSL.Connection, host: str) -> None:
    """Check that the peer's certificate names ``host``; Twisted 26.10 takes one that names nobody.

    :raises service_identity.VerificationError: or its ``CertificateError``.
    """
    if isIPAddress(host) or isIPv6Address(host):
        verify_ip_address(secured, host)
    else:
        verify_hostname(secured, host.encode("idna").decode("ascii"))


def tls_host(description: str) -> str:
    """Return the host that a ``tls:`` client endpoint must prove to be, "" for another kind of endpoint."""
    kind, *parts = re.split(r"(?<!\\):", description)
    if kind != "tls":
        return ""
    named = [part[len("host=") :] for part in parts if part.startswith("host=")]
    plain = [part for part in parts if "=" not in part]
    return (named + plain + [""])[0].replace("\\:", ":")


def prepare(transport: ITransport) -> None:
    """Switch Nagle's algorithm off: with it the median chunk waits 17 ms."""
    set_no_delay = getattr(transport, "setTcpNoDelay", None)
    if set_no_delay is not None:
        try:
            set_no_delay(True)
        except (OSError, AttributeError):  # gone already, or no TCP underneath a TLS layer
            pass


def unwrap(protocol: Any) -> None:
    """Let a plain socket talk to its protocol directly: endpoints leave a wrapper in between, a call per read."""
    transport = protocol.transport
    if isinstance(transport, _PLAIN):
        transport.protocol = protocol


def send_now(transport: Any, data: bytes) -> bool:
    """Write at once what the kernel takes, the rest as usual; return whether the kernel has everything.

    On anything but a plain TCP or Unix socket this is ``transport.write``, and the answer is False.
    """
    if (
        not isinstance(transport, _PLAIN)
        or not transport.connected
        or transport.disconnecting
        or transport.dataBuffer
        or transport._tempDataBuffer
    ):
        transport.write(data)
        return False
    try:
        sent = transport.socket.send(data)
    except OSError:  # full; or lost, which the transport finds out the same way and tells its protocol
        sent = 0
    if sent == len(data):
        return True
    transport.write(data[sent:])
    return False


def unsent(transport: Any) -> int:
    """Return how many bytes wait in this process for the peer to read; under TLS, of what is encrypted already."""
    socket = _socket_of(transport)
    return 0 if socket is None else len(socket.dataBuffer) - socket.offset + socket._tempDataLen


def _in_kernel(transport: Any) -> int:
    """Return how many bytes the kernel holds that the peer has not acknowledged; 0 when it does not say."""
    try:
        answer = fcntl.ioctl(transport.socket.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
    except (OSError, ValueError, AttributeError):  # a Unix socket may not say; a closed one has no number
        return 0
    return int.from_bytes(answer, sys.byteorder)


def _socket_of(transport: Any) -> Any:
    """Return the plain socket of a transport, its own or the one under a TLS layer; None when there is none."""
    if isinstance(transport, _PLAIN):
        return transport
    below = getattr(transport, "transport", None)
    return below if isinstance(below, _PLAIN) else None


@implementer(IPushProducer)
class Outlet:
    """Writes to one transport and knows whether the kernel has taken all of it.

    :param drained: called when, after a :meth:`write` that returned False, everything has left this process (on a
        TLS transport: when less than its buffer's mark waits).
    """

    __slots__ = ("_drained", "_held", "_plain", "_registering", "_socket", "_waited", "transport")

    def __init__(self, transport: Any, drained: Callable[[], None]) -> None:
        self.transport = transport
        self._drained = drained
        self._held = False
        self._registering = False
        self._waited = 0
        self._plain = isinstance(transport, _PLAIN)
        self._socket = _socket_of(transport)
        if not self._plain:
            transport.registerProducer(self, True)

    @property
    def held(self) -> bool:
        """Whether bytes wait for the peer to read."""
        return self._held

    @property
    def pending(self) -> int:
        """How many bytes wait in this process, as far as the transport lets one see."""
        return int(self._held) if self._socket is None else unsent(self._socket)

    @property
    def taken(self) -> int:
        """A number that grows when the peer takes something, and only then: also of what the kernel holds for it."""
        return self._waited - self.pending - _in_kernel(self._socket)

    def write(self, data: bytes) -> bool:
        """Write; return whether all of it has been taken."""
        if self._plain:
            if self._held:
                self.transport.write(data)
            elif send_now(self.transport, data):
                return True
            else:
                self._hold()
            self._waited += len(data)
            return False
        self.transport.write(data)
        if self._held:
            self._waited += len(data)
        return not self._held

    def _hold(self) -> None:
        """Ask to be told when the buffer is empty: that is what a transport tells a pull producer."""
        if self.transport.producer is not None or not self.transport.connected:
            return
        self._held = self._registering = True
        self.transport.registerProducer(self, False)
        self._registering = False

    def close(self) -> None:
        """Close once everything is written."""
        self.release()
        self.transport.loseConnection()

    def end(self) -> None:
        """Say, once everything is written, that nothing follows; go on reading."""
        if self._plain:
            self.release()
            self.transport.loseWriteConnection()
        else:
            self.close()  # TLS says so itself, and reads until the peer has said the same

    def release(self) -> None:
        """Tell nobody any more. A transport with a producer does not close by itself, and holds what it has."""
        registered = self.transport.producer is self if self._plain else self._drained is not _nothing
        self._held = False
        self._drained = _nothing
        if registered:
            self.transport.unregisterProducer()

    # Called by Twisted.

    def resumeProducing(self) -> None:
        if self._registering or not self._held:
            return
        self._held = False
        if self._plain or (self._socket is not None and self._socket.disconnecting):
            self.transport.unregisterProducer()  # under a TLS that the peer has ended, it would not close by itself
        self._drained()

    def pauseProducing(self) -> None:
        self._held = True

    def stopProducing(self) -> None:
        self._held = False


def _nothing() -> None:
    pass
