"""An adapter type as a name that imports its module when it is used.

Discovery imports every plugin file, so a plugin file holds only names; what they stand for is imported on demand.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from twisted.plugin import IPlugin, getPlugins
from zope.interface import implementer

from iop.errors import Failure
from iop.interfaces import IAdapterFactory


@implementer(IPlugin, IAdapterFactory)
class AdapterPlugin:
    """Stands for a factory elsewhere.

    :param name: the type word.
    :param where: ``package.module:attribute`` of the :class:`~iop.interfaces.IAdapterFactory`.
    """

    def __init__(self, name: str, where: str) -> None:
        self.name = name
        self._where = where

    def _factory(self) -> Any:
        module, _, attribute = self._where.partition(":")
        return getattr(import_module(module), attribute)

    @property
    def title(self) -> str:
        return str(self._factory().title)

    @property
    def settings_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = self._factory().settings_schema
        return schema

    @property
    def capabilities(self) -> dict[str, Any]:
        capabilities: dict[str, Any] = self._factory().capabilities
        return capabilities

    def make(self, settings: Any, environment: Any) -> Any:
        return self._factory().make(settings, environment)


def found() -> dict[str, Any]:
    """Return every adapter factory on this machine by its name."""
    return {plugin.name: plugin for plugin in getPlugins(IAdapterFactory)}


def factory(name: str) -> Any:
    """Return one; :raises Failure: ``adapter_unavailable``, naming those there are."""
    factories = found()
    if name not in factories:
        raise Failure(
            "adapter_unavailable", f"no adapter type {name!r} here; there are: {', '.join(sorted(factories))}"
        )
    return factories[name]
