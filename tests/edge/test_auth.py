"""Who asks, and whether a web page made them ask."""

from __future__ import annotations

from typing import Any

import pytest
from gateway_in_memory import document, sha256

from iop.edge.config import ConfigError, load_document
from iop.edge.surfaces.openai.auth import Gate
from iop.errors import Failure

TOKENS = [
    {"token_ref": "app", "token_hash_sha256": sha256("tok-A1"), "principal_ref": "alice"},
    {"token_ref": "other", "token_hash_sha256": sha256("tok-B2"), "principal_ref": "bob"},
]


def gate(**openai: Any) -> Gate:
    settings = load_document(document(openai={"allow_anonymous": False, **openai})).config.openai
    assert settings is not None
    return Gate(settings)


def admit(made: Gate, repeated: frozenset[bytes] = frozenset(), **headers: str | bytes) -> Any:
    """Return the principal's reference, None for nobody, or the code of the refusal."""
    raw = {
        name.replace("_", "-").encode(): value.encode("latin-1") if isinstance(value, str) else value
        for name, value in headers.items()
    }
    try:
        principal = made.admit(raw, repeated)
    except Failure as failure:
        return failure.code, failure.http_status
    return None if principal is None else principal.principal_ref


DENIED = ("invalid_api_key", 401)


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        ("Bearer tok-A1", "alice"),
        ("bearer tok-A1", "alice"),
        ("BEARER   tok-A1", "alice"),
        ("Bearer tok-A1 ", "alice"),
        ("Bearer tok-B2", "bob"),
        ("Bearer TOK-A1", DENIED),
        ("Bearer tok-A", DENIED),
        ("Bearer tok-A1x", DENIED),
        ("Bearer", DENIED),
        ("Bearer ", DENIED),
        ("", DENIED),
        ("tok-A1", DENIED),
        ("Basic dG9r", DENIED),
        ("Basic tok-A1", DENIED),
        ("Bearer tok-A1, Bearer tok-A1", DENIED),
        ("Bearer tok-A1 tok-A1", DENIED),
        (b"Bearer \xff\xfe", DENIED),
        ("Bearer " + "x" * 60_000, DENIED),
    ],
)
@pytest.mark.parametrize("anonymous", [False, True])
def test_bearer_tokens(authorization: str | bytes, expected: Any, anonymous: bool) -> None:
    """AU-01: a wrong token is refused even where none is needed."""
    made = gate(principal_tokens=TOKENS, allow_anonymous=anonymous)
    assert admit(made, authorization=authorization, host="127.0.0.1") == expected


def test_two_authorization_headers() -> None:
    """AU-01"""
    made = gate(principal_tokens=TOKENS)
    assert admit(made, frozenset([b"authorization"]), authorization="Bearer tok-A1") == DENIED


def test_no_header() -> None:
    """AU-01"""
    assert admit(gate(principal_tokens=TOKENS), host="127.0.0.1") == DENIED
    assert admit(gate(principal_tokens=TOKENS, allow_anonymous=True), host="127.0.0.1") is None
    assert admit(gate(), host="127.0.0.1") == DENIED


def test_with_no_tokens_any_bearer_is_anonymous() -> None:
    """SDKs always send one."""
    made = gate(allow_anonymous=True)
    for authorization in ("Bearer anything", "Bearer", "Basic x"):
        assert admit(made, authorization=authorization, host="localhost") is None


def test_a_refusal_does_not_say_which_part_was_wrong() -> None:
    """AU-01"""
    made, said = gate(principal_tokens=TOKENS), set()
    for headers in ({}, {b"authorization": b"Bearer wrong"}, {b"authorization": b"Basic x"}):
        with pytest.raises(Failure) as raised:
            made.admit(headers, frozenset())
        said.add(raised.value.message)
    assert len(said) == 1
    assert "wrong" not in said.pop()


