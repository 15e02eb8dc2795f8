"""Normalization: defaults and older forms, each both ways. docs/contracts/config.md, Sections."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from config_texts import ADAPTER, STATE, config, faults, node, problems, provider, reload, shown

from iop.edge.config import canonical, default_state_dir, effective, load_document, revision
from iop.edge.config.document import FrozenMap
from iop.edge.config.model import EdgeConfig, Node, Provider

A_HASH = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b856"


def only(text: str, **options: Any) -> tuple[Node, Provider]:
    (loaded,) = config(text, **options).nodes
    return loaded, loaded.providers[0]


def test_the_smallest_file() -> None:
    document = shown("edge: {id: home}")
    assert document == {
        "edge": {"id": "home", "name": "home"},
        "listen": "tcp:4610:interface=127.0.0.1",
        "heartbeat_ms": 10000,
        "drain_timeout_ms": 30000,
        "bootstrap": None,
        "logging": {"level": "info", "format": "text"},
        "metrics": None,
        "console": {"listen": "unix:/state/console.sock:mode=600"},
        "control_plane": None,
        "ledger": {"url": "sqlite:/state/ledger.sqlite3"},
        "openai": {
            "listen": "tcp:4600:interface=127.0.0.1",
            "principal_tokens": [],
            "allow_anonymous": True,
            "allowed_origins": [],
            "allowed_hosts": [],
            "provider_auth": {
                "enabled": False,
                "from_header": "X-IOP-Provider-Authorization",
                "target_header": "Authorization",
                "scheme": "Bearer",
                "required": True,
            },
            "model_routes": [],
            "max_body_bytes": 33554432,
            "stall_timeout_ms": 60000,
            "expose_provider": False,
        },
        "a2a": None,
        "long_context_threshold_tokens": 100000,
        "provider_pool": {"max_queue": 16, "queue_timeout_ms": 30000},
        "models": [],
        "nodes": [],
    }


def test_a_node_and_a_provider_with_nothing_said() -> None:
    document = shown(node(f"[{provider(adapter=None, models=None)}]"))["nodes"][0]
    providers, adapters = document.pop("providers"), document.pop("adapters")
    assert document == {
        "id": "n",
        "alias": "n",
        "token": "x",
        "token_hash_sha256": None,
        "agent_kind": "generic",
        "runtime": {"concurrency": None},
    }
    assert providers == [
        {
            "id": "p",
            "type": "vllm",
            "runtime_type": "openai_compat",
            "adapter": "a",
            "provider": "vllm",
            "category": "local_inference",
            "enabled": True,
            "capacity": 1,
            "long_context_capacity": 0,
            "total_context_tokens": None,
            "priority": 0,
            "models": [],
            "apis": None,
            "health": {"interval_ms": 10000, "path": None, "timeout_ms": 2000},
            "lifecycle": {"managed": False},
        }
    ]
    assert adapters == [
        {
            "name": "a",
            "type": "openai_compat",
            "enabled": True,
            "base_url": "http://127.0.0.1:1/v1",
            "provider": None,
            "headers": {},
            "request_timeout_ms": 0,
            "connect_timeout_ms": 5000,
            "first_byte_timeout_ms": 600000,
            "gap_timeout_ms": 300000,
            "max_connections": 1024,
            "ca_file": None,
            "tools": "auto",
            "messages": "as_is",
            "stream_upstream": "auto",
        }
    ]


@pytest.mark.parametrize(
    ("section", "shows"),
    [
        ("openai: false", {"openai": False}),
        ("metrics: false", {"metrics": None}),
        ("metrics:", {"metrics": None}),
        ("metrics: {listen: 'tcp:1'}", {"metrics": {"listen": "tcp:1"}}),
        ("bootstrap: false", {"bootstrap": None}),
        ("bootstrap: {listen: 'tcp:1'}", {"bootstrap": {"listen": "tcp:1", "advertise": None}}),
        ("control_plane: false", {"control_plane": None}),
        (
            "control_plane: {endpoint: 'tls:h:1'}",
            {"control_plane": {"endpoint": "tls:h:1", "token": None}},
        ),
        ("a2a: false", {"a2a": None}),
        ("a2a: {listen: 'tcp:1'}", {"a2a": {"listen": "tcp:1", "public_url": None, "card": {}}}),
        ("provider_pool: {max_queue: 0}", {"provider_pool": {"max_queue": 16, "queue_timeout_ms": 30000}}),
        ("provider_pool: {queue_timeout_ms: 0}", {"provider_pool": {"max_queue": 16, "queue_timeout_ms": 0}}),
        ("provider_pool:", {"provider_pool": {"max_queue": 16, "queue_timeout_ms": 30000}}),
        ("ledger: {url: none}", {"ledger": {"url": "none"}}),
        ("ledger: {url: 'sqlite:'}", {"ledger": {"url": "sqlite:/state/ledger.sqlite3"}}),
        ("ledger: {url: 'sqlite:/x'}", {"ledger": {"url": "sqlite:/x"}}),
        ("console: {listen: 'unix:/x'}", {"console": {"listen": "unix:/x"}}),
    ],
)
def test_sections(section: str, shows: dict[str, Any]) -> None:
    document = shown(f"edge: {{id: e}}\n{section}\n")
    assert {key: document[key] for key in shows} == shows
    assert config(f"edge: {{id: e}}\n{section}\n") == reload(config(f"edge: {{id: e}}\n{section}\n"))


def test_openai_off_is_none() -> None:
    assert config("edge: {id: e}\nopenai: false").openai is None


@pytest.mark.parametrize(
    ("openai", "anonymous"),
    [
        ("{}", True),
        ("{listen: 'unix:/run/o'}", True),
        ("{listen: 'tcp:1:interface=127.0.0.9'}", True),
        ("{listen: 'tcp6:1:interface=\\:\\:1'}", True),
        ("{listen: 'tcp:1', allow_anonymous: true}", True),
        ("{allow_anonymous: false}", False),
        (f"{{principal_tokens: [{{token_ref: t, principal_ref: p, token_hash_sha256: {A_HASH}}}]}}", False),
        (
            f"{{listen: 'tcp:1', principal_tokens: [{{token_ref: t, principal_ref: p, token_hash_sha256: {A_HASH}}}]}}",
            False,
        ),
        (
            (
                "{allow_anonymous: true, principal_tokens: "
                f"[{{token_ref: t, principal_ref: p, token_hash_sha256: {A_HASH}}}]}}"
            ),
            True,
        ),
    ],
)
def test_allow_anonymous(openai: str, anonymous: bool) -> None:
    surface = config(f"edge: {{id: e}}\nopenai: {openai}\n").openai
    assert surface is not None
    assert surface.allow_anonymous is anonymous


def test_hashes_are_lower_case_and_a_token_fills_its_hash() -> None:
    text = f"""
        edge: {{id: e}}
        openai: {{principal_tokens: [{{token_ref: t, principal_ref: p, token_hash_sha256: {A_HASH.upper()}}}]}}
        nodes: [{{id: n, token: x}}, {{id: o, token_hash_sha256: {A_HASH.upper()}}}]
        """
    loaded = config(text)
    assert loaded.openai is not None
    assert loaded.openai.principal_tokens[0].token_hash_sha256 == A_HASH
    assert loaded.nodes[0].token_hash_sha256 == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    assert loaded.nodes[1].token_hash_sha256 == A_HASH
    assert loaded.nodes[1].token is None


@pytest.mark.parametrize(
    ("type_", "runtime"),
    [
        *((name, "openai_compat") for name in ("openai_compat", "vllm", "llama_cpp", "sglang", "lm_studio", "openai")),
        *((name, "openai_compat") for name in ("seulgivibe_claude", "seulgivibe_openai")),
        ("ollama", "ollama"),
        ("cli", "cli"),
        ("their_thing", "their_thing"),
    ],
)
def test_runtime_types_and_labels(type_: str, runtime: str) -> None:
    settings = {"openai_compat": ', base_url: "http://h"', "cli": ", command: x"}.get(runtime, "")
    adapters = f"[{{name: i, type: {runtime}{settings}}}]"
    _, unlabelled = only(node(f"[{provider(type=type_, adapter='i')}]", adapters))
    assert (unlabelled.type, unlabelled.runtime_type, unlabelled.provider) == (type_, runtime, type_)
    _, labelled = only(node(f"[{provider(type=type_, adapter='i', provider='mine')}]", adapters))
    assert (labelled.type, labelled.provider) == (type_, "mine")


class TestAdapterReferences:
    """By exact name, then by type when there is only one."""

    TWO = "[{name: a, type: ollama}, {name: b, type: ollama}]"

    @pytest.mark.parametrize(
        ("adapters", "keys", "name"),
        [
            ("[{name: one, type: ollama}]", {"type": "ollama", "adapter": "one"}, "one"),
            ("[{name: one, type: ollama}]", {"type": "ollama", "adapter": "ollama"}, "one"),
            ("[{name: one, type: ollama}]", {"type": "ollama", "adapter": None}, "one"),
            (f"[{ADAPTER}]", {"adapter": "vllm"}, "a"),
            (f"[{ADAPTER}]", {"adapter": "sglang"}, "a"),
            (f"[{ADAPTER}]", {"adapter": "openai_compat"}, "a"),
            (TWO, {"type": "ollama", "adapter": "b"}, "b"),
            ("[{name: ollama, type: ollama}, {name: b, type: ollama}]", {"type": "ollama", "adapter": None}, "ollama"),
            (
                "[{name: a, type: ollama, enabled: false}, {name: b, type: ollama}]",
                {"type": "ollama", "adapter": "ollama"},
                "b",
            ),
            ("{ollama: {}, cli: {command: x}}", {"type": "ollama", "adapter": None}, "ollama"),
        ],
    )
    def test_found(self, adapters: str, keys: dict[str, Any], name: str) -> None:
        assert only(node(f"[{provider(**keys)}]", adapters))[1].adapter == name

    @pytest.mark.parametrize(
        ("adapters", "keys", "code"),
        [
            ("[]", {"adapter": None}, "unknown_adapter"),
            (f"[{ADAPTER}]", {"adapter": "b"}, "unknown_adapter"),
            (TWO, {"type": "ollama", "adapter": "ollama"}, "ambiguous_adapter"),
            (TWO, {"type": "ollama", "adapter": None}, "ambiguous_adapter"),
            ("[{name: a, type: ollama, enabled: false}]", {"type": "ollama"}, "unknown_adapter"),
            (
                "[{name: ollama, type: ollama, enabled: false}, {name: b, type: ollama}]",
                {"type": "ollama", "adapter": "ollama"},
                "unknown_adapter",
            ),
            ("[{name: a, type: ollama}]", {"type": "vllm"}, "conflict"),
            ("[{name: vllm, type: ollama}]", {"adapter": "vllm"}, "conflict"),
            ("[{name: b, type: ollama}]", {"adapter": "ollama"}, "conflict"),
        ],
    )
    def test_not_found(self, adapters: str, keys: dict[str, Any], code: str) -> None:
        assert faults(node(f"[{provider(**keys)}]", adapters)) == [("nodes[0].providers[0].adapter", code)]

    def test_a_disabled_provider_may_refer_to_nothing(self) -> None:
        text = node(f"[{provider(adapter='gone', enabled='false')}]")
        assert only(text)[1].adapter == "gone"
        assert only(node(f"[{provider(adapter='openai_compat', enabled='false')}]"))[1].adapter == "a"

    def test_the_line_of_a_reference_that_was_left_out(self) -> None:
        (problem,) = problems(node(f"[{provider(adapter=None)}]", "[]"))
        assert problem.line == 6


class TestInlineExecution:
    """A provider's own settings become an adapter instance of its name."""

    def test_an_instance_is_made(self) -> None:
        keys = {"adapter": None, "base_url": '"http://h:1"', "headers": "{A: b}", "request_timeout_ms": 7}
        loaded, made = only(node(f"[{provider(**keys)}]", "[]"))
        (adapter,) = loaded.adapters
        assert (made.adapter, adapter.name, adapter.type, adapter.enabled) == ("p", "p", "openai_compat", True)
        assert adapter.of_provider == "p"
        assert adapter.settings["base_url"] == "http://h:1"
        assert adapter.settings["headers"] == {"A": "b"}
        assert adapter.settings["request_timeout_ms"] == 7
        assert adapter.settings["provider"] == "vllm"
        assert adapter.settings["tools"] == "auto"

    def test_it_is_the_same_as_writing_the_instance(self) -> None:
        keys = {"adapter": None, "base_url": '"http://h:1"'}
        adapter = '[{name: p, type: openai_compat, base_url: "http://h:1", provider: vllm}]'
        assert config(node(f"[{provider(**keys)}]", "[]")) == config(node(f"[{provider(adapter='p')}]", adapter))

    def test_endpoint_is_another_name_of_base_url(self) -> None:
        loaded, _ = only(node(f"""[{provider(adapter=None, endpoint='"http://h:1"')}]""", "[]"))
        assert loaded.adapters[0].settings["base_url"] == "http://h:1"
        text = node(f"""[{provider(adapter=None, endpoint='"http://h:1"', base_url='"http://h:1"')}]""", "[]")
        assert faults(text) == [("nodes[0].providers[0].base_url", "conflict")]

    def test_a_disabled_provider_keeps_its_instance(self) -> None:
        loaded, _ = only(node(f"""[{provider(adapter=None, enabled="false", base_url='"http://h"')}]""", "[]"))
        assert [adapter.name for adapter in loaded.adapters] == ["p"]

    def test_a_drop_in_gets_what_was_written(self) -> None:
        loaded, _ = only(node(f"[{provider(type='theirs', adapter=None, endpoint='x', mode='fast')}]", "[]"))
        assert loaded.adapters[0].type == "theirs"
        assert loaded.adapters[0].settings == {"endpoint": "x", "mode": "fast"}

    @pytest.mark.parametrize(
        ("keys", "adapters", "fault"),
        [
            ({"base_url": '"http://h"'}, f"[{ADAPTER}]", ("adapter", "conflict")),
            ({"adapter": None, "base_url": '"http://h"', "id": "a"}, f"[{ADAPTER}]", ("id", "conflict")),
            ({"adapter": None, "command": "x"}, "[]", ("command", "schema")),
            ({"adapter": None, "headers": "{}"}, "[]", ("base_url", "schema")),
            ({"adapter": None, "base_url": '"http://h/v1/chat/completions"'}, "[]", ("base_url", "schema")),
            ({"adapter": None, "endpoint": '"h:1"'}, "[]", ("endpoint", "schema")),
            ({"adapter": None, "base_url": '"http://h:0"'}, "[]", ("base_url", "schema")),
            ({"adapter": None, "base_url": "5"}, "[]", ("base_url", "schema")),
            (
                {"type": "cli", "category": "cli", "adapter": None, "command": "x", "mode": "y"},
                "[]",
                ("mode", "schema"),
            ),
            ({"type": "cli", "category": "cli", "adapter": None, "args": "[x]"}, "[]", ("command", "schema")),
            ({"type": "ollama", "adapter": None, "context_size": "0"}, "[]", ("context_size", "range")),
            (
                {"adapter": None, "base_url": '"http://h"', "headers": "{Connection: x}"},
                "[]",
                ("headers.Connection", "conflict"),
            ),
        ],
    )
    def test_refused(self, keys: dict[str, Any], adapters: str, fault: tuple[str, str]) -> None:
        path, code = fault
        extra = [("nodes[0].providers[0].base_url", "schema")] if "command" in keys and "type" not in keys else []
        assert faults(node(f"[{provider(**keys)}]", adapters)) == [(f"nodes[0].providers[0].{path}", code), *extra]

    def test_seulgivibe_keeps_its_name_as_the_label(self) -> None:
        keys = {"type": "seulgivibe_claude", "category": "api", "adapter": None, "base_url": '"https://h"'}
        loaded, made = only(node(f"[{provider(**keys)}]", "[]"))
        assert (made.runtime_type, made.provider) == ("openai_compat", "seulgivibe_claude")
        assert loaded.adapters[0].settings["provider"] == "seulgivibe_claude"
        labelled, _ = only(node(f"[{provider(**keys, provider='mine')}]", "[]"))
        assert labelled.adapters[0].settings["provider"] == "mine"


