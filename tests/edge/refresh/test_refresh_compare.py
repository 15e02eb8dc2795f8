"""What is a change and what is another spelling, and at which path a change is seen."""

from __future__ import annotations

import copy
import hashlib
import textwrap
from typing import Any

import pytest
import yaml
from refresh_cases import BASE, HASHES, Case, changed, diff

from iop.edge.refresh import Kind, RefreshResult
from iop.edge.refresh.path import Entry, render

NODE = """
edge: {id: e}
nodes:
  - id: n
    token: x
    adapters: %s
    providers: %s
"""


def node(adapters: str = "[]", providers: str = "[]", rest: str = "") -> Any:
    return yaml.safe_load(NODE % (adapters, providers) + textwrap.dedent(rest))


def provider(type_: str = "vllm", rest: str = "") -> str:
    return f"{{id: p, type: {type_}, category: api, {rest}}}"


def lines(result: RefreshResult) -> list[tuple[str, str, Any, Any]]:
    return [(each.path, each.kind.value, each.before, each.after) for each in result.changes]


# ---- another spelling -------------------------------------------------------------------------------------------


def permuted(document: Any) -> Any:
    """The document with every list that has an identity, and every provider's models, the other way round."""
    result = copy.deepcopy(document)
    for entries in (result["models"], result["openai"]["principal_tokens"], result["openai"]["model_routes"]):
        entries.reverse()
    for each in result["nodes"]:
        each["adapters"].reverse()
        each["providers"].reverse()
        for one in each["providers"]:
            one.get("models", []).reverse()
    result["nodes"].reverse()
    return dict(reversed(result.items()))


def test_the_order_of_entries_means_nothing() -> None:
    result = diff(BASE, permuted(BASE))
    assert result.changes == ()
    assert result.revision_before == result.revision_after


A = '{name: a, type: openai_compat, base_url: "http://h"}'
#: The instance that `provider(rest="base_url: http://h")` stands for.
MADE = '{name: p, type: openai_compat, base_url: "http://h", provider: vllm}'
GROUP = "models: [{id: m, providers: [p]}]"
SPELLED_OUT = "models: [{id: m, providers: [{id: p, target: m, node_id: n}]}]\nprovider_pool: {max_queue: 5}"


def one(adapter: str = "", rest: str = "", root: str = "", type_: str = "vllm") -> Any:
    """A node with one provider, and perhaps an adapter."""
    return node(f"[{adapter}]", f"[{provider(type_=type_, rest=rest)}]", root)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (node("{ollama: {}}"), node("[{name: ollama, type: ollama}]")),
        (node("[{name: o, type: ollama}]"), node('[{name: o, type: ollama, base_url: "http://127.0.0.1:11434"}]')),
        (node("[{name: o, type: ollama}]"), node("[{name: o, type: ollama, context_size: null, headers: null}]")),
        (one(A), one(A, "adapter: openai_compat")),
        (one(A, "adapter: a"), one(A, "adapter: a, enabled: true, priority: 0, total_context_tokens: 0, health: {}")),
        (one(rest="endpoint: http://h"), one(rest="base_url: http://h, headers: {}")),
        (one(rest="base_url: http://h"), one(MADE, "adapter: p")),
        (one(A, "adapter: a, models: [m], max_queue: 5", GROUP), one(A, "adapter: a, models: [m]", SPELLED_OUT)),
        (node(rest="provider_pool: {max_queue: 0}"), node(rest="provider_pool: {max_queue: 16}")),
        (node(rest="provider_pool:"), node(rest="provider_pool: {max_queue: 16}")),
        (
            node(rest="openai: {provider_auth: {enabled: true}}"),
            node(rest="openai: {provider_auth: {enabled: true, scheme: Bearer}}"),
        ),
        (node(rest="metrics: false"), node(rest="metrics: null")),
        (node(), {**node(), "listen": "tcp:4610:interface=127.0.0.1", "edge": {"id": "e", "name": "e"}}),
    ],
)
def test_another_spelling_is_no_change(old: Any, new: Any) -> None:
    for result in (diff(old, new), diff(new, old)):
        assert lines(result) == []
        assert result.revision_before == result.revision_after


def test_per_provider_queue_values_beside_the_root_policy_are_no_change() -> None:
    old = one(A, "adapter: a", "provider_pool: {}")
    new = one(A, "adapter: a, max_queue: 77, queue_timeout_ms: 5", "provider_pool: {}")
    assert lines(diff(old, new)) == []


def test_older_queue_values_are_the_root_policy() -> None:
    result = diff(*(one(A, f"adapter: a, models: [m], max_queue: {size}", GROUP) for size in (5, 6)))
    assert lines(result) == [("provider_pool.max_queue", "modified", 5, 6)]
    assert (result.changed_nodes, result.changed_providers) == ((), ())


# ---- a node's secret --------------------------------------------------------------------------------------------


