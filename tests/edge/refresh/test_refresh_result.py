"""The result as a value and as a document."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

import pytest
from refresh_cases import ALL, BASE, UNSET_CASES, Case, changed, diff, load

from iop.edge.config import ConfigError, Problem, load_document, revision
from iop.edge.config.setting import Effect
from iop.edge.refresh import Change, Kind, NodeReport, RefreshMode, RefreshResult, ReportStatus, Status, plan

KEYS = {"mode", "status", "changed_nodes", "changed_providers", "changed_models", "changes", "reports", "errors"}
KEYS |= {"revision_before", "revision_after"}
LISTS = ("changed_nodes", "changed_providers", "changed_models", "changes", "reports", "errors")


def refused(document: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_document(document)
    return caught.value


BAD = refused({"edge": {"id": "e"}, "heartbeat_ms": 0, "nonsense": 1})
WORSE = refused({"listen": 5})


@pytest.mark.parametrize(
    "result",
    [
        diff(BASE, BASE),
        diff(BASE, changed(ALL[0])),
        plan(load(BASE), BAD),
        plan(BAD, WORSE),
        plan(load(BASE), load(BASE), "nonsense"),
        RefreshResult(mode="apply"),
    ],
)
def test_every_list_is_there(result: RefreshResult) -> None:
    document = json.loads(json.dumps(result.as_document()))
    assert document.keys() == KEYS
    for key in LISTS:
        assert isinstance(document[key], list)


def test_no_change_is_applied() -> None:
    result = plan(load(BASE), load(BASE))
    assert (result.mode, result.status) == ("dry_run", Status.APPLIED)
    assert result.revision_before == result.revision_after == revision(load(BASE).config)


@pytest.mark.parametrize("mode", [*RefreshMode, "dry_run", "apply"])
def test_known_modes(mode: str) -> None:
    result = plan(load(BASE), load(changed(Case("edge.id", "f", ""))), mode)
    assert result.as_document()["mode"] == str(mode)
    assert result.status is Status.RESTART_REQUIRED
    assert result.reports == ()


@pytest.mark.parametrize("mode", ["", "APPLY", "dry-run", "nonsense"])
def test_an_unknown_mode_is_rejected(mode: str) -> None:
    result = plan(load(BASE), load(changed(Case("edge.id", "f", ""))), mode)
    assert (result.status, result.changes) == (Status.REJECTED, ())
    assert [(each.path, each.code) for each in result.errors] == [("mode", "schema")]
    assert result.revision_before != result.revision_after


def test_a_candidate_that_does_not_load_is_rejected() -> None:
    result = plan(load(BASE), BAD)
    assert result.status is Status.REJECTED
    assert result.errors == BAD.problems
    assert result.changes == ()
    assert (result.revision_before, result.revision_after) == (revision(load(BASE).config), None)


def test_so_is_one_that_takes_the_place_of_nothing() -> None:
    result = plan(BAD, load(BASE))
    assert result.status is Status.REJECTED
    assert (result.revision_before, result.revision_after) == (None, revision(load(BASE).config))


def test_what_is_wrong_with_both_is_said_once() -> None:
    assert plan(BAD, BAD).errors == BAD.problems
    assert plan(BAD, WORSE).errors == BAD.problems + WORSE.problems
    document = plan(BAD, WORSE).as_document()
    assert [set(each) for each in document["errors"]] == [{"path", "line", "file", "code", "message"}] * len(
        BAD.problems + WORSE.problems
    )


def test_the_revision_is_of_the_secrets_too() -> None:
    result = diff(BASE, changed(Case("nodes[n].adapters[a].headers.X", "marker-other", "")))
    assert result.revision_before != result.revision_after


def test_the_same_changes_are_the_same_text_whatever_the_order() -> None:
    apart = [case for case in ALL if case not in UNSET_CASES]
    texts = set()
    for seed in range(5):
        cases = random.Random(seed).sample(apart, len(apart))
        result = diff(BASE, shuffled(changed(*unlike(cases)), random.Random(seed)))
        texts.add(json.dumps({**result.as_document(), "revision_after": ""}))
        paths = [each.path for each in result.changes]
        assert paths == sorted(paths)
        assert len(set(paths)) == len(paths)
    assert len(texts) == 1


def unlike(cases: list[Case]) -> list[Case]:
    """One case of each path, and none of what is inside another's, the same ones in any order."""
    chosen = {case.path: case for case in sorted(cases, key=lambda case: (case.path, str(case.value)))}
    return [
        case
        for case in cases
        if chosen[case.path] is case and not any(case.path.startswith(f"{path}.") for path in chosen)
    ]


def shuffled(document: Any, random_: random.Random) -> Any:
    result = {key: document[key] for key in random_.sample(list(document), len(document))}
    result["nodes"] = random_.sample(result["nodes"], len(result["nodes"]))
    return result


def test_a_document_sorts_what_was_put_together_by_hand() -> None:
    result = RefreshResult(
        mode="apply",
        changes=(Change("b", Kind.MODIFIED, Effect.LIVE, 1, 2), Change("a", Kind.ADDED, Effect.LIVE)),
        changed_nodes=("b", "a"),
        reports=(NodeReport("b", ReportStatus.ROLLED_BACK, "why"), NodeReport("a", ReportStatus.APPLIED)),
    )
    document = result.as_document()
    assert [each["path"] for each in document["changes"]] == ["a", "b"]
    assert document["changes"][1] == {"path": "b", "kind": "modified", "class": "live", "before": 1, "after": 2}
    assert document["changed_nodes"] == ["a", "b"]
    assert document["reports"] == [
        {"node_id": "a", "status": "applied", "message": ""},
        {"node_id": "b", "status": "rolled_back", "message": "why"},
    ]


@pytest.mark.parametrize(
    ("effects", "wrong", "status"),
    [
        ([], False, Status.APPLIED),
        ([Effect.LIVE], False, Status.APPLIED),
        ([Effect.LIVE, Effect.RESTART], False, Status.RESTART_REQUIRED),
        ([Effect.RESTART], True, Status.REJECTED),
        ([], True, Status.REJECTED),
    ],
)
def test_status(effects: list[Effect], wrong: bool, status: Status) -> None:
    changes = tuple(Change(str(index), Kind.MODIFIED, effect) for index, effect in enumerate(effects))
    errors = (Problem("", 1, "", "file", ""),) * wrong
    assert RefreshResult(mode="apply", changes=changes, errors=errors).status is status


def test_nothing_here_imports_twisted() -> None:
    code = "import sys, iop.edge.refresh; sys.exit(any(m.split('.')[0] in ('twisted', 'zope') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
