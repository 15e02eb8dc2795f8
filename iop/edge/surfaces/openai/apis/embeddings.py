"""Embeddings: vectors as the client asked for them, whatever the backend wrote. Pure.

``docs/contracts/openai.md`` (Embeddings): one vector an input, in the order of the inputs; floats, or base64 of
little-endian 32-bit floats, which SDKs ask for by default.
"""

from __future__ import annotations

import json
import math
import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from iop.document import Document
from iop.edge.surfaces.openai.apis.errors import error_object
from iop.edge.surfaces.openai.apis.members import model_of, must_be, read, spliced, texts_in, wrong
from iop.errors import Failure
from iop.http import sse


class EmbeddingsRequest(NamedTuple):
    """What the edge needs to know of an embeddings request; see :class:`.shape.Request`.

    :ivar inputs: how many vectors the answer must have.
    :ivar base64: whether they are wanted as base64.
    """

    body: bytes
    document: Document
    model: str
    inputs: int
    base64: bool
    stream: bool = False

    @classmethod
    def parse(cls, body: bytes) -> EmbeddingsRequest:
        """Read it; :raises Failure: ``invalid_json``, ``invalid_value``."""
        body, document = read(body)
        model, format = model_of(document), document.get("encoding_format")
        inputs = texts_in(document.get("input"))
        if not inputs or not document.get("input"):
            raise wrong(document, "input", "a string, token ids, or a list of either, and not empty")
        if format not in (None, "float", "base64"):
            raise must_be("encoding_format", "float or base64")
        return cls(body, document, model, inputs, format == "base64")

    def native(self, target: str, changes: Mapping[str, str]) -> bytes:
        """Return the body for a backend."""
        return spliced(self, target, {})

    def corrected(self, body: bytes) -> bytes:
        """Return a backend's answer as it was asked for; :raises Failure: for one that is no answer to this request."""
        try:
            said = json.loads(body, parse_float=None if self.base64 else _A_FLOAT, parse_constant=_no_constant)
            made = self._untouched(body, said)
            if made is None:
                made = self._printed(said if self.base64 else json.loads(body))
            return made
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise Failure("upstream_error", "the backend's answer holds no embeddings") from None

    def _untouched(self, body: bytes, said: Any) -> bytes | None:
        """Return an answer whose vectors are right as they stand, with what is missing after them; else None.

        :param said: its JSON. Where floats are wanted no number is made of the text of one: that, and printing it
            again, is nearly all of the time that it takes.
        """
        data = said["data"]
        try:
            body.decode()
            right = len(data) == self.inputs and all(self._is_right(i, each) for i, each in enumerate(data))
        except (ValueError, KeyError, struct.error):
            return None
        if json.detect_encoding(body) != "utf-8":
            return None
        if not right or said.get("object", "list") != "list" or not said.get("model", self.model):
            return None
        if not self.base64 and _may_overflow(body):
            return None
        whole = {"object": "list", "model": self.model, "usage": _NO_USAGE}
        missing = {name: value for name, value in whole.items() if name not in said}
        return body.rstrip()[:-1] + b"," + _dumps(missing)[1:] if missing else body

    def _is_right(self, i: int, each: Any) -> bool:
        """Whether one of an answer's data needs no change; wanted floats were read as :data:`_A_FLOAT`."""
        if each.get("object") != "embedding" or type(each.get("index")) is not int or each["index"] != i:
            return False
        vector = each["embedding"]
        if self.base64:
            return type(vector) is str and bool(_unpacked(vector))
        return type(vector) is list and bool(vector) and _are_numbers(vector)

    def _printed(self, said: Any) -> bytes:
        """Return an answer printed anew; :raises Failure, ValueError, TypeError, AttributeError: for what is none."""
        data = sorted(said["data"], key=lambda each: each.get("index", 0))
        if len(data) != self.inputs:
            raise Failure("upstream_error", f"the backend answered {len(data)} vectors to {self.inputs} inputs")
        places = {each["index"] for each in data if "index" in each}
        if places and len(places) != self.inputs:
            raise Failure("upstream_error", "the backend did not say which vector belongs to which input")
        vectors = [_vector(each.get("embedding")) for each in data]
        shown = [_base64(vector) if self.base64 else vector for vector in vectors]
        made = [{**each, "object": "embedding", "index": i, "embedding": shown[i]} for i, each in enumerate(data)]
        whole = {**said, "object": "list", "data": made, "model": said.get("model") or self.model}
        whole.setdefault("usage", _NO_USAGE)
        return _dumps(whole)

    def error(self, failure: Failure, request_id: str) -> dict[str, Any]:
        """Return the document of a failure."""
        return error_object(failure)

    def broken(self, failure: Failure, request_id: str) -> bytes:
        """Nothing streams here."""
        return sse.event(error_object(failure))


_NO_USAGE: Final = {"prompt_tokens": 0, "total_tokens": 0}

_A_FLOAT: Final[Any] = type
"""What reads a float where only its being one matters: of all that is given a text and answers at once with something
that no other JSON is read as, it is the fastest."""

_A_FLOAT_READ: Final[Any] = _A_FLOAT("0.5")

_CLASSES: Final = bytes.maketrans(b"123456789E]} \t\r\n", b"000000000e,,,,,,")
_LARGE_EXPONENT: Final = re.compile(rb"e\+?000+,")
_MANY_DIGITS: Final = b"0" * 200


def _may_overflow(body: bytes) -> bool:
    """Whether a float in a JSON text may be one that no float can hold; False is certain."""
    classes = body.translate(_CLASSES)
    return _MANY_DIGITS in classes or _LARGE_EXPONENT.search(classes) is not None


def _are_numbers(vector: list[Any]) -> bool:
    """Whether a list holds floats, read as :data:`_A_FLOAT`, and perhaps whole numbers that are not large."""
    floats = vector.count(_A_FLOAT_READ)
    return floats == len(vector) or all(
        each is _A_FLOAT_READ or (type(each) is int and abs(each) < 1 << 53) for each in vector
    )


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _unpacked(said: str) -> list[float]:
    """Return a vector's floats out of base64; :raises ValueError, struct.error: for what holds none."""
    raw = b64decode(said, validate=True)
    vector = struct.unpack(f"<{len(raw) // 4}f", raw)
    if not math.isfinite(sum(vector)):  # of 32-bit floats no sum is too large
        raise ValueError("not finite")
    return list(vector)


def _vector(said: Any) -> list[float]:
    """Return one vector, in whichever form it came; :raises Failure: also for what JSON cannot say again."""
    try:
        if isinstance(said, str):
            said = _unpacked(said)
        if said and isinstance(said, list) and {*map(type, said)} <= {float, int} and all(map(math.isfinite, said)):
            return said
    except (ValueError, OverflowError, struct.error):
        pass
    raise Failure("upstream_error", "the backend answered a vector that is none")


def _base64(vector: list[float]) -> str:
    try:
        return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")
    except (OverflowError, struct.error):
        raise Failure("upstream_error", "the backend answered a vector that is none") from None
