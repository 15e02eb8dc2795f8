"""``twistd iop-node``."""

from __future__ import annotations

from twisted.application.service import ServiceMaker

node = ServiceMaker("IOP node", "iop.node.tap", "Runs what an edge asks on the backends of this machine.", "iop-node")
