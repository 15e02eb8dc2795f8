"""Response headers that do not travel through a gateway. A leaf: node and edge drop the same ones."""

from __future__ import annotations

from typing import Final

HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""They belong to one connection (RFC 9110, 7.6.1)."""

DROPPED: Final = HOP_BY_HOP | {
    # framing and time are the edge's own; the rest tells of the backend, or speaks for the edge's origin
    "content-length",
    "date",
    "server",
    "via",
    "x-powered-by",
    "location",
    "alt-svc",
    "set-cookie",
    "strict-transport-security",
    "x-request-id",
    "retry-after",
}


def travels(name: str) -> bool:
    """Whether a backend's header, its name in lower case, reaches the client."""
    return name not in DROPPED and not name.startswith("access-control-")
