"""Something on the way is killed, or was never there. Each time: a clear error, no slot lost, and healing by itself.

``docs/contracts/wire.md`` (Liveness and loss), ``docs/contracts/openai.md`` (Endings, Errors).
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h11
import openai
import pytest
from raw_http import Answer, Wire, ask, chat
from real_gateway import PORT, Backend, Gateway, provider, user
from running import answers, get, until

MakeGateway = Callable[..., Gateway]


@pytest.fixture
def breakable(make_gateway: MakeGateway, fake: Backend) -> Gateway:
    """A gateway of this test's own, with two slots."""
    return make_gateway(provider("fake", fake, "openai", capacity=2)).start()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Backend]:
    """A fake backend of this test's own."""
    backend = Backend("mortal", tmp_path, "fake_openai.py", PORT).ready()
    yield backend
    backend.child.stop()


def last_error(answer: Answer) -> Any:
    """Return the error event that ends a broken stream."""
    assert answer.status == 200
    assert "[DONE]" not in answer.events
    return json.loads(answer.events[-1])["error"]


def both_slots_work(gateway: Gateway) -> None:
    """Two requests at a time are served: whatever came before has given its slot back."""
    with Wire(gateway.port) as one, Wire(gateway.port) as two:
        for wire in (one, two):
            wire.send(chat("drip 3 0.02", stream=True))
        for wire in (one, two):
            assert wire.answer().events[-1] == "[DONE]"


class Running:
    """A stream in the middle and a whole answer that is waited for, on one gateway."""

    def __init__(self, gateway: Gateway, fake: Backend) -> None:
        self.stream = Wire(gateway.port)
        self.stream.send(chat("drip 10000 0.01", stream=True))
        self.stream.begin(3)
        self.whole = Wire(gateway.port)
        self.whole.send(chat("drip 10000 0.01"))
        until(lambda: fake.stats["requests"] == 2, "the backend has both requests")

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.socket.close()
        self.whole.socket.close()


# ---- the node -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_node_is_killed(breakable: Gateway, fake: Backend) -> None:
    with Running(breakable, fake) as running:
        breakable.node.kill()
        assert last_error(running.stream.rest())["code"] == "node_lost"
        answer = running.whole.answer()
        assert (answer.status, answer.error["code"]) == (502, "node_lost")
    until(lambda: fake.stats["requests"] == 0, "the backend is left alone")
    assert get(f"{breakable.url}/readyz")[0] == 503
    assert get(f"{breakable.url}/healthz")[0] == 200
    answer = ask(breakable, chat("hello"))
    assert (answer.status, answer.error["code"]) == (503, "no_provider")
    assert int(answer.headers["retry-after"]) > 0
    breakable.start_node()
    breakable.ready()
    both_slots_work(breakable)


@pytest.mark.slow
def test_node_is_killed_under_the_sdk(make_gateway: MakeGateway, endless: Backend) -> None:
    """With llama.cpp at the end: its slots are free again, and the SDK hears of it."""
    gateway = make_gateway(provider("endless", endless, "llama_cpp", capacity=2)).start()
    with gateway.client() as client, ThreadPoolExecutor() as threads:
        stream = client.chat.completions.create(model="endless", messages=user("Go"), stream=True)
        next(iter(stream))
        whole = threads.submit(client.chat.completions.create, model="endless", messages=user("Go"))
        until(lambda: endless.busy == 2, "both slots are at work")
        gateway.node.kill()
        with pytest.raises(openai.APIError, match="node"):
            list(stream)
        with pytest.raises(openai.InternalServerError) as caught:
            whole.result()
        assert (caught.value.status_code, caught.value.code) == (502, "node_lost")
        until(lambda: not endless.busy, "llama.cpp's slots are free", 3)
        gateway.start_node()
        gateway.ready()
        answer = client.chat.completions.create(model="endless", messages=user("Go"), max_tokens=5)
        assert answer.choices[0].finish_reason == "length"


@pytest.mark.slow
def test_node_before_its_edge(make_gateway: MakeGateway, fake: Backend) -> None:
    gateway = make_gateway(provider("fake", fake, "openai"))
    gateway.start_node()
    until(lambda: "cannot be reached" in gateway.node.log, "the node has tried")
    time.sleep(0.5)
    assert gateway.node.status is None
    assert gateway.node.log.count("cannot be reached") == 1
    gateway.start_edge()
    gateway.ready()
    assert ask(gateway, chat("hello")).status == 200


# ---- the edge -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_edge_is_killed(breakable: Gateway, fake: Backend) -> None:
    """Its runs stop on the node at once, and the node is there again when the edge is."""
    with Running(breakable, fake) as running:
        breakable.edge.kill()
        until(lambda: fake.stats["requests"] == 0, "the backend is left alone", 3)
        for wire in (running.stream, running.whole):
            with pytest.raises((h11.RemoteProtocolError, ConnectionError, AssertionError)):
                wire.rest() if wire is running.stream else wire.answer()
    breakable.start_edge()
    breakable.ready()
    assert breakable.node.status is None
    both_slots_work(breakable)


@pytest.mark.slow
def test_edge_is_restarted_twice(breakable: Gateway) -> None:
    node = breakable.node
    for _ in range(2):
        breakable.edge.signal(signal.SIGTERM)
        assert breakable.edge.wait() == 0
        breakable.start_edge()
        breakable.ready()
        assert ask(breakable, chat("hello")).status == 200
    assert node.status is None


