"""Host of a measurement: its hardware and software, and the CPU time of other processes."""

import importlib.metadata
import os
import platform
import re
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from ringbatch.shm.host.platform import is_compiled

BUSY_SHARE: Final = 0.2
"""Share of all CPUs that other processes take, above which they are part of the figures."""
_NAMED_SHARE: Final = 0.02
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_SHOWN: Final = 5


def described() -> dict[str, Any]:
    """Return the machine and the versions that figures depend on."""
    memory = re.search(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    try:
        version = importlib.metadata.version("ringbatch")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    return {
        "cpu": cpu_model(Path("/proc/cpuinfo").read_text()) or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": int(memory[1]) // 1024 if memory else 0,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "ringbatch": version,
        "compiled": is_compiled(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def cpu_model(cpuinfo: str) -> str:
    """Return the processor's name, as /proc/cpuinfo has it; empty if it tells nothing.

    Linux names x86 processors. Of AArch64 it gives the numbers of the maker and of the part, which
    lscpu knows the names of.
    """
    if named := re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE):
        return named[1]
    numbers = (
        re.search(rf"^CPU {key}\s*:\s*(\S+)$", cpuinfo, re.MULTILINE)
        for key in ("implementer", "part")
    )
    found = [number[1] for number in numbers if number]
    return f"implementer {found[0]}, part {found[1]}" if len(found) == 2 else ""


def others(seconds: float = 1.0) -> tuple[float, list[str]]:
    """Return the load of the host while no measurement runs.

    Returns:
        The share of all CPUs that is taken, and the processes that take most, in words.
    """
    before, busy_before = _processes(), _busy_s()
    began = time.monotonic()
    time.sleep(seconds)
    elapsed_s = time.monotonic() - began
    after, busy_after = _processes(), _busy_s()
    share = (busy_after - busy_before) / elapsed_s / (os.cpu_count() or 1)
    taken = sorted(
        (
            ((cpu_s - before.get(pid, (0.0, ""))[0]) / elapsed_s, name)
            for pid, (cpu_s, name) in after.items()
            if pid in before and pid != os.getpid()
        ),
        reverse=True,
    )
    return share, [
        f"{name} ({cpu:.0%} of a CPU)" for cpu, name in taken[:_SHOWN] if cpu > _NAMED_SHARE
    ]


class CpuTimes(NamedTuple):
    """CPU time since the host's start, in seconds.

    Attributes:
        at_s: when it was looked at, on the monotonic clock.
        processes_s: of all processes; interrupts may be for anybody.
        stolen_s: what the hypervisor gave to others.
        own_s: of the processes that are measured and measure; None if not all are known.
    """

    at_s: float
    processes_s: float
    stolen_s: float
    own_s: float | None


def cpu_times(own: Collection[int] | None) -> CpuTimes:
    """Look at the host's CPU times.

    Args:
        own: ids of the processes whose CPU time, with that of their descendants, is no others';
            None if not all are known.
    """
    user, nice, system, *_, steal = _host_ticks()
    own_s = None if own is None else _with_descendants(own)
    return CpuTimes(time.monotonic(), (user + nice + system) * _TICK_S, steal * _TICK_S, own_s)


def others_share(before: CpuTimes, after: CpuTimes, cpus: int) -> float:
    """Return the share of all CPUs that others took between two looks, stolen time included."""
    taken_s = after.stolen_s - before.stolen_s
    if before.own_s is not None and after.own_s is not None:
        own_s = after.own_s - before.own_s
        taken_s += max(after.processes_s - before.processes_s - own_s, 0.0)
    elapsed_s = after.at_s - before.at_s
    return min(taken_s / elapsed_s / cpus, 1.0) if elapsed_s > 0 else 0.0


def _busy_s() -> float:
    user, nice, system, _idle, _io, irq, soft, steal = _host_ticks()
    return (user + nice + system + irq + soft + steal) * _TICK_S


def _host_ticks() -> list[int]:
    """Return the CPU ticks in user, nice, system, idle, iowait, irq, softirq and steal."""
    return [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]


def _with_descendants(roots: Collection[int]) -> float:
    """Return CPU seconds of processes and all below them, with those that have ended."""
    found = {pid: fields for pid, _, fields in _stats()}
    children: dict[int, list[int]] = {}
    for pid, fields in found.items():
        children.setdefault(fields[1], []).append(pid)
    counted: set[int] = set()
    left = [pid for pid in roots if pid in found]
    while left:
        pid = left.pop()
        if pid not in counted:
            counted.add(pid)
            left += children.get(pid, ())
    return sum(sum(found[pid][11:15]) for pid in counted) * _TICK_S


def _processes() -> dict[int, tuple[float, str]]:
    """Return CPU seconds and name of each process."""
    return {pid: (sum(fields[11:13]) * _TICK_S, name) for pid, name, fields in _stats()}


def _stats() -> Iterator[tuple[int, str, list[int]]]:
    """Yield each process: its id, its name, and the fields of /proc/PID/stat behind the name.

    The first field, its state, becomes 0.
    """
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path("/proc", entry, "stat").read_text(errors="replace")
            except OSError:
                continue
            name, _, rest = text.partition(" (")[2].rpartition(") ")
            yield int(entry), name, [0, *map(int, rest.split()[1:])]
