"""A configuration in which everything is set, and for each of its settings a change that touches nothing else.

Paths are written as a refresh prints them, and lead into the document as well.
"""

from __future__ import annotations

import copy
import functools
import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from iop.edge.config import Loaded, load_document, schema
from iop.edge.config.model import EdgeConfig
from iop.edge.config.model_nodes import INLINE
from iop.edge.config.setting import fields
from iop.edge.refresh import RefreshResult, plan
from iop.settings import SETTINGS

STATE = Path("/state")
HASHES = {letter: letter * 64 for letter in "abcdef0123456789"}

BASE: dict[str, Any] = yaml.safe_load(
    """
edge: {id: e, name: Lab}
listen: "tcp:4610:interface=127.0.0.1"
heartbeat_ms: 10000
drain_timeout_ms: 30000
bootstrap: {listen: "tcp:4611", advertise: "tls:edge.example:4610"}
logging: {level: info, format: text}
metrics: {listen: "tcp:4690"}
console: {listen: "unix:/run/a.sock"}
control_plane: {endpoint: "tls:fleet.example:4620", token: marker-cp}
ledger: {url: "postgresql://marker-user:marker-password@db/iop"}
a2a: {listen: "tcp:4601", public_url: "https://agents.example/", card: {name: Lab, skills: {one: 1}}}
long_context_threshold_tokens: 90000
provider_pool: {max_queue: 8, queue_timeout_ms: 1000}
openai:
  listen: "tcp:4600:interface=127.0.0.1"
  allow_anonymous: true
  allowed_origins: ["https://chat.example"]
  allowed_hosts: [models.lan]
  max_body_bytes: 1000
  stall_timeout_ms: 1000
  expose_provider: false
  provider_auth: {enabled: true, from_header: X-A, target_header: Authorization, scheme: Bearer, required: true}
  principal_tokens:
    - {token_ref: t, token_hash_sha256: "HASH-a", principal_ref: alice, principal_alias: Alice}
    - {token_ref: u, token_hash_sha256: "HASH-b", principal_ref: alice}
  model_routes:
    - {model: r, adapter: u, target: x, node: n}
    - {model: s, adapter: u, target: x}
models:
  - id: m
    display_name: Model
    providers: [{id: p, target: m}, {id: q, target: m}]
    context_window_tokens: 1000
    default_max_tokens: 100
    min_max_tokens: 10
    default_thinking_token_budget: 10
  - {id: k, providers: [{id: q, target: k}]}
nodes:
  - id: n
    alias: one
    token: marker-n
    agent_kind: generic
    runtime: {concurrency: 2}
    adapters:
      - name: a
        type: openai_compat
        base_url: "http://marker-user:marker-password@127.0.0.1:1/v1"
        headers: {X: marker-x, Y: marker-y}
      - {name: b, type: openai_compat, base_url: "http://127.0.0.1:2/v1"}
      - {name: u, type: ollama, headers: {X: marker-x}, context_size: {m: 5, k: 6}}
      - {name: c, type: cli, command: x, args: [a, b], env: {A: marker-a}, output_format: jsonl, fields: {text: t}}
      - {name: d, type: theirs, api_key: marker-d, color: red, nested: {headers: {A: marker-e}, deep: {x: 1}}}
      - {name: w, type: theirs}
    providers:
      - id: p
        type: vllm
        provider: label
        category: local_inference
        adapter: a
        models: [m, k, l]
        capacity: 4
        long_context_capacity: 1
        total_context_tokens: 100000
        priority: 5
        health: {interval_ms: 5, path: /health, timeout_ms: 5}
        lifecycle: {managed: false}
      - {id: q, type: vllm, category: api, adapter: b, models: [m, k]}
      - {id: x, type: theirs, provider: label, category: api, adapter: d, models: [], enabled: false}
      - {id: y, type: vllm, provider: label, category: api, adapter: a, models: [], enabled: false}
      - {id: i, type: vllm, category: api, base_url: "http://marker-user@h/v1", headers: {A: marker-h}, models: [i]}
      - {id: j, type: cli, category: cli, command: x, env: {A: marker-a}, args: [a], models: [j]}
      - {id: o, type: ollama, category: api, context_size: {m: 5}, models: [o]}
      - {id: v, type: theirs, category: api, endpoint: "http://h", request_timeout_ms: 5, models: [v]}
  - {id: h, token_hash_sha256: "HASH-c", adapters: [], providers: []}
  - {id: g, token: marker-g, adapters: [{name: a, type: ollama}], providers: []}
""".replace("HASH-a", HASHES["a"])
    .replace("HASH-b", HASHES["b"])
    .replace("HASH-c", HASHES["c"])
)

