"""Every rule that one or several settings can break, and a value that just keeps it. docs/contracts/config.md."""

# ruff: noqa: E501 - a row of a table is a line

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from config_texts import ADAPTER, config, faults, node, problems, provider, warnings

H = {digit: digit * 64 for digit in "123"}
EMPTY = hashlib.sha256(b"").hexdigest()


def root(text: str) -> str:
    return f"edge: {{id: e}}\n{text}\n"


GOOD_AND_BAD: list[tuple[str, list[str], list[str], str, str]] = [
    # file with %s, values that are right, values that are wrong, path, code
    ("edge: {id: %s}", ["a", "A.b_c:d/e-9", "'9'", "x" * 128], ["''", "-a", "'a b'", "x" * 129, "ä", '"a\\n"'], "edge.id", "schema"),
    ("edge: {id: e, name: %s}", ["x", "'Lab 1 – café'", "x" * 200], ["''", "' '", '"a\\tb"', "x" * 201, "5"], "edge.name", "schema"),
    (root("heartbeat_ms: %s"), ["1", "2147483647"], ["0", "-1", "2147483648"], "heartbeat_ms", "range"),
    (root("heartbeat_ms: %s"), ["10"], ["3.0", "true", "'10'", "1e3", "0600", "[1]"], "heartbeat_ms", "schema"),
    (root("drain_timeout_ms: %s"), ["0"], ["-1"], "drain_timeout_ms", "range"),
    (root("long_context_threshold_tokens: %s"), ["1"], ["0", "-1"], "long_context_threshold_tokens", "range"),
    (root("provider_pool: {max_queue: %s}"), ["0", "1"], ["-1"], "provider_pool.max_queue", "range"),
    (root("provider_pool: {queue_timeout_ms: %s}"), ["0"], ["-1"], "provider_pool.queue_timeout_ms", "range"),
    (root("logging: {level: %s}"), ["debug", "critical"], ["trace", "5"], "logging.level", "schema"),
    (root("logging: {format: %s}"), ["json"], ["xml"], "logging.format", "schema"),
    (root("logging: %s"), ["{}"], ["false", "[]"], "logging", "schema"),
    (root("metrics: %s"), ["false", "{listen: 'tcp:1'}"], ["true", "'tcp:1'"], "metrics", "schema"),
    (root("metrics: %s"), ["{listen: 'tcp:1'}"], ["{}", "{listen: }"], "metrics.listen", "schema"),
    (root("listen: %s"), ["'tcp:1'", "'unix:/x'"], ["'tcp'", "'http://h:1'", "''"], "listen", "endpoint"),
    (root("metrics: {listen: %s}"), ["'tcp:1'"], ["'1'"], "metrics.listen", "endpoint"),
    (root("bootstrap: {listen: %s}"), ["'tcp:1'"], ["'1'"], "bootstrap.listen", "endpoint"),
    (root("bootstrap: {listen: 'tcp:1', advertise: %s}"), ["'tls:h:1'"], ["'ssl:h:1'", "h"], "bootstrap.advertise", "endpoint"),
    (root("a2a: {listen: %s}"), ["'tcp:1'"], ["'1'"], "a2a.listen", "endpoint"),
    (root("a2a: {listen: 'tcp:1', public_url: %s}"), ["'https://h/x'"], ["h", "'ftp://h'", "'http://u@h'"], "a2a.public_url", "schema"),
    (root("control_plane: {endpoint: %s}"), ["'tls:h:1'", "'tcp:h:1'"], ["'ssl:h:1'", "'tcp:1'"], "control_plane.endpoint", "endpoint"),
    (root("control_plane: {endpoint: 'tls:h:1', token: %s}"), ["x"], ["''"], "control_plane.token", "schema"),
    (root("console: {listen: %s}"), ["'unix:/x'"], ["'tcp:1'", "'systemd:domain=UNIX:index=0'"], "console.listen", "endpoint"),
    (root("ledger: {url: %s}"), ["none", "'sqlite:/x y'", "'postgresql://u:p@h/d'"], ["'mysql://h'", "''", "nonee"], "ledger.url", "schema"),
    (root("openai: {listen: %s}"), ["'unix:/x'"], ["'1'"], "openai.listen", "endpoint"),
    (root("openai: {listen: %s}"), ["'tcp:1:interface=127.0.0.1'", "'systemd:domain=UNIX:index=0'"], ["'tcp:1'", "'tcp:1:interface=10.0.0.1'", "'systemd:domain=INET:index=0'"], "openai.listen", "open_surface"),
    (root("openai: {listen: 'tcp:1', allow_anonymous: %s}"), ["true"], ["false"], "openai.listen", "open_surface"),
    (root("openai: {max_body_bytes: %s}"), ["1"], ["0"], "openai.max_body_bytes", "range"),
    (root("openai: {stall_timeout_ms: %s}"), ["1"], ["0"], "openai.stall_timeout_ms", "range"),
    (root("openai: {allow_anonymous: %s}"), ["true"], ["yes", "1"], "openai.allow_anonymous", "schema"),
    (root("openai: {allowed_origins: [%s]}"), ["'https://h'", "'chrome-extension://abc'"], ["h", "'https://h/'", "'*'", "5"], "openai.allowed_origins[0]", "schema"),
    (root("openai: {allowed_hosts: [%s]}"), ["h", "'h:1'"], ["'http://h'", "'a b'", "''"], "openai.allowed_hosts[0]", "schema"),
    (root("openai: {provider_auth: {enabled: true, from_header: %s}}"), ["X-Key"], ["authorization", "X-API-KEY", "Connection", "Host"], "openai.provider_auth.from_header", "conflict"),
    (root("openai: {provider_auth: {enabled: true, target_header: %s}}"), ["x-api-key"], ["Host", "TE", "Content-Length", "transfer-encoding", "Upgrade"], "openai.provider_auth.target_header", "conflict"),
    (root("openai: {provider_auth: {from_header: %s}}"), ["a"], ["'a b'", "''", '"a\\n"', "'a:'"], "openai.provider_auth.from_header", "schema"),
    (root("openai: {provider_auth: {scheme: %s}}"), ["''", "Token"], ["'a b'"], "openai.provider_auth.scheme", "schema"),
    (root("models: [{id: m, display_name: %s}]"), ["'A B'"], ["''"], "models[0].display_name", "schema"),
    (root("models: [{id: m, context_window_tokens: %s}]"), ["0"], ["-1"], "models[0].context_window_tokens", "range"),
    (root("models: [{id: m, default_max_tokens: 10, min_max_tokens: %s}]"), ["10", "0"], ["11"], "models[0].min_max_tokens", "range"),
    (root("models: [{id: m, context_window_tokens: 10, default_max_tokens: %s}]"), ["10"], ["11"], "models[0].default_max_tokens", "range"),
    (root("models: [{id: m, context_window_tokens: 10, min_max_tokens: %s}]"), ["10"], ["11"], "models[0].min_max_tokens", "range"),
    (root("models: [{id: m, default_thinking_token_budget: %s}]"), ["0"], ["-1"], "models[0].default_thinking_token_budget", "range"),
    (root("models: [{id: m}, {id: %s}]"), ["n"], ["m"], "models[1].id", "duplicate_id"),
    (root("nodes: [{id: n, token: %s}]"), ["x"], ["''", "5"], "nodes[0].token", "schema"),
    (root("nodes: [{id: n, token_hash_sha256: %s}]"), [f"'{H['1']}'", "a" * 64], ["abc", "g" * 64, "1" * 63, "''", EMPTY], "nodes[0].token_hash_sha256", "schema"),
    (root("nodes: [{id: n, %s}]"), ["token: x", f"token_hash_sha256: {'a' * 64}"], ["alias: x", f"token: x, token_hash_sha256: {'a' * 64}", "token: null"], "nodes[0].token", "conflict"),
    (root("nodes: [{id: n, token: x}, {id: o, token: %s}]"), ["y"], ["x"], "nodes[1].token", "duplicate_id"),
    (root("nodes: [{id: n, token: x, alias: a}, {id: o, token: y, alias: %s}]"), ["n", "b"], ["a"], "nodes[1].alias", "duplicate_id"),
    (root("nodes: [{id: n, token: x, alias: %s}, {id: o, token: y}]"), ["n", "p"], ["o"], "nodes[0].alias", "duplicate_id"),
    (root("nodes: [{id: n, token: x, runtime: {concurrency: %s}}]"), ["0", "null"], ["-1"], "nodes[0].runtime.concurrency", "range"),
    (root("nodes: [{id: n, token: x, agent_kind: %s}]"), ["coder"], ["''"], "nodes[0].agent_kind", "schema"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "right", "wrong", "path", "code"), GOOD_AND_BAD)
