"""Choice of a model server for a batch, and of servers to probe. Pure.

The next batch goes to the server with the shortest expected answer: its recent answer time, times
the batches that it would have. So servers of unequal pace get batches in unequal numbers, and a
server that has stopped gets none while its first batch grows old. A server that is down gets
nothing until it answers a probe, and one that asked to wait gets nothing until then. If all are
down, nothing is lost by trying them.
"""

import email.utils
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Final

from ringbatch.shm.upstreams import DOWN_AFTER, ServerState

HOLD_S: Final = 1.0
"""Pause after a server turns a batch away without a Retry-After."""
LONGEST_HOLD_S: Final = 300.0
_IMPOSSIBLE: Final = (ArithmeticError, LookupError, TypeError, ValueError)
"""Errors of the date parser for an impossible zone, year or time of day."""
PROBE_NS: Final = 2_000_000_000
"""Time limit of a probe."""
_FIRST_NS: Final = 500_000_000
"""Delay of the first probe of a server that is down; it doubles with each probe, up to"""
_LAST_NS: Final = 2_000_000_000
_UNHEARD_NS: Final = 5_000_000_000
"""A server without an answer for so long is probed."""
_LATE_NS: Final = 1_000_000_000
_LATE_TIMES: Final = 4
"""A batch is late after this multiple of the usual time, and `_LATE_NS` at least."""
_WEIGHT: Final = 0.3
"""Weight of the latest answer in a server's average."""


def chosen(
    states: Mapping[int, ServerState],
    tried: Collection[int],
    now_ns: int,
    draw: Callable[[], float],
) -> int | None:
    """Return the tag of the server that gets a batch; None if no server may get it.

    Args:
        states: of all servers, by their tags.
        tried: those that had the batch already.
        now_ns: the time.
        draw: a random number; decides between equals.
    """
    up = {tag: state for tag, state in states.items() if not state.down}
    open_ = {tag: state for tag, state in up.items() if state.held_until_ns <= now_ns}
    found = {tag: s for tag, s in (open_ if up else states).items() if tag not in tried}
    if not found:
        return None
    known = [state.took_ns for state in found.values() if state.took_ns]
    usual_ns = min(known, default=1)

    def cost(tag: int) -> tuple[int, float]:
        state = found[tag]
        waited_ns = now_ns - state.oldest_ns if state.outstanding else 0
        return (state.outstanding + 1) * max(state.took_ns or usual_ns, waited_ns), draw()

    return min(found, key=cost)


def learned_ns(before_ns: int, took_ns: int) -> int:
    """Return a server's average answer time, updated by the latest; 0 before stands for none."""
    if not before_ns:
        return took_ns
    return int(before_ns + _WEIGHT * (took_ns - before_ns))


def probe_due(state: ServerState, now_ns: int) -> bool:
    """Return whether a server is to be probed now."""
    if state.down:
        rounds = min(state.failed_in_a_row - DOWN_AFTER, 8)
        wait_ns = min(_FIRST_NS << rounds, _LAST_NS)
        return now_ns - max(state.probed_ns, state.failed_ns) >= wait_ns
    if is_late(state, now_ns):
        return now_ns - max(state.probed_ns, state.answered_ns) >= _LATE_NS
    if state.outstanding and state.took_ns:
        return False
    return not state.probed_ns or now_ns - max(state.probed_ns, state.answered_ns) >= _UNHEARD_NS


def is_late(state: ServerState, now_ns: int) -> bool:
    """Return whether a server has had a batch for longer than it should."""
    limit_ns = max(_LATE_TIMES * state.took_ns, _LATE_NS) if state.took_ns else _UNHEARD_NS
    return state.outstanding > 0 and now_ns - state.oldest_ns > limit_ns


def held_s(retry_after: str, now: datetime) -> float:
    """Return how many seconds a server gets no batch after an answer with that Retry-After.

    Args:
        retry_after: the header; empty if there was none.
        now: the time of day, in UTC.
    """
    if retry_after.isascii() and retry_after.isdecimal():
        return min(float(retry_after[:9]), LONGEST_HOLD_S)
    try:
        until = email.utils.parsedate_to_datetime(retry_after)
        left_s = (until - now).total_seconds()
    except _IMPOSSIBLE:
        return HOLD_S
    return min(max(left_s, 0.0), LONGEST_HOLD_S)
