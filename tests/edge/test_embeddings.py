"""What a backend's vectors are made of: nothing where they are right as they came, else what was asked for."""

from __future__ import annotations

import json
import math
import struct
from base64 import b64decode, b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.edge.surfaces.openai.apis.embeddings import EmbeddingsRequest
from iop.errors import Failure

USAGE = {"prompt_tokens": 2, "total_tokens": 2}


def asked(inputs: int = 2, format: str = "float") -> EmbeddingsRequest:
    body = {"model": "m", "input": ["a"] * inputs, "encoding_format": format}
    return EmbeddingsRequest.parse(json.dumps(body).encode())


def strictly(body: bytes) -> Any:
    def constant(word: str) -> Any:
        raise ValueError(word)

    return json.loads(body, parse_constant=constant)


def packed(*vector: float) -> str:
    return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def answer(first: str, second: str = "[1.5]", more: str = f'"model":"t","usage":{json.dumps(USAGE)}') -> bytes:
    """Return a right answer, but for what is wrong with its vectors."""
    data = (f'{{"object":"embedding","index":{i},"embedding":{v}}}' for i, v in enumerate((first, second)))
    return f'{{ "object": "list", "data": [{", ".join(data)}]{more and ","}{more} }}\n'.encode()


FIRST = [
    "[0.1, -2.50,1e-7]",
    "[0, 1, -1, 0.5]",
    "[1.0E5]",
    "[1e99, 1e+99, 1.5E+000]",
    "[1e-999, 0.0000000000000000000000000000000000000000000000000000000000000000000000000000000001]",
]


@pytest.mark.parametrize("first", FIRST)
def test_what_is_right_stays_as_it_came(first: str) -> None:
    body = answer(first)
    made = json.loads(asked().corrected(body))
    assert made == json.loads(body)
    if "000," not in first and "000]" not in first:
        assert asked().corrected(body) is body


def test_base64_that_is_right_stays_as_it_came() -> None:
    body = answer(f'"{packed(0.5, -3.4e38, 3.4e38)}"', f'"{packed(1)}"')
    assert asked(format="base64").corrected(body) is body


@pytest.mark.parametrize("name", ["model", "usage", "object"])
def test_what_is_missing_comes_after_it(name: str) -> None:
    whole: dict[str, Any] = {"object": "list", "model": "t", "usage": USAGE}
    del whole[name]
    data = '[{"object":"embedding","index":0,"embedding":[0.10]}]'
    body = f'{json.dumps(whole)[:-1]}, "data": {data} }} \n'.encode()
    made = asked(1).corrected(body)
    assert b'"embedding":[0.10]' in made
    other = {"object": "list", "model": "m", "usage": {"prompt_tokens": 0, "total_tokens": 0}}[name]
    assert json.loads(made) == {**json.loads(body), name: other}


@pytest.mark.parametrize(
    "changes",
    [
        {"index": 1},
        {"index": 0.0},
        {"index": False},
        {"index": None},
        {"object": "vector"},
        {"embedding": packed(0.5)},
    ],
    ids=repr,
)
def test_one_that_is_wrong_is_printed_anew(changes: dict[str, Any]) -> None:
    one = {"object": "embedding", "index": 0, "embedding": [0.5], "x": 1}
    body = json.dumps({"object": "list", "data": [{**one, **changes}], "model": "t", "usage": USAGE}).encode()
    assert json.loads(asked(1).corrected(body)) == {"object": "list", "data": [one], "model": "t", "usage": USAGE}


def test_vectors_are_sorted() -> None:
    data = [{"object": "embedding", "index": i, "embedding": [float(i)]} for i in (2, 0, 1)]
    made = json.loads(asked(3).corrected(json.dumps({"data": data}).encode()))["data"]
    assert [(each["index"], each["embedding"]) for each in made] == [(0, [0.0]), (1, [1.0]), (2, [2.0])]


@pytest.mark.parametrize("first", FIRST[:2])
def test_floats_are_packed(first: str) -> None:
    made = json.loads(asked(format="base64").corrected(answer(first)))["data"]
    assert made[0]["embedding"] == packed(*json.loads(first))
    assert b64decode(made[1]["embedding"]) == struct.pack("<f", 1.5)


NO_VECTORS = [
    *(
        "[]",
        "null",
        "5",
        "{}",
        '""',
        "[null]",
        "[true, 0.5]",
        '["0.5"]',
        "[0.5, [0.5]]",
        '"AAA"',
        '"AAAA"',
        '"!AAAAA=="',
    ),
    *("[NaN]", "[0.5, Infinity]", "[-Infinity]", "[1e999]", "[1e309 ]", "[-1E+400\n,0.5]", "[1e0400]"),
    *(f"[{'9' * 400}.5]", f"[{'9' * 400}]", f"[{'9' * 250}.5e99]", f"[0.5, {'9' * 5000}]"),
    *(f'"{packed(0.5, number)}"' for number in (math.nan, math.inf, -math.inf)),
    f'"{packed(math.inf, -math.inf)}"',
]


@pytest.mark.parametrize("format", ["float", "base64"])
@pytest.mark.parametrize("first", NO_VECTORS, ids=lambda first: first[:20])
def test_what_is_no_vector(first: str, format: str) -> None:
    with pytest.raises(Failure) as raised:
        asked(format=format).corrected(answer(first))
    assert raised.value.code == "upstream_error"


@pytest.mark.parametrize("more", ['"x":NaN', '"usage":{"x":1e999}'])
def test_what_is_no_number_elsewhere_is_never_written(more: str) -> None:
    with pytest.raises(Failure) as raised:
        asked(format="base64").corrected(answer("[0.5]", more=more))
    assert raised.value.code == "upstream_error"


def test_another_encoding_is_printed_anew() -> None:
    body = answer("[0.5]")
    for other in (body.decode().encode("utf-16"), b"\xef\xbb\xbf" + body):
        made = asked().corrected(other)
        assert made.isascii()
        assert json.loads(made) == json.loads(body)


TEXTS = st.sampled_from(
    ["0.5", "0", "1e5", "1e308", "1e309", "-1.5e-400", "NaN", "null", '"a"', "0.1e+0308", "7" * 310]
)
VECTORS = st.lists(TEXTS, max_size=3).map(lambda texts: f"[{', '.join(texts)}]") | st.sampled_from(
    [f'"{packed(0.5)}"', f'"{packed(math.nan)}"', '"AAA="', '""']
)


@given(VECTORS, VECTORS, st.sampled_from(["", '"usage":null', '"model":""', '"object":0']), st.booleans())
def test_it_is_the_same_as_if_it_were_printed_anew(first: str, second: str, more: str, base64: bool) -> None:
    request, body = asked(format="base64" if base64 else "float"), answer(first, second, more)
    try:
        expected = json.loads(request._printed(strictly(body)))
    except (Failure, ValueError):
        with pytest.raises(Failure):
            request.corrected(body)
    else:
        assert json.loads(request.corrected(body)) == expected


@pytest.mark.parametrize("places", [(0, 0), (1, 1), (0, None)])
def test_vectors_that_may_belong_to_either_input_are_no_answer(places: tuple[int | None, int | None]) -> None:
    data = [{"embedding": [0.5], **({} if place is None else {"index": place})} for place in places]
    with pytest.raises(Failure, match="which vector belongs to which input"):
        asked().corrected(json.dumps({"data": data}).encode())
