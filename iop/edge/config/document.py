"""The effective document: the model as plain data, and plain data as the model.

The same keys as the file, every default filled in, what has no default as null, older forms gone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from iop.edge.config.model import Adapter, EdgeConfig, Node
from iop.edge.config.setting import Field, fields


class FrozenMap(dict[str, Any]):
    """A mapping that cannot be changed: a dictionary to whatever only reads it, such as ``json``."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a configuration cannot be changed")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> FrozenMap:
        return self

    def __deepcopy__(self, memo: Any) -> FrozenMap:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenMap, (dict(self),)


class Made(dict[str, Any]):
    """An adapter entry that normalization made of a provider's inline settings."""

    def __init__(self, of_provider: str, entry: Mapping[str, Any]) -> None:
        super().__init__(entry)
        self.of_provider = of_provider


def effective(config: EdgeConfig) -> dict[str, Any]:
    """The document ``config show`` prints, with its secrets. Loading it gives the same configuration."""
    document: dict[str, Any] = plain(config)
    return document


def plain(value: Any) -> Any:
    """Any part of a configuration as JSON types."""
    if value is None or isinstance(value, str | int):
        return value
    if dataclasses.is_dataclass(value):
        return _plain_part(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [item if isinstance(item, str) else plain(item) for item in value]
    return value


def _plain_part(part: Any) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for field in fields(type(part)):
        value = getattr(part, field.name)
        document[field.name] = field.declaration.off if value is None else plain(value)
    if isinstance(part, Adapter):
        document |= plain(part.settings)
    if isinstance(part, Node) and part.token is not None:
        # Exactly one of the two may stand in a file; the hash follows from the token.
        document["token_hash_sha256"] = None
    return document


def build(part: type[Any], document: Mapping[str, Any]) -> Any:
    """A part of the model from a document that was normalized and has no error."""
    values = {field.name: _build(field, document[field.name]) for field in fields(part) if field.name in document}
    if part is Adapter:
        values["settings"] = frozen({key: value for key, value in document.items() if key not in values})
        values["of_provider"] = document.of_provider if isinstance(document, Made) else None
    if part is Node and values.get("token") is not None:
        values["token_hash_sha256"] = token_hash(values["token"])
    return part(**values)


def _build(field: Field, value: Any) -> Any:
    if field.part is None:
        return frozen(value)
    if field.shape == "list":
        return tuple(build(field.part, item) for item in value)
    return None if value is None or value is False else build(field.part, value)


def frozen(value: Any) -> Any:
    """JSON data that cannot be changed; text that came from a secret is plain text from here on."""
    if isinstance(value, Mapping):
        return FrozenMap({str(key): frozen(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return tuple(frozen(item) for item in value)
    return str(value) if isinstance(value, str) else value


def token_hash(token: str) -> str:
    """What a token is known by: its SHA-256, as lower-case hexadecimal."""
    return hashlib.sha256(token.encode()).hexdigest()


def canonical(config: EdgeConfig) -> dict[str, Any]:
    """The effective document in the one spelling in which equal configurations are equal text.

    Lists whose order means nothing are sorted, and a node's secret is its hash.
    """
    document = effective(config)
    document["models"] = _sorted(document["models"], "id")
    document["nodes"] = _sorted(document["nodes"], "id")
    for node, part in zip(document["nodes"], sorted(config.nodes, key=lambda each: each.id), strict=True):
        node["token"], node["token_hash_sha256"] = None, part.token_hash_sha256
        node["adapters"] = _sorted(node["adapters"], "name")
        node["providers"] = _sorted(node["providers"], "id")
        for provider in node["providers"]:
            provider["models"] = sorted(provider["models"])
    if document["openai"]:
        openai = document["openai"]
        openai["principal_tokens"] = _sorted(openai["principal_tokens"], "token_ref")
        openai["model_routes"] = _sorted(openai["model_routes"], "model")
    return document


def _sorted(entries: Iterable[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return sorted(entries, key=lambda entry: str(entry[key]))


def revision(config: EdgeConfig) -> str:
    """The SHA-256 of the canonical, unredacted document: equal for equal configurations, whatever their spelling."""
    text = json.dumps(canonical(config), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