def test_one_setting(text: str, right: list[str], wrong: list[str], path: str, code: str) -> None:
    for value in right:
        assert faults(text % value) == [], value
    for value in wrong:
        assert faults(text % value) == [(path, code)], value


PROVIDERS: list[tuple[dict[str, Any], list[Any], list[Any], str, str]] = [
    ({}, ["'q/x'"], ["''", "5"], "id", "schema"),
    ({}, ["api"], ["gpu", "''"], "category", "schema"),
    ({}, ["1", "2147483647"], ["0", "-1"], "capacity", "range"),
    ({"capacity": 2}, ["0", "2"], ["3", "-1"], "long_context_capacity", "range"),
    ({}, ["0", "9007199254740991"], ["-1"], "total_context_tokens", "range"),
    ({}, ["0"], ["-1"], "priority", "range"),
    ({}, ["true", "false"], ["on", "1"], "enabled", "schema"),
    ({}, ["Label"], ["''"], "provider", "schema"),
    ({}, ["{managed: true}"], ["true", "[]"], "lifecycle", "schema"),
    ({"provider_pool": None}, ["0"], ["-1"], "max_queue", "range"),
    ({}, ["0"], ["-1"], "queue_timeout_ms", "range"),
]


@pytest.mark.parametrize(("keys", "right", "wrong", "key", "code"), PROVIDERS)
def test_one_setting_of_a_provider(
    keys: dict[str, Any], right: list[Any], wrong: list[Any], key: str, code: str
) -> None:
    for value in right:
        assert faults(node(f"[{provider(**{**keys, key: value})}]")) == [], value
    for value in wrong:
        assert faults(node(f"[{provider(**{**keys, key: value})}]")) == [(f"nodes[0].providers[0].{key}", code)], value


