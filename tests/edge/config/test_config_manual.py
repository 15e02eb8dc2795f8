"""The manual of settings: whole, and as committed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iop.edge.config import manual, schema
from iop.edge.config.model_nodes import INLINE, OLDER_QUEUE
from iop.settings import SETTINGS

COMMITTED = Path(__file__).parents[3] / "docs/configuration.md"
ROW = re.compile(r"\| `([^`]+)` \| (.+?) \| (.+?) \| (live|restart) \| (.+?) \| (.*?) ?\|$", re.MULTILINE)
ROWS = ROW.findall(manual())


def test_the_committed_one_is_what_the_schema_gives() -> None:
    advice = "run: iop-edge config schema --format markdown > docs/configuration.md"
    assert COMMITTED.read_text() == manual(), advice


def test_every_row_is_whole() -> None:
    rows = [line for line in manual().splitlines() if line.startswith("| `")]
    assert len(rows) == len(ROWS)


def test_every_setting_has_its_row() -> None:
    root = schema()
    declared = list(root["properties"])
    for part in root["$defs"].values():
        declared += part["properties"]
    for kind in SETTINGS.values():
        declared += kind["properties"]
    shown = [path.rpartition(".")[2] for path, *_ in ROWS]
    assert sorted(shown) == sorted(declared)


def test_every_setting_shows_a_value() -> None:
    for path, type_, default, _, _, example in ROWS:
        obvious = "section" in type_ or "one of" in type_ or "true or false" in type_ or default.startswith("`")
        assert obvious or example, path


@pytest.mark.parametrize(
    ("path", "row"),
    [
        ("edge.id", ("name", "**required**", "restart", "The edge's stable identity.", "`home`")),
        ("heartbeat_ms", ("number ≥ 1", "`10000`", "restart", "Silence after which a link is pinged.", "")),
        ("provider_pool.max_queue", ("number ≥ 0", "`16`", "live", "Pending runs in the whole edge; 0 means 16.", "")),
        (
            "nodes[].token",
            (
                "string",
                "none",
                "restart",
                "What the node proves itself with. Exactly one of token and token_hash_sha256. Hidden in every output.",
                "`${env:GPU_1_TOKEN}`",
            ),
        ),
        (
            "nodes[].adapters[].max_connections",
            ("number 1 to 65535", "`1024`", "restart", "The size of the connection pool.", ""),
        ),
    ],
)
def test_some_rows(path: str, row: tuple[str, ...]) -> None:
    assert row in [tuple(cells) for name, *cells in ROWS if name == path]


def test_a_providers_own_settings_stand_apart() -> None:
    for key in (*INLINE, *OLDER_QUEUE):
        assert manual().count(f"| `nodes[].providers[].{key}` |") == 1
    assert "## `nodes[].providers[]`, inline execution" in manual()
