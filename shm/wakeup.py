"""Waking a process that waits, through a POSIX semaphore.

A wake-up is a hint and never carries state: what there is to do stands in the segment. The rules
that keep a hint from getting lost: publish first, then `wake`; and after `wait` returns, look at
everything, not at as many things as there were tokens.

The semaphore itself knows whether somebody waits, with the full fence that this takes: a `wake`
that nobody waits for is a few nanoseconds and no system call. What ends at an instant ends by the
monotonic clock, through a function of the C library that posix_ipc does not know: by the wall
clock, which it has, a step back would make every wait as much longer.
"""

import contextlib
import ctypes
import errno
import time
from typing import Final

import posix_ipc

from ringbatch.shm.errors import SegmentGone, StartupError

_LIBC: Final = ctypes.CDLL(None)
_OPEN: Final = _LIBC.sem_open
_OPEN.restype = ctypes.c_void_p
_CLOSE: Final = _LIBC.sem_close
_WAIT_UNTIL: Final = getattr(_LIBC, "sem_clockwait", None)
"""glibc's wait by CLOCK_MONOTONIC; a C library without it leaves the wall clock."""
_NS: Final = 1_000_000_000


class Wakeup:
    """Doorbell of a single waiter. Any number of processes may ring it."""

    __slots__ = ("_address", "_instant", "_semaphore", "_timespec", "_waited", "wake")

    def __init__(self, semaphore: posix_ipc.Semaphore) -> None:
        self._semaphore = semaphore
        # The library gives the same address to everyone in the process who opens it.
        address = _OPEN(semaphore.name.encode(), 0)
        if not address:
            semaphore.close()
            raise posix_ipc.ExistentialError(f"the semaphore {semaphore.name} is gone")
        self._address = ctypes.c_void_p(address)
        # References are passed on as they are, which takes half the time of other arguments.
        self._waited = ctypes.byref(ctypes.c_char.from_address(address))
        timespec = (ctypes.c_long * 2)()
        self._instant = memoryview(timespec).cast("B").cast("l")
        self._timespec = ctypes.byref(timespec)
        self.wake = semaphore.release

    @classmethod
    def create(cls, name: str) -> "Wakeup":
        """Create a semaphore of that name, mode 0600.

        Raises:
            StartupError: the system allows no further one, or the name is taken.
        """
        try:
            return cls(posix_ipc.Semaphore(name, posix_ipc.O_CREX, mode=0o600))
        except posix_ipc.ExistentialError:
            raise StartupError(f"the semaphore {name} exists already") from None
        except OSError as error:
            raise StartupError(
                f"cannot make the semaphore {name}: {_reason(error)}; semaphores live in /dev/shm, "
                "each takes a page and a file there, and the open-file limit counts"
            ) from None

    @classmethod
    def attach(cls, name: str) -> "Wakeup":
        """Open the existing semaphore of that name.

        Raises:
            SegmentGone: there is none.
            StartupError: this process cannot open it.
        """
        try:
            return cls(posix_ipc.Semaphore(name))
        except posix_ipc.ExistentialError:
            raise SegmentGone(f"the semaphore {name} is gone; has the engine stopped?") from None
        except OSError as error:
            raise StartupError(f"cannot open the semaphore {name}: {_reason(error)}") from None

    @property
    def rung(self) -> bool:
        """True if `wait` would return at once."""
        return bool(self._semaphore.value)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until woken; return False after `timeout_s`, or if a signal came first.

        All tokens are taken, so that a burst of wake-ups is one.
        """
        semaphore, instant = self._semaphore, self._instant
        try:
            # This waiter alone takes tokens, so a token that is there is taken at once.
            if timeout_s is None or semaphore.value:
                semaphore.acquire()
            elif not timeout_s:
                return False
            elif _WAIT_UNTIL is None:
                semaphore.acquire(timeout_s)
            else:
                until_ns = time.monotonic_ns() + int(timeout_s * _NS)
                instant[0] = until_ns // _NS
                instant[1] = until_ns % _NS
                if _WAIT_UNTIL(self._waited, time.CLOCK_MONOTONIC, self._timespec):
                    return False
            for _ in range(semaphore.value):
                semaphore.acquire()
        except posix_ipc.BusyError:
            return False
        except posix_ipc.SignalError:
            return False
        return True

    def close(self) -> None:
        """Let go of the semaphore; its name stays."""
        _CLOSE(self._address)
        self._semaphore.close()


def unlink(name: str) -> None:
    """Remove the semaphore's name, if it is there."""
    with contextlib.suppress(posix_ipc.ExistentialError):
        posix_ipc.unlink_semaphore(name)


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "no space left"
    return error.strerror or str(error)
