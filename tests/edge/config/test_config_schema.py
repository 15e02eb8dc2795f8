"""The JSON Schema, and the model it comes from: complete, sound, and in agreement with ``jsonschema``."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from config_texts import shown
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from iop.edge.config import model, schema
from iop.edge.config.check import check
from iop.edge.config.problems import Report
from iop.edge.config.setting import Effect, fields, setting
from iop.edge.config.tree import marked
from iop.settings import SETTINGS

SCHEMA = schema()


def parts() -> Iterator[type[Any]]:
    for name in model.__all__:
        yield getattr(model, name)


def properties(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every property declared anywhere in the schema."""
    if isinstance(node, dict):
        for name, keywords in node.get("properties", {}).items():
            if "const" not in keywords:
                yield f"{path}/{name}", keywords
        for key, value in node.items():
            if key != "if":
                yield from properties(value, f"{path}/{key}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from properties(value, f"{path}/{index}")


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    for kind in SETTINGS.values():
        Draft202012Validator.check_schema(kind)


def test_every_setting_says_what_it_is_and_what_changing_it_costs() -> None:
    found = dict(properties(SCHEMA))
    assert len(found) > 100
    for path, keywords in found.items():
        assert keywords.get("x-effect") in ("live", "restart_required"), path
        assert keywords.get("description"), path


def test_a_setting_has_no_effect_by_default() -> None:
    with pytest.raises(TypeError):
        setting("what it is", default=1)  # type: ignore[call-arg, arg-type]


def test_every_field_of_the_model_is_a_setting_but_two_of_the_adapter() -> None:
    others = [
        (part.__name__, field.name)
        for part in parts()
        if part is not model.EdgeConfig.__class__
        for field in dataclasses.fields(part)
        if "setting" not in field.metadata
    ]
    assert others == [("Adapter", "settings"), ("Adapter", "of_provider")]


def test_what_is_live() -> None:
    live = {
        f"{part.__name__}.{field.name}"
        for part in parts()
        for field in fields(part)
        if field.declaration.effect is Effect.LIVE
    }
    assert live == {
        "EdgeConfig.long_context_threshold_tokens",
        "EdgeConfig.provider_pool",
        "EdgeConfig.models",
        "ProviderPool.max_queue",
        "ProviderPool.queue_timeout_ms",
        "ModelGroup.id",
        "ModelGroup.display_name",
        "ModelGroup.providers",
        "ModelGroup.context_window_tokens",
        "ModelGroup.default_max_tokens",
        "ModelGroup.min_max_tokens",
        "ModelGroup.default_thinking_token_budget",
        "GroupProvider.id",
        "GroupProvider.node_id",
        "GroupProvider.target",
        "Node.runtime",
        "Runtime.concurrency",
        "Provider.capacity",
        "Provider.long_context_capacity",
        "Provider.total_context_tokens",
        "Provider.priority",
        "Provider.enabled",
        "Provider.apis",
    }


def test_examples_and_defaults_keep_their_own_rules() -> None:
    for path, keywords in properties(SCHEMA):
        own = Draft202012Validator({**keywords, "$defs": SCHEMA["$defs"]})
        for example in [*keywords.get("examples", ()), *([keywords["default"]] if "default" in keywords else ())]:
            assert "${" in str(example) or own.is_valid(example), (path, example)


def test_objects_are_closed() -> None:
    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("type") == "object" and "properties" in node:
                assert node.get("additionalProperties") is (node["description"].startswith("One named adapter"))
            for key, value in node.items():
                if key != "properties" or "type" in node:
                    walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(SCHEMA)


#: The keywords the checker interprets, and those that are annotations.
KNOWN = {"type", "enum", "const", "pattern", "minLength", "maxLength", "minimum", "maximum", "required", "properties"}
KNOWN |= {"additionalProperties", "propertyNames", "items", "anyOf", "allOf", "if", "then", "$ref", "$defs", "$schema"}
KNOWN |= {"title", "description", "default", "examples"}


@pytest.mark.parametrize("root", [SCHEMA, *SETTINGS.values()])
def test_no_keyword_is_used_that_the_checker_does_not_know(root: Any) -> None:
    def walk(node: Any) -> None:
        if not isinstance(node, dict):
            return
        for key, value in node.items():
            assert key in KNOWN or key.startswith("x-"), key
            if key in ("properties", "$defs"):
                for each in value.values():
                    walk(each)
            elif key in ("anyOf", "allOf"):
                for each in value:
                    walk(each)
            elif key in ("additionalProperties", "propertyNames", "items", "if", "then"):
                walk(value)

    walk(root)


BASE = shown(
    """
    edge: {id: e}
    metrics: {listen: "tcp:1"}
    openai:
      principal_tokens: [{token_ref: t, principal_ref: p, token_hash_sha256: "%s"}]
      model_routes: [{model: r, adapter: o, target: t}]
    nodes:
      - id: n
        token: x
        adapters:
          - {name: o, type: ollama, context_size: {m: 5}, headers: {A: b}}
          - {name: c, type: cli, command: x, args: [y]}
          - {name: d, type: theirs, z: 1}
        providers: [{id: p, type: ollama, category: api, adapter: o, models: [m]}]
    models: [{id: m, providers: [p]}]
    """.replace("%s", "ab" * 32)
)


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path] + [place for key, child in children for place in places(child, (*path, key))]


