"""What the ledger's tests may ask for."""

from __future__ import annotations

from collections.abc import Iterator

import postgres
import pytest


@pytest.fixture(scope="session")
def cluster() -> Iterator[postgres.Cluster]:
    """A real PostgreSQL; a test that wants it is skipped where there is none."""
    with postgres.cluster() as made:
        yield made
