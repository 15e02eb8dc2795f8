"""The reactor of edge and node."""

from __future__ import annotations

import subprocess
import sys

CHECK = """
import sys
from iop.reactor import install
{before}
install()
from twisted.internet import reactor, protocol, endpoints
print(type(reactor).__name__)

class Echo(protocol.Protocol):
    def dataReceived(self, data):
        self.transport.write(data)
        if data == b"fail":
            raise RuntimeError("a handler that fails ends its own connection")

class Ask(protocol.Protocol):
    def connectionMade(self):
        self.transport.write(self.factory.words)
    def dataReceived(self, data):
        print(data.decode())
        self.transport.loseConnection()
    def connectionLost(self, reason):
        print(reason.type.__name__)
        self.factory.then()

def ask(words, then):
    factory = protocol.Factory.forProtocol(Ask)
    factory.words, factory.then = words, then
    endpoints.TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port).connect(factory)

port = reactor.listenTCP(0, protocol.Factory.forProtocol(Echo), interface="127.0.0.1")
reactor.callLater(0, ask, b"hello", lambda: ask(b"fail", lambda: ask(b"again", reactor.stop)))
reactor.run()
"""


def run(before: str = "") -> list[str]:
    command = [sys.executable, "-c", CHECK.format(before=before)]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.split()


def test_it_serves_and_a_failing_handler_harms_only_its_connection() -> None:
    name, *said = run()
    assert name == "LeanReactor"
    assert said[:2] == ["hello", "ConnectionDone"]
    assert said[-2:] == ["again", "ConnectionDone"]


def test_a_reactor_that_was_chosen_stays() -> None:
    assert run("from twisted.internet import selectreactor; selectreactor.install()")[0] == "SelectReactor"


ENDS = """
from iop.reactor import install
install()
from twisted.internet import reactor, protocol, endpoints
import socket

said = []

class Hear(protocol.Protocol):
    def dataReceived(self, data):
        said.append(f"read{data.decode()}")
        reactor.at_turn_end(lambda: said.append(f"end{data.decode()}"))
        if len(heard := [each for each in said if each.startswith("read")]) == 2:
            reactor.callLater(0, timer)

def fail():
    raise RuntimeError("what fails at the end of a turn harms nothing else")

def again():
    said.append("inner")
    reactor.callLater(0, reactor.stop)  # nothing else happens: the wait that follows must know of it

def timer():
    said.append("timer")
    reactor.at_turn_end(fail)
    reactor.at_turn_end(lambda: reactor.at_turn_end(again))

port = reactor.listenTCP(0, protocol.Factory.forProtocol(Hear), interface="127.0.0.1")
clients = [socket.create_connection(("127.0.0.1", port.getHost().port)) for _ in range(2)]
def both():
    for number, client in enumerate(clients):
        client.send(str(number).encode())
reactor.callLater(0.05, both)  # both are accepted by then, and ready in one turn
reactor.callLater(10, said.clear)
reactor.run()
print(*said)
"""


def test_the_end_of_a_turn_comes_after_all_that_was_ready_and_before_the_next_wait() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=5, check=True)
    said = done.stdout.split()
    assert sorted(said[:4]) == ["end0", "end1", "read0", "read1"]
    assert said[0].startswith("read")
    assert said[-2:] == ["timer", "inner"]
    if said[1].startswith("read"):  # both in one turn, as nearly always
        assert said[2:4] == [each.replace("read", "end") for each in said[:2]]
