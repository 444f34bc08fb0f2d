"""Choice of a model server for a batch, and of servers to probe. Pure.

Whoever is expected to answer soonest gets the next batch: the time that a server's answers take, as
it was learned lately, times the batches that it would have. So servers of unequal pace get batches
in unequal numbers, and one that has stopped gets none while its first batch grows old. A server
that is down gets nothing until it answers a probe, and one that asked to wait gets nothing until
then. Where all are down, there is nothing to lose, and they are tried.
"""

import email.utils
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Final

from ringbatch.shm.upstreams import DOWN_AFTER, ServerState

HOLD_S: Final = 1.0
"""For how long a server is left alone that turns a batch away and does not say until when."""
LONGEST_HOLD_S: Final = 300.0
_IMPOSSIBLE: Final = (ArithmeticError, LookupError, TypeError, ValueError)
"""Errors of the date parser for an impossible zone, year or time of day."""
PROBE_NS: Final = 2_000_000_000
"""What a probe may take."""
_FIRST_NS: Final = 500_000_000
"""When a server that is down is probed first; then after twice as long each time, up to"""
_LAST_NS: Final = 2_000_000_000
_UNHEARD_NS: Final = 5_000_000_000
"""A server of which nothing was heard for so long is probed."""
_LATE_NS: Final = 1_000_000_000
_LATE_TIMES: Final = 4
"""A batch is late after so many times as long as the others, and no sooner than that."""
_WEIGHT: Final = 0.3
"""Of the latest answer, in what is learned of a server's pace."""


def chosen(
    states: Mapping[int, ServerState],
    tried: Collection[int],
    now_ns: int,
    draw: Callable[[], float],
) -> int | None:
    """The server that gets a batch, by its tag; None where none is to get it.

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
    """How long a server's answers take, now that one took so long; before, 0 where nothing was."""
    if not before_ns:
        return took_ns
    return int(before_ns + _WEIGHT * (took_ns - before_ns))


def probe_due(state: ServerState, now_ns: int) -> bool:
    """Whether a server is to be asked now whether it is there."""
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
    """Whether a server has had a batch for longer than it should."""
    limit_ns = max(_LATE_TIMES * state.took_ns, _LATE_NS) if state.took_ns else _UNHEARD_NS
    return state.outstanding > 0 and now_ns - state.oldest_ns > limit_ns


def held_s(retry_after: str, now: datetime) -> float:
    """For how many seconds a server is to be left alone that answered with that Retry-After.

    Args:
        retry_after: the header; empty where there was none.
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
