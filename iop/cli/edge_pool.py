"""``iop-edge pool``: how the pool of the running edge is, and how one would do under a load."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from iop.cli import pool_text, text
from iop.cli.edge_config import OK, RESTART_REQUIRED, add, print_json, print_result, refused
from iop.edge.config import ConfigError, EdgeConfig, Loaded, load
from iop.edge.pool.simulate import Simulation
from iop.edge.pool.trace import Event, Refresh, TraceError, parse
from iop.edge.refresh import RefreshMode, Status, plan
from iop.errors import printable
from iop.settings import INT_MAX

USAGE = 2

_NUMBER = re.compile(r"[0-9]{1,10}")

Sweep = tuple[str, tuple[int, ...]]


def add_to(commands: Any) -> Any:
    """Add ``pool`` and its commands to those of ``iop-edge``; return where others may be added."""
    parser = commands.add_parser("pool", help="look at the pool, or try one out", allow_abbrev=False)
    of_pool = parser.add_subparsers(metavar="COMMAND", required=True)
    simulate_parser = add(of_pool, "simulate", "say what a configuration would make of a load", simulate)
    simulate_parser.add_argument(
        "--config", dest="files", action="append", required=True, metavar="FILE",
        help="the configuration; may be given again, later files overlay earlier ones",
    )  # fmt: skip
    simulate_parser.add_argument("--trace", type=Path, required=True, metavar="FILE", help="the load, as JSON lines")
    simulate_parser.add_argument(
        "--sweep", action="append", default=[], type=_sweep, metavar="PROVIDER=CAP1,CAP2,…",
        help="compare capacities of a provider; given again, every combination",
    )  # fmt: skip
    return of_pool


def _sweep(words: str) -> Sweep:
    provider, equals, capacities = words.rpartition("=")
    sound = provider and equals and all(map(_NUMBER.fullmatch, capacities.split(",")))
    values = tuple(map(int, capacities.split(","))) if sound else ()
    if not values or min(values) < 1 or max(values) > INT_MAX:
        raise argparse.ArgumentTypeError(f"write PROVIDER=CAP1,CAP2 with whole numbers from 1 to {INT_MAX}")
    return provider, values


class _Stop(Exception):
    """There is nothing to simulate; ``status`` is the exit status, and why has been printed."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status


def simulate(options: argparse.Namespace) -> int:
    """``pool simulate``: every run of a trace, and what it comes to."""
    try:
        settings = _load(options.files, options.format)
        trace = _trace(options.trace, settings)
        configs = _refreshes(settings, trace, options.trace.parent, options.format)
        sweeps = _combinations(options.sweep, settings)
    except _Stop as stop:
        return stop.status
    if options.sweep:
        swept = [(capacities, _lived(settings, trace, configs, capacities)) for capacities in sweeps]
        names = {provider.id: f"{node.id}/{provider.id}" for node in settings.nodes for provider in node.providers}
        documents = [
            {"capacities": {names[id]: c for id, c in each.items()}, "summary": done.summary().as_document()}
            for each, done in swept
        ]
        if options.format == "json":
            print_json({"sweep": documents})
        else:
            print("\n".join(pool_text.sweep(documents)))
        return OK
    document = _lived(settings, trace, configs, {}).as_document()
    if options.format == "json":
        print_json(document)
    else:
        print("\n".join(pool_text.simulated(document, text.paint(sys.stdout))))
    return OK


def _load(files: Sequence[str], form: str) -> EdgeConfig:
    try:
        return load(files, environ=os.environ).config
    except ConfigError as error:
        raise _Stop(refused(error, form)) from None


def _trace(path: Path, settings: EdgeConfig) -> list[Event]:
    try:
        with path.open(encoding="utf-8", errors="surrogateescape") as lines:
            return parse(lines, {node.id for node in settings.nodes})
    except TraceError as error:
        why = str(error)
    except OSError as error:
        why = f"it cannot be read: {error.strerror}"
    print(f"error: the trace {path}: {why}", file=sys.stderr)
    raise _Stop(USAGE)


def _refreshes(settings: EdgeConfig, trace: Sequence[Event], where: Path, form: str) -> dict[str, EdgeConfig]:
    """The configurations of the trace's refreshes, each a live change of the one before it."""
    configs: dict[str, EdgeConfig] = {}
    running = settings
    for event in trace:
        if not isinstance(event, Refresh):
            continue
        if event.config not in configs:
            configs[event.config] = _load([str(where / event.config)], form)
        result = plan(Loaded(running, ()), Loaded(configs[event.config], ()), RefreshMode.DRY_RUN)
        if result.status is not Status.APPLIED:
            print_result(result, form)
            print(f"error: the refresh at {event.at} ms, to {printable(event.config)}, is not live", file=sys.stderr)
            raise _Stop(RESTART_REQUIRED)
        running = configs[event.config]
    return configs


def _combinations(sweeps: Sequence[Sweep], settings: EdgeConfig) -> Iterator[dict[str, int]]:
    known = {f"{node.id}/{provider.id}": provider.id for node in settings.nodes for provider in node.providers}
    known |= {id: id for id in known.values()}  # an id may hold a slash, and goes first
    names: list[str] = []
    for provider, _ in sweeps:
        why = "there is no such provider" if provider not in known else ""
        why = why or ("it is given twice" if known[provider] in names else "")
        if why:
            print(f"error: --sweep {printable(provider)}: {why}", file=sys.stderr)
            raise _Stop(USAGE)
        names.append(known[provider])
    return (dict(zip(names, each, strict=True)) for each in product(*(values for _, values in sweeps)))


def _lived(
    settings: EdgeConfig, trace: Sequence[Event], configs: Mapping[str, EdgeConfig], capacities: Mapping[str, int]
) -> Simulation:
    resized = {name: _resized(config, capacities) for name, config in configs.items()}
    simulation = Simulation(_resized(settings, capacities), resized)
    simulation.live_through(trace)
    return simulation


def _resized(settings: EdgeConfig, capacities: Mapping[str, int]) -> EdgeConfig:
    """The same with other capacities; no provider has more long slots than slots."""
    if not capacities:
        return settings
    nodes = []
    for node in settings.nodes:
        providers = []
        for each in node.providers:
            capacity = capacities.get(each.id, each.capacity)
            long = min(each.long_context_capacity, capacity)
            providers.append(replace(each, capacity=capacity, long_context_capacity=long))
        nodes.append(replace(node, providers=tuple(providers)))
    return replace(settings, nodes=tuple(nodes))
