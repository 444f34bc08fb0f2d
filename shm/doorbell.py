"""Doorbell for processes with an event loop: a named pipe.

The verbs and the rules are those of `ringbatch.shm.wakeup`. But the loop can watch a pipe beside
its connections; a semaphore would need a thread that waits and passes each ring on. A ring is one
byte, and a full pipe needs no further one.
"""

import os
import select

from ringbatch.shm.errors import SegmentGone, StartupError

_MANY = 1 << 16
"""Bytes that a pipe holds on Linux: one read takes every ring."""


class Doorbell:
    """Doorbell of a single waiter. Any number of processes may ring it."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @staticmethod
    def create(path: str) -> None:
        """Make a pipe of that name, mode 0600.

        Raises:
            OSError: the pipe cannot be made.
        """
        os.mkfifo(path, 0o600)
        # The umask may have taken bits away, but never added any.
        os.chmod(path, 0o600)

    @classmethod
    def attach(cls, path: str) -> "Doorbell":
        """Open the existing pipe of that name.

        Raises:
            SegmentGone: there is none.
            StartupError: this process cannot open it.
        """
        try:
            return cls(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW))
        except FileNotFoundError:
            raise SegmentGone("the engine's doorbell is gone; has the engine stopped?") from None
        except OSError as error:
            raise StartupError(f"cannot open the engine's doorbell: {error.strerror}") from None

    def fileno(self) -> int:
        """Return the descriptor that an event loop watches: it is readable once rung."""
        return self._fd

    def wake(self) -> None:
        """Ring."""
        try:  # noqa: SIM105 - suppress() takes as long as the call
            os.write(self._fd, b"\0")
        except BlockingIOError:
            pass

    def hush(self) -> None:
        """Take all rings, before the waiter looks for work."""
        try:  # noqa: SIM105 - as above
            os.read(self._fd, _MANY)
        except BlockingIOError:
            pass

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until rung, and take all rings; False after `timeout_s` of the monotonic clock."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        rung = bool(poll.poll(None if timeout_s is None else timeout_s * 1e3))
        if rung:
            # Only then: a ring that comes after the timeout is for the next call.
            self.hush()
        return rung

    def close(self) -> None:
        """Let go of the pipe; its name stays."""
        os.close(self._fd)
