"""``iop-edge usage`` against a scripted console. docs/contracts/ledger.md (Reading)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_edge_live import Call, Script, call, folder, script

__all__ = ["call", "folder", "script"]


def sums(**group: str) -> dict[str, Any]:
    return {
        **group,
        "runs": 1234,
        "input_tokens": 5_000_000,
        "output_tokens": 20,
        "cached_tokens": 0,
        "reasoning_tokens": 0,
        "estimated": 1,
        "mean_queue_ms": 0.5,
        "mean_first_ms": None,
        "mean_total_ms": 1000.0,
    }


BY_TWO = {
    "since": "2026-07-24T12:00:00Z",
    "until": None,
    "by": ["token_ref", "model"],
    "usage": [sums(token_ref="app", model="m\x1b"), sums(token_ref="", model="longer")],
    "truncated": False,
}
TOTAL = {"since": None, "until": None, "by": [], "usage": [sums()], "truncated": True}


def test_a_table(script: Script, call: Call) -> None:
    script.says(BY_TWO)
    status, out, err = call("usage", "--since", "7d", "--by", "token_ref,model")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "token_ref  model    runs      input  output  cached  reasoning  estimated  queue ms  first ms  total ms",
        "app        m?      1,234  5,000,000      20       0          0          1       0.5         -   1,000.0",
        "-          longer  1,234  5,000,000      20       0          0          1       0.5         -   1,000.0",
    ]
    assert script.asked == [("GET /v1/usage?since=7d&by=token_ref%2Cmodel HTTP/1.1", None)]


def test_a_total_of_what_did_not_fit(script: Script, call: Call) -> None:
    script.says(TOTAL)
    status, out, err = call("usage")
    assert (status, len(out.splitlines())) == (0, 2)
    assert err == "there are more than 1 groups; the rest is left out\n"
    assert script.asked == [("GET /v1/usage HTTP/1.1", None)]


def test_json_and_csv(script: Script, call: Call) -> None:
    script.says(BY_TWO)
    assert json.loads(call("usage", "--by", "token_ref,model", "--format", "json")[1]) == BY_TWO
    script.says(BY_TWO)
    status, out, _ = call("usage", "--by", "token_ref,model", "--until", "2026-08-01", "--format", "csv")
    assert (status, out.splitlines()) == (
        0,
        [
            f"token_ref,model,{','.join(sums())}",
            "app,m?,1234,5000000,20,0,0,1,0.5,,1000.0",
            ",longer,1234,5000000,20,0,0,1,0.5,,1000.0",
        ],
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--since", "yesterday"), "a time is 30m, 24h, 7d or 4w, or a date as 2026-07-31"),
        (("--until", "7"), "a time is 30m, 24h, 7d or 4w, or a date"),
        (("--by", "prompt"), "`by` knows no prompt; it knows token_ref, principal_ref"),
        (("--by", "model,model"), "`by` names one thing twice"),
        (("--since", "1h", "--until", "2h"), "`since` is not before `until`"),
        (("--format", "text"), "table"),
        (("--sinc", "1h"), "--sinc"),
    ],
)
def test_what_is_no_question(arguments: tuple[str, ...], words: str, script: Script, call: Call) -> None:
    status, out, err = call("usage", *arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert script.asked == []


@pytest.mark.parametrize("message", ["this edge keeps no usage", "the ledger's database is away: it hangs"])
def test_an_edge_that_does_not_know(message: str, script: Script, call: Call) -> None:
    script.says({"error": {"code": "ledger_off", "message": message}}, 503)
    assert call("usage") == (1, "", f"error: {message}\n")


def test_an_edge_of_another_version(script: Script, call: Call) -> None:
    script.says({"usage": [{}]})
    status, _, err = call("usage")
    assert (status, "is of another version" in err) == (1, True)


def test_no_edge(call: Call) -> None:
    status, _, err = call("usage", "--console", "/nowhere.sock")
    assert (status, err) == (1, "error: no edge answers at /nowhere.sock: No such file or directory\n")
