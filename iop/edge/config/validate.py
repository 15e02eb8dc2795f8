"""Validate: the cross references of a normalized document that one value alone cannot break.

Each rule is a function of its own. A value that was refused before is :data:`REFUSED` here and breaks no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from iop import endpoints
from iop.edge.config.adapters import FRAMING
from iop.edge.config.document import Made, token_hash
from iop.edge.config.normalize import loopback
from iop.edge.config.overlay import identities
from iop.edge.config.problems import Report
from iop.edge.config.tree import Path, render
from iop.edge.config.validate_models import validate_models
from iop.edge.config.validate_nodes import validate_nodes
from iop.edge.config.walk import at, each, entries, unique

Document = Mapping[str, Any]

_EMPTY_HASH: Final = token_hash("")

_SERVERS: Final[tuple[Path, ...]] = (
    ("listen",),
    ("bootstrap", "listen"),
    ("metrics", "listen"),
    ("openai", "listen"),
    ("a2a", "listen"),
)
_CLIENTS: Final[tuple[Path, ...]] = (("bootstrap", "advertise"), ("control_plane", "endpoint"))


def validate(document: Document, report: Report) -> None:
    """Report every rule between settings that the document breaks."""
    _endpoints(document, report)
    _ports_once(document, report)
    _identities_once(document, report)
    _secrets_once(document, report)
    if isinstance(document["openai"], dict):
        _open_surface(document["openai"], report)
        _provider_auth(document["openai"]["provider_auth"], report)
        _routes(document, report)
    validate_nodes(document, report)
    validate_models(document, report)


def _endpoints(document: Document, report: Report) -> None:
    for paths, parse in ((_SERVERS, endpoints.server), (_CLIENTS, endpoints.client), ((("console", "listen"),), _unix)):
        for path in paths:
            _endpoint(at(document, path), parse, path, report)


def _endpoint(value: Any, parse: Callable[[str], Any], path: Path, report: Report) -> None:
    if not isinstance(value, str):
        return
    try:
        parse(value)
    except endpoints.BadEndpoint as error:
        report.error(path, "endpoint", str(error))


def _ports_once(document: Document, report: Report) -> None:
    """No two listeners want one port of one interface, or one socket."""
    taken: list[tuple[endpoints.Endpoint, Path]] = []
    for path in (*_SERVERS, ("console", "listen")):
        value = at(document, path)
        try:
            wanted = endpoints.server(value) if isinstance(value, str) else None
        except endpoints.BadEndpoint:
            continue
        if wanted is None:
            continue
        other = next((where for endpoint, where in taken if wanted.collides(endpoint)), None)
        if other is not None:
            report.error(
                path, "conflict", f"`{render(other)}` listens there already; each listener needs a port of its own"
            )
        taken.append((wanted, path))


def _unix(text: str) -> None:
    if endpoints.server(text).kind != "unix":
        raise endpoints.BadEndpoint("the console listens on a Unix socket only: unix:PATH")


def _open_surface(openai: Document, report: Report) -> None:
    listen = openai["listen"]
    if openai["principal_tokens"] != [] or openai["allow_anonymous"] is True or not isinstance(listen, str):
        return
    try:
        endpoints.server(listen)
    except endpoints.BadEndpoint:
        return
    if isinstance(openai["allow_anonymous"], bool) and not loopback(listen):
        report.error(
            ("openai", "listen"),
            "open_surface",
            "others can reach this surface and there are no principal_tokens: add some, listen on a loopback "
            "interface or a Unix socket, or say allow_anonymous: true",
        )


_OWN: Final = frozenset({"authorization", "x-api-key"})


def _provider_auth(auth: Any, report: Report) -> None:
    if not isinstance(auth, dict):
        return
    path: Path = ("openai", "provider_auth")
    for key in ("from_header", "target_header"):
        header = auth[key].lower() if isinstance(auth[key], str) else ""
        if header in FRAMING:
            report.error((*path, key), "conflict", "must not be a header that belongs to the connection or the framing")
        elif key == "from_header" and header in _OWN:
            report.error((*path, key), "conflict", "must not be a header that proves who the client is to the edge")


def _routes(document: Document, report: Report) -> None:
    models = {group["id"] for group in entries(document["models"]) if isinstance(group["id"], str)}
    for route, path in each(document["openai"]["model_routes"], ("openai", "model_routes")):
        if isinstance(route["model"], str) and route["model"] in models:
            report.error((*path, "model"), "conflict", "must not be the id of a models[] entry: drop one of the two")


def _identities_once(document: Document, report: Report) -> None:
    """No two entries of a list have one identity; within a file that was seen already, before interpolation."""
    for names, key in identities().items():
        for entries_of, path in _lists(document, names, ()):
            values = [(entry[key], (*where, key)) for entry, where in each(entries_of, path) if type(entry) is not Made]
            if names != ("nodes", "providers"):
                unique(values, report, "must be unique in its list; {} has it already")


def _lists(value: Any, names: Sequence[str], path: Path) -> Iterator[tuple[Any, Path]]:
    """The lists that stand under these keys, whatever the indexes between them."""
    if not names:
        yield value, path
    elif isinstance(value, list):
        for entry, where in each(value, path):
            yield from _lists(entry, names, where)
    elif isinstance(value, dict):
        yield from _lists(value.get(names[0]), names[1:], (*path, names[0]))


def _secrets_once(document: Document, report: Report) -> None:
    """No two principals, and no two nodes, have the same secret; nobody has the empty one."""
    tokens = at(document, ("openai", "principal_tokens"))
    principals = [
        (entry["token_hash_sha256"], (*path, "token_hash_sha256"))
        for entry, path in each(tokens, ("openai", "principal_tokens"))
    ]
    nodes: list[tuple[Any, Path]] = []
    for node, path in each(document["nodes"], ("nodes",)):
        if isinstance(node["token"], str):
            nodes.append((token_hash(node["token"]), (*path, "token")))
        nodes.append((node.get("token_hash_sha256"), (*path, "token_hash_sha256")))
    for secrets in (principals, nodes):
        unique(secrets, report, "the secret must be used once; it is that of {}")
        empty = next((path for value, path in secrets if value == _EMPTY_HASH), None)
        if empty is not None:
            report.error(empty, "schema", "must not be the hash of the empty string, which proves nothing")
