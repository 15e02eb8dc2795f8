"""Texts without credentials: of what a backend, an agent or a library says, which may quote what it was given.

``docs/contracts/adapters.md`` (Credentials).
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from twisted.python.failure import Failure as TwistedFailure

from iop.errors import Failure
from iop.logs import is_secret

SHORTEST: Final = 8
"""Characters of the shortest word that is hidden; a shorter one would take half of the other words with it."""

SHOWN: Final = "[credential]"

_MAPS: Final = frozenset({"headers", "env"})


class Hiding:
    """Hides an adapter's credentials.

    :param settings: of the adapter: the values of ``headers`` and ``env``, those with a secret's name, those that the
        schema marks ``x-secret``, and what stands before a URL's host.
    :param schema: of the settings.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None, schema: Mapping[str, Any] | None = None) -> None:
        marked = {name for name, words in (schema or {}).get("properties", {}).items() if _is_marked(words)}
        self._secrets = frozenset(word for text in _secret(settings or {}, marked) for word in _words(text))

    def text(self, text: str, more: Iterable[tuple[str, str]] = ()) -> str:
        """Return a text without them, and without the first characters of a long one.

        :param more: headers whose values are secret, too.
        """
        secrets = self._secrets.union(*(_words(value) for _, value in more))
        for secret in sorted(secrets, key=len, reverse=True):
            if secret[:SHORTEST] in text:
                text = re.sub(_pattern(secret), SHOWN, text)
        return text

    def failure(self, failure: Failure, more: Iterable[tuple[str, str]] = ()) -> Failure:
        """Return a failure that says nothing of them; itself, where it does not."""
        message = self.text(failure.message, more)
        param = None if failure.param is None else self.text(failure.param, more)
        if (message, param) == (failure.message, failure.param):
            return failure
        return Failure(
            failure.code,
            message,
            http_status=failure.http_status,
            type=failure.type,
            param=param,
            retryable=failure.retryable,
            retry_after_ms=failure.retry_after_ms,
            headers=failure.headers,
        )

    def reason(self, reason: TwistedFailure, more: Iterable[tuple[str, str]] = ()) -> TwistedFailure:
        """Return a failure for the log: of the same type, from the same place, without them."""
        try:
            told = str(reason.value)
            shown = self.text(told, more)
        except Exception:  # the log says what it can of such a one
            return reason
        if shown == told:
            return reason
        return TwistedFailure(Exception(shown), reason.type, reason.getTracebackObject())


def _is_marked(words: Any) -> bool:
    return isinstance(words, Mapping) and words.get("x-secret") is True


def _secret(settings: Mapping[str, Any], marked: Iterable[str] = ()) -> Iterator[str]:
    """Yield the texts of settings that are secret, wherever they stand."""
    for name, value in settings.items():
        if name in _MAPS or name in marked or is_secret(name):
            yield from _texts(value)
        elif isinstance(value, Mapping):
            yield from _secret(value)
        elif isinstance(value, str) and "://" in value:
            yield from _userinfo(value)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _userinfo(url: str) -> Iterator[str]:
    """Yield a URL's password, as it stands there, as it is, and as it is sent."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    if parts.password:
        yield parts.password
        yield unquote(parts.password)
        yield b64encode(f"{unquote(parts.username or '')}:{unquote(parts.password)}".encode()).decode()


def _words(text: str) -> Iterator[str]:
    """Yield what is secret in a text: all of it, and each of its words, as in ``Bearer TOKEN``."""
    return (word for word in {text, *text.split()} if len(word) >= SHORTEST)


def _pattern(secret: str) -> str:
    """Whole; of a long one, that is no path, also only the beginning, as backends that mean well show it."""
    if len(secret) < 2 * SHORTEST or "/" in secret[:SHORTEST] or " " in secret:
        return re.escape(secret)
    return re.escape(secret[:SHORTEST]) + r"""[^\s"'<>,;(){}\[\]\\]*"""
