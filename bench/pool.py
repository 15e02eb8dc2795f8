"""What admission costs: slots taken and given back a second, with nobody waiting and with many; and the longest stall.

    python bench/pool.py [--seconds 2]

1,000 providers, in 100 model groups of 10, then all of one model. Every figure is printed with its ratio to an empty
loop of the same run. Then how long the reactor stands still while one of 10 nodes, with 100 providers of 20
models each, is lost with its 400 runs while 10,000 wait, comes back, and goes again.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from iop.edge.config import load_document
from iop.edge.pool.lease import Lease, Verdict
from iop.edge.pool.pool import Pool
from iop.edge.pool.queue import Claim
from iop.edge.pool.simulate import VirtualClock
from iop.errors import Failure
from iop.model import Health

PROVIDERS, CAPACITY = 1_000, 4


class _Run(Claim):
    """A run that holds its slot until it is told to end."""

    __slots__ = ("held",)

    def __init__(self, model: str) -> None:
        super().__init__(model, 100, exact=True)
        self.held: Lease | None = None

    def granted(self, lease: Lease) -> None:
        self.held = lease

    def refused(self, failure: Failure) -> None:
        raise failure


def _document(groups: int) -> dict[str, Any]:
    nodes, models = [], []
    for group in range(groups):
        ids = [f"p{group}-{each}" for each in range(PROVIDERS // groups)]
        providers = [
            {
                "id": id,
                "type": "scripted",
                "category": "api",
                "adapter": "a",
                "models": [f"m{group}"],
                "capacity": CAPACITY,
            }
            for id in ids
        ]
        adapters = [{"name": "a", "type": "scripted"}]
        nodes.append({"id": f"n{group}", "token": f"n{group}", "adapters": adapters, "providers": providers})
        models.append({"id": f"m{group}", "providers": ids})
    policy = {"max_queue": 20_000, "queue_timeout_ms": 0}
    return {"edge": {"id": "e"}, "openai": False, "provider_pool": policy, "models": models, "nodes": nodes}


def _pool(document: dict[str, Any]) -> Pool:
    pool = Pool(load_document(document).config, VirtualClock())
    for node in document["nodes"]:
        pool.node_changed(node["id"], True, _up)
    return pool


def _up(provider_id: str) -> tuple[Health, str]:
    return Health.UP, ""


def _arrive(pool: Pool, number: int, runs: list[_Run] | deque[_Run]) -> None:
    run = _Run(f"m{number % len(pool.groups)}")
    lease = pool.admit(run)
    if lease is not None:
        run.held = lease
    runs.append(run)


def _rate(step: Callable[[int], None], seconds: float) -> tuple[float, float]:
    """Return steps a second, and the longest one in milliseconds."""
    longest, count, begun = 0.0, 0, time.perf_counter()
    before = begun
    while before - begun < seconds:
        step(count)
        count += 1
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    return count / (before - begun), 1000 * longest


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each figure")
    seconds = parser.parse_args().seconds
    empty, _ = _rate(lambda number: None, seconds)

    for groups, shape in ((100, "100 models"), (1, "one model")):
        for words, rate, longest in _figures(groups, seconds):
            each = f"{empty / rate:7.1f} empty loops each"
            print(f"{shape:10} {words:12} {rate:9,.0f} a second, {each}; longest stall {longest:.1f} ms")
    for words, stall in _flap():
        print(f"20 models  {words:23} {stall:9.1f} ms, {stall * empty / 1000:.0f} empty loops")


def _figures(groups: int, seconds: float) -> Iterator[tuple[str, float, float]]:
    free, runs = _pool(_document(groups)), list[_Run]()

    def take_and_give(number: int) -> None:
        _arrive(free, number, runs)
        held = runs.pop().held
        assert held is not None
        held.release()

    crowded, queue = _pool(_document(groups)), deque[_Run]()
    for number in range(PROVIDERS * CAPACITY + 10_000):
        _arrive(crowded, number, queue)
    assert crowded.queue.size == 10_000

    def end_and_arrive(number: int) -> None:
        run = queue.popleft()
        assert run.held is not None
        run.held.release()
        _arrive(crowded, number, queue)

    gc.collect()
    gc.freeze()  # as an edge does when it is up
    yield "nobody waits", *_rate(take_and_give, seconds)
    yield "10,000 wait", *_rate(end_and_arrive, seconds)


def _flap() -> Iterator[tuple[str, float]]:
    document = _document(10)
    providers = [
        {"id": each["id"], "target": each["models"][0]} for node in document["nodes"] for each in node["providers"]
    ]
    document["models"] = [{"id": f"m{number}", "providers": providers} for number in range(20)]
    pool, runs = _pool(document), list[_Run]()
    for number in range(PROVIDERS * CAPACITY + 10_000):
        _arrive(pool, number, runs)
    lost = [(run, run.held) for run in runs if run.held is not None and run.held.resource.node_id == "n0"]

    def lose() -> None:
        with pool.together():
            pool.node_changed("n0", False, _up)
            for run, held in lost:
                pool.again(run, held, Failure("node_lost", "it is gone"), Verdict.NOTHING)

    yield "a node is lost", _ms(lose)
    yield "it is back", _ms(lambda: pool.node_changed("n0", True, _up))
    yield "it goes, unused", _ms(lambda: pool.node_changed("n0", False, _up))


def _ms(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - begun)


if __name__ == "__main__":
    main()
