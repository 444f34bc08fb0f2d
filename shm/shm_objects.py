"""Objects of engines in /dev/shm: names, owners, locks and removal.

Names are ``/ringbatch.NAME.PID.RANDOM``: the engine's name, by which it is found, and the process
id of its supervisor. The semaphores, pipes and the socket of an engine carry its segment's name
with a suffix. All users can see these names, and the owner alone can open what they name.

The supervisor holds a lock on the segment for as long as it lives. It is a lock of the open file,
which no process inherits that is started in the usual way. The kernel drops it at any death of its
holder. So every process with the same /dev/shm can tell a dead engine's objects from
a living one's: containers may share it and not see one another's processes.
"""

import fcntl
import os
import re
import secrets
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import posix_ipc

from ringbatch.shm import engine_name, wakeup
from ringbatch.shm.errors import StartupError
from ringbatch.shm.layout import MAX_LANES

PREFIX: Final = "ringbatch"
DIRECTORY: Final = Path("/dev/shm")
FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags with which objects are opened."""
WANTED: Final = (
    "engines need a tmpfs there in which this user may make files, as by mount -t tmpfs -o "
    "mode=1777 tmpfs /dev/shm"
)
"""Text for a /dev/shm that is of no use."""
LIFE_LOCK: Final = MAX_LANES + 1
"""The byte of a segment that its supervisor locks; the one before is the registry's."""
_FLOCK: Final = struct.Struct("@hhqqi4x")


def free_bytes() -> int | None:
    """Return the free bytes of /dev/shm; None if it has no limit of its own."""
    room = os.statvfs(DIRECTORY)
    return room.f_bavail * room.f_frsize if room.f_blocks else None


def create_locked_segment(engine: str) -> tuple[str, int, int]:
    """Create a new, empty segment, locked as that of a living supervisor.

    Args:
        engine: its name.

    Returns:
        Its name with the leading slash, a descriptor of it, and another that has the lock.

    Raises:
        OSError, posix_ipc.Error: that is not possible.
    """
    while True:
        name = f"/{PREFIX}.{engine}.{os.getpid()}.{secrets.token_hex(8)}"
        fd = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=0o600).fd
        locks = reopen(fd)
        # A removal before the lock was there took it for a dead engine's.
        if try_lock(locks, LIFE_LOCK) and os.fstat(locks).st_nlink:
            return name, fd, locks
        os.close(fd)
        os.close(locks)
        unlink_segment(name)


@contextmanager
def reserved_name(engine: str) -> Iterator[None]:
    """Reserve an engine's name meanwhile; another process of this user that wants it waits.

    Raises:
        StartupError: another user has taken the lock's path.
    """
    path = DIRECTORY / f"{PREFIX}.{engine}.{os.geteuid()}.name"
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | FLAGS, 0o600)
        except OSError as error:
            raise StartupError(
                f"cannot reserve the name {engine}: {path}: {error.strerror}"
            ) from None
        try:
            wait_for_lock(fd, 0)
            # Its holder before may have removed it.
            if os.fstat(fd).st_nlink:
                try:
                    yield
                finally:
                    path.unlink()
                return
        finally:
            # A child that was forked meanwhile may hold a copy.
            unlock_all(fd)
            os.close(fd)


def reopen(fd: int) -> int:
    """Return another descriptor of the same object, for locks, which belong to the open file.

    A mapping keeps a copy of the descriptor that it was made from. With one of its own for the
    locks, a forked child can close all that it has of them.
    """
    return os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)


@contextmanager
def without_umask() -> Iterator[None]:
    """Clear the umask meanwhile, so that objects get exactly the modes asked for."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def try_lock(fd: int, byte: int) -> bool:
    """Lock a byte for this open file; return False if another file has it."""
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, request)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(fd: int, byte: int) -> None:
    """Lock a byte for this open file, once no other has it."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLKW, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))


def is_locked(fd: int, byte: int) -> bool:
    """Return whether another open file has the lock of a byte."""
    wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    kind, *_ = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, wanted))
    return bool(kind != fcntl.F_UNLCK)


def unlock(fd: int, byte: int) -> None:
    """Give the lock of a byte back."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, byte, 1, 0))


def unlock_all(fd: int) -> None:
    """Give back all locks of an open file, also for those who have copies of the descriptor."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))


