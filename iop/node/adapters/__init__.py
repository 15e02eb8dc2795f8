"""Adapters: one backend protocol each."""
