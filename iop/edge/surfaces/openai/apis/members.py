"""Members that requests of several APIs have, read with a clear word where they are wrong. Pure."""

from __future__ import annotations

import json
import math
from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import Any

from iop.document import Document, JsonObject, too_deep
from iop.edge.surfaces.openai.apis.shape import Request
from iop.errors import Failure


def read(body: bytes) -> tuple[bytes, Document]:
    """Return a body without a byte order mark, and what it says; :raises Failure: as :meth:`Document.parse`."""
    body = body.removeprefix(BOM_UTF8)
    return body, Document.parse(body)


def wrong(document: Document, name: str, what: str) -> Failure:
    """Return what is wrong with a member: that it is not ``what``, or not there."""
    if name in document:
        return must_be(name, what)
    return Failure("invalid_value", f"`{name}` is needed, as {what}", param=name)


def must_be(path: str, what: str) -> Failure:
    """Return what refuses a request, naming where in it something is not ``what``."""
    return Failure("invalid_value", f"`{path}` must be {what}", param=path)


def model_of(document: Document) -> str:
    """Return the model's name; :raises Failure: where there is none."""
    model = document.get("model")
    if not isinstance(model, str) or not model:
        raise wrong(document, "model", "a non-empty string")
    return model


def spliced(request: Request, target: str, changes: Mapping[str, str]) -> bytes:
    """Return a request's body for a backend: what does not change of it keeps every digit.

    :param target: the backend's own name for the model.
    :param changes: other members to set, as JSON texts.
    """
    made = dict(changes) if target == request.model else {**changes, "model": json.dumps(target)}
    return request.document.with_raw(made).encode("utf-8", "surrogatepass") if made else request.body


def streams(document: Document) -> bool:
    """Return whether a stream is wanted; :raises Failure: for what is neither yes nor no."""
    stream = document.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise wrong(document, "stream", "true or false")
    return stream is True


def wants_usage(document: Document) -> bool:
    """Return whether the client asked for usage at the end of a stream; :raises Failure:."""
    options = document.get("stream_options")
    if options is not None and not isinstance(options, tuple):
        raise wrong(document, "stream_options", "an object")
    return options is not None and dict(options).get("include_usage") is True


def with_usage(document: Document) -> str:
    """Return ``stream_options`` that ask for usage, as a JSON text; all else in it stays."""
    inner = document.inner("stream_options")
    return '{"include_usage": true}' if inner is None else inner.with_raw({"include_usage": "true"})


def texts_in(given: Any) -> int:
    """Return how many texts there are that a model reads one by one, each a string or token ids; 0 for what is none."""
    if isinstance(given, str):
        return 1
    if not isinstance(given, list) or not given:
        return 0
    if _are_tokens(given):
        return 1
    good = all(isinstance(one, str) or (isinstance(one, list) and one and _are_tokens(one)) for one in given)
    return len(given) if good else 0


def _are_tokens(given: list[Any]) -> bool:
    return all(isinstance(token, int) and not isinstance(token, bool) for token in given)


def plain(body: bytes) -> JsonObject:
    """Return a body, known to be a JSON object, as plain values that JSON can say again.

    :raises Failure: for a number that would be infinite, for nesting that was scanned from a shallower stack.
    """
    try:
        made: JsonObject = json.loads(body, parse_float=_finite)
    except RecursionError:
        raise too_deep() from None
    return made


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise Failure("invalid_value", "a number of the request is too large")
    return value
