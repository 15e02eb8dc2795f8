"""The edge: surfaces, pool, nodes, runs."""