LIVE, RESTART = "live", "restart_required"
#: Put in place of a value: there is none.
GONE = object()

_STEP = re.compile(r"\[([^\]]+)\]|([^.\[\]]+)")
_IDENTITIES = ("id", "name", "token_ref", "model")


class Case(NamedTuple):
    """A setting, the value it is changed to, what that costs, and the paths where the change is seen."""

    path: str
    value: Any
    effect: str
    seen: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        return self.seen or (self.path,)


def load(document: Any) -> Loaded:
    return _base() if document is BASE else load_document(document, state_dir=STATE)


@functools.cache
def _base() -> Loaded:
    return load_document(BASE, state_dir=STATE)


def changed(*cases: Case, document: Any = BASE) -> dict[str, Any]:
    """The document with the cases' values put in."""
    result: dict[str, Any] = copy.deepcopy(document)
    for case in cases:
        put(result, case.path, case.value)
    return result


def diff(old: Any, new: Any) -> RefreshResult:
    return plan(load(old), load(new))


def steps(path: str) -> list[str | tuple[str]]:
    """Keys as text, identities in a tuple."""
    return [(match[1],) if match[1] else match[2] for match in _STEP.finditer(path)]


def put(document: Any, path: str, value: Any) -> None:
    *above, last = steps(path)
    for step in above:
        document = document[_key(document, step)]
    if isinstance(last, tuple) and isinstance(value, dict):
        document.append(value)
    elif value is GONE:
        del document[_key(document, last)]
    else:
        document[_key(document, last)] = value


def _key(document: Any, step: str | tuple[str]) -> Any:
    if isinstance(step, str):
        return step
    (name,) = step
    return next(i for i, entry in enumerate(document) if name in [entry.get(key) for key in _IDENTITIES])


def shape(path: str) -> str:
    """A path without its identities: where a setting is declared."""
    return re.sub(r"\[[^\]]+\]", "[]", path)


N = "nodes[n]"
P = f"{N}.providers[p]"
A = "openai.provider_auth"

#: One value of one setting, in the order of the model.
SETTINGS_CASES = [
    Case("edge.id", "f", RESTART),
    Case("edge.name", "Other", RESTART),
    Case("listen", "tcp:4612:interface=127.0.0.1", RESTART),
    Case("heartbeat_ms", 5000, RESTART),
    Case("drain_timeout_ms", 0, RESTART),
    Case("bootstrap.listen", "tcp:4613", RESTART),
    Case("bootstrap.advertise", "tls:other.example:4610", RESTART),
    Case("logging.level", "debug", RESTART),
    Case("logging.format", "json", RESTART),
    Case("metrics.listen", "tcp:4691", RESTART),
    Case("console.listen", "unix:/run/b.sock", RESTART),
    Case("control_plane.endpoint", "tls:fleet.example:4621", RESTART),
    Case("control_plane.token", "marker-other", RESTART),
    Case("ledger.url", "postgresql://marker-user:marker-other@db/iop", RESTART),
    Case("openai.listen", "tcp:4602:interface=127.0.0.1", RESTART),
    Case("openai.allow_anonymous", False, RESTART),
    Case("openai.allowed_origins", ["https://chat.example", "https://b.example"], RESTART),
    Case("openai.allowed_hosts", [], RESTART),
    Case("openai.principal_tokens[t].token_hash_sha256", HASHES["d"], RESTART),
    Case("openai.principal_tokens[t].principal_ref", "bob", RESTART),
    Case("openai.principal_tokens[t].principal_alias", "Bob", RESTART),
    Case(f"{A}.enabled", False, RESTART),
    Case(f"{A}.from_header", "X-B", RESTART),
    Case(f"{A}.target_header", "X-Key", RESTART),
    Case(f"{A}.scheme", "", RESTART),
    Case(f"{A}.required", False, RESTART),
    Case("openai.model_routes[r].adapter", "c", RESTART),
    Case("openai.model_routes[r].target", "y", RESTART),
    Case("openai.model_routes[s].node", "n", RESTART),
    Case("openai.max_body_bytes", 2000, RESTART),
    Case("openai.stall_timeout_ms", 2000, RESTART),
    Case("openai.expose_provider", True, RESTART),
    Case("a2a.listen", "tcp:4603", RESTART),
    Case("a2a.public_url", "https://other.example/", RESTART),
    Case("a2a.card.name", "Other", RESTART),
    Case("a2a.card.skills.one", True, RESTART),
    Case("long_context_threshold_tokens", 50000, LIVE),
    Case("provider_pool.max_queue", 9, LIVE),
    Case("provider_pool.queue_timeout_ms", 0, LIVE),
    Case("models[m].display_name", "Other", LIVE),
    Case("models[m].providers", [{"id": "q", "target": "m"}, {"id": "p", "target": "m"}], LIVE),
    Case("models[k].providers", [{"id": "q", "target": "m"}], LIVE),
    Case("models[m].context_window_tokens", 2000, LIVE),
    Case("models[m].default_max_tokens", 200, LIVE),
    Case("models[m].min_max_tokens", 20, LIVE),
    Case("models[m].default_thinking_token_budget", 0, LIVE),
    Case(f"{N}.alias", "uno", RESTART),
    Case(f"{N}.token", "marker-other", RESTART),
    Case("nodes[h].token_hash_sha256", HASHES["e"], RESTART),
    Case(f"{N}.agent_kind", "coder", RESTART),
    Case(f"{N}.runtime.concurrency", 7, LIVE),
    Case(f"{N}.adapters[w].type", "others", RESTART),
    Case(f"{N}.adapters[w].enabled", False, RESTART),
    Case(f"{P}.type", "sglang", RESTART),
    Case(f"{N}.providers[x].type", "others", RESTART, (f"{N}.providers[x].runtime_type", f"{N}.providers[x].type")),
    Case(f"{P}.adapter", "b", RESTART),
    Case(f"{P}.provider", "other", RESTART),
    Case(f"{P}.category", "api", RESTART),
    Case(f"{P}.enabled", False, LIVE),
    Case(f"{P}.capacity", 8, LIVE),
    Case(f"{P}.long_context_capacity", 2, LIVE),
    Case(f"{P}.total_context_tokens", 200000, LIVE),
    Case(f"{P}.apis", ["responses"], LIVE),
    Case(f"{P}.priority", 0, LIVE),
    Case(f"{P}.models", ["m", "k", "z"], RESTART),
    Case(f"{P}.health.interval_ms", 6, RESTART),
    Case(f"{P}.health.path", "/up", RESTART),
    Case(f"{P}.health.timeout_ms", 6, RESTART),
    Case(f"{P}.lifecycle.managed", True, RESTART),
]

