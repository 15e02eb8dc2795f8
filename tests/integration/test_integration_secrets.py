"""Planted secrets, and everything that an edge and a node let out: none is in any of it. Case AU-04.

Principal, node and provider tokens, a backend's key and the password of its URL, an agent's key, the password of the
ledger's database, the control plane's token. Neither a secret, nor its first eight characters, nor its SHA-256 may be
in a log of either program at its most talkative, in what clients and operators are told, in the metrics, in a command
line, or on disk; a backend gets its own alone. ``docs/contracts/openai.md`` (Authentication),
``docs/contracts/adapters.md`` (Credentials).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import signal
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from raw_http import Answer, Wire, head, post
from real_gateway import Backend, Gateway, agent, provider, user
from running import Child, free_port, get, until

pytestmark = pytest.mark.slow

IOP_EDGE: Final = str(Path(sysconfig.get_path("scripts")) / "iop-edge")


def planted(name: str) -> str:
    """Return a secret; its characters are not those of the numbers and ids that logs are full of."""
    digest = hashlib.sha256(f"the secret of {name}".encode()).hexdigest()[:40]
    return digest.translate(str.maketrans("0123456789abcdef", "ghijkmnpqrstuvwz"))


NAMES: Final = (
    *("PRINCIPAL", "WRONG", "NODE", "PROVIDER", "HEADER", "USERINFO", "QUERY"),
    *("AGENT", "DATABASE", "CONTROL", "DROP_IN"),
)
SECRETS: Final = tuple(map(planted, NAMES))
PRINCIPAL, WRONG, NODE, PROVIDER, HEADER, USERINFO, QUERY, AGENT, DATABASE, CONTROL, DROP_IN = SECRETS
BASIC: Final = base64.b64encode(f"user:{USERINFO}".encode()).decode()

CARELESS = '''
"""An adapter that breaks, and quotes what it was given, as libraries do of a header that they refuse."""

from zope.interface import implementer, provider

from iop import model as m
from iop.interfaces import IAdapter, IAdapterFactory


@implementer(IAdapter)
class Careless:
    def __init__(self, settings):
        self._settings = settings

    def start(self):
        if self._settings["breaks"] == "start":
            raise ValueError(f"no start with {self._settings}")

    def stop(self):
        raise ValueError(f"no stop with {self._settings}")

    def run(self, run, sink):
        raise ValueError(f"illegal header {self._settings['headers']['x-key']!r} of {run.request.secret_headers}")

    def probe(self, path=""):
        raise ValueError(f"no probe with {self._settings}")

    models = probe

    def sessions(self):
        raise ValueError(f"no sessions with {self._settings}")

    def terminate_session(self, session_id):
        return False


@provider(IAdapterFactory)
class factory:
    name = "careless"
    title = "One that breaks"
    settings_schema = {"type": "object"}
    capabilities = {"modes": {m.Mode.NORMALIZED}, "endpoints": (), "sessions": False, "embeddings": False}

    @staticmethod
    def make(settings, environment):
        if settings["breaks"] == "make":
            raise ValueError(f"cannot be made of {settings}")
        return Careless(settings)
'''
PLUGIN = (
    'from iop.node.adapters.plugin import AdapterPlugin\n\ncareless = AdapterPlugin("careless", "careless:factory")\n'
)


def careless(breaks: str) -> dict[str, Any]:
    """Return a provider of that adapter."""
    entry = {"id": breaks, "type": "careless", "category": "api", "adapter": breaks, "models": [breaks], "capacity": 4}
    entry["health"] = {"interval_ms": 100}
    adapter = {"name": breaks, "type": "careless", "breaks": breaks, "headers": {"x-key": "${env:DROP_IN}"}}
    return {"adapter": adapter, "provider": entry}


class Seen:
    """Everything that came out, by where it was seen."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def add(self, where: str, what: str | bytes) -> None:
        self._seen[where] = self._seen.get(where, "") + (what if isinstance(what, str) else what.decode("latin-1"))

    def __getitem__(self, where: str) -> str:
        return self._seen[where]

    def secrets(self) -> list[str]:
        """Say which secrets are where, in words that do not repeat them."""
        found = []
        for where, text in self._seen.items():
            for name, secret in zip(NAMES, SECRETS, strict=True):
                digest = hashlib.sha256(secret.encode()).hexdigest()
                forms = {
                    "": secret[:8],
                    "SHA-256 of ": digest,
                    "base64 of ": base64.b64encode(secret.encode()).decode(),
                }
                found += [
                    f"{form}{name} in {where}: {around(text, value)}" for form, value in forms.items() if value in text
                ]
            found += [f"the Basic credentials in {where}"] * (BASIC in text)
        return found


