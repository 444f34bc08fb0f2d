"""Configuration: reads TOML, flags and defaults, checks them, and reports all problems at once.

Enters: documents and arguments. Leaves: frozen `Config` values, `ConfigError`, the dimensions of
the segment. Every other room may import it; it imports `ringbatch.shm` alone. Read first:
settings.py, then document.py.
"""
