"""How the ledger's tables became what they are. SQL that SQLite and PostgreSQL both take.

A migration that was released never changes; a new one goes to the end. The schema's version is the number of those
that were applied, in ``iop_ledger_schema``. ``docs/contracts/ledger.md`` (Schema).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from iop.errors import Failure

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    # 1: the rows
    (
        """
        CREATE TABLE iop_usage (
          run_id TEXT NOT NULL PRIMARY KEY, at_ms BIGINT NOT NULL, surface TEXT NOT NULL, operation TEXT NOT NULL,
          token_ref TEXT NOT NULL, principal_ref TEXT NOT NULL, principal_alias TEXT NOT NULL, model TEXT NOT NULL,
          provider TEXT NOT NULL, outcome TEXT NOT NULL, input_tokens BIGINT, output_tokens BIGINT,
          cached_tokens BIGINT, reasoning_tokens BIGINT, estimated SMALLINT NOT NULL, queue_ms BIGINT NOT NULL,
          first_ms BIGINT, total_ms BIGINT NOT NULL
        )
        """,
    ),
    # 2: reading the last days does not read the years before them
    ("CREATE INDEX iop_usage_at_ms ON iop_usage (at_ms)",),
)

#: Two edges that start on one PostgreSQL migrate it one after the other; "iop " in ASCII.
_LOCK: Final = 0x696F7020


def migrate(connection: Connection) -> None:
    """Make the tables what this program needs, in the transaction that the connection is in.

    :raises Failure: ``ledger_refused`` for tables of a newer program.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
    connection.execute(text("CREATE TABLE IF NOT EXISTS iop_ledger_schema (version INTEGER NOT NULL)"))
    found = connection.execute(text("SELECT max(version) FROM iop_ledger_schema")).scalar()
    version = int(found or 0)
    if version > len(MIGRATIONS):
        message = (
            f"the ledger's database has schema version {version}, and this program knows {len(MIGRATIONS)}: "
            "it was made by a newer iop; run that, or give `ledger.url` another database"
        )
        raise Failure("ledger_refused", message)
    for number, statements in enumerate(MIGRATIONS[version:], version + 1):
        for statement in statements:
            connection.execute(text(statement))
        connection.execute(text("INSERT INTO iop_ledger_schema VALUES (:version)"), {"version": number})
