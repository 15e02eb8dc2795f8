"""What npm has installed where ``install.py`` was told to."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from install import PACKAGES


def modules() -> Path:
    """Return npm's folder of packages, which may not be there."""
    return Path(os.environ.get("IOP_REAL_NPM", "node_modules-not-installed")).absolute() / "node_modules"


def wanted(package: str) -> Path:
    """Return a package's folder, in the version that was asked for; skip when it is not there."""
    version = json.loads(PACKAGES.read_text())["dependencies"][package]
    try:
        found = json.loads((modules() / package / "package.json").read_text())["version"]
    except OSError:
        pytest.skip(f"npm has not installed {package}")
    if found != version:
        pytest.skip(f"{package} {found} is installed, and {version} is asked for")
    return modules() / package


def program(package: str, command: str) -> Path:
    """Return a command of a package; skip when that is not there."""
    wanted(package)
    return modules() / ".bin" / command
