"""The example drop-in in a real node, whose edge has never heard of it. docs/contracts/adapters.md, Discovery."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from linechat_example import EXAMPLE
from real_gateway import NODE_TOKEN, Backend, Gateway, provider, user
from running import TWISTD, Child, free_port, until

from iop.wire import translate

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables with which a process finds the example, which is dropped into a folder and not installed."""
    folder = tmp_path_factory.mktemp("dropped")
    for part in ("linechat", "twisted"):
        shutil.copytree(EXAMPLE / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "dropin.cache"))
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))}


@pytest.fixture(scope="module")
def parrot(work: Path, environ: dict[str, str]) -> Iterator[int]:
    """The port of the example's own backend."""
    port = free_port()
    child = Child("parrot", [sys.executable, "-m", "linechat.server", str(port)], work, environ=environ)

    def listens() -> bool:
        assert child.status is None, child.log
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(listens, "the parrot listens")
    yield port
    child.stop()


def linechat(id: str, **settings: Any) -> dict[str, Any]:
    """Return a provider of the drop-in's type, for :class:`Gateway`."""
    entry = {"id": id, "type": "linechat", "category": "api", "adapter": id, "models": ["parrot"], "capacity": 4}
    entry["health"] = {"interval_ms": 200}
    return {"adapter": {"name": id, "type": "linechat", **settings}, "provider": entry}


@pytest.fixture
def gateway(make_gateway: Callable[..., Gateway], environ: dict[str, str], parrot: int, fake: Backend) -> Gateway:
    """The drop-in once as it should be and twice wrong, beside a built-in type."""
    made = make_gateway(
        linechat("good", port=parrot),
        linechat("wrong", prot=parrot, silence_ms="soon"),
        linechat("absent", port=free_port()),
        provider("fake", fake, "openai"),
    )
    made.node_environ = environ
    made.start()
    until(lambda: health(made) == {"good": "up", "wrong": "down", "absent": "down", "fake": "unknown"}, "all are known")
    return made


def health(gateway: Gateway) -> dict[str, str]:
    return {each["provider_id"]: each["health"] for each in gateway.pool["providers"]}


def types_found(environ: dict[str, str]) -> set[str]:
    """Return the types that ``iop-node adapters`` lists."""
    command = [sys.executable, "-P", "-m", "iop.cli.node", "adapters", "--format", "json"]
    listed = subprocess.run(command, env=os.environ | environ, capture_output=True, text=True, timeout=40, check=True)
    return {each["type"] for each in json.loads(listed.stdout)}


def test_it_is_found_where_it_was_dropped_and_nowhere_else(environ: dict[str, str]) -> None:
    assert types_found(environ) - types_found({}) == {"linechat"}


def test_a_node_tells_its_edge_of_it(tmp_path: Path, environ: dict[str, str]) -> None:
    token = tmp_path / "token"
    token.write_text(NODE_TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        options = ["--edge", f"tcp:127.0.0.1:{listener.getsockname()[1]}", "--token-file", str(token)]
        command = [TWISTD, "-n", "--pidfile=", "iop-node", *options, "--state-dir", str(tmp_path / "node")]
        node = Child("node", command, tmp_path, measured=True, environ=environ)
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as file:
            connection.settimeout(20)
            kind, envelope = translate.parse(file.read(int.from_bytes(file.read(4), "big")))
            assert kind == "register_request"
            told = translate.decode(kind, envelope).adapter_types
        node.stop()
    assert {"linechat", "openai_compat", "ollama", "cli"} <= set(told)


def test_a_chat_works_streaming_and_not(gateway: Gateway) -> None:
    client = gateway.client()
    answer = client.chat.completions.create(model="good", messages=user("Es grünt so grün 🌱"))
    assert answer.choices[0].message.content == "Es grünt so grün 🌱"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 5)

    stream = client.chat.completions.create(
        model="good", messages=user("one two three"), stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    pieces = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
    assert pieces == ["one", " two", " three"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 6


def test_what_it_cannot_do_is_the_clients_to_know(gateway: Gateway) -> None:
    image: Any = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    with pytest.raises(openai.BadRequestError) as refused:
        gateway.client().chat.completions.create(model="good", messages=image)
    assert (refused.value.code, refused.value.param) == ("invalid_value", "messages[0].content")


def test_a_client_that_leaves_is_gone_at_the_backend(gateway: Gateway) -> None:
    stream = gateway.client().chat.completions.create(model="good", messages=user("word " * 5000), stream=True)
    next(iter(stream))
    assert in_flight(gateway) == 1
    stream.close()
    until(lambda: in_flight(gateway) == 0, "the run has ended", 5)


def in_flight(gateway: Gateway) -> int:
    return sum(each["in_flight"] for each in gateway.pool["providers"])


def test_wrong_settings_are_said_and_harm_no_other(gateway: Gateway) -> None:
    """The edge cannot know that they are wrong: it has no schema of the type."""
    assert "linechat" not in types_found({})
    for child in (gateway.node, gateway.edge):
        assert "wrong: port must be given, no setting of this type: prot, silence_ms breaks the rule" in child.log
        assert "soon" not in child.log
    assert "it could not make wrong: " in gateway.edge.log
    client = gateway.client()
    for model in ("wrong", "absent"):
        with pytest.raises(openai.InternalServerError) as down:
            client.chat.completions.create(model=model, messages=user("Hi"))
        assert down.value.code == "no_provider"
    for model in ("good", "fake"):
        assert client.chat.completions.create(model=model, messages=user("Hi")).choices


def test_a_node_that_has_not_got_it_says_what_it_has(make_gateway: Callable[..., Gateway], fake: Backend) -> None:
    made = make_gateway(linechat("good", port=1), provider("fake", fake, "openai"))
    made.start()
    until(lambda: health(made)["good"] == "down", "it is down")
    assert "good: no adapter type 'linechat' here; there are: cli, ollama, openai_compat" in made.edge.log
    assert made.client().chat.completions.create(model="fake", messages=user("Hi")).choices
