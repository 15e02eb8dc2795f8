"""A network in memory on a clock: ports, connections with back-pressure, and breaks. No test here sleeps.

Unlike ``twisted.test.iosim`` it pauses a producer whose peer does not read, joins many connections in one pump, and
fails the way sockets do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost, ConnectionRefusedError
from twisted.internet.interfaces import (
    IConsumer,
    IHostnameResolver,
    IListeningPort,
    IPushProducer,
    IReactorPluggableNameResolver,
    IReactorTCP,
    IReactorTime,
    ITransport,
)
from twisted.internet.task import Clock
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

MARK = 64 << 10
"""Unread bytes at which a writer's producer is paused: what a real transport buffers."""


@implementer(ITransport, IConsumer, IPushProducer)
class End:
    """One end of a connection.

    :ivar paused: its protocol reads nothing.
    :ivar unread: bytes that came and were not read.
    """

    log = Logger()

    def __init__(self, net: MemoryNet, port: int) -> None:
        self._net = net
        self._port = port
        self._came: deque[bytes] = deque()
        self.unread = 0
        self.peer: End
        self.protocol: Any = None
        self.paused = False
        self.connected = True
        self.disconnecting = False
        self._producer: Any = None
        self._producer_paused = False

    # ---- what a protocol asks of its transport

    def write(self, data: bytes) -> None:
        assert isinstance(data, bytes)
        if not self.connected or not data:
            return
        self.peer._came.append(data)
        self.peer.unread += len(data)
        self._net.written += len(data)
        if self.peer.unread > MARK and self._producer is not None and not self._producer_paused:
            self._producer_paused = True
            self._producer.pauseProducing()

    def writeSequence(self, iovec: Any) -> None:
        self.write(b"".join(iovec))

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        assert self._producer is None
        assert streaming
        self._producer = producer

    def unregisterProducer(self) -> None:
        self._producer = None
        self._producer_paused = False

    def loseConnection(self) -> None:
        self.disconnecting = True

    loseWriteConnection = loseConnection

    def abortConnection(self) -> None:
        if (self.connected and not self.disconnecting) or self.peer.unread:
            self.disconnecting = True
            self.peer._came.clear()
            self.peer.unread = 0
            self._net.callLater(0, self.lose, ConnectionAborted(), ConnectionLost())

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False

    def stopProducing(self) -> None:
        self.loseConnection()

    def setTcpNoDelay(self, enabled: bool) -> None:
        pass

    def getHost(self) -> IPv4Address:
        return IPv4Address("TCP", "127.0.0.1", self._port)

    getPeer = getHost

    # ---- what the network does

    def deliver(self) -> bool:
        """Hand over what came; return whether anything happened."""
        if self._came and self.connected and not self.paused:
            data = b"".join(self._came)
            self._came.clear()
            cut = self._net.read_size or len(data)
            if len(data) > cut:
                self._came.append(data[cut:])
                data = data[:cut]
            self.unread -= len(data)
            try:
                self.protocol.dataReceived(data)
            except Exception:
                self.log.failure("a protocol failed")
                self.lose(ConnectionLost(), ConnectionLost())
            if not self.unread and self.peer._producer_paused:
                self.peer._producer_paused = False
                self.peer._producer.resumeProducing()
            return True
        if self.connected and self.disconnecting and not self.peer.unread and self._producer is None:
            self.lose(ConnectionDone(), ConnectionDone())
            return True
        return False

    def lose(self, here: Exception, there: Exception) -> None:
        """The connection is gone, on both ends."""
        for end, reason in ((self, here), (self.peer, there)):
            if end.connected:
                end.connected = False
                end._came.clear()
                end.unread = 0
                self._net.ends.pop(end, None)
                if end._producer is not None:
                    end._producer.stopProducing()
                end.protocol.connectionLost(Failure(reason))

    def cut(self) -> None:
        """The cable is cut."""
        self.lose(ConnectionLost(), ConnectionLost())


class _Connector:
    """An attempt to connect."""

    def __init__(self, net: MemoryNet, port: int, factory: Any) -> None:
        self._net, self._port, self._factory = net, port, factory
        self._stopped = False

    def stopConnecting(self) -> None:
        self._stopped = True

    def getDestination(self) -> IPv4Address:
        return IPv4Address("TCP", "127.0.0.1", self._port)

    def go(self) -> None:
        if self._stopped or self._port in self._net.silent:
            return
        listening = self._net.ports.get(self._port)
        if listening is None:
            self._factory.clientConnectionFailed(self, Failure(ConnectionRefusedError()))
            return
        here, there = End(self._net, self._port), End(self._net, self._port)
        here.peer, there.peer = there, here
        here.protocol = self._factory.buildProtocol(here.getPeer())
        there.protocol = listening.buildProtocol(there.getPeer())
        self._net.ends |= {here: None, there: None}
        there.protocol.makeConnection(there)
        here.protocol.makeConnection(here)


@implementer(IListeningPort)
class _Port:
    def __init__(self, net: MemoryNet, port: int) -> None:
        self._net, self._port = net, port

    def startListening(self) -> None:
        pass

    def stopListening(self) -> None:
        self._net.ports.pop(self._port, None)

    def getHost(self) -> IPv4Address:
        return IPv4Address("TCP", "127.0.0.1", self._port)


@implementer(IHostnameResolver)
class _Literal:
    """Resolves what is an address already."""

    def resolveHostName(self, receiver: Any, hostName: str, portNumber: int = 0, *_: Any, **__: Any) -> Any:
        receiver.resolutionBegan(None)
        receiver.addressResolved(IPv4Address("TCP", hostName, portNumber))
        receiver.resolutionComplete()
        return receiver


@implementer(IReactorTime, IReactorTCP, IReactorPluggableNameResolver)
class MemoryNet(Clock):
    """Enough of a reactor for endpoints.

    :ivar silent: ports that answer nobody, not even with a refusal.
    :ivar read_size: at most so many bytes a read; 0 for all there are.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ports: dict[int, Any] = {}
        self.silent: set[int] = set()
        self.ends: dict[End, None] = {}  # in the order they were made, so that a test runs the same every time
        self.written = 0
        self.read_size = 0
        self.nameResolver = _Literal()

    def installNameResolver(self, resolver: Any) -> Any:
        raise NotImplementedError

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> _Port:
        self.ports[port] = factory
        return _Port(self, port)

    def connectTCP(self, host: str, port: int, factory: Any, timeout: float = 30, bindAddress: Any = None) -> Any:
        connector = _Connector(self, port, factory)
        factory.startedConnecting(connector)
        self.callLater(0, connector.go)
        return connector

    def callFromThread(self, callable: Callable[..., Any], *arguments: Any) -> None:
        self.callLater(0, callable, *arguments)

    def run(self, seconds: float = 0.0) -> None:
        """Let so much time pass, and everything happen that can."""
        end = self.seconds() + seconds
        while True:
            self._settle()
            due = [call.getTime() for call in self.getDelayedCalls() if call.getTime() <= end]
            if not due:
                break
            self.advance(max(0.0, min(due) - self.seconds()))
        self.advance(end - self.seconds())

    def _settle(self) -> None:
        for _ in range(200_000):
            moved = [end.deliver() for end in list(self.ends)]
            due = any(call.getTime() <= self.seconds() for call in self.getDelayedCalls())
            if due:
                self.advance(0)
            elif not any(moved):
                return
        raise AssertionError("the network does not come to rest")

    @property
    def waiting(self) -> list[Any]:
        """The delayed calls that are left."""
        return self.getDelayedCalls()
