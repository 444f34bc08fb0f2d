"""Failures that end a measurement before it has a figure."""

from ringbatch.shm.errors import StartupError


class CannotMeasure(StartupError):
    """Nothing can be measured; the message says why, and what to do."""
