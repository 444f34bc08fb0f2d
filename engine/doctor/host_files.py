"""Reading the host: /proc, /sys, limits, file systems. Nothing is changed.

Unreadable facts are None.
"""

import os
import platform
import re
import resource
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from ringbatch.engine.doctor.facts import (
    CgroupLimit,
    ClockSource,
    ControlGroup,
    HardLimits,
    HugePages,
    Kernel,
    Memory,
    Processors,
    SharedMemory,
)
from ringbatch.engine.process import placement
from ringbatch.shm import cpus
from ringbatch.shm.cpus import text_of
from ringbatch.shm.host.platform import SUPPORTED, is_supported

_CLOCK_LOOKS: Final = 200
_CLOCK_ROUNDS: Final = 10
_MAPPED_SHARED: Final = 1 << 3
"""Bit of /proc/PID/coredump_filter for shared file mappings, see core(5)."""
_CHOSEN: Final = re.compile(r"\[([\w+]+)\]")
_VIRTUAL: Final = re.compile(
    r"Alibaba Cloud|Amazon EC2|Google|KVM|Microsoft|OpenStack|Parallels|QEMU|VMware|Xen"
)
"""Makers of virtual machines, as the firmware names them."""


class HostFiles:
    """The host whose root folder that is.

    Args:
        root: where ``proc``, ``sys`` and ``dev`` are.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc = root / "proc"
        self._sys = root / "sys"
        self._cgroups = self._sys / "fs/cgroup"
        self._shm = root / "dev/shm"

    def shared_memory(self) -> SharedMemory | None:
        """Return the facts of /dev/shm; None without one."""
        try:
            room = os.statvfs(self._shm)
        except OSError:
            return None
        limited = bool(room.f_blocks)
        return SharedMemory(
            filesystem=self._mounts().get("/dev/shm", ("", ""))[0],
            size_bytes=room.f_blocks * room.f_frsize if limited else None,
            free_bytes=room.f_bavail * room.f_frsize if limited else None,
            free_files=room.f_favail if room.f_files else None,
            writable=os.access(self._shm, os.W_OK | os.X_OK),
        )

    def control_group(self) -> ControlGroup:
        """Return the tightest limits of the own control groups, of either version."""
        membership = text_of(self._proc / "self/cgroup")
        unified = [self._cgroups / name for name in cpus.unified_groups(membership)]
        quotas = [cpus.cpu_max(text_of(folder / "cpu.max")) for folder in unified]
        legacy = [self._cgroups / name for name in cpus.legacy_groups(membership)]
        quotas += [
            cpus.cfs_quota(
                text_of(folder / "cpu.cfs_quota_us"), text_of(folder / "cpu.cfs_period_us")
            )
            for folder in legacy
        ]
        memory_v1 = self._folders(membership, "memory")
        return ControlGroup(
            memory=_tightest(
                *_limits_of(unified, "memory.max", "memory.current", cached="inactive_file"),
                *_limits_of(
                    memory_v1,
                    "memory.limit_in_bytes",
                    "memory.usage_in_bytes",
                    cached="total_inactive_file",
                ),
            ),
            memory_high=_tightest(
                *_limits_of(unified, "memory.high", "memory.current", cached="inactive_file")
            ),
            tasks=_tightest(
                *_limits_of(unified, "pids.max", "pids.current"),
                *_limits_of(self._folders(membership, "pids"), "pids.max", "pids.current"),
            ),
            cpus=min((quota for quota in quotas if quota is not None), default=None),
            throttled=_throttled([*unified, *legacy]),
        )

    def processors(self) -> Processors:
        """Return the CPUs, and how they are driven."""
        host = placement.host(self._sys / "devices/system/node")
        quota = cpus.usable_cpus(len(host.cpus), self._cgroups, self._proc / "self/cgroup")
        folders = {cpu: self._sys / f"devices/system/cpu/cpu{cpu}" for cpu in host.cpus}
        governors = Counter(
            filter(
                None, (_line(folder / "cpufreq/scaling_governor") for folder in folders.values())
            )
        )
        siblings = {_line(folder / "topology/thread_siblings_list") for folder in folders.values()}
        drivers = {_line(folder / "cpufreq/scaling_driver") for folder in folders.values()}
        return Processors(
            host=replace(host, quota=quota),
            online=os.cpu_count() or len(host.cpus),
            cores=0 if "" in siblings else len(siblings),
            governors=governors,
            driver=", ".join(sorted(drivers - {""})),
            virtual=self._is_virtual(),
        )

    def memory(self) -> Memory | None:
        """Return the host's memory; None if /proc does not tell."""
        found = re.findall(r"^(\w+):\s+(\d+) kB$", text_of(self._proc / "meminfo"), re.MULTILINE)
        kib = {name: int(count) for name, count in found}
        if "MemAvailable" not in kib:
            return None
        return Memory(
            available_bytes=kib["MemAvailable"] << 10,
            swap_used_bytes=(kib.get("SwapTotal", 0) - kib.get("SwapFree", 0)) << 10,
            overcommit=_number(_line(self._proc / "sys/vm/overcommit_memory")) or 0,
        )

    def huge_pages(self) -> HugePages | None:
        """Return the settings of transparent huge pages; None for a kernel without them."""
        folder = self._sys / "kernel/mm/transparent_hugepage"
        enabled, defrag = (_CHOSEN.search(text_of(folder / name)) for name in ("enabled", "defrag"))
        if enabled is None:
            return None
        return HugePages(enabled=enabled[1], defrag=defrag[1] if defrag else "")

    def clock(self) -> ClockSource:
        """Return the clock source, and the time to read it."""
        folder = self._sys / "devices/system/clocksource/clocksource0"
        # A look that is interrupted takes longer, never less.
        read_ns = min(_ns_of_a_look() for _ in range(_CLOCK_ROUNDS))
        return ClockSource(source=_line(folder / "current_clocksource"), read_ns=read_ns)

    def kernel(self) -> Kernel:
        """Return the kernel's settings."""
        known = platform.uname()
        ports = _line(self._proc / "sys/net/ipv4/ip_local_port_range").split()
        options = self._mounts().get("/proc", ("", ""))[1]
        hidden = re.search(r"\bhidepid=(\w+)", options)
        dumped = _line(self._proc / "self/coredump_filter")
        return Kernel(
            system=f"{known.system} {known.release}",
            machine=known.machine,
            needed="" if is_supported(known.machine) else SUPPORTED,
            backlog=_number(_line(self._proc / "sys/net/core/somaxconn")),
            outgoing_ports=(int(ports[0]), int(ports[1])) if len(ports) == 2 else None,
            proc=(self._proc / "self").exists(),
            hidepid="" if hidden is None or hidden[1] in ("0", "off") else hidden[1],
            sees_connections=bool(text_of(self._proc / "net/tcp")),
            core_pattern=_line(self._proc / "sys/kernel/core_pattern"),
            dumps_shared=bool(int(dumped, 16) & _MAPPED_SHARED) if dumped else False,
        )

    def cpu_times(self) -> tuple[int, int, int] | None:
        """Return ticks of all CPUs since the start: all, idle ones, and those of a hypervisor."""
        words = text_of(self._proc / "stat").partition("\n")[0].split()
        if len(words) < 9 or words[0] != "cpu":
            return None
        ticks = [int(word) for word in words[1:9]]
        return sum(ticks), ticks[3] + ticks[4], ticks[7]

    def listeners(self, port: int) -> tuple[tuple[int, str], ...]:
        """Return id and title of the processes on a TCP port, as far as this user may know."""
        inodes = {
            fields[9]
            for table in ("tcp", "tcp6")
            for line in text_of(self._proc / "net" / table).splitlines()[1:]
            if len(fields := line.split()) > 9
            and fields[3] == "0A"
            and int(fields[1].rpartition(":")[2], 16) == port
        }
        links = {f"socket:[{inode}]" for inode in inodes}
        if not links:
            return ()
        return tuple((pid, self.title(pid)) for pid in self._pids() if links & self._open(pid))

    def _pids(self) -> list[int]:
        return sorted(int(entry.name) for entry in self._proc.iterdir() if entry.name.isdecimal())

    def _open(self, pid: int) -> set[str]:
        found = set()
        with suppress(OSError):  # another user's, or it has ended
            for entry in (self._proc / str(pid) / "fd").iterdir():
                with suppress(OSError):  # closed between the list and the look
                    found.add(os.readlink(entry))
        return found

    def title(self, pid: int) -> str:
        return text_of(self._proc / str(pid) / "cmdline").replace("\0", " ").strip()[:80]

    def _is_virtual(self) -> bool:
        """Return whether a hypervisor runs this kernel, as far as it shows."""
        flags = re.search(r"^flags\s*:(.*)$", text_of(self._proc / "cpuinfo"), re.MULTILINE)
        if flags is not None:
            return "hypervisor" in flags[1].split()
        # Only x86 has a flag for it. A device tree may name the hypervisor; the firmware's tables
        # name the maker, and Amazon's own hosts end in .metal.
        if (self._proc / "device-tree/hypervisor").exists():
            return True
        firmware = self._sys / "class/dmi/id"
        product = _line(firmware / "product_name")
        made = f"{_line(firmware / 'sys_vendor')} {product}"
        return bool(_VIRTUAL.search(made)) and not product.endswith(".metal")

    def _mounts(self) -> dict[str, tuple[str, str]]:
        """Return type and options of the latest mount at each mount point."""
        lines = (line.split() for line in text_of(self._proc / "self/mounts").splitlines())
        return {fields[1]: (fields[2], fields[3]) for fields in lines if len(fields) > 3}

    def _folders(self, membership: str, controller: str) -> list[Path]:
        """Return the folders of control groups of the first version."""
        names = cpus.groups(membership, controller, (controller,))
        return [self._cgroups / name for name in names]