# ---- the backend ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_backend_is_killed(make_gateway: MakeGateway, mortal: Backend) -> None:
    gateway = make_gateway(provider("fake", mortal, "openai", capacity=2)).start()
    with Running(gateway, mortal) as running:
        mortal.child.kill()
        assert last_error(running.stream.rest())["code"] == "upstream_error"
        answer = running.whole.answer()
        assert (answer.status, answer.error["code"]) == (502, "upstream_error")
    for stream in (False, True):
        answer = ask(gateway, chat("hello", stream=stream))
        assert (answer.status, answer.error["code"]) == (502, "upstream_error")
        assert "127.0.0.1" not in answer.error["message"]
    mortal.start()
    mortal.ready()
    both_slots_work(gateway)


@pytest.mark.slow
def test_a_backend_is_found_dead_and_alive_again_without_a_request(make_gateway: MakeGateway, mortal: Backend) -> None:
    """The node looks by itself: nobody's request is spent on finding out."""
    checked = provider("fake", mortal, "openai", health={"interval_ms": 50, "path": "/stats"})
    gateway = make_gateway(checked).start()

    def becomes(health: str) -> None:
        until(lambda: gateway.pool["providers"][0]["health"] == health, f"the backend is {health}")

    becomes("up")
    mortal.child.kill()
    becomes("down")
    assert ask(gateway, chat("hello")).error["code"] == "no_provider"
    mortal.start()
    becomes("up")
    assert ask(gateway, chat("hello")).status == 200


@pytest.mark.slow
def test_llama_is_killed(make_gateway: MakeGateway, endless_model: Path, tmp_path: Path) -> None:
    """llama.cpp dies in the middle of a chunk, without a word."""
    backend = Backend("mortal", tmp_path, "llama_server.py", endless_model, "endless", PORT, 4096).ready()
    try:
        gateway = make_gateway(provider("endless", backend, "llama_cpp", capacity=2)).start()
        with gateway.client() as client, ThreadPoolExecutor() as threads:
            stream = client.chat.completions.create(model="endless", messages=user("Go"), stream=True)
            next(iter(stream))
            whole = threads.submit(client.chat.completions.create, model="endless", messages=user("Go"))
            until(lambda: backend.busy == 2, "both slots are at work")
            backend.child.kill()
            with pytest.raises(openai.APIError, match="backend"):
                list(stream)
            with pytest.raises(openai.InternalServerError) as caught:
                whole.result()
            assert (caught.value.status_code, caught.value.code) == (502, "upstream_error")
            backend.start()
            backend.ready()
            answer = client.chat.completions.create(model="endless", messages=user("Go"), max_tokens=5)
            assert answer.choices[0].finish_reason == "length"
    finally:
        backend.child.stop()


@pytest.mark.slow
def test_backend_that_is_restarted_between_requests(make_gateway: MakeGateway, mortal: Backend) -> None:
    """The node's kept connections are dead then, and no client ever sees that."""
    gateway = make_gateway(provider("fake", mortal, "openai")).start()
    for _ in range(3):
        assert ask(gateway, chat("hello")).status == 200
        mortal.child.stop()
        mortal.start()
        mortal.ready()
    assert ask(gateway, chat("hello")).status == 200


@pytest.mark.parametrize("stream", [False, True])
def test_backend_never_answers(gateway: Gateway, fake: Backend, stream: bool) -> None:
    begun = time.monotonic()
    answer = ask(gateway, chat("silence", model="hasty", stream=stream))
    took = time.monotonic() - begun
    assert (answer.status, answer.error["code"]) == (504, "upstream_timeout")
    assert 0.4 <= took < 2
    until(lambda: fake.stats["requests"] == 0, "the backend is left alone")


@pytest.mark.slow
def test_backend_falls_silent(gateway: Gateway, fake: Backend) -> None:
    begun = time.monotonic()
    assert last_error(ask(gateway, chat("stall 3", model="hasty", stream=True)))["code"] == "upstream_timeout"
    answer = ask(gateway, chat("stall 3", model="hasty"))
    assert (answer.status, answer.error["code"]) == (504, "upstream_timeout")
    assert time.monotonic() - begun < 4
    until(lambda: fake.stats["requests"] == 0, "the backend is left alone")


@pytest.mark.slow
def test_a_slow_stream_is_not_cut(gateway: Gateway) -> None:
    """It lasts longer than any silence in it may."""
    assert ask(gateway, chat("drip 6 0.15", model="hasty", stream=True)).events[-1] == "[DONE]"


def test_trouble_is_the_runs_own(gateway: Gateway) -> None:
    """While every kind of trouble happens beside it, a stream on the same link misses nothing."""
    orders = ["die 2", "close", "garbage", "refuse 500", "error 2", "html", "flood 200000", "limit 1"]
    with Wire(gateway.port) as calm, ThreadPoolExecutor(8) as threads:
        calm.send(chat("drip 30 0.02", stream=True))
        calm.begin()
        asked = [
            threads.submit(ask, gateway, chat(order, stream=stream)) for order in orders for stream in (True, False)
        ]
        for each in asked:
            assert each.result().status
        events = calm.rest().events
    assert events[-1] == "[DONE]"
    said = "".join(json.loads(event)["choices"][0]["delta"].get("content", "") for event in events[:-1])
    assert said == "".join(f"{number} " for number in range(30))


def test_readiness(gateway: Gateway) -> None:
    answers(gateway.edge, f"{gateway.url}/readyz")
    assert get(f"{gateway.url}/healthz")[0] == 200
