"""Limit of open files, raised to what connections need: a process mostly starts with 1024."""

import resource
from typing import Final

OTHERS: Final = 256
"""Descriptors for everything that is no connection."""


def connections_allowed(wanted: int) -> int:
    """Raise this process's limit of open files as far as is needed and allowed.

    Args:
        wanted: connections.

    Returns:
        How many there can be, at least one and at most as many as are wanted.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OTHERS
    if _is_below(soft, needed):
        soft = hard if _is_below(hard, needed) else needed
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(soft - OTHERS, 1) if _is_below(soft, needed) else wanted


def _is_below(limit: int, needed: int) -> bool:
    return limit != resource.RLIM_INFINITY and limit < needed
