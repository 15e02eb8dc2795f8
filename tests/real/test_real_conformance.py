"""llm-comply at the edge and at llama.cpp behind it: nothing is wrong at the edge alone."""

from __future__ import annotations

import pytest
from conformance import FORMATS, LLM_COMPLY, compare
from real_gateway import KEY, Backend, Gateway


@pytest.mark.parametrize("model", ["native", "translated"])
@pytest.mark.parametrize("format", FORMATS)
def test_nothing_new(format: str, model: str, models: Gateway, tiny: Backend) -> None:
    if not LLM_COMPLY.exists():
        pytest.skip("llm-comply is not installed")
    found = compare(format, models.url, tiny.url, KEY, model)
    assert not found.new, str(found)
    assert not found.lost, str(found)
