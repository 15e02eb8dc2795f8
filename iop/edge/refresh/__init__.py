"""What a change of configuration would do, before anything happens.

Pure: two configurations in, a :class:`RefreshResult` out. ``docs/contracts/refresh.md``.
"""

from __future__ import annotations

from iop.edge.refresh.model import (
    Change,
    Kind,
    NodeReport,
    RefreshMode,
    RefreshResult,
    ReportStatus,
    Status,
)
from iop.edge.refresh.plan import Side, plan

__all__ = [
    "Change",
    "Kind",
    "NodeReport",
    "RefreshMode",
    "RefreshResult",
    "ReportStatus",
    "Side",
    "Status",
    "plan",
]
