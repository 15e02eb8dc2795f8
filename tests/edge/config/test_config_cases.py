"""Failure kinds of configurations seen in public: CF-01, CF-03. Through files and the loader, as an edge reads them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from config_texts import config, faults, load_texts, node, problems, provider, shown

from iop.edge.config import ConfigError, EdgeConfig, load

Loads = Callable[..., EdgeConfig]

DIGEST = "1" * 64
NOTHING = hashlib.sha256(b"").hexdigest()


@pytest.fixture
def loads(tmp_path: Path) -> Loads:
    """Write a text to a file and load that."""

    def load_text(text: str, environ: Mapping[str, str] | None = None) -> EdgeConfig:
        (tmp_path / "edge.yaml").write_text(text)
        return load([tmp_path / "edge.yaml"], environ=environ or {}, state_dir=tmp_path).config

    return load_text


# ---- CF-01: one key twice, one object twice --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "path", "first", "second"),
    [
        ("models:\n  fast: {max_tokens: 100}\n  fast: {max_tokens: 900}\n", "models.fast", 2, 3),
        ("nodes: [a]\nmodels: {}\nnodes: [b]\n", "nodes", 1, 3),
        ("edge: {id: e}\nmodels: []\nedge: {id: f}\n", "edge", 1, 3),
    ],
)
def test_cf_01_a_repeated_key(loads: Loads, text: str, path: str, first: int, second: int) -> None:
    """CF-01: refused with the key and both of its lines, however right the rest is."""
    with pytest.raises(ConfigError) as caught:
        loads(text)
    (said,) = [str(problem) for problem in caught.value.problems if problem.code == "duplicate_key"]
    assert f"edge.yaml:{second}: {path}: " in said
    assert f"line {first}" in said


def test_cf_01_an_anchor_is_no_shared_object() -> None:
    """CF-01: what is changed of one adapter is not changed of the other."""
    adapters = "\n".join(
        f"      - {{name: {name}, type: openai_compat, base_url: 'http://h', headers: {headers}}}"
        for name, headers in (("x", "&h {A: '1'}"), ("y", "*h"))
    )
    text = f"edge: {{id: e}}\nnodes:\n  - id: n\n    token: t\n    adapters:\n{adapters}\n"
    x, y = shown(text)["nodes"][0]["adapters"]
    x["headers"]["A"] = "2"
    assert y["headers"] == {"A": "1"}
    x, y = config(text).nodes[0].adapters
    assert x.settings["headers"] is not y.settings["headers"]
    with pytest.raises(TypeError):
        x.settings["headers"]["A"] = "2"


def test_cf_01_a_merged_key_is_overridden() -> None:
    """CF-01: an override of what `<<` brings is no duplicate."""
    first = provider(capacity=5, priority=3).replace("{id", "&p {id", 1)
    text = node(f"[{first}, {{<<: *p, id: q, capacity: 7}}]")
    p, q = config(text).nodes[0].providers
    assert (p.capacity, q.capacity) == (5, 7)
    assert (q.adapter, q.priority) == (p.adapter, 3)


def test_cf_01_one_alias_or_one_secret_for_two() -> None:
    """CF-01: the second one is refused, and told who is the first."""
    text = "edge: {id: e}\nnodes: [{id: n, token: x, alias: a}, {id: o, token: y, alias: a}]"
    (problem,) = problems(text)
    assert (problem.path, problem.code) == ("nodes[1].alias", "duplicate_id")
    assert "nodes[0].alias" in problem.message
    tokens = ", ".join(f"{{token_ref: {ref}, principal_ref: {ref}, token_hash_sha256: '{DIGEST}'}}" for ref in "ab")
    (problem,) = problems(f"edge: {{id: e}}\nopenai: {{principal_tokens: [{tokens}]}}")
    assert (problem.path, problem.code) == ("openai.principal_tokens[1].token_hash_sha256", "duplicate_id")
    assert "openai.principal_tokens[0].token_hash_sha256" in problem.message
    assert DIGEST not in str(problem)


# ---- CF-03: variables that are not there, or empty -------------------------------------------------------------------

KEYED = """\
edge: {id: e, name: "cost $$5"}
nodes:
  - id: n
    token: t
    adapters:
      - name: a
        type: openai_compat
        base_url: "http://h:1"
        headers: {Authorization: "Bearer ${env:IOP_K}"}