_ADAPTERS: dict[str, dict[str, Any]] = {
    "a": {
        "base_url": "http://marker-user:marker-other@127.0.0.1:1/v1",
        "provider": "vllm",
        "headers.X": "marker-other",
        "request_timeout_ms": 5,
        "connect_timeout_ms": 5,
        "first_byte_timeout_ms": 5,
        "gap_timeout_ms": 5,
        "max_connections": 5,
        "ca_file": "/ca.pem",
        "tools": "text",
        "messages": "plain",
        "stream_upstream": "never",
    },
    "u": {
        "base_url": "http://127.0.0.1:11435",
        "headers.X": "marker-other",
        "request_timeout_ms": 5,
        "connect_timeout_ms": 5,
        "first_byte_timeout_ms": 5,
        "gap_timeout_ms": 5,
        "max_connections": 5,
        "ca_file": "/ca.pem",
        "context_size.m": 9,
        "keep_alive": "10m",
    },
    "c": {
        "command": "y",
        "args": ["b", "a"],
        "env.A": "marker-other",
        "mode": "session",
        "resume_args": ["r"],
        "output_format": "claude_stream_json",
        "fields.text": "u",
        "prompt": "argument",
        "request_timeout_ms": 5,
        "grace_ms": 6,
    },
    "d": {"api_key": "marker-other", "color": "blue", "nested.headers.A": "marker-other", "nested.deep.x": 1.0},
}
#: An adapter's own setting, a built-in's and a drop-in's.
ADAPTER_CASES = [
    Case(f"{N}.adapters[{name}].{key}", value, RESTART)
    for name, settings in _ADAPTERS.items()
    for key, value in settings.items()
]

_INLINES: dict[str, dict[str, Any]] = {
    "i": {"base_url": "http://marker-other@h/v1", "headers.A": "marker-other", "request_timeout_ms": 5},
    "j": {
        "command": "y",
        "args": ["b"],
        "env.A": "marker-other",
        "mode": "session",
        "resume_args": ["r"],
        "output_format": "jsonl",
    },
    "o": {"context_size": 7},
    "v": {"endpoint": "http://i", "request_timeout_ms": 6},
}
#: A setting that a provider carries itself.
INLINE_CASES = [
    Case(f"{N}.providers[{name}].{key}", value, RESTART)
    for name, settings in _INLINES.items()
    for key, value in settings.items()
]

