"""``twistd iop-edge``."""

from __future__ import annotations

from twisted.application.service import ServiceMaker

edge = ServiceMaker(
    "IOP edge", "iop.edge.tap", "One OpenAI endpoint for a pool of providers on many nodes.", "iop-edge"
)
