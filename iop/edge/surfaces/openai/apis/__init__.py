"""The APIs that the surface speaks: what a client asks, and the shape of its answer. Pure."""