def secret(**keys: str) -> Any:
    return {"edge": {"id": "e"}, "nodes": [{"id": "n", **keys}]}


def test_a_token_and_its_hash_are_one_secret() -> None:
    hashed = hashlib.sha256(b"x").hexdigest()
    for new in (secret(token_hash_sha256=hashed), secret(token_hash_sha256=hashed.upper())):
        assert diff(secret(token="x"), new).changes == ()
        assert diff(new, secret(token="x")).changes == ()


def test_another_secret_in_another_spelling() -> None:
    result = diff(secret(token="x"), secret(token_hash_sha256=HASHES["a"]))
    assert lines(result) == [
        ("nodes[n].token", "modified", "***", None),
        ("nodes[n].token_hash_sha256", "modified", None, "***"),
    ]


def test_another_token_is_one_change() -> None:
    assert lines(diff(secret(token="x"), secret(token="y"))) == [("nodes[n].token", "modified", "***", "***")]


# ---- JSON and Python do not agree what is equal ------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new"), [(1, True), (1, 1.0), (0, False), ([1], [True]), ({"x": 1}, {"x": True})])
def test_values_of_other_types_differ(old: Any, new: Any) -> None:
    texts = [changed(Case("nodes[n].adapters[d].color", value, "")) for value in (old, new)]
    (change,) = diff(*texts).changes
    assert change.path.startswith("nodes[n].adapters[d].color")


def test_a_drop_ins_null_is_something() -> None:
    (change,) = diff(BASE, changed(Case("nodes[n].adapters[d].more", None, ""))).changes
    assert (change.path, change.kind, change.after) == ("nodes[n].adapters[d].more", Kind.ADDED, None)


# ---- inline execution --------------------------------------------------------------------------------------------


def test_inline_settings_come_and_go_at_the_provider() -> None:
    old, new = one(A, "adapter: a"), one(A, "base_url: http://i, headers: {A: b}")
    assert lines(diff(old, new)) == [
        ("nodes[n].providers[p].adapter", "modified", "a", "p"),
        ("nodes[n].providers[p].base_url", "modified", None, "http://i"),
        ("nodes[n].providers[p].headers", "modified", None, {"A": "***"}),
    ]
    assert lines(diff(new, old)) == [
        ("nodes[n].providers[p].adapter", "modified", "p", "a"),
        ("nodes[n].providers[p].base_url", "modified", "http://i", None),
        ("nodes[n].providers[p].headers", "modified", {"A": "***"}, None),
    ]


def test_an_added_provider_shows_the_settings_it_carries() -> None:
    new = one(rest="base_url: http://i, headers: {A: b}")
    result = diff(node(), new)
    (change,) = result.changes
    assert (change.path, change.kind) == ("nodes[n].providers[p]", Kind.ADDED)
    assert change.after["base_url"] == "http://i"
    assert change.after["headers"] == {"A": "***"}
    assert change.after["type"] == "vllm"
    assert "request_timeout_ms" not in change.after
    (back,) = diff(new, node()).changes
    assert back.before == change.after


def test_the_label_of_an_inline_provider_is_one_change() -> None:
    texts = [one(rest=f"base_url: http://i, provider: {label}") for label in ("a", "b")]
    assert lines(diff(*texts)) == [("nodes[n].providers[p].provider", "modified", "a", "b")]


def test_another_type_of_an_inline_provider() -> None:
    old = one(rest="base_url: http://i, provider: x")
    new = one(rest="command: go, provider: x", type_="cli")
    assert lines(diff(old, new)) == [
        ("nodes[n].providers[p].base_url", "modified", "http://i", None),
        ("nodes[n].providers[p].command", "modified", None, "go"),
        ("nodes[n].providers[p].runtime_type", "modified", "openai_compat", "cli"),
        ("nodes[n].providers[p].type", "modified", "vllm", "cli"),
    ]


def test_from_inline_to_a_listed_adapter_of_the_same_name() -> None:
    """The listed one may hold what a provider cannot carry, so the adapter's path shows all of it."""
    old = one(rest="base_url: http://i")
    listed = '{name: p, type: openai_compat, base_url: "http://j", provider: vllm, max_connections: 5}'
    new = one(listed, "adapter: p")
    expected = [
        ("nodes[n].adapters[p].base_url", "modified", "http://i", "http://j"),
        ("nodes[n].adapters[p].max_connections", "modified", 1024, 5),
    ]
    assert lines(diff(old, new)) == expected
    assert lines(diff(new, old)) == [(path, kind, after, before) for path, kind, before, after in expected]


