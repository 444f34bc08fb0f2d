"""Machine in one thread: processes that take turns, a simulated clock, and doorbells.

A process is real code in a greenlet. It gives way before it stores a word in the shared memory,
before it rings, and as it sleeps. There it can be killed, stopped and let on again.
Which process goes on, and for how many stores, follows from the random numbers that the machine was
made with, so a seed names a schedule.

A process that is killed stands where it stood: what its unwinding would still store is dropped.
"""

import random
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

from greenlet import getcurrent, greenlet

from ringbatch.engine.models.model import RestartWorker

MICROSECOND_NS = 1_000
MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000
BOOT_NS = 1_000 * SECOND_NS
_SLICE_NS = 20 * MICROSECOND_NS
_FIRST_PID = 1_000


class Killed(RestartWorker):
    """Exception that ends a process where it stands; a worker in its model lets it pass."""


class Process:
    """Process as the scheduler knows it."""

    def __init__(self, pid: int, name: str, body: Callable[[], object]) -> None:
        self.pid = pid
        self.name = name
        self.alive = True
        self.asleep = False
        self.bell: Bell | None = None
        """The bell that wakes it; None if only time does."""
        self.until_ns: int | None = 0
        self.stopped_until_ns = 0
        self.lost_ns = 0
        """Time for which it was stopped so far."""
        self._body = body
        self.greenlet = greenlet(self._run)

    def _run(self) -> None:
        try:
            self._body()
        except Killed:
            return
        raise AssertionError(f"{self.name} ended by itself")

    def can_go_on(self, now_ns: int) -> bool:
        """Return whether it is neither stopped nor asleep with nothing to wake it."""
        if self.stopped_until_ns > now_ns:
            return False
        if not self.asleep or (self.bell is not None and self.bell.rung):
            return True
        return self.until_ns is not None and self.until_ns <= now_ns


class Machine:
    """Machine that runs processes and due calls, in an order that `chance` decides.

    Args:
        chance: the schedule's random numbers.
        stride: most stores of a process before another may go on.
        at_pause: called with a process that has just given way in mid-step.
    """

    def __init__(
        self, chance: random.Random, stride: int, at_pause: Callable[[Process], object]
    ) -> None:
        self.now_ns = BOOT_NS
        self.processes: list[Process] = []
        self.current: Process | None = None
        self.trace: list[str] | None = None
        self._chance = chance
        self._stride = stride
        self._at_pause = at_pause
        self._main = getcurrent()
        self._left = 0
        self.unwinding = False
        """A process that was killed is being taken down."""
        self._due: list[tuple[int, int, Callable[[], object]]] = []
        self._order = count()
        self._pids = count(_FIRST_PID)

    def monotonic_ns(self) -> int:
        """The time; as `time.monotonic_ns`."""
        return self.now_ns

    def note(self, line: str) -> None:
        """Add a line to the trace, for readers of a schedule that failed."""
        if self.trace is not None:
            self.trace.append(f"{(self.now_ns - BOOT_NS) / 1e6:12.3f} ms  {line}")

    def spawn(self, name: str, body: Callable[[], object]) -> Process:
        """Start a process; it begins when it is its turn."""
        process = Process(next(self._pids), name, body)
        self.processes.append(process)
        self.note(f"{name} [{process.pid}] starts")
        return process

    def kill(self, process: Process) -> None:
        """End a process where it stands."""
        self.note(f"{process.name} [{process.pid}] is killed")
        process.alive = False
        self.processes.remove(process)
        running, self.unwinding = self.unwinding, True
        try:
            process.greenlet.throw(Killed)
        except Killed:
            pass  # It had not begun.
        finally:
            self.unwinding = running

    def close(self) -> None:
        """End everything. What is not ended would be when it is freed, and store in the memory of
        another machine."""
        self.trace = None
        for process in self.processes[:]:
            self.kill(process)
        self._due.clear()

    def stop(self, process: Process, duration_ns: int) -> None:
        """Stop a process, as SIGSTOP does, and continue it after a while."""
        self.note(f"{process.name} is stopped for {duration_ns / 1e6:g} ms")
        process.stopped_until_ns = self.now_ns + duration_ns
        process.lost_ns += duration_ns

    def lose_time(self, duration_ns: int) -> None:
        """Stop the whole machine for a while."""
        self.note(f"everything stands still for {duration_ns / 1e6:g} ms")
        self.now_ns += duration_ns
        for process in self.processes:
            process.lost_ns += duration_ns

    def after(self, delay_ns: int, call: Callable[[], object]) -> None:
        """Schedule a call after so many nanoseconds."""
        heappush(self._due, (self.now_ns + delay_ns, next(self._order), call))

    def sleep(self, duration_ns: int | None, bell: "Bell | None" = None) -> None:
        """Let the running process give way until the bell has rung or the time has passed."""
        process = self.current
        assert process is not None
        if bell is None or not bell.rung:
            process.asleep, process.bell = True, bell
            process.until_ns = None if duration_ns is None else self.now_ns + duration_ns
            self._main.switch()

    def step(self) -> None:
        """Announce that the running process is about to do something that others can see."""
        if self.current is not None:
            self._left -= 1
            if self._left <= 0:
                self._main.switch()

    def steps_at_once(self, count: int) -> bool:
        """Take so many steps if the running process need not give way meanwhile; else False."""
        if count >= self._left:
            return False
        self._left -= count
        return True

    def turn(self) -> bool:
        """Run one process, or what is due; False if none can go on before some time has passed."""
        now_ns = self.now_ns
        if self._due and self._due[0][0] <= now_ns:
            heappop(self._due)[2]()
            return True
        ready = [process for process in self.processes if process.can_go_on(now_ns)]
        if not ready:
            return False
        process = ready[int(self._chance.random() * len(ready))]
        process.asleep = False
        self._left = 1 + int(self._chance.random() * self._stride)
        self.current = process
        process.greenlet.switch()
        self.current = None
        self.now_ns += 1 + int(self._chance.random() * _SLICE_NS)
        if process.alive and not process.asleep:
            self._at_pause(process)
        return True

    def next_ns(self) -> int | None:
        """Return the instant of the next event if no process can go on now; None for never."""
        instants = [self._due[0][0]] if self._due else []
        for process in self.processes:
            until_ns = process.until_ns if process.asleep else self.now_ns
            if process.stopped_until_ns > self.now_ns:
                until_ns = max(until_ns or 0, process.stopped_until_ns)
            if until_ns is not None:
                instants.append(until_ns)
        return min(instants, default=None)