def _ns_of_a_look() -> float:
    began_ns = time.perf_counter_ns()
    for _ in range(_CLOCK_LOOKS):
        time.monotonic_ns()
    return (time.perf_counter_ns() - began_ns) / _CLOCK_LOOKS


def limits() -> HardLimits:
    """Return the resource limits of this process.

    The limit of a user's processes is left out for root, whom it does not bind.
    """
    processes = _finite(resource.getrlimit(resource.RLIMIT_NPROC)[1])
    return HardLimits(
        open_files=_finite(resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
        processes=processes if os.getuid() else None,
        core_bytes=_finite(resource.getrlimit(resource.RLIMIT_CORE)[0]),
    )


def _finite(limit: int) -> int | None:
    return None if limit == resource.RLIM_INFINITY else limit


def _limits_of(
    folders: list[Path], limit: str, used: str, cached: str = ""
) -> Iterator[CgroupLimit]:
    """Yield the rest of each folder's limit; `cached` names memory that is freed on demand."""
    for folder in folders:
        most, now = _number(_line(folder / limit)), _number(_line(folder / used))
        if most is None or most >= 1 << 60:  # cgroup v1 has a huge number for no limit
            continue
        stat = dict(line.split()[:2] for line in text_of(folder / "memory.stat").splitlines())
        freed = int(stat.get(cached, 0))
        left = max(most - max((now or 0) - freed, 0), 0)
        yield CgroupLimit(limit=most, left=left, group=str(folder))


def _tightest(*limits: CgroupLimit) -> CgroupLimit | None:
    return min(limits, key=lambda limit: limit.left, default=None)


def _throttled(folders: list[Path]) -> float | None:
    shares = []
    for folder in folders:
        stat = dict(line.split()[:2] for line in text_of(folder / "cpu.stat").splitlines())
        if periods := int(stat.get("nr_periods", 0)):
            shares.append(int(stat.get("nr_throttled", 0)) / periods)
    return max(shares, default=None)


def _line(path: Path) -> str:
    return text_of(path).strip()


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
