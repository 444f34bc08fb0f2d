"""Managed process: a role in which the supervisor keeps a process running."""

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ringbatch.engine.ipc.instructions import CpuSetName
from ringbatch.engine.process.respawn import (
    FIRST,
    LOADING_BUDGET,
    NO_RENEWALS,
    Record,
    Renewals,
    case_of,
)
from ringbatch.engine.process.role_events import Signature
from ringbatch.engine.supervisor.child_process import Child
from ringbatch.shm.counters import Counters, RestartCase, WorkerCounter
from ringbatch.shm.restarts import Restarts, Role, end_reason
from ringbatch.shm.segment import Segment

START_LIMIT_S: Final = 120.0
"""Time for the start of a process that runs no user code."""
_FIRST_NOTE_NS: Final = 10_000_000_000
"""Time after which a step with a limit is logged as slow, again each time that it has doubled."""
RESTART_LIMIT_S: Final = 15.0
"""Time for a restart: its files are in the page cache, and other processes wait for it."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Time limit of a step.

    Attributes:
        s: seconds.
        setting: the setting behind it; empty if there is none.
    """

    s: float = START_LIMIT_S
    setting: str = ""

    @property
    def words(self) -> str:
        """The limit, by its setting if there is one."""
        return self.setting or f"{self.s:g} s"

    @property
    def passed(self) -> str:
        """Message for a step that takes longer."""
        if not self.setting:
            return f"took longer than {self.s:g} s"
        return f"took longer than {self.setting}; raise that if it needs longer"


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits of a process's start.

    Attributes:
        load: from its start until it reports its model's signature, and again from its attachment
            to the segment until the model is loaded. Without a model, the whole start.
        warm_up: from then on.
    """

    load: Limit = Limit()
    warm_up: Limit = Limit()


@dataclass(slots=True)
class Renewal:
    """Restart of a worker that fails every request.

    Attributes:
        earlier: those that are over.
        due_ns: when to restart it; None while it does not fail.
        under_way: True if the present process is ended for that.
    """

    earlier: Renewals = NO_RENEWALS
    due_ns: int | None = None
    under_way: bool = False

    @property
    def expected(self) -> bool:
        """True if it is planned, or under way."""
        return self.under_way or self.due_ns is not None

    def plan(self, good_ns: int, now_ns: int) -> int:
        """Plan it after the process was good for that long, and return the instant."""
        self.earlier = self.earlier.after(good_ns)
        self.due_ns = due_ns = self.earlier.due_ns(now_ns)
        return due_ns

    def begin(self, now_ns: int) -> None:
        """Note that the process is ended now."""
        self.earlier = self.earlier.begun(now_ns)
        self.due_ns, self.under_way = None, True


@dataclass(slots=True)
class CollectorTie:
    """Tie of a worker to the collector, which may still answer for its requests.

    Attributes:
        known: True if it attached to the segment while the model table had it. Then a collector
            lets it go; any other worker is let go at once.
        released: True if nothing is expected of it any more.
        unreclaimed: of a worker that has ended, True if by SIGKILL; None once the collector has
            taken back its requests.
    """

    known: bool = True
    released: bool = False
    unreclaimed: bool | None = None


@dataclass(slots=True)
class ManagedProcess:
    """Role that the supervisor keeps filled, and the process that fills it now, if there is one.

    Attributes:
        title: the process's title.
        start: starts a process; its argument says whether one was ever ready here. Raises
            `CannotStart`. It must not reference this object: those that it references, such as
            the copy of a model file, must go with it, without the garbage collector.
        worker: the worker's number, if it is one.
        cpu_set: the name of the worker's CPU set.
        limits: of the time that a process takes to get ready.
        child: the process, if one runs.
        record: the earlier ends here, as far as the next start depends on them.
        case: why the last process ended, until the next one is planned.
        ended_ns: when it ended.
        ever_ready: True if any process was ever ready here.
        ready_ns: since when the present one is ready; 0 while it is not.
        restart_ns: when to start the next one; None if nothing is planned.
        limit_ns: when the present step has taken too long; None without a limit.
        overdue_text: the message for that case.
        begun_ns: when the present step began.
        note_ns: when to log that it is slow; counts only while there is a limit.
        slow_text: the message for that, without the time.
        kill_ns: when to kill the present process; None if nothing is planned.
        signature: inputs and outputs of the model, once a worker has reported them.
        error: the reason that the process gave for its end.
        lasting: True if another process is started when this one ends.
        batches: of a worker, how many were run under its number before its process began.
        renewal: of a worker, its restart for failing every request.
        tie: of a worker, to the collector.
        failure: how a process ended that is not started again.
        role: the role under which its ends are counted here; None if they are counted elsewhere.
        hung: True if the present or the last process was ended because it hung.
    """

    title: str
    start: Callable[[bool], Child]
    worker: int | None = None
    cpu_set: CpuSetName | None = None
    limits: Limits = Limits()
    child: Child | None = None
    record: Record = FIRST
    case: RestartCase = RestartCase.LOADING
    ended_ns: int = 0
    ever_ready: bool = False
    ready_ns: int = 0
    restart_ns: int | None = None
    limit_ns: int | None = None
    overdue_text: str = ""
    begun_ns: int = 0
    note_ns: int = 0
    slow_text: str = ""
    kill_ns: int | None = None
    signature: Signature | None = None
    error: str = ""
    lasting: bool = True
    batches: int = 0
    renewal: Renewal = field(default_factory=Renewal)
    tie: CollectorTie = field(default_factory=CollectorTie)
    failure: str = ""
    role: Role | None = None
    hung: bool = False

    def let_go(self) -> None:
        """Start no other process here."""
        self.lasting = False
        self.restart_ns = None

    def refuse(self) -> None:
        """End a worker whose tensors differ from its entry."""
        self.error = (
            "the model file now declares other inputs or outputs; restart the engine to serve it"
        )
        if self.child is not None:
            self.child.kill(signal.SIGKILL)

    @property
    def start_limit(self) -> Limit:
        """Time limit of the present process's start, as in `Limits`."""
        read_before = self.worker is None and self.ever_ready
        return Limit(RESTART_LIMIT_S) if read_before else self.limits.load

    def begins(self, phase: str, limit: Limit, now_ns: int) -> None:
        """Note that the process begins a step with a time limit."""
        self.overdue_text = f"{phase} {limit.passed}"
        self.limit_ns = now_ns + int(limit.s * 1e9)
        self.begun_ns, self.note_ns = now_ns, now_ns + _FIRST_NOTE_NS
        self.slow_text = f"{phase} is not done; the limit is {limit.words}"

    def slow_note(self, now_ns: int) -> str:
        """Return what to log about the present step if that is due now; else an empty text.

        The next note is due once the step has taken twice as long.
        """
        if self.limit_ns is None or now_ns < self.note_ns:
            return ""
        taken_ns = now_ns - self.begun_ns
        self.note_ns = now_ns + taken_ns
        return f"after {taken_ns / 1e9:.0f} s, {self.slow_text}"

    def note_start(self, segment: Segment | None) -> None:
        """Note that a process has begun."""
        self.batches = self._batches(segment)

    def note_end(self, segment: Segment | None, *, killed: bool) -> bool:
        """Note the end of the process, and find the case on which the next start depends.

        Args:
            segment: None before there is one.
            killed: True if it was ended from outside.

        Returns:
            True if its requests did not cause its end.
        """
        self.case = case_of(
            # A process that has reported why it ends was not killed.
            killed=killed and not self.error,
            # A process that runs no user code has nothing to load.
            ready=self.worker is None or bool(self.ready_ns),
            answered=self.run_batches(segment) > 0,
            failing=self.renewal.under_way,
        )
        self.renewal.under_way = False
        return killed or self.case is RestartCase.FAILING

    @property
    def by_chance(self) -> bool:
        """True if the last process was killed externally before it was ready, and few others were.

        Such an end says nothing about the next process.
        """
        few = len(self.record.at_once_ns) < LOADING_BUDGET
        return self.case is RestartCase.KILLED_LOADING and few

    def run_batches(self, segment: Segment | None) -> int:
        """Return how many batches the process has run; 0 if it is no worker."""
        return self._batches(segment) - self.batches

    def _batches(self, segment: Segment | None) -> int:
        """Return how many batches were run under a worker's number; 0 for any other process."""
        if segment is None or self.worker is None:
            return 0
        first = segment.layout.worker_counters(self.worker)
        return Counters(segment.words, first)[WorkerCounter.BATCHES]

    def count_end(self, segment: Segment | None, *, killed: bool) -> None:
        """Count the end of a process that is started again.

        Args:
            segment: has the counters; None before there is one.
            killed: True if by SIGKILL.
        """
        if segment is not None and self.role is not None:
            reason = end_reason(hung=self.hung, killed=killed)
            Restarts.of_supervisor(segment).add(self.role, reason)

    def next_ns(self) -> int | None:
        """Return the next instant at which something is planned here."""
        note_ns = None if self.limit_ns is None else self.note_ns
        planned = (self.restart_ns, self.limit_ns, note_ns, self.kill_ns)
        return min((instant for instant in planned if instant is not None), default=None)
