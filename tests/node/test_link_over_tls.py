"""A node's link over TLS: the edge must prove its name before the token is said."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from socket_doubles import Authority
from twisted.internet import reactor

from iop.edge.config import load_document
from iop.edge.nodes.registry import Registry
from iop.node.config import NodeSettings
from iop.node.tap import Node
from iop.services import Drain
from iop.sockets import listen, tls_host
from iop.wire.protocol import Link

TOKEN = "a-node's-token"


@pytest.mark.parametrize(
    ("endpoint", "host"),
    [
        ("tls:edge.example:4610", "edge.example"),
        ("tls:port=4610:host=edge.example", "edge.example"),
        ("tls:edge.example:4610:trustRoots=/etc/iop", "edge.example"),
        (r"tls:\:\:1:4610", "::1"),
        ("tcp:edge.example:4610", ""),
        ("unix:/run/iop.sock", ""),
    ],
)
def test_who_an_endpoint_must_be(endpoint: str, host: str) -> None:
    assert tls_host(endpoint) == host


def folder(tmp_path: Path) -> Path:
    made = tmp_path / "authority"
    made.mkdir()
    return made


async def joined(tmp_path: Path, authority: Authority, *names: str, monkeypatch: Any) -> tuple[bool, list[bytes]]:
    """Let a node dial an edge that shows a certificate of those names; return whether it got in, and what it said."""
    document = {
        "edge": {"id": "e"},
        "nodes": [{"id": "n", "token_hash_sha256": hashlib.sha256(TOKEN.encode()).hexdigest()}],
    }
    registry = Registry(load_document(document, environ={}).config.nodes, heartbeat_ms=10_000, clock=reactor)
    said: list[bytes] = []
    received, lost = Link.stringReceived, Link.connectionLost
    losses: list[Link] = []
    monkeypatch.setattr(Link, "stringReceived", lambda self, frame: (said.append(frame), received(self, frame))[1])
    monkeypatch.setattr(Link, "connectionLost", lambda self, reason: (losses.append(self), lost(self, reason))[1])
    key, certificate = authority.issue(*names)
    where = f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}"
    port = await listen(reactor, where, registry.factory())
    host: Any = port.getHost()
    trust = tmp_path / "trust"
    trust.mkdir()
    shutil.copy(authority.ca_file, trust / "authority.pem")
    edge = f"tls:localhost:{host.port}:trustRoots={trust}"
    node = Node(NodeSettings(edge=edge, token=TOKEN, state_dir=tmp_path), reactor)
    node.startService()
    try:
        drain = Drain(reactor)  # type: ignore[arg-type]
        await drain.wait(lambda: registry.entries["n"].usable or len(losses) >= 2, 10, 0.01)
        return registry.entries["n"].usable, said
    finally:
        await node.stopService()
        registry.close()
        await port.stopListening()
        await Drain(reactor).wait(lambda: all(link.lost for link in losses), 5, 0.01)  # type: ignore[arg-type]


@pytest_twisted.ensureDeferred
async def test_an_edge_that_proves_its_name_is_told_the_token(tmp_path: Path, monkeypatch: Any) -> None:
    usable, said = await joined(tmp_path, Authority(folder(tmp_path)), "localhost", monkeypatch=monkeypatch)
    assert usable
    assert any(TOKEN.encode() in frame for frame in said)


@pytest.mark.parametrize("names", [(), ("another.example",)], ids=["no name", "another name"])
@pytest_twisted.ensureDeferred
async def test_an_edge_that_does_not_is_told_nothing(tmp_path: Path, names: tuple[str, ...], monkeypatch: Any) -> None:
    usable, said = await joined(tmp_path, Authority(folder(tmp_path)), *names, monkeypatch=monkeypatch)
    assert not usable
    assert said == []