NAMES: Final = [
    "PRINCIPAL",
    "WRONG",
    "NODE",
    "PROVIDER",
    "HEADER",
    "USERINFO",
    "QUERY",
    "AGENT",
    "DATABASE",
    "CONTROL",
    "DROP_IN",
]


def around(text: str, value: str) -> str:
    at = text.index(value)
    return repr(text[max(0, at - 150) : at])


class World:
    """An edge and a node full of secrets.

    :param ledger: its URL.
    """

    def __init__(self, make: Callable[..., Gateway], folder: Path, fake: Backend, format: str, ledger: str) -> None:
        (folder / "twisted" / "plugins").mkdir(parents=True)
        (folder / "twisted" / "plugins" / "careless_plugin.py").write_text(PLUGIN)
        (folder / "careless.py").write_text(CARELESS)
        for name, secret in zip(NAMES, SECRETS, strict=True):
            (folder / name).write_text(secret)
        with_password = f"http://user:${{file:{folder}/USERINFO}}@127.0.0.1"
        own = {"headers": {"x-backend-key": f"${{file:{folder}/HEADER}}"}}
        local = provider("gone", fake, "openai")
        local["adapter"]["base_url"] = f"{with_password}:{free_port()}/v1"
        basic = provider("basic", fake, "openai", headers={})
        basic["adapter"]["base_url"] = f"{with_password}:{fake.port}/v1"
        providers = [
            provider("fake", fake, "openai", **own),
            basic,
            local,
            agent("agent", env={"AGENT_KEY": f"${{file:{folder}/AGENT}}"}),
            *map(careless, ("run", "make", "start")),
        ]
        for each in providers[4:]:
            each["adapter"]["headers"] = {"x-key": f"${{file:{folder}/DROP_IN}}"}
        self.metrics_port = free_port()
        token = {
            "token_ref": "alice-laptop",
            "token_hash_sha256": hashlib.sha256(PRINCIPAL.encode()).hexdigest(),
            "principal_ref": "alice",
        }
        self.gateway = make(
            *providers,
            openai={"principal_tokens": [token], "provider_auth": {"enabled": True, "required": False}},
            logging={"level": "debug", "format": format},
            ledger={"url": ledger},
            metrics={"listen": f"tcp:{self.metrics_port}:interface=127.0.0.1"},
            control_plane={"endpoint": f"tcp:127.0.0.1:{free_port()}", "token": f"${{file:{folder}/CONTROL}}"},
        )
        self._config_of_the_node(folder)
        self.gateway.node_environ = {"PYTHONPATH": str(folder)}
        self.gateway.start()
        (folder / "stranger").write_text(WRONG)
        stranger = self.gateway.another_node("stranger", folder / "stranger")
        self.children = {"edge": self.gateway.edge, "node": self.gateway.node, "stranger": stranger}
        self.seen = Seen()

    def _config_of_the_node(self, folder: Path) -> None:
        document = json.loads(self.gateway.config_path.read_text())
        del document["nodes"][0]["token_hash_sha256"]
        document["nodes"][0]["token"] = f"${{file:{folder}/NODE}}"
        self.gateway.config_path.write_text(json.dumps(document))
        self.gateway.token_path.write_text(NODE)

    # ---- asking -------------------------------------------------------------------------------------------------

    def ask(self, name: str, data: bytes) -> Answer:
        with Wire(self.gateway.port) as wire:
            answer = wire.ask(data)
        self.seen.add(f"answer: {name}", repr((answer.status, answer.headers, answer.body)))
        return answer

    def command(self, *words: str) -> str:
        """Run ``iop-edge``; return what it printed."""
        ran = subprocess.run([IOP_EDGE, *words], capture_output=True, text=True, timeout=30, check=False)
        self.seen.add("iop-edge " + " ".join(words[:2]), ran.stdout + ran.stderr)
        return ran.stdout + ran.stderr

    def look(self) -> None:
        """Take in what there is to be seen from outside, and what is on disk."""
        for name, child in self.children.items():
            self.seen.add(f"log: {name}", child.log)
            for pid in [] if child.status is not None else family(child.pid):
                self.seen.add("process list", Path(f"/proc/{pid}/cmdline").read_bytes())
        for name in self.children:
            for file in (self.gateway.folder / name).rglob("*"):
                if file.is_file():
                    self.seen.add(f"file: {file.relative_to(self.gateway.folder)}", file.read_bytes())


