"""What a node says of itself, over the link, when its edge asks."""

from __future__ import annotations

from typing import Any

import pytest
from doubles import complete, fail, piece, start, wait
from test_uplink import PAYLOAD, World

import iop
from iop import model as m
from iop.errors import Failure
from iop.interfaces import MOST_SESSIONS

pytestmark = pytest.mark.usefixtures("logged")


def ask(world: World, type: str) -> Any:
    got = world.edge.last.question(lambda id: m.NodeCommandRequest(id, type))
    world.net.run()
    (response,) = got
    return response


def report(world: World, type: str) -> Any:
    response = ask(world, type)
    assert response.error == ""
    return response.report[type.lower()]


def test_usage_counts_what_ran() -> None:
    world = World(start(None), piece(text="hi"), complete("stop", m.Usage(7, 3)))
    end = world.up()
    world.net.run(5)
    end.ask(m.RunRequest("one", "a", "t"))
    world.net.run()
    world.adapter.script = (start(None), fail(Failure("upstream_error", "no")))
    end.ask(m.RunRequest("two", "a", "t"))
    world.net.run()
    world.adapter.script = (wait,)
    end.ask(m.RunRequest("three", "a", "t"))
    world.net.run()
    usage = report(world, "USAGE")
    assert usage.pop("resident_bytes") > 1 << 20
    assert usage == {
        "uptime_ms": 5000,
        "runs_total": 3,
        "runs_active": 1,
        "runs_failed": 1,
        "input_tokens": 7,
        "output_tokens": 3,
    }


def test_capabilities_are_those_of_the_adapters_that_work() -> None:
    world = World()
    world.up()
    said = report(world, "CAPABILITIES")
    assert (said["agent_version"], said["protocol_version"]) == (iop.__version__, m.PROTOCOL_VERSION)
    assert said["adapter_types"] == ["openai_compat", "scripted"]
    (adapter,) = said["adapters"]
    assert (adapter["name"], adapter["type"], adapter["modes"]) == ("a", "scripted", ["NORMALIZED", "PASSTHROUGH"])
    assert (adapter["sessions"], adapter["embeddings"]) == (True, False)


def session(number: int) -> dict[str, Any]:
    return {
        "session_id": f"s{number}",
        "state": "active",
        "workspace": "/w\ud800",
        "created": 1.5,
        "last_used": 2.0 + number,
    }


def test_sessions_the_ones_used_last_where_they_are_too_many() -> None:
    world = World()
    world.adapter.known_sessions = {str(n): session(n) for n in range(MOST_SESSIONS + 1)}
    world.up()
    response = ask(world, "SESSIONS")
    sessions = response.report["sessions"]["sessions"]
    assert response.truncated
    assert len(sessions) == MOST_SESSIONS
    assert sessions[0]["session_id"] == "s1"
    assert sessions[0] == {
        "session_id": "s1",
        "adapter": "a",
        "state": "active",
        "workspace": "/w\ufffd",
        "created_ms": 1500,
        "last_used_ms": 3000,
    }


def test_an_adapter_that_cannot_say_its_sessions_harms_no_other(logged: Any) -> None:
    world = World()
    world.adapter.sessions = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    world.up()
    assert report(world, "SESSIONS") == {"sessions": []}
    assert [type(failure) for failure in logged.failures()] == [ZeroDivisionError]


def test_transport_counts_the_link_and_those_before_it() -> None:
    world = World()
    world.up().wire.drop("the cable")
    world.net.run(5)
    said = report(world, "TRANSPORT")
    assert said["reconnects"] == 1
    assert said["last_loss"]
    assert 0 < said["connected_ms"] <= 5000
    assert min(said[name] for name in ("bytes_in", "bytes_out", "frames_in", "frames_out")) > 0


def test_providers_are_as_the_node_sees_them() -> None:
    world = World(wait)
    checked = m.ProviderConfig("p", "a", "vllm", "", ("m",), m.HealthCheck(1000))
    unchecked = m.ProviderConfig("q", "a", "vllm")
    payload = m.NodePayload("rev", PAYLOAD.adapters, (checked, unchecked))
    world.edge.response = m.RegisterResponse(True, node_id="n", config=payload)
    world.up().ask(m.RunRequest("one", "a", "t", provider_id="p"))
    world.net.run()
    said = report(world, "PROVIDERS")["providers"]
    assert [(each["provider_id"], each["health"], each["models"], each["in_flight"]) for each in said] == [
        ("p", "up", ["m"], 1),
        ("q", "unknown", [], 0),
    ]


def test_a_query_that_nobody_knows_is_an_error_and_nothing_runs() -> None:
    world = World()
    world.up()
    assert "no such query" in ask(world, "TYPE_UNSPECIFIED").error
    for type in m.CommandType:
        ask(world, type)
    assert world.adapter.runs == []
