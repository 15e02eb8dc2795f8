"""Load: the whole pipeline from files to a configuration.

``read → merge overlays → interpolate secrets → check the schema → normalize → validate → EdgeConfig``. Only a file that
cannot be read or is not YAML stops it; every other stage runs on what the earlier ones left, and everything that is
wrong is said at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from iop.edge.config.check import check
from iop.edge.config.document import build
from iop.edge.config.interpolate import interpolate
from iop.edge.config.model import EdgeConfig
from iop.edge.config.normalize import normalize
from iop.edge.config.overlay import merge
from iop.edge.config.problems import Problem, Report
from iop.edge.config.read import read_file
from iop.edge.config.schema import schema
from iop.edge.config.tree import Map, marked
from iop.edge.config.validate import validate
from iop.edge.config.warn import warn_literal_secrets, warn_unused


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that loads, with what is probably not meant in it."""

    config: EdgeConfig
    warnings: tuple[Problem, ...]


def load(files: Sequence[Path | str], *, environ: Mapping[str, str], state_dir: Path | None = None) -> Loaded:
    """The configuration in these files, each laid over those before it.

    :param environ: where ``${env:NAME}`` looks.
    :param state_dir: where the console's socket and the ledger are by default; see :func:`default_state_dir`.
    :raises ConfigError: with everything that is wrong.
    """
    report = Report([str(file) for file in files])
    documents = [document for file in report.files if (document := read_file(file, report)) is not None]
    if len(documents) < len(report.files):
        report.raise_errors()
    return _load(documents, report, environ, state_dir)


def load_document(
    document: Mapping[str, Any], *, environ: Mapping[str, str] | None = None, state_dir: Path | None = None
) -> Loaded:
    """The configuration in a document that was made in memory; references in it are relative to the working directory.

    :raises ConfigError: with everything that is wrong; the problems have no file.
    """
    tree = marked(document)
    return _load([tree if isinstance(tree, Map) else Map()], Report(), environ or {}, state_dir)


def _load(documents: Sequence[Map], report: Report, environ: Mapping[str, str], state_dir: Path | None) -> Loaded:
    report.tree = merge(documents, report)
    report.tree = interpolate(report.tree, environ, report)
    checked = check(schema(), report.tree, report)
    normal = normalize(checked, report, state_dir=state_dir or default_state_dir(environ))
    validate(normal, report)
    warn_literal_secrets(checked, report)
    warn_unused(normal, report)
    report.raise_errors()
    return Loaded(build(EdgeConfig, normal), report.sorted(report.warnings))


#: What :func:`default_state_dir` returns, for a command's help.
STATE_DIR_WORDS: Final = "$STATE_DIRECTORY, else ~/.local/state/iop/edge"


def default_state_dir(environ: Mapping[str, str]) -> Path:
    """Where an edge keeps its state unless told: systemd's directory for it, else the user's.

    A relative ``XDG_STATE_HOME`` counts as none, as the specification of those directories says.
    """
    if environ.get("STATE_DIRECTORY"):
        return Path(environ["STATE_DIRECTORY"].partition(":")[0])
    if os.path.isabs(environ.get("XDG_STATE_HOME", "")):
        return Path(environ["XDG_STATE_HOME"]) / "iop/edge"
    return Path(environ["HOME"]) / ".local/state/iop/edge" if environ.get("HOME") else Path("/var/lib/iop/edge")
