"""Who asks, and whether a web page made them ask. ``docs/contracts/openai.md`` (Authentication). Pure."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping, Set

from iop import model as m
from iop.edge.config import model as config
from iop.errors import Failure

_DENIED = "a valid API key is needed: send it as `Authorization: Bearer KEY`"


class Gate:
    """Lets requests in, by their head alone."""

    def __init__(self, settings: config.OpenAI) -> None:
        self._principals = {p.token_hash_sha256: p for p in settings.principal_tokens}
        self._anonymous = settings.allow_anonymous
        self._origins = frozenset(settings.allowed_origins)
        self._hosts = frozenset(host.lower() for host in settings.allowed_hosts)
        self._provider_auth = settings.provider_auth
        self._from_header = settings.provider_auth.from_header.lower().encode("latin-1")

    def admit(
        self, headers: Mapping[bytes, bytes], repeated: Set[bytes], *, api_key: bool = False
    ) -> config.PrincipalToken | None:
        """Return whose request it is, None for nobody's.

        :param headers: by name in lower case; ``repeated`` are those that stood more than once.
        :param api_key: whether ``x-api-key`` is looked at where there is no ``Authorization``.
        :raises Failure: for one that may not come in.
        """
        name = b"x-api-key" if api_key and b"authorization" not in headers else b"authorization"
        if name in headers and self._principals:
            if name in repeated:
                raise Failure("invalid_api_key", _DENIED)
            return self._identify(*_token(name, headers[name]))
        if not self._anonymous:
            raise Failure("invalid_api_key", _DENIED)
        self._not_a_page(headers.get(b"host"), headers.get(b"origin"))
        return None

    def _identify(self, scheme: bytes, token: bytes) -> config.PrincipalToken:
        digest = hashlib.sha256(token).hexdigest()
        found = self._principals.get(digest)
        if scheme.lower() != b"bearer" or not token or found is None:
            raise Failure("invalid_api_key", _DENIED)
        if not hmac.compare_digest(found.token_hash_sha256, digest):
            raise Failure("invalid_api_key", _DENIED)
        return found

    def _not_a_page(self, host: bytes | None, origin: bytes | None) -> None:
        """An anonymous request must not come from a web page, nor through a name that was made to point here."""
        if origin is not None and not self.allows_origin(origin):
            raise Failure("origin_not_allowed", "this web page's origin is not in openai.allowed_origins")
        if host is not None and not self._allows_host(host.decode("latin-1")):
            raise Failure("host_not_allowed", "this host name is not in openai.allowed_hosts")

    def allows_origin(self, origin: bytes) -> bool:
        """Whether a web page of that origin may use the surface."""
        return origin.decode("latin-1") in self._origins

    def _allows_host(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
        name = name.lower().rstrip(".")
        if name == "localhost" or name in self._hosts or host.lower() in self._hosts:
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def provider_token(self, headers: Mapping[bytes, bytes], repeated: Set[bytes]) -> m.Headers:
        """Return the header that carries a caller's provider token upstream.

        :raises Failure: ``provider_token_missing``, ``invalid_value``.
        """
        rule = self._provider_auth
        if not rule.enabled:
            return ()
        token = headers.get(self._from_header, b"").decode("latin-1").strip()
        if not token:
            if rule.required:
                raise Failure("provider_token_missing", f"the header {rule.from_header} is needed")
            return ()
        if self._from_header in repeated or not token.isprintable():
            raise Failure("invalid_value", f"the header {rule.from_header} must stand once and hold one token")
        if rule.scheme and not token.lower().startswith(rule.scheme.lower() + " "):
            token = f"{rule.scheme} {token}"
        return ((rule.target_header, token),)


def _token(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return the scheme and the token that a header holds."""
    if name == b"x-api-key":
        return b"bearer", value.strip(b" \t")
    scheme, _, token = value.partition(b" ")
    return scheme, token.strip(b" \t")
