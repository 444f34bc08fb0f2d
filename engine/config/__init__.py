"""From TOML, flags and defaults to a checked configuration, or to all that is wrong with it.

Enters: documents and arguments. Leaves: frozen `Config` values, `ConfigError`, the dimensions of
the segment. Every other room may import it; it imports `ringbatch.shm` alone. Read first:
settings.py, then document.py.
"""
