"""Requests of APIs that the edge does not know: all it needs of them is the model's name. Pure.

The body is JSON, or a form (``multipart/form-data``) with a field ``model``; it passes through but for that name.
``docs/contracts/openai.md`` (Endpoints).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from iop.document import Document
from iop.edge.surfaces.openai.apis.errors import error_object
from iop.edge.surfaces.openai.apis.members import model_of, read, spliced
from iop.errors import Failure
from iop.http import sse

_CHARSET: Final = rb'(?:;[ \t]*+charset="?[\w-]+"?[ \t]*+)?'
_FORM: Final = re.compile(
    rb'multipart/form-data[ \t]*+%b;[ \t]*+boundary=(?:"([^"\\\r\n]{1,70})"|([^\s;,"]{1,70}))[ \t]*+%b;?[ \t]*+'
    % (_CHARSET, _CHARSET),
    re.IGNORECASE,
)
_LINE_END: Final = re.compile(rb"[ \t]*+\r\n")
_DISPOSITION: Final = re.compile(rb"content-disposition[ \t]*+:[ \t]*+(.*)", re.IGNORECASE)
_FORM_DATA: Final = re.compile(
    rb'form-data((?:[ \t]*+;[ \t]*+(?:name|filename|filename\*)=(?:"(?:[^"\\]|\\.)*"|[^\s;"]*))*)[ \t]*+;?[ \t]*+',
    re.IGNORECASE,
)
_PARAMETER: Final = re.compile(rb';[ \t]*+(name|filename|filename\*)=("(?:[^"\\]|\\.)*"|[^\s;"]*)', re.IGNORECASE)
_LONGEST_NAME: Final = 512
_LONGEST_HEAD: Final = 8192


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
        if content_type.partition(b";")[0].strip().lower() == b"multipart/form-data":
            start, end = _field(body, content_type)
            try:
                model = body[start:end].decode()
            except UnicodeDecodeError:
                model = ""
            if not model:
                raise Failure("invalid_value", "the form's field `model` must be text", param="model")
            return cls(body, _NOTHING, model, False, (start, end))
        body, document = read(body)
        return cls(body, document, model_of(document), document.get("stream") is True)

    def native(self, target: str, changes: Mapping[str, str]) -> bytes:
        """Return the body with the backend's own name for the model; the policy of a chat has no part in it."""
        if self.span is None or target == self.model:
            return spliced(self, target, {})
        start, end = self.span
        return self.body[:start] + target.encode() + self.body[end:]

    def error(self, failure: Failure, request_id: str) -> dict[str, Any]:
        """Return the document of a failure."""
        return error_object(failure)

    def broken(self, failure: Failure, request_id: str) -> bytes:
        """Return the last event of a stream that broke."""
        return sse.event(error_object(failure))


_NOTHING: Final = Document.of("{}")


def _field(body: bytes, content_type: bytes) -> tuple[int, int]:
    """Return where the value of a form's field ``model`` begins and ends; :raises Failure:."""
    found = _FORM.fullmatch(content_type.strip())
    if found is None:
        raise Failure("invalid_value", "the form's Content-Type names no boundary that can be read")
    models = []
    for start, end in _parts(body, b"--" + (found[1] or found[2])):
        blank = body.find(b"\r\n\r\n", start, min(end, start + _LONGEST_HEAD))
        if blank < 0:
            raise Failure("invalid_value", "a part of the form has no head that can be read")
        if _is_model(body[start:blank]):
            models.append((blank + 4, end))
    if len(models) != 1:
        what = "is needed" if not models else "is given twice"
        raise Failure("invalid_value", f"the form's field `model` {what}", param="model")
    start, end = models[0]
    if end - start > _LONGEST_NAME:
        raise Failure("invalid_value", "the form's field `model` is too long", param="model")
    return start, end


def _parts(body: bytes, mark: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each part of a form begins and ends; :raises Failure: for one that is not whole."""
    start, line = -1, b"\r\n" + mark
    at = -2 if body.startswith(mark) else body.find(line)  # of the line end before the mark
    while at != -1:
        after = at + len(line)
        last = body.startswith(b"--", after)
        line_end = _LINE_END.match(body, after)
        if start >= 0 and (last or line_end):
            yield start, max(at, start)
        if last:
            return
        if line_end:
            start = line_end.end()
        at = body.find(line, after)
    what = "the form is cut short" if start >= 0 else "the request body is no form"
    raise Failure("invalid_value", what)


def _is_model(head: bytes) -> bool:
    """Whether a part is the field ``model``; :raises Failure: where others might read another name."""
    lines = head.split(b"\r\n")
    said = [line for line in map(_DISPOSITION.fullmatch, lines) if line is not None]
    form = _FORM_DATA.fullmatch(said[0][1]) if len(said) == 1 else None
    if form is None or any(line[:1] in (b" ", b"\t") or b"\n" in line or b"\r" in line for line in lines):
        raise Failure("invalid_value", "a part of the form has no Content-Disposition that can be read")
    given = [(name.lower(), value) for name, value in _PARAMETER.findall(form[1])]
    names = [value.strip(b'"') for name, value in given if name == b"name"]
    if len(names) != 1 or b"\\" in names[0]:
        raise Failure("invalid_value", "a part of the form has no name that can be read")
    return names[0] == b"model" and len(given) == 1
