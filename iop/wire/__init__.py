"""The language of the edge-node link."""
