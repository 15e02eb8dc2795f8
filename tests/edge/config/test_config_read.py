"""Reading YAML: JSON types only, duplicate keys, limits, lines. docs/contracts/config.md, Files and secrets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from config_texts import faults, problems

from iop.edge.config import ConfigError, load
from iop.edge.config import read as reading
from iop.edge.config.problems import Report
from iop.edge.config.read import read
from iop.edge.config.scalars import NotPlain, plain


@pytest.fixture(autouse=True, params=["c", "python"])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of PyYAML's parsers."""
    if request.param == "python":
        monkeypatch.setattr(reading, "LOADER", yaml.SafeLoader)


def value(text: str) -> Any:
    report = Report(["f"])
    tree = read(text.encode(), "f", report)
    assert report.errors == []
    return tree


def codes(source: bytes | str) -> list[tuple[str, int, str]]:
    report = Report(["f"])
    read(source if isinstance(source, bytes) else source.encode(), "f", report)
    return [(problem.code, problem.line, problem.path) for problem in report.errors]


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("12", 12),
        ("-3", -3),
        ("+5", 5),
        ("3.0", 3.0),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("on", "on"),
        ("no", "no"),
        ("yes", "yes"),
        ("y", "y"),
        ("12:30", "12:30"),
        ("0600", "0600"),
        ("0o17", "0o17"),
        ("0x1f", "0x1f"),
        ("1_000", "1_000"),
        ("0" * 64, "0" * 64),
        ("nULL", "nULL"),
        ("tRue", "tRue"),
        ("1.2.3", "1.2.3"),
        ("-", "-"),
        ("1" * 5000, "1" * 5000),
    ],
)
def test_unquoted_scalars(text: str, meaning: Any) -> None:
    got = plain(text)
    assert got == meaning
    assert type(got) is type(meaning)


@pytest.mark.parametrize("text", [".inf", "-.INF", ".nan", "2024-01-31", "2024-1-3 10:00:00", "1e999"])
def test_scalars_that_are_refused(text: str) -> None:
    with pytest.raises(NotPlain):
        plain(text)
    assert [code for code, *_ in codes(f"a: {text}\n")] == ["yaml"]


def test_quoted_text_is_text() -> None:
    assert value("a: '12'\nb: \"true\"\nc: !!str 12\nd: ! 12\ne: !!int 12\nf: !!float 1\n") == {
        "a": "12",
        "b": "true",
        "c": "12",
        "d": "12",
        "e": 12,
        "f": 1.0,
    }


@pytest.mark.parametrize(
    "text",
    [
        "a: !!binary aGk=",
        "a: !!timestamp 2024-01-01",
        "a: !!set {x}",
        "a: !!omap [x: 1]",
        "a: !mine x",
        "a: !!python/object:os.system x",
        "a: !!int x",
        "1: x",
        "true: x",
        "? [a]\n: x",
        "? {a: b}\n: x",
        "~: x",
        "a: [b",
        "a: b: c",
        "a: *nowhere",
        "a: &a [*a]",
        "a: 1\n---\nb: 2",
        "<<: 3",
        "\ta: 1",
    ],
)
def test_not_yaml_as_a_configuration_may_have_it(text: str) -> None:
    assert [code for code, *_ in codes(text + "\n")] == ["yaml"]


@pytest.mark.parametrize("source", [b"a: \xff\n", b"\xff\xfea\x00", b"a: \x00", b'a: "\\ud800"\n', b"a: \x07"])
def test_bytes_that_are_no_text(source: bytes) -> None:
    assert [code for code, *_ in codes(source)] == ["yaml"]


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n", "~\n", "\ufeff"])
def test_an_empty_file_is_an_empty_mapping(text: str) -> None:
    assert value(text) == {}


@pytest.mark.parametrize("text", ["[1]", "text", "12"])
def test_the_root_is_a_mapping(text: str) -> None:
    assert codes(text) == [("schema", 1, "")]


def test_a_duplicate_key_is_reported_at_the_second_and_the_first_stays() -> None:
    report = Report(["f"])
    tree = read(b"models:\n  fast: {n: 1}\n  fast: {n: 2}\nnodes: 1\n\nnodes: 2\n", "f", report)
    assert tree == {"models": {"fast": {"n": 1}}, "nodes": 1}
    assert [(p.code, p.line, p.path) for p in report.errors] == [
        ("duplicate_key", 3, "models.fast"),
        ("duplicate_key", 6, "nodes"),
    ]
    assert "line 2" in report.errors[0].message


