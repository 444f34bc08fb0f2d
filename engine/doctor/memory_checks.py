"""Checks of /dev/shm and of memory. Pure."""

from collections.abc import Iterator
from typing import Final

from ringbatch.engine.doctor.case import PROCESS_BYTES, Case, Topic
from ringbatch.engine.doctor.facts import CgroupLimit
from ringbatch.engine.doctor.findings import Finding, sized

_SEGMENT: Final = Topic(
    "dev-shm", "all requests and answers lie there, in one segment of fixed size"
)
_LOGOUT: Final = Topic("logout", "without its names in /dev/shm an engine takes no new clients")
_MEMORY: Final = Topic("memory", "where memory runs out, the kernel ends processes, workers first")
_SWAP: Final = Topic("swap", "what was swapped out is read from the disk, while a request waits")
_HUGE: Final = Topic(
    "huge-pages",
    "a process that touches new memory may have to wait until the kernel has moved pages",
)
_ENLARGE: Final = (
    "make /dev/shm larger (mount -o remount,size=1G /dev/shm; docker run --shm-size; in Kubernetes "
    "an emptyDir of medium Memory), or lower [server] max_request_bytes, lane_bytes, frontends or "
    "client_lanes"
)
_MOUNT: Final = "mount a tmpfs at /dev/shm"
_SMALL_REQUESTS: Final = 1 << 20


def dev_shm(case: Case) -> Iterator[Finding]:
    """Check that the segment fits into /dev/shm."""
    found, needs = case.facts.shared_memory, case.needs
    if found is None:
        yield _SEGMENT.error("there is no /dev/shm", _MOUNT)
        return
    if not found.writable:
        yield _SEGMENT.error(
            "this user cannot make files in /dev/shm", "give it the usual mode: chmod 1777 /dev/shm"
        )
        return
    if found.filesystem not in ("tmpfs", ""):
        yield _SEGMENT.warning(
            f"/dev/shm is a {found.filesystem}, no tmpfs",
            _MOUNT,
            "what is written to the segment may go to a disk",
        )
    if found.free_files is not None and found.free_files < needs.files:
        yield _SEGMENT.error(
            f"/dev/shm takes {found.free_files} more files, an engine makes {needs.files}",
            "raise nr_inodes of its mount",
            "semaphores and pipes that wake processes are files there",
        )
    wants = f"the segment takes {sized(needs.segment_bytes)}"
    if found.free_bytes is None or found.size_bytes is None:
        yield _SEGMENT.ok(f"/dev/shm has no limit of its own; {wants}")
        return
    engines = case.facts.engines
    left = engines.left_bytes if engines else 0
    held = sum(engine.segment_bytes for engine in engines.running) if engines else 0
    room = f"/dev/shm has {sized(found.free_bytes)} free of {sized(found.size_bytes)}; {wants}"
    if needs.segment_bytes > found.free_bytes + left:
        if needs.segment_bytes <= found.free_bytes + left + held:
            yield _SEGMENT.warning(
                f"{room}, and engines that run hold {sized(held)}",
                f"stop the running engine first, or {_ENLARGE}",
                "two engines do not fit side by side",
            )
        else:
            yield _SEGMENT.error(room, _ENLARGE, "the engine cannot start")
    elif needs.lowered:
        report = _SEGMENT.warning if needs.request_bytes < _SMALL_REQUESTS else _SEGMENT.note
        yield report(
            f"{room}, with requests of at most {sized(needs.request_bytes)}",
            f"{_ENLARGE}; or set max_request_bytes to what clients send",
            "where max_request_bytes and lane_bytes are not set, they are made to fit, and larger "
            "requests are refused with 413",
        )
    else:
        yield _SEGMENT.ok(room)


