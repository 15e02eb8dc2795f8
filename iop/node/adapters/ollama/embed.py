"""An OpenAI embeddings request as Ollama's ``/api/embed`` takes it, and its answer as OpenAI has it. Pure."""

from __future__ import annotations

import sys
from typing import Any, Final

from iop import model as m
from iop.document import JsonObject, compact
from iop.errors import Failure
from iop.node.adapters.errors import failure_in_stream
from iop.node.adapters.ollama.messages import wrong
from iop.node.adapters.ollama.reply import count_of, object_of

_LARGEST: Final = sys.float_info.max
"""NaN is not below it, nor is a whole number that no float can hold."""


def embed_request(
    document: JsonObject, target: str, num_ctx: int, *, keep_alive: int | str | None = None
) -> JsonObject:
    """Return what to ask for; :raises Failure: ``invalid_value`` with ``param`` where Ollama cannot do it.

    :param num_ctx: as for a chat: one value a target, since another one makes the server load the model anew.
    """
    body: JsonObject = {
        "model": target,
        "input": _texts(document.get("input")),
        "truncate": False,  # else a text that is too long is cut, and its vector is that of its beginning
        "options": {"num_ctx": num_ctx},
    }
    dimensions = document.get("dimensions")
    if dimensions is not None:
        if type(dimensions) is not int or dimensions < 1:
            raise wrong("dimensions", "a whole number above 0")
        body["dimensions"] = dimensions
    if keep_alive is not None:
        body["keep_alive"] = keep_alive
    return body


def _texts(given: Any) -> str | list[str]:
    """Return the input; token ids are those of another server's vocabulary, and Ollama takes none."""
    if isinstance(given, str) and given:
        return given
    if isinstance(given, list) and given and all(isinstance(text, str) for text in given):
        return given
    raise wrong("input", "a text, or a list of texts: this model's backend takes no token ids")


class Embeddings:
    """One answer, read: a vector for each text of the request, in their order.

    :param asked: the request that it answers, as :func:`embed_request` made it.
    :ivar usage: what was counted; Ollama leaves out a count that is 0.
    :raises Failure: for one that is no answer to it.
    """

    def __init__(self, body: bytes, asked: JsonObject) -> None:
        said = object_of(body)
        if said is None:
            raise Failure("upstream_error", "the backend's answer is not that of an Ollama server")
        if said.get("error") is not None:
            raise failure_in_stream(said["error"])
        self._model = asked["model"]
        self._vectors = _vectors(said.get("embeddings"), asked)
        self.usage = m.Usage(count_of(said.get("prompt_eval_count")), 0)

    def document(self) -> bytes:
        """Return it as OpenAI has it, the vectors as floats."""
        count = self.usage.input_tokens
        made = {
            "object": "list",
            "data": [{"object": "embedding", "index": i, "embedding": v} for i, v in enumerate(self._vectors)],
            "model": self._model,
            "usage": {"prompt_tokens": count, "total_tokens": count},
        }
        return compact(made)


def _vectors(said: Any, asked: JsonObject) -> list[list[float]]:
    texts = 1 if isinstance(asked["input"], str) else len(asked["input"])
    vectors = said if isinstance(said, list) else []
    if len(vectors) != texts:
        raise Failure("upstream_error", f"the backend answered {len(vectors)} vectors to {texts} inputs")
    for vector in vectors:
        if not isinstance(vector, list) or not vector or not all(map(_is_number, vector)):
            raise Failure("upstream_error", "the backend answered a vector that is none")
        wanted = asked.get("dimensions", len(vector))
        if len(vector) != wanted:  # an old server knows no such wish, and a model has no more than it has
            message = f"the model's vectors have {len(vector)} numbers here, not {wanted}"
            raise Failure("invalid_value", message, param="dimensions")
    return vectors


def _is_number(value: Any) -> bool:
    return type(value) in (float, int) and abs(value) <= _LARGEST
