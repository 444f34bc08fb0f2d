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
from ringbatch.engine.process.role_messages import FromRole
from ringbatch.engine.supervisor.child_process import CannotStart, Child, Death
from ringbatch.engine.supervisor.hang_detection import HangDetection
from ringbatch.engine.supervisor.launching import wait_for_strangers
from ringbatch.engine.supervisor.loop import Loop
from ringbatch.engine.supervisor.process_slot import ProcessSlot
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
    """Protocol of the process manager's owner: its process slots, and callbacks for events."""

    @property
    def slots(self) -> list[ProcessSlot]:
        """All slots."""

    @property
    def watched(self) -> list[ProcessSlot]:
        """Slots of processes that report progress once they are ready."""

    def cpus_of(self, slot: ProcessSlot) -> tuple[int, ...] | None:
        """Return the CPUs of a slot's processes; None for all."""

    def heard(self, slot: ProcessSlot, said: FromRole) -> None:
        """Handle a message of a process."""

    def started(self, slot: ProcessSlot) -> None:
        """Handle the start of a process."""

    def not_started(self, slot: ProcessSlot, failure: CannotStart) -> None:
        """Handle a start for which there is no room now."""

    def ended(self, slot: ProcessSlot, death: Death) -> None:
        """Handle the end of a process, whose slot is empty."""


