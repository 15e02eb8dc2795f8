"""A JSON object that is changed by splicing: what nobody asked to change stays digit for digit."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.document import Document
from iop.errors import Failure

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=6) | st.sampled_from(["model", "stream"]), VALUES, max_size=5)
STYLES = st.sampled_from(
    [{"separators": (",", ":")}, {"indent": 1}, {"ensure_ascii": False}, {"indent": 2, "ensure_ascii": False}]
)


def plain(value: Any) -> Any:
    """Turn the document's tuples of pairs back."""
    if isinstance(value, tuple):
        return {name: plain(each) for name, each in value}
    return [plain(each) for each in value] if isinstance(value, list) else value


def refused(body: bytes) -> Failure:
    with pytest.raises(Failure) as raised:
        Document.parse(body)
    return raised.value


@given(OBJECTS, STYLES)
def test_reading(value: dict[str, Any], style: dict[str, Any]) -> None:
    document = Document.parse(json.dumps(value, **style).encode("utf-8", "surrogatepass"))
    assert {name: plain(document.get(name)) for name in value} == value
    assert all(name in document for name in value)
    assert document.get("not there", 7) == 7
    assert "not there" not in document


@given(OBJECTS, STYLES, st.dictionaries(st.text(max_size=6) | st.sampled_from(["model", "stream"]), VALUES, max_size=3))
def test_splicing_changes_what_was_asked_and_nothing_else(
    value: dict[str, Any], style: dict[str, Any], changes: dict[str, Any]
) -> None:
    text = json.dumps(value, **style)
    made = Document.parse(text.encode("utf-8", "surrogatepass")).with_raw(
        {name: json.dumps(new) for name, new in changes.items()}
    )
    assert json.loads(made) == {**value, **changes}
    assert list(json.loads(made)) == list({**value, **changes}), "members keep their places, new ones come last"
    if not changes:
        assert made == text


@pytest.mark.parametrize(
    "number", ["0", "-0", "0.0", "1e400", "1E+2", "0.10", "123456789012345678901234567890", "1.7976931348623157e309"]
)
def test_numbers_stay_digit_for_digit(number: str) -> None:
    """PA-01"""
    text = f'{{"seed": {number}, "model": "a", "x": [{number}]}}'
    made = Document.parse(text.encode()).with_raw({"model": '"b"'})
    assert made == f'{{"seed": {number}, "model": "b", "x": [{number}]}}'


def test_spaces_order_and_escapes_stay() -> None:
    text = ' {\n "b" :\t1 ,"model":"x" , "\\u0061\\"" : "\\ud83c", "c":{"model":"inner"}\r\n} \n'
    made = Document.parse(text.encode()).with_raw({"model": '"y"', "new": "2"})
    assert made == text.replace('"x"', '"y"').replace("\r\n}", '\r\n, "new": 2}')
    assert json.loads(made)["c"] == {"model": "inner"}


@pytest.mark.parametrize("text", ["{}", " { } ", "{\n}"])
def test_an_empty_object_grows(text: str) -> None:
    made = Document.parse(text.encode()).with_raw({"a": "1", "b": "2"})
    assert json.loads(made) == {"a": 1, "b": 2}


def test_an_inner_object_is_a_document_of_its_own() -> None:
    document = Document.parse(b'{"o": {"a": 0.10, "b": 2}, "l": [], "n": null}')
    inner = document.inner("o")
    assert inner is not None
    assert inner.with_raw({"b": "3"}) == '{"a": 0.10, "b": 3}'
    assert [document.inner(name) for name in ("l", "n", "x")] == [None, None, None]
    empty = Document.parse(b'{"o": {}}').inner("o")
    assert empty is not None
    assert empty.with_raw({"b": "3"}) == '{"b": 3}'


def test_a_byte_order_mark_is_no_part_of_it() -> None:
    document = Document.parse(b'\xef\xbb\xbf{"a": 1}')
    assert document.get("a") == 1
    assert document.with_raw({"a": "2"}) == '{"a": 2}'


@pytest.mark.parametrize(
    "body", [b'{"a":1,"a":1}', b'{"model":"x","b":1,"model":"y"}', b'{"model":"x","mod\\u0065l":"y"}', b'{"":1,"":2}']
)
def test_a_top_level_member_given_twice_is_refused(body: bytes) -> None:
    """A second model must not slip past, not in another spelling either."""
    failure = refused(body)
    assert (failure.code, failure.http_status) == ("invalid_value", 400)
    assert failure.param in ("a", "model", "")


def test_a_member_given_twice_further_down_is_the_backends_business() -> None:
    text = '{"a":{"x":1,"x":2}}'
    assert Document.parse(text.encode()).with_raw({}) == text


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \n",
        b"{",
        b'{"a"',
        b'{"a":',
        b'{"a":1',
        b'{"a":1,',
        b'{"a":1,}',
        b'{"a":1}}',
        b'{"a":1} x',
        b"{'a':1}",
        b"{a:1}",
        b'{"a":NaN}',
        b'{"a":[Infinity]}',
        b'{"a":-Infinity}',
        b'{"a":01}',
        b'{"a":"\n"}',
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b"\xff\xfe{\x00}\x00",
        b"NaN",
        b"nope",
        b'{"a":1}\x00',
        b'{"a":\xa01}',
        b"a=1&b=2",
    ],
)
def test_what_is_no_json(body: bytes) -> None:
    failure = refused(body)
    assert (failure.code, failure.http_status) == ("invalid_json", 400)
    assert failure.message.startswith("the request body")


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"7", b"null", b"true", b'[{"model":"x"}]'])
def test_what_is_json_and_no_object(body: bytes) -> None:
    assert refused(body).code == "invalid_value"


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_nesting_without_end_is_refused(opening: bytes) -> None:
    failure = refused(b'{"x":' + opening * 200_000)
    assert failure.code == "invalid_json"


def test_a_number_of_many_digits_is_refused_or_kept() -> None:
    with contextlib.suppress(Failure):
        assert "9" * 10_000 in Document.parse(b'{"a":' + b"9" * 10_000 + b',"b":1}').with_raw({"b": "2"})


@given(st.binary(max_size=60))
def test_no_bytes_do_worse_than_a_failure(body: bytes) -> None:
    with contextlib.suppress(Failure):
        assert json.loads(Document.parse(body).with_raw({"x": "1"}))["x"] == 1


def test_a_name_given_twice_among_many_is_found_in_one_look() -> None:
    body = json.dumps({f"k{number}": 0 for number in range(100_000)})[:-1] + ', "z": 1, "z": 2}'
    begun = time.process_time()
    with pytest.raises(Failure) as caught:
        Document.parse(body.encode())
    assert caught.value.param == "z"
    assert time.process_time() - begun < 2  # quadratic, it took minutes


def test_members_are_left_out_and_the_rest_keeps_its_digits() -> None:
    document = Document.parse(b'{ "a": 0.10, "t\\u0061": [1], "b":{"x": 1e2} }')
    assert document.with_raw({"b": "3", "c": "4"}, ["ta", "nobody"]) == '{"a": 0.10, "b": 3, "c": 4}'
    assert document.with_raw({}, ["a", "ta"]) == '{"b": {"x": 1e2}}'
    assert document.with_raw({}, ["nobody"]) == '{ "a": 0.10, "t\\u0061": [1], "b":{"x": 1e2} }'
    assert Document.parse(b'{"a": 1}').with_raw({}, ["a"]) == "{}"
