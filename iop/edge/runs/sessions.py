"""Where conversations that go on are, and which of them are in use. Pure.

``docs/contracts/openai.md`` (Session and workspace). A node keeps its sessions; the edge only remembers which provider
has which, and asks a node anew when it registers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from iop.edge.pool.admission import Group, Place
from iop.errors import Failure

MOST: Final = 100_000
"""Sessions whose place is remembered; the ones used last."""


class Sessions:
    """Every session that the edge knows of, by its name on the wire."""

    def __init__(self) -> None:
        self._places: OrderedDict[str, Place] = OrderedDict()
        self._in_use: set[str] = set()

    def begin(self, session_id: str) -> None:
        """A run of a session begins; :raises Failure: ``session_busy``."""
        if session_id in self._in_use:
            raise Failure("session_busy", "another run of this session is under way", param="metadata.session_id")
        self._in_use.add(session_id)

    def place_of(self, session_id: str) -> Place | None:
        """Return where a session is; None for a new one."""
        return self._places.get(session_id)

    @staticmethod
    def unfit(place: Place | None, group: Group) -> frozenset[str]:
        """Return the providers of a model that a run of a session may not go to, by where the session is.

        :raises Failure: ``invalid_value`` for one that belongs to another model's provider.
        """
        elsewhere = group.elsewhere(place)
        if place is not None and len(elsewhere) == len(group.order):
            raise Failure("invalid_value", "the session belongs to another model", param="metadata.session_id")
        return elsewhere

    def end(self, session_id: str) -> None:
        """A run of it has ended."""
        self._in_use.discard(session_id)

    def keep(self, session_id: str, node_id: str, adapter: str) -> None:
        """A run of it was sent to an adapter of a node."""
        self._places[session_id] = node_id, adapter
        self._places.move_to_end(session_id)
        if len(self._places) > MOST:
            self._places.popitem(last=False)

    def learn(self, node_id: str, report: Iterable[Mapping[str, Any]]) -> None:
        """A node said which sessions it has, each with its adapter. What the edge knows by itself goes first."""
        for each in report:
            if each["session_id"] not in self._places:
                self.keep(each["session_id"], node_id, each["adapter"])
