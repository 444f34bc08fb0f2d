"""Process statistics from /proc: CPU time, memory, and how often threads went to sleep."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ProcessStat:
    """The fields of /proc/PID/stat that tell a process's place, age and finished children."""

    pid: int
    state: str
    parent: int
    start_ticks: int
    children_cpu_ns: int


@dataclass(frozen=True)
class ProcessSample:
    """Sample of one process at one instant.

    Attributes:
        cpu_ns: CPU time of all its threads, and of the children it has waited for.
        voluntary_switches: how often its threads gave up the CPU of their own accord, which is
            once for each wake-up.
        rss_bytes: resident memory, shared pages in full.
        pss_bytes: resident memory with each shared page divided by its users.
        shmem_bytes: the part of `rss_bytes` that is shared memory, /dev/shm included.
    """

    pid: int
    title: str
    start_ticks: int
    cpu_ns: int
    voluntary_switches: int
    rss_bytes: int
    pss_bytes: int
    shmem_bytes: int


@dataclass(frozen=True)
class ProcessUsage:
    """CPU time and switches of one process between two samples; memory as of the second."""

    pid: int
    title: str
    cpu_fraction: float
    voluntary_switches_per_s: float
    rss_bytes: int
    pss_bytes: int
    shmem_bytes: int


def parse_stat(text: str) -> ProcessStat:
    """Read the text of /proc/PID/stat, whose second field may itself hold spaces and brackets."""
    pid, rest = text.split(" (", 1)
    fields = rest.rsplit(")", 1)[1].split()
    return ProcessStat(
        pid=int(pid),
        state=fields[0],
        parent=int(fields[1]),
        start_ticks=int(fields[19]),
        children_cpu_ns=(int(fields[13]) + int(fields[14])) * _TICK_NS,
    )


def descendants(stats: list[ProcessStat], root: int) -> list[int]:
    """Return `root` and every process below it, parents before children."""
    children: dict[int, list[int]] = {}
    for stat in stats:
        children.setdefault(stat.parent, []).append(stat.pid)
    found = [root] if any(stat.pid == root for stat in stats) else []
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def all_stats() -> list[ProcessStat]:
    """Return the stat of every process that can be read now."""
    return [stat for pid in _all_pids() if (stat := stat_of(pid)) is not None]


def stat_of(pid: int) -> ProcessStat | None:
    """Return the stat of one process, None when it is gone."""
    text = _read(Path(f"/proc/{pid}/stat"))
    return parse_stat(text) if text else None


def tree(root: int) -> list[int]:
    """Return `root` and every process below it that is alive now."""
    return descendants(all_stats(), root)


def sample(pid: int) -> ProcessSample | None:
    """Measure one process, None when it is gone."""
    stat = stat_of(pid)
    if stat is None or stat.state == "Z":
        return None
    base = Path(f"/proc/{pid}")
    status = _fields(_read(base / "status"))
    rollup = _fields(_read(base / "smaps_rollup"))
    cpu_ns = stat.children_cpu_ns
    switches = 0
    for task in _tasks(base):
        cpu_ns += int((_read(task / "schedstat").split() or ["0"])[0])
        switches += _number(_fields(_read(task / "status")), "voluntary_ctxt_switches")
    return ProcessSample(
        pid=pid,
        title=_title(base),
        start_ticks=stat.start_ticks,
        cpu_ns=cpu_ns,
        voluntary_switches=switches,
        rss_bytes=_number(status, "VmRSS") * 1024,
        pss_bytes=_number(rollup, "Pss") * 1024,
        shmem_bytes=_number(status, "RssShmem") * 1024,
    )


def sample_tree(root: int) -> dict[int, ProcessSample]:
    """Measure `root` and every process below it, by pid."""
    return {pid: found for pid in tree(root) if (found := sample(pid)) is not None}


def usage(
    before: dict[int, ProcessSample], after: dict[int, ProcessSample], elapsed_s: float
) -> list[ProcessUsage]:
    """Return what each process of `after` did since `before`; a new one counts from nothing."""
    found = []
    for pid, now in after.items():
        then = before.get(pid)
        if then is not None and then.start_ticks != now.start_ticks:
            then = None
        cpu_ns = now.cpu_ns - (then.cpu_ns if then else 0)
        switches = now.voluntary_switches - (then.voluntary_switches if then else 0)
        found.append(
            ProcessUsage(
                pid=pid,
                title=now.title,
                cpu_fraction=cpu_ns / 1e9 / elapsed_s,
                voluntary_switches_per_s=switches / elapsed_s,
                rss_bytes=now.rss_bytes,
                pss_bytes=now.pss_bytes,
                shmem_bytes=now.shmem_bytes,
            )
        )
    return found


def watch_tree(
    root: int, seconds: float, sleep: Callable[[float], None] = time.sleep
) -> list[ProcessUsage]:
    """Return what the processes at and below `root` do in the next `seconds`."""
    before, start = sample_tree(root), time.monotonic()
    sleep(seconds)
    after, end = sample_tree(root), time.monotonic()
    return usage(before, after, end - start)


def cpu_busy_s(cpu: int) -> float:
    """Return the time that a CPU has spent on anything since the machine started, in seconds."""
    for line in _read(Path("/proc/stat")).splitlines():
        name, *ticks = line.split()
        if name == f"cpu{cpu}":
            user, nice, system, _idle, _io, irq, soft, steal, *_ = map(int, ticks)
            return (user + nice + system + irq + soft + steal) * _TICK_NS / 1e9
    raise ValueError(f"there is no CPU {cpu}")


def _all_pids() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def _tasks(base: Path) -> list[Path]:
    try:
        return list((base / "task").iterdir())
    except OSError:
        return []


def _title(base: Path) -> str:
    return _read(base / "cmdline").replace("\0", " ").strip()


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _fields(text: str) -> dict[str, str]:
    return {
        key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())
    }


def _number(fields: dict[str, str], key: str) -> int:
    return int((fields.get(key) or "0").split()[0])