class Bell:
    """A bell of both kinds, see `ringbatch.shm.wakeup` and `ringbatch.shm.doorbell`."""

    def __init__(self, machine: Machine) -> None:
        self.rung = False
        self._machine = machine

    def wake(self) -> None:
        """Ring the bell, as a process."""
        self._machine.step()
        if self._machine.current is not None:
            self.rung = True

    def poke(self) -> None:
        """Ring the bell from outside of any process."""
        self.rung = True

    def hush(self) -> None:
        """Take all rings."""
        self.rung = False

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until rung; whether it was."""
        self._machine.sleep(None if timeout_s is None else int(timeout_s * 1e9), self)
        rung, self.rung = self.rung, False
        return rung

    def fileno(self) -> int:
        """Return no descriptor; an `EventLoop` has no use for it."""
        return -1

    def close(self) -> None:
        """Do nothing, as the bell goes with its machine."""


class Timer:
    """A timer, as `EventLoop.call_later` returns it."""

    def __init__(self, when_ns: int, call: Callable[[], object]) -> None:
        self.when_ns = when_ns
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        """Cancel the call."""
        self.cancelled = True


class EventLoop:
    """Event loop with as much as a gateway uses; it watches one doorbell."""

    def __init__(self, machine: Machine, bell: Bell) -> None:
        self._machine = machine
        self._bell = bell
        self._soon: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._timers: list[Timer] = []
        self._reader: Callable[[], object] | None = None

    def call_soon(self, call: Callable[..., object], *arguments: Any) -> None:
        """See `asyncio.AbstractEventLoop.call_soon`."""
        self._soon.append((call, arguments))

    def call_later(self, delay_s: float, call: Callable[[], object]) -> Timer:
        """See `asyncio.AbstractEventLoop.call_later`."""
        timer = Timer(self._machine.now_ns + round(delay_s * 1e9), call)
        self._timers.append(timer)
        return timer

    def add_reader(self, _fd: int, call: Callable[[], object]) -> None:
        """See `asyncio.AbstractEventLoop.add_reader`."""
        self._reader = call

    def remove_reader(self, _fd: int) -> None:
        """See `asyncio.AbstractEventLoop.remove_reader`."""
        self._reader = None

    def run_once(self) -> None:
        """Run everything that is due, and the calls that came by then, as asyncio does."""
        now_ns = self._machine.now_ns
        self._timers = [timer for timer in self._timers if not timer.cancelled]
        due = [timer for timer in self._timers if timer.when_ns <= now_ns]
        soon, self._soon = self._soon, []
        for call, arguments in soon:
            call(*arguments)
        for timer in due:
            if not timer.cancelled:
                timer.cancel()
                timer.call()
        if self._bell.rung and self._reader is not None:
            self._reader()

    def sleep(self) -> None:
        """Sleep until there is something to do."""
        if not self._soon:
            instants = [timer.when_ns for timer in self._timers if not timer.cancelled]
            duration_ns = max(min(instants) - self._machine.now_ns, 0) if instants else None
            self._machine.sleep(duration_ns, self._bell)
