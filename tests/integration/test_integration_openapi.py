"""Requests made up from the surface's description of itself: whatever it is asked, it answers as described there.

``FUZZ_EXAMPLES`` says how many of each kind for each operation; ``tox -e fuzz`` makes it more. The requests are the
same at every run. ``docs/contracts/openai.md`` (Description).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from real_gateway import KEY, PORT, Backend, Gateway, provider
from running import get
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks

from iop.edge.surfaces.openai import openapi

pytestmark = pytest.mark.slow

EXAMPLES: Final = int(os.environ.get("FUZZ_EXAMPLES", "3"))
SECONDS: Final = 20.0
"""For one answer; no request here is a long one."""

CHECKS: Final = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
"""What a request must be refused for is not among them: most of it is for the backend to judge."""

BROKEN: Final = {500, 502, 503, 504}
"""Nothing is broken here, so nobody may be told so; but Ollama's server falls over what it did not expect."""


@pytest.fixture(scope="module")
def fuzzed(work: Path) -> Iterator[Gateway]:
    """Every API passed through, and every API translated."""
    anything = Backend("anything", work, "fake_anything.py", PORT).ready()
    ollama = Backend("fuzzed-ollama", work, "fake_ollama.py", PORT).ready()
    passed = provider("passed", anything, "vllm", target="vendor/passed:7b")
    made = Gateway(work / "fuzzed", passed, provider("translated", ollama, "ollama", target="olla"))
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture(scope="module")
def described(fuzzed: Gateway) -> Any:
    """The description, with the models that there are."""
    raw = json.loads(get(f"{fuzzed.url}/openapi.json")[1])
    raw["components"]["schemas"]["ModelName"] = {"enum": ["passed", "translated", "none"]}
    return schemathesis.openapi.from_dict(raw)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
@pytest.mark.parametrize(("path", "method"), sorted(openapi.described()))
def test_every_answer_is_as_described(
    fuzzed: Gateway, described: Any, path: str, method: str, mode: GenerationMode
) -> None:
    operation, seen = described[path][method], Counter[int]()
    session = requests.Session()

    @seed(1)
    @settings(
        max_examples=EXAMPLES if operation.body else min(EXAMPLES, 50),
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        answer = case.call(fuzzed.url, session, {"Authorization": f"Bearer {KEY}"}, timeout=SECONDS)
        seen[answer.status_code] += 1
        case.validate_response(answer, checks=CHECKS)
        assert answer.status_code != 500, answer.text
        if "/readyz" not in path:
            assert answer.status_code not in BROKEN or b"translated" in (case_body(case)), answer.text

    try:
        ask()
    except Exception as error:
        if "Unsatisfiable" not in type(error).__name__ and "Skip" not in type(error).__name__:
            raise
        pytest.skip(f"nothing {mode.value} can be made up here")
    print(path, method, mode.value, dict(sorted(seen.items())))  # noqa: T201 - the figures of a long run


def case_body(case: Any) -> bytes:
    return json.dumps(case.body, default=str).encode()


@pytest.mark.parametrize(("path", "method"), sorted(openapi.described()))
def test_without_a_key_nobody_comes_in(fuzzed: Gateway, described: Any, path: str, method: str) -> None:
    operation = described[path][method]
    public = not operation.definition.raw["security"]

    @seed(1)
    @settings(max_examples=5, deadline=None, database=None, phases=[Phase.generate])
    @given(operation.as_strategy())
    def ask(case: Any) -> None:
        answer = case.call(fuzzed.url, timeout=SECONDS)
        case.validate_response(answer, checks=CHECKS)
        assert (answer.status_code != 401) == public

    ask()
