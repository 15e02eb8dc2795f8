"""Endpoint strings, with Twisted's own parser as the second opinion."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet import endpoints as theirs
from twisted.internet.testing import MemoryReactor

from iop import endpoints
from iop.endpoints import BadEndpoint, Endpoint

GOOD = {
    "tcp:4600": False,
    "tcp:0": False,
    "tcp:port=4600": False,
    "tcp:4600:127.0.0.1": True,
    "tcp:4600:interface=127.0.0.1": True,
    "tcp:4600:interface=127.9.9.9:backlog=10": True,
    "tcp:4600:interface=localhost": True,
    "tcp:4600:interface=0.0.0.0": False,
    "tcp:4600:interface=": False,
    "tcp6:4600": False,
    "tcp6:4600:interface=\\:\\:1": True,
    "tcp6:4600:interface=\\:\\:": False,
    "unix:/run/x": True,
    "unix:/run/a\\:b:mode=600:lockfile=0": True,
    "unix:address=/run/x": True,
}
UNTRIED = {
    "ssl:443:privateKey=k.pem:certKey=c.pem:interface=127.0.0.1": True,
    "ssl:443:privateKey=k.pem": False,
    "tls:/certs:443": False,
    "tls:/certs:443:interface=\\:\\:1": True,
    "systemd:domain=INET:index=0": False,
    "systemd:domain=UNIX:name=iop": True,
    "haproxy:tcp:443": False,
    "haproxy:tcp:443:interface=127.0.0.1": True,
    "haproxy:unix:/run/x": True,
}


@pytest.mark.parametrize(("text", "loopback"), [*GOOD.items(), *UNTRIED.items()])
def test_server_endpoints_and_who_can_reach_them(text: str, loopback: bool) -> None:
    assert endpoints.server(text).loopback is loopback


@pytest.mark.parametrize(
    ("one", "other", "collide"),
    [
        ("tcp:1", "tcp:1", True),
        ("tcp:1", "tcp:2", False),
        ("tcp:0", "tcp:0", False),
        ("tcp:1", "ssl:1:interface=127.0.0.1:privateKey=k", True),
        ("tcp:1:interface=localhost", "tcp:1:interface=127.0.0.1", True),
        ("tcp:1:interface=127.0.0.1", "tcp:1:interface=10.0.0.1", False),
        ("tcp6:1", "tcp:1:interface=\\:\\:1", True),
        ("tcp6:1", "tcp:1", False),
        ("unix:/x", "unix:/x:mode=600", True),
        ("unix:/x", "unix:/y", False),
        ("unix:/x", "tcp:1", False),
        ("systemd:domain=INET:index=0", "systemd:domain=INET:index=1", False),
    ],
)
def test_who_cannot_listen_together(one: str, other: str, collide: bool) -> None:
    assert endpoints.server(one).collides(endpoints.server(other)) is collide
    assert endpoints.server(other).collides(endpoints.server(one)) is collide


@pytest.mark.parametrize("text", GOOD)
def test_twisted_takes_what_we_take(text: str) -> None:
    theirs.serverFromString(MemoryReactor(), text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tcp",
        "tcp:",
        "tcp:x",
        "tcp:-1",
        "tcp:70000",
        "tcp:1:interface=nowhere:backlog=x",
        "tcp:1:2:3:4",
        "tcp:1:port=2",
        "TCP:1",
        "http:1",
        "http://h",
        "4600",
        "tcp:1:color=red",
        "unix:",
        "unix:/x:mode=999",
        "unix:/x:lockfile=maybe",
        "systemd:domain=INET",
        "systemd:domain=INET:index=0:name=x",
        "systemd:index=0",
        "systemd:domain=X:index=0",
        "tcp:1\\",
        "ssl:x",
        "tls:443x:y",
        "haproxy:",
        "haproxy",
        "stdio:",
        "tcp6:4600:interface=::1",
        "tcp:1:interface=h",
    ],
)
def test_server_endpoints_that_are_refused(text: str) -> None:
    with pytest.raises(BadEndpoint) as caught:
        endpoints.server(text)
    assert "nowhere" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["tcp:h:1", "tcp:host=h:port=1:timeout=2.5", "tls:h:443:trustRoots=/x", "unix:/run/x", "unix:path=/x:timeout=3"],
)
def test_client_endpoints(text: str) -> None:
    assert isinstance(endpoints.client(text), Endpoint)


@pytest.mark.parametrize("text", ["", "h", "h:1", "tcp:h", "tcp:1", "http://h", "tls:h:x", "tcp:h:1:x=y", "tcp:h:0"])
def test_client_endpoints_that_are_refused(text: str) -> None:
    with pytest.raises(BadEndpoint):
        endpoints.client(text)


def test_a_client_endpoint_that_verifies_nobody() -> None:
    with pytest.raises(BadEndpoint, match="tls:"):
        endpoints.client("ssl:h:443")


@given(st.text(alphabet="ab:=\\", max_size=12))
def test_the_grammar_is_twisteds(text: str) -> None:
    try:
        arguments, named = theirs._parse(text)
    except RuntimeError:  # a backslash at the end
        with pytest.raises(BadEndpoint):
            endpoints.split(text)
        return
    assert endpoints.split(text) == (arguments or [""], named)


@given(st.text(max_size=20))
def test_a_quoted_argument_is_itself(text: str) -> None:
    assert endpoints.split(f"unix:{endpoints.quote(text)}") == (["unix", text], {})
