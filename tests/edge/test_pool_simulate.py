"""The simulator: it agrees with a slow second opinion on random traces, and says what is wrong with a trace."""

from __future__ import annotations

import json
import random

import pytest
from pool_reference import reference
from pool_traces import as_yaml_document, random_case

from iop.edge.config import load_document
from iop.edge.pool.simulate import Simulation
from iop.edge.pool.trace import TraceError, parse


@pytest.mark.parametrize("start", range(0, 1000, 100))
def test_it_agrees_with_the_reference(start: int) -> None:
    for seed in range(start, start + 100):
        config, trace, configs = random_case(random.Random(seed))
        settings = load_document(as_yaml_document(config)).config
        others = {name: load_document(as_yaml_document(other)).config for name, other in configs.items()}
        simulation = Simulation(settings, others)
        simulation.live_through(parse(map(json.dumps, trace), {each.id for each in settings.nodes}))
        assert simulation.as_document() == reference(config, trace, configs), f"seed {seed}"


GOOD = '{"at": 5, "id": "a", "model": "m", "tokens": 1, "service_ms": 1}'


@pytest.mark.parametrize(
    ("lines", "line", "why"),
    [
        ([GOOD, "{"], 2, "not JSON"),
        ([GOOD, "[]"], 2, "not a JSON object"),
        ([GOOD, GOOD], 2, "this id has come before"),
        ([GOOD, "", '{"at": 4, "op": "cancel", "id": "a"}'], 3, "a trace is sorted"),
        (['{"at": 4, "op": "node_up", "node": "x"}'], 1, "no such node"),
        (['{"at": 4, "op": "restart"}'], 1, "op is one of"),
        (['{"at": 4, "op": ""}'], 1, "op is one of"),
        ([GOOD.replace('"service_ms": 1', '"service_ms": 0')], 1, "service_ms is a whole number of at least 1"),
        ([GOOD.replace('"tokens": 1', '"tokens": true')], 1, "tokens is a whole number"),
        ([GOOD.replace('"at": 5', '"at": -1')], 1, "at is a whole number"),
        ([GOOD.replace('"model": "m", ', "")], 1, "model is missing"),
        ([GOOD.replace('"model"', '"modal": 1, "model"')], 1, "modal is not known"),
        (["[" * 100_000], 1, "not JSON"),
    ],
)
def test_what_is_wrong_with_a_trace(lines: list[str], line: int, why: str) -> None:
    with pytest.raises(TraceError, match=why) as raised:
        parse(lines, {"n1"})
    assert raised.value.line == line
