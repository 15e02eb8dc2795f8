"""Conversations that agents keep: which is whose, and where each works. A small SQLite file of the node.

``docs/contracts/adapters.md`` (cli). A session unused for a day has expired; that it, or one that was terminated, was
there is remembered for thirty days, so that nobody goes on in a new conversation without noticing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from iop.errors import Failure

EXPIRES: Final = 24 * 3600
"""Seconds unused after which a session is gone."""

REMEMBERED: Final = 30 * 24 * 3600
"""Seconds for which a session that is gone is known to have been there."""

ACTIVE, TERMINATED, EXPIRED = "active", "terminated", "expired"

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS sessions (
  adapter TEXT NOT NULL, session_id TEXT NOT NULL, agent_session TEXT NOT NULL, workspace TEXT NOT NULL,
  created REAL NOT NULL, last_used REAL NOT NULL, state TEXT NOT NULL,
  PRIMARY KEY (adapter, session_id)
);
CREATE INDEX IF NOT EXISTS sessions_used ON sessions (adapter, last_used);
"""


class Session(NamedTuple):
    """One conversation; times are seconds since 1970.

    :ivar agent_session: the agent's own name of it; "" for an agent that has none.
    """

    adapter: str
    session_id: str
    agent_session: str
    workspace: str
    created: float
    last_used: float
    state: str


class SessionStore:
    """Every session of a node. What goes wrong with the file is a Failure: nothing has run then.

    :param path: of the file; None keeps all in memory.
    :param now: returns seconds since 1970.
    :raises Failure: ``adapter_unavailable`` for a file that is none of ours.
    """

    def __init__(self, path: Path | None, now: Callable[[], float]) -> None:
        self._now = now
        self._tidied = 0.0
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._database = sqlite3.connect(path or ":memory:", isolation_level=None, timeout=0.5)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.executescript(_SCHEMA)
        except (sqlite3.Error, OSError) as error:
            message = f"the sessions of this node cannot be read: {error}: {path}; move it away to begin without any"
            raise Failure("adapter_unavailable", message) from None

    def find(self, adapter: str, session_id: str) -> Session | None:
        """Return a session as it is now; None for one that nobody knows."""
        found = self._select("adapter = ? AND session_id = ?", adapter, session_id)
        return found[0] if found else None

    def known(self, adapter: str, most: int = -1) -> list[Session]:
        """Return an adapter's sessions, those too that are gone, the ones used last first; so many at most."""
        return self._select("adapter = ? ORDER BY last_used DESC LIMIT ?", adapter, most)

    def keep(self, adapter: str, session_id: str, agent_session: str, workspace: str) -> None:
        """A session was used: remember it."""
        self._tidy()
        now = self._now()
        self._do(
            "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (adapter, session_id) DO UPDATE SET"
            " agent_session = excluded.agent_session, workspace = excluded.workspace, last_used = excluded.last_used,"
            " state = excluded.state",
            (adapter, session_id, agent_session, workspace, now, now, ACTIVE),
        )

    def terminate(self, adapter: str, session_id: str) -> bool:
        """End a session; return whether it went on until now."""
        changed = self._do(
            "UPDATE sessions SET state = ?, last_used = ? WHERE adapter = ? AND session_id = ? AND state = ?"
            " AND last_used >= ?",
            (TERMINATED, self._now(), adapter, session_id, ACTIVE, self._now() - EXPIRES),
        )
        return changed.rowcount > 0

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _tidy(self) -> None:
        """Forget, once an hour, what has been gone for long."""
        now = self._now()
        if now - self._tidied > 3600:
            self._tidied = now
            gone = now - REMEMBERED
            self._do(
                "DELETE FROM sessions WHERE last_used < ? OR (state = ? AND last_used < ?)",
                (gone - EXPIRES, TERMINATED, gone),
            )

    def _select(self, where: str, *values: str | int) -> list[Session]:
        now = self._now()
        rows = [Session(*row) for row in self._do(f"SELECT * FROM sessions WHERE {where}", values)]
        there = [each for each in rows if each.last_used >= now - REMEMBERED - (EXPIRES if each.state == ACTIVE else 0)]
        return [
            each._replace(state=EXPIRED) if each.state == ACTIVE and each.last_used < now - EXPIRES else each
            for each in there
        ]

    def _do(self, statement: str, values: Sequence[Any]) -> sqlite3.Cursor:
        try:
            return self._database.execute(statement, values)
        except sqlite3.Error:
            raise Failure("adapter_unavailable", "the node cannot keep sessions at the moment") from None
