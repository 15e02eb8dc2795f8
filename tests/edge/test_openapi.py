"""The surface's description of itself: it is sound, and it says what is served, no less and no more."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gateway_in_memory import Answer, Gateway, document, node, sha256
from openapi_spec_validator import OpenAPIV31SpecValidator

from iop.edge.surfaces.openai import openapi
from iop.edge.surfaces.openai.apis.errors import public_code
from iop.edge.surfaces.openai.surface import OpenAISurface
from iop.errors import KINDS, Failure

pytestmark = pytest.mark.usefixtures("logged")

SECRET = "tok-A1"
TOKEN = {"token_ref": "app", "token_hash_sha256": sha256(SECRET), "principal_ref": "alice"}


def asked(**openai: Any) -> Answer:
    configured = document(node("n1", "a-provider-of-mine"), openai={**openai})
    gateway = Gateway(configuration=configured)
    answer = gateway.ask("/openapi.json").answer
    gateway.close()
    return answer


@pytest.fixture(scope="module")
def said() -> Any:
    return openapi.document(openapi.Place(path, method, False, False) for path, method in sorted(openapi.described()))


def surface(gateway: Gateway) -> OpenAISurface:
    made = gateway.server.application
    assert isinstance(made, OpenAISurface)
    return made


def test_it_is_sound() -> None:
    answer = asked()
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    OpenAPIV31SpecValidator(answer.json).validate()


def test_every_route_is_described_and_nothing_else() -> None:
    gateway = Gateway()
    places = {(place.path, place.method) for place in surface(gateway).places()}
    assert places == openapi.described()
    paths = asked().json["paths"]
    assert {(path, method.upper()) for path, each in paths.items() for method in each} == places
    gateway.close()


def test_anybody_may_read_it_and_learns_nothing_of_this_edge() -> None:
    """It is the same with keys, without, and for other models."""
    closed = asked(allow_anonymous=False, principal_tokens=[TOKEN])
    assert closed.status == 200
    assert closed.body == asked().body
    for word in ("a-provider-of-mine", "alice", "127.0.0.1", SECRET, TOKEN["token_hash_sha256"]):
        assert word.encode() not in closed.body


@pytest.mark.parametrize("code", KINDS)
def test_every_code_is_described_at_its_status(code: str) -> None:
    """``cancelled`` and its like are shown as other codes, at their own status."""
    status, shown = str(KINDS[code].http_status), str(public_code(Failure(code, "")))
    operations = [operation for path in asked_once()["paths"].values() for operation in path.values()]
    assert any(shown in words(operation, status) for operation in operations)


def test_every_code_that_is_described_exists() -> None:
    public = {str(public_code(Failure(code, ""))) for code in KINDS}
    for path in asked_once()["paths"].values():
        for operation in path.values():
            for status in operation["responses"]:
                assert words(operation, status) <= public


def words(operation: dict[str, Any], status: str) -> set[str]:
    """Return the codes that an operation's answer of a status may have."""
    said: str = operation["responses"].get(status, {}).get("description", "")
    return set(said.removeprefix("Code ").split(", ")) if said.startswith("Code ") else set()


def asked_once(_kept: list[Any] = []) -> Any:  # noqa: B006
    if not _kept:
        _kept.append(asked().json)
    return _kept[0]


@pytest.mark.parametrize(("path", "method"), sorted(openapi.described()))
def test_who_needs_a_key(path: str, method: str) -> None:
    """What the description says of keys is what the surface does without one."""
    gateway = Gateway(configuration=document(openai={"allow_anonymous": False, "principal_tokens": [TOKEN]}))
    target = path.replace("{id}", "m").replace("{path}", "rerank")
    body = json.dumps({"model": "m"}).encode() if method == "POST" else None
    answer = gateway.ask(target, body, method=method).answer
    operation = asked_once()["paths"][path][method.lower()]
    assert (answer.status == 401) == bool(operation["security"])
    assert ("401" in operation["responses"]) == bool(operation["security"])
    assert set(answer.headers) >= {
        name.lower()
        for name, header in operation["responses"].get("401", {}).get("headers", {}).items()
        if asked_once()["components"]["headers"][header["$ref"].rpartition("/")[2]].get("required")
    }
    gateway.close()
