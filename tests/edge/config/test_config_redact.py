"""What must not be seen, in documents, problems and representations."""

from __future__ import annotations

from typing import Any

import pytest
from config_texts import config, shown

from iop.edge.config import redact

SECRETS = """
edge: {id: e}
control_plane: {endpoint: "tls:h:1", token: marker-cp}
ledger: {url: "postgresql://marker-user:marker-password@db/iop?sslkey=marker-query"}
openai:
  principal_tokens:
    - {token_ref: t, principal_ref: p, token_hash_sha256: "ABAB"}
nodes:
  - id: n
    token: marker-node
    adapters:
      - name: a
        type: openai_compat
        base_url: "http://marker-user:marker-password@h/v1"
        headers: {Authorization: "Bearer marker-header"}
      - {name: b, type: cli, command: x, env: {KEY: marker-env}, args: ["--url=http://marker-user@h/?k=marker-arg"]}
      - {name: c, type: theirs, api_key: marker-theirs, nested: {headers: {A: marker-nested}}, color: red}
    providers:
      - {id: p, type: vllm, category: api, base_url: "http://marker-user@h", headers: {A: marker-inline}}
  - {id: o, token_hash_sha256: "CDCD"}
""".replace("ABAB", "ab" * 32).replace("CDCD", "cd" * 32)


def test_no_planted_secret_is_seen() -> None:
    hidden = repr(redact(shown(SECRETS)))
    assert "marker" not in hidden
    assert "ab" * 32 not in hidden
    assert "cd" * 32 not in hidden
    assert "red" in hidden


def test_no_planted_secret_is_in_a_representation() -> None:
    text = repr(config(SECRETS)) + str(config(SECRETS))
    assert "marker" not in text
    assert "ab" * 32 not in text
    assert "cd" * 32 not in text


def test_the_document_itself_is_left_alone() -> None:
    document = shown(SECRETS)
    redact(document)
    assert document == shown(SECRETS)


def test_what_is_not_there_stays_null() -> None:
    nodes = redact(shown(SECRETS))["nodes"]
    assert (nodes[0]["token"], nodes[0]["token_hash_sha256"]) == ("***", None)
    assert (nodes[1]["token"], nodes[1]["token_hash_sha256"]) == (None, "***")


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("http://u:p@h/x", "http://***@h/x"),
        ("http://u@h", "http://***@h"),
        ("http://u:p@ss@h/", "http://***@h/"),
        ("http://h/?key=1&b=2&c", "http://h/?key=***&b=***&***"),
        ("http://h?x=http://u:p@i#f", "http://h?x=***#f"),
        ("--url=https://u:p@h --other", "--url=https://***@h --other"),
        ("http://h/a@b", "http://h/a@b"),
        ("sqlite:/var/lib/x", "sqlite:/var/lib/x"),
        ("user@host", "user@host"),
        ("tcp:4600", "tcp:4600"),
    ],
)
def test_urls(text: str, hidden: str) -> None:
    assert redact(text) == hidden
    assert redact(hidden) == hidden or "key=" in hidden


@pytest.mark.parametrize(
    ("value", "path", "hidden"),
    [
        ("x", ("nodes", "n", "token"), "***"),
        (None, ("nodes", "n", "token"), None),
        ("x", ("openai", "principal_tokens", "t", "token_hash_sha256"), "***"),
        ("x", ("nodes", "n", "adapters", "a", "headers", "A"), "***"),
        ({"A": "x"}, ("nodes", "n", "adapters", "a", "headers"), {"A": "***"}),
        ("http://u@h", ("nodes", "n", "adapters", "a", "base_url"), "http://***@h"),
        (4, ("nodes", "n", "providers", "p", "capacity"), 4),
    ],
)
def test_one_value_by_its_path(value: Any, path: tuple[str, ...], hidden: Any) -> None:
    assert redact(value, path) == hidden


def test_what_a_plugins_schema_marks() -> None:
    adapter = {"name": "a", "type": "theirs", "code": "x", "token_limit": 5}
    document = {"nodes": [{"adapters": [adapter]}]}
    schema = {"properties": {"code": {"type": "string", "x-secret": True}, "token_limit": {"type": "integer"}}}
    marked = redact(document, schemas={"theirs": schema})["nodes"][0]["adapters"][0]
    assert marked == {"name": "a", "type": "theirs", "code": "***", "token_limit": 5}
