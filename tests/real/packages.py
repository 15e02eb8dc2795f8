"""What npm has installed where ``install.py`` was told to."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from install import PACKAGES, version


def folder() -> Path:
    """Return where npm has worked, which may not be there."""
    return Path(os.environ.get("IOP_REAL_NPM", "node_modules-not-installed")).absolute()


def modules() -> Path:
    """Return npm's folder of packages there."""
    return folder() / "node_modules"


def wanted(package: str) -> Path:
    """Return a package's folder, in the version that was asked for; skip when it is not there."""
    asked = json.loads(PACKAGES.read_text())["dependencies"][package]
    found = version(folder(), package)
    if not found:
        pytest.skip(f"npm has not installed {package}")
    if found != asked:
        pytest.skip(f"{package} {found} is installed, and {asked} is asked for")
    return modules() / package


def program(package: str, command: str) -> Path:
    """Return a command of a package; skip when that is not there."""
    wanted(package)
    return modules() / ".bin" / command
