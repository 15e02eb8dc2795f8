"""From YAML files to one frozen, typed configuration.

Pure: nothing here imports Twisted, opens a socket or looks at the environment that it is not given.
"""

from __future__ import annotations

from iop.edge.config.document import canonical, effective, revision
from iop.edge.config.load import STATE_DIR_WORDS, Loaded, default_state_dir, load, load_document
from iop.edge.config.manual import manual
from iop.edge.config.model import EdgeConfig
from iop.edge.config.problems import ConfigError, Problem
from iop.edge.config.redact import redact
from iop.edge.config.schema import schema

__all__ = [
    "STATE_DIR_WORDS",
    "ConfigError",
    "EdgeConfig",
    "Loaded",
    "Problem",
    "canonical",
    "default_state_dir",
    "effective",
    "load",
    "load_document",
    "manual",
    "redact",
    "revision",
    "schema",
]