def test_a_provider_moves_to_another_node() -> None:
    def placed(there: bool) -> Any:
        inline = {"id": "p", "type": "vllm", "category": "api", "base_url": "http://i", "models": ["m"]}
        nodes = [{"id": name, "token": name, "providers": [inline] * (there == (name == "b"))} for name in ("a", "b")]
        return {"edge": {"id": "e"}, "nodes": nodes, "models": [{"id": "m", "providers": ["p"]}]}

    result = diff(placed(False), placed(True))
    assert [(each.path, each.kind) for each in result.changes] == [
        ("models[m].providers", Kind.MODIFIED),
        ("nodes[a].providers[p]", Kind.REMOVED),
        ("nodes[b].providers[p]", Kind.ADDED),
    ]
    assert result.changed_nodes == ("a", "b")
    assert result.changed_providers == ("a/p", "b/p")
    assert result.changed_models == ("m",)


# ---- an adapter of another type ----------------------------------------------------------------------------------


def test_another_adapter_type_shows_what_was_set() -> None:
    old = node('[{name: a, type: openai_compat, base_url: "http://h", tools: text}]')
    new = node("[{name: a, type: cli, command: go}]")
    assert lines(diff(old, new)) == [
        ("nodes[n].adapters[a].base_url", "modified", "http://h", None),
        ("nodes[n].adapters[a].command", "modified", None, "go"),
        ("nodes[n].adapters[a].tools", "modified", "text", None),
        ("nodes[n].adapters[a].type", "modified", "openai_compat", "cli"),
    ]


def test_from_a_built_in_to_a_drop_in() -> None:
    old = node('[{name: a, type: openai_compat, base_url: "http://h"}]')
    new = node("[{name: a, type: theirs, api_key: k}]")
    assert lines(diff(old, new)) == [
        ("nodes[n].adapters[a].api_key", "added", None, "***"),
        ("nodes[n].adapters[a].base_url", "modified", "http://h", None),
        ("nodes[n].adapters[a].type", "modified", "openai_compat", "theirs"),
    ]


# ---- whose change it is ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "nodes", "providers", "models"),
    [
        ("listen", "tcp:1:interface=127.0.0.1", (), (), ()),
        ("openai.model_routes[r].target", "y", (), (), ()),
        ("nodes[n].alias", "uno", ("n",), (), ()),
        ("nodes[n].adapters[a].tools", "off", ("n",), (), ()),
        ("nodes[n].providers[p].capacity", 9, ("n",), ("n/p",), ()),
        ("nodes[n].providers[i].headers.A", "x", ("n",), ("n/i",), ()),
        ("nodes[n].providers[p].health.interval_ms", 9, ("n",), ("n/p",), ()),
        ("models[m].display_name", "x", (), (), ("m",)),
        ("models[z]", {"id": "z", "providers": []}, (), (), ("z",)),
        ("nodes[z]", {"id": "z", "token": "z", "providers": []}, ("z",), (), ()),
    ],
)
def test_whose_change_it_is(path: str, value: Any, nodes: Any, providers: Any, models: Any) -> None:
    for result in (diff(BASE, changed(Case(path, value, ""))), diff(changed(Case(path, value, "")), BASE)):
        assert (result.changed_nodes, result.changed_providers, result.changed_models) == (nodes, providers, models)


def test_a_providers_models_change_a_group_only_by_its_target() -> None:
    def serving(*models: str) -> Any:
        return one(A, f"adapter: a, models: [{', '.join(models)}]", GROUP)

    other = diff(serving("m"), serving("m", "k"))
    assert (other.changed_providers, other.changed_models) == (("n/p",), ())
    target = diff(serving("x"), serving("y"))
    assert [each.path for each in target.changes] == ["models[m].providers", "nodes[n].providers[p].models"]
    assert target.changed_models == ("m",)


# ---- paths --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("edge", "name"), "edge.name"),
        (("nodes", Entry("gpu-1"), "alias"), "nodes[gpu-1].alias"),
        (("a", "b.c"), "a['b.c']"),
        (("a", "b", "c"), "a.b.c"),
        (("a", ""), "a['']"),
        (("a", "x y"), "a['x y']"),
        (("a", "\u009b2J"), "a['\\x9b2J']"),
        (("a", "qwen3:8b"), "a.qwen3:8b"),
        (("a", "b]"), "a['b]']"),
        (("a", "k" * 300), "a." + "k" * 300),
    ],
)
def test_a_path_as_text(path: Any, text: str) -> None:
    assert render(path) == text


def test_an_entry_may_be_called_like_a_secret() -> None:
    """An identity is no key: what stands under it is shown, and what is secret there is not."""
    nodes = [{"id": "headers", "token": "x", "agent_kind": "a"}, {"id": "env", "token": "x2", "alias": "b"}]
    old = {"edge": {"id": "e"}, "nodes": nodes, "models": [{"id": "token", "display_name": "a"}]}
    new = copy.deepcopy(old)
    new["nodes"][0] |= {"token": "y", "agent_kind": "b"}
    new["models"] = []
    result = diff(old, new)
    assert lines(result)[1:] == [
        ("nodes[headers].agent_kind", "modified", "a", "b"),
        ("nodes[headers].token", "modified", "***", "***"),
    ]
    assert result.changes[0].before["display_name"] == "a"
