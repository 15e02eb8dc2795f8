"""What an edge counts and measures, for Prometheus. ``docs/metrics.md`` is the list for people."""
