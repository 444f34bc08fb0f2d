"""The shared memory object: made, attached, checked, removed."""

import errno
import mmap
import os
import secrets
import stat
from contextlib import ExitStack, suppress
from functools import partial
from typing import Final

import posix_ipc

from ringbatch.shm import segment_header, shm_objects
from ringbatch.shm.descriptors import (
    MAGIC_VALUE,
    HeaderWords,
    LaneWords,
    SlotWords,
    WorkerState,
    WorkerWords,
)
from ringbatch.shm.doorbell import Doorbell
from ringbatch.shm.engine_name import UNNAMED
from ringbatch.shm.errors import (
    NO_PLACE_YET,
    LayoutMismatch,
    SegmentGone,
    StartupError,
)
from ringbatch.shm.lane_locks import LaneLocks
from ringbatch.shm.layout import MAX_LANES, Layout
from ringbatch.shm.memory_order import load_acquire, store_release
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.model_table import ModelTable
from ringbatch.shm.slot import State, state_of
from ringbatch.shm.wakeup import Wakeup

_DRAINING: Final = HeaderWords.DRAINING
_STOPPING: Final = 1
_SUPERSEDED: Final = 2
"""The values of that word; 0 while the engine serves."""
_REGISTRY_LOCK: Final = MAX_LANES
"""The byte that the registrar locks."""
_COLLECTOR_LOCK: Final = shm_objects.LIFE_LOCK + 1
_ANOTHER_USERS: Final = "the engine's shared memory belongs to another user"

_OF_SIZE: Final = {
    errno.ENOSPC: "Make /dev/shm larger",
    errno.EDQUOT: "Raise this user's quota in /dev/shm",
    errno.EFBIG: "Raise the limit of a file's size (ulimit -f, LimitFSIZE=)",
    errno.ENOMEM: "Raise the limit of memory (MemoryMax=, ulimit -v)",
}
"""Remedies for a segment that is too large, by the kernel's reason."""
_OF_OPEN_FILES: Final = {
    errno.EMFILE: "raise the limit of open files (ulimit -n, LimitNOFILE=)",
    errno.ENFILE: "raise this host's limit of open files (fs.file-max)",
}