def pairs(first: str, second: str, *, root: str = "", used: str = "[p, q]") -> str:
    keys = "type: ollama, category: local_inference, adapter: o, models: [m]"
    providers = f"[{{id: p, {keys}, {first}}}, {{id: q, {keys}, {second}}}]"
    return node(providers, "[{name: o, type: ollama}]", f"models: [{{id: m, providers: {used}}}]\n{root}")


class TestOlderQueuePolicy:
    @pytest.mark.parametrize(
        ("first", "second", "policy"),
        [
            ("max_queue: 40, queue_timeout_ms: 5", "max_queue: 40, queue_timeout_ms: 5", (40, 5)),
            ("max_queue: 0", "priority: 0", (16, 30000)),
            ("max_queue: 16", "queue_timeout_ms: 30000", (16, 30000)),
            ("queue_timeout_ms: 0", "queue_timeout_ms: 0", (16, 0)),
            ("max_queue: 3", "max_queue: 3, enabled: false", (3, 30000)),
        ],
    )
    def test_equal_pairs_become_the_root_policy(self, first: str, second: str, policy: tuple[int, int]) -> None:
        pool = config(pairs(first, second)).provider_pool
        assert (pool.max_queue, pool.queue_timeout_ms) == policy

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ("max_queue: 40", "priority: 0"),
            ("max_queue: 40", "max_queue: 41"),
            ("queue_timeout_ms: 0", "priority: 0"),
            ("max_queue: 3", "max_queue: 4, enabled: false"),
        ],
    )
    def test_pairs_that_differ_are_refused(self, first: str, second: str) -> None:
        (problem,) = problems(pairs(first, second))
        assert (problem.path, problem.code) == ("nodes[0].providers[1]", "queue_policy_conflict")
        assert "p" in problem.message
        assert "q" in problem.message

    def test_providers_of_no_group_do_not_count(self) -> None:
        assert config(pairs("max_queue: 40", "max_queue: 7", used="[p]")).provider_pool.max_queue == 40
        assert config(pairs("max_queue: 40", "max_queue: 7", used="[]")).provider_pool.max_queue == 16

    @pytest.mark.parametrize("root", ["provider_pool: {}", "provider_pool:", "provider_pool: {max_queue: 0}"])
    def test_the_canonical_key_silences_them(self, root: str) -> None:
        silenced = config(pairs("max_queue: 40", "queue_timeout_ms: 1", root=root))
        assert silenced == config(pairs("priority: 0", "priority: 0", root=root))

    def test_they_are_gone_from_the_effective_document(self) -> None:
        (shown_node,) = shown(pairs("max_queue: 4", "max_queue: 4"))["nodes"]
        assert all("max_queue" not in each for each in shown_node["providers"])

    def test_a_refused_value_or_key_starts_no_conflict(self) -> None:
        assert faults(pairs("max_queue: -1", "max_queue: 4")) == [("nodes[0].providers[0].max_queue", "range")]
        assert faults(pairs("max_queue: 3", "max_queue: 4", root="provider_pol: {}")) == [("provider_pol", "schema")]


