"""Where a client's connections go, how they are secured, and what is said when they cannot be had."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from OpenSSL import SSL, crypto
from service_identity import CertificateError, VerificationError
from twisted.internet.defer import CancelledError
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.error import ConnectError, ConnectingCancelledError, DNSLookupError
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.ssl import Certificate, optionsForClientTLS, trustRootFromCertificates
from twisted.python.failure import Failure as TwistedFailure

from iop.errors import Failure

LONGEST_DIAL: Final = 300.0
_ATTEMPT_DELAY: Final = 0.05  # between a host's addresses; Twisted's 0.3 s is also how long it takes to see a refusal


@dataclass(frozen=True, slots=True)
class Origin:
    """Where connections go. ``ca_file`` replaces the system's trust roots."""

    scheme: str
    host: str
    port: int
    ca_file: str = ""

    @classmethod
    def of(cls, url: str, ca_file: str = "") -> Origin:
        """Take it from an http or https URL; :raises ValueError: for another."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("an http:// or https:// URL with a host is needed")
        return cls(parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80), ca_file)

    @property
    def authority(self) -> bytes:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = self.port == (443 if self.scheme == "https" else 80)
        return (host if default else f"{host}:{self.port}").encode("idna" if not host.isascii() else "ascii")

    def endpoint(self, reactor: Any) -> IStreamClientEndpoint:
        """Return what dials it; :raises Failure: ``upstream_connect`` when ``ca_file`` cannot be used."""
        plain = HostnameEndpoint(reactor, self.host, self.port, timeout=LONGEST_DIAL, attemptDelay=_ATTEMPT_DELAY)
        if self.scheme != "https":
            return plain
        try:
            trust = trustRootFromCertificates(_certificates(self.ca_file)) if self.ca_file else None
        except (OSError, ValueError, crypto.Error):
            raise Failure("upstream_connect", "the backend's trust file cannot be used") from None
        secured: IStreamClientEndpoint = wrapClientTLS(optionsForClientTLS(self.host, trustRoot=trust), plain)
        return secured


def _certificates(path: str) -> list[Certificate]:
    end = b"-----END CERTIFICATE-----"
    with open(path, "rb") as file:
        found = [Certificate.loadPEM(part + end) for part in file.read().split(end)[:-1]]
    if not found:
        raise ValueError("no certificate")
    return found


def not_connected(reason: TwistedFailure) -> Failure:
    """Say why a connection could not be had, in words that name no address."""
    if reason.check(ConnectTimeout, CancelledError, ConnectingCancelledError, DeferredTimeout):
        return Failure("upstream_connect", "the backend did not take the connection in time", http_status=504)
    if reason.check(VerificationError, CertificateError) or (
        reason.check(SSL.Error) and "certificate" in str(reason.value)
    ):
        return Failure("upstream_connect", "the backend's TLS certificate was refused")
    if reason.check(SSL.Error):
        return Failure("upstream_connect", "the backend does not speak the same TLS")
    if reason.check(DNSLookupError):
        return Failure("upstream_connect", "the backend's name is not known")
    if reason.check(ConnectError, OSError):
        return Failure("upstream_connect", "the backend refused the connection")
    return Failure("upstream_connect", "the backend could not be reached")
