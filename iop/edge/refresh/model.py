"""What a refresh would do, or did, as frozen values; :meth:`RefreshResult.as_document` is what every command prints.

``docs/contracts/refresh.md``, Result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from iop.edge.config import Problem
from iop.edge.config.setting import Effect


class RefreshMode(StrEnum):
    """What a refresh is asked for: to say what it would do, or to do it."""

    DRY_RUN = "dry_run"
    APPLY = "apply"


class Status(StrEnum):
    """How a refresh ends; in a dry run, how applying would."""

    APPLIED = "applied"
    RESTART_REQUIRED = "restart_required"
    REJECTED = "rejected"


class Kind(StrEnum):
    """What happened at a path. Only entries of identity lists and of free maps come and go."""

    ADDED = "added"
    REMOVED = "removed"
    MODIFIED = "modified"


class ReportStatus(StrEnum):
    """What became of one node's payload."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    OFFLINE = "offline"
    FAILED = "failed"
    ROLLED_BACK = "rolled_back"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between two effective configurations.

    ``path`` names entries by their identity; ``before`` and ``after`` are JSON values without their secrets, None
    where there is nothing.
    """

    path: str
    kind: Kind
    effect: Effect
    before: Any = None
    after: Any = None

    def as_document(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "kind": self.kind.value,
            "class": self.effect.value,
            "before": self.before,
            "after": self.after,
        }

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Change:
        kind, effect = Kind(document["kind"]), Effect(document["class"])
        return cls(document["path"], kind, effect, document["before"], document["after"])


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What one node made of a refresh."""

    node_id: str
    status: ReportStatus
    message: str = ""

    def as_document(self) -> dict[str, str]:
        return {"node_id": self.node_id, "status": self.status.value, "message": self.message}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> NodeReport:
        return cls(document["node_id"], ReportStatus(document["status"]), document["message"])


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshResult:
    """A whole refresh: what differs, what that costs, and what came of it.

    ``mode`` is the word that was asked for, a known one or not. ``changed_providers`` are ``node/provider``. A
    revision is None for a configuration that does not load.
    """

    mode: str
    changes: tuple[Change, ...] = ()
    changed_nodes: tuple[str, ...] = ()
    changed_providers: tuple[str, ...] = ()
    changed_models: tuple[str, ...] = ()
    reports: tuple[NodeReport, ...] = ()
    errors: tuple[Problem, ...] = ()
    revision_before: str | None = None
    revision_after: str | None = None

    @property
    def status(self) -> Status:
        """Rejected if anything is wrong, else as costly as the costliest change."""
        if self.errors:
            return Status.REJECTED
        if any(change.effect is not Effect.LIVE for change in self.changes):
            return Status.RESTART_REQUIRED
        return Status.APPLIED

    def as_document(self) -> dict[str, Any]:
        """JSON types in one order: equal results are equal text."""
        return {
            "mode": self.mode,
            "status": self.status.value,
            "changed_nodes": sorted(self.changed_nodes),
            "changed_providers": sorted(self.changed_providers),
            "changed_models": sorted(self.changed_models),
            "changes": [change.as_document() for change in sorted(self.changes, key=lambda each: each.path)],
            "reports": [report.as_document() for report in sorted(self.reports, key=lambda each: each.node_id)],
            "errors": [problem.document() for problem in self.errors],
            "revision_before": self.revision_before,
            "revision_after": self.revision_after,
        }

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> RefreshResult:
        """What :meth:`as_document` was made of; :raises ValueError, KeyError, TypeError: for anything else."""
        return cls(
            mode=document["mode"],
            changes=tuple(map(Change.of_document, document["changes"])),
            changed_nodes=tuple(document["changed_nodes"]),
            changed_providers=tuple(document["changed_providers"]),
            changed_models=tuple(document["changed_models"]),
            reports=tuple(map(NodeReport.of_document, document["reports"])),
            errors=tuple(Problem(**problem) for problem in document["errors"]),
            revision_before=document["revision_before"],
            revision_after=document["revision_after"],
        )