def test_health() -> None:
    (loaded,) = config(node(f"[{provider(health='{interval_ms: 0, path: /health, timeout_ms: 1}')}]")).nodes
    assert loaded.providers[0].health.path == "/health"
    path = "nodes[0].providers[0].health"
    for wrong in ("/\u00fc", "/a b", "/a#b", '"/\\0"', '"/\\x01"', '"/a\\n"'):
        assert faults(node(f"[{provider(health=f'{{path: {wrong}}}')}]")), wrong
    assert faults(node(f"[{provider(health='{path: health, timeout_ms: 0}')}]")) == [
        (f"{path}.path", "schema"),
        (f"{path}.timeout_ms", "range"),
    ]


SETTINGS: list[tuple[str, str, list[str], list[str], str]] = [
    ("openai_compat", "base_url: 'http://h', request_timeout_ms: %s", ["0"], ["-1"], "request_timeout_ms"),
    ("openai_compat", "base_url: 'http://h', max_connections: %s", ["1"], ["0"], "max_connections"),
    ("openai_compat", "base_url: 'http://h', tools: %s", ["auto", "native", "text", "'off'", "off"], ["x", "false"], "tools"),
    ("openai_compat", "base_url: 'http://h', messages: %s", ["as_is", "plain"], ["x"], "messages"),
    ("openai_compat", "base_url: 'http://h', stream_upstream: %s", ["auto", "always", "never"], ["x"], "stream_upstream"),
    ("openai_compat", "base_url: 'http://h', headers: %s", ["{}", "{X-A: b}"], ["[]", "x"], "headers"),
    ("openai_compat", "base_url: 'http://h', headers: {A: %s}", ["''", "'b c'"], ["5", '"a\\nb"', '"a\\n"', '"a\\0"'], "headers.A"),
    ("openai_compat", "base_url: 'http://h', headers: {'a b': %s}", [], ["x"], "headers['a b']"),
    ("openai_compat", "base_url: 'http://h', ca_file: %s", ["/x", "null"], ["''"], "ca_file"),
    ("openai_compat", "base_url: 'http://h', verify: %s", [], ["false"], "verify"),
    ("ollama", "context_size: %s", ["1", "{x: 5}", "null"], ["0", "'5'", "true"], "context_size"),
    ("ollama", "context_size: {x: %s}", ["1"], ["0", "y"], "context_size.x"),
    ("ollama", "keep_alive: %s", ["10m", "-1", "0"], ["''", "[1]"], "keep_alive"),
    ("ollama", "tools: %s", [], ["auto"], "tools"),
    ("cli", "command: %s", ["x"], ["''", "[x]", '"a\\0"'], "command"),
    ("cli", "command: x, args: [%s]", ["'-a'", "''"], ["5", "null"], "args[0]"),
    ("cli", "command: x, mode: %s", ["oneshot", "session"], ["x"], "mode"),
    ("cli", "command: x, output_format: %s", ["text", "claude_stream_json", "jsonl"], ["xml"], "output_format"),
    ("cli", "command: x, env: {A: %s}", ["b"], ["5"], "env.A"),
    ("cli", "command: x, env: {'A-B': %s}", [], ["b"], "env.A-B"),
    ("cli", "command: x, grace_ms: %s", ["0"], ["-1"], "grace_ms"),
    ("cli", "command: x, fields: {text: %s}", ["a.b"], ["''"], "fields.text"),
    ("theirs", "anything: %s", ["{deep: [1, null]}", "5", "null"], [], ""),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "settings", "right", "wrong", "path"), SETTINGS)
