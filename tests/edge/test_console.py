"""The operators' console: its routes and shapes, and its socket. docs/contracts/console.md."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
from gateway_in_memory import Answer, Client, document, node
from pool_claims import ask
from refreshing import BAD, FAIL, SILENT, TAKE, World, two_nodes
from twisted.internet import reactor as installed
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.endpoints import clientFromString
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure as TwistedFailure

from iop import model as m
from iop.edge.listeners import ConsoleListener
from iop.edge.surfaces.console import LIMITS, Console
from iop.edge.surfaces.status import pool_status, reports_of, status
from iop.errors import Failure
from iop.http.server import Server
from iop.sockets import CannotListen
from iop.unixsocket import listen_privately

pytestmark = pytest.mark.usefixtures("logged")

reactor: Any = installed


class Operator:
    """Somebody at the console of a world.

    :ivar asked: of the usage; ``keeps_usage`` says whether there is an answer.
    """

    def __init__(self, made: dict[str, Any] | None = None) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.keeps_usage = True
        self.world = World(made)
        world = self.world
        self.server = Server(
            Console(
                self.status,
                lambda: pool_status(world.refresher.running, world.pool),
                world.runs.explain,
                world.nodes.query,
                world.nodes.end_session,
                world.refresher,
                self.usage,
            ),
            world.net,
            LIMITS,
        )
        world.net.listenTCP(4600, self.server)

    def status(self) -> Deferred[dict[str, Any]]:
        return Deferred.fromCoroutine(self._status())

    def usage(self, *words: str) -> Deferred[dict[str, Any]]:
        self.asked.append(words)
        return succeed({"usage": []}) if self.keeps_usage else fail(Failure("ledger_away", "away", http_status=503))

    async def _status(self) -> dict[str, Any]:
        world = self.world
        reports = await reports_of(world.nodes)
        return status(world.refresher.running, world.refresher.revision, world.net.seconds(), world.runs, reports)

    def client(self, target: str, body: Any = None, **how: Any) -> Client:
        made: list[Client] = []
        factory = Factory.forProtocol(Client)
        factory.noisy = False
        clientFromString(self.world.net, "tcp:127.0.0.1:4600").connect(factory).addCallback(made.append)
        self.world.net.run()
        made[0].ask(target, body, **how)
        self.world.net.run()
        return made[0]

    def ask(self, target: str, body: Any = None, **how: Any) -> Answer:
        answer = self.client(target, body, **how).answer
        assert answer.headers["content-type"] == "application/json"
        return answer

    def refresh(self, made: Any, mode: str = "apply") -> Answer:
        self.world.candidates["/c.yaml"] = made
        return self.ask("/v1/config/refresh", {"mode": mode, "files": ["/c.yaml"]})


def error(answer: Answer) -> tuple[int, str]:
    assert set(answer.json) == {"error"}
    assert set(answer.json["error"]) == {"code", "message"}
    assert answer.json["error"]["message"]
    return answer.status, answer.json["error"]["code"]


# ---- status


def test_status_of_an_edge_alone() -> None:
    operator = Operator()
    operator.world.net.run(2.5)
    answer = operator.ask("/v1/status")
    assert answer.status == 200
    shown = answer.json
    assert shown["edge"] == {"id": "e", "name": "e"}
    assert (shown["uptime_ms"], shown["draining"], shown["in_flight"]) == (2500, False, 0)
    assert shown["revision"] == operator.world.refresher.revision
    assert shown["nodes"][0] == {
        "id": "n1",
        "alias": "n1",
        "connected": False,
        "ready": False,
        "draining": False,
        "hostname": "",
        "agent_version": "",
        "revision": "",
        **dict.fromkeys(("usage", "capabilities", "sessions", "transport", "providers")),
    }
    assert shown["models"] == [
        {
            "id": "m",
            "display_name": None,
            "providers": [
                {"id": "p1", "node_id": "n1", "target": "m"},
                {"id": "p2", "node_id": "n2", "target": "m"},
            ],
        }
    ]


def test_status_of_a_node_and_its_providers() -> None:
    made = document(node("n1", "p1", "p2", capacity=3, long_context_capacity=1, priority=2))
    made["nodes"][0]["providers"][1]["enabled"] = False
    operator = Operator(made)
    end = operator.world.node("n1")
    end.reports["TRANSPORT"] = {"frames_in": 9, "last_loss": "the cable"}
    end.reports["SESSIONS"] = {"sessions": [{"state": each} for each in ("active", "expired", "active")]}
    end.reports["CAPABILITIES"] = {"adapters": [{"name": "a", "type": "scripted"}]}
    ask(operator.world.pool)
    shown = operator.ask("/v1/status").json
    assert shown["nodes"][0] | {"revision": ""} == {
        "id": "n1",
        "alias": "n1",
        "connected": True,
        "ready": True,
        "draining": False,
        "hostname": "host",
        "agent_version": "9",
        "revision": "",
        "usage": {**dict.fromkeys(USAGE, 0), "runs_total": 7, "truncated": False},
        "capabilities": shown["nodes"][0]["capabilities"],
        "sessions": {"active": 2, "expired": 1},
        "transport": {
            **dict.fromkeys(("connected_ms", "bytes_in", "bytes_out", "frames_in", "frames_out", "reconnects"), 0),
            "frames_in": 9,
            "last_loss": "the cable",
            "truncated": False,
        },
        "providers": None,  # it said that it does not know
    }
    (adapter,) = shown["nodes"][0]["capabilities"]["adapters"]
    assert (adapter["name"], adapter["type"]) == ("a", "scripted")
    assert shown["nodes"][0]["revision"] == end.payload.revision
    one, two = shown["providers"]
    assert one == {
        "node_id": "n1",
        "provider_id": "p1",
        "type": "scripted",
        "category": "api",
        "status": "online",
        "health": "unknown",
        "models": ["m"],
        "capacity": 3,
        "in_flight": 1,
        "queued": 0,
        "long_context_capacity": 1,
        "long_in_flight": 0,
        "long_queued": 0,
        "priority": 2,
    }
    assert (two["status"], two["health"], two["capacity"]) == ("disabled", "disabled", 0)


USAGE = ("uptime_ms", "runs_total", "runs_active", "runs_failed", "input_tokens", "output_tokens", "resident_bytes")


def test_a_node_that_does_not_say_keeps_nobody_waiting_for_long() -> None:
    operator = Operator()
    operator.world.node("n1").deaf_to_queries = True
    client = operator.client("/v1/status")
    assert client.data == b""
    operator.world.net.run(1)
    reports = ("usage", "capabilities", "sessions", "transport", "providers")
    assert [client.answer.json["nodes"][0][each] for each in reports] == [None] * 5


def test_a_node_that_answers_something_else_has_said_nothing() -> None:
    operator = Operator()
    end = operator.world.node("n1")
    end.reports["TRANSPORT"] = None
    assert error(operator.ask("/v1/nodes/n1/transport")) == (502, "upstream_error")
    shown = operator.ask("/v1/status").json["nodes"][0]
    assert shown["transport"] is None
    assert shown["usage"]["runs_total"] == 7


def test_a_node_is_asked() -> None:
    operator = Operator()
    end = operator.world.node("n1")
    end.reports["TRANSPORT"] = {"frames_in": 9, "last_loss": "the cable"}
    answer = operator.ask("/v1/nodes/n1/transport").json
    assert (answer["frames_in"], answer["last_loss"], answer["truncated"]) == (9, "the cable", False)
    assert error(operator.ask("/v1/nodes/n1/PROVIDERS")) == (502, "upstream_error")
    assert error(operator.ask("/v1/nodes/n1/RUN")) == (404, "unknown_url")
    assert error(operator.ask("/v1/nodes/n9/USAGE")) == (404, "unknown_url")
    assert error(operator.ask("/v1/nodes/n2/USAGE")) == (503, "no_provider")
    assert error(operator.ask("/v1/nodes/")) == (404, "unknown_url")
    end.reports["PROVIDERS"] = {"providers": [{"provider_id": "p1", "type": "vllm", "health": "up", "in_flight": 2}]}
    assert operator.ask("/v1/nodes/n1/PROVIDERS").json == {
        "providers": [{"provider_id": "p1", "type": "vllm", "health": "up", "models": [], "in_flight": 2}],
        "truncated": False,
    }
    end.deaf_to_queries = True
    client = operator.client("/v1/nodes/n1/USAGE")
    operator.world.net.run(5)
    assert error(client.answer) == (504, "upstream_timeout")


def test_a_session_is_ended() -> None:
    operator = Operator()
    end = operator.world.node("n1")
    body = {"node_id": "n1", "adapter": "claude", "session_id": '["alice","s"]'}
    assert operator.ask("/v1/sessions/end", body).json == {"found": True}
    (request,) = end.cancels
    assert (request.action, request.adapter, request.session_id) == (
        m.CancelAction.TERMINATE_SESSION,
        "claude",
        '["alice","s"]',
    )
    assert error(operator.ask("/v1/sessions/end", {**body, "node_id": "n9"})) == (404, "unknown_url")
    for wrong in ({}, [], {**body, "adapter": 7}, {**body, "session_id": ""}):
        assert error(operator.ask("/v1/sessions/end", wrong)) == (400, "invalid_value")


def test_an_unconfirmed_cancel_degrades() -> None:
    operator = Operator()
    operator.world.node("n1")
    operator.world.pool.resources["p1"].unconfirmed = True
    one, two = operator.ask("/v1/status").json["providers"]
    assert (one["health"], two["status"], two["health"]) == ("degraded", "offline", "unknown")


def test_status_shows_the_revision_in_force() -> None:
    operator = Operator()
    operator.refresh(two_nodes(capacity=7))
    shown = operator.ask("/v1/status").json
    assert shown["revision"] == operator.world.refresher.revision
    assert {each["capacity"] for each in shown["providers"]} == {7}


# ---- usage


def test_usage_is_asked_for() -> None:
    operator = Operator()
    assert operator.ask("/v1/usage").json == {"usage": []}
    assert operator.ask("/v1/usage?by=token_ref%2Cmodel&since=7d&until=").status == 200
    assert operator.asked == [("", "", ""), ("7d", "", "token_ref,model")]
    operator.keeps_usage = False
    assert error(operator.ask("/v1/usage")) == (503, "ledger_away")


@pytest.mark.parametrize("query", ["sinse=7d", "by=model&by=day", "x", "&".join(f"by{n}=1" for n in range(99))])
def test_usage_that_is_asked_for_wrongly(query: str) -> None:
    assert error(Operator().ask(f"/v1/usage?{query}")) == (400, "invalid_value")


# ---- refresh


def test_a_dry_run_is_the_default() -> None:
    operator = Operator()
    operator.world.candidates["start"] = two_nodes(capacity=7)
    answer = operator.ask("/v1/config/refresh", {})
    assert answer.status == 200
    assert (answer.json["mode"], answer.json["status"], len(answer.json["changes"])) == ("dry_run", "applied", 2)
    assert operator.world.pool.resources["p1"].capacity == 10_000
    assert operator.ask("/v1/config/refresh", method="POST").json == answer.json
    assert operator.ask("/v1/config/refresh", {"files": None}).json == answer.json


def test_apply_answers_with_the_result() -> None:
    operator = Operator()
    answer = operator.refresh(two_nodes(7))
    assert answer.json["status"] == "applied"
    assert answer.json["reports"] == [
        {"node_id": "n1", "status": "offline", "message": ""},
        {"node_id": "n2", "status": "unchanged", "message": ""},
    ]
    assert list(answer.json) == [
        "mode",
        "status",
        "changed_nodes",
        "changed_providers",
        "changed_models",
        "changes",
        "reports",
        "errors",
        "revision_before",
        "revision_after",
    ]


@pytest.mark.parametrize("made", [BAD, two_nodes(7)])
def test_a_rejected_one_is_an_answer_too(made: Any) -> None:
    operator = Operator()
    operator.world.node("n1", FAIL)
    answer = operator.refresh(made)
    assert (answer.status, answer.json["status"]) == (200, "rejected")
    assert answer.json["errors"]


def test_an_unknown_mode_is_rejected() -> None:
    assert Operator().refresh(two_nodes(), "now").json["status"] == "rejected"


def test_it_goes_on_when_the_client_leaves() -> None:
    operator = Operator()
    end = operator.world.node("n1", SILENT)
    operator.world.candidates["/c.yaml"] = two_nodes(7)
    client = operator.client("/v1/config/refresh", {"mode": "apply", "files": ["/c.yaml"]})
    client.leave()
    operator.world.net.run()
    end.answer(end.asked[0], TAKE)
    operator.world.net.run()
    assert operator.world.refresher.running.nodes[0].runtime.concurrency == 7
    assert client.answers == []


@pytest.mark.parametrize(
    "body",
    [
        [],
        "x",
        {"mode": 1},
        {"mode": None},
        {"files": "/c.yaml"},
        {"files": ["c.yaml"]},
        {"files": [1]},
        {"files": ["/c\0.yaml"]},
        {"files": {"/a": 1}},
        {"what": 1},
    ],
)
def test_what_a_refresh_may_not_hold(body: Any) -> None:
    assert error(Operator().ask("/v1/config/refresh", body)) == (400, "invalid_value")


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[" * 100_000, b"nonsense"])
def test_a_body_that_is_no_json(body: bytes) -> None:
    assert error(Operator().ask("/v1/config/refresh", body)) == (400, "invalid_json")


def test_a_bug_is_an_answer_without_details(logged: Any) -> None:
    operator = Operator()
    operator.world.refresher._load = lambda files: 1 // 0  # type: ignore[assignment,return-value]
    assert error(operator.ask("/v1/config/refresh", {})) == (500, "internal")
    assert len(logged.failures()) == 1


# ---- routes


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        ("GET", "/", (404, "unknown_url")),
        ("GET", "/v1/models", (404, "unknown_url")),
        ("POST", "/v1/status", (405, "method_not_allowed")),
        ("POST", "/v1/usage", (405, "method_not_allowed")),
        ("GET", "/v1/config/refresh", (405, "method_not_allowed")),
        ("PUT", "/v1/config/refresh", (405, "method_not_allowed")),
    ],
)
def test_other_routes(method: str, target: str, expected: tuple[int, str]) -> None:
    assert error(Operator().ask(target, method=method)) == expected


def test_a_body_that_is_too_large() -> None:
    assert error(Operator().ask("/v1/config/refresh", b"x" * (LIMITS.body + 1))) == (413, "request_too_large")


# ---- its socket


class Listening:
    """A console listener on a real socket, with no reactor running."""

    def __init__(self, endpoint: str) -> None:
        self.listener = ConsoleListener(endpoint, Operator().server, reactor)
        got: list[Any] = []
        Deferred.fromCoroutine(self.listener.startService()).addBoth(got.append)
        (result,) = got
        if isinstance(result, TwistedFailure):
            result.raiseException()

    def die(self) -> None:
        """As a process that is killed: the file stays."""
        port: Any = self.listener.port
        port.stopReading()
        port.socket.close()

    def close(self) -> None:
        port: Any = self.listener.port
        port.stopReading()
        port.connectionLost(None)


def mode(path: Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_its_socket_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "console.sock"
    listening = Listening(f"unix:{path}")
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    listening.close()
    assert not path.exists()


@pytest.mark.parametrize(("written", "expected"), [("mode=660", 0o660), ("mode=0600", 0o600), ("mode=0o640", 0o640)])
def test_another_mode_may_be_chosen(tmp_path: Path, written: str, expected: int) -> None:
    path = tmp_path / "console.sock"
    listening = Listening(f"unix:{path}:{written}")
    assert mode(path) == expected
    listening.close()


def test_its_socket_never_has_more_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twisted sets the mode after it has bound: until then only the umask keeps others out."""
    path = tmp_path / "console.sock"
    before = tmp_path / "before"
    before.touch()
    monkeypatch.setattr(os, "chmod", lambda *_: None)
    listening = Listening(f"unix:{path}")
    assert mode(path) == 0o600
    listening.close()
    other = tmp_path / "other"
    other.touch()
    assert mode(other) == mode(before), "the umask is as it was"


