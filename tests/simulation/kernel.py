"""A played kernel for the supervisor: processes, descriptors, signals, and time.

Nothing is forked. A process is an object that acts at instants of a clock of its own kernel's, and
time passes where the supervisor would sleep. Everything else that the supervisor is made of is the
real thing: its loop has another selector, and its modules find this kernel where they look for
`os`, `socket`, `subprocess` and `time`.
"""

import errno
import heapq
import os
import random
import selectors
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

S: Final = 1_000_000_000
_FIRST_FD: Final = 100
_FIRST_PID: Final = 5_000
_TURN_NS: Final = 50_000
"""Time that the supervisor takes for a turn of its loop."""
_TURNS_IN_A_SECOND: Final = 3_000
"""Turns of the supervisor's loop in a second, beyond which it turns without end."""
_IN_VAIN_AT_MOST: Final = 100
"""Looks at what has not come, in one turn."""
_ROOM_BYTES: Final = 4096
"""Bound on the bytes that a process has not read yet."""


class Violation(BaseException):
    """Violation of a rule; no `Exception`, so that the supervisor does not catch it."""


class Readable(Protocol):
    """The object behind a descriptor."""

    @property
    def readable(self) -> bool:
        """True if there is something to read."""


class Started(Protocol):
    """A process, as of `simulation.process`."""

    pid: int
    ended: bool
    waited_for: bool
    status: int | None

    def killed(self) -> None:
        """SIGKILL for it and for all of its session."""

    def signalled(self, number: int) -> None:
        """Receive a signal other than those that end a process."""


