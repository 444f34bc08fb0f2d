"""Limit of open files, raised to what connections need: a process mostly starts with 1024."""

import resource
from logging import Logger
from typing import Final

OTHERS: Final = 256
"""Descriptors for everything that is no connection."""


def connections_allowed(wanted: int, log: Logger) -> int:
    """Raise this process's limit of open files as far as is needed and allowed.

    Args:
        wanted: connections.
        log: gets a warning if there can be fewer.

    Returns:
        How many there can be, at least one and at most as many as are wanted.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OTHERS
    if _is_below(soft, needed):
        soft = hard if _is_below(hard, needed) else needed
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if not _is_below(soft, needed):
        return wanted
    allowed = max(soft - OTHERS, 1)
    log.warning(
        "frontend: connections that can be open at once: %d instead of max_connections = %d; raise "
        "the limit of open files, which is %d, to %d (LimitNOFILE=, ulimit -n)",
        allowed,
        wanted,
        soft,
        needed,
    )
    return allowed


def _is_below(limit: int, needed: int) -> bool:
    return limit != resource.RLIM_INFINITY and limit < needed
