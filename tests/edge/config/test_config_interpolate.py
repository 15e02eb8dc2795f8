"""Secrets from the environment and from files. docs/contracts/config.md, Files and secrets."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_texts import config, faults, problems, shown, warnings

from iop.edge.config import ConfigError, load


def name(text: str, **environ: str) -> str:
    return config(f"edge: {{id: e, name: {text}}}", environ=environ).edge.name


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ('"${env:A}"', "one"),
        ('"x ${env:A} y ${env:B}"', "x one y two"),
        ('"$${env:A}"', "${env:A}"),
        ('"$${"', "${"),
        ('"${HOST:-b}"', "${HOST:-b}"),
        ('"${}"', "${}"),
        ('"${ENV:A}"', "${ENV:A}"),
        ('"cost $$5"', "cost $$5"),
        ('"${env:A"', "${env:A"),
        ('"${env:REF}"', "${env:A}"),
    ],
)
def test_references(text: str, result: str) -> None:
    assert name(text, A="one", B="two", REF="${env:A}") == result


def test_a_value_adds_no_keys_and_needs_no_quoting() -> None:
    assert name('"${env:A}"', A='x: [1, 2] # "q"') == 'x: [1, 2] # "q"'


def test_what_comes_in_is_text() -> None:
    assert faults('edge: {id: e}\nheartbeat_ms: "${env:N}"', environ={"N": "5"}) == [("heartbeat_ms", "schema")]
    assert config('edge: {id: "${env:N}"}', environ={"N": "12"}).edge.id == "12"
    assert type(config('edge: {id: "${env:N}"}', environ={"N": "12"}).edge.id) is str


def test_keys_are_never_interpolated() -> None:
    text = 'edge: {id: e}\nnodes: [{id: n, token: x, adapters: [{name: a, type: t, "${env:A}": 1}]}]'
    assert "${env:A}" in shown(text, environ={"A": "one"})["nodes"][0]["adapters"][0]


@pytest.mark.parametrize("environ", [{}, {"KEY": ""}])
def test_an_unset_or_empty_variable_is_refused_by_name(environ: dict[str, str]) -> None:
    text = """
        edge: {id: e}
        nodes:
          - id: n
            token: "${env:KEY}"
            adapters:
              - name: a
                type: openai_compat
                base_url: "http://h"
                headers: {Authorization: "Bearer ${env:KEY}"}
        """
    found = problems(text, environ=environ)
    assert [(p.path, p.code, p.line) for p in found] == [
        ("nodes[0].token", "secret_missing", 5),
        ("nodes[0].adapters[0].headers.Authorization", "secret_missing", 10),
    ]
    assert all("KEY" in p.message for p in found)


def test_a_form_with_a_default_is_not_repeated() -> None:
    (problem,) = problems('edge: {id: e, name: "${env:KEY:-sesame}"}', environ={"KEY": "x"})
    assert problem.code == "secret_missing"
    assert "sesame" not in problem.message


def test_bytes_in_a_variable() -> None:
    assert faults('edge: {id: e, name: "${env:K}"}', environ={"K": "\udcff"}) == [("edge.name", "secret_missing")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/edge.yaml").write_text('edge: {id: e, name: "${file:name}"}\n')
    return tmp_path


@pytest.mark.parametrize(
    ("content", "result"),
    [(b"Lab", "Lab"), (b"Lab\n", "Lab"), (b"Lab\r\n", "Lab"), ("Labör\n".encode(), "Labör"), (b" Lab ", " Lab ")],
)
def test_a_file_is_relative_to_where_it_is_named(folder: Path, content: bytes, result: str) -> None:
    (folder / "etc/name").write_bytes(content)
    assert load(["etc/edge.yaml"], environ={}).config.edge.name == result
    assert load([Path("etc/edge.yaml")], environ={}).config.edge.name == result


def test_one_newline_is_dropped_not_two(folder: Path) -> None:
    (folder / "etc/name").write_bytes(b"Lab\n\n")
    with pytest.raises(ConfigError) as caught:
        load(["etc/edge.yaml"], environ={})
    assert [p.code for p in caught.value.problems] == ["schema"]  # a name is one line


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff", b"x" * (1024 * 1024 + 1)])
def test_a_file_that_gives_no_text(folder: Path, content: bytes | None) -> None:
    if content is not None:
        (folder / "etc/name").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(["etc/edge.yaml"], environ={})
    assert [(p.path, p.code) for p in caught.value.problems] == [("edge.name", "secret_missing")]


def test_a_file_named_in_an_overlay_is_relative_to_the_overlay(folder: Path) -> None:
    (folder / "private").mkdir()
    (folder / "private/over.yaml").write_text('edge: {name: "${file:mine}"}\n')
    (folder / "private/mine").write_text("Mine\n")
    assert load(["etc/edge.yaml", "private/over.yaml"], environ={}).config.edge.name == "Mine"


def test_literal_secrets_are_warned_of() -> None:
    text = """
        edge: {id: e}
        nodes:
          - {id: n, token: literal}
          - id: o
            token: "${env:T}"
            adapters:
              - {name: a, type: openai_compat, base_url: "http://h", headers: {A: b, C: "x ${env:T}"}}
            providers:
              - {id: p, type: vllm, category: api, base_url: "http://h", headers: {D: e}}
          - {id: q, token: "$${env:T}"}
        """
    found = [path for path, code in warnings(text, environ={"T": "t"}) if code == "literal_secret"]
    assert found == [
        "nodes[0].token",
        "nodes[1].adapters[0].headers.A",
        "nodes[1].providers[0].headers.D",
        "nodes[2].token",
    ]