class TestModelGroups:
    @pytest.mark.parametrize(
        ("entry", "models", "target"),
        [
            ("p", "[m, x]", "m"),
            ("p", "[x]", "x"),
            ("{id: p}", "[x]", "x"),
            ("{id: p, target: x}", "[m, x]", "x"),
            ("{id: p, target: x, node_id: n}", "[x]", "x"),
        ],
    )
    def test_targets(self, entry: str, models: str, target: str) -> None:
        loaded = config(node(f"[{provider(models=models)}]", rest=f"models: [{{id: m, providers: [{entry}]}}]"))
        (member,) = loaded.models[0].providers
        assert (member.id, member.node_id, member.target) == ("p", "n", target)

    @pytest.mark.parametrize(
        ("entry", "models", "fault"),
        [
            ("gone", "[m]", ("models[0].providers[0]", "unknown_reference")),
            ("{id: gone}", "[m]", ("models[0].providers[0].id", "unknown_reference")),
            ("p", "[x, y]", ("models[0].providers[0]", "unknown_reference")),
            ("p", "[]", ("models[0].providers[0]", "unknown_reference")),
            ("{id: p, target: z}", "[m, x]", ("models[0].providers[0].target", "unknown_reference")),
            ("{id: p, target: z}", "[x]", ("models[0].providers[0].target", "unknown_reference")),
            ("{id: p, node_id: o}", "[m]", ("models[0].providers[0].node_id", "conflict")),
            ("m", "[m]", ("models[0].providers[0]", "unknown_reference")),
        ],
    )
    def test_references_that_lead_nowhere(self, entry: str, models: str, fault: tuple[str, str]) -> None:
        text = node(f"[{provider(models=models)}]", rest=f"models: [{{id: m, providers: [{entry}]}}]")
        assert faults(text) == [fault]

    def test_a_group_may_mix_kinds(self) -> None:
        adapters = f"[{ADAPTER}, {{name: o, type: ollama}}]"
        providers = f"[{provider()}, {provider(id='q', type='ollama', adapter='o')}]"
        loaded = config(node(providers, adapters, "models: [{id: m, providers: [q, p]}]"))
        assert [member.id for member in loaded.models[0].providers] == ["q", "p"]

    @pytest.mark.parametrize("key", ["context_window_tokens", "default_max_tokens", "min_max_tokens"])
    def test_zero_is_unset(self, key: str) -> None:
        assert getattr(config(f"edge: {{id: e}}\nmodels: [{{id: m, {key}: 0}}]").models[0], key) is None
        assert getattr(config(f"edge: {{id: e}}\nmodels: [{{id: m, {key}: 5}}]").models[0], key) == 5

    def test_a_thinking_budget_of_zero_is_one(self) -> None:
        text = "edge: {id: e}\nmodels: [{id: m, default_thinking_token_budget: 0}]"
        assert config(text).models[0].default_thinking_token_budget == 0


