"""What a tool call says: which function of the request, with which arguments. Pure."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, NoReturn

from iop.edge.surfaces.openai.tools.text import NotACall

# Unclosed strings run to the end, or a text of many quotes would be looked through once for each.
_TRAILING_COMMA: Final = re.compile(r'("(?:[^"\\]|\\.)*+(?:"|\Z))|,(?=\s*+[}\]])', re.DOTALL)

_NAMES: Final = ("name", "tool_name", "function")
_ARGUMENTS: Final = ("arguments", "parameters", "args", "input")
_AROUND: Final = frozenset({*_NAMES, *_ARGUMENTS, "type", "id", "tool_call_id", "call_id", "index"})
_NO_VALUE: Final = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)


class Call(NamedTuple):
    """A tool call found in text.

    :ivar arguments: a JSON text of an object, as OpenAI wants it.
    """

    name: str
    arguments: str


class Tools:
    """The functions that a request offers: only they can be called."""

    def __init__(self, tools: Mapping[str, Mapping[str, Any]]) -> None:
        self._schemas = tools
        self._folded: dict[str, list[str]] = {}
        for name in tools:
            self._folded.setdefault(name.casefold(), []).append(name)

    def named(self, said: str) -> str:
        """Return the function that the model means: that name, or the only one that differs in nothing but case."""
        for name in (said, said.removeprefix("functions.")):
            if name in self._schemas:
                return name
            alike = self._folded.get(name.casefold(), [])
            if len(alike) == 1:
                return alike[0]
        raise NotACall

    def call(self, said: str, arguments: Any) -> Call:
        """Return a call. Arguments are an object, the JSON text of one, or nothing."""
        name = self.named(said)
        if isinstance(arguments, str):
            arguments = value_of(arguments) if arguments.strip() else None
        if not isinstance(arguments, dict | None):
            raise NotACall
        try:
            return Call(name, json.dumps(arguments or {}, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
        except _NO_VALUE:
            raise NotACall from None

    def calls(self, value: Any) -> list[Call]:
        """Return the calls of a JSON document: an object, or a list of them."""
        if not isinstance(value, list):
            return [self._called(value)]
        if not value:
            raise NotACall
        return [self._called(item) for item in value]

    def _called(self, value: Any) -> Call:
        if isinstance(value, dict) and isinstance(value.get("function"), dict):
            value = value["function"]
        if not isinstance(value, dict):
            raise NotACall
        name = next((value[key] for key in _NAMES if key in value), None)
        key = next((key for key in _ARGUMENTS if key in value), None)
        # Without arguments, keys that mean nothing here may well be them: better no call than half a call.
        if not isinstance(name, str) or (key is None and not value.keys() <= _AROUND):
            raise NotACall
        return self.call(name, value[key] if key is not None else None)

    def argument(self, said: str, key: str, raw: str) -> Any:
        """Return the value of an argument that was written as bare text, by what the schema says it is."""
        properties = self._schemas[self.named(said)].get("properties")
        schema = properties.get(key) if isinstance(properties, Mapping) else None
        types = _types(schema)
        if "string" in types and not (raw.strip() == "null" and "null" in types):
            return raw
        # Python's forms only where they are plain to see: "1, 2" is no list.
        readers = _READERS if raw.lstrip()[:1] in ("{", "[") else (_json,)
        try:
            return _PYTHON_WORDS[raw.strip()] if raw.strip() in _PYTHON_WORDS else value_of(raw, readers)
        except NotACall:
            return raw


def _types(schema: Any) -> set[Any]:
    """Return the types that a schema allows; an empty set when it does not say."""
    if not isinstance(schema, Mapping):
        return set()
    said = schema.get("type")
    found = {said} if isinstance(said, str) else {item for item in said or () if isinstance(item, str)}
    if isinstance(schema.get("enum"), list):
        found |= {"string" for item in schema["enum"] if isinstance(item, str)}
    for part in ("anyOf", "oneOf"):
        if isinstance(schema.get(part), list):
            found = found.union(*(_types(item) for item in schema[part]))
    return found


def python_calls(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the names and arguments in ``[f(a=1, b="x"), g()]``."""
    try:
        tree = _parsed(text)
        return [_python_call(item) for item in tree.elts] if isinstance(tree, ast.List) else [_python_call(tree)]
    except _NO_VALUE:
        raise NotACall from None


def _python_call(node: ast.expr) -> tuple[str, dict[str, Any]]:
    if not isinstance(node, ast.Call) or node.args:
        raise NotACall
    arguments = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise NotACall
        # Some models say JSON's words in Python's calls.
        word = keyword.value.id if isinstance(keyword.value, ast.Name) else ""
        arguments[keyword.arg] = _json(word) if word in ("true", "false", "null") else ast.literal_eval(keyword.value)
    return ast.unparse(node.func), arguments


def _json(text: str) -> Any:
    # Not strict: models write line ends in strings as they are.
    return json.loads(text, strict=False, parse_constant=_no_number)


def _no_number(word: str) -> NoReturn:
    raise ValueError(word)  # NaN, Infinity: no JSON could carry it on


def _json_without_trailing_commas(text: str) -> Any:
    return _json(_TRAILING_COMMA.sub(lambda found: found[1] or "", text))


def _python(text: str) -> Any:
    return ast.literal_eval(_parsed(text))


def _parsed(text: str) -> ast.expr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a model's "\d" is not ours to warn about
        return ast.parse(text.strip(), mode="eval").body


_READERS: Final = (_json, _json_without_trailing_commas, _python)
_PYTHON_WORDS: Final = {"True": True, "False": False, "None": None}


def value_of(text: str, readers: tuple[Callable[[str], Any], ...] = _READERS) -> Any:
    """Return what JSON says, or JSON with commas too many, or else Python."""
    for read in readers:
        try:
            return read(text)
        except _NO_VALUE:
            continue
    raise NotACall
