"""Read: the bytes of one YAML file to a tree that knows its lines.

Works on the parser's events, so that duplicate keys, marks and limits are seen before anything is built. JSON types
only, and no value is shared: an alias is a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path as FilePath
from typing import Any, Final, NoReturn

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from iop.edge.config.files import read_bytes
from iop.edge.config.notyaml import not_yaml
from iop.edge.config.problems import Report
from iop.edge.config.scalars import NotPlain, plain
from iop.edge.config.tree import Map, Mark, Path, Seq

#: No configuration file is longer.
MAX_BYTES: Final = 4 * 1024 * 1024
#: Nor has aliases that stand for more values than this.
MAX_EXPANDED: Final = 100_000
#: Nor is nested deeper.
MAX_DEPTH: Final = 100

#: libyaml's, eight times as fast, where PyYAML was built with it.
LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TAG: Final = "tag:yaml.org,2002:"
_SCALAR_TAGS: Final[dict[str, tuple[type, ...]]] = {
    f"{_TAG}null": (type(None),),
    f"{_TAG}bool": (bool,),
    f"{_TAG}int": (int,),
    f"{_TAG}float": (float, int),
}


class _Stop(Exception):
    """Not YAML as a configuration may have it; the file is given up at this mark."""

    def __init__(self, path: Path, mark: Mark, message: str) -> None:
        super().__init__(message)
        self.path, self.mark, self.message = path, mark, message


def read_file(file: str, report: Report) -> Map | None:
    """The document in ``file``; None, and a problem in ``report``, when there is none."""
    try:
        source = read_bytes(FilePath(file), MAX_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a file's name"
        report.error((), "file", f"cannot read {file}: {reason}", Mark(file, 1))
        return None
    return read(source, file, report)


def read(source: bytes, file: str, report: Report) -> Map | None:
    """The document in ``source``, which stands in ``file``. An empty one is an empty mapping."""
    start = Mark(file, 1)
    try:
        root = _document(source, file, report)
    except _Stop as stop:
        report.error(stop.path, "yaml", stop.message, stop.mark)
        return None
    if root is None:
        return Map()
    if not isinstance(root, Map):
        report.error((), "schema", "must be a mapping of sections, such as `edge:` and `nodes:`", start)
        return None
    return root


def _document(source: bytes, file: str, report: Report) -> Any:
    start = Mark(file, 1)
    if len(source) > MAX_BYTES:
        raise _Stop((), start, "the file is longer than 4 MiB")
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        raise _Stop((), Mark(file, line), "the file must be UTF-8") from None
    builder = _Builder(yaml.parse(text, Loader=LOADER), file, report)
    try:
        return builder.only_document()
    except yaml.YAMLError as error:
        line, message = not_yaml(error, text)
        raise _Stop((), Mark(file, line), message) from None


class _Builder:
    """Builds one tree from a stream of events."""

    def __init__(self, events: Iterator[Event], file: str, report: Report) -> None:
        self._events = events
        self._file = file
        self._report = report
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._made = 0
        self._expanded = 0
        self._kinds: dict[type[Event], Callable[[Any, Path], Any]] = {
            ScalarEvent: self._scalar,
            MappingStartEvent: self._mapping,
            SequenceStartEvent: self._sequence,
            AliasEvent: self._alias,
        }

    def only_document(self) -> Any:
        value, seen = None, False
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                if seen:
                    self._stop(event, (), "a file holds one document; a second one begins here")
                seen, value = True, self._value(next(self._events), ())
        return value

    def _value(self, event: Event, path: Path) -> Any:
        if len(path) > MAX_DEPTH:
            self._stop(event, path[:3], "nested too deep")
        before = self._made
        self._made += 1
        value = self._kinds[type(event)](event, path)
        anchor = getattr(event, "anchor", None)
        if anchor is not None and not isinstance(event, AliasEvent):
            self._anchors[anchor] = (value, self._made - before)
        return value

    def _scalar(self, event: ScalarEvent, path: Path) -> Any:
        text, tag = event.value, event.tag
        if tag is None or tag in _SCALAR_TAGS:
            if not event.implicit[0] and tag is None:
                return self._text(event, path)
            value = self._plain(event, path)
            if tag is not None and type(value) not in _SCALAR_TAGS[tag]:
                self._stop(event, path, "the value is not what its tag says")
            return float(value) if tag == f"{_TAG}float" else value
        if tag not in ("!", f"{_TAG}str"):
            self._stop(event, path, "only JSON's types have a place here: text, numbers, booleans, null")
        return self._text(event, path) if text else ""

    def _plain(self, event: ScalarEvent, path: Path) -> Any:
        try:
            return plain(event.value)
        except NotPlain as error:
            self._stop(event, path, str(error))

    def _text(self, event: ScalarEvent, path: Path) -> str:
        text: str = event.value
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                self._stop(event, path, "half a surrogate pair is no text")
        return text

    def _mapping(self, event: MappingStartEvent, path: Path) -> Map:
        self._container(event, path, "map")
        mapping, merged = Map(), list[Map]()
        while not isinstance(key_event := self._next(), MappingEndEvent):
            mark = self._mark(key_event)
            if _is_merge(key_event):
                merged += self._merged(self._value(self._next(), path), path, mark)
                continue
            key = self._key(key_event, path)
            value = self._value(self._next(), (*path, key))
            if key in mapping:
                first = mapping.marks[key].line
                self._report.error((*path, key), "duplicate_key", f"the key stands already at line {first}", mark)
            else:
                mapping.put(key, value, mark)
        for other in merged:
            for key, value in other.items():
                if key not in mapping:
                    mapping.put(key, value, other.marks[key])
        return mapping

    def _merged(self, value: Any, path: Path, mark: Mark) -> list[Map]:
        maps = list(value) if isinstance(value, Seq) else [value]
        if not all(isinstance(each, Map) for each in maps):
            raise _Stop(path, mark, "`<<` merges a mapping or a list of mappings")
        return maps

    def _key(self, event: Event, path: Path) -> str:
        key = self._scalar(event, path) if isinstance(event, ScalarEvent) else None
        if not isinstance(key, str):
            self._stop(event, path, "a key must be text; quote it if it is a name")
        return key

    def _sequence(self, event: SequenceStartEvent, path: Path) -> Seq:
        self._container(event, path, "seq")
        items = Seq()
        while type(item_event := self._next()) is not SequenceEndEvent:
            items.put(self._value(item_event, (*path, len(items))), self._mark(item_event))
        return items

    def _alias(self, event: AliasEvent, path: Path) -> Any:
        if event.anchor not in self._anchors:
            self._stop(event, path, "the alias names no anchor that stands complete before it")
        value, size = self._anchors[event.anchor]
        self._made += size
        self._expanded += size
        if self._expanded > MAX_EXPANDED:
            self._stop(event, path, "the aliases stand for more than 100,000 values")
        return _copy(value)

    def _container(self, event: Any, path: Path, kind: str) -> None:
        if event.tag not in (None, "!", f"{_TAG}{kind}"):
            self._stop(event, path, "only JSON's types have a place here: mappings and lists without a tag")

    def _next(self) -> Event:
        return next(self._events)

    def _mark(self, event: Event) -> Mark:
        mark: Any = event.start_mark
        return Mark(self._file, mark.line + 1)

    def _stop(self, event: Event, path: Path, message: str) -> NoReturn:
        raise _Stop(path, self._mark(event), message)


def _is_merge(event: Event) -> bool:
    return isinstance(event, ScalarEvent) and event.value == "<<" and event.tag is None and event.implicit[0]


def _copy(value: Any) -> Any:
    if isinstance(value, Map):
        mapping = Map()
        for key, item in value.items():
            mapping.put(key, _copy(item), value.marks[key])
        return mapping
    if isinstance(value, Seq):
        items = Seq()
        for item, mark in zip(value, value.marks, strict=True):
            items.put(_copy(item), mark)
        return items
    return value
