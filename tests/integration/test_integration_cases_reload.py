"""A half-written or wrong file under a running edge, and at its start: RL-01, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from raw_http import ask, chat
from real_gateway import Backend, Gateway, provider
from running import TWISTD, Child, until

pytestmark = pytest.mark.slow

SAID = "#warn] SIGHUP: rejected, 0 changes: "
GOOD = "#info] SIGHUP: applied, "


class Edited:
    """The file of a running gateway in its operator's editor, and what the edge makes of it."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.path = gateway.config_path
        self._document: dict[str, Any] = json.loads(self.path.read_text())

    def text(self, capacity: int, **root: Any) -> str:
        """Return a configuration in which the provider has that capacity, in block style as people write it."""
        document = json.loads(json.dumps(self._document))
        document["nodes"][0]["providers"][0]["capacity"] = capacity
        return str(yaml.safe_dump({**document, **root}, sort_keys=False))

    def replace(self, text: str) -> None:
        """Write beside the file, and rename over it, as editors do."""
        beside = self.path.with_suffix(".swp")
        beside.write_text(text)
        beside.replace(self.path)

    def hang_up(self) -> str:
        """Send SIGHUP; return all that the edge logs of it."""
        before = len(self.gateway.edge.log)
        self.gateway.edge.signal(signal.SIGHUP)

        def said() -> str:
            log = self.gateway.edge.log[before:]
            return log if log.endswith("\n") and "SIGHUP: " in log else ""

        return until(said, "the edge says what came of it")

    def apply(self) -> tuple[int, str]:
        """Run ``iop-edge config refresh --apply``; return its exit status and what it prints."""
        command = [sys.executable, "-P", "-m", "iop.cli.edge", "config", "refresh", "--apply"]
        command += ["--state-dir", str(self.gateway.folder / "edge")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False)
        return done.returncode, done.stdout + done.stderr

    @property
    def capacity(self) -> int:
        """In force."""
        (shown,) = self.gateway.pool["providers"]
        return int(shown["capacity"])


def half(edited: Edited) -> str:
    """As far as an editor had come: it ends in the middle of a line."""
    text = edited.text(9)
    text = text[: text.index("category:") + 5]
    edited.path.write_text(text)
    return "edge.json:"


def empty(edited: Edited) -> str:
    """Truncated, and nothing written yet."""
    edited.path.write_text("")
    return "edge: "


def unknown_node(edited: Edited) -> str:
    """Good YAML with a good change, and one reference that leads nowhere."""
    route = {"model": "m", "node": "nowhere", "adapter": "fake"}
    openai = {**json.loads(json.dumps(edited._document["openai"])), "model_routes": [route]}
    edited.path.write_text(edited.text(9, openai=openai))
    return "openai.model_routes[0].node: "


def wrong_by_rename(edited: Edited) -> str:
    edited.replace(edited.text(0))
    return "nodes[0].providers[0].capacity: "


def deleted(edited: Edited) -> str:
    edited.path.unlink()
    return "No such file or directory"


def unreadable(edited: Edited) -> str:
    """Readable for nobody; to those whom modes do not stop, a loop of links is as good."""
    edited.replace(edited.text(9))
    edited.path.chmod(0)
    if not os.access(edited.path, os.R_OK):
        return "Permission denied"
    edited.path.unlink()
    edited.path.symlink_to(edited.path.name)
    return "Too many levels of symbolic links"


WRONG: list[Callable[[Edited], str]] = [half, empty, unknown_node, wrong_by_rename, deleted, unreadable]


def test_rl_01_a_wrong_file_under_a_running_edge(make_gateway: Callable[..., Gateway], fake: Backend) -> None:
    """RL-01: at each step the last good configuration stays whole, one line says why, and a good file ends it."""
    edited = Edited(make_gateway(provider("fake", fake, "openai", capacity=1)).start())
    gateway = edited.gateway
    for number, spoil in enumerate(WRONG, 2):
        why = spoil(edited)
        line = edited.hang_up()
        assert line.count("\n") == 1
        assert SAID in line
        assert why in line
        status, printed = edited.apply()
        assert status == 4
        assert why in printed
        assert printed.splitlines()[-1].endswith("nothing was applied")
        assert edited.capacity == number - 1
        assert ask(gateway, chat("hello")).status == 200

        edited.replace(edited.text(number))
        assert GOOD in edited.hang_up()
        assert edited.capacity == number
    assert gateway.edge.status is None
    assert ask(gateway, chat("hello")).status == 200


def test_rl_01_every_file_that_is_cut_is_whole_or_refused(make_gateway: Callable[..., Gateway], fake: Backend) -> None:
    """RL-01: wherever a JSON file ends too early."""
    edited = Edited(make_gateway(provider("fake", fake, "openai", capacity=1)))
    text = edited.path.read_text()
    gateway = edited.gateway.start()
    for share in range(1, 8):
        edited.path.write_text(text[: len(text) * share // 8])
        assert SAID in edited.hang_up()
        edited.path.write_text(text)
        assert f"{GOOD}0 changes" in edited.hang_up()
    assert ask(gateway, chat("hello")).status == 200


def test_rl_01_a_wrong_file_at_the_first_start(make_gateway: Callable[..., Gateway], fake: Backend) -> None:
    """RL-01: the edge exits with an error, the reason last, and has opened nothing."""
    started: list[tuple[Child, str, Path]] = []
    for spoil in WRONG:
        edited = Edited(make_gateway(provider("fake", fake, "openai")))
        why = spoil(edited)
        state_dir = edited.gateway.folder / "edge"
        command = [TWISTD, "-n", "--pidfile=", "iop-edge", "--config", str(edited.path), "--state-dir", str(state_dir)]
        started.append((Child(spoil.__name__, command, edited.gateway.folder), why, state_dir))
    for child, why, state_dir in started:
        assert child.wait() == 1
        assert why in child.log
        assert "the configuration is refused:" in child.log
        assert "Traceback" not in child.log
        assert not state_dir.exists()
