"""Embeddings: vectors as the client asked for them, whatever the backend wrote. Pure.

``docs/contracts/openai.md`` (Embeddings): one vector an input, in the order of the inputs; floats, or base64 of
little-endian 32-bit floats, which SDKs ask for by default.
"""

from __future__ import annotations

import json
import struct
import sys
from base64 import b64decode, b64encode
from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import Any, NamedTuple

from iop.document import Document
from iop.edge.surfaces.openai.apis.errors import error_object
from iop.edge.surfaces.openai.apis.members import is_count, model_of, wrong
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
        body = body.removeprefix(BOM_UTF8)
        document = Document.parse(body)
        model, format = model_of(document), document.get("encoding_format")
        inputs = _count(document.get("input"))
        if not inputs:
            raise wrong(document, "input", "a string, token ids, or a list of either, and not empty")
        if format not in (None, "float", "base64"):
            raise Failure("invalid_value", "`encoding_format` must be float or base64", param="encoding_format")
        return cls(body, document, model, inputs, format == "base64")

    def native(self, target: str, changes: Mapping[str, str]) -> bytes:
        """Return the body for a backend."""
        changed = {} if target == self.model else {"model": json.dumps(target)}
        return self.document.with_raw(changed).encode("utf-8", "surrogatepass")

    def corrected(self, body: bytes) -> bytes:
        """Return a backend's answer as it was asked for; :raises Failure: for one that is no answer to this request."""
        try:
            said = json.loads(body)
            data = sorted(said["data"], key=lambda each: each.get("index", 0))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise Failure("upstream_error", "the backend's answer holds no embeddings") from None
        if len(data) != self.inputs:
            raise Failure("upstream_error", f"the backend answered {len(data)} vectors to {self.inputs} inputs")
        vectors = [_vector(each.get("embedding")) for each in data]
        shown = [_base64(vector) if self.base64 else vector for vector in vectors]
        made = [{**each, "object": "embedding", "index": i, "embedding": shown[i]} for i, each in enumerate(data)]
        whole = {**said, "object": "list", "data": made, "model": said.get("model") or self.model}
        whole.setdefault("usage", {"prompt_tokens": 0, "total_tokens": 0})
        return json.dumps(whole, separators=(",", ":")).encode()

    def error(self, failure: Failure, request_id: str) -> dict[str, Any]:
        """Return the document of a failure."""
        return error_object(failure)

    def broken(self, failure: Failure, request_id: str) -> bytes:
        """Nothing streams here."""
        return sse.event(error_object(failure))


def _count(asked: Any) -> int:
    """Return how many inputs there are; 0 for what is none."""
    if isinstance(asked, str):
        return 1 if asked else 0
    if not isinstance(asked, list) or not asked:
        return 0
    if all(is_count(token) for token in asked):
        return 1
    good = all(isinstance(one, str) or (isinstance(one, list) and one and all(map(is_count, one))) for one in asked)
    return len(asked) if good else 0


def _vector(said: Any) -> list[float]:
    """Return one vector, in whichever form it came; :raises Failure:."""
    try:
        if isinstance(said, str):
            raw = b64decode(said, validate=True)
            said = list(struct.unpack(f"<{len(raw) // 4}f", raw))
        if said and isinstance(said, list) and all(map(_is_number, said)):
            return said
    except (ValueError, struct.error):
        pass
    raise Failure("upstream_error", "the backend answered a vector that is none")


def _is_number(value: Any) -> bool:
    """Whether JSON can say it again: NaN and what no float can hold it cannot."""
    return type(value) in (float, int) and abs(value) <= sys.float_info.max


def _base64(vector: list[float]) -> str:
    try:
        return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")
    except (OverflowError, struct.error):
        raise Failure("upstream_error", "the backend answered a vector that is none") from None
