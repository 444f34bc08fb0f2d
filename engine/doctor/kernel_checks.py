"""Checks of features of the processor, the kernel and the C library. Pure."""

from collections.abc import Iterator
from typing import Final

from ringbatch.engine.doctor.case import Case, Topic
from ringbatch.engine.doctor.findings import Finding, Level

_PLATFORM: Final = Topic(
    "platform", "rings rely on the order in which processors see stores, which differs between them"
)
_PROC: Final = Topic(
    "proc",
    "the supervisor looks there for clients in the midst of connecting, and for children of "
    "processes that have died",
)
_SANDBOX: Final = "allow it in the sandbox: seccomp, AppArmor, SystemCallFilter="

_FEATURES: Final = (
    (
        "semaphores",
        Level.ERROR,
        "POSIX semaphores",
        "collector and workers sleep at them",
        "make /dev/shm writable for this user, with room for files and descriptors",
    ),
    (
        "pipes",
        Level.ERROR,
        "named pipes in /dev/shm",
        "frontends sleep at them",
        "make /dev/shm writable for this user, with room for files",
    ),
    (
        "pidfd",
        Level.ERROR,
        "pidfd_open and pidfd_send_signal",
        "the supervisor learns of deaths by them, and never signals a process by mistake",
        f"Linux 5.3 or later; {_SANDBOX}",
    ),
    (
        "locks",
        Level.ERROR,
        "locks of open files, by /proc/self/fd",
        "they prove who is alive, and the kernel drops them with their holders",
        f"mount /proc; {_SANDBOX}",
    ),
    (
        "memory_files",
        Level.ERROR,
        "memfd_create",
        "workers inherit their model file as a copy in memory",
        _SANDBOX,
    ),
    (
        "parent_death",
        Level.ERROR,
        "PR_SET_PDEATHSIG",
        "the kernel ends workers and frontends when their parent has ended",
        _SANDBOX,
    ),
    (
        "shared_ports",
        Level.ERROR,
        "SO_REUSEPORT",
        "each frontend has its own listening socket on one port",
        _SANDBOX,
    ),
    (
        "refusing_connections",
        Level.WARNING,
        "refusing new connections before a stop",
        "a client that connects in the last moment of a stop may be reset",
        "Linux 5.7 or later, or CAP_NET_ADMIN",
    ),
    (
        "batch_scheduling",
        Level.NOTE,
        "SCHED_BATCH",
        "without it a woken process interrupts the running one: 4 to 10 % fewer requests/s "
        "(docs/design/supervisor-process.md)",
        "allow sched_setscheduler in the sandbox",
    ),
    (
        "monotonic_waits",
        Level.NOTE,
        "waits by the monotonic clock",
        "a step back of the wall clock makes waits as much longer",
        "a C library with sem_clockwait: glibc 2.30 or later",
    ),
)
"""Features to try: the fact, the level if it fails, its title, why it matters, the remedy."""


def platform(case: Case) -> Iterator[Finding]:
    """Check the processor."""
    kernel = case.facts.kernel
    if kernel is None:
        yield _PLATFORM.unknown("the processor")
    elif kernel.needed:
        yield _PLATFORM.error(
            f"{kernel.system} on {kernel.machine or 'an unknown machine'}",
            f"use {kernel.needed}",
        )
    else:
        yield _PLATFORM.ok(f"{kernel.system} on {kernel.machine}")


def proc(case: Case) -> Iterator[Finding]:
    """Check /proc."""
    kernel = case.facts.kernel
    if kernel is None:
        return
    if not kernel.proc:
        yield _PROC.error("/proc is not mounted", "mount /proc", "locks are opened through it")
        return
    if not kernel.sees_connections:
        yield _PROC.warning(
            "/proc/net/tcp cannot be read",
            "mount /proc with net in it",
            "a stop does not wait for clients in the midst of connecting, which are then reset",
        )
    if kernel.hidepid:
        yield _PROC.note(
            f"/proc is mounted with hidepid={kernel.hidepid}",
            "nothing, unless processes of models run as other users",
            "processes of other users cannot be seen, so nobody can say which process has a port",
        )
    elif kernel.sees_connections:
        yield _PROC.ok("/proc shows processes and connections")


def features(case: Case) -> Iterator[Finding]:
    """Check the features that were tried."""
    found = case.facts.features
    for name, level, title, why, do in _FEATURES:
        topic = Topic(name.replace("_", "-"), why)
        if found is None:
            yield topic.unknown(title)
        elif refusal := getattr(found, name):
            yield Finding(topic.check, level, f"{title}: {refusal}", why, do)
        else:
            yield topic.ok(f"{title}: fine")


CHECKS: Final = (platform, proc, features)