def family(pid: int) -> list[int]:
    """Return a process and all that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in map(int, children) for each in family(child))]


LEDGERS: Final = {"text": "sqlite:ledger.sqlite3", "json": "postgresql://iop:DATABASE@127.0.0.1:PORT/usage"}


@pytest.fixture(params=["text", "json"])
def world(
    request: pytest.FixtureRequest, tmp_path: Path, make_gateway: Callable[..., Gateway], fake: Backend
) -> Iterator[World]:
    """The ledger is a file where the log is text, and a database that is away where it is JSON."""
    url = LEDGERS[request.param].replace("DATABASE", DATABASE).replace("PORT", str(free_port()))
    if request.param == "json":
        pytest.importorskip("psycopg")
    made = World(make_gateway, tmp_path / "secrets", fake, request.param, url)
    yield made
    for child in made.children.values():
        child.stop()
        child.log_path.write_text("")  # its tracebacks are asked for


def chat_as(content: str, model: str, *headers: str, stream: bool = False) -> bytes:
    body = {"model": model, "messages": user(content), "stream": stream}
    return post(json.dumps(body).encode(), *headers, key=PRINCIPAL)


FORWARDED: Final = f"x-iop-provider-authorization: Bearer {PROVIDER}"


def test_no_secret_comes_out(world: World, fake: Backend) -> None:
    what_goes_well(world, fake)
    what_is_refused_at_the_door(world)
    broken = what_fails_behind_it(world)
    agents(world)
    operators(world, broken.headers["x-request-id"])
    a_configuration_that_is_refused(world)
    until(lambda: "token" in world.children["stranger"].log, "the stranger is told why")
    for child in reversed(world.children.values()):
        child.signal(signal.SIGTERM)
        child.wait()
    world.look()
    found = world.seen.secrets()
    assert not found, "\n".join(found)
    readable(world.seen, world.gateway.edge, world.gateway.node)


def what_goes_well(world: World, fake: Backend) -> None:
    """A backend is told its own: the caller's token for it, the adapter's header, what its URL says."""
    for stream in (False, True):
        assert world.ask("good", chat_as("hello", "fake", FORWARDED, stream=stream)).status == 200
        upstream = fake.stats["last"]
        headers = upstream["headers"]
        assert (headers.pop("authorization"), headers.pop("x-backend-key")) == (f"Bearer {PROVIDER}", HEADER)
        world.seen.add("request upstream", repr(upstream))
    assert world.ask("basic", chat_as("hello", "basic")).status == 200
    upstream = fake.stats["last"]
    assert upstream["headers"].pop("authorization") == f"Basic {BASIC}"
    world.seen.add("request upstream, as the URL says", repr(upstream))


def what_is_refused_at_the_door(world: World) -> None:
    queries = (f"/v1/messages?api_key={WRONG}", f"/v1/models?key={PRINCIPAL}", f"/nothing?key={WRONG}")
    for path in ("/v1/chat/completions", *queries):
        for name, value in (("authorization", f"Bearer {WRONG}"), ("x-api-key", WRONG), ("authorization", WRONG)):
            answer = world.ask("wrong token", head("POST", path, f"{name}: {value}", "content-length: 0", key=""))
            assert answer.status in (401, 404, 405), (path, answer.status)
    assert world.ask("an id", head("GET", "/v1/models", f"x-request-id: {WRONG}!", key=PRINCIPAL)).status == 200


def what_fails_behind_it(world: World) -> Answer:
    """Backends that repeat what they were sent, one that is away, an adapter that breaks; return its answer."""
    for status in (401, 403, 400, 404, 422, 429, 500, 503):
        for stream in (False, True):
            answer = world.ask(f"betrayed {status}", chat_as(f"betray {status}", "fake", FORWARDED, stream=stream))
            assert answer.status >= 400
    stream = world.ask("betrayed in a stream", chat_as("betray 200", "fake", FORWARDED, stream=True))
    assert "Incorrect API key provided" in stream.events[-1]
    assert world.ask("betrayed, Basic", chat_as("betray 400", "basic")).status == 400
    assert world.ask("gone", chat_as("hello", "gone")).status == 502
    broken = world.ask("exception", chat_as("hello", "run", FORWARDED))
    assert (broken.status, broken.error["code"]) == (500, "internal")
    return broken


def agents(world: World) -> None:
    for order in ("hello", "die", "fail 1"):
        world.ask("agent", chat_as(order, "agent"))
    betrayed = world.ask("agent, betrayed", chat_as("betray", "agent"))
    assert "this key is not valid: [credential]" in betrayed.error["message"]
    assert world.ask("agent, its arguments", chat_as("tell arguments", "agent")).status == 200
    with Wire(world.gateway.port) as hanging:
        hanging.send(chat_as("hang", "agent", stream=True))
        hanging.begin(1)
        until(lambda: len(family(world.gateway.node.pid)) > 1, "the agent runs")
        world.look()


def operators(world: World, request_id: str) -> None:
    """What they ask an edge, and what is to be seen without a token."""
    gateway, seen = world.gateway, world.seen
    status, metrics = get(f"http://127.0.0.1:{world.metrics_port}/metrics")
    assert status == 200
    seen.add("metrics", metrics)
    for path in ("/openapi.json", "/v1/models", "/healthz", "/readyz"):
        seen.add(path, get(f"{gateway.url}{path}")[1])
    config, other = str(gateway.config_path), gateway.folder / "other.json"
    other.write_text(gateway.config_path.read_text().replace("/HEADER}", "/QUERY}").replace("/CONTROL}", "/NODE}"))
    for words in (["check", config], ["show", config], ["diff", config, str(other)]):
        world.command("config", *words)
    state = ["--state-dir", str(gateway.folder / "edge")]
    for words in (
        ["config", "refresh", "--dry-run", str(other)],
        ["config", "refresh", "--apply", str(other)],
        ["status", "--format", "json"],
        ["pool", "status", "--format", "json"],
        ["usage", "--by", "token_ref,model"],
        ["run", "explain", request_id],
        *(["node", "ask", "node-1", kind] for kind in ("USAGE", "CAPABILITIES", "SESSIONS", "PROVIDERS")),
    ):
        world.command(*words, *state)
    assert "***" in seen["iop-edge config show"]
    assert "headers" in seen["iop-edge config diff"]
    assert '"fake"' in seen["iop-edge status --format"]
    assert request_id in seen["iop-edge run explain"]


def a_configuration_that_is_refused(world: World) -> None:
    """Every problem is said, by path."""
    refused = world.gateway.folder / "refused.json"
    document = json.loads(world.gateway.config_path.read_text())
    adapters = document["nodes"][0]["adapters"]
    adapters[0]["base_url"] = f"http://user:{USERINFO}@127.0.0.1/v1?key={QUERY}"
    adapters[1]["headers"] = {"Authorization": f"Bearer {HEADER}\r\nx: y"}
    document["openai"]["principal_tokens"][0]["token_hash_sha256"] = PRINCIPAL
    document["ledger"] = {"url": f"postgres://iop:{DATABASE}@h/x"}
    refused.write_text(json.dumps(document))
    state = ["--state-dir", str(world.gateway.folder / "edge")]
    for words in (
        ["config", "check", str(refused)],
        ["config", "refresh", "--apply", str(refused), *state],
        ["run", "--config", str(refused), "--state-dir", str(world.gateway.folder / "another")],
    ):
        said = world.command(*words)
        assert all(word in said for word in ("base_url", "headers", "token_hash_sha256", "url")), said


def readable(seen: Seen, edge: Child, node: Child) -> None:
    """The rest is still worth reading: who asked, what broke and where."""
    assert "token_ref=alice-laptop" in edge.log
    assert "chat 500 internal" in edge.log
    assert "health 200" in edge.log  # which is for debugging
    assert "the ledger's database is away" in edge.log or "alice-laptop" in seen["file: edge/ledger.sqlite3"]
    assert re.search(r"an adapter failed on run-\w+", node.log)
    for words in ("cannot be made of", "no start with", "no stop with", "no sessions with", "no probe with"):
        assert f"ValueError: {words} {{" in node.log, words
    assert re.search(r'File ".*careless.py", line \d+, in run\s', node.log)
    assert "ValueError: illegal header '[credential]' of (('Authorization', '[credential]'),)" in node.log
    assert "'breaks': 'make', 'headers': {'x-key': '[credential]'}" in node.log
    assert "Incorrect API key provided: " in seen["answer: betrayed 400"]
