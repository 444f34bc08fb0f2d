"""Ownership of lanes: the process that has locked a lane's doorbell owns the lane.

The kernel drops the lock with its holder, however that ended. The lock belongs to the process
(POSIX), so no child has it. A lock of the open file would outlive the owner in a child with copies
of its descriptors, even in a fork that Python does not see. Two rules follow. Locks of the process
say nothing within it, so a table has those that it holds. They go when the process closes any
descriptor of the same file, so no other part of the process opens its own doorbells.
"""

import fcntl
import os
import struct
from collections.abc import Callable
from typing import Final

from ringbatch.shm.errors import SegmentGone, StartupError

_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
_FLOCK: Final = struct.Struct("@hhqqi4x")


class LaneLocks:
    """The lanes of one attachment to a segment.

    Args:
        path: of a lane's doorbell.
    """

    def __init__(self, path: Callable[[int], str]) -> None:
        self._path = path
        self._held: dict[str, int] = {}
        """Descriptors of the doorbells that are locked."""

    def lock(self, lane: int) -> bool:
        """Become the lane's owner; False if there is another, in this process or elsewhere.

        Raises:
            SegmentGone: the engine has ended.
            StartupError: this process cannot have it.
        """
        path = self._path(lane)
        if _OURS.setdefault(path, self) is not self:
            return False
        if path not in self._held:
            try:
                self._held[path] = _locked(path)
            except BlockingIOError:
                del _OURS[path]
                return False
            except BaseException:
                del _OURS[path]
                raise
        return True

    def has_another_owner(self, lane: int) -> bool:
        """Return whether the lane has an owner other than this attachment."""
        path = self._path(lane)
        owner = _OURS.get(path)
        return _is_locked(path) if owner is None else owner is not self

    def release(self) -> None:
        """Give up all lanes; in a forked child, which owns none, close the parent's descriptors."""
        for path, fd in self._held.items():
            os.close(fd)
            _OURS.pop(path, None)
        self._held.clear()


_OURS: Final[dict[str, LaneLocks]] = {}
"""Lanes that this process owns, by their doorbells."""
os.register_at_fork(after_in_child=_OURS.clear)


def _locked(path: str) -> int:
    try:
        fd = os.open(path, os.O_RDWR | _FLAGS)
    except FileNotFoundError:
        raise SegmentGone("the engine's doorbell is gone; has the engine stopped?") from None
    except OSError as error:
        raise StartupError(f"cannot open the engine's doorbell: {error.strerror}") from None
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _is_locked(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | _FLAGS)
    except OSError:
        return False
    try:
        wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_ = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, wanted))
        return bool(kind != fcntl.F_UNLCK)
    finally:
        os.close(fd)