class Segment:
    """Mapped segment: the shared memory of one engine.

    Attributes:
        name: its name, with the leading slash; empty for a process-local twin.
        layout: its sizes and offsets.
        memory: all of it, as bytes.
        words: all of it, as words of 8 bytes; control words are touched through this alone.
        model_table: which models are served.
        models: its entries, as they were when it was last looked at.
    """

    def __init__(
        self, name: str, layout: Layout, mapping: mmap.mmap, fd: int, life: int = -1
    ) -> None:
        self.name = name
        self.layout = layout
        self._mapping = mapping
        self._fd = fd
        self._life = life
        self._lanes = LaneLocks(partial(_lane_bell, name))
        self._made: dict[str, shm_objects.Identity | None] = {}
        self.memory = memoryview(mapping)
        self.words = self.memory.cast("Q")
        self.model_table = ModelTable(self.words, self.memory, layout)
        self.models: tuple[ModelSpec, ...] = ()

    @classmethod
    def create(
        cls, layout: Layout, models: tuple[ModelSpec, ...], engine: str = UNNAMED, port: int = 0
    ) -> "Segment":
        """Make a segment with its doorbells, and have the kernel reserve all its memory.

        It is alive until its maker ends or detaches.

        Args:
            layout: its sizes.
            models: the entries of the first table.
            engine: the engine's name.
            port: where it serves clients over HTTP; 0 without such a port.

        Raises:
            StartupError: /dev/shm has no room, allows no further semaphore, or takes no files;
                nothing is left behind.
        """
        try:
            with shm_objects.without_umask(), ExitStack() as undo:
                name, fd, locks = shm_objects.create_locked_segment(engine)
                undo.callback(os.close, locks)
                undo.callback(shm_objects.unlink_segment, name)
                try:
                    os.posix_fallocate(fd, 0, layout.size)
                    mapping = mmap.mmap(fd, layout.size)
                finally:
                    os.close(fd)
                for suffix in _semaphore_suffixes(layout):
                    Wakeup.create(name + suffix).close()
                for pipe in _pipes(name, layout):
                    Doorbell.create(pipe)
                life = os.open(_life_pipe(name), os.O_RDWR | shm_objects.FLAGS)
                undo.callback(os.close, life)
                segment = cls(name, layout, mapping, locks, life)
                segment.words[HeaderWords.PORT] = port
                segment._fill(models)
                segment._made = shm_objects.identities(_paths(name, layout))
                undo.pop_all()
        except (OSError, posix_ipc.Error) as error:
            raise StartupError(_not_made(layout.size, error)) from None
        return segment

    @classmethod
    def local(cls, layout: Layout, models: tuple[ModelSpec, ...]) -> "Segment":
        """Make a segment for this process alone, for tests: no name, no semaphores, no locks."""
        segment = cls("", layout, mmap.mmap(-1, layout.size), -1)
        segment._fill(models)
        return segment

    @classmethod
    def attach(cls, name: str) -> "Segment":
        """Map an existing segment.

        Raises:
            SegmentGone: there is none.
            StartupError: it belongs to another user, or this process cannot open it.
            SegmentNotReady: its maker has not finished it.
            LayoutMismatch: another version of ringbatch made it.
        """
        try:
            fd = posix_ipc.SharedMemory(name).fd
        except posix_ipc.ExistentialError:
            raise SegmentGone(
                "the engine's shared memory is gone; has the engine stopped? If it runs, its names"
                " were removed from /dev/shm, and it ends; its log says more"
            ) from None
        except posix_ipc.PermissionsError:
            raise StartupError(_ANOTHER_USERS) from None
        found = os.fstat(fd)
        try:
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o600:
                raise StartupError(_ANOTHER_USERS)
            layout = segment_header.read(fd, found.st_size)
            mapping = mmap.mmap(fd, layout.size)
            segment = cls(name, layout, mapping, shm_objects.reopen(fd))
        except OSError as error:
            raise StartupError(
                f"cannot map {found.st_size >> 20} MiB of shared memory: {error.strerror}"
            ) from None
        finally:
            os.close(fd)
        try:
            segment.read_models()
        except LayoutMismatch:
            segment.detach()
            raise
        return segment

    @property
    def engine(self) -> str:
        """The name of the engine."""
        return shm_objects.engine_and_pid(self.name)[0]

    @property
    def pid(self) -> int:
        """Process id of the supervisor that made it, in its own PID namespace; for people."""
        return shm_objects.engine_and_pid(self.name)[1]

    @property
    def alive(self) -> bool:
        """True while the supervisor that made it runs; its death is the end of the engine."""
        return (
            self._life >= 0
            or self._fd < 0
            or shm_objects.is_locked(self._fd, shm_objects.LIFE_LOCK)
        )

    def watch_life(self) -> int:
        """Return a new descriptor that becomes readable soon after the supervisor has ended.

        It is a hint, as all wake-ups; `alive` says whether it has.

        Raises:
            SegmentGone: the engine has ended.
            StartupError: this process cannot have it.
        """
        try:
            return os.open(_life_pipe(self.name), os.O_RDONLY | shm_objects.FLAGS)
        except FileNotFoundError:
            raise SegmentGone("the engine's shared memory is gone") from None
        except OSError as error:
            raise StartupError(f"cannot watch the engine: {error.strerror}") from None

    @property
    def identity(self) -> int:
        """A random number of 64 bits, the same for all who attach."""
        return self.words[HeaderWords.IDENTITY]

    def read_models(self) -> int:
        """Read the model table again, and return its number."""
        number, self.models = self.model_table.read()
        return number

    @property
    def model_control(self) -> bool:
        """True if frontends may ask the supervisor to load and unload models."""
        return bool(self.words[HeaderWords.MODEL_CONTROL])

    def allow_model_control(self) -> None:
        """Let frontends ask for models to be loaded and unloaded; by the supervisor alone."""
        self.words[HeaderWords.MODEL_CONTROL] = 1

    @property
    def shares_fairly(self) -> bool:
        """True if accounts of clients share each model; see `ringbatch.shm.account`."""
        return bool(self.words[HeaderWords.FAIR_SHARES])

    def share_fairly(self) -> None:
        """Let accounts share each model; by the supervisor alone, before other processes start."""
        self.words[HeaderWords.FAIR_SHARES] = 1

    @property
    def ready_ns(self) -> int:
        """CLOCK_MONOTONIC when the engine became ready; 0 while it starts, and once it stops."""
        return 0 if self.draining else self.words[HeaderWords.READY_NS]

    def publish_ready(self, now_ns: int) -> None:
        """Publish that the engine serves; by the supervisor alone."""
        self.words[HeaderWords.READY_NS] = now_ns

    @property
    def stopping(self) -> bool:
        """True once a stop has begun: the engine serves, and asks clients to go elsewhere next."""
        return bool(self.words[HeaderWords.STOPPING])

    def publish_stopping(self) -> None:
        """Publish that a stop has begun; by the supervisor alone."""
        self.words[HeaderWords.STOPPING] = 1

    @property
    def draining(self) -> bool:
        """True once the supervisor wants the engine to finish and stop."""
        return bool(self.words[_DRAINING])

    @property
    def superseded(self) -> bool:
        """True if it is to finish because another serves at its addresses, under its name."""
        return self.words[_DRAINING] == _SUPERSEDED

    def drain(self, *, superseded: bool = False) -> None:
        """Publish that the engine finishes its requests and ends; by the supervisor alone.

        Args:
            superseded: True if another engine serves in its place.
        """
        self.words[HeaderWords.DRAINING] = _SUPERSEDED if superseded else _STOPPING

    def publish_worker_start(self, worker: int, errno: int, again_ns: int = 0) -> None:
        """Publish the errno of a worker's failed start, and when the next is due. Supervisor only.

        Both are 0 if a process runs.
        """
        first = self.layout.worker(worker)
        self.words[first + WorkerWords.AGAIN_NS] = again_ns
        self.words[first + WorkerWords.ERRNO] = errno
        if errno not in (0, NO_PLACE_YET):
            self.words[first + WorkerWords.ENDS] += 1

    def enter_worker(self, worker: int) -> None:
        """Publish that a number belongs to a new worker from now on; by the supervisor alone."""
        self.words[self.layout.worker(worker) + WorkerWords.ENDS] = 0

    def publish_collector_start(self, errno: int) -> None:
        """Publish the errno of a collector's failed start, or 0; by the supervisor alone."""
        self.words[HeaderWords.COLLECTOR_ERRNO] = errno

    @property
    def collector_ns(self) -> int:
        """CLOCK_MONOTONIC when the collector last looked for work; 0 without a collector."""
        return self.words[HeaderWords.COLLECTOR_NS]

    def collector_gone(self) -> None:
        """Publish that there is no collector; by the supervisor alone, once that is proven."""
        self.words[HeaderWords.COLLECTOR_NS] = 0

    def lane_doorbell(self, lane: int) -> Doorbell:
        """Return the doorbell of a lane's frontend."""
        return Doorbell.attach(_lane_bell(self.name, lane))

    def worker_doorbell(self, worker: int) -> Wakeup:
        """Return the doorbell of a worker."""
        return Wakeup.attach(f"{self.name}.w{worker}")

    def collector_doorbell(self) -> Wakeup:
        """Return the doorbell of the collector."""
        return Wakeup.attach(f"{self.name}.c")

    def lock_lane(self, lane: int) -> bool:
        """Own the lane until this process ends or detaches; False if another attachment owns it.

        The kernel drops the lock when its holder is gone, however it went: a lane whose lock can
        be taken has no living frontend.

        Raises:
            SegmentGone: the engine has ended.
            StartupError: this process cannot have it.
        """
        return self._lanes.lock(lane)

    def lock_registry(self) -> bool:
        """Become the registrar of clients' memory; return False if another process is it.

        The kernel drops the lock when its holder dies.
        """
        return self._fd < 0 or shm_objects.try_lock(self._fd, _REGISTRY_LOCK)

    def unlock_registry(self) -> None:
        """Give up the role of the registrar."""
        if self._fd >= 0:
            shm_objects.unlock(self._fd, _REGISTRY_LOCK)

    def lock_collector(self) -> None:
        """Wait until no process is the collector, and be it until this process ends.

        The kernel drops the lock when its holder is gone, after its last store. So no two processes
        are the collector, and the next one needs no message of a death.
        """
        shm_objects.wait_for_lock(self._fd, _COLLECTOR_LOCK)

    def worker_ended(self, worker: int, *, by_chance: bool = False) -> None:
        """Publish that no process is this worker; by the supervisor alone, which has seen it end.

        Args:
            worker: its number.
            by_chance: whether its end before it was ready says nothing of the next one.
        """
        first, words = self.layout.worker(worker), self.words
        was_ready = words[first + WorkerWords.STATE] == WorkerState.READY
        if was_ready:
            words[first + WorkerWords.ENDS] = 1
        elif not by_chance:
            words[first + WorkerWords.ENDS] += 1
        store_release(words, first + WorkerWords.STATE, WorkerState.ABSENT)
        words[first + WorkerWords.FAILING] = 0

    def serving_lanes(self) -> int:
        """Return how many other frontends own a lane and accept connections."""
        layout, words = self.layout, self.words
        return sum(
            words[layout.lane(lane) + LaneWords.SERVING] and self.lane_is_held(lane)
            for lane in range(layout.frontend_lanes)
        )

    def clients_wait(self) -> bool:
        """Return whether a client that owns a lane waits for an answer."""
        layout, words = self.layout, self.words
        for lane in filter(self.lane_is_held, range(layout.frontend_lanes, layout.lanes)):
            for number in range(lane * layout.slots, (lane + 1) * layout.slots):
                first = layout.slot(number)
                control = load_acquire(words, first + SlotWords.CONTROL)
                done = load_acquire(words, first + SlotWords.DONE)
                if state_of(control, done) is State.PUBLISHED:
                    return True
        return False

    def lane_is_held(self, lane: int) -> bool:
        """Return whether the lane has another owner; always True in a local twin."""
        return self._fd < 0 or self._lanes.has_another_owner(lane)

    def detach(self) -> None:
        """Unmap it and drop its locks. Views that others still hold keep the mapping alive."""
        with suppress(BufferError):
            self.words.release()
            self.memory.release()
            self._mapping.close()
        if self._fd >= 0:
            # A forked child, or a mapping that stays alive, may have it too, and with it the locks.
            shm_objects.unlock_all(self._fd)
            self.disown()

    def disown(self) -> None:
        """Give up the parent's locks, in a forked child.

        They are shared with it until then, and would outlive it; to drop them, as `detach` does,
        would drop them for it too.
        """
        self._lanes.release()
        os.close(self._fd)
        if self._life >= 0:
            os.close(self._life)
        self._fd = self._life = -1

    def lost_names(self) -> list[str]:
        """Return its own and its doorbells' paths that are gone or replaced. Maker only."""
        return shm_objects.lost_paths(self._made, shm_objects.identities(self._made))

    def unlink(self) -> None:
        """Remove its name and those of its doorbells."""
        shm_objects.unlink_segment(self.name)

    def _fill(self, models: tuple[ModelSpec, ...]) -> None:
        self.models = models
        layout, words = self.layout, self.words
        self.model_table.publish(models)
        segment_header.store_sizes(words, layout)
        words[HeaderWords.IDENTITY] = secrets.randbits(64)
        words[HeaderWords.RING_COLLECTOR] = 1
        store_release(words, HeaderWords.MAGIC, MAGIC_VALUE)


