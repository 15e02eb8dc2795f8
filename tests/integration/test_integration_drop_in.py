"""The example drop-in, installed by pip beside IOP, in a real node whose edge has never heard of it.

``docs/writing-an-adapter.md``; ``docs/contracts/adapters.md`` (Discovery).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from hashlib import sha256
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest
from linechat_example import EXAMPLE
from real_gateway import Backend, Gateway, provider, user
from running import Child, free_port, until

from iop.cli.edge import main as iop_edge
from iop.node.adapters import plugin

pytestmark = pytest.mark.slow

CLONE = EXAMPLE.parents[2]
SOURCES = ("iop", "twisted", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")
"""What an installation of IOP is made of."""

BARE_TOKEN = "the-token-of-a-node-without-the-package"

CONTRACT = """
import sys
import iop, linechat  # what tests import later is what is there already
import pytest
for package in (iop, linechat):
    assert package.__file__.startswith(sys.prefix), package
sys.exit(pytest.main(sys.argv[1:]))
"""


class Environment(NamedTuple):
    """A virtual environment; it borrows what IOP needs from that of the tests, and nothing of theirs is installed."""

    root: Path

    @property
    def python(self) -> str:
        return str(self.root / "bin" / "python")

    @property
    def iop_node(self) -> str:
        return str(self.root / "bin" / "iop-node")

    @property
    def packages(self) -> Path:
        [found] = self.root.glob("lib/python*/site-packages")
        return found


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A fresh environment into which pip has installed IOP and the example, as their users do.

    From copies: building leaves files beside the source. What else IOP needs is a path away: nothing is downloaded.
    """
    folder = tmp_path_factory.mktemp("fresh")
    made, source = Environment(folder / "venv"), folder / "source"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made.root], timeout=60, check=True)
    borrowed = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (made.packages / "borrowed.pth").write_text("".join(f"{path}\n" for path in borrowed))
    left = shutil.ignore_patterns("build", "*.egg-info", "__pycache__", "dropin.cache")
    shutil.copytree(EXAMPLE, source / "drop-in", ignore=left)
    (source / "iop").mkdir()
    for name in SOURCES:
        path, copy = CLONE / name, source / "iop" / name
        shutil.copytree(path, copy, ignore=left) if path.is_dir() else shutil.copy(path, copy)
    pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "--no-cache-dir"]
    pip += ["--python", made.python, "install", "--no-index", "--no-deps", "--no-build-isolation"]
    child = Child("pip", [*pip, str(source / "iop"), str(source / "drop-in")], folder)
    until(lambda: child.status is not None, "pip is done", 60)
    assert child.status == 0, child.log
    return made


@pytest.fixture(scope="module")
def parrot(work: Path, fresh: Environment) -> Iterator[int]:
    """The port of the example's own backend, which is about to listen."""
    port = free_port()
    child = Child("parrot", [fresh.python, "-m", "linechat.server", str(port)], work)
    yield port
    child.stop()


def linechat(id: str, **settings: Any) -> dict[str, Any]:
    """Return a provider of the drop-in's type, for :class:`Gateway`."""
    entry = {"id": id, "type": "linechat", "category": "api", "adapter": id, "models": ["parrot"], "capacity": 4}
    entry["health"] = {"interval_ms": 200}
    return {"adapter": {"name": id, "type": "linechat", **settings}, "provider": entry}


@pytest.fixture(scope="module")
def gateway(work: Path, fresh: Environment, parrot: int, fake: Backend) -> Iterator[Gateway]:
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
        made.node_command = [fresh.iop_node, "run"]
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


def test_the_plugin_file_is_installed_where_discovery_looks(fresh: Environment) -> None:
    [info] = fresh.packages.glob("iop_linechat-*.dist-info")
    files = {str(file) for file in Distribution.at(info).files or ()}
    assert "twisted/plugins/linechat_plugin.py" in files
    assert (fresh.packages / "twisted" / "plugins" / "linechat_plugin.py").is_file()
    assert not list(fresh.packages.glob("twisted/**/__init__.py"))


def test_it_is_listed_where_it_was_installed_and_nowhere_else(fresh: Environment) -> None:
    command = [fresh.iop_node, "adapters", "--format", "json"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=40, check=True)
    assert [each["type"] for each in json.loads(listed.stdout)] == ["cli", "linechat", "ollama", "openai_compat"]
    assert set(plugin.found()) == {"cli", "ollama", "openai_compat"}


def test_what_was_installed_passes_the_contract(fresh: Environment) -> None:
    """The whole of its tests, the shared ones included, with neither package from the clone."""
    tests = CLONE / "tests" / "contracts" / "test_contract_drop_in.py"
    command = [fresh.python, "-P", "-c", CONTRACT, "-p", "no:cacheprovider", str(tests)]
    ran = subprocess.run(command, cwd=CLONE, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr


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
