"""What a change costs the pool: it grows with what can run, not with what waits. ``docs/contracts/pool.md`` (Queue).

Lines of Python are counted, not time: whatever the pool walks through is seen, however it does it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from pool_claims import Asked, ask
from test_pool_crowded import World, configuration, provider

from iop.edge.pool.lease import Verdict
from iop.errors import Failure

POLICY = {"max_queue": 100_000, "queue_timeout_ms": 60_000}

FEW, MANY = 4, 256


@contextmanager
def counted() -> Iterator[Callable[[], int]]:
    """Count the lines that run inside."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: lines
    finally:
        sys.settrace(before)


def cost(claim: Asked) -> int:
    """Return the lines that the end of a run takes."""
    with counted() as lines:
        claim.end()
    return lines()


def test_lines_are_counted() -> None:
    def walk(many: int) -> int:
        with counted() as lines:
            sorted([-each for each in range(many)], key=lambda each: each)
        return lines()

    assert walk(1000) > walk(10) + 900


def waiting(many: int) -> tuple[World, Asked, list[Asked]]:
    """Return a pool of one slot, the run that holds it, and so many that wait for it."""
    world = World(configuration({"n1": [provider("a")]}, {"m": ["a"]}, provider_pool=POLICY))
    world.node("n1")
    return world, ask(world.pool), [ask(world.pool) for _ in range(many)]


def test_an_end_costs_the_same_however_many_wait() -> None:
    def end(many: int) -> int:
        _, held, claims = waiting(many)
        took = cost(held)
        assert [claim.provider for claim in claims] == ["a", *[None] * (many - 1)]
        return took

    assert end(MANY) < 2 * end(FEW)


def test_an_end_costs_the_same_however_many_wait_for_others() -> None:
    """Each of the other models has its provider, and somebody who waits for it."""

    def end(many: int) -> int:
        others = [f"p{number}" for number in range(many)]
        made = configuration(
            {"n1": [provider(id) for id in ("a", *others)]},
            {"m": ["a"], **{f"of-{id}": [id] for id in others}},
            provider_pool=POLICY,
        )
        world = World(made)
        world.node("n1")
        held, claim = ask(world.pool), ask(world.pool)
        rest = [ask(world.pool, f"of-{id}") for id in others for _ in range(2)]
        took = cost(held)
        assert claim.provider == "a"
        assert sum(each.waiting for each in rest) == many
        return took

    assert end(MANY) < 2 * end(FEW)


def of_no_use(many: int, why: str) -> tuple[World, Asked]:
    """Return a pool of so many full providers of one model, a run of the first of them, and one that waits.

    The slot that the first run holds is of no use to the one that waits: it is long, or has failed there.
    """
    ids = [f"p{number}" for number in range(many)]
    made = configuration(
        {"n1": [provider(id, capacity=2, long_context_capacity=1) for id in ids]},
        {"m": ids},
        long_context_threshold_tokens=100,
        provider_pool=POLICY,
    )
    world = World(made)
    world.node("n1")
    longs, shorts = [ask(world.pool, tokens=100) for _ in ids], [ask(world.pool) for _ in ids]
    assert [claim.provider for claim in (*longs, *shorts)] == ids * 2
    if why == "it is long":
        claim = ask(world.pool, tokens=100)
    else:
        claim = longs[0]
        assert claim.lease is not None
        assert world.pool.again(claim, claim.lease, Failure("rate_limited", "slow down"), Verdict.REACHED)
    assert claim.waiting
    return world, shorts[0]


@pytest.mark.parametrize("why", ["it is long", "it has failed there"])
def test_who_cannot_use_a_slot_is_not_looked_at_when_it_becomes_free(why: str) -> None:
    """Its other providers are not asked how they are: nothing has changed there."""

    def end(many: int) -> int:
        world, held = of_no_use(many, why)
        took = cost(held)
        assert world.pool.queue.size == 1
        return took

    assert end(MANY) < 2 * end(FEW)