def test_adapter_settings(kind: str, settings: str, right: list[str], wrong: list[str], path: str) -> None:
    for value in right:
        assert faults(node("[]", f"[{{name: a, type: {kind}, {settings % value}}}]")) == [], value
    for value in wrong:
        found = [where for where, _ in faults(node("[]", f"[{{name: a, type: {kind}, {settings % value}}}]"))]
        assert found == [f"nodes[0].adapters[0].{path}"], value


@pytest.mark.parametrize(
    "url",
    [
        "http://b:1",
        "http://b:1/",
        "http://b:1/v1",
        "http://b:1/v1/",
        "http://b:1/api/v1",
        "http://b:1/av1",
        "https://u:p@b/x",
        "http://[::1]:8000",
        "http://my_host",
        "http://b/models/v1",
        "http://b/completions-proxy",
    ],
)
def test_base_urls_that_are_taken_as_they_are(url: str) -> None:
    (loaded,) = config(node("[]", f'[{{name: a, type: openai_compat, base_url: "{url}"}}]')).nodes
    assert loaded.adapters[0].settings["base_url"] == url


@pytest.mark.parametrize(
    "url",
    [
        "http://b:1/v1/chat/completions",
        "http://b:1/v1/chat/completions/",
        "http://b:1/v1/embeddings",
        "http://b:1/v1/models",
        "http://b:1/v1/completions",
        "http://b:1/v1/responses",
        "http://b:1/v1/messages",
        "http://b:1/v1?x=1",
        "http://b:1/v1#x",
        "b:1",
        "ftp://b",
        "http://",
        "http:///v1",
        "http://b:99999",
        "http://b:0",
        "http://a b",
        "http://b/ v1",
        "http://b\\n",
        "HTTP//b",
        "http://b:x",
        "http://[:::::1",
        "http://b/api/chat",
    ],
)
def test_base_urls_that_are_refused(url: str) -> None:
    (problem,) = problems(node("[]", f'[{{name: a, type: openai_compat, base_url: "{url}"}}]'))
    assert (problem.path, problem.code) == ("nodes[0].adapters[0].base_url", "schema")
    assert "b:1" not in problem.message


@pytest.mark.parametrize("kind", ["openai_compat", "cli"])
def test_required_settings(kind: str) -> None:
    key = {"openai_compat": "base_url", "cli": "command"}[kind]
    assert faults(node("[]", f"[{{name: a, type: {kind}}}]")) == [(f"nodes[0].adapters[0].{key}", "schema")]
    assert faults(node("[]", f"[{{name: a, type: {kind}, enabled: false}}]")) == [
        (f"nodes[0].adapters[0].{key}", "schema")
    ]


