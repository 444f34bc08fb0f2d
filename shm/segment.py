"""The shared memory object: made, attached, checked, removed.

Names are ``/ringbatch.PID.START.RANDOM``, where PID and START identify the supervisor that made
it; its semaphores and pipes carry the same name with a suffix. So whatever a killed engine left
in /dev/shm can be told from a living one's, and `sweep` removes it.
"""

import fcntl
import mmap
import os
import secrets
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import posix_ipc

from ringbatch.shm import layout as at
from ringbatch.shm import wakeup
from ringbatch.shm.bell import Bell
from ringbatch.shm.errors import LayoutMismatch, SegmentNotReady, StartupError
from ringbatch.shm.layout import WORD, Layout
from ringbatch.shm.manifest import ModelSpec
from ringbatch.shm.owner import Owner
from ringbatch.shm.table import Table
from ringbatch.shm.wakeup import Wakeup

PREFIX: Final = "ringbatch"
DIRECTORY: Final = Path("/dev/shm")
_NAME_DOTS: Final = 3
_FLOCK: Final = struct.Struct("@hhqqi4x")
_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC
_REGISTRY_LOCK: Final = at.MAX_LANES
"""The byte behind those of the lanes."""


class Segment:
    """One mapped segment.

    Attributes:
        name: its name, with the leading slash; empty for a process-local twin.
        layout: its sizes and offsets.
        memory: all of it, as bytes.
        words: all of it, as words of 8 bytes; control words are touched through this alone.
        table: the table of models.
        models: the entries of that table, as they were when it was last looked at.
    """

    def __init__(self, name: str, layout: Layout, mapping: mmap.mmap, fd: int) -> None:
        self.name = name
        self.layout = layout
        self._mapping = mapping
        self._fd = fd
        self.memory = memoryview(mapping)
        self.words = self.memory.cast("Q")
        self.table = Table(self.words, self.memory, layout)
        self.models: tuple[ModelSpec, ...] = ()

    @classmethod
    def create(cls, layout: Layout, models: tuple[ModelSpec, ...]) -> "Segment":
        """Make a segment with all its memory really there, and its doorbells.

        Raises:
            StartupError: where /dev/shm has no room or allows no further semaphore; nothing
                is left behind then.
        """
        owner = Owner.current()
        name = f"/{PREFIX}.{owner.pid}.{owner.start_time}.{secrets.token_hex(8)}"
        try:
            fd = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=0o600).fd
            try:
                os.posix_fallocate(fd, 0, layout.size)
                mapping = mmap.mmap(fd, layout.size)
                segment = cls(name, layout, mapping, fd)
                for suffix in _semaphore_suffixes(layout):
                    Wakeup.create(name + suffix).close()
                for lane in range(layout.lanes):
                    Bell.create(_lane_bell(name, lane))
                segment._fill(models)
            except BaseException:
                os.close(fd)
                unlink(name)
                raise
        except OSError as error:
            raise StartupError(_no_room(layout.size, error)) from None
        return segment

    @classmethod
    def local(cls, layout: Layout, models: tuple[ModelSpec, ...]) -> "Segment":
        """A twin that only this process sees, for tests: no name, no semaphores, no locks."""
        segment = cls("", layout, mmap.mmap(-1, layout.size), -1)
        segment._fill(models)
        return segment

    @classmethod
    def attach(cls, name: str) -> "Segment":
        """Map an existing segment.

        Raises:
            StartupError: where there is none, or it belongs to somebody else.
            SegmentNotReady: where its maker has not finished it.
            LayoutMismatch: where another version of ringbatch made it.
        """
        try:
            fd = posix_ipc.SharedMemory(name).fd
        except (posix_ipc.ExistentialError, posix_ipc.PermissionsError):
            raise StartupError(
                "the engine's shared memory is gone; has the engine stopped?"
            ) from None
        try:
            found = os.fstat(fd)
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o600:
                raise StartupError("the engine's shared memory belongs to another user")
            layout = _read_header(fd, found.st_size)
            mapping = mmap.mmap(fd, layout.size)
            # Locks belong to the open file, and the mapping keeps a copy of the descriptor it was
            # made from. One of its own lets a forked child close all that it has of the locks.
            segment = cls(name, layout, mapping, os.open(f"/proc/self/fd/{fd}", _FLAGS))
        finally:
            os.close(fd)
        segment.read_models()
        return segment

    @property
    def owner(self) -> Owner:
        """The supervisor that made it; its death is the end of the engine."""
        owner = _owner_of(self.name.removeprefix("/"))
        assert owner is not None, "a process-local twin was made by nobody"
        return owner

    @property
    def identity(self) -> int:
        """A random number of 64 bits, the same for all who attach."""
        return self._header(at.IDENTITY)

    def read_models(self) -> int:
        """Look at the table of models again; the number of the one that was found."""
        number, self.models = self.table.read()
        return number

    @property
    def model_control(self) -> bool:
        """Whether frontends may ask the supervisor to load and unload models."""
        return bool(self._header(at.MODEL_CONTROL))

    def allow_model_control(self) -> None:
        """Let frontends ask for models to be loaded and unloaded; by the supervisor alone."""
        self.words[at.MODEL_CONTROL // WORD] = 1

    @property
    def draining(self) -> bool:
        """Whether the supervisor wants the engine to finish and stop."""
        return bool(self._header(at.DRAINING))

    def drain(self) -> None:
        """Say that the engine is to finish what it has; by the supervisor alone."""
        self.words[at.DRAINING // WORD] = 1

    def lane_doorbell(self, lane: int) -> Bell:
        """What wakes the frontend of a lane."""
        return Bell.attach(_lane_bell(self.name, lane))

    def worker_doorbell(self, worker: int) -> Wakeup:
        """What wakes a worker."""
        return Wakeup.attach(f"{self.name}.w{worker}")

    def collector_doorbell(self) -> Wakeup:
        """What wakes the collector."""
        return Wakeup.attach(f"{self.name}.c")

    def lock_lane(self, lane: int) -> bool:
        """Hold the lane's lock until this process ends or detaches; False where another does.

        The kernel drops the lock when its holder is gone, however it went: a lane whose lock can
        be taken has no living frontend. It is a lock of the open file, so two attachments in one
        process exclude each other too.
        """
        return self._lock(lane)

    def lock_registry(self) -> bool:
        """Become the registrar of clients' memory; False where another process is it.

        As with `lock_lane`, the kernel drops the lock where its holder dies.
        """
        return self._fd < 0 or self._lock(_REGISTRY_LOCK)

    def unlock_registry(self) -> None:
        """Be the registrar no longer."""
        if self._fd >= 0:
            unlock = _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, _REGISTRY_LOCK, 1, 0)
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, unlock)

    def held_lanes(self) -> int:
        """How many of the frontends' lanes have an owner, other than this attachment."""
        return sum(map(self.lane_is_held, range(self.layout.frontend_lanes)))

    def lane_is_held(self, lane: int) -> bool:
        """Whether the lane has an owner other than this attachment; a process-local twin, which
        has no locks, says that it has."""
        if self._fd < 0:
            return True
        wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, lane, 1, 0)
        kind, *_ = _FLOCK.unpack(fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, wanted))
        return bool(kind != fcntl.F_UNLCK)

    def detach(self) -> None:
        """Unmap it and drop its locks. Views that others still hold keep the mapping alive."""
        with suppress(BufferError):
            self.words.release()
            self.memory.release()
            self._mapping.close()
        if self._fd >= 0:
            # A forked child, or a mapping that stays alive, may have it too, and with it the locks.
            unlock = _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, unlock)
            os.close(self._fd)
            self._fd = -1

    def disown(self) -> None:
        """In a forked child: have no part in the locks of the process that attached.

        They are shared with it until then, and would outlive it; to drop them, as `detach` does,
        would drop them for it too.
        """
        os.close(self._fd)
        self._fd = -1

    def unlink(self) -> None:
        """Remove its name and those of its doorbells."""
        unlink(self.name)

    def _lock(self, byte: int) -> bool:
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, request)
        except BlockingIOError:
            return False
        return True

    def _header(self, offset: int) -> int:
        value: int = self.words[offset // WORD]
        return value

    def _fill(self, models: tuple[ModelSpec, ...]) -> None:
        self.models = models
        layout, words = self.layout, self.words
        self.table.publish(models)
        for offset, value in _header_values(layout).items():
            words[offset // WORD] = value
        words[at.IDENTITY // WORD] = secrets.randbits(64)
        words[at.RING_COLLECTOR // WORD] = 1
        words[at.MAGIC // WORD] = at.MAGIC_VALUE


def names(pid: int | None = None) -> Iterator[str]:
    """The names of segments in /dev/shm, of one supervisor or of all."""
    start = f"{PREFIX}." if pid is None else f"{PREFIX}.{pid}."
    for entry in sorted(DIRECTORY.glob(f"{start}*")):
        if _owner_of(entry.name) is not None and entry.name.count(".") == _NAME_DOTS:
            yield f"/{entry.name}"


def sweep() -> list[str]:
    """Remove what dead supervisors of this user left in /dev/shm, and say what it was."""
    removed = []
    for entry in sorted(DIRECTORY.iterdir()):
        owner = _owner_of(entry.name.removeprefix("sem."))
        with suppress(FileNotFoundError):
            if owner is None or owner.alive() or entry.stat().st_uid != os.geteuid():
                continue
            entry.unlink()
            removed.append(entry.name)
    return removed


def unlink(name: str) -> None:
    """Remove a segment's name and those of its doorbells, whichever are still there."""
    base = name.removeprefix("/")
    for pipe in DIRECTORY.glob(f"{base}.*"):
        pipe.unlink(missing_ok=True)
    for entry in DIRECTORY.glob(f"sem.{base}.*"):
        wakeup.unlink(f"/{entry.name.removeprefix('sem.')}")
    with suppress(posix_ipc.ExistentialError):
        posix_ipc.unlink_shared_memory(name)


def _owner_of(name: str) -> Owner | None:
    parts = name.split(".")
    if len(parts) < 4 or parts[0] != PREFIX or not all(map(str.isdecimal, parts[1:3])):
        return None
    return Owner(int(parts[1]), int(parts[2]))


def _semaphore_suffixes(layout: Layout) -> list[str]:
    return [".c", *(f".w{worker}" for worker in range(layout.workers))]


def _lane_bell(name: str, lane: int) -> str:
    return f"{DIRECTORY}{name}.l{lane}"


def _header_values(layout: Layout) -> dict[int, int]:
    return {
        at.VERSION: at.LAYOUT_VERSION,
        at.SEGMENT_BYTES: layout.size,
        at.LANES: layout.lanes,
        at.SLOTS: layout.slots,
        at.LANE_BYTES: layout.lane_bytes,
        at.WORKERS: layout.workers,
        at.MODELS: layout.models,
        at.MANIFEST_BYTES: layout.manifest_bytes,
        at.CLIENT_LANES: layout.client_lanes,
    }


def _read_header(fd: int, size: int) -> Layout:
    header = memoryview(os.pread(fd, at.HEADER_SIZE, 0))
    if size < at.HEADER_SIZE or len(header) < at.HEADER_SIZE:
        raise SegmentNotReady("the engine's shared memory is not finished yet")
    words = header.cast("Q")
    if words[at.MAGIC // WORD] != at.MAGIC_VALUE:
        raise SegmentNotReady("the engine's shared memory is not finished yet")
    if words[at.VERSION // WORD] != at.LAYOUT_VERSION:
        raise LayoutMismatch(
            f"the engine's shared memory has layout {words[at.VERSION // WORD]}, "
            f"this version of ringbatch has {at.LAYOUT_VERSION}; run the same version everywhere"
        )
    try:
        layout = Layout(
            lanes=words[at.LANES // WORD],
            slots=words[at.SLOTS // WORD],
            lane_bytes=words[at.LANE_BYTES // WORD],
            workers=words[at.WORKERS // WORD],
            models=words[at.MODELS // WORD],
            manifest_bytes=words[at.MANIFEST_BYTES // WORD],
            client_lanes=words[at.CLIENT_LANES // WORD],
        )
    except ValueError as error:
        raise LayoutMismatch(
            f"the engine's shared memory has an impossible size: {error}"
        ) from None
    if not layout.size == words[at.SEGMENT_BYTES // WORD] == size:
        raise LayoutMismatch(
            f"the engine's shared memory has {size} bytes, its header gives {layout.size}"
        )
    return layout


def _no_room(size: int, error: OSError) -> str:
    room = os.statvfs(DIRECTORY)
    free = room.f_bavail * room.f_frsize
    return (
        f"cannot allocate {size >> 20} MiB of shared memory: {error.strerror}; /dev/shm has "
        f"{free >> 20} MiB free. Make /dev/shm larger, or lower [server] max_request_bytes, "
        "lane_bytes, frontends or client_lanes"
    )
