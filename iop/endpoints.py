"""Twisted's endpoint strings, checked without Twisted.

The grammar is Twisted's: parameters between colons, ``name=value`` for named ones, a backslash before a character
that is meant as itself. The table of kinds is that of the endpoints Twisted brings.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final


class BadEndpoint(ValueError):
    """An endpoint string that Twisted would refuse; the message says what would be right."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint taken apart: its kind, and its parameters by name."""

    kind: str
    parameters: Mapping[str, str]

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it. What cannot be known counts as reachable."""
        if self.kind == "unix":
            return True
        if self.kind == "systemd":
            return self.parameters["domain"] == "UNIX"
        interface = self.parameters.get("interface", "")
        if interface == "localhost":
            return True
        try:
            return ipaddress.ip_address(interface).is_loopback
        except ValueError:
            return False

    def collides(self, other: Endpoint) -> bool:
        """Whether two listeners cannot both have what they ask for. A wildcard takes a port of all its family."""
        address = self.parameters.get("address")
        if address is not None:
            return address == other.parameters.get("address")
        port = int(self.parameters.get("port", "0"))
        if port == 0 or port != int(other.parameters.get("port", "0")):
            return False
        mine, theirs = self._interface, other._interface
        return mine == theirs or (mine.version == theirs.version and (mine.is_unspecified or theirs.is_unspecified))

    @property
    def _interface(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        """Where it listens; without an interface, everywhere."""
        interface = self.parameters.get("interface", "").replace("localhost", "127.0.0.1")
        return ipaddress.ip_address(interface or ("::" if self.kind == "tcp6" else "0.0.0.0"))


def _port(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,5}", text) is not None and int(text) <= 65535


def _count(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,9}", text) is not None


def _seconds(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text) is not None


def _mode(text: str) -> bool:
    return re.fullmatch(r"(0o?)?[0-7]{1,4}", text) is not None


def _flag(text: str) -> bool:
    return text in ("0", "1")


def _given(text: str) -> bool:
    return text != "" and "\0" not in text


def _address(text: str) -> bool:
    if text in ("", "localhost"):
        return True
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _family(text: str) -> bool:
    return text in ("INET", "INET6", "UNIX")


Rule = tuple[Callable[[str], bool], str]

_PORT: Final[Rule] = (_port, "a port from 0 to 65535")
_PEER_PORT: Final[Rule] = (lambda text: _port(text) and int(text) > 0, "a port from 1 to 65535")
_COUNT: Final[Rule] = (_count, "a number")
_SECONDS: Final[Rule] = (_seconds, "a number of seconds")
_MODE: Final[Rule] = (_mode, "an octal mode such as 600")
_FLAG: Final[Rule] = (_flag, "0 or 1")
_GIVEN: Final[Rule] = (_given, "not empty")
_ADDRESS: Final[Rule] = (_address, "an IP address (a colon in it is written \\:)")
_FAMILY: Final[Rule] = (_family, "INET, INET6 or UNIX")


@dataclass(frozen=True, slots=True)
class _Kind:
    """The parameters one kind takes, in the order of their positions."""

    parameters: Mapping[str, Rule]
    required: tuple[str, ...]


_SERVERS: Final[dict[str, _Kind]] = {
    "tcp": _Kind({"port": _PORT, "interface": _ADDRESS, "backlog": _COUNT}, ("port",)),
    "tcp6": _Kind({"port": _PORT, "backlog": _COUNT, "interface": _ADDRESS}, ("port",)),
    "ssl": _Kind(
        {
            "port": _PORT,
            "privateKey": _GIVEN,
            "certKey": _GIVEN,
            "sslmethod": _GIVEN,
            "interface": _ADDRESS,
            "backlog": _COUNT,
            "extraCertChain": _GIVEN,
            "dhParameters": _GIVEN,
        },
        ("port",),
    ),
    "tls": _Kind({"path": _GIVEN, "port": _PORT, "backlog": _COUNT, "interface": _ADDRESS}, ("path",)),
    "unix": _Kind({"address": _GIVEN, "mode": _MODE, "backlog": _COUNT, "lockfile": _FLAG}, ("address",)),
    "systemd": _Kind({"domain": _FAMILY, "index": _COUNT, "name": _GIVEN}, ("domain",)),
}

_CLIENTS: Final[dict[str, _Kind]] = {
    "tcp": _Kind({"host": _GIVEN, "port": _PEER_PORT, "timeout": _SECONDS, "bindAddress": _GIVEN}, ("host", "port")),
    "tls": _Kind(
        {
            "host": _GIVEN,
            "port": _PEER_PORT,
            "timeout": _SECONDS,
            "bindAddress": _GIVEN,
            "certificate": _GIVEN,
            "privateKey": _GIVEN,
            "trustRoots": _GIVEN,
        },
        ("host", "port"),
    ),
    "unix": _Kind({"path": _GIVEN, "timeout": _SECONDS, "lockfile": _FLAG, "checkPID": _FLAG}, ("path",)),
}


def server(text: str) -> Endpoint:
    """A server endpoint: where to listen. ``haproxy:`` is the endpoint behind it."""
    arguments, named = split(text)
    if arguments[0] == "haproxy" and len(arguments) > 1:
        arguments = arguments[1:]
    endpoint = _match(_SERVERS, arguments, named)
    if endpoint.kind == "systemd" and ("index" in endpoint.parameters) == ("name" in endpoint.parameters):
        raise BadEndpoint("a systemd endpoint takes either index or name")
    return endpoint


def client(text: str) -> Endpoint:
    """A client endpoint: where to dial. One that verifies nobody is refused."""
    arguments, named = split(text)
    if arguments[0] == "ssl":
        raise BadEndpoint("`ssl:` verifies nobody's certificate; use tls:HOST:PORT")
    return _match(_CLIENTS, arguments, named)


def split(text: str) -> tuple[list[str], dict[str, str]]:
    """The positional and the named parameters; the first positional one is the kind."""
    arguments: list[str] = []
    named: dict[str, str] = {}
    for name, value in _parameters(text):
        if name is None:
            arguments.append(value)
        else:
            named[name] = value
    return arguments or [""], named


def _parameters(text: str) -> list[tuple[str | None, str]]:
    found: list[tuple[str | None, str]] = []
    name: str | None = None
    current = ""
    characters = iter(text)
    for character in characters:
        if character == "\\":
            escaped = next(characters, None)
            if escaped is None:
                raise BadEndpoint("a backslash needs a character behind it")
            current += escaped
        elif character == ":":
            found.append((name, current))
            name, current = None, ""
        elif character == "=" and name is None:
            name, current = current, ""
        else:
            current += character
    return [*found, (name, current)]


def quote(argument: str) -> str:
    """Text as one parameter of an endpoint string."""
    return argument.replace("\\", "\\\\").replace(":", "\\:").replace("=", "\\=")


def _match(kinds: Mapping[str, _Kind], arguments: list[str], named: Mapping[str, str]) -> Endpoint:
    kind = kinds.get(arguments[0])
    if kind is None:
        raise BadEndpoint(f"must be an endpoint that begins with one of {', '.join(f'{word}:' for word in kinds)}")
    word = arguments[0]
    names = list(kind.parameters)
    if len(arguments) - 1 > len(names):
        raise BadEndpoint(f"a {word} endpoint takes no more than {', '.join(names)}")
    parameters = dict(zip(names, arguments[1:], strict=False))
    for name, value in named.items():
        if name not in kind.parameters:
            raise BadEndpoint(f"a {word} endpoint's parameters are {', '.join(names)}")
        if name in parameters:
            raise BadEndpoint(f"the {name} of the {word} endpoint stands twice")
        parameters[name] = value
    for name in kind.required:
        if name not in parameters:
            raise BadEndpoint(f"a {word} endpoint needs its {name}")
    for name, value in parameters.items():
        valid, expected = kind.parameters[name]
        if not valid(value):
            raise BadEndpoint(f"the {name} of the {word} endpoint must be {expected}")
    return Endpoint(word, parameters)
