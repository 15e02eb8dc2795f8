"""What an operator sees of a running edge from outside: its metrics. docs/metrics.md."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Callable

import pytest
from real_gateway import Gateway
from running import answers, free_port, get

MakeGateway = Callable[..., Gateway]


@pytest.mark.slow
def test_a_running_edge_is_scraped(make_gateway: MakeGateway) -> None:
    port = free_port()
    gateway = make_gateway(metrics={"listen": f"tcp:{port}:interface=127.0.0.1"})
    gateway.start_edge()
    answers(gateway.edge, f"{gateway.url}/healthz")
    status, text = get(f"http://127.0.0.1:{port}/metrics")
    assert status == 200
    for line in (r'iop_nodes\{state="offline"\} 1.0', r"process_resident_memory_bytes [\d.e+]+"):
        assert re.search(f"^{line}$".encode(), text, re.MULTILINE)
    assert get(f"http://127.0.0.1:{port}/")[0] == 404
    gateway.edge.signal(signal.SIGTERM)
    assert gateway.edge.wait(5) == 0


@pytest.mark.slow
def test_a_busy_port_stops_the_edge(make_gateway: MakeGateway) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        gateway = make_gateway(metrics={"listen": f"tcp:{port}:interface=127.0.0.1"})
        gateway.start_edge()
        assert gateway.edge.wait(5) == 1
    sentence = rf"cannot listen on tcp:{port}:\S+: Address already in use$"
    assert re.search(sentence, gateway.edge.log, re.MULTILINE)


@pytest.mark.slow
def test_nobody_listens_where_it_is_off(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    gateway.start_edge()
    answers(gateway.edge, f"{gateway.url}/healthz")
    assert "the metrics are at" not in gateway.edge.log
