"""The host that a measurement ran on: what it is, and what else it does."""

import importlib.metadata
import os
import platform
import re
import time
from pathlib import Path
from typing import Any, Final

from ringbatch.shm.host.platform import is_compiled

BUSY_SHARE: Final = 0.2
"""Of all CPUs, taken by others: above it figures are those of the others too."""
_NAMED_SHARE: Final = 0.02
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_SHOWN: Final = 5


def described() -> dict[str, Any]:
    """What figures depend on."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    try:
        version = importlib.metadata.version("ringbatch")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    return {
        "cpu": model[1] if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": int(memory[1]) // 1024 if memory else 0,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "ringbatch": version,
        "compiled": is_compiled(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def others(seconds: float = 1.0) -> tuple[float, list[str]]:
    """What the host does while nothing is measured.

    Returns:
        The share of all CPUs that is taken, and which processes take most, in words.
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


def _busy_s() -> float:
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _io, irq, soft, steal = fields[:8]
    return (user + nice + system + irq + soft + steal) * _TICK_S


def _processes() -> dict[int, tuple[float, str]]:
    """CPU seconds and name of each process."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path("/proc", entry, "stat").read_text(errors="replace")
            except OSError:
                continue
            name, _, rest = text.partition(" (")[2].rpartition(") ")
            fields = rest.split()
            found[int(entry)] = ((int(fields[11]) + int(fields[12])) * _TICK_S, name)
    return found
