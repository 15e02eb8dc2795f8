"""Installs ``package.json`` into a directory: ``install.py DIR``. What npm cannot install is missing afterwards.

The tests skip what is missing and say so; this script fails for nothing but a wrong command line.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = Path(__file__).with_name("package.json")
PATIENCE = 900.0
"""Seconds that npm may take: the agents are 1.4 GB."""


def install(folder: Path) -> None:
    """Install what is not there yet."""
    done = folder / "installed.json"
    if done.exists() and done.read_bytes() == PACKAGES.read_bytes():
        return
    npm = shutil.which("npm")
    if npm is None:
        sys.stderr.write("there is no npm: no agent is installed\n")
        return
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(PACKAGES, folder / "package.json")
    command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    try:
        status = subprocess.run(command, cwd=folder, timeout=PATIENCE).returncode
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"npm took longer than {PATIENCE:g} s\n")
        return
    if status == 0:
        shutil.copy(PACKAGES, done)
    else:
        sys.stderr.write(f"npm ended with status {status}\n")


if __name__ == "__main__":
    install(Path(sys.argv[1]))
