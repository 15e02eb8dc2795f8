"""The JSON Schema (2020-12) of a configuration file, derived from the model's declarations.

``x-effect`` says what changing a setting costs, ``x-secret`` that it is hidden in every output, ``x-derived`` that its
default follows from other settings, ``x-expected`` what a person reads when a pattern does not match. Keys of older
forms are in it too; the model does not know them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from iop.edge.config.document import plain
from iop.edge.config.model import (
    Adapter,
    EdgeConfig,
    GroupProvider,
    ModelGroup,
    Node,
    PrincipalToken,
    Provider,
    ProviderAuth,
)
from iop.edge.config.model_nodes import INLINE, OLDER_QUEUE
from iop.edge.config.setting import ID, NUMBER, Effect, Field, fields
from iop.settings import SETTINGS

Schema = dict[str, Any]

_TYPES: Final = {str: "string", int: "integer", bool: "boolean"}
_NULL: Final = {"type": "null"}

#: Parts in which a key that looks like a secret's is refused for what it is, and what belongs there instead.
_NO_SECRETS: Final[dict[type[Any], str]] = {
    PrincipalToken: "no token has a place here, only its SHA-256, as token_hash_sha256",
    ProviderAuth: "no token has a place here: it comes with each request, in from_header",
}


@functools.cache
def schema() -> Schema:
    """The schema of a whole file. Shared: not to be changed."""
    parts: dict[str, Schema] = {}
    root = _part(EdgeConfig, parts)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "IOP edge configuration",
        **root,
        "$defs": dict(sorted(parts.items())),
    }


def _part(part: type[Any], parts: dict[str, Schema]) -> Schema:
    """The schema of one dataclass; those it refers to are added to ``parts``."""
    properties = {field.name: _field(field, part, parts) for field in fields(part)}
    built: Schema = {
        "type": "object",
        "description": str(part.__doc__).partition("\n")[0],
        "properties": properties,
        "additionalProperties": False,
    }
    required = [field.name for field in fields(part) if field.required]
    if required:
        built["required"] = required
    if part in _NO_SECRETS:
        built["x-no-secrets"] = _NO_SECRETS[part]
    if part is Provider:
        properties |= {name: _nullable(keys) for name, keys in (INLINE | OLDER_QUEUE).items()}
    return _by_type(built) if part is Adapter else built


def _refer(part: type[Any], parts: dict[str, Schema]) -> Schema:
    if part.__name__ not in parts:
        parts[part.__name__] = {}
        parts[part.__name__] = _part(part, parts)
    return {"$ref": f"#/$defs/{part.__name__}"}


def _field(field: Field, owner: type[Any], parts: dict[str, Schema]) -> Schema:
    keywords = dict(field.declaration.keywords)
    core = _shape(field, owner, keywords, parts)
    built = {**core, **keywords, "x-effect": field.declaration.effect.value}
    if field.declaration.derived:
        built["x-derived"] = True
    if field.required:
        return built
    if field.part is None or field.shape != "one":
        if field.default not in (None, "") and not field.declaration.derived:
            built["default"] = plain(field.default)
        return _nullable(built)
    may_be_off = field.optional or field.declaration.off is False
    if may_be_off and field.default is None:
        built["default"] = False
    reference = built.pop("$ref")
    arms: list[Schema] = [{"$ref": reference}, *([{"const": False}] if may_be_off else []), _NULL]
    return {"anyOf": arms, **built}


def _shape(field: Field, owner: type[Any], keywords: dict[str, Any], parts: dict[str, Schema]) -> Schema:
    if field.shape == "map":
        return {"type": "object"}
    item: Schema = _refer(field.part, parts) if field.part is not None else {"type": _TYPES[field.item]}
    if field.item is int:
        item = {**item, **NUMBER}
    if field.shape == "one":
        return item
    item = {**item, **keywords.pop("items", {})}
    if (owner, field.name) == (ModelGroup, "providers"):
        return {"type": "array", "items": {"anyOf": [{"type": "string", **ID}, _refer(GroupProvider, parts)]}}
    listed: Schema = {"type": "array", "items": item}
    if (owner, field.name) == (Node, "adapters"):
        older = {"description": "Older form: one instance a type.", "type": "object"}
        return {"anyOf": [listed, {**older, "additionalProperties": {"type": ["object", "null"]}}]}
    return listed


def _nullable(built: Mapping[str, Any]) -> Schema:
    """The same, or null, which is the same as absent."""
    result = dict(built)
    if "anyOf" in result:
        if _NULL not in result["anyOf"]:
            result["anyOf"] = [*result["anyOf"], _NULL]
        return result
    kinds = result["type"] if isinstance(result["type"], list) else [result["type"]]
    if "null" not in kinds:
        result["type"] = [*kinds, "null"]
    if "enum" in result:
        result["enum"] = [*result["enum"], None]
    return result


def _by_type(adapter: Schema) -> Schema:
    """An adapter's settings stand beside its name: those of its type, or anything for a drop-in's."""
    rules = [
        {
            "if": {"properties": {"type": {"const": kind}}, "required": ["type"]},
            "then": adapter_schema(kind, adapter),
        }
        for kind in SETTINGS
    ]
    return {**adapter, "additionalProperties": True, "allOf": rules}


def adapter_schema(kind: str, adapter: Schema) -> Schema:
    """An adapter entry of a built-in type, with that type's settings in it."""
    settings = SETTINGS[kind]
    own = {
        name: _nullable({**keywords, "x-effect": Effect.RESTART.value})
        for name, keywords in settings["properties"].items()
    }
    return {
        **settings,
        "properties": {**adapter["properties"], **own},
        "required": [*adapter["required"], *settings.get("required", ())],
    }
