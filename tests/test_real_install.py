"""``tests/real/install.py``, which ``tox -e real`` runs first: it fails where every agent's tests would be skipped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

REAL = Path(__file__).parent / "real"
ASKED: dict[str, str] = json.loads((REAL / "package.json").read_text())["dependencies"]

NPM = """#!{python} -IS
import json, pathlib, sys
asked = json.loads(pathlib.Path("package.json").read_text())["dependencies"]
if not set(asked) <= {has}:
    sys.exit(1)
for name, version in asked.items():
    folder = pathlib.Path("node_modules", name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text(json.dumps({{"version": version}}))
"""


def install(folder: Path, *has: str) -> subprocess.CompletedProcess[str]:
    """Run it with an npm that can install these packages, and nothing together with another."""
    programs = folder / "programs"
    programs.mkdir()
    npm = programs / "npm"
    npm.write_text(NPM.format(python=sys.executable, has=set(has) or "set()"))
    npm.chmod(0o755)
    return run(folder, programs)


def run(folder: Path, programs: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REAL / "install.py"), str(folder / "npm")]
    environ = {**os.environ, "PATH": str(programs)}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)


def test_without_a_single_agent_the_run_fails(tmp_path: Path) -> None:
    done = install(tmp_path, "@copilotkit/aimock", "openai", "zod")
    assert done.returncode == 1
    assert done.stderr.endswith(
        "none of the agents is installed: @anthropic-ai/claude-code, @openai/codex, opencode-ai, @google/gemini-cli, "
        "@qwen-code/qwen-code\n"
    )


def test_without_npm_it_fails(tmp_path: Path) -> None:
    done = run(tmp_path, tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("there is no npm: no agent is installed\nnone of the agents is installed: ")


def test_without_their_models_it_fails(tmp_path: Path) -> None:
    done = install(tmp_path, *set(ASKED) - {"@copilotkit/aimock"})
    assert done.returncode == 1
    assert done.stderr.endswith("@copilotkit/aimock is not installed, and no agent is tried without it\n")


def test_one_agent_is_enough_and_what_is_missing_is_named(tmp_path: Path) -> None:
    done = install(tmp_path, "@copilotkit/aimock", "opencode-ai")
    assert (done.returncode, done.stdout) == (0, "")
    missing = [f"{name} {version} cannot be installed" for name, version in ASKED.items()]
    missing = [line for line in missing if not line.startswith(("@copilotkit/aimock ", "opencode-ai "))]
    assert done.stderr.splitlines() == missing


def test_an_agent_of_another_version_is_none(tmp_path: Path) -> None:
    """What npm could not bring up to date is not what was asked for, and its tests are skipped."""
    old = tmp_path / "npm" / "node_modules" / "@openai" / "codex"
    old.mkdir(parents=True)
    (old / "package.json").write_text('{"version": "0.0.1"}')
    done = install(tmp_path, "@copilotkit/aimock")
    assert done.returncode == 1
    assert "none of the agents is installed" in done.stderr


def test_all_of_it(tmp_path: Path) -> None:
    done = install(tmp_path, *ASKED)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