class TestRoutes:
    NODES = (
        "nodes: [{id: n, token: x, adapters: [{name: a, type: ollama}, {name: off, type: ollama, enabled: false}]},"
        " {id: o, token: y, adapters: [{name: c, type: ollama}, {name: d, type: ollama}, {name: e, type: cli, "
        "command: x}]}]"
    )

    def text(self, keys: str) -> str:
        return f"edge: {{id: e}}\nopenai: {{model_routes: [{{model: m, target: t, {keys}}}]}}\n{self.NODES}\n"

    @pytest.mark.parametrize(
        ("keys", "name"),
        [
            ("adapter: a", "a"),
            ("adapter: a, node: n", "a"),
            ("adapter: ollama, node: n", "a"),
            ("adapter: ollama", "a"),
            ("adapter: cli", "e"),
            ("adapter: d, node: o", "d"),
        ],
    )
    def test_found(self, keys: str, name: str) -> None:
        surface = config(self.text(keys)).openai
        assert surface is not None
        assert surface.model_routes[0].adapter == name

    @pytest.mark.parametrize(
        ("keys", "fault"),
        [
            ("adapter: a, node: o", ("adapter", "unknown_adapter")),
            ("adapter: off", ("adapter", "unknown_adapter")),
            ("adapter: gone", ("adapter", "unknown_adapter")),
            ("adapter: ollama, node: o", ("adapter", "ambiguous_adapter")),
            ("adapter: a, node: gone", ("node", "unknown_reference")),
        ],
    )
    def test_not_found(self, keys: str, fault: tuple[str, str]) -> None:
        assert faults(self.text(keys)) == [(f"openai.model_routes[0].{fault[0]}", fault[1])]


