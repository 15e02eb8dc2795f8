"""Check: what a document breaks of its JSON Schema, in words that never hold a value of it.

Interprets the keywords that this project's own schemas use; a test holds it against ``jsonschema``, whose messages
print the offending value and which takes seconds for a large configuration. What is refused is replaced by
:data:`REFUSED`, what is null counts as absent, and the rest goes on to the next stage.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from iop.edge.config.problems import Report
from iop.edge.config.tree import REFUSED, Path

Schema = Mapping[str, Any]

_KINDS: Final[dict[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}
_NAMES: Final = {
    "string": "text (quote it in YAML if it looks like something else)",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}
_SECRET_KEY: Final = re.compile(
    r"token|secret|passw|api[-_]?key|access[-_]?key|private[-_]?key|bearer|credential|authorization|^key$",
    re.IGNORECASE,
)
_NO_SECRET_KEY: Final = re.compile(r"hash|sha256|ref$", re.IGNORECASE)

_compiled: Final[dict[str, re.Pattern[str]]] = {}


def check(schema: Schema, value: Any, report: Report, path: Path = ()) -> Any:
    """The value with everything refused taken out; the problems go into ``report``."""
    return _Check(schema, report).value(schema, value, path)


class _Check:
    """One document against one root schema, in which ``$ref`` leads to ``$defs``."""

    def __init__(self, root: Schema, report: Report) -> None:
        self._defs: Schema = root.get("$defs", {})
        self._error = report.error

    def value(self, schema: Schema, value: Any, path: Path) -> Any:
        if value is REFUSED:
            return REFUSED
        arm = self._arm(schema, value)
        if arm is None:
            self._error(path, "schema", f"must be {self._expected(schema)}")
            return REFUSED
        if isinstance(value, dict):
            return self._object(arm, value, path)
        if isinstance(value, list):
            return [self.value(arm.get("items", {}), item, (*path, index)) for index, item in enumerate(value)]
        fault = self._scalar(arm, value)
        if fault is not None:
            self._error(path, *fault)
            return REFUSED
        return value

    def _arm(self, schema: Schema, value: Any) -> Schema | None:
        """The schema that is meant for a value of this type: itself, or an arm of its ``anyOf``."""
        while "$ref" in schema:
            schema = self._defs[schema["$ref"].rpartition("/")[2]]
        if "anyOf" in schema:
            return next((arm for each in schema["anyOf"] if (arm := self._arm(each, value)) is not None), None)
        if "const" in schema:
            return schema if value is schema["const"] else None
        kinds = schema.get("type")
        if kinds is None:
            return schema
        if isinstance(kinds, str):
            return schema if _KINDS[kinds](value) else None
        return schema if any(_KINDS[kind](value) for kind in kinds) else None

    def _expected(self, schema: Schema) -> str:
        """The types a schema takes, in words."""
        while "$ref" in schema:
            schema = self._defs[schema["$ref"].rpartition("/")[2]]
        if "anyOf" in schema:
            words = [self._expected(arm) for arm in schema["anyOf"] if arm != {"type": "null"}]
        elif "const" in schema:
            words = ["false"]
        else:
            kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            words = [_NAMES[kind] for kind in kinds if kind != "null"]
        return " or ".join(dict.fromkeys(words))

    def _object(self, schema: Schema, value: dict[str, Any], path: Path) -> dict[str, Any]:
        schema = _applied(schema, value)
        known: Schema = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        result: dict[str, Any] = {}
        for key, item in value.items():
            here = (*path, key)
            if key in known:
                if item is not None:
                    result[key] = self.value(known[key], item, here)
            elif others is False:
                self._unknown(schema, key, value, here, result)
            elif self._name(schema, key, here):
                result[key] = self.value({} if others is True else others, item, here)
        for key in schema.get("required", ()):
            if key not in result:
                self._error((*path, key), "schema", f"is required: {_described(known[key])}")
                result[key] = REFUSED
        return result

    def _name(self, schema: Schema, key: str, path: Path) -> bool:
        rule = schema.get("propertyNames")
        fault = self._scalar(rule, key) if rule is not None else None
        if fault is not None:
            self._error(path, "schema", f"the key {fault[1]}")
        return fault is None

    def _unknown(self, schema: Schema, key: str, value: Schema, path: Path, result: dict[str, Any]) -> None:
        advice = schema.get("x-no-secrets")
        if advice and _SECRET_KEY.search(key) and not _NO_SECRET_KEY.search(key):
            self._error(path, "secret_inline", str(advice))
            return
        known = list(schema.get("properties", ()))
        near = difflib.get_close_matches(key, known, 1) if len(key) <= 100 else []
        if not near:
            self._error(path, "schema", f"unknown key; known here: {', '.join(known) or 'none'}")
            return
        self._error(path, "schema", f"unknown key; did you mean `{near[0]}`?")
        if value.get(near[0]) is None:
            # What was meant is there, only misspelled: nothing more is said about its absence.
            result[near[0]] = REFUSED

    def _scalar(self, schema: Schema, value: Any) -> tuple[str, str] | None:
        """Code and message of what is wrong with one scalar."""
        if "enum" in schema and value not in schema["enum"]:
            words = ", ".join(str(word) for word in schema["enum"] if word is not None)
            return "schema", f"must be one of {words}"
        if isinstance(value, str):
            return _text_fault(schema, value)
        if _KINDS["integer"](value):
            return _number_fault(schema, value)
        return None


def _applied(schema: Schema, value: Schema) -> Schema:
    """The schema, or the ``then`` of the one rule of its ``allOf`` whose ``if`` names this value's type."""
    for rule in schema.get("allOf", ()):
        if value.get("type") == rule["if"]["properties"]["type"]["const"]:
            applied: Schema = rule["then"]
            return applied
    return schema


def _text_fault(schema: Schema, value: str) -> tuple[str, str] | None:
    pattern = schema.get("pattern")
    if len(value) < schema.get("minLength", 0):
        expected = schema.get("x-expected", "text that is not empty")
    elif len(value) > schema.get("maxLength", len(value)):
        expected = schema.get("x-expected", f"text of up to {schema['maxLength']} characters")
    elif pattern is not None and not _regex(pattern).search(value):
        expected = schema.get("x-expected", "text of the right form")
    else:
        return None
    return "schema", f"must be {expected}"


def _number_fault(schema: Schema, value: int) -> tuple[str, str] | None:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and value < low:
        return "range", f"must be {low} or more"
    if high is not None and value > high:
        return "range", f"must be {high} or less"
    return None


def _regex(pattern: str) -> re.Pattern[str]:
    compiled = _compiled.get(pattern)
    if compiled is None:
        compiled = _compiled[pattern] = re.compile(pattern)
    return compiled


def _described(schema: Schema) -> str:
    text = str(schema.get("description", "see the schema"))
    return text[0].lower() + text[1:].rstrip(".")
