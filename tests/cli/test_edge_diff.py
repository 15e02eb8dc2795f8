"""``iop-edge config diff``, as a person and as a program sees it. docs/contracts/refresh.md, Result."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from iop.cli import edge, text
from iop.edge.config import Problem
from iop.edge.config.setting import Effect
from iop.edge.refresh import Change, Kind, NodeReport, RefreshResult, ReportStatus

OLD = """
edge: {id: home}
provider_pool: {max_queue: 8}
nodes:
  - id: gpu-1
    token: marker-token
    adapters:
      - {name: v, type: openai_compat, base_url: "http://marker-user@h/v1", headers: {A: marker-header}}
      - {name: t, type: theirs, api_key: marker-key}
    providers:
      - {id: vllm-a, type: vllm, category: api, adapter: v, models: [qwen3], capacity: 4}
      - {id: vllm-b, type: vllm, category: api, base_url: "http://marker-user@i", models: [qwen3]}
models: [{id: qwen3, providers: [vllm-a]}]
"""
LIVE = OLD.replace("capacity: 4", "capacity: 8").replace(
    "models: [{id: qwen3, providers: [vllm-a]}]",
    "models:\n"
    "  - {id: qwen3, providers: [vllm-b, vllm-a], display_name: Qwen}\n"
    "  - {id: small, providers: [{id: vllm-a, target: qwen3}]}",
)
COSTLY = LIVE.replace("marker-token", "marker-other").replace("{A: marker-header}", "{B: marker-header}")
COSTLY = COSTLY.replace("marker-key", "marker-new").replace("marker-user@i", "marker-user:marker-password@i")
BAD = "edge: {id: home}\nheartbeat_ms: 0\n"


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run ``config diff``; its exit status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, content in (("old", OLD), ("live", LIVE), ("costly", COSTLY), ("bad", BAD)):
        (tmp_path / f"{name}.yaml").write_text(content)
    (tmp_path / "over.yaml").write_text("provider_pool: {max_queue: 9}\n")

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            status = edge.main(["config", "diff", *arguments])
        except SystemExit as leaving:
            status = int(leaving.code or 0)
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_nothing_changed(call: Any) -> None:
    assert call("old.yaml", "old.yaml") == (0, "no change\n", "")


def test_live_changes_for_people(call: Any) -> None:
    status, out, _ = call("old.yaml", "live.yaml")
    assert status == 0
    assert out.splitlines() == [
        '~ models[qwen3].display_name null → "Qwen" live',
        '~ models[qwen3].providers ["gpu-1/vllm-a=qwen3"] → ["gpu-1/vllm-b=qwen3", "gpu-1/vllm-a=qwen3"] live',
        "+ models[small] live",
        "~ nodes[gpu-1].providers[vllm-a].capacity 4 → 8 live",
        "4 changes would be applied live, without dropping a run",
    ]


def test_changes_that_need_a_restart_for_people(call: Any) -> None:
    status, out, _ = call("live.yaml", "costly.yaml")
    assert status == 3
    assert out.splitlines() == [
        "~ nodes[gpu-1].adapters[t].api_key *** → *** restart required",
        "- nodes[gpu-1].adapters[v].headers.A *** restart required",
        "+ nodes[gpu-1].adapters[v].headers.B *** restart required",
        '~ nodes[gpu-1].providers[vllm-b].base_url "http://***@i" → "http://***@i" restart required',
        "~ nodes[gpu-1].token *** → *** restart required",
        "restart required by 5 of 5 changes; nothing would be applied until the edge is restarted",
    ]


@pytest.mark.parametrize(
    "pair", [("old.yaml", "costly.yaml"), ("costly.yaml", "old.yaml"), ("costly.yaml", "bad.yaml")]
)
def test_no_secret_is_printed(call: Any, pair: tuple[str, str]) -> None:
    for form in ("text", "json"):
        _, out, err = call(*pair, "--format", form)
        assert "marker" not in out + err


def test_for_programs(call: Any) -> None:
    status, out, err = call("old.yaml", "costly.yaml", "--format", "json")
    document = json.loads(out)
    assert (status, err) == (3, "")
    assert (document["mode"], document["status"]) == ("dry_run", "restart_required")
    assert document["changed_nodes"] == ["gpu-1"]
    assert document["changed_providers"] == ["gpu-1/vllm-a", "gpu-1/vllm-b"]
    assert document["changed_models"] == ["qwen3", "small"]
    assert (document["errors"], document["reports"]) == ([], [])
    assert document["changes"][0] == {
        "path": "models[qwen3].display_name",
        "kind": "modified",
        "class": "live",
        "before": None,
        "after": "Qwen",
    }
    assert document["revision_before"] != document["revision_after"]


@pytest.mark.parametrize(("pair", "revisions"), [(("old.yaml", "bad.yaml"), 1), (("bad.yaml", "old.yaml"), 1)])
def test_what_does_not_load_is_rejected(call: Any, pair: tuple[str, str], revisions: int) -> None:
    status, out, err = call(*pair)
    assert (status, err) == (4, "")
    assert out.splitlines() == [
        "bad.yaml:2: heartbeat_ms: must be 1 or more [range]",
        "rejected: 1 error; nothing would be applied",
    ]
    status, out, _ = call(*pair, "--format", "json")
    document = json.loads(out)
    assert status == 4
    assert (document["status"], document["changes"]) == ("rejected", [])
    assert [each["code"] for each in document["errors"]] == ["range"]
    assert [document["revision_before"], document["revision_after"]].count(None) == revisions


def test_a_file_that_is_not_there(call: Any) -> None:
    status, out, _ = call("old.yaml", "missing.yaml")
    assert status == 4
    assert "missing.yaml" in out
    assert "[file]" in out


def test_an_overlay_set(call: Any) -> None:
    status, out, _ = call("old.yaml", "old.yaml,over.yaml")
    assert status == 0
    assert out.splitlines()[0] == "~ provider_pool.max_queue 8 → 9 live"
    assert call("old.yaml,over.yaml", "old.yaml,over.yaml")[1] == "no change\n"


@pytest.mark.parametrize(
    "arguments", [(), ("a",), ("a", ""), ("a", "b,"), ("a", ",b"), ("a", "b", "c"), ("a", "b", "-x")]
)
def test_wrong_usage(call: Any, arguments: tuple[str, ...]) -> None:
    status, out, err = call(*arguments)
    assert (status, out) == (2, "")
    assert "usage: iop-edge" in err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_only_on_a_terminal(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in call("old.yaml", "costly.yaml")[1]
    monkeypatch.setattr(sys, "stdout", Terminal())
    edge.main(["config", "diff", "old.yaml", "costly.yaml"])
    shown = sys.stdout.getvalue()
    assert "\x1b[33m~\x1b[0m nodes[gpu-1].providers[vllm-a].capacity 4 → 8 \x1b[32mlive\x1b[0m\n" in shown
    assert "\x1b[31m-\x1b[0m" in shown
    assert "\x1b[31mrestart required\x1b[0m\n" in shown
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    edge.main(["config", "diff", "old.yaml", "costly.yaml"])
    assert "\x1b" not in sys.stdout.getvalue()


# ---- text, without files ------------------------------------------------------------------------------------------


def lines(**options: Any) -> list[str]:
    return list(text.refresh(RefreshResult(**options), lambda words, colour: words))


def line(before: Any, after: Any) -> str:
    return lines(mode="dry_run", changes=(Change("x", Kind.MODIFIED, Effect.LIVE, before, after),))[0]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, 0, "~ x null → 0 live"),
        (True, False, "~ x true → false live"),
        ("4", 4, '~ x "4" → 4 live'),
        (["a"], [], '~ x ["a"] → [] live'),
        ("***", None, "~ x *** → null live"),
        ("é", "\u009b2J", '~ x "é" → "\\u009b2J" live'),
        ("a\nb", "\x1b[31m", '~ x "a\\nb" → "\\u001b[31m" live'),
        ("\u202eabc", "a", '~ x "\\u202eabc" → "a" live'),
        ("y" * 100, "z", f'~ x "{"y" * 58}… → "z" live'),
        ([{"a": 1}], None, '~ x [{"a": 1}] → null live'),
    ],
)
def test_values(before: Any, after: Any, expected: str) -> None:
    assert line(before, after) == expected


def test_an_entry_that_is_one_value_is_shown() -> None:
    changes = (
        Change("h.A", Kind.ADDED, Effect.RESTART, None, "***"),
        Change("h.B", Kind.REMOVED, Effect.RESTART, 5, None),
        Change("m[a]", Kind.REMOVED, Effect.LIVE, {"id": "a"}, None),
    )
    assert lines(mode="dry_run", changes=changes) == [
        "+ h.A *** restart required",
        "- h.B 5 restart required",
        "- m[a] live",
        "restart required by 2 of 3 changes; nothing would be applied until the edge is restarted",
    ]


def test_what_was_applied() -> None:
    change = Change("x", Kind.MODIFIED, Effect.LIVE, 1, 2)
    reports = (
        NodeReport("a", ReportStatus.APPLIED),
        NodeReport("b", ReportStatus.ROLLED_BACK, "another node refused"),
    )
    assert lines(mode="apply", changes=(change,), reports=reports) == [
        "~ x 1 → 2 live",
        "a: applied",
        "b: rolled back: another node refused",
        "1 change was applied live, without dropping a run",
    ]
    assert lines(mode="apply", changes=(change, change))[-1].startswith("2 changes were applied live")
    assert lines(mode="apply") == ["no change"]
    errors = (Problem("", 1, "", "file", "no"),)
    assert lines(mode="apply", errors=errors)[-1] == "rejected: 1 error; nothing was applied"