@pytest.mark.parametrize("headers", ["{Connection: x}", "{content-length: '5'}", "{A: x, a: y}"])
def test_headers_that_cannot_be_configured(headers: str) -> None:
    text = node("[]", f"[{{name: a, type: openai_compat, base_url: 'http://h', headers: {headers}}}]")
    assert [code for _, code in faults(text)] == ["conflict"]


class TestPrincipals:
    def text(self, *tokens: tuple[str, str]) -> str:
        entries = [f"{{token_ref: {ref}, token_hash_sha256: '{digest}', principal_ref: p}}" for ref, digest in tokens]
        return root(f"openai: {{principal_tokens: [{', '.join(entries)}]}}")

    def test_several_may_share_a_principal(self) -> None:
        assert faults(self.text(("a", H["1"]), ("b", H["2"]))) == []

    def test_references_and_hashes_are_unique(self) -> None:
        text = self.text(("a", "A" * 64), ("a", H["1"]), ("b", "a" * 64))
        assert faults(text) == [
            ("openai.principal_tokens[1].token_ref", "duplicate_id"),
            ("openai.principal_tokens[2].token_hash_sha256", "duplicate_id"),
        ]

    def test_the_hash_of_nothing_proves_nothing(self) -> None:
        assert faults(self.text(("a", EMPTY.upper()))) == [("openai.principal_tokens[0].token_hash_sha256", "schema")]

    @pytest.mark.parametrize("key", ["token_ref", "token_hash_sha256", "principal_ref"])
    def test_required(self, key: str) -> None:
        entry = {"token_ref": "a", "token_hash_sha256": f"'{H['1']}'", "principal_ref": "p"}
        del entry[key]
        text = root(f"openai: {{principal_tokens: [{{{', '.join(f'{k}: {v}' for k, v in entry.items())}}}]}}")
        (problem,) = problems(text)
        assert (problem.path, problem.code, problem.line) == (f"openai.principal_tokens[0].{key}", "schema", 2)

    @pytest.mark.parametrize(
        "key", ["token", "api_key", "apiKey", "secret", "raw_token", "shared_secret", "password", "bearer_token"]
    )
    def test_a_raw_secret_has_no_place(self, key: str) -> None:
        token = f"openai: {{principal_tokens: [{{token_ref: a, token_hash_sha256: '{H['1']}', principal_ref: p, {key}: sesame}}]}}"
        (problem,) = problems(root(token))
        assert (problem.path, problem.code) == (f"openai.principal_tokens[0].{key}", "secret_inline")
        assert "sesame" not in str(problem)
        assert faults(root(f"openai: {{provider_auth: {{{key}: sesame}}}}")) == [
            (f"openai.provider_auth.{key}", "secret_inline")
        ]

    def test_a_misspelled_key_is_no_secret(self) -> None:
        text = root(f"openai: {{principal_tokens: [{{token_ref: a, token_hash: '{H['1']}', principal_ref: p}}]}}")
        (problem,) = problems(text)
        assert problem.code == "schema"
        assert "token_hash_sha256" in problem.message


def test_the_same_secret_at_two_nodes_in_either_spelling() -> None:
    digest = hashlib.sha256(b"x").hexdigest().upper()
    text = root(f"nodes: [{{id: n, token: x}}, {{id: o, token_hash_sha256: {digest}}}]")
    assert faults(text) == [("nodes[1].token_hash_sha256", "duplicate_id")]


def test_provider_ids_are_unique_over_all_nodes() -> None:
    one = node(f"[{provider()}, {provider(id='q')}]")
    two = f"  - id: o\n    token: y\n    adapters: [{ADAPTER}]\n    providers: [{provider()}]\n"
    (problem,) = problems(one + two)
    assert (problem.path, problem.code, problem.line) == ("nodes[1].providers[0].id", "duplicate_id", 10)


def test_a_route_and_a_model_of_one_name() -> None:
    rest = "openai: {model_routes: [{model: m, adapter: a, target: t}]}\nmodels: [{id: m}]\n"
    assert faults(node(rest=rest)) == [("openai.model_routes[0].model", "conflict")]


def test_a_group_names_each_provider_once() -> None:
    text = node(f"[{provider()}]", rest="models: [{id: m, providers: [p, {id: p, target: m}]}]")
    assert [code for _, code in faults(text)] == ["duplicate_id"]