@pytest.mark.parametrize("bad", ["0" * 63, sha256(""), "g" * 64, ""])
def test_a_hash_that_is_none_is_refused_when_it_is_loaded(bad: str) -> None:
    """AU-01: 63 digits, or the hash of nothing, must never become a principal."""
    token = {"token_ref": "x", "token_hash_sha256": bad, "principal_ref": "x"}
    with pytest.raises(ConfigError):
        load_document(document(openai={"principal_tokens": [token]}))


def test_an_upper_case_hash_is_accepted_or_refused_but_never_ignored() -> None:
    """AU-01"""
    token = {"token_ref": "x", "token_hash_sha256": sha256("tok-A1").upper(), "principal_ref": "x"}
    try:
        made = gate(principal_tokens=[token])
    except ConfigError:
        return
    assert admit(made, authorization="Bearer tok-A1") == "x"


# ---- web pages


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost", True),
        ("localhost:4600", True),
        ("LOCALHOST:4600", True),
        ("localhost.:4600", True),
        ("127.0.0.1", True),
        ("127.0.0.1:4600", True),
        ("192.168.1.7:4600", True),
        ("[::1]", True),
        ("[::1]:4600", True),
        ("models.lan", True),
        ("Models.LAN:4600", True),
        ("evil.example", False),
        ("evil.example:4600", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("models.lan.evil.example", False),
        ("", False),
        (":4600", False),
    ],
)
def test_an_anonymous_surface_answers_only_to_its_own_names(host: str, allowed: bool) -> None:
    """DNS rebinding: a name that was made to point here is refused."""
    made = gate(allow_anonymous=True, allowed_hosts=["models.lan"])
    assert admit(made, host=host) == (None if allowed else ("host_not_allowed", 403))


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("https://chat.example", True),
        ("https://evil.example", False),
        ("http://chat.example", False),
        ("https://chat.example:8443", False),
        ("null", False),
        ("", False),
    ],
)
def test_an_anonymous_surface_is_driven_by_no_web_page(origin: str, allowed: bool) -> None:
    made = gate(allow_anonymous=True, allowed_origins=["https://chat.example"])
    got = admit(made, host="127.0.0.1", origin=origin)
    assert got == (None if allowed else ("origin_not_allowed", 403))


def test_a_token_proves_enough() -> None:
    made = gate(principal_tokens=TOKENS, allow_anonymous=True)
    assert admit(made, authorization="Bearer tok-A1", host="evil.example", origin="https://evil.example") == "alice"


# ---- forwarded provider tokens


def forwarded(made: Gate, value: str | None, repeated: frozenset[bytes] = frozenset()) -> Any:
    headers = {} if value is None else {b"x-iop-provider-authorization": value.encode("latin-1")}
    try:
        return made.provider_token(headers, repeated)
    except Failure as failure:
        return failure.code, failure.http_status


@pytest.mark.parametrize(
    ("rule", "value", "expected"),
    [
        ({"enabled": True}, "prov-1", (("Authorization", "Bearer prov-1"),)),
        ({"enabled": True}, "Bearer prov-1", (("Authorization", "Bearer prov-1"),)),
        ({"enabled": True}, "bearer prov-1", (("Authorization", "bearer prov-1"),)),
        ({"enabled": True, "scheme": ""}, "prov-1", (("Authorization", "prov-1"),)),
        ({"enabled": True, "target_header": "api-key", "scheme": ""}, "k", (("api-key", "k"),)),
        ({"enabled": True}, None, ("provider_token_missing", 401)),
        ({"enabled": True}, "  ", ("provider_token_missing", 401)),
        ({"enabled": True, "required": False}, None, ()),
        ({"enabled": False}, "prov-1", ()),
        ({"enabled": True}, "a\r\nX: y", ("invalid_value", 400)),
        ({"enabled": True}, "a\0b", ("invalid_value", 400)),
    ],
)
def test_provider_tokens(rule: dict[str, Any], value: str | None, expected: Any) -> None:
    """AU-02"""
    assert forwarded(gate(provider_auth=rule), value) == expected


def test_a_provider_token_given_twice() -> None:
    made = gate(provider_auth={"enabled": True})
    assert forwarded(made, "a, b", frozenset([b"x-iop-provider-authorization"])) == ("invalid_value", 400)