def logout(case: Case) -> Iterator[Finding]:
    """Check that the segment survives a logout of its user."""
    found = case.facts.login
    if found is None:
        return
    if found.system:
        yield _LOGOUT.ok(f"systemd-logind leaves the files of {found.user}, a system user, alone")
    elif not found.removes:
        yield _LOGOUT.ok("systemd-logind leaves the files of users who log out alone")
    elif found.lingers:
        yield _LOGOUT.ok(f"{found.user} lingers, so systemd-logind leaves the files alone")
    else:
        yield _LOGOUT.note(
            f"systemd-logind removes the files of {found.user} in /dev/shm once {found.user} has "
            "logged out, and an engine that runs then ends",
            f"loginctl enable-linger {found.user}, or RemoveIPC=no in /etc/systemd/logind.conf, or "
            "run it as a system user, as the units do",
        )


def memory(case: Case) -> Iterator[Finding]:
    """Check that the processes fit into the host's and the control group's memory."""
    found, group, needs = case.facts.memory, case.facts.group, case.needs
    limit = group.memory if group else None
    wants = (
        f"an engine takes about {sized(needs.memory_bytes)}: the segment, and up to "
        f"{sized(PROCESS_BYTES)} for each of {needs.processes} processes; models come on top"
    )
    if limit is not None:
        yield _within(limit, needs.segment_bytes, needs.memory_bytes, wants)
    if group and group.memory_high and group.memory_high.left < needs.memory_bytes:
        yield _MEMORY.warning(
            f"{sized(group.memory_high.left)} are left below memory.high of "
            f"{group.memory_high.group}; {wants}",
            "raise MemoryHigh=; 90 % of MemoryMax= is usual",
            "beyond it the kernel slows every process of the group down",
        )
    if found is None:
        if limit is None:
            yield _MEMORY.unknown("the host's memory")
        return
    if found.available_bytes < needs.memory_bytes:
        yield _MEMORY.warning(
            f"the host has {sized(found.available_bytes)} available; {wants}",
            "free memory, or configure fewer frontends and workers or a smaller lane_bytes",
        )
    elif limit is None:
        yield _MEMORY.ok(f"the host has {sized(found.available_bytes)} available; {wants}")
    if found.overcommit == 2:
        yield _MEMORY.note(
            "vm.overcommit_memory is 2",
            "leave it, unless models fail with MemoryError or CUDA does not start",
            "address space that is reserved and never used counts, and math libraries and GPU "
            "drivers reserve much",
        )


def _within(limit: CgroupLimit, segment_bytes: int, memory_bytes: int, wants: str) -> Finding:
    found = (
        f"{sized(limit.left)} are left of the {sized(limit.limit)} of control group {limit.group}; "
        f"{wants}"
    )
    do = "raise MemoryMax= of the unit, or the container's memory limit"
    if limit.left < segment_bytes:
        return _MEMORY.error(found, do, "not even the segment fits: the start will be ended")
    if limit.left < memory_bytes:
        return _MEMORY.warning(found, do)
    return _MEMORY.ok(found)


def swap(case: Case) -> Iterator[Finding]:
    """Check whether the host swaps."""
    found = case.facts.memory
    if found is None:
        return
    used = f"{sized(found.swap_used_bytes)} of the host's memory are swapped out"
    if found.swap_used_bytes > found.available_bytes // 10:
        yield _SWAP.note(used, "free memory, or give the engine's unit MemorySwapMax=0")
    else:
        yield _SWAP.ok(used if found.swap_used_bytes else "nothing is swapped out")


def huge_pages(case: Case) -> Iterator[Finding]:
    """Check whether transparent huge pages may stall allocations."""
    found = case.facts.huge_pages
    if found is None:
        yield _HUGE.ok("the kernel has no transparent huge pages")
        return
    chosen = f"transparent huge pages: {found.enabled}, defrag: {found.defrag or 'unknown'}"
    if found.enabled == "always" and found.defrag == "always":
        yield _HUGE.note(chosen, "echo defer+madvise > /sys/kernel/mm/transparent_hugepage/defrag")
    else:
        yield _HUGE.ok(chosen)


CHECKS: Final = (dev_shm, logout, memory, swap, huge_pages)