RICH = node(
    f"[{provider(adapter='openai_compat', capacity=4, long_context_capacity=1)}]",
    "{openai_compat: {base_url: 'http://h'}, cli: {command: x, args: [b, a], env: {A: b}}}",
    "models: [{id: m, providers: [p], context_window_tokens: 10}, {id: k, providers: [{id: p, target: m}]}]",
)


def test_normalizing_twice_is_normalizing_once() -> None:
    loaded = config(RICH)
    assert reload(loaded) == loaded
    assert effective(reload(loaded)) == effective(loaded)
    assert revision(reload(loaded)) == revision(loaded)


def test_derived_keys_are_accepted_when_they_agree() -> None:
    assert config(node(f"[{provider(runtime_type='openai_compat')}]")) == config(node(f"[{provider()}]"))
    assert faults(node(f"[{provider(runtime_type='ollama')}]")) == [("nodes[0].providers[0].runtime_type", "conflict")]


def test_a_revision_knows_order_that_matters_from_order_that_does_not() -> None:
    base = effective(config(RICH))

    def changed(change: Any) -> str:
        document = copy.deepcopy(base)
        change(document)
        return revision(load_document(document, state_dir=STATE).config)

    before = revision(config(RICH))
    assert changed(lambda d: d["models"].reverse()) == before
    assert changed(lambda d: d["nodes"][0]["adapters"].reverse()) == before
    assert changed(lambda d: d["nodes"][0]["adapters"][1]["args"].reverse()) != before
    assert changed(lambda d: d["nodes"][0]["providers"][0].update(capacity=5)) != before
    assert changed(lambda d: d["nodes"][0].update(token="other")) != before
    hashed = canonical(config(RICH))["nodes"][0]["token_hash_sha256"]
    assert changed(lambda d: d["nodes"][0].update(token=None, token_hash_sha256=hashed)) == before