#: Something that comes; the other way round it goes.
ENTRY_CASES = [
    Case(
        "openai.principal_tokens[z]",
        {"token_ref": "z", "token_hash_sha256": HASHES["f"], "principal_ref": "z"},
        RESTART,
    ),
    Case("openai.model_routes[zr]", {"model": "zr", "adapter": "u", "target": "x"}, RESTART),
    Case("models[z]", {"id": "z", "providers": [{"id": "q", "target": "k"}]}, LIVE),
    Case("nodes[z]", {"id": "z", "token": "marker-z", "adapters": [], "providers": []}, RESTART),
    Case(f"{N}.adapters[z]", {"name": "z", "type": "cli", "command": "x", "env": {"A": "marker-z"}}, RESTART),
    Case(f"{N}.providers[z]", {"id": "z", "type": "vllm", "category": "api", "adapter": "a"}, RESTART),
    Case(
        f"{N}.providers[zz]",
        {"id": "zz", "type": "vllm", "category": "api", "base_url": "http://h", "headers": {"A": "marker-z"}},
        RESTART,
    ),
    Case("a2a.card.more", "x", RESTART),
    Case("a2a.card.skills.two", {"x": 1}, RESTART),
    Case(f"{N}.adapters[a].headers.Z", "marker-z", RESTART),
    Case(f"{N}.adapters[u].context_size.z", 5, RESTART),
    Case(f"{N}.adapters[c].env.Z", "marker-z", RESTART),
    Case(f"{N}.adapters[c].fields.session", "z", RESTART),
    Case(f"{N}.adapters[d].secret_word", "marker-z", RESTART),
    Case(f"{N}.adapters[d].nested.headers.Z", "marker-z", RESTART),
    Case(f"{N}.adapters[d].nested.deep.z", None, RESTART),
    Case(f"{N}.providers[i].headers.Z", "marker-z", RESTART),
    Case(f"{N}.providers[j].env.Z", "marker-z", RESTART),
    Case(f"{N}.providers[o].context_size.z", 5, RESTART),
]

#: A value that goes, or a section that is switched off; the other way round it is set.
UNSET_CASES = [
    Case("bootstrap", False, RESTART),
    Case("metrics", False, RESTART),
    Case("control_plane", False, RESTART),
    Case("a2a", False, RESTART),
    Case("openai", False, RESTART),
    Case("bootstrap.advertise", GONE, RESTART),
    Case("control_plane.token", None, RESTART),
    Case("a2a.public_url", None, RESTART),
    Case("openai.principal_tokens[t].principal_alias", None, RESTART),
    Case("openai.model_routes[r].node", GONE, RESTART),
    Case("models[m].display_name", None, LIVE),
    Case("models[m].context_window_tokens", 0, LIVE),
    Case("models[m].default_max_tokens", 0, LIVE),
    Case("models[m].min_max_tokens", GONE, LIVE),
    Case("models[m].default_thinking_token_budget", None, LIVE),
    Case(f"{N}.runtime.concurrency", None, LIVE),
    Case(f"{P}.total_context_tokens", 0, LIVE),
    Case(f"{P}.health.path", GONE, RESTART),
    Case(f"{N}.adapters[u].context_size", None, RESTART),
]

ALL = [*SETTINGS_CASES, *ADAPTER_CASES, *INLINE_CASES, *ENTRY_CASES, *UNSET_CASES]


def declared() -> set[str]:
    """Where every setting stands that is one value, and none that names its entry or follows from others."""
    found = {f"nodes[].providers[].{key}" for key in INLINE}
    for settings in SETTINGS.values():
        found |= {f"nodes[].adapters[].{key}" for key in settings["properties"]}
    return found | set(_declared(EdgeConfig, ""))


def _declared(part: type[Any], path: str) -> list[str]:
    found: list[str] = []
    for field in fields(part):
        here = f"{path}.{field.name}".lstrip(".")
        if field.part is None or (field.shape == "list" and not hasattr(field.part, "IDENTITY")):
            found += [here] if field.name != getattr(part, "IDENTITY", None) else []
        else:
            found += _declared(field.part, here + ("[]" if field.shape == "list" else ""))
    return found


def declared_effect(path: str) -> str:
    """What the schema says that a change at a path costs."""
    node, effect = schema(), RESTART
    for step in steps(path):
        node = _resolved(node)
        if isinstance(step, tuple):
            node = node["items"]
            continue
        known = {**node.get("properties", {})}
        for rule in node.get("allOf", ()):
            known = {**rule["then"]["properties"], **known}
        node = known.get(step, {})
        effect = node.get("x-effect", effect)
    return effect


def _resolved(node: Any) -> Any:
    if "anyOf" in node:
        node = next((arm for arm in node["anyOf"] if "$ref" in arm or arm.get("type") == "array"), {})
    if "$ref" in node:
        node = schema()["$defs"][node["$ref"].rpartition("/")[2]]
    return node
