"""Interpolate: ``${env:NAME}`` and ``${file:PATH}`` in strings replaced by what they name.

After YAML and after merging, so that a value adds no keys and needs no quoting. What comes in is always text, and is
not looked at again. ``$${`` is a literal ``${``; any other ``${…}`` is literal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any, Final

from iop.edge.config.files import read_bytes
from iop.edge.config.problems import Report
from iop.edge.config.tree import REFUSED, Map, Mark, Path, Seq

_REFERENCE: Final = re.compile(r"\$\$\{|\$\{(env|file):([^}]*)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

#: No secret's file is longer.
MAX_BYTES: Final = 1024 * 1024


class Interpolated(str):
    """Text that came, at least in part, from the environment or a file: no literal secret."""

    __slots__ = ()


class _Missing(Exception):
    """A reference that leads nowhere; the message names the variable or the file."""


def interpolate(tree: Any, environ: Mapping[str, str], report: Report) -> Any:
    """The tree with every reference replaced; one that is missing is reported and refused."""
    return _Interpolation(environ, report).value(tree, (), Mark("", 1))


class _Interpolation:
    """One pass over one tree."""

    def __init__(self, environ: Mapping[str, str], report: Report) -> None:
        self._environ = environ
        self._report = report

    def value(self, value: Any, path: Path, mark: Mark) -> Any:
        if isinstance(value, str):
            return self._text(value, path, mark) if "${" in value else value
        if isinstance(value, Map):
            mapping = Map()
            for key, item in value.items():
                here = value.marks[key]
                mapping.put(key, self.value(item, (*path, key), here), here)
            return mapping
        if isinstance(value, Seq):
            items = Seq()
            items.marks = value.marks
            items += [self.value(item, (*path, index), value.marks[index]) for index, item in enumerate(value)]
            return items
        return value

    def _text(self, text: str, path: Path, mark: Mark) -> Any:
        pieces, end, came, complete = [], 0, False, True
        for match in _REFERENCE.finditer(text):
            pieces.append(text[end : match.start()])
            end = match.end()
            kind, name = match.groups()
            if kind is None:
                pieces.append("${")
                continue
            try:
                pieces.append(self._variable(name) if kind == "env" else _file(name, mark))
                came = True
            except _Missing as missing:
                self._report.error(path, "secret_missing", str(missing), mark)
                complete = False
        if not complete:
            return REFUSED
        result = "".join((*pieces, text[end:]))
        return Interpolated(result) if came else result

    def _variable(self, name: str) -> str:
        if not _NAME.fullmatch(name):
            # The name may hold a default, and the default a secret: it is not repeated.
            raise _Missing("must name an environment variable, as in ${env:NAME}; there is no form with a default")
        value = self._environ.get(name)
        if value is None:
            raise _Missing(f"the environment variable {name} must be set")
        if value == "":
            raise _Missing(f"the environment variable {name} is set, but empty")
        return _valid(value, f"the environment variable {name}")


def _file(name: str, mark: Mark) -> str:
    if not name or "\0" in name:
        raise _Missing("must name a file, as in ${file:PATH}")
    try:
        content = read_bytes(FilePath(mark.file).parent / name, MAX_BYTES)
    except OSError as error:
        raise _Missing(f"the file {name} must be there and readable: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise _Missing(f"the file {name} is longer than 1 MiB")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise _Missing(f"the file {name} must be UTF-8 text") from None
    text = text.removesuffix("\n").removesuffix("\r") if text.endswith("\r\n") else text.removesuffix("\n")
    if text == "":
        raise _Missing(f"the file {name} is there, but empty")
    return text


def _valid(value: str, what: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Missing(f"{what} must be UTF-8 text") from None
    return value
