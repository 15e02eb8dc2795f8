"""The commented examples load, and a large configuration loads quickly."""

from __future__ import annotations

import hashlib
import re
import time
from pathlib import Path

import pytest

from iop.edge.config import load
from iop.node.config import CREDENTIAL

ETC = Path(__file__).parents[3] / "etc"
OVERLAYS = [ETC / "overlay.secrets.yaml"]
EXAMPLES = sorted(path for path in [*ETC.glob("*.yaml"), *ETC.glob("examples/*/*.yaml")] if path not in OVERLAYS)


def environ(*files: Path) -> dict[str, str]:
    names = [name for file in files for name in re.findall(r"\$\{env:(\w+)\}", file.read_text())]
    return {name: hashlib.sha256(name.encode()).hexdigest() for name in names}


CREDENTIALS = "/run/credentials/iop-edge.service"


def credentials(path: Path) -> set[str]:
    """The systemd credentials that a file names."""
    return set(re.findall(rf"\$\{{file:{CREDENTIALS}/([^}}]+)\}}", path.read_text()))


def placed(path: Path, folder: Path) -> Path:
    """The file, with the credentials it names in this folder instead of systemd's."""
    for name in credentials(path):
        (folder / name).write_text(hashlib.sha256(name.encode()).hexdigest())
    copy = folder / path.name
    copy.write_text(path.read_text().replace(CREDENTIALS, str(folder)))
    return copy


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_loads_without_a_warning(path: Path, tmp_path: Path) -> None:
    assert load([placed(path, tmp_path)], environ=environ(path)).warnings == ()


def unit(name: str) -> dict[str, list[str]]:
    """A systemd unit's settings, each with all its values."""
    found: dict[str, list[str]] = {}
    for line in (ETC / "systemd" / name).read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def test_the_units_hand_over_the_credentials_that_are_asked_for() -> None:
    edge, node = unit("iop-edge.service"), unit("iop-node.service")
    given = {value.partition(":")[0] for value in edge["LoadCredential"]}
    assert given == credentials(ETC / "systemd-credentials.yaml")
    assert [value.partition(":")[0] for value in node["LoadCredential"]] == [CREDENTIAL]
    assert edge["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert edge["StateDirectoryMode"] == ["0700"]


def test_the_overlay_lies_over_the_first_example() -> None:
    files = [ETC / "edge.yaml", *OVERLAYS]
    loaded = load(files, environ=environ(*files))
    assert loaded.config.listen.startswith("ssl:")
    assert loaded.config.nodes[0].token is None
    assert len(loaded.config.nodes) == 2


def test_they_are_all_there() -> None:
    names = {path.name for path in EXAMPLES}
    assert {"edge.yaml", "one-machine.yaml", "mixed-pool.yaml", "cli-agents.yaml", "three-nodes.yaml"} <= names
    assert {"systemd-credentials.yaml", "linechat.yaml"} <= names


@pytest.mark.slow
def test_a_large_configuration_loads_quickly(tmp_path: Path) -> None:
    lines = ["edge: {id: e}", "nodes:"]
    for node in range(100):
        lines += [
            f"  - id: n{node}",
            f"    token: t{node}",
            "    adapters: [{name: o, type: ollama}]",
            "    providers:",
        ]
        for provider in range(10):
            names = ", ".join(f"m{model}" for model in range(200))
            lines += [f"      - {{id: p{node}-{provider}, type: ollama, category: api, adapter: o, models: [{names}]}}"]
    lines += ["models:"]
    lines += [f"  - {{id: m{model}, providers: [p{model % 100}-{model % 10}]}}" for model in range(200)]
    file = tmp_path / "large.yaml"
    file.write_text("\n".join(lines))
    start = time.process_time()
    loaded = load([file], environ={}).config
    assert len(loaded.nodes) == 100
    assert time.process_time() - start < 5  # about one second; the rest is for a busy machine