class TestCategoryCli:
    @pytest.mark.parametrize(
        ("keys", "adapters", "wrong"),
        [
            ({"type": "cli"}, "[{name: a, type: cli, command: x}]", []),
            ({"type": "vllm"}, f"[{ADAPTER}]", [("category", "conflict")]),
            ({"type": "theirs"}, "[{name: a, type: theirs}]", [("category", "conflict")]),
            ({"type": "cli"}, "[{name: a, type: cli, command: x, enabled: false}]", [("adapter", "unknown_adapter")]),
            ({"type": "cli", "enabled": "false"}, "[]", []),
        ],
    )
    def test_it_needs_a_cli_adapter(self, keys: dict[str, Any], adapters: str, wrong: list[tuple[str, str]]) -> None:
        found = faults(node(f"[{provider(category='cli', **keys)}]", adapters))
        assert found == [(f"nodes[0].providers[0].{key}", code) for key, code in wrong]


class TestContextBudget:
    def text(self, total: int, long: int, *windows: int, enabled: str = "true") -> str:
        keys = {"capacity": 9, "long_context_capacity": long, "total_context_tokens": total, "enabled": enabled}
        groups = [f"{{id: m{n}, providers: [p], context_window_tokens: {window}}}" for n, window in enumerate(windows)]
        return node(f"[{provider(**keys)}]", rest=f"models: [{', '.join(groups)}]")

    @pytest.mark.parametrize(
        ("total", "long", "windows"),
        [(20, 2, (10,)), (20, 2, (10, 5)), (1, 0, (10,)), (0, 2, (10,)), (5, 2, (0,)), (5, 2, ())],
    )
    def test_kept(self, total: int, long: int, windows: tuple[int, ...]) -> None:
        assert faults(self.text(total, long, *windows)) == []

    @pytest.mark.parametrize(("total", "long", "windows"), [(19, 2, (10,)), (19, 2, (5, 10)), (19, 2, (10, 5))])
    def test_broken(self, total: int, long: int, windows: tuple[int, ...]) -> None:
        expected = [("nodes[0].providers[0].total_context_tokens", "context_budget")]
        assert faults(self.text(total, long, *windows)) == expected
        assert faults(self.text(total, long, *windows, enabled="false")) == expected


def test_a_payload_fits_one_frame() -> None:
    def text(count: int) -> str:
        return node(f"[{provider(models='[' + ', '.join(f'm{n:0500}' for n in range(count)) + ']')}]")

    assert faults(text(1900)) == []
    assert faults(text(2100)) == [("nodes[0]", "payload_too_large")]


class TestUnknownKeys:
    @pytest.mark.parametrize(
        ("text", "path", "suggestion"),
        [
            (root("provider_pol: {}"), "provider_pol", "provider_pool"),
            (root("opanai: {}"), "opanai", "openai"),
            (node(f"[{provider(capasity=3)}]"), "nodes[0].providers[0].capasity", "capacity"),
            (node("[]", "[{name: a, type: ollama, bas_url: x}]"), "nodes[0].adapters[0].bas_url", "base_url"),
            (root("models: [{id: m, provider: [x]}]"), "models[0].provider", "providers"),
        ],
    )
    def test_the_nearest_is_suggested(self, text: str, path: str, suggestion: str) -> None:
        (problem,) = problems(text)
        assert (problem.path, problem.code) == (path, "schema")
        assert f"`{suggestion}`" in problem.message

    def test_one_that_is_like_nothing(self) -> None:
        (problem,) = problems(root("zzz: 1"))
        assert "known here" in problem.message

    def test_the_misspelled_key_is_not_missed(self) -> None:
        assert faults("edge: {idd: e}") == [("edge.idd", "schema")]
        assert faults(root("nodes: [{id: n, tokn: x}]")) == [("nodes[0].tokn", "schema")]
        text = node(f"[{provider()}]", rest="models: [{id: m, providers: [p]}]").replace(
            "providers: [{", "provders: [{"
        )
        assert faults(text) == [("nodes[0].provders", "schema")]


