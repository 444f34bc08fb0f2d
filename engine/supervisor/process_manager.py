"""Process manager: starts processes, reads their messages, ends hung ones and reaps dead ones.

It waits only in its turns, and a misbehaving process affects no other. The supervisor decides what
a death means for the engine.
"""

import logging
import signal
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from ringbatch.engine.process import placement, respawn
from ringbatch.engine.process.memory_kills import MemoryKills
from ringbatch.engine.process.role_events import FromRole
from ringbatch.engine.supervisor.child_process import CannotStart, Child, Death
from ringbatch.engine.supervisor.hang_detection import HangDetection
from ringbatch.engine.supervisor.launching import reap_orphans
from ringbatch.engine.supervisor.loop import Loop
from ringbatch.engine.supervisor.managed_process import ManagedProcess
from ringbatch.shm.counters import RestartCase
from ringbatch.shm.host.messages import MalformedMessage

logger = logging.getLogger("ringbatch.supervisor")

_KILLED_WITHIN_S: Final = 5.0
"""Time for the kernel to end a killed process; one that waits for a device may never end."""
_END_NS: Final = 5_000_000_000
"""Time for a process to end after it has reported why; a thread or an exit handler may delay it for
ever."""
_DUMP_NS: Final = 500_000_000
"""Time for a hung process to log its stacks, before it is killed."""


class ProcessOwner(Protocol):
    """Protocol of the process manager's owner: its managed processes, and callbacks for events."""

    @property
    def processes(self) -> list[ManagedProcess]:
        """All processes."""

    @property
    def watched(self) -> list[ManagedProcess]:
        """Processes that report progress once they are ready."""

    def cpus_of(self, managed: ManagedProcess) -> tuple[int, ...] | None:
        """Return the CPUs of a managed process; None for all."""

    def on_message(self, managed: ManagedProcess, message: FromRole) -> None:
        """Handle a message of a process."""

    def on_started(self, managed: ManagedProcess) -> None:
        """Handle the start of a process."""

    def on_start_refused(self, managed: ManagedProcess, failure: CannotStart) -> None:
        """Handle a start for which there is no room now."""

    def on_ended(self, managed: ManagedProcess, death: Death) -> None:
        """Handle the end of a process, which is reaped."""


