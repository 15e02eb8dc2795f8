"""One rule for every way to write a base URL. Pure."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Final
from urllib.parse import quote, unquote, urlsplit

_VERSION: Final = re.compile(r"/v[0-9]+$")


def target(base_url: str, path: str) -> str:
    """Return the request target for ``path`` (``/v1/…``) under a base URL, written with or without its version.

    ``http://b``, ``http://b/``, ``http://b/v1`` and ``http://b/v1/`` all lead to ``/v1/…``; a last segment that is a
    version stands for the path's own, any other is a prefix.
    """
    prefix = _prefix(base_url)
    if _VERSION.search(prefix) and path.startswith("/v1/"):
        return prefix + path[len("/v1") :]
    return prefix + path


def beside(base_url: str, path: str) -> str:
    """Return the request target of a path that is no endpoint of the API, ``/health`` say: beside the version."""
    return _VERSION.sub("", _prefix(base_url)) + path


def _prefix(base_url: str) -> str:
    return quote(urlsplit(base_url).path.rstrip("/"), safe="/%:@!$&'()*+,;=~")


def credentials(base_url: str) -> dict[bytes, bytes]:
    """Return the header that a base URL's ``user:password@`` stands for."""
    parts = urlsplit(base_url)
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return {b"authorization": b"Basic " + b64encode(pair)}