def segment_names(engine: str | int | None = None) -> Iterator[str]:
    """Yield the names of segments, living or not.

    Args:
        engine: the name of engines, or the process id of a supervisor; None for all.

    Raises:
        StartupError: there is no /dev/shm, or it cannot be read.
    """
    for entry in _entries():
        found = _taken_apart(entry.name)
        if found and found[4] is None and engine in (None, found[2], int(found[3])):
            yield f"/{entry.name}"


def _entries() -> list[Path]:
    try:
        return sorted(DIRECTORY.iterdir())
    except OSError as error:
        raise StartupError(
            f"cannot look for engines in /dev/shm: {error.strerror}; {WANTED}"
        ) from None


def engine_and_pid(name: str) -> tuple[str, int]:
    """Return the engine's name and the process id in a segment's name."""
    _, engine, pid, _ = name.split(".")
    return engine, int(pid)


def _taken_apart(name: str) -> re.Match[str] | None:
    """Return the segment's name, the engine's, the process id, and the suffix of its object."""
    pattern = rf"({PREFIX}\.({engine_name.PATTERN})\.(\d+)\.[0-9a-f]{{16}})(\..*)?"
    return re.fullmatch(pattern, name)


def remove_dead_engines() -> list[str]:
    """Remove the objects of this user's dead engines, and return their names.

    Raises:
        StartupError: as of `segment_names`.
    """
    return [name for base, entries in _engines() for name in _remove_if_dead(base, entries)]


Identity = tuple[int, int]
"""Identity of an object under any name: its device and its inode."""


def identities(paths: Iterable[str]) -> dict[str, Identity | None]:
    """Return (device, inode) of each path; None if it is missing.

    A path is left out if the kernel does not say.
    """
    named: dict[str, Identity | None] = {}
    for path in paths:
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            named[path] = None
        except OSError:
            continue
        else:
            named[path] = found.st_dev, found.st_ino
    return named


def lost_paths(
    made: Mapping[str, Identity | None], now: Mapping[str, Identity | None]
) -> list[str]:
    """Return the paths that name another object than before, or none. Pure.

    Args:
        made: the object of each path at first.
        now: its object now; a path that is left out does not count as lost.
    """
    return sorted(path for path, named in now.items() if named is None or named != made[path])


def dead_engine_objects() -> list[tuple[str, list[Path]]]:
    """Return the segments' names and objects that `remove_dead_engines` would remove.

    Raises:
        StartupError: as of `segment_names`.
    """
    return [
        (base, own)
        for base, entries in _engines()
        if (own := [entry for entry in entries if _is_own(entry)]) and not _may_be_alive(base)
    ]


def _engines() -> list[tuple[str, list[Path]]]:
    """Return the segments' names of all engines, with the paths of their objects."""
    engines: dict[str, list[Path]] = {}
    for entry in _entries():
        if found := _taken_apart(entry.name.removeprefix("sem.")):
            engines.setdefault(found[1], []).append(entry)
    return list(engines.items())


def _may_be_alive(base: str) -> bool:
    try:
        fd = os.open(DIRECTORY / base, os.O_RDWR | FLAGS)
    except FileNotFoundError:
        return False
    except OSError:  # another user's
        return True
    try:
        return is_locked(fd, LIFE_LOCK)
    finally:
        os.close(fd)


def _remove_if_dead(base: str, entries: list[Path]) -> list[str]:
    segment = DIRECTORY / base
    try:
        fd = os.open(segment, os.O_RDWR | FLAGS)
    except FileNotFoundError:
        # The last of an engine's objects to be removed; so the others are a dead one's.
        return _remove(entries)
    except OSError:  # another user's
        return []
    try:
        if not try_lock(fd, LIFE_LOCK):
            return []
        return _remove(sorted(entries, key=lambda entry: entry == segment))
    finally:
        os.close(fd)


def _is_own(entry: Path) -> bool:
    try:
        return entry.lstat().st_uid == os.geteuid()
    except FileNotFoundError:
        return False


def _remove(entries: list[Path]) -> list[str]:
    removed = []
    for entry in entries:
        with suppress(FileNotFoundError):
            if _is_own(entry):
                entry.unlink()
                removed.append(entry.name)
    return removed


def unlink_segment(name: str) -> None:
    """Remove a segment's name and those of what belongs to it, whichever are still there."""
    base = name.removeprefix("/")
    for beside in DIRECTORY.glob(f"{base}.*"):
        beside.unlink(missing_ok=True)
    for entry in DIRECTORY.glob(f"sem.{base}.*"):
        wakeup.unlink(f"/{entry.name.removeprefix('sem.')}")
    with suppress(posix_ipc.ExistentialError):
        posix_ipc.unlink_shared_memory(name)
