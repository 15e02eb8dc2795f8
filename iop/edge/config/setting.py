"""How a setting is declared: its type and default, what it means, and what changing it costs.

A part of the configuration is a frozen dataclass whose fields are made by :func:`setting`. From these declarations
come the JSON Schema, the defaults, the effective document and the classification of a change: nothing of a setting is
said twice.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from typing import Any, Final

from iop.settings import END, INT_MAX


class Effect(enum.Enum):
    """What changing a setting of a running edge costs."""

    LIVE = "live"
    RESTART = "restart_required"


_ID: Final = r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}"

#: A name that other places of the configuration refer to.
ID: Final[dict[str, Any]] = {
    "pattern": f"^{_ID}{END}",
    "x-expected": "a name of up to 128 letters, digits and . _ : / -, the first one a letter or a digit",
}

#: Words for people.
TEXT: Final[dict[str, Any]] = {
    "minLength": 1,
    "maxLength": 200,
    "pattern": r"^(?=[\s\S]*\S)(?![\s\S]*[\u0000-\u001f\u007f-\u009f\u2028\u2029])",
    "x-expected": "printable text of up to 200 characters, not empty",
}

#: A SHA-256 in hexadecimal.
SHA256: Final[dict[str, Any]] = {
    "pattern": f"^[0-9A-Fa-f]{{64}}{END}",
    "x-expected": "the 64 hexadecimal digits of a SHA-256 (quote it in YAML)",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Declaration:
    """What is said about one setting where it is declared, its type apart.

    ``keywords`` are JSON Schema keywords; ``derived`` is a setting whose default follows from others; ``off`` is what
    the document says for a section that is off; ``unordered`` is a list whose order means nothing.
    """

    effect: Effect
    keywords: Mapping[str, Any]
    derived: bool
    off: bool | None
    unordered: bool


def setting(
    effect: Effect,
    doc: str,
    *,
    default: Any = MISSING,
    factory: Callable[[], Any] | None = None,
    derived: bool = False,
    secret: bool = False,
    quiet: bool = False,
    off: bool | None = None,
    unordered: bool = False,
    expected: str = "",
    **keywords: Any,
) -> Any:
    """A dataclass field that is a setting. The effect has no default: an undecided setting cannot be written.

    :param doc: one sentence for the schema and the manual.
    :param expected: what a person reads when the value has not the right form.
    :param secret: hidden in every output.
    :param quiet: may hold a secret, as a URL does: kept out of ``repr``.
    :param keywords: further JSON Schema keywords (``minimum``, ``pattern``, ``examples`` …).
    """
    marks: dict[str, Any] = {"x-secret": True} if secret else {}
    if expected:
        marks["x-expected"] = expected
    declaration = Declaration(effect, {"description": doc, **keywords, **marks}, derived, off, unordered)
    options: dict[str, Any] = {"metadata": {"setting": declaration}, "repr": not (secret or quiet)}
    if factory is not None:
        options["default_factory"] = factory
    elif default is not MISSING:
        options["default"] = default
    field: Any = dataclasses.field(**options)
    return field


def declared(effect: Effect, doc: str, **keywords: Any) -> dict[str, Any]:
    """The schema of a key that a file may hold and that is gone after normalization (an older form)."""
    return {"description": doc, **keywords, "x-effect": effect.value}


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One setting of a part, with its type taken apart.

    ``shape`` says how ``item`` occurs: ``"one"``, ``"list"`` or ``"map"``.
    """

    name: str
    declaration: Declaration
    shape: str
    item: Any
    optional: bool
    default: Any

    @property
    def part(self) -> type[Any] | None:
        """The dataclass this setting holds one or many of."""
        return self.item if dataclasses.is_dataclass(self.item) and isinstance(self.item, type) else None

    @property
    def required(self) -> bool:
        return self.default is MISSING and not self.declaration.derived


_fields: Final[dict[type[Any], tuple[Field, ...]]] = {}


def fields(part: type[Any]) -> tuple[Field, ...]:
    """The settings of a part, in the order they are declared."""
    if part not in _fields:
        _fields[part] = _declared_fields(part)
    return _fields[part]


def _declared_fields(part: type[Any]) -> tuple[Field, ...]:
    hints = typing.get_type_hints(part)
    return tuple(_field(each, hints[each.name]) for each in dataclasses.fields(part) if "setting" in each.metadata)


def _field(each: dataclasses.Field[Any], hint: Any) -> Field:
    declaration: Declaration = each.metadata["setting"]
    optional = False
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        optional = True
        (hint,) = [arm for arm in typing.get_args(hint) if arm is not types.NoneType]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    shape = {tuple: "list", Mapping: "map"}.get(typing.cast(Any, origin), "one")
    item = arguments[0] if shape == "list" else arguments[1] if shape == "map" else hint
    default = each.default if each.default_factory is MISSING else each.default_factory()
    return Field(each.name, declaration, shape, item, optional, default)


#: Bounds every whole number has unless its declaration says otherwise.
NUMBER: Final[dict[str, Any]] = {"minimum": 0, "maximum": INT_MAX}
