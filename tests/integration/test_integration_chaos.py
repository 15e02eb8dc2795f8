"""Kills at random under load: edge, nodes, backends and the ledger's database, each without a warning.

Afterwards the ledger has what the clients saw, nothing hangs and nothing is held. ``CHAOS_KILLS`` says how many kills;
``tox -e chaos`` makes it 30. ``docs/contracts/ledger.md`` (Guarantees), ``docs/contracts/openai.md`` (Endings).

A client knows its request's id; the ledger has ids of runs, and the edge's log has both. A run that was whole is known
without the log, too: its backend counted a number of input tokens that no other run has.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import postgres
import pytest
from chaos_clients import FIRST, Asked, Clients
from real_gateway import NODE_TOKEN, PORT, Backend, Gateway, provider
from running import Child, free_port, get, until

from iop.cli.ask import ask

KILLS: Final = {name: int(os.environ.get("CHAOS_KILLS", few)) for name, few in (("postgresql", 4), ("sqlite", 2))}
SEED: Final = int(os.environ.get("CHAOS_SEED", "7"))
CLIENTS: Final = 12

PROMISED: Final = 1.0
"""Seconds. A kill of the edge loses no row of a run that its client saw end longer ago than this."""

TOKENS: Final = {"alice": "sk-the-key-of-alice", "bob": "sk-the-key-of-bob"}

SAID: Final = {
    "no_provider": {"no_provider", "overloaded_error"},
    "queue_full": {"queue_full", "rate_limit_error"},
    "queue_timeout": {"queue_timeout", "overloaded_error"},
    "node_lost": {"node_lost", "api_error"},
    "upstream_connect": {"upstream_error", "api_error"},
    "upstream_error": {"upstream_error", "api_error"},
}
"""What clients are told, by outcome: a code, or the type of the error where the API has no codes."""

GONE: Final = {"cut", "away"}
"""Ends of requests whose edge was not there, or no more."""

NOT_OWED: Final = {*GONE, *SAID["no_provider"], *SAID["queue_full"], *SAID["queue_timeout"]}
"""Ends of requests of which the ledger need not have a row: the edge died, or the pool may not have let them in."""

KNOWN: Final = {"whole"}.union(NOT_OWED, *SAID.values())


class Row(NamedTuple):
    """What the ledger has of a run."""

    run_id: str
    operation: str
    token_ref: str
    outcome: str
    input_tokens: int | None
    output_tokens: int | None
    estimated: int


class Kill(NamedTuple):
    """Somebody's end, in seconds since 1970: ``at`` is just before it, ``gone`` just after."""

    name: str
    at: float
    gone: float


