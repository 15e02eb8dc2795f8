"""Redact: a document as others may see it, ``***`` in place of its secrets.

Hidden are tokens and their hashes, header and environment values, a URL's userinfo and query values, and what an
adapter's schema marks ``x-secret``. That a value was interpolated makes no secret of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from iop.settings import SETTINGS, Schema

HIDDEN: Final = "***"

_KEYS: Final = frozenset({"token", "token_hash_sha256"})
_MAPS: Final = frozenset({"headers", "env"})
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s]*")
#: Settings of a drop-in whose schema the edge does not have: a name like these hides them.
_LIKELY: Final = re.compile(r"token|secret|passw|api[-_]?key|access[-_]?key|private[-_]?key|credential", re.IGNORECASE)


def redact(value: Any, path: tuple[str | int, ...] = (), *, schemas: Mapping[str, Schema] = SETTINGS) -> Any:
    """The value without its secrets; the value itself is left as it is.

    :param path: where the value stands in the document, if it is a part of one.
    :param schemas: adapter type → its settings' schema, whose ``x-secret`` marks count.
    """
    if value is None:
        return None
    if path and (path[-1] in _KEYS or _in_secret_map(path)):
        return HIDDEN
    if isinstance(value, Mapping):
        marked = _marked(value, schemas) if "adapters" in path and "type" in value else frozenset()
        return {
            key: HIDDEN if key in marked and item is not None else redact(item, (*path, key), schemas=schemas)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            redact_url(item) if isinstance(item, str) else redact(item, (*path, index), schemas=schemas)
            for index, item in enumerate(value)
        ]
    return redact_url(value) if isinstance(value, str) else value


def _in_secret_map(path: tuple[str | int, ...]) -> bool:
    return len(path) > 1 and path[-2] in _MAPS and isinstance(path[-1], str)


def _marked(adapter: Mapping[str, Any], schemas: Mapping[str, Schema]) -> frozenset[str]:
    """The settings of an adapter entry that its type's schema hides; of an unknown type, those that sound like it."""
    known = schemas.get(str(adapter["type"]))
    if known is None:
        return frozenset(key for key in adapter if _LIKELY.search(key))
    return frozenset(key for key, keywords in known.get("properties", {}).items() if keywords.get("x-secret"))


def redact_url(text: str) -> str:
    """Text in which the URLs show no userinfo and no query values."""
    return _URL.sub(_hide, text) if "://" in text else text


def _hide(match: re.Match[str]) -> str:
    url, mark, fragment = match.group().partition("#")
    url, question, query = url.partition("?")
    scheme, slashes, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    if "@" in authority:
        authority = f"{HIDDEN}@{authority.rpartition('@')[2]}"
    hidden = "&".join(_hide_pair(pair) for pair in query.split("&")) if question else ""
    return f"{scheme}{slashes}{authority}{slash}{path}{question}{hidden}{mark}{fragment}"


def _hide_pair(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}={HIDDEN}" if equals else HIDDEN
