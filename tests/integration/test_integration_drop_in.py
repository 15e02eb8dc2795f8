"""The example drop-in, installed by pip, in a real node whose edge has never heard of it.

``docs/writing-an-adapter.md``; ``docs/contracts/adapters.md`` (Discovery).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import openai
import pytest
from linechat_example import EXAMPLE
from real_gateway import Backend, Gateway, provider, user
from running import Child, free_port, until

from iop.cli.edge import main as iop_edge
from iop.node.adapters import plugin

pytestmark = pytest.mark.slow

BARE_TOKEN = "the-token-of-a-node-without-the-package"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh folder that pip has installed the example into, from a copy: building leaves files beside the source."""
    folder = tmp_path_factory.mktemp("installed")
    copy = tmp_path_factory.mktemp("source") / "drop-in"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__", "dropin.cache"))
    pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "install", "--no-index"]
    child = Child("pip", [*pip, "--no-deps", "--no-build-isolation", "--target", str(folder), str(copy)], copy.parent)
    until(lambda: child.status is not None, "pip is done", 60)
    assert child.status == 0, child.log
    return folder


@pytest.fixture(scope="module")
def environ(installed: Path) -> dict[str, str]:
    """Variables with which a process finds what is installed."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(installed), os.environ.get("PYTHONPATH")]))}


@pytest.fixture(scope="module")
def parrot(work: Path, environ: dict[str, str]) -> Iterator[int]:
    """The port of the example's own backend, which is about to listen."""
    port = free_port()
    child = Child("parrot", [sys.executable, "-m", "linechat.server", str(port)], work, environ=environ)
    yield port
    child.stop()


def linechat(id: str, **settings: Any) -> dict[str, Any]:
    """Return a provider of the drop-in's type, for :class:`Gateway`."""
    entry = {"id": id, "type": "linechat", "category": "api", "adapter": id, "models": ["parrot"], "capacity": 4}
    entry["health"] = {"interval_ms": 200}
    return {"adapter": {"name": id, "type": "linechat", **settings}, "provider": entry}


@pytest.fixture(scope="module")
def gateway(work: Path, environ: dict[str, str], parrot: int, fake: Backend) -> Iterator[Gateway]:
    """The drop-in once as it should be and twice wrong, beside a built-in type; and a node that has not got it."""
    made = Gateway(
        work / "drop-in",
        linechat("good", port=parrot),
        linechat("wrong", prot=parrot, silence_ms="soon"),
        linechat("absent", port=free_port()),
        provider("fake", fake, "openai"),
    )
    _add_a_bare_node(made)
    try:
        made.start_edge()
        token_path = made.folder / "bare-token"
        token_path.write_text(BARE_TOKEN)
        made.another_node("bare", token_path)
        made.node_environ = environ
        made.start_node()
        expected = {"good": "up", "wrong": "down", "absent": "down", "fake": "unknown", "elsewhere": "down"}
        made.ready()
        until(lambda: health(made) == expected, "all are known")
        yield made
    finally:
        made.stop()


def _add_a_bare_node(gateway: Gateway) -> None:
    config = json.loads(gateway.config_path.read_text())
    elsewhere = linechat("elsewhere", port=1)
    node = {"id": "bare", "adapters": [elsewhere["adapter"]], "providers": [elsewhere["provider"]]}
    config["models"].append({"id": "elsewhere", "providers": ["elsewhere"]})
    config["nodes"].append(node | {"token_hash_sha256": sha256(BARE_TOKEN.encode()).hexdigest()})
    gateway.config_path.write_text(json.dumps(config))


def health(gateway: Gateway) -> dict[str, str]:
    return {each["provider_id"]: each["health"] for each in gateway.pool["providers"]}


def test_the_plugin_file_is_installed_where_discovery_looks(installed: Path) -> None:
    [info] = installed.glob("*.dist-info")
    files = {str(file) for file in Distribution.at(info).files or ()}
    assert "twisted/plugins/linechat_plugin.py" in files
    assert (installed / "twisted" / "plugins" / "linechat_plugin.py").is_file()
    assert not list(installed.glob("twisted/**/__init__.py"))


def test_it_is_found_where_it_was_installed_and_nowhere_else(environ: dict[str, str]) -> None:
    command = [sys.executable, "-P", "-m", "iop.cli.node", "adapters", "--format", "json"]
    listed = subprocess.run(command, env=os.environ | environ, capture_output=True, text=True, timeout=40, check=True)
    assert {each["type"] for each in json.loads(listed.stdout)} - set(plugin.found()) == {"linechat"}


def test_a_node_says_what_it_found_and_what_it_made(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    def capabilities(node: str) -> dict[str, Any]:
        state_dir = str(gateway.folder / "edge")
        assert iop_edge(["node", "ask", node, "CAPABILITIES", "--state-dir", state_dir, "--format", "json"]) == 0
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        return told

    told = capabilities("node-1")
    assert told["adapter_types"] == ["cli", "linechat", "ollama", "openai_compat"]
    made = {each["name"]: each for each in told["adapters"]}
    assert set(made) == {"good", "absent", "fake"}  # and not wrong
    assert (made["good"]["type"], made["good"]["modes"], made["good"]["sessions"]) == (
        "linechat",
        ["NORMALIZED"],
        False,
    )
    bare = capabilities("bare")
    assert (bare["adapter_types"], bare["adapters"]) == (["cli", "ollama", "openai_compat"], [])


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


def test_a_node_that_has_not_got_it_says_what_it_has(gateway: Gateway) -> None:
    assert "elsewhere: no adapter type 'linechat' here; there are: cli, ollama, openai_compat" in gateway.edge.log
