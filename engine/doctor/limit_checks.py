"""Checks of limits on descriptors, processes and core dumps. Pure."""

from collections.abc import Iterator
from typing import Final

from ringbatch.engine.doctor.case import Case, Topic
from ringbatch.engine.doctor.findings import Finding, sized

_FILES: Final = Topic(
    "open-files", "every connection takes a descriptor; each process raises its limit by itself"
)
_PROCESSES: Final = Topic("processes", "a process or thread beyond the limit cannot be started")
_CORE: Final = Topic(
    "core-dumps", "a worker that hangs or crashes writes its memory, models and inputs, to the disk"
)
_BACKLOG: Final = Topic(
    "backlog", "connections that come in a burst wait there; what does not fit is tried again late"
)


def open_files(case: Case) -> Iterator[Finding]:
    """Check that descriptors suffice for the connections."""
    if case.facts.limits is None:
        yield _FILES.unknown("the limit of open files")
        return
    hard, needs = case.facts.limits.open_files, case.needs
    wanted = case.config.server.max_connections
    if hard is None or hard >= needs.open_files:
        allowed = "any number of" if hard is None else hard
        yield _FILES.ok(f"a process may have {allowed} open files, for {wanted} connections each")
        return
    found = f"a process may have at most {hard} open files (ulimit -Hn)"
    do = (
        f"allow {needs.open_files}: LimitNOFILE= in the unit, docker run --ulimit nofile=, or "
        "/etc/security/limits.conf"
    )
    if hard <= needs.other_files:
        yield _FILES.error(
            found, do, f"{needs.other_files} are for what is no connection, so none is left"
        )
    else:
        left = hard - needs.other_files
        yield _FILES.warning(
            f"{found}, so a frontend serves {left} connections and not {wanted}",
            f"{do}; or set max_connections = {left}",
        )


def processes(case: Case) -> Iterator[Finding]:
    """Check that all processes and threads can be started."""
    needs, group, limits = case.needs, case.facts.group, case.facts.limits
    wants = f"an engine starts about {needs.tasks} processes and threads"
    fine = True
    if group and group.tasks and group.tasks.left < needs.tasks:
        fine = False
        yield _PROCESSES.error(
            f"{group.tasks.left} more fit into control group {group.tasks.group} "
            f"(pids.max {group.tasks.limit}); {wants}",
            "raise TasksMax= of the unit, or the container's --pids-limit; or set threads lower",
        )
    if limits and limits.processes is not None and limits.processes < needs.tasks:
        fine = False
        yield _PROCESSES.error(
            f"this user may have {limits.processes} processes and threads (ulimit -Hu); {wants}",
            "raise LimitNPROC= of the unit, or nproc in /etc/security/limits.conf",
        )
    if fine:
        yield _PROCESSES.ok(f"{wants}, and may")


def core_dumps(case: Case) -> Iterator[Finding]:
    """Check the size and the place of core dumps."""
    limits, kernel = case.facts.limits, case.facts.kernel
    if limits is None or kernel is None:
        yield _CORE.unknown("the limit of core dumps")
        return
    piped = kernel.core_pattern.startswith("|")
    if limits.core_bytes == 0 and not piped:
        yield _CORE.ok("core dumps are off")
        return
    size = "of any size" if limits.core_bytes is None or piped else f"of {sized(limits.core_bytes)}"
    found = f"core dumps {size} go to {kernel.core_pattern or 'an unknown place'}"
    do = "set LimitCORE=0 in the unit, unless they are wanted"
    if kernel.dumps_shared:
        yield _CORE.warning(
            f"{found}, shared memory with them",
            "echo 0x33 > /proc/self/coredump_filter before the start, or LimitCORE=0",
            "each would hold the whole segment, with the requests of all clients",
        )
    else:
        yield _CORE.note(found, do)


def backlog(case: Case) -> Iterator[Finding]:
    """Check how many connections may wait to be accepted."""
    kernel, wanted = case.facts.kernel, case.needs.backlog
    if kernel is None or kernel.backlog is None:
        yield _BACKLOG.unknown("net.core.somaxconn")
    elif kernel.backlog < wanted:
        yield _BACKLOG.note(
            f"net.core.somaxconn is {kernel.backlog}, ringbatch asks for {wanted}",
            f"sysctl net.core.somaxconn={wanted}",
        )
    else:
        yield _BACKLOG.ok(f"net.core.somaxconn is {kernel.backlog}")


CHECKS: Final = (open_files, processes, core_dumps, backlog)
