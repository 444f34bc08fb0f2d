"""The restart rule: the delay before a process that has ended is started again. Pure.

A delay protects the host from a program that cannot live. It must not punish a program that can.
So the rule depends on why a process ended, and on its work until then:

    how it ended                                      its next start
    ------------------------------------------------  ----------------------------------------------
    a request killed it that will not run again       at once; earlier ends are forgotten
    ended because it failed every request             at once; `Renewals` says when it may be ended
    killed from outside                               at once, up to 30 times a minute; 5 times if
                                                      it was not ready, as the kernel may be short
                                                      of memory for it
    by itself, and it had answered since it was ready at once, up to 30 times a minute
    by itself, and it had answered nothing            after a delay
    before it was ready                               after a delay
    no process could be started                       after a delay

If a budget is spent, a delay follows as well. The first delay in a row is 0, as most ends are
single accidents. Further ones grow exponentially, with jitter: workers that die of the same cause
then do not come back, load their models and die in step. A long life ends the row.

While requests wait for a model that no process holds, one of its workers starts within a second.
"""

from dataclasses import dataclass
from typing import Final

from ringbatch.shm.counters import RestartCase

FIRST_DELAY_S: Final = 1.0
MOST_DELAY_S: Final = 30.0
MOST_OWN_DELAY_S: Final = 2.0
"""Longest delay of a process without user code: it starts quickly, and without it no request is
answered."""
STEADY_NS: Final = 10_000_000_000
"""A process that served this long has recovered: its death is a first one again."""
OWN_STEADY_NS: Final = 1_000_000_000
"""Time after which a process without user code has recovered."""
BUDGET: Final = 30
"""Restarts at once within a minute: one in two seconds costs a host little."""
LOADING_BUDGET: Final = 5
"""Restarts at once within a minute of processes that were killed before they were ready."""
MOST_AWAITED_NS: Final = 1_000_000_000
"""The longest delay while requests wait for a model that no process holds."""

_MINUTE_NS: Final = 60_000_000_000
CURED_NS: Final = _MINUTE_NS
"""Time of good answers that shows that a new process is a cure."""
MOST_RENEWAL_NS: Final = 10 * _MINUTE_NS
_DOUBLINGS: Final = 5

assert FIRST_DELAY_S * (1 << _DOUBLINGS) >= MOST_DELAY_S


@dataclass(frozen=True, slots=True)
class Record:
    """Earlier ends of processes in one place, as far as they matter for the next one.

    Attributes:
        failures: ends in a row that were followed by a delay; the first of them has a delay of 0.
        at_once_ns: the ends of the last minute that a restart at once followed.
    """

    failures: int = 0
    at_once_ns: tuple[int, ...] = ()


FIRST: Final = Record()
"""Record of a place in which no process has ended yet."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The next start.

    Attributes:
        delay_s: seconds to wait before it.
        record: the argument of `again` at the next end in the same place.
    """

    delay_s: float
    record: Record


def case_of(*, killed: bool, ready: bool, answered: bool, failing: bool = False) -> RestartCase:
    """Return the case of an end.

    Args:
        killed: True if SIGKILL came from outside, perhaps from the kernel.
        ready: True if the process was ready.
        answered: True if it had finished batches.
        failing: True if the supervisor ended it because it failed every request.
    """
    if failing:
        return RestartCase.FAILING
    if killed:
        return RestartCase.KILLED if ready else RestartCase.KILLED_LOADING
    if not ready:
        return RestartCase.LOADING
    return RestartCase.ANSWERED if answered else RestartCase.CRASHED


_BUDGETS: Final = {
    RestartCase.KILLED: BUDGET,
    RestartCase.ANSWERED: BUDGET,
    RestartCase.KILLED_LOADING: LOADING_BUDGET,
}


def again(
    record: Record,
    case: RestartCase,
    *,
    now_ns: int,
    lived_ns: int,
    jitter: float,
    own: bool = False,
) -> Restart:
    """Return the start that follows the end of a process, or a failed start.

    Args:
        record: of the same place.
        case: why it ended.
        now_ns: the time.
        lived_ns: nanoseconds from the moment it was ready to its end; 0 if it never was.
        jitter: a random number from 0 up to, but not including, 1.
        own: True if it ran ringbatch's code alone.
    """
    if case is RestartCase.EXPLAINED:
        return Restart(0.0, FIRST)
    if case is RestartCase.FAILING:
        return Restart(0.0, record)
    steady = lived_ns >= (OWN_STEADY_NS if own else STEADY_NS)
    failures = 0 if steady else record.failures
    recent = tuple(ns for ns in record.at_once_ns if now_ns - ns < _MINUTE_NS)
    if len(recent) < _BUDGETS.get(case, 0):
        if case is RestartCase.ANSWERED:
            failures = 0
        return Restart(0.0, Record(failures, (*recent, now_ns)))
    failures += 1
    most_s = MOST_OWN_DELAY_S if own else MOST_DELAY_S
    return Restart(min(next_delay(failures, jitter), most_s), Record(failures, recent))


def next_delay(failures_in_a_row: int, jitter: float) -> float:
    """Return the seconds before the next start: 0, then half to all of 1, 2, 4, ... 30.

    Args:
        failures_in_a_row: including the latest.
        jitter: a random number from 0 up to, but not including, 1.
    """
    if failures_in_a_row <= 1:
        return 0.0
    doublings = min(failures_in_a_row - 2, _DOUBLINGS)
    longest_s = min(FIRST_DELAY_S * (1 << doublings), MOST_DELAY_S)
    return longest_s * (1 + jitter) / 2


@dataclass(frozen=True, slots=True)
class Renewals:
    """Restarts of a worker that failed every request.

    The first comes at once. If the next process fails every request too, a new process is no cure,
    or clients are to blame: further restarts wait for 1, 2, 4, ... 10 minutes. A process that
    answered for a minute before it failed shows that a new one is a cure.

    Attributes:
        times: restarts in a row without such a process.
        last_ns: when the last one began.
    """

    times: int = 0
    last_ns: int = 0

    def due_ns(self, now_ns: int) -> int:
        """Return when the next one may begin."""
        if not self.times:
            return now_ns
        delay_ns = min(_MINUTE_NS << min(self.times - 1, _DOUBLINGS), MOST_RENEWAL_NS)
        return max(now_ns, self.last_ns + delay_ns)

    def begun(self, now_ns: int) -> "Renewals":
        """Return the record with one that begins now."""
        return Renewals(self.times + 1, now_ns)

    def after(self, good_ns: int) -> "Renewals":
        """Return the record that remains after a process that answered for so long."""
        return self if good_ns < CURED_NS else NO_RENEWALS


NO_RENEWALS: Final = Renewals()


def awaited_ns(planned_ns: int, ended_ns: int) -> int:
    """Return the latest start of a process that requests wait for.

    Args:
        planned_ns: by `again`.
        ended_ns: when the one before it ended.
    """
    return min(planned_ns, ended_ns + MOST_AWAITED_NS)