class ProcessManager:
    """Manager of one engine's process slots.

    Attributes:
        stopping: True if no process is to be started any more.

    Args:
        owner: of the slots.
        loop: the supervisor's.
        hang_timeout_s: as of `HangDetection`, in seconds.
        clock_ns: the monotonic clock.
        jitter: returns random numbers from 0 up to, but not including, 1.
    """

    def __init__(
        self,
        owner: ProcessOwner,
        loop: Loop,
        hang_timeout_s: int,
        clock_ns: Callable[[], int],
        jitter: Callable[[], float],
    ) -> None:
        self.stopping = False
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
        planned = [slot.next_ns() for slot in self._owner.slots]
        planned += [self._look_ns, limit_ns]
        instants = [instant for instant in planned if instant is not None]
        if instants:
            left_s = max(0.0, (min(instants) - self._clock_ns()) / 1e9)
            timeout_s = left_s if timeout_s is None else min(timeout_s, left_s)
        self._loop.turn(timeout_s)
        for slot in self._owner.slots:
            self._loop.guard(partial(self._keep_time, slot, self._clock_ns()))
        self._loop.guard(self._look)
        own = [slot.child.pid for slot in self._owner.slots if slot.child is not None]
        self._loop.guard(partial(wait_for_strangers, own))

    def spawn(self, slot: ProcessSlot) -> None:
        """Start a process in a slot, or plan to do so later if there is no room for it."""
        slot.error, slot.hung = "", False
        try:
            with placement.on_cpus(self._owner.cpus_of(slot)):
                slot.child = child = slot.start(slot.ever_ready)
        except CannotStart as failure:
            slot.failure = str(failure)
            slot.ended_ns = self._clock_ns()
            self.plan_restart(slot, RestartCase.REFUSED)
            self._owner.not_started(slot, failure)
            return
        logger.debug("started %s as process %d", slot.title, child.pid)
        if child.channel is not None:
            give_up = partial(child.kill, signal.SIGKILL)
            self._loop.watch(child.channel, partial(self._listen, slot, child), give_up)
            slot.begins("its start", slot.start_limit, self._clock_ns())
        elif slot.ever_ready:
            # A process without a control socket reports nothing; it counts as ready once it runs.
            slot.ready_ns = self._clock_ns()
        self._loop.watch(child.pidfd, partial(self._died, slot, child))
        self._owner.started(slot)

    def moved(self, slot: ProcessSlot, beat_ns: int) -> None:
        """Note that the process in a slot reported progress at an instant."""
        if slot.child is not None:
            self._watch.heard(slot.child.pid, beat_ns)

    def end_hung(self, slot: ProcessSlot, why: str) -> None:
        """Have a process log its stacks, and end it."""
        if slot.child is None:
            return
        logger.error("%s [%d] hangs and is ended: %s", slot.title, slot.child.pid, why)
        slot.error = slot.failure = f"{slot.title}: {why}"
        slot.hung = True
        slot.limit_ns = None
        slot.child.kill(signal.SIGABRT)
        # A stopped process takes no other signal until it goes on.
        slot.child.kill(signal.SIGCONT)
        slot.kill_ns = self._clock_ns() + _DUMP_NS

    def failed(self, slot: ProcessSlot, reason: str) -> None:
        """Note the reason that the process in a slot gives for its end."""
        slot.error = reason
        slot.limit_ns = None
        if slot.kill_ns is None:
            slot.kill_ns = self._clock_ns() + _END_NS

    def mark_ready(self, slot: ProcessSlot) -> None:
        """Note that the process in a slot is ready."""
        slot.ever_ready = True
        slot.ready_ns = self._clock_ns()
        slot.limit_ns = None
        logger.info("%s: ready", slot.title)

    def plan_restart(self, slot: ProcessSlot, case: RestartCase) -> None:
        """Plan to fill a slot again, at once or after a delay.

        Args:
            slot: empty.
            case: why.
        """
        if self.stopping or not slot.lasting:
            return
        now_ns = self._clock_ns()
        restart = respawn.again(
            slot.record,
            case,
            now_ns=now_ns,
            lived_ns=slot.ended_ns - slot.ready_ns if slot.ready_ns else 0,
            jitter=self._jitter(),
            own=slot.worker is None,
        )
        slot.record = restart.record
        slot.ready_ns = 0
        slot.restart_ns = now_ns + int(restart.delay_s * 1e9)
        when = f"in {restart.delay_s:.1f} s" if restart.delay_s else "at once"
        logger.info("%s starts again %s: %s", slot.title, when, case.words)

    def stop(self) -> None:
        """Start no process from now on."""
        self.stopping = True
        for slot in self._owner.slots:
            slot.restart_ns = slot.limit_ns = None

    def end(
        self, slots: Iterable[ProcessSlot], limit_s: float, at_once: Callable[[], bool]
    ) -> None:
        """Terminate processes, and kill those that have not ended within that time.

        Args:
            slots: of the processes.
            limit_s: how long they may take.
            at_once: returns True if they may take no longer.
        """
        ending = list(slots)

        def running() -> list[Child]:
            return [slot.child for slot in ending if slot.child is not None]

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

    def _keep_time(self, slot: ProcessSlot, now_ns: int) -> None:
        """Do what is planned in a slot for now."""
        if slot.restart_ns is not None and slot.restart_ns <= now_ns:
            slot.restart_ns = None
            self.spawn(slot)
        if slot.limit_ns is not None and slot.limit_ns <= now_ns:
            self.end_hung(slot, slot.at)
        if slot.kill_ns is not None and slot.kill_ns <= now_ns:
            slot.kill_ns = None
            if slot.child is not None:
                slot.child.kill(signal.SIGKILL)

    def _look(self) -> None:
        """End watched processes that hang."""
        watched = [] if self.stopping else self._owner.watched
        slots = {slot.child.pid: slot for slot in watched if slot.child and slot.ready_ns}
        hanging, self._look_ns = self._watch.step(self._clock_ns(), slots)
        for pid in hanging:
            self.end_hung(slots[pid], self._silent)

    def _listen(self, slot: ProcessSlot, child: Child) -> None:
        """Handle the messages of a process."""
        try:
            messages = child.hear()
        except MalformedMessage as malformed:
            logger.error("%s [%d] %s, and is ended", slot.title, child.pid, malformed)
            child.kill(signal.SIGKILL)
            messages = None
        if messages is None:
            self._hear_no_more(child)
            return
        for said in messages:
            self._owner.heard(slot, said)

    def drain_messages(self, slot: ProcessSlot) -> None:
        """Handle the last messages of a process that has ended."""
        child = slot.child
        if child is None:
            return
        self._hear_no_more(child)
        try:
            for said in child.last_words():
                self._owner.heard(slot, said)
        except MalformedMessage as malformed:
            logger.error("%s [%d] %s", slot.title, child.pid, malformed)

    def _hear_no_more(self, child: Child) -> None:
        if child.channel is not None:
            self._loop.forget(child.channel)

    def _died(self, slot: ProcessSlot, child: Child) -> None:
        """Handle the end of a process, as the kernel reports it."""
        self._loop.forget(child.pidfd)
        self.drain_messages(slot)
        death = child.reap()
        slot.child = None
        slot.ended_ns = self._clock_ns()
        slot.kill_ns = slot.limit_ns = None
        if not self.stopping:
            self._owner.ended(slot, death)
