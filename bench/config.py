"""How long a large configuration takes to load, and two of them to compare.

usage: config.py [--nodes N] [--providers N] [--models N] [--json FILE]

By default 100 nodes with 10 providers each that serve 200 models: less than 1.5 s to load and 0.5 s to compare. CPU
seconds of one process, the best of three.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import yaml

from iop.edge.config import Loaded, load
from iop.edge.refresh import plan


def document(nodes: int, providers: int, models: int, *, capacity: int) -> dict[str, Any]:
    """A configuration in which every provider serves every model, and every model has a provider of each node."""
    names = [f"model-{number}" for number in range(models)]
    return {
        "edge": {"id": "bench"},
        "nodes": [
            {
                "id": f"node-{node}",
                "token_hash_sha256": f"{node + 1:064x}",
                "adapters": [
                    {"name": f"a-{number}", "type": "openai_compat", "base_url": f"http://127.0.0.1:{8000 + number}/v1"}
                    for number in range(providers)
                ],
                "providers": [
                    {
                        "id": f"p-{node}-{number}",
                        "type": "vllm",
                        "category": "local_inference",
                        "adapter": f"a-{number}",
                        "models": names,
                        "capacity": capacity,
                    }
                    for number in range(providers)
                ],
            }
            for node in range(nodes)
        ],
        "models": [
            {"id": name, "providers": [f"p-{node}-{number % providers}" for node in range(nodes)]}
            for number, name in enumerate(names)
        ],
    }


def best(work: Callable[[], Any]) -> tuple[float, Any]:
    """The least CPU seconds of three times, and what came of it."""
    least, result = float("inf"), None
    for _ in range(3):
        begun = time.process_time()
        result = work()
        least = min(least, time.process_time() - begun)
    return least, result


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n\n")[0])
    for name, number in (("nodes", 100), ("providers", 10), ("models", 200)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--json", type=pathlib.Path, help="write the figures there too")
    options = parser.parse_args()
    size = (options.nodes, options.providers, options.models)
    sides: list[Loaded] = []
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "edge.yaml"
        for capacity in (4, 8):
            file.write_text(yaml.dump(document(*size, capacity=capacity), Dumper=_dumper()))
            seconds, loaded = best(lambda: load([file], environ={}))
            sides.append(loaded)
        kib = file.stat().st_size / 1024
    compared, result = best(lambda: plan(*sides))
    figures = {
        "kib": round(kib),
        "load_s": round(seconds, 3),
        "diff_s": round(compared, 3),
        "changes": len(result.changes),
    }
    for name, figure in figures.items():
        print(f"{name:<10} {figure}")
    if options.json:
        options.json.write_text(json.dumps(figures) + "\n")
    return 0


def _dumper() -> Any:
    """Every list written out, as people write: no anchors."""

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return Dumper


if __name__ == "__main__":
    sys.exit(main())