def test_duplicate_keys_do_not_stop_the_later_stages() -> None:
    found = faults("edge: {id: e}\nlisten: 'tcp:1'\nlisten: 'tcp:2'\nheartbeat_ms: 0\n")
    assert found == [("listen", "duplicate_key"), ("heartbeat_ms", "range")]


def test_an_alias_is_a_copy() -> None:
    tree = value("d: &d {headers: {a: '1'}}\nx: *d\ny: *d\n")
    tree["x"]["headers"]["a"] = "2"
    assert tree["y"] == tree["d"] == {"headers": {"a": "1"}}


def test_a_merged_key_may_be_overridden() -> None:
    assert value("base: &b {timeout: 5, other: 1}\nx: {<<: *b, timeout: 7}\n")["x"] == {"timeout": 7, "other": 1}
    assert value("a: &a {k: 1}\nb: &b {k: 2, l: 3}\nx: {<<: [*a, *b]}\n")["x"] == {"k": 1, "l": 3}
    assert value("x: {'<<': 1}\n")["x"] == {"<<": 1}


def test_aliases_that_expand_too_far() -> None:
    lines = ["a0: &a0 [1,1,1,1,1,1,1,1,1,1]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 6)]
    assert [code for code, *_ in codes("\n".join(lines))] == ["yaml"]
    assert codes("\n".join(lines[:4])) == []


def test_a_file_that_is_too_long() -> None:
    assert codes(b"#" * (reading.MAX_BYTES + 1)) == [("yaml", 1, "")]


def test_deep_nesting_is_refused() -> None:
    assert [code for code, *_ in codes("a: " + "[" * 5000)] == ["yaml"]
    assert [code for code, *_ in codes("{a: " * 200)] == ["yaml"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a:\n\tb: sesame\n", 2, "at column 1: a tab is used for indentation"),
        ("a:\n  b: sesame\n\tc: 2\n", 3, "at column 1: a tab is used for indentation"),
        ("a: [sesame,\n  y\nb: 2\n", 3, "a bracket `[` is not closed, or a comma is missing (it is opened at line 1)"),
        ("a: {sesame: 1\nb: [2]\n", 2, "a brace `{` is not closed, or a comma is missing (it is opened at line 1)"),
        ('a: "\\sesame"\n', 1, "a bad escape in double quotes"),
        ('a: "\\xsesame"\n', 1, "a bad escape in double quotes"),
        ("a: 'sesame\nb: y\n", 3, "a quote is not closed (it is opened at line 1)"),
        ("a: sesame: c\n", 1, "a `key: value` pair has no place here"),
        ("a: - sesame\n", 1, "a list entry `- ` has no place here"),
        ("a: 1\nsesame\nb: 2\n", 3, "a key lacks its colon"),
        ("a:\n  b: sesame\n c: 2\n", 3, "is it indented right?"),
        ("a: @sesame\n", 1, "at column 4: an unquoted text begins with a character"),
        ("a: !sesame!x y\n", 1, "a tag that is not declared"),
        ("a: ]sesame\n", 1, "a value is missing"),
        ("a: 1\nb: sesame\a\n", None, "a control character has no place"),
    ],
)
def test_what_keeps_a_text_from_being_yaml(text: str, line: int | None, words: str) -> None:
    report = Report(["f"])
    read(text.encode(), "f", report)
    (problem,) = report.errors
    assert words in problem.message
    assert "sesame" not in problem.message
    assert problem.code == "yaml"
    assert line in (None, problem.line)


def test_the_line_of_a_yaml_error_and_no_text_of_the_file() -> None:
    (problem,) = problems("edge: {id: e}\nlisten: [sesame-42\nmodels: x\n")
    assert problem.code == "yaml"
    assert problem.line >= 2
    assert "sesame" not in str(problem)


def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """An edge would wait for whoever writes to it, with its configuration locked."""
    os.mkfifo(tmp_path / "edge.yaml")
    with pytest.raises(ConfigError) as caught:
        load([tmp_path / "edge.yaml"], environ={})
    assert [(problem.code, "not a regular file" in problem.message) for problem in caught.value.problems] == [
        ("file", True)
    ]
    (tmp_path / "ok.yaml").write_text("edge: {id: '${file:edge.yaml}'}")
    with pytest.raises(ConfigError) as caught:
        load([tmp_path / "ok.yaml"], environ={})
    assert [problem.code for problem in caught.value.problems] == ["secret_missing"]
