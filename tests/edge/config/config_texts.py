"""Configurations as tests write them: texts in, configuration or problems out."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iop.edge.config import ConfigError, EdgeConfig, Loaded, Problem, effective, load_document
from iop.edge.config.load import _load
from iop.edge.config.problems import Report
from iop.edge.config.read import read

STATE = Path("/state")


def load_texts(*texts: str, environ: Mapping[str, str] | None = None) -> Loaded:
    """Load texts as if they stood in files named a.yaml, b.yaml …"""
    names = [f"{'abcdefgh'[index]}.yaml" for index in range(len(texts))]
    report = Report(names)
    documents = [read(textwrap.dedent(text).encode(), name, report) for text, name in zip(texts, names, strict=True)]
    report.raise_errors() if None in documents else None
    return _load([each for each in documents if each is not None], report, environ or {}, STATE)


def config(*texts: str, **options: Any) -> EdgeConfig:
    return load_texts(*texts, **options).config


def shown(*texts: str, **options: Any) -> dict[str, Any]:
    return effective(config(*texts, **options))


def problems(*texts: str, **options: Any) -> list[Problem]:
    """What is wrong with the texts; nothing when they load."""
    try:
        load_texts(*texts, **options)
    except ConfigError as error:
        return list(error.problems)
    return []


def faults(*texts: str, **options: Any) -> list[tuple[str, str]]:
    """The same as pairs of path and code."""
    return [(problem.path, problem.code) for problem in problems(*texts, **options)]


def warnings(*texts: str, **options: Any) -> list[tuple[str, str]]:
    return [(problem.path, problem.code) for problem in load_texts(*texts, **options).warnings]


def reload(loaded: EdgeConfig) -> EdgeConfig:
    """The configuration that the effective document of another one gives."""
    return load_document(effective(loaded), state_dir=STATE).config


ADAPTER = '{name: a, type: openai_compat, base_url: "http://127.0.0.1:1/v1"}'


def node(providers: str = "[]", adapters: str = f"[{ADAPTER}]", rest: str = "") -> str:
    """A file of one edge with one node `n`, and whatever follows on the root."""
    head = f'edge: {{id: e}}\nnodes:\n  - id: n\n    token: "x"\n    adapters: {adapters}\n    providers: {providers}\n'
    return head + textwrap.dedent(rest)


def provider(**keys: Any) -> str:
    """One provider `p` in flow style; a key given as None is left out."""
    values = {"id": "p", "type": "vllm", "category": "local_inference", "adapter": "a", "models": "[m]"} | keys
    return "{" + ", ".join(f"{key}: {value}" for key, value in values.items() if value is not None) + "}"
