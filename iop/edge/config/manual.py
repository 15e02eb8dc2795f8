"""The manual of settings: the JSON Schema as Markdown, so that it says what the edge does and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from iop.edge.config.model_nodes import INLINE, OLDER_QUEUE
from iop.edge.config.schema import Schema, schema
from iop.edge.config.setting import ID, SHA256, TEXT, Effect
from iop.settings import INT_MAX, NO_NUL, SETTINGS

_HEAD: Final = """\
<!-- Generated: iop-edge config schema --format markdown > docs/configuration.md -->
# Settings

Every setting of an edge's configuration. How files are read, laid over one another and given their secrets is in
[contracts/config.md](contracts/config.md); commented examples are in [etc/](../etc/). `iop-edge config check` says
everything that is wrong with a file, `iop-edge config show` prints it with every default filled in, and
`iop-edge config diff OLD NEW` says what a change would do.

- **Default**: *derived* ones follow from other settings, as the meaning says. Null is the same as absent.
- **A change is** *live*: it is applied to a running edge, no run is dropped; or needs a *restart* of the edge; its
  nodes reconnect by themselves.
- A *name* has up to 128 letters, digits and `. _ : / -`, the first one a letter or a digit. A *text* is printable, up
  to 200 characters, not empty. A *SHA-256* is 64 hexadecimal digits; quote it. Numbers are whole.
"""

_WORDS: Final = {ID["pattern"]: "name", TEXT["pattern"]: "text", SHA256["pattern"]: "SHA-256"}
_EFFECTS: Final = {Effect.LIVE.value: "live", Effect.RESTART.value: "restart"}
_TYPES: Final = {"string": "string", "integer": "number", "boolean": "true or false", "object": "map"}


def manual() -> str:
    """The whole manual, as ``docs/configuration.md`` has it."""
    root = schema()
    sections = _sections(root, "", root["$defs"])
    return _HEAD + "".join(f"\n{section}" for section in sections)


def _sections(part: Schema, path: str, parts: Mapping[str, Schema]) -> Iterator[str]:
    """One part of the configuration, then the parts in it."""
    older = (INLINE | OLDER_QUEUE).keys()
    apart = older if older <= part["properties"].keys() else frozenset()
    own = {key: words for key, words in part["properties"].items() if key not in apart}
    yield _section(f"`{path}`" if path else "The edge", part["description"], own, path, part.get("required", ()))
    if apart:
        yield _section(f"`{path}`, inline execution", _INLINE, INLINE, path, ())
        yield _section(f"`{path}`, older queue policy", _OLDER, OLDER_QUEUE, path, ())
    for rule in part.get("allOf", ()):
        kind = rule["then"]
        settings = {key: kind["properties"][key] for key in SETTINGS[kind["title"]]["properties"]}
        yield _section(f"`{path}` of type `{kind['title']}`", kind["description"], settings, path, kind["required"])
    for key, words in own.items():
        name, listed = _inner(words)
        if name:
            yield from _sections(parts[name], f"{path}.{key}".lstrip(".") + ("[]" if listed else ""), parts)


_INLINE: Final = "What a provider may carry itself instead of naming an adapter, as far as its runtime type knows it."
_OLDER: Final = "Read only when `provider_pool` is absent altogether, and only when all providers of models agree."


def _section(title: str, text: str, settings: Mapping[str, Schema], path: str, required: Any) -> str:
    rows = [_row(f"{path}.{key}".lstrip("."), words, key in required) for key, words in settings.items()]
    head = "| Setting | Type | Default | A change is | Meaning | Example |\n| --- | --- | --- | --- | --- | --- |\n"
    return f"## {title}\n\n{text.replace('``', '`')}\n\n{head}" + "".join(rows)


def _row(path: str, words: Schema, required: bool) -> str:
    default = "**required**" if required else _default(words)
    example = _code(words["examples"][0]) if "examples" in words else ""
    cells = [f"`{path}`", _type(words), default, _EFFECTS[words["x-effect"]], _meaning(words), example]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _meaning(words: Schema) -> str:
    values, items = words.get("additionalProperties"), words.get("items", words)
    secret = words.get("x-secret") or (isinstance(values, dict) and values.get("x-secret"))
    told = items.get("pattern") in (None, NO_NUL["pattern"], *_WORDS)
    expected = "" if told else f" {'Must be' if items is words else 'Each is'} {items['x-expected']}."
    return f"{words['description']}{expected}{' Hidden in every output.' if secret else ''}"


def _default(words: Schema) -> str:
    if "default" in words:
        return _code(words["default"])
    if words.get("x-derived"):
        return "derived"
    return "as below" if _inner(words)[0] else "none"


def _inner(words: Schema) -> tuple[str, bool]:
    """The part a setting holds, and whether it holds many."""
    for arm in [words, *words.get("anyOf", ())]:
        if "$ref" in arm:
            return arm["$ref"].rpartition("/")[2], False
        if "items" in arm:
            return _inner(arm["items"])[0], True
    return "", False


def _type(words: Schema) -> str:
    """A type in words, with the bounds that are not everybody's."""
    if "$ref" in words:
        return "section"
    if "anyOf" in words:
        arms = [_type(arm) for arm in words["anyOf"] if arm != {"type": "null"}]
        return " or ".join(dict.fromkeys(arms))
    if "const" in words:
        return "false"
    if "enum" in words:
        return "one of " + ", ".join(f"`{word}`" for word in words["enum"] if word is not None)
    kinds = words["type"] if isinstance(words["type"], list) else [words["type"]]
    return " or ".join(_plain_type(kind, words) for kind in kinds if kind != "null")


def _plain_type(kind: str, words: Schema) -> str:
    values = words.get("additionalProperties")
    if kind == "array":
        return f"list of {_many(_type(words['items']))}"
    if kind == "object" and isinstance(values, dict):
        return f"map of {_many(_type(values))}"
    if kind == "integer":
        return _TYPES[kind] + _bounds(words)
    return _WORDS.get(words.get("pattern"), _TYPES[kind]) if kind == "string" else _TYPES[kind]


def _many(words: str) -> str:
    return re.sub(r"\b(string|number|name|text|section|map)\b", r"\1s", words)


def _bounds(words: Schema) -> str:
    low, high = words.get("minimum"), words.get("maximum", INT_MAX)
    if high < INT_MAX:
        return f" {low} to {high}"
    return f" ≥ {low}" if low is not None else ""


def _code(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"`{text}`" if text else '`""`'
