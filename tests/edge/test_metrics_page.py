"""``GET /metrics``, and the gauges that are read for it. docs/metrics.md."""

from __future__ import annotations

from typing import Any

import pytest
from gateway_in_memory import Answer, Client, Gateway, document, node
from memory_net import MemoryNet
from pool_claims import ask
from prometheus_client.parser import text_string_to_metric_families
from refreshing import BAD, World, two_nodes
from twisted.internet.defer import Deferred, execute, fail
from twisted.internet.endpoints import clientFromString
from twisted.internet.protocol import Factory

from iop.edge.metrics.recorder import Metrics
from iop.edge.surfaces.gauges import readings
from iop.edge.surfaces.metrics import LIMITS, MetricsPage
from iop.http.server import Server

pytestmark = pytest.mark.usefixtures("logged")


class Scraper:
    """Somebody who scrapes, from a port of the net."""

    def __init__(self, net: MemoryNet, elsewhere: Any = execute) -> None:
        self.net = net
        self.metrics = Metrics(lambda: 1.7e9)
        self.server = Server(MetricsPage(self.metrics, elsewhere), net, LIMITS)
        net.listenTCP(4690, self.server)

    def client(self, target: str = "/metrics", **how: Any) -> Client:
        made: list[Client] = []
        factory = Factory.forProtocol(Client)
        factory.noisy = False
        clientFromString(self.net, "tcp:127.0.0.1:4690").connect(factory).addCallback(made.append)
        self.net.run()
        made[0].ask(target, **how)
        self.net.run()
        return made[0]

    def ask(self, target: str = "/metrics", **how: Any) -> Answer:
        return self.client(target, **how).answer

    def gauges(self) -> dict[tuple[str, ...], float]:
        """Every sample of ours."""
        families = text_string_to_metric_families(self.ask().body.decode())
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in families
            for sample in family.samples
            if sample.name.startswith("iop_")
        }


# ---- the page


def test_a_scrape() -> None:
    answer = Scraper(MemoryNet()).ask()
    assert (answer.status, answer.whole) == (200, True)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"\niop_build_info{" in answer.body


def test_openmetrics() -> None:
    asked = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
    answer = Scraper(MemoryNet()).ask(headers=asked)
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.body.endswith(b"# EOF\n")


def test_head_has_no_body() -> None:
    answer = Scraper(MemoryNet()).ask(method="HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


@pytest.mark.parametrize("target", ["/metrics?x=1", "http://edge/metrics"])
def test_other_words_for_it(target: str) -> None:
    assert Scraper(MemoryNet()).ask(target).status == 200


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics/", 404),
        ("GET", "/v1/models", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/", 404),
    ],
)
def test_anything_else_is_refused_in_words(method: str, target: str, status: int) -> None:
    answer = Scraper(MemoryNet()).ask(target, method=method)
    assert answer.status == status
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers.get("allow") == ("GET, HEAD" if status == 405 else None)
    assert answer.body.endswith(b"\n")


def test_a_scraper_that_leaves() -> None:
    later: Deferred[Any] = Deferred()
    scraper = Scraper(MemoryNet(), lambda *_: later)
    client = scraper.client()
    client.leave()
    scraper.net.run()
    later.callback((b"", "text/plain"))
    assert not scraper.server.connections


def test_a_bug_is_an_answer_without_details(logged: Any) -> None:
    answer = Scraper(MemoryNet(), lambda *_: fail(ValueError("inside"))).ask()
    assert (answer.status, answer.body) == (500, b"the metrics could not be shown\n")
    assert len(logged.failures()) == 1


def test_a_bug_in_a_gauge_is_one_too(logged: Any) -> None:
    scraper = Scraper(MemoryNet())
    scraper.metrics.read = lambda: 1 // 0  # type: ignore[assignment, return-value]
    assert scraper.ask().status == 500
    assert len(logged.failures()) == 1


# ---- the gauges


def scraped(world: Any) -> dict[tuple[str, ...], float]:
    scraper = Scraper(world.net)
    scraper.metrics.read = lambda: readings(world.refresher.running, world.runs)
    return scraper.gauges()


def test_an_edge_alone() -> None:
    seen = scraped(World())
    assert {key[1]: value for key, value in seen.items() if key[0] == "iop_nodes"} == {
        "online": 0,
        "draining": 0,
        "pending": 0,
        "offline": 2,
    }
    assert (seen["iop_requests_in_flight", "m"], seen["iop_requests_queued", "m"]) == (0, 0)
    assert (seen["iop_model_replicas", "m", "ready"], seen["iop_model_replicas", "m", "down"]) == (0, 2)
    assert (seen["iop_node_up", "n1"], seen["iop_node_capacity", "n1"]) == (0, 10_000)
    assert not any(key[0] == "iop_link_bytes_total" for key in seen)


def test_nodes_and_their_slots() -> None:
    made = document(node("n1", "p1", "p2", capacity=3), node("n2", "p3", capacity=5))
    made["nodes"][0]["providers"][1]["enabled"] = False
    world = World(made)
    world.node("n1")
    world.node("n2", acknowledge=False)
    ask(world.pool)
    seen = scraped(world)
    assert (seen["iop_nodes", "online"], seen["iop_nodes", "pending"]) == (1, 1)
    assert (seen["iop_node_up", "n1"], seen["iop_node_up", "n2"]) == (1, 0)
    assert (seen["iop_node_in_flight", "n1"], seen["iop_node_capacity", "n1"]) == (1, 3)
    assert (seen["iop_model_replicas", "m", "ready"], seen["iop_model_replicas", "m", "down"]) == (1, 1)
    assert seen["iop_link_bytes_total", "in", "n1"] > 0
    assert seen["iop_link_bytes_total", "out", "n1"] > 0


def test_a_node_that_drains() -> None:
    world = World()
    world.node("n1")
    link = world.entry("n1").link
    assert link is not None
    link.draining = True
    seen = scraped(world)
    assert (seen["iop_nodes", "draining"], seen["iop_node_up", "n1"]) == (1, 0)


def test_runs_and_those_that_wait() -> None:
    gateway = Gateway(configuration=document(node("n1", "p1", capacity=1)))
    gateway.chat()
    gateway.chat()
    seen = {(metric.name, *labels): value for metric, labels, value in readings(gateway.settings, gateway.runs)}
    assert (seen["iop_requests_in_flight", "m"], seen["iop_requests_queued", "m"]) == (1, 1)
    gateway.close()


# ---- refreshes are told


def test_a_refresh_is_told() -> None:
    world, told = World(), []
    world.refresher.told = lambda result: told.append(result.status.value)
    world.refresh(two_nodes(), mode="dry_run")
    world.refresh(two_nodes())
    world.refresh(BAD)
    assert told == ["applied", "rejected"]
