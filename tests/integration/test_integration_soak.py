"""Many requests through a gateway that is treated badly: afterwards nothing is held anywhere, and memory is flat.

Clients leave at any moment, nodes and a backend are killed, backends fail in every way they know. ``SOAK_REQUESTS``
says how many requests; ``tox -e soak`` makes it 20,000. ``docs/contracts/pool.md`` (Leases, Failover, Health).
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from random import Random
from typing import Final

import h11
import pytest
from raw_http import Answer, Wire, chat
from real_gateway import NODE_TOKEN, PORT, Backend, Gateway, provider
from running import Child, until

pytestmark = pytest.mark.slow

REQUESTS: Final = int(os.environ.get("SOAK_REQUESTS", "400"))
CLIENTS: Final = 48
THRESHOLD: Final = 500
"""Tokens from which on a request is long."""

ORDERS: Final = (
    *["hello"] * 6,
    *["drip 5 0.002"] * 6,
    *["refuse 503", "refuse 429", "refuse 500", "refuse 400", "html", "close", "garbage", "die 2", "error 2"],
)
PLAIN: Final = 12
"""How many of the orders are for a good answer."""

CODES: Final = {
    "queue_full",
    "queue_timeout",
    "no_provider",
    "node_lost",
    "upstream_connect",
    "upstream_error",
    "rate_limit_exceeded",
    "refused",
}
"""What a client may be told; ``refused`` stands for the backend's own 400."""