def without_nulls(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: without_nulls(value) for key, value in node.items() if value is not None}
    return [without_nulls(value) for value in node] if isinstance(node, list) else node


CLEAN = without_nulls(BASE)
PLACES = [place for place in places(CLEAN) if place]
# 3.0 is an integer to JSON Schema and none to a configuration, so no whole floats.
VALUES = st.one_of(
    st.integers(-2, 2**31 + 1),
    st.floats(0.1, 0.9),
    st.booleans(),
    st.text(max_size=5),
    st.sampled_from(["a", "http://h", "ab" * 32, "info", "", "api", "tcp:1", "a\n"]),
    st.lists(st.text(max_size=3), max_size=2),
    st.dictionaries(st.sampled_from(["id", "name", "type", "listen", "A", "zzz"]), st.text(max_size=3), max_size=2),
)


def mutated(document: Any, place: tuple[Any, ...], value: Any, how: str) -> Any:
    """A copy with one value replaced, removed, or a key added beside it."""
    if not place:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    key, rest = place[0], place[1:]
    if rest:
        copy[key] = mutated(document[key], rest, value, how)
    elif how == "remove" and isinstance(copy, dict):
        del copy[key]
    elif how == "add" and isinstance(copy, dict):
        copy[f"{key}x"] = value
    else:
        copy[key] = value
    return copy


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(PLACES), VALUES, st.sampled_from(["replace", "remove", "add"]))
def test_the_checker_agrees_with_jsonschema(place: tuple[Any, ...], value: Any, how: str) -> None:
    document = mutated(CLEAN, place, value, how)
    report = Report()
    report.tree = marked(document)
    check(SCHEMA, report.tree, report)
    assert (report.errors == []) == Draft202012Validator(SCHEMA).is_valid(document)


def test_an_effective_document_is_a_valid_file() -> None:
    assert Draft202012Validator(SCHEMA).is_valid(BASE)


def test_older_forms_are_valid_for_an_editor() -> None:
    text = {"edge": {"id": "e"}, "nodes": [{"id": "n", "token": "x", "adapters": {"ollama": {}, "cli": None}}]}
    assert Draft202012Validator(SCHEMA).is_valid(text)
    assert Draft202012Validator(SCHEMA).is_valid({"edge": {"id": "e"}, "openai": False, "metrics": False, "a2a": None})


def test_nothing_here_imports_twisted() -> None:
    code = "import sys, iop.edge.config; sys.exit(any(m.split('.')[0] in ('twisted', 'zope') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