class Kernel:
    """Simulated kernel: processes, descriptors, and a clock.

    Attributes:
        now_ns: the monotonic clock.
        chance: decides everything that is not certain.
        fds: object behind each open descriptor of the supervisor.
        processes: by their ids, those that were ever started.
        refuses: the reason for which the supervisor's next call of that name fails; 0 for none.
        stopped_until_ns: when the supervisor goes on, where it is stopped.

    Args:
        chance: random numbers that decide everything uncertain.
        spawn: makes a process of what it is called with.
    """

    def __init__(self, chance: random.Random, spawn: "Callable[[int, Popen], Started]") -> None:
        self.now_ns = 1000 * S
        self.chance = chance
        self.fds: dict[int, Readable] = {}
        self.processes: dict[int, Started] = {}
        self.refuses: Callable[[str], int] = lambda _: 0
        self.stopped_until_ns = 0
        self.story: list[str] = []
        self._spawn = spawn
        self._events: list[tuple[int, float, Callable[[], object]]] = []
        self._turns: Counter[int] = Counter()
        self._in_vain = 0

    def log(self, line: str) -> None:
        """Tell of something that happens."""
        self.story.append(f"{self.now_ns / S - 1000:10.4f}  {line}")

    def after(self, delay_s: float, act: Callable[[], object]) -> None:
        """Schedule a call after a delay."""
        at_ns = self.now_ns + int(delay_s * S)
        heapq.heappush(self._events, (at_ns, self.chance.random(), act))

    def suspend(self, seconds: float) -> None:
        """Suspend the whole host; its clock goes on."""
        by_ns = int(seconds * S)
        self.now_ns += by_ns
        self._events = [(at_ns + by_ns, tie, act) for at_ns, tie, act in self._events]

    def open(self, readable: Readable) -> int:
        """Open a descriptor of the supervisor: the lowest free number, as everywhere."""
        fd = next(n for n in range(_FIRST_FD, 1 << 20) if n not in self.fds)
        self.fds[fd] = readable
        return fd

    def close(self, fd: int) -> None:
        """Close a descriptor of the supervisor's."""
        if fd not in self.fds:
            raise Violation(f"descriptor {fd} is closed twice")
        del self.fds[fd]

    def found_nothing(self) -> None:
        """Count a look of the supervisor that found nothing."""
        self._in_vain += 1
        if self._in_vain > _IN_VAIN_AT_MOST:
            raise Violation("the supervisor waits for a process")

    def refuse(self, call: str) -> None:
        """Raise if this is the call to be refused."""
        if number := self.refuses(call):
            self.log(f"{call} is refused: {errno.errorcode[number]}")
            raise OSError(number, os.strerror(number))

    def started(self, call: "Popen") -> Started:
        """Start a process."""
        pid = _FIRST_PID + len(self.processes)
        self.processes[pid] = process = self._spawn(pid, call)
        return process

    @property
    def running(self) -> list[Started]:
        """Return all processes that have not ended."""
        return [process for process in self.processes.values() if not process.ended]

    def select(self, fds: Callable[[], list[int]], timeout_s: float | None) -> list[int]:
        """Let time pass until the supervisor has something to read, or for so long.

        Returns:
            What there is to read, in any order.
        """
        self._turns[self.now_ns // S] += 1
        if self._turns[self.now_ns // S] > _TURNS_IN_A_SECOND:
            raise Violation("the supervisor's loop turns without end")
        self.now_ns += _TURN_NS
        self._in_vain = 0
        until_ns = None if timeout_s is None else self.now_ns + int(timeout_s * S)
        self._happen()
        while not (ready := self._readable(fds())) and (until_ns is None or self.now_ns < until_ns):
            self._pass(until_ns)
        while self.now_ns < self.stopped_until_ns:
            self._pass(self.stopped_until_ns)
            ready = self._readable(fds())
        self.chance.shuffle(ready)
        return ready

    def _readable(self, fds: list[int]) -> list[int]:
        return [fd for fd in fds if fd in self.fds and self.fds[fd].readable]

    def _pass(self, until_ns: int | None) -> None:
        """Time goes on to the next thing that happens, or to that instant."""
        planned = [at_ns for at_ns, *_ in self._events[:1]]
        planned += [] if until_ns is None else [until_ns]
        if not planned:
            raise Violation("everybody sleeps for ever")
        self.now_ns = max(self.now_ns, min(planned))
        self._happen()

    def _happen(self) -> None:
        while self._events and self._events[0][0] <= self.now_ns:
            heapq.heappop(self._events)[-1]()

    # As the supervisor's modules find them

    def socketpair(self) -> "tuple[End, End]":
        """See `socket.socketpair`."""
        self.refuse("socketpair")
        ours, theirs = End(self), End(self)
        ours.peer, theirs.peer = theirs, ours
        return ours, theirs

    def popen(self, words: list[str], *, pass_fds: tuple[int, ...], **_: object) -> "Popen":
        """See `subprocess.Popen`."""
        self.refuse("fork")
        return Popen(self, words, pass_fds)

    def pidfd_open(self, pid: int) -> int:
        """See `os.pidfd_open`."""
        self.refuse("pidfd_open")
        return self.open(PidFd(self.processes[pid]))

    def pidfd_send_signal(self, fd: int, number: int) -> None:
        """See `signal.pidfd_send_signal`."""
        found = self.fds[fd]
        assert isinstance(found, PidFd)
        if found.process.ended:
            raise ProcessLookupError
        found.process.signalled(number)

    def kill_session(self, leader: int) -> None:
        """See `session.kill_session`."""
        process = self.processes[leader]
        if process.waited_for:
            raise Violation(f"{process} is killed after it was waited for")
        process.killed()


class End:
    """End of a socket pair, with the part of a socket's interface that a channel uses.

    Attributes:
        peer: the other end.
        holders: number of processes that have this end.
        on_received: called with what has come.
    """

    peer: "End"

    def __init__(self, kernel: Kernel) -> None:
        self.holders = 1
        self.on_received: Callable[[bytes], object] = lambda _: None
        self._kernel = kernel
        self._fd = kernel.open(self)
        self._data = b""
        self._shut = False

    @property
    def readable(self) -> bool:
        """See `Readable.readable`."""
        return bool(self._data) or self._shut or not self.peer.holders

    def setblocking(self, blocking: bool) -> None:
        """See `socket.socket.setblocking`."""
        if blocking:
            raise Violation("the supervisor would wait for a process")

    def fileno(self) -> int:
        """See `socket.socket.fileno`."""
        return self._fd

    def send(self, data: bytes) -> int:
        """See `socket.socket.send`."""
        if not self.peer.holders:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        taken = data[: _ROOM_BYTES - len(self.peer._data)]
        if not taken:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self.peer._data += taken
        self.peer.on_received(taken)
        return len(taken)

    def recv(self, size: int) -> bytes:
        """See `socket.socket.recv`."""
        if not self.readable:
            self._kernel.found_nothing()
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        data, self._data = self._data[:size], self._data[size:]
        return data

    def shutdown(self, how: int) -> None:
        """See `socket.socket.shutdown`."""
        self._shut = True

    def close(self) -> None:
        """See `socket.socket.close`."""
        if self._fd >= 0:
            self._kernel.close(self._fd)
            self._fd = -1
            self.holders -= 1

    def __enter__(self) -> "End":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PidFd:
    """Descriptor of a process."""

    def __init__(self, process: Started) -> None:
        self.process = process

    @property
    def readable(self) -> bool:
        """See `Readable.readable`."""
        return self.process.ended


class Pipe:
    """A pipe that can wake a process."""

    def __init__(self, kernel: Kernel) -> None:
        self.readable = False
        self._kernel = kernel
        self._fd = kernel.open(self)

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._fd

    def close(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            self._kernel.close(self._fd)
            self._fd = -1


class Popen:
    """A process as its parent has it.

    Attributes:
        words: with which it was called, from the module on.
        control: its end of the control socket, if it has one.
    """

    def __init__(self, kernel: Kernel, words: list[str], pass_fds: tuple[int, ...]) -> None:
        self.words = words[words.index("-m") + 1 :]
        self.control: End | None = None
        if "--control-fd" in words:
            fd = int(words[words.index("--control-fd") + 1])
            end = kernel.fds[fd]
            assert isinstance(end, End)
            assert fd in pass_fds
            end.holders += 1
            self.control = end
        self._process = kernel.started(self)
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """See `subprocess.Popen.poll`."""
        if not self._process.ended:
            return None
        self._process.waited_for = True
        return self._process.status


class Selector(selectors._BaseSelectorImpl):
    """The selector that the supervisor's loop waits with.

    Args:
        kernel: kernel whose time passes during a wait.
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._kernel = kernel

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See `selectors.BaseSelector.select`."""
        keys = {key.fd: key for key in self.get_map().values()}
        ready = self._kernel.select(lambda: [*keys], timeout)
        return [(keys[fd], selectors.EVENT_READ) for fd in ready]
