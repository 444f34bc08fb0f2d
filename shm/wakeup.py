"""Waking a process that waits, through a POSIX semaphore.

A wake-up is a hint and never carries state: what there is to do stands in the segment. The rules
that keep a hint from getting lost: publish first, then `wake`; and after `wait` returns, look at
everything, not at as many things as there were tokens.

The semaphore itself knows whether somebody waits, with the full fence that this takes: a `wake`
that nobody waits for is a few nanoseconds and no system call.
"""

import contextlib
import errno

import posix_ipc

from ringbatch.shm.errors import StartupError


class Wakeup:
    """One waiter's doorbell. Any number of processes may ring it; one waits."""

    __slots__ = ("_semaphore", "wake")

    def __init__(self, semaphore: posix_ipc.Semaphore) -> None:
        self._semaphore = semaphore
        self.wake = semaphore.release

    @classmethod
    def create(cls, name: str) -> "Wakeup":
        """A new semaphore of that name, mode 0600.

        Raises:
            StartupError: where the system allows no further one, or the name is taken.
        """
        try:
            return cls(posix_ipc.Semaphore(name, posix_ipc.O_CREX, mode=0o600))
        except posix_ipc.ExistentialError:
            raise StartupError(f"the semaphore {name} exists already") from None
        except OSError as error:
            raise StartupError(
                f"cannot make the semaphore {name}: {_reason(error)}; semaphores live in /dev/shm, "
                "each takes 4 KiB and a file there, and the open-file limit counts"
            ) from None

    @classmethod
    def attach(cls, name: str) -> "Wakeup":
        """The existing semaphore of that name.

        Raises:
            StartupError: where there is none.
        """
        try:
            return cls(posix_ipc.Semaphore(name))
        except (posix_ipc.ExistentialError, OSError):
            raise StartupError(f"the semaphore {name} is gone; has the engine stopped?") from None

    @property
    def rung(self) -> bool:
        """Whether `wait` would return at once."""
        return bool(self._semaphore.value)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until woken; False after `timeout_s` or where a signal came first.

        All tokens are taken, so that a burst of wake-ups is one. The timeout runs on the wall
        clock (POSIX gives no other), so it is good for a safety sweep or a coarse limit; callers
        compare the monotonic clock afterwards.
        """
        semaphore = self._semaphore
        try:
            semaphore.acquire(timeout_s)
            for _ in range(semaphore.value):
                semaphore.acquire(0)
        except posix_ipc.BusyError:
            return False
        except posix_ipc.SignalError:
            return False
        return True

    def close(self) -> None:
        """Let go of the semaphore; its name stays."""
        self._semaphore.close()


def unlink(name: str) -> None:
    """Remove the semaphore's name, if it is there."""
    with contextlib.suppress(posix_ipc.ExistentialError):
        posix_ipc.unlink_semaphore(name)


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "no space left"
    return error.strerror or str(error)
