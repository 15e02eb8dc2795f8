"""The commented examples load, and a large configuration loads quickly."""

from __future__ import annotations

import hashlib
import re
import time
from pathlib import Path

import pytest

from iop.edge.config import load

ETC = Path(__file__).parents[3] / "etc"
OVERLAYS = [ETC / "overlay.secrets.yaml"]
EXAMPLES = sorted(path for path in ETC.glob("*.yaml") if path not in OVERLAYS)


def environ(*files: Path) -> dict[str, str]:
    names = [name for file in files for name in re.findall(r"\$\{env:(\w+)\}", file.read_text())]
    return {name: hashlib.sha256(name.encode()).hexdigest() for name in names}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_loads_without_a_warning(path: Path) -> None:
    assert load([path], environ=environ(path)).warnings == ()


def test_the_overlay_lies_over_the_first_example() -> None:
    files = [ETC / "edge.yaml", *OVERLAYS]
    loaded = load(files, environ=environ(*files))
    assert loaded.config.listen.startswith("ssl:")
    assert loaded.config.nodes[0].token is None
    assert len(loaded.config.nodes) == 2


def test_they_are_all_there() -> None:
    names = {path.name for path in EXAMPLES}
    assert {"edge.yaml", "one-machine.yaml", "mixed-pool.yaml", "cli-agents.yaml"} <= names


@pytest.mark.slow
def test_a_large_configuration_loads_quickly(tmp_path: Path) -> None:
    lines = ["edge: {id: e}", "nodes:"]
    for node in range(100):
        lines += [
            f"  - id: n{node}",
            f"    token: t{node}",
            "    adapters: [{name: o, type: ollama}]",
            "    providers:",
        ]
        for provider in range(10):
            names = ", ".join(f"m{model}" for model in range(200))
            lines += [f"      - {{id: p{node}-{provider}, type: ollama, category: api, adapter: o, models: [{names}]}}"]
    lines += ["models:"]
    lines += [f"  - {{id: m{model}, providers: [p{model % 100}-{model % 10}]}}" for model in range(200)]
    file = tmp_path / "large.yaml"
    file.write_text("\n".join(lines))
    start = time.process_time()
    loaded = load([file], environ={}).config
    assert len(loaded.nodes) == 100
    assert time.process_time() - start < 5  # about one second; the rest is for a busy machine
