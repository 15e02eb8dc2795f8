"""docs/metrics.md, the dashboard and the alerts name metrics and labels that exist, and the page names every one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from iop.edge.metrics import names, words

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text()
DASHBOARD = json.loads((ROOT / "etc" / "grafana" / "iop-edge.json").read_text())
ALERTS = yaml.safe_load((ROOT / "etc" / "prometheus" / "alerts.yaml").read_text())

SCRAPED = {"instance", "job"}
"""Labels that Prometheus gives to what it scrapes."""

LABELS: dict[str, set[str]] = {}
for metric in names.ALL:
    if metric.type == "histogram":
        LABELS |= {metric.name + end: {*metric.labels} for end in ("_count", "_sum")}
        LABELS[metric.name + "_bucket"] = {*metric.labels, "le"}
    else:
        LABELS[metric.name] = {*metric.labels}

PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}

VALUES = {
    ("iop_requests_total", "outcome"): set(words.OUTCOMES),
    ("iop_input_tokens_total", "cache"): {"hit", "miss", "unknown"},
    ("iop_nodes", "state"): {"online", "draining", "pending", "offline"},
    ("iop_model_replicas", "state"): {"ready", "down"},
    ("iop_config_reloads_total", "outcome"): {"applied", "restart_required", "rejected"},
    ("iop_build_info", "component"): {"edge"},
}
"""What may stand for a label in a query."""


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> Iterator[str]:
    for panel in panels():
        yield from (target["expr"] for target in panel["targets"])
    for group in ALERTS["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for block in re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL):
        yield from (line for line in block.splitlines() if line and not line.startswith("#"))


@pytest.mark.parametrize("query", list(queries()))
def test_a_query_asks_for_what_there_is(query: str) -> None:
    used = re.findall(r"\b((?:iop|process)_\w+)(?:\{([^}]*)\})?", query)
    assert used
    may_group = {"le"} | SCRAPED
    for name, selectors in used:
        if name in PROCESS:
            continue
        assert name in LABELS
        may_group |= LABELS[name]
        for label, value in re.findall(r'(\w+)=~?"([^"]*)"', selectors):
            assert label in LABELS[name] | SCRAPED
            if not value.startswith("$") and label not in SCRAPED:
                assert set(value.split("|")) <= VALUES[name, label]
    for grouped in re.findall(r"\bby \(([^)]*)\)", query):
        assert set(re.split(r",\s*", grouped)) <= may_group
    assert query.count("(") == query.count(")")
    assert query.count("{") == query.count("}")


def test_a_quantile_is_grouped_by_its_buckets() -> None:
    for query in queries():
        if "histogram_quantile" in query:
            assert "_bucket" in query
            assert re.search(r"by \([^)]*\ble\b", query)


def test_the_page_has_every_metric_with_its_type_and_labels() -> None:
    rows = re.findall(r"^\| `(iop_\w+)` \| (\w+) \| ([^|]*)\|", PAGE, re.MULTILINE)
    assert {(name, type, tuple(re.findall(r"`(\w+)`", labels))) for name, type, labels in rows} == {
        (metric.name, metric.type, metric.labels) for metric in names.ALL
    }
    assert len(rows) == len(names.ALL)


def test_the_page_has_every_word() -> None:
    listed = set(re.findall(r"`(\w+)`", PAGE))
    assert {*words.OUTCOMES, *words.OPERATIONS, *words.SURFACES, *words.FALLBACKS, words.UNKNOWN, words.OTHER} <= listed
    for reasons in (words.REJECTIONS, words.RETRIES, words.AUTH):
        assert set(reasons.values()) <= listed


def test_the_page_names_nothing_else() -> None:
    assert set(re.findall(r"\biop_\w+", PAGE)) <= LABELS.keys() | {metric.name for metric in names.ALL}


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    assert {"uid", "title", "schemaVersion", "panels", "templating"} <= DASHBOARD.keys()
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    assert set(re.findall(r"\$\{?([a-z]\w*)\}?", json.dumps(DASHBOARD))) <= variables
    for panel in panels():
        assert panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24


def test_an_alert_says_what_is_wrong() -> None:
    rules = [rule for group in ALERTS["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["summary"].endswith(".")
