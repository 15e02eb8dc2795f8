"""``iop-edge pool simulate``, as a person and as a program sees it. docs/contracts/pool.md, Simulator."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from iop.cli.edge import main

EDGE = """
edge: {id: e}
provider_pool: {max_queue: 1, queue_timeout_ms: 500}
nodes:
  - id: n
    token: x
    adapters: [{name: a, type: ollama, base_url: "http://127.0.0.1:1"}]
    providers: [{id: p, type: ollama, category: local_inference, adapter: a, models: [m], capacity: 1}]
models: [{id: m, providers: [p]}]
"""
LINE = '{{"at": {at}, "id": "r{at}", "model": "m", "tokens": 1, "service_ms": 100}}\n'
REFRESH = '{"at": 30, "op": "refresh", "config": "new.yaml"}\n'

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run ``pool simulate`` on four requests and what else a trace holds; its exit status, stdout and stderr."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(
        *arguments: str, edge: str = EDGE, config: str = "edge.yaml", trace: str = "", new: str = EDGE
    ) -> tuple[int, str, str]:
        (tmp_path / "edge.yaml").write_text(edge)
        (tmp_path / "new.yaml").write_text(new)
        (tmp_path / "t.jsonl").write_text(trace or "".join(LINE.format(at=at) for at in (0, 10, 20, 150)))
        words = ["pool", "simulate", "--config", str(tmp_path / config), "--trace", str(tmp_path / "t.jsonl")]
        try:
            status = main([*words, *arguments])
        except SystemExit as leaving:
            status = int(leaving.code or 0)
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_for_people(call: Call) -> None:
    status, out, err = call()
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "4 runs, 3 complete",
        "  refused: queue_full: 1 (25.0 %)",
        "waits: p50 50 ms, p95 90 ms, p99 90 ms, max 90 ms",
        "most waiting at one time: 1",
        "provider  runs  utilisation",
        "n/p          3      100.0 %",
    ]


def test_who_waited_too_long_was_refused(call: Call) -> None:
    """It is among the refusals of the report, and of a sweep."""
    edge = EDGE.replace("queue_timeout_ms: 500", "queue_timeout_ms: 50")
    status, out, err = call(edge=edge)
    assert (status, err) == (0, "")
    assert out.splitlines()[:3] == [
        "4 runs, 2 complete",
        "  refused: queue_full: 1 (25.0 %)",
        "  refused: queue_timeout: 1 (25.0 %)",
    ]
    _, row = call("--sweep", "p=1", edge=edge)[1].splitlines()
    assert row.split()[:3] == ["1", "2", "2"]


def test_who_left_or_was_lost_was_not_refused(call: Call) -> None:
    trace = "".join(LINE.format(at=at) for at in (0, 10)) + '{"at": 20, "op": "cancel", "id": "r10"}\n'
    trace += '{"at": 30, "op": "node_down", "node": "n"}\n'
    status, out, _ = call(trace=trace)
    assert status == 0
    assert out.splitlines()[:3] == ["2 runs, 0 complete", "  cancelled: 1 (50.0 %)", "  node_lost: 1 (50.0 %)"]
    _, row = call("--sweep", "p=1", trace=trace)[1].splitlines()
    assert row.split()[:3] == ["1", "0", "0"]


def test_later_files_overlay_earlier_ones(call: Call, tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text("provider_pool: {max_queue: 2}\n")
    status, out, err = call("--config", str(tmp_path / "more.yaml"))
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == "4 runs, 4 complete"


def test_for_programs(call: Call) -> None:
    status, out, _ = call("--format", "json")
    document = json.loads(out)
    assert status == 0
    assert document["runs"][1] == {
        "id": "r10",
        "outcome": "complete",
        "provider": "n/p",
        "queued_ms": 90,
        "started_at": 100,
        "ended_at": 200,
    }
    assert document["summary"]["providers"] == {"n/p": {"utilisation": 1.0, "runs": 3}}


def test_a_sweep_compares(call: Call) -> None:
    status, out, _ = call("--sweep", "n/p=1,2")
    assert status == 0
    heads, one, two = out.splitlines()
    assert heads.split()[:3] == ["n/p", "complete", "refused"]
    assert (one.split()[:3], two.split()[:3]) == (["1", "3", "1"], ["2", "4", "0"])
    document = json.loads(call("--sweep", "p=1,2", "--format", "json")[1])
    assert [each["capacities"] for each in document["sweep"]] == [{"n/p": 1}, {"n/p": 2}]


def test_of_several_sweeps_every_combination_is_tried(call: Call) -> None:
    second = "{id: q, type: ollama, category: local_inference, adapter: a, models: [m], capacity: 1}"
    edge = EDGE.replace("capacity: 1}]", f"capacity: 1}}, {second}]").replace("[p]", "[p, q]")
    sweeps = ["--sweep", "p=1,2", "--sweep", "q=1,3"]
    status, out, err = call(*sweeps, "--format", "json", edge=edge)
    assert (status, err) == (0, "")
    assert [each["capacities"] for each in json.loads(out)["sweep"]] == [
        {"n/p": 1, "n/q": 1},
        {"n/p": 1, "n/q": 3},
        {"n/p": 2, "n/q": 1},
        {"n/p": 2, "n/q": 3},
    ]
    heads, *rows = call(*sweeps, edge=edge)[1].splitlines()
    assert heads.split()[:2] == ["n/p", "n/q"]
    assert [row.split()[:2] for row in rows] == [["1", "1"], ["1", "3"], ["2", "1"], ["2", "3"]]


def test_an_id_with_a_slash_is_swept_as_it_is_called(call: Call) -> None:
    edge = EDGE.replace("id: p", "id: team/p").replace("[p]", "[team/p]")
    for name in ("team/p", "n/team/p"):
        status, out, err = call("--sweep", f"{name}=1", edge=edge)
        assert (status, err, out.split()[0]) == (0, "", "n/team/p")


@pytest.mark.parametrize(
    ("arguments", "how", "expected", "said"),
    [
        (["--sweep", "p=0"], {}, 2, "whole numbers from 1 to"),
        (["--sweep", "p"], {}, 2, "whole numbers from 1 to"),
        (["--sweep", "q=1"], {}, 2, "q: there is no such provider"),
        (["--sweep", "nope/p=1"], {}, 2, "nope/p: there is no such provider"),
        (["--sweep", "p=1", "--sweep", "n/p=2"], {}, 2, "n/p: it is given twice"),
        (["--sweep", "p=1_0"], {}, 2, "whole numbers from 1 to"),
        (["--sweep", "p=\u0663"], {}, 2, "whole numbers from 1 to"),
        (["--sweep", "p=2147483648"], {}, 2, "whole numbers from 1 to"),
        (["--sweep", "\x1b[31m=1"], {}, 2, "--sweep ?[31m: there is"),
        ([], {"trace": "{"}, 2, "line 1: not JSON"),
        ([], {"trace": REFRESH, "new": EDGE.replace("id: e", "id: f")}, 3, "is not live"),
        ([], {"trace": REFRESH, "new": "edge: {id: e}\nheartbeat_ms: 0\n"}, 4, "heartbeat_ms"),
        ([], {"config": "none.yaml"}, 4, "none.yaml"),
    ],
)
def test_what_cannot_be_simulated(
    call: Call, arguments: list[str], how: dict[str, str], expected: int, said: str
) -> None:
    status, out, err = call(*arguments, **how)
    assert status == expected
    assert said in out + err
    assert "Traceback" not in err


@pytest.mark.parametrize("how", ["the configuration", "that of a refresh"])
def test_a_configuration_that_does_not_load_is_a_programs_to_read(call: Call, how: str) -> None:
    """The document of ``config check``, and nothing else."""
    broken = EDGE.replace("edge: {id: e}", "edge: {id: e}\nheartbeat_ms: 0")
    if how == "the configuration":
        status, out, err = call("--format", "json", edge=broken)
    else:
        status, out, err = call("--format", "json", trace=REFRESH, new=broken)
    document = json.loads(out)
    assert (status, err) == (4, "")
    assert (sorted(document), document["valid"]) == (["errors", "valid", "warnings"], False)
    assert [(each["path"], each["code"]) for each in document["errors"]] == [("heartbeat_ms", "range")]


def test_the_second_of_two_refreshes_is_not_live(call: Call, tmp_path: Path) -> None:
    """Each is a change of the one before it: the result says what the second would need."""
    again = REFRESH.replace("30", "40").replace("new.yaml", "edge.yaml")
    new = EDGE.replace("max_queue: 1", "max_queue: 2")
    assert call(trace=REFRESH + again, new=new)[0] == 0
    (tmp_path / "other.yaml").write_text(new.replace("id: e", "id: f"))
    status, out, err = call("--format", "json", trace=REFRESH + again.replace("edge.yaml", "other.yaml"), new=new)
    document = json.loads(out)
    assert (status, document["status"], document["mode"]) == (3, "restart_required", "dry_run")
    assert [change["path"] for change in document["changes"]] == ["edge.id", "edge.name"]
    assert err == "error: the refresh at 40 ms, to other.yaml, is not live\n"


def test_a_trace_that_cannot_be_read(call: Call) -> None:
    status, out, err = call("--trace", "/nowhere/t.jsonl")
    assert (status, out) == (2, "")
    assert err == "error: the trace /nowhere/t.jsonl: it cannot be read: No such file or directory\n"


def test_what_a_trace_holds_moves_no_cursor(call: Call) -> None:
    status, out, err = call(trace=LINE.format(at=0).replace('"model"', r'"\u001b[2J": 1, "model"'))
    assert (status, out) == (2, "")
    assert "?[2J is not known here" in err
    assert "\x1b" not in err


def test_a_sweep_below_the_long_slots(call: Call) -> None:
    """A provider has no more long slots than slots."""
    edge = EDGE.replace("capacity: 1", "capacity: 3, long_context_capacity: 2").replace(
        "edge: {id: e}", "edge: {id: e}\nlong_context_threshold_tokens: 1"
    )
    status, out, _ = call("--sweep", "p=1,2,3", "--format", "json", edge=edge)
    swept = json.loads(out)["sweep"]
    assert status == 0
    assert [each["summary"]["outcomes"] for each in swept] == [{"complete": 3, "queue_full": 1}, *[{"complete": 4}] * 2]
    assert [each["summary"]["max_pending"] for each in swept] == [1, 1, 1]


def test_a_sweep_holds_across_a_refresh(call: Call) -> None:
    """The capacity that is tried out is the refreshed configuration's too; all else of that takes effect."""
    trace = LINE.format(at=0) + REFRESH.replace("30", "5") + "".join(LINE.format(at=at) for at in (10, 20, 30))
    new = EDGE.replace("max_queue: 1", "max_queue: 2").replace("capacity: 1", "capacity: 4")
    status, out, _ = call("--sweep", "p=1,2", "--format", "json", trace=trace, new=new)
    one, two = json.loads(out)["sweep"]
    assert status == 0
    assert (one["summary"]["outcomes"], one["summary"]["max_pending"]) == ({"complete": 3, "queue_full": 1}, 2)
    assert (two["summary"]["outcomes"], two["summary"]["max_pending"]) == ({"complete": 4}, 2)
