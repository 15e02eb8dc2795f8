"""Starting and stopping, as an operator sees it: exit status, signals, one sentence where something is wrong."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from raw_http import Wire, ask, chat
from real_gateway import Backend, Gateway, provider
from running import TWISTD, Child, get, until

MakeGateway = Callable[..., Gateway]


@pytest.fixture
def leaving(make_gateway: MakeGateway, fake: Backend) -> Gateway:
    """A gateway that is about to be stopped."""
    return make_gateway(provider("fake", fake, "openai"), drain_timeout_ms=10_000).start()


# ---- leaving --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_edge_drains(leaving: Gateway, fake: Backend) -> None:
    """What runs is finished; what comes is refused; then it leaves."""
    with (
        Wire(leaving.port) as stream,
        Wire(leaving.port) as whole,
        Wire(leaving.port) as late,
        Wire(leaving.port) as idle,
    ):
        assert idle.ask(chat("hello")).status == 200
        stream.send(chat("drip 40 0.03", stream=True))
        stream.begin()
        whole.send(chat("silence 1"))
        late.send(chat("late")[:-1])  # its last byte comes when the edge is draining
        until(lambda: fake.stats["requests"] == 2, "the backend has both requests")
        leaving.edge.signal(signal.SIGTERM)
        until(lambda: get(f"{leaving.url}/healthz")[0] == 0, "nobody is let in any more")
        assert idle.closed()
        late.send(chat("late")[-1:])
        refused = late.answer()
        assert (refused.status, refused.error["code"]) == (503, "draining")
        assert int(refused.headers["retry-after"]) > 0
        assert refused.headers["connection"] == "close"
        assert whole.answer().status == 200
        assert stream.rest().events[-1] == "[DONE]"
        assert stream.closed()
    assert leaving.edge.wait(3) == 0


@pytest.mark.slow
def test_edge_leaves_at_once_when_idle(leaving: Gateway) -> None:
    begun = time.monotonic()
    with Wire(leaving.port) as idle:
        assert idle.ask(chat("hello")).status == 200
        leaving.edge.signal(signal.SIGTERM)
        assert leaving.edge.wait() == 0
    assert time.monotonic() - begun < 2


@pytest.mark.slow
@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_ends_an_edge_at_once(leaving: Gateway, fake: Backend, first: signal.Signals) -> None:
    with Wire(leaving.port) as stream:
        stream.send(chat("drip 100000 0.01", stream=True))
        stream.begin()
        leaving.edge.signal(first)
        until(lambda: get(f"{leaving.url}/healthz")[0] == 0, "nobody is let in any more")
        time.sleep(0.3)
        assert leaving.edge.status is None
        begun = time.monotonic()
        leaving.edge.signal(signal.SIGTERM)
        assert leaving.edge.wait() == 0
        assert time.monotonic() - begun < 2
    until(lambda: fake.stats["requests"] == 0, "the backend is left alone", 3)


@pytest.mark.slow
def test_edge_drains_no_longer_than_it_may(make_gateway: MakeGateway, fake: Backend) -> None:
    gateway = make_gateway(provider("fake", fake, "openai"), drain_timeout_ms=500).start()
    with Wire(gateway.port) as stream, Wire(gateway.port) as whole:
        stream.send(chat("drip 100000 0.01", stream=True))
        stream.begin()
        whole.send(chat("silence"))
        until(lambda: fake.stats["requests"] == 2, "the backend has both requests")
        gateway.edge.signal(signal.SIGTERM)
        events = stream.rest().events
        assert json.loads(events[-1])["error"]["code"] == "draining"
        answer = whole.answer()
        assert (answer.status, answer.error["code"]) == (503, "draining")
    assert gateway.edge.wait(3) == 0
    until(lambda: fake.stats["requests"] == 0, "the backend is left alone", 3)


@pytest.mark.slow
def test_node_drains(leaving: Gateway, fake: Backend) -> None:
    with Wire(leaving.port) as stream, Wire(leaving.port) as whole:
        stream.send(chat("drip 40 0.03", stream=True))
        stream.begin()
        whole.send(chat("silence 1"))
        until(lambda: fake.stats["requests"] == 2, "the backend has both requests")
        leaving.node.signal(signal.SIGTERM)
        until(lambda: get(f"{leaving.url}/readyz")[0] == 503, "the edge knows")
        answer = ask(leaving, chat("late"))
        assert (answer.status, answer.error["code"]) == (503, "no_provider")
        assert whole.answer().status == 200
        assert stream.rest().events[-1] == "[DONE]"
    assert leaving.node.wait(3) == 0
    leaving.start_node()
    leaving.ready()
    assert ask(leaving, chat("hello")).status == 200


@pytest.mark.slow
def test_second_signal_ends_a_node_at_once(leaving: Gateway, fake: Backend) -> None:
    with Wire(leaving.port) as stream:
        stream.send(chat("drip 100000 0.01", stream=True))
        stream.begin()
        leaving.node.signal(signal.SIGTERM)
        until(lambda: get(f"{leaving.url}/readyz")[0] == 503, "the edge knows")
        assert leaving.node.status is None
        begun = time.monotonic()
        leaving.node.signal(signal.SIGTERM)
        assert leaving.node.wait() == 0
        assert time.monotonic() - begun < 2
        events = stream.rest().events
    assert json.loads(events[-1])["error"]["code"] == "node_lost"
    until(lambda: fake.stats["requests"] == 0, "the backend is left alone", 3)


# ---- not starting ---------------------------------------------------------------------------------------------------


def refused(child: Child) -> str:
    """Return what a program that will not start has said; it is fit for a person."""
    assert child.wait(5) == 1
    assert "Traceback" not in child.log
    return child.log


@pytest.mark.slow
@pytest.mark.parametrize("which", ["port", "node_port"])
def test_busy_port(make_gateway: MakeGateway, fake: Backend, which: str) -> None:
    gateway = make_gateway(provider("fake", fake, "openai"))
    port = getattr(gateway, which)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        gateway.start_edge()
        said = refused(gateway.edge)
    sentence = rf"cannot listen on tcp:{port}:\S+: Address already in use$"
    assert re.search(sentence, said, re.MULTILINE)


@pytest.mark.slow
def test_wrong_configuration(make_gateway: MakeGateway, tmp_path: Path) -> None:
    """Everything that is wrong, each with its file, line and path."""
    gateway = make_gateway()
    gateway.config_path.write_text(
        "edge: {id: home}\n"
        "heartbeat_ms: 0\n"
        "nodes:\n"
        "  - id: n\n"
        "    token: do-not-show-this\n"
        "    providers:\n"
        "      - {id: p, type: vllm, category: api, base_url: 'http://127.0.0.1:9', models: [m], capacity: 0}\n"
        "models: [{id: m, providers: [missing]}]\n"
    )
    gateway.start_edge()
    said = refused(gateway.edge)
    name = gateway.config_path
    assert f"{name}:2: heartbeat_ms: " in said
    assert f"{name}:7: nodes[0].providers[0].capacity: " in said
    assert f"{name}:8: models[0].providers[0]: " in said
    assert "do-not-show-this" not in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["iop-edge"], "--config FILE is needed"),
        (["iop-edge", "--config", "{tmp}/missing.yaml"], "{tmp}/missing.yaml"),
        (["iop-node"], "--edge ENDPOINT is needed"),
        (["iop-node", "--edge", "tcp:127.0.0.1:9", "--token-file", "{tmp}/missing"], "{tmp}/missing"),
        (["iop-node", "--edge", "ssl:127.0.0.1:9", "--token-file", "{tmp}/token"], "use tls:HOST:PORT"),
    ],
)
def test_wrong_command_line(tmp_path: Path, arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("IOP_NODE_TOKEN", raising=False)
    (tmp_path / "token").write_text("a-token")
    filled = [argument.format(tmp=tmp_path) for argument in arguments]
    log = refused(Child("program", [TWISTD, "-n", "--pidfile=", *filled], tmp_path, measured=True))
    assert said.format(tmp=tmp_path) in log.splitlines()[-1]
    assert "a-token" not in log
