"""Overlays: maps by key, lists of objects by identity. docs/contracts/config.md, Files and secrets."""

from __future__ import annotations

from typing import Any

import pytest
from config_texts import config, faults, problems, shown

from iop.edge.config.overlay import identities, merge
from iop.edge.config.problems import Report
from iop.edge.config.tree import marked


def merged(*documents: dict[str, Any]) -> Any:
    report = Report()
    result = merge([marked(document) for document in documents], report)
    assert report.errors == []
    return result


def test_the_lists_with_an_identity() -> None:
    assert identities() == {
        ("models",): "id",
        ("nodes",): "id",
        ("nodes", "adapters"): "name",
        ("nodes", "providers"): "id",
        ("openai", "principal_tokens"): "token_ref",
        ("openai", "model_routes"): "model",
    }


@pytest.mark.parametrize(
    ("base", "overlay", "result"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}, {"a": {"b": 1, "c": 3}}),
        ({"a": {"b": 1}}, {"a": 3}, {"a": 3}),
        ({"a": 3}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
        ({"a": 1}, {"b": {"c": None}}, {"a": 1, "b": {}}),
        ({"a": 1}, {"missing": None}, {"a": 1}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        (
            {"models": [{"id": "a", "x": 1}, {"id": "b"}]},
            {"models": [{"id": "c", "y": None}, {"id": "a", "y": 2}]},
            {"models": [{"id": "a", "x": 1, "y": 2}, {"id": "b"}, {"id": "c"}]},
        ),
        ({"models": [{"id": "a", "x": 1}]}, {"models": [{"id": "a", "x": None}]}, {"models": [{"id": "a"}]}),
        (
            {"models": [{"id": "a", "providers": ["p", "q"]}]},
            {"models": [{"id": "a", "providers": [{"id": "p"}]}]},
            {"models": [{"id": "a", "providers": [{"id": "p"}]}]},
        ),
        ({"models": [{"id": "a"}]}, {"models": [{"display_name": "x"}]}, {"models": [{"display_name": "x"}]}),
        ({"models": [{"x": 1}]}, {"models": [{"id": "a"}]}, {"models": [{"id": "a"}]}),
        ({"models": [{"id": "a"}]}, {"models": ["a"]}, {"models": ["a"]}),
        ({"models": None}, {"models": [{"id": "a"}]}, {"models": [{"id": "a"}]}),
        (
            {"nodes": [{"id": "n", "adapters": [{"name": "a", "x": 1}], "providers": [{"id": "p", "x": 1}]}]},
            {"nodes": [{"id": "n", "adapters": [{"name": "a", "y": 2}], "providers": [{"id": "p", "y": 2}]}]},
            {
                "nodes": [
                    {
                        "id": "n",
                        "adapters": [{"name": "a", "x": 1, "y": 2}],
                        "providers": [{"id": "p", "x": 1, "y": 2}],
                    }
                ]
            },
        ),
        (
            {"openai": {"principal_tokens": [{"token_ref": "t", "x": 1}], "model_routes": [{"model": "m", "x": 1}]}},
            {"openai": {"principal_tokens": [{"token_ref": "t", "x": 2}], "model_routes": [{"model": "m", "x": 2}]}},
            {"openai": {"principal_tokens": [{"token_ref": "t", "x": 2}], "model_routes": [{"model": "m", "x": 2}]}},
        ),
        (
            {"nodes": [{"id": "n", "adapters": {"ollama": {"x": 1}}}]},
            {"nodes": [{"id": "n", "adapters": [{"name": "ollama", "y": 2}]}]},
            {"nodes": [{"id": "n", "adapters": [{"x": 1, "name": "ollama", "type": "ollama", "y": 2}]}]},
        ),
        (
            {"nodes": [{"id": "n", "adapters": [{"name": "ollama", "type": "ollama"}]}]},
            {"nodes": [{"id": "n", "adapters": {"ollama": {"y": 2}, "cli": None}}]},
            {
                "nodes": [
                    {
                        "id": "n",
                        "adapters": [
                            {"name": "ollama", "type": "ollama", "y": 2},
                            {"name": "cli", "type": "cli"},
                        ],
                    }
                ]
            },
        ),
    ],
)
def test_two_documents(base: dict[str, Any], overlay: dict[str, Any], result: dict[str, Any]) -> None:
    assert merged(base, overlay) == result


def test_three_files_in_their_order() -> None:
    assert config("edge: {id: a}\nheartbeat_ms: 1", "edge: {id: b}", "edge: {name: C}").edge.name == "C"
    assert config("edge: {id: a}", "edge: {id: b}").edge.id == "b"


def test_a_problem_names_the_file_and_line_that_set_the_value() -> None:
    (problem,) = problems("edge: {id: e}\nheartbeat_ms: 5\n", "\n\nheartbeat_ms: 0\n")
    assert (problem.file, problem.line, problem.path) == ("b.yaml", 3, "heartbeat_ms")


def test_an_identity_twice_in_one_file() -> None:
    base = "edge: {id: e}\nmodels:\n  - {id: m}\n  - {id: m}\n"
    (problem,) = problems(base)
    assert (problem.path, problem.code, problem.line) == ("models[1].id", "duplicate_id", 4)
    assert faults("edge: {id: e}", "models: [{id: m}, {id: m}]") == [("models[1].id", "duplicate_id")]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("nodes: [{id: n, token: x}, {id: n, token: y}]", "nodes[1].id"),
        ("nodes: [{id: n, token: x, adapters: [{name: a, type: t}, {name: a, type: t}]}]", "nodes[0].adapters[1].name"),
        (
            (
                "openai: {model_routes: [{model: m, adapter: a, target: t}, {model: m, adapter: a, target: t}]}\n"
                "nodes: [{id: n, token: x, adapters: [{name: a, type: t}]}]"
            ),
            "openai.model_routes[1].model",
        ),
    ],
)
def test_every_identity_list_refuses_a_twin(text: str, path: str) -> None:
    assert faults(f"edge: {{id: e}}\n{text}\n") == [(path, "duplicate_id")]


def test_identities_that_became_equal_by_interpolation() -> None:
    text = 'edge: {id: e}\nmodels: [{id: m}, {id: "${env:M}"}]\n'
    assert faults(text, environ={"M": "m"}) == [("models[1].id", "duplicate_id")]


def test_a_null_section_is_absent() -> None:
    assert config("edge: {id: e}\nprovider_pool:\nopenai:\nlogging: null\nlisten:\n") == config("edge: {id: e}")


def test_a_null_provider_pool_silences_older_pairs_and_an_overlay_deletes_it() -> None:
    older = (
        "edge: {id: e}\nprovider_pool:\nmodels: [{id: m, providers: [p, q]}]\n"
        "nodes: [{id: n, token: x, adapters: {ollama: {}}, providers: ["
        "{id: p, type: ollama, category: api, models: [m], max_queue: 1},"
        "{id: q, type: ollama, category: api, models: [m], max_queue: 2}]}]\n"
    )
    assert shown(older)["provider_pool"] == {"max_queue": 16, "queue_timeout_ms": 30000}
    assert [code for _, code in faults(older, "provider_pool: null")] == ["queue_policy_conflict"]


def test_an_older_adapter_entry_is_named_by_its_type() -> None:
    text = "edge: {id: e}\nnodes: [{id: n, token: x, adapters: {ollama: {type: cli}}}]"
    assert faults(text) == [("nodes[0].adapters[0].type", "conflict")]
    assert faults(text.replace("type: cli", "type: ollama, name: ollama")) == []
