"""The simulator: it agrees with a slow second opinion on random traces, and says what is wrong with a trace.

``POOL_TRACES`` says how many traces, 1000 unless it is set; who changes the pool may want ten times as many:
``POOL_TRACES=10000 pytest tests/edge/test_pool_simulate.py``.
"""

from __future__ import annotations

import json
import os
import random
from typing import Any, Final

import pytest
from gateway_in_memory import document, node
from pool_reference import reference
from pool_traces import as_yaml_document, random_case, with_routes

from iop.edge.config import load_document
from iop.edge.pool.simulate import Simulation
from iop.edge.pool.trace import TraceError, parse

TRACES: Final = int(os.environ.get("POOL_TRACES", "1000"))


def lived(config: Any, trace: Any, configs: Any) -> Any:
    """Return what the simulator makes of a case."""
    settings = load_document(as_yaml_document(config)).config
    others = {name: load_document(as_yaml_document(other)).config for name, other in configs.items()}
    simulation = Simulation(settings, others)
    simulation.live_through(parse(map(json.dumps, trace), {each.id for each in settings.nodes}))
    return simulation.as_document()


@pytest.mark.parametrize("start", range(0, TRACES, 100))
def test_it_agrees_with_the_reference(start: int) -> None:
    for seed in range(start, min(start + 100, TRACES)):
        config, trace, configs = random_case(random.Random(seed))
        assert lived(config, trace, configs) == reference(config, trace, configs), f"seed {seed}"


def test_it_agrees_with_the_reference_on_older_routes() -> None:
    """A tenth of the traces, with routes that lead past the pool."""
    for seed in range(TRACES // 10):
        rng = random.Random(seed)
        config, trace, configs = random_case(rng)
        with_routes(rng, config, trace, configs)
        assert lived(config, trace, configs) == reference(config, trace, configs), f"seed {seed}"


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
        ([GOOD.replace('"at": 5', '"at": 9007199254740992')], 1, "of at least 0 and at most 9007199254740991"),
        ([GOOD.replace('"tokens": 1', '"tokens": true')], 1, "tokens is a whole number"),
        ([GOOD.replace('"at": 5', '"at": -1')], 1, "at is a whole number"),
        ([GOOD.replace('"model": "m", ', "")], 1, "model is missing"),
        ([GOOD.replace('"model"', '"modal": 1, "model"')], 1, "modal is not known"),
        (["[" * 100_000], 1, "not JSON"),
        ([GOOD, GOOD.replace('"at": 5', '"at": 5, "at": 6')], 2, "at is given twice"),
        (['{"at": 4, "op": "cancel", "id": "a", "op": "cancel"}'], 1, "op is given twice"),
        ([GOOD.replace('"model"', r'"\u001b[31m": 1, "model"')], 1, r"line 1: \?\[31m is not known here$"),
        ([GOOD.replace('"model"', r'"\u001b[2J": 1, "\u001b[2J": 1, "model"')], 1, r"line 1: \?\[2J is given twice$"),
    ],
)
def test_what_is_wrong_with_a_trace(lines: list[str], line: int, why: str) -> None:
    with pytest.raises(TraceError, match=why) as raised:
        parse(lines, {"n1"})
    assert raised.value.line == line


def outcomes(simulation: Simulation) -> list[tuple[str, str | None, int | None]]:
    return [(run.outcome, run.node, run.ended_at) for run in simulation.runs.values()]


def test_routed_runs_take_no_slot_and_go_to_their_node() -> None:
    """To the one that is named, else to the first of the configuration that has the adapter and is up."""
    routes = [
        {"model": "any", "adapter": "a", "target": "t"},
        {"model": "second", "adapter": "a", "target": "t", "node": "n2"},
    ]
    made = document(node("n1", "p1", capacity=1), node("n2", "q1", capacity=1), openai={"model_routes": routes})
    lines = [
        {"at": at, "id": f"r{number}", "model": model, "tokens": 1, "service_ms": 100}
        if model
        else {"at": at, "op": "node_down", "node": word}
        for number, (at, model, word) in enumerate(
            [
                (0, "any", ""),
                (0, "any", ""),
                (0, "second", ""),
                (0, "m", ""),
                (50, "", "n1"),
                (60, "any", ""),
                (60, "second", ""),
                (70, "", "n2"),
                (80, "any", ""),
                (80, "second", ""),
            ]
        )
    ]
    settings = load_document(made).config
    simulation = Simulation(settings)
    simulation.live_through(parse(map(json.dumps, lines), {"n1", "n2"}))
    assert outcomes(simulation) == [
        ("node_lost", "n1", 50),
        ("node_lost", "n1", 50),
        ("node_lost", "n2", 70),
        ("node_lost", "n1", 50),
        ("node_lost", "n2", 70),
        ("node_lost", "n2", 70),
        ("no_provider", None, 80),
        ("no_provider", None, 80),
    ]
    assert all(run.provider is None for run in simulation.runs.values() if run.model != "m")
    assert simulation.pool.in_flight == 0


def test_a_route_to_an_adapter_that_is_not_enabled_leads_elsewhere_or_nowhere() -> None:
    made = document(
        node("n1", "p1"), node("n2", "q1"), openai={"model_routes": [{"model": "old", "adapter": "b", "target": "t"}]}
    )
    for each, enabled in zip(made["nodes"], (False, True), strict=True):
        each["adapters"].append({"name": "b", "type": "scripted", "enabled": enabled})
    run = '{{"at": {0}, "id": "r{0}", "model": "old", "tokens": 1, "service_ms": 1}}'
    simulation = Simulation(load_document(made).config)
    simulation.live_through(
        parse([run.format(0), '{"at": 10, "op": "node_down", "node": "n2"}', run.format(20)], {"n1", "n2"})
    )
    assert outcomes(simulation) == [("complete", "n2", 1), ("no_provider", None, 20)]
