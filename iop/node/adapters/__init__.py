"""Adapters: one backend protocol each. ``docs/contracts/adapters.md``."""