"""


@pytest.mark.parametrize("environ", [{}, {"IOP_K": ""}])
def test_cf_03_no_variable_no_edge(loads: Loads, environ: dict[str, str]) -> None:
    """CF-03: the refusal names variable and field; there is no configuration to send a header of."""
    with pytest.raises(ConfigError) as caught:
        loads(KEYED, environ)
    (problem,) = caught.value.problems
    assert problem.path == "nodes[0].adapters[0].headers.Authorization"
    assert "IOP_K" in problem.message
    assert "Bearer" not in str(problem)


def test_cf_03_values_come_after_yaml(loads: Loads) -> None:
    """CF-03: a value adds no key and needs no quotes; dollars that begin no reference are themselves."""
    odd = 'x: [1, 2] # "q"\ninjected: true'
    cli = '      - {name: c, type: cli, command: /bin/cat, args: ["cost $$5 and ${env:A}", "$${env:A}"]}\n'
    made = loads(KEYED + cli, {"IOP_K": "abc", "A": odd})
    adapter, agent = made.nodes[0].adapters
    assert made.edge.name == "cost $$5"
    assert adapter.settings["headers"] == {"Authorization": "Bearer abc"}
    assert list(agent.settings["args"]) == [f"cost $$5 and {odd}", "${env:A}"]
    assert "injected" not in agent.settings


def test_cf_03_a_header_has_one_line(loads: Loads) -> None:
    """CF-03: nor does a value add a header."""
    with pytest.raises(ConfigError) as caught:
        loads(KEYED, {"IOP_K": "sesame\r\nX-Injected: true"})
    (problem,) = caught.value.problems
    assert problem.path == "nodes[0].adapters[0].headers.Authorization"
    assert "sesame" not in str(problem)


def test_cf_03_no_form_with_a_default() -> None:
    """CF-03: as documented, and said: neither the default nor the variable's value is printed."""
    text = 'edge: {id: e, name: "${env:HOST:-sesame}"}'
    (problem,) = problems(text, environ={"HOST": "h"})
    assert (problem.path, problem.code) == ("edge.name", "secret_missing")
    assert "sesame" not in str(problem)
    adapter = '{name: a, type: openai_compat, base_url: "http://${HOST:-b}:1"}'
    assert faults(node("[]", f"[{adapter}]")) == [("nodes[0].adapters[0].base_url", "schema")]


def test_cf_03_no_secret_in_an_error(loads: Loads) -> None:
    """CF-03"""
    with pytest.raises(ConfigError) as caught:
        loads(KEYED.replace('"http://h:1"', '"sesame"') + "heartbeat_ms: 0\n", {"IOP_K": "sesame"})
    assert len(caught.value.problems) == 2
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("value", ["Bearer ${IOP_K}", "Bearer $${env:IOP_K}", "${IOP_K:-b}"])
def test_cf_03_what_looks_like_a_variable_in_a_secret(value: str) -> None:
    """CF-03: text, as documented; the edge says so before anybody sends it."""
    backend = f'{{name: a, type: openai_compat, base_url: "http://h", headers: {{Authorization: "{value}"}}}}'
    agent = f'{{name: b, type: cli, command: /bin/cat, env: {{HOME: /tmp, KEY: "{value}"}}}}'
    said = {
        problem.path: problem.message
        for problem in load_texts(node("[]", f"[{backend}, {agent}]")).warnings
        if "as it stands" in problem.message
    }
    assert set(said) == {"nodes[0].adapters[0].headers.Authorization", "nodes[0].adapters[1].env.KEY"}
    assert all("only ${env:NAME} and ${file:PATH}" in message for message in said.values())


@pytest.mark.parametrize("secret", [NOTHING, NOTHING.upper()])
def test_cf_03_the_empty_secret_is_nobodys(loads: Loads, secret: str) -> None:
    """CF-03: nor is it when its hash comes from a variable, as that of an empty one would."""
    text = (
        'edge: {id: e}\nopenai: {principal_tokens: [{token_ref: a, principal_ref: a, token_hash_sha256: "${env:H}"}]}'
    )
    with pytest.raises(ConfigError) as caught:
        loads(text, {"H": secret})
    assert [problem.path for problem in caught.value.problems] == ["openai.principal_tokens[0].token_hash_sha256"]
    with pytest.raises(ConfigError) as caught:
        loads('edge: {id: e}\nnodes: [{id: n, token: ""}]')
    assert [problem.path for problem in caught.value.problems] == ["nodes[0].token"]
