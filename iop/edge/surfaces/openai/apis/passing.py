"""Requests of APIs that the edge does not know: all it needs of them is the model's name. Pure.

The body is JSON, or a form (``multipart/form-data``) with a field ``model``; it passes through but for that name.
``docs/contracts/openai.md`` (Endpoints).
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from iop.document import Document
from iop.edge.surfaces.openai.apis.errors import error_object
from iop.edge.surfaces.openai.apis.members import model_of
from iop.errors import Failure
from iop.http import sse

_BOUNDARY: Final = re.compile(rb';\s*boundary=(?:"([^"\r\n]{1,70})"|([^\s;,"]{1,70}))', re.IGNORECASE)
_DISPOSITION: Final = re.compile(rb"^content-disposition:[ \t]*form-data[ \t]*;(.*)$", re.IGNORECASE | re.MULTILINE)
_NAME: Final = re.compile(rb'(?:^|[;\s])name="?([^";\r\n]*)"?', re.IGNORECASE)
_FILE: Final = re.compile(rb"(?:^|[;\s])filename\*?=", re.IGNORECASE)
_LONGEST_NAME: Final = 512


class PassingRequest(NamedTuple):
    """What the edge needs to know; see :class:`.shape.Request`.

    :ivar span: where the model's name stands in a form; None in JSON.
    """

    body: bytes
    document: Document
    model: str
    stream: bool
    span: tuple[int, int] | None = None

    @classmethod
    def parse(cls, body: bytes, content_type: bytes) -> PassingRequest:
        """Read it; :raises Failure: ``invalid_json``, ``invalid_value``."""
        if content_type[:20].lower() == b"multipart/form-data":
            start, end = _field(body, content_type)
            try:
                model = body[start:end].decode()
            except UnicodeDecodeError:
                model = ""
            if not model:
                raise Failure("invalid_value", "the form's field `model` must be text", param="model")
            return cls(body, _NOTHING, model, False, (start, end))
        body = body.removeprefix(BOM_UTF8)
        document = Document.parse(body)
        return cls(body, document, model_of(document), document.get("stream") is True)

    def native(self, target: str, changes: Mapping[str, str]) -> bytes:
        """Return the body with the backend's own name for the model; the policy of a chat has no part in it."""
        if target == self.model:
            return self.body
        if self.span is not None:
            start, end = self.span
            return self.body[:start] + target.encode() + self.body[end:]
        return self.document.with_raw({"model": json.dumps(target)}).encode("utf-8", "surrogatepass")

    def error(self, failure: Failure, request_id: str) -> dict[str, Any]:
        """Return the document of a failure."""
        return error_object(failure)

    def broken(self, failure: Failure, request_id: str) -> bytes:
        """Return the last event of a stream that broke."""
        return sse.event(error_object(failure))


_NOTHING: Final = Document.of("{}")


def _field(body: bytes, content_type: bytes) -> tuple[int, int]:
    """Return where the value of a form's field ``model`` begins and ends; :raises Failure:."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise Failure("invalid_value", "the form's Content-Type names no boundary")
    mark = b"--" + (found[1] or found[2])
    models: list[tuple[int, int]] = []
    at = 0 if body.startswith(mark) else body.find(b"\r\n" + mark) + 2
    if at < 2 and not body.startswith(mark):
        raise Failure("invalid_value", "the request body is no form")
    while at >= 0 and not body.startswith(b"--", at + len(mark)):
        head = body.find(b"\r\n", at)
        blank = body.find(b"\r\n\r\n", at)
        end = body.find(b"\r\n" + mark, max(blank, 0))
        if head < 0 or blank < 0 or end < 0:
            raise Failure("invalid_value", "the form is cut short")
        if _is_model(body[head + 2 : blank]):
            models.append((blank + 4, max(end, blank + 4)))
        at = end + 2
    if len(models) != 1:
        what = "is needed" if not models else "is given twice"
        raise Failure("invalid_value", f"the form's field `model` {what}", param="model")
    start, end = models[0]
    if end - start > _LONGEST_NAME:
        raise Failure("invalid_value", "the form's field `model` is too long", param="model")
    return start, end


def _is_model(head: bytes) -> bool:
    said = _DISPOSITION.search(head)
    if said is None or _FILE.search(said[1]) is not None:
        return False
    name = _NAME.search(said[1])
    return name is not None and name[1].strip() == b"model"