class World:
    """An edge, two nodes with a backend each, and perhaps a PostgreSQL: whoever is killed is started again."""

    def __init__(self, folder: Path, make: Callable[..., Gateway], cluster: postgres.Cluster | None) -> None:
        self._folder = folder
        self.cluster = cluster
        self.url = "sqlite:ledger.sqlite3" if cluster is None else cluster.database()
        self.backends = [Backend(f"backend-{number}", folder, "fake_openai.py", PORT).ready() for number in range(2)]
        self.metrics_port = free_port()
        tokens = [
            {"token_ref": name, "token_hash_sha256": sha256(token.encode()).hexdigest(), "principal_ref": name}
            for name, token in TOKENS.items()
        ]
        self.gateway = make(
            nodes=[self._node(number, backend) for number, backend in enumerate(self.backends)],
            models=[{"id": "fake", "providers": ["p0", "p1"]}],
            openai={"principal_tokens": tokens},
            provider_pool={"max_queue": CLIENTS, "queue_timeout_ms": 2_000},
            metrics={"listen": f"tcp:{self.metrics_port}:interface=127.0.0.1"},
            logging={"format": "json"},
            ledger={"url": self.url},
        )
        self.gateway.start_edge()
        self.nodes = [self._start_node(number) for number in range(2)]
        self.gateway.ready()
        until(lambda: self.healthy == 2, "both providers are up")
        self.kills: list[Kill] = []

    def _node(self, number: int, backend: Backend) -> dict[str, Any]:
        made = provider(f"p{number}", backend, "vllm", capacity=4, target="fake", health={"interval_ms": 200})
        made["provider"]["apis"] = []  # the backend has chat alone: the others are translated
        token = f"{NODE_TOKEN}-{number}"
        (self._folder / f"token-{number}").write_text(token)
        hashed = sha256(token.encode()).hexdigest()
        own = {"adapters": [made["adapter"]], "providers": [made["provider"]]}
        return {"id": f"n{number}", "token_hash_sha256": hashed, **own}

    def _start_node(self, number: int) -> Child:
        return self.gateway.another_node(f"n{number}", self._folder / f"token-{number}")

    # ---- harm ---------------------------------------------------------------------------------------------------

    @property
    def victims(self) -> list[str]:
        """One of each, in no order; edges count twice where the edge has the database inside it."""
        return ["edge", "node", "backend", "edge" if self.cluster is None else "postgresql"]

    def harm(self, victims: list[str], away: float, random: Random) -> None:
        """Kill them at once, and start them again after so many seconds."""
        which = random.randrange(2)
        for name in victims:
            at = time.time()
            self._process(name, which).kill()
            self.kills.append(Kill(name, at, time.time()))
        time.sleep(away)
        for name in victims:
            if name == "node":
                self.nodes[which] = self._start_node(which)
            else:
                {"edge": self.gateway.start_edge, "backend": self.backends[which].start}.get(name, self._start_sql)()

    def _process(self, name: str, which: int) -> Any:
        if name == "postgresql":
            return self.cluster
        children = {"edge": self.gateway.edge, "node": self.nodes[which], "backend": self.backends[which].child}
        return children[name]

    def _start_sql(self) -> None:
        assert self.cluster is not None
        self.cluster.start()

    def back(self) -> None:
        """Wait until everything is there again."""
        if self.cluster is not None:
            self.cluster.ready()
        for backend in self.backends:
            backend.ready()
        self.gateway.ready()
        until(lambda: self.healthy == 2, "both providers are up")

    # ---- looking ------------------------------------------------------------------------------------------------

    @property
    def healthy(self) -> int:
        """Providers that can serve; one that could not be connected to is on trial until a run has been there."""
        return sum((p["status"], p["health"]) == ("online", "up") for p in self.gateway.pool["providers"])

    @property
    def held(self) -> int:
        shown = self.gateway.pool
        keys = ("in_flight", "queued", "long_in_flight", "long_queued")
        return sum(each[key] for each in shown["providers"] for key in keys) + shown["queued"]

    @property
    def gauges(self) -> dict[str, float]:
        """The metrics that say what is held."""
        text = get(f"http://127.0.0.1:{self.metrics_port}/metrics")[1].decode()
        found = re.findall(r"^(iop_(?:requests|node)_(?:in_flight|queued)\{.*\}) (\S+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in found}

    def counted(self) -> int:
        """How many runs the edge says are in the ledger."""
        console = str(self.gateway.folder / "edge" / "console.sock")
        usage: dict[str, Any] = ask(console, "GET", "/v1/usage", timeout=20)
        return sum(each["runs"] for each in usage["usage"])

    @property
    def spooled(self) -> int:
        return (self.gateway.folder / "edge" / "ledger.spool").stat().st_size

    def rows(self) -> list[Row]:
        """What the database has, read past the edge."""
        question = f"SELECT {', '.join(Row._fields)} FROM iop_usage"
        if self.cluster is None:
            connection = sqlite3.connect(self.gateway.folder / "edge" / "ledger.sqlite3")
            try:
                return [Row(*row) for row in connection.execute(question)]
            finally:
                connection.close()
        import psycopg

        with psycopg.connect(self.url) as connected:
            return [Row(*row) for row in connected.execute(question.encode())]

    def logged_runs(self) -> dict[str, str]:
        """Ids of runs by those of their requests, as far as the log has them."""
        lines = [line for line in self.gateway.edge.log.splitlines() if line.startswith('{"ts"')]
        found = [json.loads(line) for line in lines if line.endswith("}")]
        return {each["request"]: each["run"] for each in found if "operation" in each and "run" in each}


@pytest.fixture(params=["postgresql", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path, make_gateway: Callable[..., Gateway]) -> Iterator[World]:
    if request.param == "sqlite":
        yield World(tmp_path, make_gateway, None)
        return
    with postgres.cluster() as cluster:
        yield World(tmp_path, make_gateway, cluster)


@pytest.mark.slow
def test_the_ledger_has_what_the_clients_saw(world: World, request: pytest.FixtureRequest) -> None:
    clients = Clients(world.gateway.port, list(TOKENS.values()))
    with futures.ThreadPoolExecutor(CLIENTS) as threads:
        asking = [threads.submit(clients.ask, seed) for seed in range(CLIENTS)]
        try:
            storm(world, Random(SEED), KILLS[request.node.callspec.params["world"]])
            world.back()
            time.sleep(0.3)  # whoever comes now is served
        finally:
            clients.stop()
        for each in asking:
            each.result(20)
    until(lambda: world.held == 0, "no slot is held and nobody waits")
    assert set(world.gauges.values()) == {0.0}
    for backend in world.backends:
        until(lambda backend=backend: backend.stats["requests"] == 0, "no backend works for anybody")
    until(lambda: world.spooled == 0, "the database has what the spool had", 40)
    assert world.counted() > 0  # the rows of the last quarter of a second may still come
    for child in (world.gateway.edge, *world.nodes):  # with a run left it would wait for it
        child.signal(signal.SIGTERM)
        assert child.wait(10) == 0
    assert world.spooled == 0
    assert not re.search(r"usage (of \d+ runs )?is lost", world.gateway.edge.log)
    figures = compared(world, clients.asked, world.rows())
    print(Counter(kill.name for kill in world.kills), figures)  # noqa: T201 - for who runs it by hand


def storm(world: World, random: Random, kills: int) -> None:
    """Kill, an edge first, and at times two at once; mostly wait until requests are served again."""
    bag = ["edge"]
    while len(world.kills) < kills:
        time.sleep(1.2 if not world.kills else random.uniform(0.1, 2.5))
        together = 2 if kills - len(world.kills) > 1 and random.random() < 0.25 else 1
        while len(bag) < together:
            bag += random.sample(world.victims, 4)
        victims = [bag.pop(0) for _ in range(together)]
        world.harm(list(dict.fromkeys(victims)), random.uniform(0.0, 0.6), random)
        if random.random() < 0.75:
            world.gateway.ready()


def compared(world: World, asked: list[Asked], rows: list[Row]) -> dict[str, Any]:
    """Hold what clients saw against what the ledger has; return figures."""
    by_run = {row.run_id: row for row in rows}
    assert len(by_run) == len(rows)
    numbers = Counter(row.input_tokens for row in rows if (row.input_tokens or 0) >= FIRST)
    assert [number for number, times in numbers.items() if times > 1] == []
    by_number = {row.input_tokens: row for row in rows}
    logged = world.logged_runs()
    killed = [kill for kill in world.kills if kill.name == "edge"]
    back = [min((x.begun for x in asked if x.begun > kill.gone and x.end not in GONE), default=1e18) for kill in killed]
    lost: list[float] = []
    missing: list[Any] = []
    owed = 0
    for each in asked:
        assert each.end in KNOWN, each
        assert not each.wrong, each
        if each.end in GONE:  # only by an edge that is dead, or dies meanwhile
            assert any(kill.at < each.ended and each.begun < by for kill, by in zip(killed, back, strict=True)), each
        row = by_number.get(each.number)
        if row is None:
            row = by_run.get(logged.get(each.request_id, ""))
        else:
            assert logged.get(each.request_id, row.run_id) == row.run_id, each
        # the edge that had it was the one that died next; what it said last may have been read when it was gone
        age = next((kill.at - each.ended for kill in killed if kill.gone > each.begun), 999.0)
        must = age > PROMISED and each.end not in NOT_OWED
        owed += must
        if must and row is None:
            missing.append((age, each, logged.get(each.request_id, "not in the log")))
        if row is not None:
            assert right(each, row), (each, row)
        elif each.end not in NOT_OWED:
            lost.append(age)
    assert missing == [], world.kills
    return {
        "requests": len(asked),
        "ends": dict(Counter(each.end for each in asked).most_common()),
        "rows": len(rows),
        "outcomes": dict(Counter(row.outcome for row in rows).most_common()),
        "owed": owed,
        "lost": len(lost),
        "oldest lost, s": round(max(lost, default=0.0), 3),
        "longest request, s": round(max(each.ended - each.begun for each in asked), 2),
    }


def right(asked: Asked, row: Row) -> bool:
    """Whether a row says what its client saw."""
    who = {token: name for name, token in TOKENS.items()}[asked.token]
    if (row.operation, row.token_ref) != (asked.api, who):
        return False
    if row.outcome == "complete":
        counted = (row.input_tokens, row.output_tokens, row.estimated) == (asked.number, 3, 0)
        return counted and asked.end in ("whole", "cut")
    return asked.end in {"cut", *SAID[row.outcome]}
