"""Installed distribution of ringbatch, and its version."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def installed_version() -> str:
    """Return the version of ringbatch; empty if only its sources are there."""
    try:
        return version("ringbatch")
    except PackageNotFoundError:
        return ""
