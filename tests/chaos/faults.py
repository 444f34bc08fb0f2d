"""Resources that a host denies to running processes for a while.

They are descriptors, memory, shared memory, a disk for logs, and the right time.
"""

import os
import resource
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from open_files import open_files
from serve.server import COMMAND

from ringbatch.shm.shm_objects import DIRECTORY

_DAY_NS: Final = 24 * 60 * 60 * 1_000_000_000
_ROOM_BYTES: Final = 1 << 20
"""Memory that a process still gets once it is denied more."""
_GROUP_ROOM_BYTES: Final = 512 << 20
_GROUPS: Final = Path("/sys/fs/cgroup")
_OFFSET: Final = "clock-offset"


class Impossible(Exception):
    """The host does not let us have that fault; the text says why."""


@dataclass(frozen=True)
class Scenery:
    """Surroundings of a server, and the fault of its host.

    Attributes:
        program: command that runs ringbatch.
        environment: added to this process's.
        afflict: a context in which it does, for those processes.
        tongue_tied: whether a process may end without words of its own, because it lacks what it
            takes to have any.
    """

    program: tuple[str, ...] = COMMAND
    environment: Mapping[str, str] = field(default_factory=dict)
    afflict: Callable[[list[int]], AbstractContextManager[object]] = lambda _pids: ExitStack()
    tongue_tied: bool = False


def scenery(fault: str, folder: Path) -> Scenery:
    """Return the surroundings for a key of `FAULTS`.

    Args:
        folder: for files that it needs.

    Raises:
        Impossible: here there is no such fault.
    """
    return FAULTS[fault](folder)


def _descriptors(_folder: Path) -> Scenery:
    """Deny new descriptors to the processes."""
    return Scenery(
        afflict=lambda pids: _limited(resource.RLIMIT_NOFILE, pids, _next_fd), tongue_tied=True
    )


def _memory(_folder: Path) -> Scenery:
    """Deny nearly all further memory to the processes and to their children."""
    return Scenery(
        afflict=lambda pids: _limited(resource.RLIMIT_AS, pids, _mapped), tongue_tied=True
    )


def _shared_memory(_folder: Path) -> Scenery:
    """Fill /dev/shm, which must be small."""
    room = os.statvfs(DIRECTORY)
    if room.f_blocks * room.f_frsize > _GROUP_ROOM_BYTES:
        raise Impossible(f"{DIRECTORY} is large, and others need it: run it in a mount namespace")
    return Scenery(afflict=_filled)


def _log_disk(_folder: Path) -> Scenery:
    """Fill the disk of the log from the start."""
    program = ("sh", "-c", 'exec "$@" 2>/dev/full', "sh", *COMMAND)
    # Unbuffered, nothing would be left to be written at the end.
    return Scenery(program, {"PYTHONUNBUFFERED": ""})


def _clock(folder: Path) -> Scenery:
    """The wall clock goes a day forward, and back."""
    library, offset = folder / "clock.so", folder / _OFFSET
    source = Path(__file__).with_name("clock.c")
    try:
        subprocess.run(["gcc", "-shared", "-fPIC", "-O", "-o", library, source, "-ldl"], check=True)
    except OSError as error:
        raise Impossible(f"there is no gcc: {error}") from None
    offset.write_bytes(bytes(8))
    environment = {"LD_PRELOAD": str(library), "CHAOS_CLOCK_OFFSET": str(offset)}
    return Scenery(COMMAND, environment, lambda _pids: _shifted(offset))


def _control_group(_folder: Path) -> Scenery:
    """Bound the processes' memory below the model's needs, so that the kernel kills some."""
    return Scenery(afflict=_grouped)


FAULTS: Final[Mapping[str, Callable[[Path], Scenery]]] = {
    "descriptors": _descriptors,
    "memory": _memory,
    "shared-memory": _shared_memory,
    "log-disk": _log_disk,
    "clock": _clock,
    "control-group": _control_group,
}


@contextmanager
def _limited(kind: int, pids: list[int], most: Callable[[int], int]) -> Iterator[None]:
    before = {pid: resource.prlimit(pid, kind) for pid in pids}
    for pid, (_, hard) in before.items():
        resource.prlimit(pid, kind, (most(pid), hard))
    try:
        yield
    finally:
        for pid, limits in before.items():
            with suppress(ProcessLookupError):
                resource.prlimit(pid, kind, limits)


def _next_fd(pid: int) -> int:
    taken = open_files(pid).keys()
    return min(set(range(len(taken) + 1)) - taken)


def _mapped(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    return pages * resource.getpagesize() + _ROOM_BYTES


@contextmanager
def _filled(_pids: list[int]) -> Iterator[None]:
    filler = DIRECTORY / "chaos-filler"
    try:
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(resource.getpagesize()))
        yield
    finally:
        filler.unlink()


@contextmanager
def _shifted(offset: Path) -> Iterator[None]:
    # In place and at once: the file is mapped.
    with offset.open("r+b", buffering=0) as file:
        file.write(struct.pack("q", _DAY_NS))
        yield
        file.seek(0)
        file.write(bytes(8))


@contextmanager
def _grouped(pids: list[int]) -> Iterator[None]:
    parent, limit = (
        (_GROUPS / "memory", "memory.limit_in_bytes")
        if (_GROUPS / "memory").exists()
        else (_GROUPS, "memory.max")
    )
    group = parent / f"chaos-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(_GROUP_ROOM_BYTES))
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        raise Impossible(f"no control group with a limit of memory: {error}") from None
    try:
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for left in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                (parent / "cgroup.procs").write_text(left)
        group.rmdir()