class Fleet:
    """Three nodes with a provider each, serving one model from two backends; the last two nodes may be killed."""

    def __init__(self, folder: Path, steady: Backend, mortal: Backend, make: Callable[..., Gateway]) -> None:
        self.mortal = mortal
        self._folder = folder
        nodes = []
        for number, backend in enumerate((steady, mortal, steady)):
            made = provider(f"p{number}", backend, "openai", capacity=4, target="fake", health={"interval_ms": 200})
            made["provider"]["long_context_capacity"] = 1
            token = f"{NODE_TOKEN}-{number}"
            (folder / f"token-{number}").write_text(token)
            nodes.append(
                {
                    "id": f"n{number}",
                    "token_hash_sha256": hashlib.sha256(token.encode()).hexdigest(),
                    "adapters": [made["adapter"]],
                    "providers": [made["provider"]],
                }
            )
        models = [{"id": "fake", "providers": ["p0", "p1", "p2"]}]
        limits = {"max_queue": CLIENTS * 3 // 4, "queue_timeout_ms": 2_000}
        self.gateway = make(nodes=nodes, models=models, provider_pool=limits, long_context_threshold_tokens=THRESHOLD)
        self.gateway.start_edge()
        self.nodes = [self.node(number) for number in range(3)]
        self.gateway.ready()
        until(lambda: self.healthy == 3, "every provider is up")

    def node(self, number: int) -> Child:
        return self.gateway.another_node(f"n{number}", self._folder / f"token-{number}")

    @property
    def healthy(self) -> int:
        return sum((each["status"], each["health"]) == ("online", "up") for each in self.gateway.pool["providers"])

    @property
    def held(self) -> int:
        """Slots taken and runs that wait, by every provider's account."""
        shown = self.gateway.pool
        keys = ("in_flight", "queued", "long_in_flight", "long_queued")
        return sum(each[key] for each in shown["providers"] for key in keys) + shown["queued"]

    def harm(self, random: Random) -> None:
        """Kill something and start it again."""
        victim = random.choice((1, 2, self.mortal))
        if isinstance(victim, Backend):
            victim.child.kill()
            victim.start()
        else:
            self.nodes[victim].kill()
            self.nodes[victim] = self.node(victim)


class Clients:
    """Ask until they have asked enough; :ivar outcomes: what came of it."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._lock = threading.Lock()
        self.left = REQUESTS
        self.outcomes: Counter[str] = Counter()

    def ask(self, seed: int) -> None:
        """Be one client."""
        random = Random(seed)
        wire: Wire | None = None
        while True:
            with self._lock:
                if self.left <= 0:
                    break
                self.left -= 1
            wire = wire or Wire(self._gateway.port)
            order = random.choice(ORDERS)
            stream = random.random() < 0.6 or order.startswith("error")  # which is nonsense in the middle of a document
            request = chat(order, stream=stream)
            if random.random() < 0.1:
                long = [{"role": "system", "content": "many words " * THRESHOLD}, {"role": "user", "content": "hello"}]
                request = chat("", stream=stream, messages=long)
            if random.random() < 0.2:
                self._note(self._leave(wire, request, random))
                wire = None
                continue
            try:
                outcome, reusable = outcome_of(wire.ask(request), stream)
            except h11.RemoteProtocolError:  # a document whose end never came
                outcome, reusable = "cut", False
            self._note(outcome)
            if not reusable:
                wire.socket.close()
                wire = None
        if wire is not None:
            wire.socket.close()

    def _leave(self, wire: Wire, request: bytes, random: Random) -> str:
        wire.send(request)
        wire.quiet(max(0.0005, random.expovariate(100)))
        wire.reset() if random.random() < 0.5 else wire.socket.close()
        return "left"

    def _note(self, outcome: str) -> None:
        with self._lock:
            self.outcomes[outcome] += 1


def outcome_of(answer: Answer, stream: bool) -> tuple[str, bool]:
    """Return ``whole`` or an error's code, and whether the connection may be used again."""
    reusable = answer.headers.get("connection") != "close"
    if answer.status == 200 and not stream:
        assert json.loads(answer.body)["object"] == "chat.completion"
        return "whole", reusable
    if answer.status == 200 and answer.events[-1] == "[DONE]":
        return "whole", reusable
    error = json.loads(answer.events[-1])["error"] if answer.status == 200 else answer.error
    assert set(error) == {"message", "type", "param", "code"}, error
    assert "127.0.0.1" not in error["message"]
    return ("refused" if answer.status == 400 else error["code"]), reusable


@pytest.fixture
def fleet(tmp_path: Path, fake: Backend, make_gateway: Callable[..., Gateway]) -> Iterator[Fleet]:
    mortal = Backend("mortal", tmp_path, "fake_openai.py", PORT).ready()
    yield Fleet(tmp_path, fake, mortal, make_gateway)
    mortal.child.stop()


def test_nothing_is_held_after_a_storm(fleet: Fleet, fake: Backend) -> None:
    gateway, random = fleet.gateway, Random(4)
    clients = Clients(gateway)
    resident: list[int] = []
    with futures.ThreadPoolExecutor(CLIENTS) as threads:
        asking = [threads.submit(clients.ask, seed) for seed in range(CLIENTS)]
        while futures.wait(asking, timeout=0.05).not_done:
            if not resident and clients.left < REQUESTS * 2 / 3:  # of 20,000: as many ended runs are kept as ever
                resident = [gateway.edge.resident, fleet.nodes[0].resident]
            if random.random() < 0.1:
                fleet.harm(random)
        for each in asking:
            each.result()
    print(REQUESTS, "requests:", dict(clients.outcomes.most_common()))  # noqa: T201 - for who runs it by hand
    until(lambda: fleet.held == 0, "no slot is held and nobody waits")
    fleet.mortal.ready()
    with Wire(gateway.port) as wire:  # one that could not be connected to is on trial until a run has been there
        until(lambda: wire.ask(chat("hello")).status == 200 and fleet.healthy == 3, "every provider is up")
    assert fleet.held == 0
    for backend in (fake, fleet.mortal):
        until(lambda backend=backend: backend.stats["requests"] == 0, "no backend works for anybody")
    grown = [gateway.edge.resident - resident[0], fleet.nodes[0].resident - resident[1]]
    print("grown by KiB, edge and node:", [size >> 10 for size in grown])  # noqa: T201
    assert max(grown) < 8 << 20
    assert set(clients.outcomes) - CODES <= {"whole", "left", "cut"}
    assert clients.outcomes["whole"] > REQUESTS * PLAIN / len(ORDERS) / 3
    for node in fleet.nodes:  # with a run left it would wait for it
        node.signal(signal.SIGTERM)
    for node in fleet.nodes:
        assert node.wait(5) == 0
