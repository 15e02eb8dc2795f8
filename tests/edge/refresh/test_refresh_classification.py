"""Every setting's change, both ways: where it is seen, what kind it is, and what it costs.

docs/contracts/refresh.md, Classification.
"""

from __future__ import annotations

from typing import Any

import pytest
from refresh_cases import (
    ADAPTER_CASES,
    ALL,
    BASE,
    ENTRY_CASES,
    INLINE_CASES,
    LIVE,
    RESTART,
    SETTINGS_CASES,
    UNSET_CASES,
    Case,
    changed,
    declared,
    declared_effect,
    diff,
    load,
    shape,
)

from iop.edge.config import redact
from iop.edge.refresh import Kind, Status, plan

STATUS = {LIVE: Status.APPLIED, RESTART: Status.RESTART_REQUIRED}


def both_ways(case: Case) -> Any:
    """From the base to the changed document, and back."""
    new = load(changed(case))
    return plan(load(BASE), new), plan(new, load(BASE))


@pytest.mark.parametrize("case", [*SETTINGS_CASES, *ADAPTER_CASES, *INLINE_CASES], ids=lambda case: case.path)
def test_a_value_is_another_one(case: Case) -> None:
    there, back = both_ways(case)
    for result in (there, back):
        assert [change.path for change in result.changes] == list(case.paths)
        assert {change.kind for change in result.changes} == {Kind.MODIFIED}
        assert {change.effect.value for change in result.changes} == {case.effect}
        assert result.status is STATUS[case.effect]
    for one, other in zip(there.changes, back.changes, strict=True):
        assert (one.before, one.after) == (other.after, other.before)


@pytest.mark.parametrize("case", ENTRY_CASES, ids=lambda case: case.path)
def test_an_entry_comes_and_goes(case: Case) -> None:
    there, back = both_ways(case)
    (added,), (removed,) = there.changes, back.changes
    assert (added.path, added.kind, added.effect.value, added.before) == (case.path, Kind.ADDED, case.effect, None)
    assert (removed.path, removed.kind, removed.effect.value) == (case.path, Kind.REMOVED, case.effect)
    assert (removed.before, removed.after) == (added.after, None)
    assert there.status is back.status is STATUS[case.effect]


@pytest.mark.parametrize("case", UNSET_CASES, ids=lambda case: case.path)
def test_a_value_goes_and_comes(case: Case) -> None:
    there, back = both_ways(case)
    (unset,), (set_,) = there.changes, back.changes
    nothing = False if case.path == "openai" else None
    assert (unset.path, unset.kind, unset.effect.value, unset.after) == (case.path, Kind.MODIFIED, case.effect, nothing)
    assert (set_.path, set_.kind, set_.effect.value) == (case.path, Kind.MODIFIED, case.effect)
    assert (set_.before, set_.after) == (nothing, unset.before)
    assert unset.before is not None


def test_the_table_holds_every_setting() -> None:
    """Fails for a setting that was added to the model and has no case here."""
    cases = {
        shape(path) for case in [*SETTINGS_CASES, *ADAPTER_CASES, *INLINE_CASES, *UNSET_CASES] for path in case.paths
    }
    whole = {path for path in declared() if not any(path == case or case.startswith(f"{path}.") for case in cases)}
    assert whole == set()
    assert len(declared()) > 90


def test_the_table_is_what_the_schema_declares() -> None:
    for case in ALL:
        assert declared_effect(case.path) == case.effect, case.path


def test_the_lists_that_have_entries_are_all_there() -> None:
    assert {shape(case.path) for case in ENTRY_CASES if case.path.endswith("]")} == {
        "openai.principal_tokens[]",
        "openai.model_routes[]",
        "models[]",
        "nodes[]",
        "nodes[].adapters[]",
        "nodes[].providers[]",
    }


@pytest.mark.parametrize("case", [*SETTINGS_CASES, *ADAPTER_CASES, *INLINE_CASES], ids=lambda case: case.path)
def test_before_and_after_are_the_values(case: Case) -> None:
    change = next(change for change in diff(BASE, changed(case)).changes if change.path == case.path)
    if change.after == "***":
        assert "marker" in str(case.value) or "hash" in case.path
    elif case.path.startswith("models[") and isinstance(case.value, list):
        assert [{key: each[key] for key in ("id", "target")} for each in change.after] == case.value
    else:
        expected = sorted(case.value) if case.path.endswith(".models") else case.value
        assert change.after == redact(expected)
        assert type(change.after) is type(redact(expected))
