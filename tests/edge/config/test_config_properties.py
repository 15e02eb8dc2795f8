"""What holds for every file: no surprise, no secret, one normal form."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from config_texts import STATE, config, load_texts, reload
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iop.edge.config import ConfigError, Loaded, Problem, effective, load_document, redact, revision
from iop.edge.config.load import _load
from iop.edge.config.problems import Report
from iop.edge.config.read import read

MARKER = "sesame-42"
TEXT = f"""
edge: {{id: e}}
control_plane: {{endpoint: "tls:h:1", token: {MARKER}}}
openai:
  principal_tokens: [{{token_ref: t, principal_ref: p, token_hash_sha256: "{"ab" * 32}"}}]
  model_routes: [{{model: r, adapter: o, target: t}}]
  provider_auth: {{enabled: true}}
long_context_threshold_tokens: 5
provider_pool: {{max_queue: 1}}
nodes:
  - id: n
    token: {MARKER}
    adapters:
      - {{name: o, type: ollama, context_size: {{m: 5}}, headers: {{A: {MARKER}}}}}
      - {{name: c, type: cli, command: x, args: [y], env: {{A: {MARKER}}}}}
      - {{name: a, type: openai_compat, base_url: "http://{MARKER}:{MARKER}@h/v1"}}
    providers:
      - {{id: p, type: ollama, category: api, adapter: o, models: [m], capacity: 2, long_context_capacity: 1}}
      - {{id: q, type: vllm, category: api, base_url: "http://{MARKER}@h", headers: {{A: {MARKER}}}, models: [m]}}
  - {{id: k, token_hash_sha256: "{"cd" * 32}", adapters: {{ollama: {{}}}}}}
models: [{{id: m, providers: [p, {{id: q, target: m}}], context_window_tokens: 9, default_max_tokens: 3}}]
"""


def raw() -> Any:
    report = Report()
    tree = read(TEXT.encode(), "", report)
    assert report.errors == []
    return json.loads(json.dumps(tree))


RAW = raw()


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path] + [place for key, child in children for place in places(child, (*path, key))]


PLACES = [place for place in places(RAW) if place]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
SPECIAL = st.sampled_from(["p", "q", "o", "n", "m", "${env:X}", "${file:/nowhere}", "tcp:1", "", 0, -1, 10**12, [], {}])


@st.composite
def documents(draw: st.DrawFn) -> Any:
    """The document above with a few values replaced, removed or put elsewhere."""
    document = copy.deepcopy(RAW)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.sampled_from(PLACES))
        holder = document
        try:
            for step in place[:-1]:
                holder = holder[step]
            if draw(st.booleans()):
                holder[place[-1]] = copy.deepcopy(draw(JSON | SPECIAL))  # SPECIAL hands out the same {} each time
            elif isinstance(holder, dict):
                del holder[place[-1]]
            else:
                holder.append(copy.deepcopy(holder[place[-1]]))
        except (KeyError, IndexError, TypeError, AttributeError):
            continue
    return document


def outcome(document: Any) -> Loaded | ConfigError:
    try:
        return load_document(document, environ={}, state_dir=STATE)
    except ConfigError as error:
        return error


@settings(max_examples=400, deadline=None)
@given(documents())
def test_a_changed_configuration_loads_or_is_refused_and_tells_no_secret(document: Any) -> None:
    result = outcome(document)
    if isinstance(result, ConfigError):
        assert result.problems
        assert MARKER not in " ".join(problem.message for problem in result.problems)
        assert MARKER not in " ".join(problem.message for problem in result.warnings)
        return
    assert reload(result.config) == result.config
    assert effective(reload(result.config)) == effective(result.config)
    assert revision(reload(result.config)) == revision(result.config)
    assert MARKER not in " ".join(problem.message for problem in result.warnings)
    json.dumps(redact(effective(result.config)))


def test_the_document_itself_loads() -> None:
    loaded = config(TEXT)
    assert MARKER not in repr(loaded)
    assert MARKER not in repr(redact(effective(loaded)))


def refused(action: Callable[[], Any]) -> tuple[Problem, ...]:
    """The problems of a load that raised; none when it did not. Nothing but a ConfigError is let through."""
    try:
        action()
    except ConfigError as error:
        return error.problems
    return ()


def load_bytes(source: bytes) -> None:
    report = Report(["f"])
    tree = read(source, "f", report)
    if tree is None:
        report.raise_errors()
        raise AssertionError("given up without a problem")
    _load([tree], report, {}, STATE)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet="a:-[]{}&*!|>'\"%@`#,?~ \n\t<1é", max_size=40).map(str.encode))
def test_any_bytes_load_or_are_refused(source: bytes) -> None:
    refused(lambda: load_bytes(source))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, len(TEXT) - 1),
    st.integers(0, 8),
    st.sampled_from(["", ":", "-", " ", "\n", "[", "}", '"', "*a", "~"]),
)
def test_a_text_with_a_hole_loads_or_is_refused(start: int, length: int, put: str) -> None:
    found = refused(lambda: load_bytes((TEXT[:start] + put + TEXT[start + length :]).encode()))
    assert MARKER not in " ".join(problem.message for problem in found)


@settings(max_examples=100, deadline=None)
@given(documents(), documents())
def test_any_overlay_loads_or_is_refused(base: Any, overlay: Any) -> None:
    texts = [json.dumps(document) for document in (base, overlay) if isinstance(document, dict)]
    refused(lambda: load_texts(*texts))


def test_an_overlay_of_itself_changes_nothing() -> None:
    assert config(TEXT, TEXT) == config(TEXT)