def _semaphore_suffixes(layout: Layout) -> list[str]:
    return [".c", *(f".w{worker}" for worker in range(layout.workers))]


def _lane_bell(name: str, lane: int) -> str:
    return f"{shm_objects.DIRECTORY}{name}.l{lane}"


def _life_pipe(name: str) -> str:
    return f"{shm_objects.DIRECTORY}{name}.life"


def _pipes(name: str, layout: Layout) -> list[str]:
    return [_life_pipe(name), *(_lane_bell(name, lane) for lane in range(layout.lanes))]


def _paths(name: str, layout: Layout) -> list[str]:
    base = name.removeprefix("/")
    semaphores = [f"sem.{base}{suffix}" for suffix in _semaphore_suffixes(layout)]
    files = [f"{shm_objects.DIRECTORY}/{each}" for each in (base, *semaphores)]
    return [*files, *_pipes(name, layout)]


def _not_made(size: int, error: OSError | posix_ipc.Error) -> str:
    reason, number = error, None
    if isinstance(error, OSError):
        reason, number = error.strerror, error.errno
    if number in _OF_OPEN_FILES:
        return f"cannot make shared memory: {reason}; {_OF_OPEN_FILES[number]}"
    if number not in _OF_SIZE:
        return f"cannot make shared memory in /dev/shm: {reason}; {shm_objects.WANTED}"
    free = shm_objects.free_bytes() or 0
    return (
        f"cannot allocate {size >> 20} MiB of shared memory: {reason}; /dev/shm has "
        f"{free >> 20} MiB free. {_OF_SIZE[number]}, or lower [server] max_request_bytes, "
        "lane_bytes, frontends or client_lanes"
    )
