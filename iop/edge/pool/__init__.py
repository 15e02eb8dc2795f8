"""Which provider serves a run, and who holds its slots."""
