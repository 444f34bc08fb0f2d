"""Placement of processes on CPUs, and number of threads of each worker."""

import ctypes
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from typing import Final

from ringbatch.engine.process.cpu_plan import Host, listed, parsed
from ringbatch.shm.cpus import text_of, usable_cpus

logger = logging.getLogger("ringbatch.supervisor")

THREAD_VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Variables that the math libraries read once, when they load. All fall back to the first."""

_PR_SET_TIMERSLACK: Final = 29
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}
"""Number of the system call by machine: the C library has no function for it before glibc 2.41."""
_ATTRIBUTES: Final = Struct("=IIQiIQQQ")
"""The kernel's `sched_attr`: size, policy, flags, nice, priority, slice in nanoseconds, and what
only deadlines need."""
SHORT_SLICE_NS: Final = 100_000
"""The shortest slice that the kernel gives."""
_NODES: Final = Path("/sys/devices/system/node")


def host(nodes: Path = _NODES) -> Host:
    """Return the CPUs that this process may use, and the NUMA nodes they belong to.

    Args:
        nodes: the folder in which the kernel has a folder for each node.
    """
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    by_node = {}
    for folder in sorted(nodes.glob("node[0-9]*"), key=lambda path: int(path.name[4:])):
        own = parsed(text_of(folder / "cpulist"))
        by_node[int(folder.name[4:])] = tuple(cpu for cpu in cpus if cpu in own)
    return Host(cpus, by_node, usable_cpus())


@contextmanager
def on_cpus(cpus: Collection[int] | None) -> Iterator[None]:
    """Start processes inside the context on these CPUs alone; None changes nothing.

    If the CPUs are gone since they were planned, or a sandbox forbids the choice of CPUs, those
    processes run on any CPU.
    """
    before = os.sched_getaffinity(0)
    moved = cpus is not None and set(cpus) != before and _moved_to(cpus)
    try:
        yield
    finally:
        if moved:
            os.sched_setaffinity(0, before)


def _moved_to(cpus: Collection[int]) -> bool:
    """Run on these CPUs alone, and return whether that is possible."""
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        logger.warning("processes cannot be kept on CPUs %s: %s", listed(cpus), error)
        return False
    return True


def wake_without_preempting() -> None:
    """Schedule this process, and the processes it starts from now on, as SCHED_BATCH.

    A process that wakes up then does not preempt the one that runs. A frontend that has just rung
    for the collector goes on with the requests it has at hand, and the batch grows. With CPUs to
    spare nothing changes. If a sandbox forbids it, the scheduling stays as it is.
    """
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def wake_preempting() -> None:
    """Schedule this thread as others, so that it may preempt another process when it wakes up.

    The worker of a model that answers in parts does so. On busy CPUs it would otherwise wait for
    the end of the others' time slices before every part. If a sandbox forbids it, the scheduling
    stays as it is.
    """
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def shorten_slices() -> None:
    """Have this thread run in short slices, so that it preempts others as it wakes up.

    Linux gives a thread that wakes up the CPU of one with longer slices, since version 6.12. Others
    may keep theirs until the kernel's next tick, of 4 ms mostly. Older kernels, and sandboxes that
    forbid it, leave the slices as they are.
    """
    number = _SCHED_SETATTR.get(os.uname().machine)
    if number is not None:
        policy, nice = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
        wanted = (_ATTRIBUTES.size, policy, 0, nice, 0, SHORT_SLICE_NS, 0, 0)
        ctypes.CDLL(None).syscall(number, 0, _ATTRIBUTES.pack(*wanted), 0)


def wake_on_time() -> None:
    """Have the kernel end this thread's short sleeps on time.

    By default it may add 50 µs to each, to wake several sleepers at once.
    """
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def thread_environment(
    threads: int | None, share: int, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables to add to a worker's environment before a math library loads.

    Args:
        threads: the configured number of threads; it overrides the environment.
        share: the worker's share of the CPUs.
        environment: the supervisor's. A variable set there is left alone. With ``OMP_NUM_THREADS``
            set the others stay unset, because they follow it by themselves.
    """
    if threads is not None:
        return dict.fromkeys(THREAD_VARIABLES, str(threads))
    if environment.get(THREAD_VARIABLES[0]):
        return {}
    return {name: str(share) for name in THREAD_VARIABLES if not environment.get(name)}


def threads(environment: Mapping[str, str]) -> int:
    """Return the threads of one worker, as `thread_environment` or the operator has set them.

    Args:
        environment: the worker's. OpenMP allows a list there, with a number for each level of
            nesting; the first one counts.
    """
    first = environment.get(THREAD_VARIABLES[0], "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) else usable_cpus()