def test_what_a_dead_edge_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "console.sock"
    Listening(f"unix:{path}").die()
    assert path.exists()
    listening = Listening(f"unix:{path}")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    listening.close()


def test_a_living_edge_keeps_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "console.sock"
    living = Listening(f"unix:{path}")
    with pytest.raises(CannotListen, match=r"console\.sock: another process answers there"):
        Listening(f"unix:{path}")
    assert path.exists()
    living.close()


def test_a_living_edge_that_is_busy_keeps_it_too(tmp_path: Path) -> None:
    path = tmp_path / "console.sock"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as client:
        busy.bind(str(path))
        busy.listen(0)
        client.connect(str(path))
        with pytest.raises(CannotListen, match="another process answers"):
            Listening(f"unix:{path}")


@pytest.mark.parametrize("link", [False, True])
def test_what_is_no_socket_is_left_alone(tmp_path: Path, link: bool) -> None:
    path = tmp_path / "console.sock"
    (tmp_path / "precious").write_text("precious")
    if link:
        path.symlink_to(tmp_path / "precious")
    else:
        path.write_text("precious")
    with pytest.raises(CannotListen, match="a file that is no socket"):
        Listening(f"unix:{path}")
    assert path.read_text() == "precious"


def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(CannotListen, match="others may write there"):
        Listening(f"unix:{folder}/console.sock")
    folder.chmod(0o1777)
    Listening(f"unix:{folder}/console.sock").close()


def test_a_path_that_is_too_long(tmp_path: Path) -> None:
    got: list[Any] = []
    path = str(tmp_path / ("x" * 108))
    Deferred.fromCoroutine(listen_privately(reactor, path, 0o600, Operator().server)).addErrback(got.append)
    assert "path too long" in str(got[0].value)


def test_a_socket_whose_file_is_gone_can_be_stopped(tmp_path: Path) -> None:
    path = tmp_path / "console.sock"
    listening = Listening(f"unix:{path}")
    path.unlink()
    got: list[Any] = []
    Deferred.fromCoroutine(listening.listener.stopService()).addBoth(got.append)
    assert got == [None]
    listening.die()
