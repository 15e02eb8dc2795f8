"""Installs ``package.json`` into a directory: ``install.py DIR``. What npm cannot install is missing afterwards.

The tests skip what is missing and say so. This script fails where they would skip every agent there is.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from agents import AGENTS

PACKAGES = Path(__file__).with_name("package.json")
AIMOCK = "@copilotkit/aimock"
"""Every agent's model: without it none can be tried."""

PATIENCE = 900.0
"""Seconds that npm may take: the agents are 1.4 GB."""


def install(folder: Path) -> None:
    """Install what is not there yet: all at once, or else one by one, as many as there are."""
    done = folder / "installed.json"
    if done.exists() and done.read_bytes() == PACKAGES.read_bytes():
        return
    npm = shutil.which("npm")
    if npm is None:
        sys.stderr.write("there is no npm: no agent is installed\n")
        return
    folder.mkdir(parents=True, exist_ok=True)
    wanted = json.loads(PACKAGES.read_text())
    if _run(npm, folder, wanted):
        shutil.copy(PACKAGES, done)
        return
    had: dict[str, str] = {}
    for name, version in wanted["dependencies"].items():
        if _run(npm, folder, wanted | {"dependencies": had | {name: version}}):
            had[name] = version
        else:
            sys.stderr.write(f"{name} {version} cannot be installed\n")
    _run(npm, folder, wanted | {"dependencies": had})


def version(folder: Path, package: str) -> str:
    """Return the version of a package that a directory has, "" where it has none."""
    try:
        return str(json.loads((folder / "node_modules" / package / "package.json").read_text())["version"])
    except OSError:
        return ""


def lacking(folder: Path) -> str:
    """Return why a directory is good for no agent's tests, "" where it is good for one's at least."""
    asked = json.loads(PACKAGES.read_text())["dependencies"]
    there = {package for package in asked if version(folder, package) == asked[package]}
    if not there.intersection(agent.package for agent in AGENTS):
        return f"none of the agents is installed: {', '.join(agent.package for agent in AGENTS)}"
    return "" if AIMOCK in there else f"{AIMOCK} is not installed, and no agent is tried without it"


def _run(npm: str, folder: Path, package: dict[str, Any]) -> bool:
    """Make a directory hold what a package needs; return whether it does."""
    (folder / "package.json").write_text(json.dumps(package))
    command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    try:
        return subprocess.run(command, cwd=folder, timeout=PATIENCE).returncode == 0
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"npm took longer than {PATIENCE:g} s\n")
        return False


if __name__ == "__main__":
    install(Path(sys.argv[1]))
    sys.exit(lacking(Path(sys.argv[1])) or None)
