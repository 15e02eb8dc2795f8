"""What holds for any two configurations."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refresh_cases import ALL, BASE, RESTART, UNSET_CASES, Case, changed, declared_effect, load

from iop.edge.config import canonical, effective, revision
from iop.edge.refresh import Status, plan

#: Cases that can be put together in any way: sections that go take others with them.
APART = [case for case in ALL if case not in UNSET_CASES or "." in case.path]


def _alone(cases: list[Case]) -> list[Case]:
    """One case for each place, none inside another's."""
    chosen: dict[str, Case] = {}
    for case in cases:
        if not any(case.path.startswith(f"{path}.") or path.startswith(f"{case.path}.") for path in chosen):
            chosen.setdefault(case.path, case)
    return list(chosen.values())


CASES = st.lists(st.sampled_from(APART), max_size=8).map(_alone)
SECTIONS = st.lists(st.sampled_from([case for case in UNSET_CASES if "." not in case.path]), max_size=2, unique=True)
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def respelled(document: Any, random_: random.Random, *, filled: bool = False) -> Any:
    """The same configuration, written otherwise.

    :param filled: as the effective document: every default filled in, inline settings as adapters.
    """
    if filled:
        document = effective(load(document).config)
    return _shuffled(copy.deepcopy(document), random_, "")


def _shuffled(value: Any, random_: random.Random, key: str) -> Any:
    if isinstance(value, dict):
        keys = random_.sample(list(value), len(value))
        return {each: _shuffled(value[each], random_, each) for each in keys}
    if isinstance(value, list):
        items = [_shuffled(item, random_, key) for item in value]
        free = key == "models" or any(isinstance(item, dict) and "target" not in item for item in items)
        return random_.sample(items, len(items)) if free else items
    if key == "token_hash_sha256" and isinstance(value, str):
        return random_.choice([value, value.upper()])
    return value


@quick
@given(CASES, SECTIONS, st.integers(), st.booleans())
def test_a_configuration_does_not_differ_from_itself(cases: Any, sections: Any, seed: int, filled: bool) -> None:
    document = changed(*_sound(cases, sections))
    result = plan(load(document), load(respelled(document, random.Random(seed), filled=filled)))
    assert result.changes == ()
    assert result.revision_before == result.revision_after
    assert (result.changed_nodes, result.changed_providers, result.changed_models) == ((), (), ())


def _sound(cases: list[Case], sections: list[Case]) -> list[Case]:
    """The cases that lead to something once these sections are gone."""
    gone = tuple(case.path for case in sections)
    return [case for case in cases if not case.path.startswith(gone)] + sections


@quick
@given(CASES, CASES, st.integers())
def test_what_changed_is_what_is_listed(before: list[Case], after: list[Case], seed: int) -> None:
    """Whatever the order of the two."""
    old, new = changed(*before), changed(*after)
    result = plan(load(old), load(respelled(new, random.Random(seed))))
    differ = [case for case in before if case not in after] + [case for case in after if case not in before]
    listed = {change.path for change in result.changes}
    for case in differ:
        assert any(path.startswith(case.path) or case.path.startswith(path) for path in listed), case.path
    for path in listed:
        assert any(path.startswith(seen) or seen.startswith(path) for case in differ for seen in case.paths), path
    assert {change.path: change.effect.value for change in result.changes} == {
        path: declared_effect(path) for path in listed
    }
    assert (result.status is Status.RESTART_REQUIRED) == any(declared_effect(path) == RESTART for path in listed)
    assert (result.status is Status.RESTART_REQUIRED) == any(case.effect == RESTART for case in differ)


@quick
@given(CASES, SECTIONS, CASES, SECTIONS)
def test_there_is_a_change_exactly_when_the_revisions_differ(a: Any, b: Any, c: Any, d: Any) -> None:
    old, new = load(changed(*_sound(a, b))), load(changed(*_sound(c, d)))
    result = plan(old, new)
    assert (result.changes == ()) == (revision(old.config) == revision(new.config))
    assert (result.changes == ()) == (canonical(old.config) == canonical(new.config)) or _numbers(a, c)


def _numbers(*sides: list[Case]) -> bool:
    """Whether a value changes its type only: the same to Python, another to JSON."""
    return any(isinstance(case.value, bool | float) for cases in sides for case in cases)


@quick
@given(CASES, SECTIONS, CASES, SECTIONS)
def test_there_and_back_are_the_same_changes(a: Any, b: Any, c: Any, d: Any) -> None:
    old, new = load(changed(*_sound(a, b))), load(changed(*_sound(c, d)))
    there, back = plan(old, new), plan(new, old)
    assert [(each.path, each.effect, each.before, each.after) for each in there.changes] == [
        (each.path, each.effect, each.after, each.before) for each in back.changes
    ]
    assert there.status is back.status
    assert there.changed_nodes == back.changed_nodes
    assert there.changed_providers == back.changed_providers
    assert there.changed_models == back.changed_models


@quick
@given(CASES, SECTIONS, CASES, SECTIONS)
def test_no_secret_is_seen(a: Any, b: Any, c: Any, d: Any) -> None:
    result = plan(load(changed(*_sound(a, b))), load(changed(*_sound(c, d))))
    text = json.dumps(result.as_document()) + repr(result)
    assert "marker" not in text
    assert not any(letter * 64 in text for letter in "abcdef")


def test_the_base_holds_the_secrets_that_are_looked_for() -> None:
    assert json.dumps(BASE).count("marker") > 15