class ProcessManager:
    """Manager of one engine's managed processes.

    Attributes:
        stopping: True if no process is to be started any more.

    Args:
        owner: of the processes.
        loop: the supervisor's.
        hang_timeout_s: as of `HangDetection`, in seconds.
        clock_ns: the monotonic clock.
        jitter: returns random numbers from 0 up to, but not including, 1.
        memory_kills: of the kernel.
    """

    def __init__(
        self,
        owner: ProcessOwner,
        loop: Loop,
        hang_timeout_s: int,
        clock_ns: Callable[[], int],
        jitter: Callable[[], float],
        memory_kills: MemoryKills | None = None,
    ) -> None:
        self.stopping = False
        self._memory_kills = memory_kills or MemoryKills()
        self._owner = owner
        self._loop = loop
        self._clock_ns = clock_ns
        self._jitter = jitter
        self._silent = f"nothing in it moves; hang_timeout_s = {hang_timeout_s}"
        self._watch = HangDetection(hang_timeout_s * 1_000_000_000)
        self._look_ns: int | None = None

    def turn(self, timeout_s: float | None, limit_ns: int | None = None) -> None:
        """Handle events, and what is planned for now.

        Args:
            timeout_s: how long to wait at most; None is without limit.
            limit_ns: the same as an instant.
        """
        planned = [managed.next_ns() for managed in self._owner.processes]
        planned += [self._look_ns, limit_ns]
        instants = [instant for instant in planned if instant is not None]
        if instants:
            left_s = max(0.0, (min(instants) - self._clock_ns()) / 1e9)
            timeout_s = left_s if timeout_s is None else min(timeout_s, left_s)
        self._loop.turn(timeout_s)
        for managed in self._owner.processes:
            self._loop.guard(partial(self._keep_time, managed, self._clock_ns()))
        self._loop.guard(self._look)
        own = [managed.child.pid for managed in self._owner.processes if managed.child is not None]
        self._loop.guard(partial(reap_orphans, own))

    def spawn(self, managed: ManagedProcess) -> None:
        """Start a process, or plan to do so later if there is no room for it."""
        managed.error, managed.hung = "", False
        try:
            with placement.on_cpus(self._owner.cpus_of(managed)):
                managed.child = child = managed.start(managed.ever_ready)
        except CannotStart as failure:
            managed.failure = str(failure)
            managed.ended_ns = self._clock_ns()
            self.plan_restart(managed, RestartCase.REFUSED)
            self._owner.on_start_refused(managed, failure)
            return
        logger.debug("started %s as process %d", managed.title, child.pid)
        if child.channel is not None:
            give_up = partial(child.kill, signal.SIGKILL)
            self._loop.watch(child.channel, partial(self._listen, managed, child), give_up)
            managed.begins("its start", managed.start_limit, self._clock_ns())
        elif managed.ever_ready:
            # A process without a control socket reports nothing; it counts as ready once it runs.
            managed.ready_ns = self._clock_ns()
        self._loop.watch(child.pidfd, partial(self._died, managed, child))
        self._owner.on_started(managed)

    def record_progress(self, managed: ManagedProcess, beat_ns: int) -> None:
        """Note that the process reported progress at an instant."""
        if managed.child is not None:
            self._watch.record_progress(managed.child.pid, beat_ns)

    def end_hung(self, managed: ManagedProcess, why: str) -> None:
        """Have a process log its stacks, and end it."""
        if managed.child is None:
            return
        logger.error("%s [%d] hangs and is ended: %s", managed.title, managed.child.pid, why)
        managed.error = managed.failure = f"{managed.title}: {why}"
        managed.hung = True
        managed.limit_ns = None
        managed.child.kill(signal.SIGABRT)
        # A stopped process takes no other signal until it goes on.
        managed.child.kill(signal.SIGCONT)
        managed.kill_ns = self._clock_ns() + _DUMP_NS

    def failed(self, managed: ManagedProcess, reason: str) -> None:
        """Note the reason that the process gives for its end."""
        managed.error = reason
        managed.limit_ns = None
        if managed.kill_ns is None:
            managed.kill_ns = self._clock_ns() + _END_NS

    def mark_ready(self, managed: ManagedProcess) -> None:
        """Note that the process is ready."""
        managed.ever_ready = True
        managed.ready_ns = self._clock_ns()
        managed.limit_ns = None
        logger.info("%s: ready", managed.title)

    def plan_restart(self, managed: ManagedProcess, case: RestartCase) -> None:
        """Plan the next start of a process, at once or after a delay.

        Args:
            managed: the process, which has ended.
            case: why.
        """
        if self.stopping or not managed.lasting:
            return
        now_ns = self._clock_ns()
        restart = respawn.again(
            managed.record,
            case,
            now_ns=now_ns,
            lived_ns=managed.ended_ns - managed.ready_ns if managed.ready_ns else 0,
            jitter=self._jitter(),
            own=managed.worker is None,
        )
        managed.record = restart.record
        managed.ready_ns = 0
        managed.restart_ns = now_ns + int(restart.delay_s * 1e9)
        when = f"in {restart.delay_s:.1f} s" if restart.delay_s else "at once"
        logger.info("%s starts again %s: %s", managed.title, when, case.words)

    def stop(self) -> None:
        """Start no process from now on."""
        self.stopping = True
        for managed in self._owner.processes:
            managed.restart_ns = managed.limit_ns = None

    def end(
        self, processes: Iterable[ManagedProcess], limit_s: float, at_once: Callable[[], bool]
    ) -> None:
        """Terminate processes, and kill those that have not ended within that time.

        Args:
            processes: these.
            limit_s: how long they may take.
            at_once: returns True if they may take no longer.
        """
        ending = list(processes)

        def running() -> list[Child]:
            return [managed.child for managed in ending if managed.child is not None]

        for child in running():
            self._loop.guard(partial(child.kill, signal.SIGTERM))
            # A stopped process takes no other signal until it goes on.
            self._loop.guard(partial(child.kill, signal.SIGCONT))
        self.wait(lambda: not running() or at_once(), limit_s)
        for child in running():
            why = (
                "is killed at once"
                if at_once()
                else f"did not stop within {limit_s:g} s and is killed"
            )
            logger.warning("%s [%d] %s", child.title, child.pid, why)
            self._loop.guard(partial(child.kill, signal.SIGKILL))
        self.wait(lambda: not running(), _KILLED_WITHIN_S)
        for child in running():
            logger.error("%s [%d] was killed and has not ended", child.title, child.pid)

    def wait(self, done: Callable[[], bool], limit_s: float, every_s: float | None = None) -> None:
        """Take turns until a condition holds, or for that long.

        Args:
            done: the condition; checked after each turn.
            limit_s: how long at most.
            every_s: how long a turn may be.
        """
        until_ns = self._clock_ns() + int(limit_s * 1e9)
        while not done() and self._clock_ns() < until_ns:
            self.turn(every_s, until_ns)

    def _keep_time(self, managed: ManagedProcess, now_ns: int) -> None:
        """Do what is planned for a process now."""
        if managed.restart_ns is not None and managed.restart_ns <= now_ns:
            managed.restart_ns = None
            self.spawn(managed)
        if managed.limit_ns is not None and managed.limit_ns <= now_ns:
            self.end_hung(managed, managed.overdue_text)
        if (note := managed.slow_note(now_ns)) and managed.child is not None:
            logger.info("%s [%d]: %s", managed.title, managed.child.pid, note)
        if managed.kill_ns is not None and managed.kill_ns <= now_ns:
            managed.kill_ns = None
            if managed.child is not None:
                managed.child.kill(signal.SIGKILL)

    def _look(self) -> None:
        """End watched processes that hang."""
        watched = [] if self.stopping else self._owner.watched
        processes = {
            managed.child.pid: managed for managed in watched if managed.child and managed.ready_ns
        }
        hanging, self._look_ns = self._watch.step(self._clock_ns(), processes)
        for pid in hanging:
            self.end_hung(processes[pid], self._silent)

    def _listen(self, managed: ManagedProcess, child: Child) -> None:
        """Handle the messages of a process."""
        try:
            messages = child.receive()
        except MalformedMessage as malformed:
            logger.error("%s [%d] %s, and is ended", managed.title, child.pid, malformed)
            child.kill(signal.SIGKILL)
            messages = None
        if messages is None:
            self._stop_listening(child)
            return
        for message in messages:
            self._owner.on_message(managed, message)

    def drain_messages(self, managed: ManagedProcess) -> None:
        """Handle the last messages of a process that has ended."""
        child = managed.child
        if child is None:
            return
        self._stop_listening(child)
        try:
            for message in child.unread_messages():
                self._owner.on_message(managed, message)
        except MalformedMessage as malformed:
            logger.error("%s [%d] %s", managed.title, child.pid, malformed)

    def _stop_listening(self, child: Child) -> None:
        if child.channel is not None:
            self._loop.forget(child.channel)

    def _died(self, managed: ManagedProcess, child: Child) -> None:
        """Handle the end of a process, as the kernel reports it."""
        self._loop.forget(child.pidfd)
        self.drain_messages(managed)
        death = child.reap(self._memory_kills.words)
        managed.child = None
        managed.ended_ns = self._clock_ns()
        managed.kill_ns = managed.limit_ns = None
        if not self.stopping:
            self._owner.on_ended(managed, death)
