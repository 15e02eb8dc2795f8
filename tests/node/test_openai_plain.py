"""Messages made strings. docs/contracts/adapters.md (Plain messages); MS-01 to MS-03 are in tests/cases."""

from __future__ import annotations

from typing import Any

import pytest

from iop.errors import Failure
from iop.node.adapters.openai_compat.plain import plain


def test_nothing_but_contents_and_developers_changes() -> None:
    said: list[Any] = [
        {"role": "user", "content": "hi", "name": "ann"},
        {"content": [{"type": "refusal", "refusal": "no"}, {"type": "text", "text": "thanks"}]},
        {"role": "odd"},
        {"role": "developer", "content": None},
    ]
    before = [dict(message) for message in said]
    assert plain(said) == [
        {"role": "user", "content": "hi", "name": "ann"},
        {"content": "no\nthanks"},
        {"role": "odd", "content": ""},
        {"role": "system", "content": ""},
    ]
    assert said == before


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ("hi", "messages"),
        (None, "messages"),
        ([7], "messages[0]"),
        ([{"role": "user", "content": 7}], "messages[0].content"),
        ([{"role": "user", "content": [7]}], "messages[0].content[0]"),
        ([{}, {"role": "user", "content": [{"type": "image_url"}]}], "messages[1].content[0]"),
    ],
)
def test_what_cannot_be_a_string_is_named(messages: Any, param: str) -> None:
    with pytest.raises(Failure) as raised:
        plain(messages)
    assert (raised.value.code, raised.value.param) == ("invalid_value", param)
