"""The node: one link to an edge, and the adapters that run what it asks."""