class TestEverythingAtOnce:
    def test_errors_of_all_stages(self) -> None:
        text = """
            edge: {id: "-"}
            listen: "http:1"
            listen: "tcp:1"
            heartbeat_ms: 0
            nodes:
              - id: n
                token: "${env:GONE}"
                adapters: [{name: a, type: ollama}]
                providers:
                  - {id: p, type: ollama, category: gpu, adapter: b, models: [m], capacity: 0}
            models:
              - {id: m, providers: [p, gone]}
            """
        assert [(problem.path, problem.code, problem.line) for problem in problems(text)] == [
            ("edge.id", "schema", 2),
            ("listen", "endpoint", 3),
            ("listen", "duplicate_key", 4),
            ("heartbeat_ms", "range", 5),
            ("nodes[0].token", "secret_missing", 8),
            ("nodes[0].providers[0].category", "schema", 11),
            ("nodes[0].providers[0].capacity", "range", 11),
            ("nodes[0].providers[0].adapter", "unknown_adapter", 11),
            ("models[0].providers[1]", "unknown_reference", 13),
        ]

    @pytest.mark.parametrize(
        ("text", "path"),
        [
            (node(f"[{provider(capacity=0, long_context_capacity=5)}]"), "nodes[0].providers[0].capacity"),
            (node(f"[{provider(id=5)}]", rest="models: [{id: m, providers: [p]}]"), "nodes[0].providers[0].id"),
            (node(f"[{provider()}]", "[{name: '', type: ollama}]"), "nodes[0].adapters[0].name"),
            (node(f"[{provider()}]", "[5]"), "nodes[0].adapters[0]"),
            (node(f"[{provider()}]", "5"), "nodes[0].adapters"),
            (node(f"[{provider(type=5)}]"), "nodes[0].providers[0].type"),
            (
                node(f"[{provider(models='5')}]", rest="models: [{id: k, providers: [p]}]"),
                "nodes[0].providers[0].models",
            ),
            (node("5", rest="models: [{id: m, providers: [p]}]"), "nodes[0].providers"),
            (root("nodes: 5\nmodels: [{id: m, providers: [p]}]"), "nodes"),
            (root("openai: {listen: 5, principal_tokens: 5}"), "openai.principal_tokens"),
            (
                root("models: [{id: m, context_window_tokens: -1, default_max_tokens: 5}]"),
                "models[0].context_window_tokens",
            ),
            (root("models: [5]"), "models[0]"),
            (root("models: {}"), "models"),
            ("edge: 5", "edge"),
            ("{}", "edge"),
        ],
    )
    def test_a_refused_value_has_no_follow_on_errors(self, text: str, path: str) -> None:
        found = [where for where, _ in faults(text)]
        assert path in found
        assert set(found) <= {path, "openai.listen"}

    def test_a_missing_key_stands_at_its_parents_line(self) -> None:
        (problem,) = problems("edge: {id: e}\nnodes:\n\n  - token: x\n")
        assert (problem.path, problem.line, problem.file) == ("nodes[0].id", 4, "a.yaml")
        (problem,) = problems("\n\nlisten: 'tcp:1'\n")
        assert (problem.path, problem.line) == ("edge", 1)


class TestWarnings:
    def test_what_nobody_uses(self) -> None:
        adapters = "[{name: a, type: ollama}, {name: b, type: ollama}, {name: c, type: ollama, enabled: false}]"
        keys = {"type": "ollama", "adapter": "a"}
        providers = f"[{provider(**keys)}, {provider(**keys, id='q')}, {provider(**keys, id='r', enabled='false')}]"
        text = node(providers, adapters, "models: [{id: m, providers: [p]}]")
        assert sorted(warnings(text)) == [
            ("nodes[0].adapters[1]", "unused_adapter"),
            ("nodes[0].providers[1]", "unused_provider"),
            ("nodes[0].token", "literal_secret"),
        ]

    def test_a_route_uses_its_adapter(self) -> None:
        text = node(rest="openai: {model_routes: [{model: k, adapter: openai_compat, target: t, node: n}]}")
        assert [code for _, code in warnings(text)] == ["literal_secret"]

    def test_they_come_with_the_errors_too(self) -> None:
        assert [p.code for p in problems(node("[]", "[]", "heartbeat_ms: 0"))] == ["range"]
