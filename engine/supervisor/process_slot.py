"""A process slot: a role in which the supervisor keeps a process running."""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ringbatch.engine.batch.instructions import CpuSetName
from ringbatch.engine.process.respawn import (
    FIRST,
    LOADING_BUDGET,
    NO_RENEWALS,
    Record,
    Renewals,
    case_of,
)
from ringbatch.engine.process.role_messages import Signature
from ringbatch.engine.supervisor.child_process import Child
from ringbatch.shm.counters import Counters, RestartCase, WorkerCounter
from ringbatch.shm.restarts import Restarts, Role, end_reason
from ringbatch.shm.segment import Segment

START_LIMIT_S: Final = 120.0
"""What a process may take that runs nobody else's code."""
RESTART_LIMIT_S: Final = 15.0
"""The same, once one like it has been read from the disk; while it starts, others wait for it."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What something may take.

    Attributes:
        s: seconds.
        setting: what it is called that sets it; empty where nothing does.
    """

    s: float = START_LIMIT_S
    setting: str = ""

    @property
    def passed(self) -> str:
        """What is said of something that takes longer."""
        if not self.setting:
            return f"took longer than {self.s:g} s"
        return f"took longer than {self.setting}; raise that if it needs longer"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a process may take to get ready.

    Attributes:
        load: from its start until it says what its model takes and returns, and again from when
            it is told of the segment until the model is loaded; or all there is of a start.
        warm_up: from then on.
    """

    load: Limit = Limit()
    warm_up: Limit = Limit()


@dataclass(slots=True)
class ProcessSlot:
    """A role that a process must fill, and the process that fills it now, if one does.

    Attributes:
        title: the process's title.
        start: starts a process for it, and is told whether one was ever ready here; raises
            `CannotStart`. It must not hold the slot: what it holds, such as the copy of a model
            file, is to go when the slot does, and the garbage collector hardly ever looks.
        worker: the worker's number, where it is one.
        cpu_set: the name of the worker's CPU set.
        limits: of the time that a process takes to get ready.
        child: the process, if one runs.
        record: the earlier ends here, as far as the next start depends on them.
        case: why the last process ended, until the next one is planned.
        ended_ns: when it ended.
        ever_ready: whether any process was ever ready here.
        ready_ns: since when the present one is ready; 0 while it is not.
        restart_ns: when to start the next one; None where nothing is planned.
        limit_ns: when the present one has taken too long for what it is at; None where it may take
            as long as it likes.
        at: what is to be said then.
        kill_ns: when to kill the present one; None where nothing is planned.
        signature: inputs and outputs of the model, once a worker has said them.
        error: what the process gave as the reason for its end.
        lasting: whether another process is started where this one ends.
        batches: of a worker, how many were run under its number before its process began.
        renewals: of a worker, the restarts for failing every request.
        renew_ns: when to restart it for that; None while it does not.
        renewing: whether the present process is ended for that.
        known: of a worker, whether it was told of the segment while the model table had it, so that
            a collector lets it go; whoever is not known is let go at once.
        released: of a worker, whether nothing is expected of it any more.
        unreclaimed: of a worker that has ended, whether it was killed with SIGKILL; None once the
            collector has taken back what it held.
        failure: how a process ended that is not started again.
        role: as what the ends of its processes are counted; None where somebody else does.
        hung: whether the present process is ended, or the last one was, because it hung.
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
    at: str = ""
    kill_ns: int | None = None
    signature: Signature | None = None
    error: str = ""
    lasting: bool = True
    batches: int = 0
    renewals: Renewals = NO_RENEWALS
    renew_ns: int | None = None
    renewing: bool = False
    known: bool = True
    released: bool = False
    unreclaimed: bool | None = None
    failure: str = ""
    role: Role | None = None
    hung: bool = False

    def let_go(self) -> None:
        """Start no other process here."""
        self.lasting = False
        self.restart_ns = None

    def refuse(self) -> None:
        """End a worker that would read and write other tensors than its entry says."""
        self.error = (
            "the model file now declares other inputs or outputs; restart the engine to serve it"
        )
        if self.child is not None:
            self.child.kill(signal.SIGKILL)

    @property
    def start_limit(self) -> Limit:
        """What the present process may take for its start, as in `Limits`."""
        read_before = self.worker is None and self.ever_ready
        return Limit(RESTART_LIMIT_S) if read_before else self.limits.load

    def begins(self, what: str, limit: Limit, now_ns: int) -> None:
        """The process is at something that may take so long."""
        self.at = f"{what} {limit.passed}"
        self.limit_ns = now_ns + int(limit.s * 1e9)

    def note_start(self, segment: Segment | None) -> None:
        """A process has begun."""
        self.batches = self._batches(segment)

    def note_end(self, segment: Segment | None, *, killed: bool) -> bool:
        """The process has ended: find the case on which the next start depends.

        Args:
            segment: None before there is one.
            killed: whether it was ended from outside.

        Returns:
            Whether it did not end by what it held.
        """
        self.case = case_of(
            # Nobody has killed a process that has said why it ends.
            killed=killed and not self.error,
            # A process that runs nobody else's code has nothing to load.
            ready=self.worker is None or bool(self.ready_ns),
            answered=self.run_batches(segment) > 0,
            failing=self.renewing,
        )
        self.renewing = False
        return killed or self.case is RestartCase.FAILING

    @property
    def by_chance(self) -> bool:
        """True if the last process was killed from outside before it was ready, as others were not
        lately: that says nothing of the next one."""
        few = len(self.record.at_once_ns) < LOADING_BUDGET
        return self.case is RestartCase.KILLED_LOADING and few

    def run_batches(self, segment: Segment | None) -> int:
        """Return how many batches the process has run; 0 for any but a worker."""
        return self._batches(segment) - self.batches

    def _batches(self, segment: Segment | None) -> int:
        """Return how many batches were run under a worker's number; 0 for any other process."""
        if segment is None or self.worker is None:
            return 0
        first = segment.layout.worker_counters(self.worker)
        return Counters(segment.words, first)[WorkerCounter.BATCHES]

    def count_end(self, segment: Segment | None, *, killed: bool) -> None:
        """A process has ended whose place is filled again.

        Args:
            segment: where that is counted; None before there is one.
            killed: whether it was ended with SIGKILL.
        """
        if segment is not None and self.role is not None:
            reason = end_reason(hung=self.hung, killed=killed)
            Restarts.of_supervisor(segment).add(self.role, reason)

    def next_ns(self) -> int | None:
        """The next instant at which something is planned here."""
        planned = (self.restart_ns, self.limit_ns, self.kill_ns)
        return min((instant for instant in planned if instant is not None), default=None)
