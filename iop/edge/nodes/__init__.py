"""The nodes of an edge: who is registered, and the edge's end of each link."""