def test_a_configuration_cannot_be_changed() -> None:
    loaded = config(RICH)
    (settings,) = [adapter.settings for adapter in loaded.nodes[0].adapters if adapter.name == "cli"]
    with pytest.raises(AttributeError):
        loaded.listen = "x"  # type: ignore[misc]
    with pytest.raises(TypeError):
        settings["env"]["A"] = "c"
    with pytest.raises(TypeError):
        settings.update(args=[])  # type: ignore[attr-defined]
    assert isinstance(copy.deepcopy(settings), FrozenMap)
    assert settings["args"] == ("b", "a")


def test_load_document_takes_what_a_program_made() -> None:
    made = load_document({"edge": {"id": "e"}, "models": ({"id": "m", "providers": ()},)}, state_dir=STATE)
    assert isinstance(made.config, EdgeConfig)
    assert made.config.models[0].id == "m"


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"STATE_DIRECTORY": "/var/lib/iop:/other", "HOME": "/h"}, "/var/lib/iop"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/iop/edge"),
        ({"XDG_STATE_HOME": "x", "HOME": "/h"}, "/h/.local/state/iop/edge"),
        ({"HOME": "/h"}, "/h/.local/state/iop/edge"),
        ({}, "/var/lib/iop/edge"),
    ],
)
def test_the_state_directory(environ: dict[str, str], place: str) -> None:
    assert default_state_dir(environ) == Path(place)
