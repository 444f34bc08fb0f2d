"""Gauge of the host: room for further workers, estimated from the use by those that run."""

from pathlib import Path

from ringbatch.engine.process.usage import ProcessUsage, free_bytes, usage
from ringbatch.engine.supervisor.host_gauge import LOOK_NS, HostGauge
from ringbatch.engine.supervisor.scaling import Headroom
from ringbatch.shm.scalings import Cause

MIB = 1 << 20
STAT = "7 (a ) b) S 1 7 7 0 -1 0 0 0 0 0 {user} {system} 0 0 20 0 1 0 0 0 0\n"
STATUS = (
    "Name:\tx\nVmHWM:\t  5000 kB\nRssAnon:\t  3000 kB\nRssFile:\t  1000 kB\nRssShmem:\t  500 kB\n"
)


def process(proc: Path, pid: int, user: int = 150, system: int = 50) -> None:
    (proc / str(pid)).mkdir(parents=True, exist_ok=True)
    (proc / str(pid) / "stat").write_text(STAT.format(user=user, system=system))
    (proc / str(pid) / "status").write_text(STATUS)


def test_shared_memory_of_a_process_is_not_its_own(tmp_path: Path) -> None:
    process(tmp_path, 7)
    assert usage(7, tmp_path) == ProcessUsage(3500 << 10, 2.0)


def test_a_process_that_has_ended_used_nothing(tmp_path: Path) -> None:
    assert usage(8, tmp_path) is None


def test_the_tightest_limit_counts_and_cached_files_are_free(tmp_path: Path) -> None:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroups"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    assert free_bytes(proc, cgroups) == 8000 << 10
    (proc / "self/cgroup").write_text("0::/a/b\n")
    (cgroups / "a/b").mkdir(parents=True)
    (cgroups / "a/memory.max").write_text("1000000\n")
    (cgroups / "a/memory.current").write_text("900000\n")
    (cgroups / "a/b/memory.max").write_text("max\n")
    (cgroups / "a/b/memory.current").write_text("5\n")
    assert free_bytes(proc, cgroups) == 100000
    (cgroups / "a/memory.stat").write_text("anon 5\ninactive_file 200000\n")
    assert free_bytes(proc, cgroups) == 300000


def test_a_host_that_says_nothing_sets_no_limit(tmp_path: Path) -> None:
    assert free_bytes(tmp_path, tmp_path) is None


def test_cpu_time_counts_from_look_to_look() -> None:
    used = {
        1: ProcessUsage(100 * MIB, 5.0),
        2: ProcessUsage(200 * MIB, 5.0),
        3: ProcessUsage(50 * MIB, 1.0),
    }
    gauge = HostGauge(used.get, lambda: 2000 * MIB, lambda: 4.0)
    gauge.look(0, [1, 2, 3])
    # Nothing is known of CPU time yet.
    assert gauge.room([1, 2]) == Headroom(9, Cause.MEMORY)
    used[1], used[2] = ProcessUsage(100 * MIB, 6.0), ProcessUsage(200 * MIB, 6.0)
    gauge.look(LOOK_NS // 2, [1, 2, 3])
    assert gauge.room([1, 2]) == Headroom(9, Cause.MEMORY)
    gauge.look(LOOK_NS, [1, 2, 3])
    assert gauge.room([1, 2]) == Headroom(2, Cause.CPUS)
    del used[1]
    gauge.look(2 * LOOK_NS, [1, 2, 3])
    assert gauge.room([1, 2]) == Headroom(9, Cause.MEMORY)


def test_memory_that_starting_workers_of_others_will_take_is_taken() -> None:
    used = {1: ProcessUsage(100 * MIB, 0.0), 2: ProcessUsage(300 * MIB, 0.0)}
    gauge = HostGauge(used.get, lambda: 1000 * MIB, lambda: 4.0)
    gauge.look(0, [1, 2])
    assert gauge.room([1]) == Headroom(9, Cause.MEMORY)
    assert gauge.room([1], [([2], 2)]) == Headroom(3, Cause.MEMORY)
    assert gauge.room([1], [([2], 4)]) == Headroom(0, Cause.MEMORY)
    used |= {1: ProcessUsage(100 * MIB, 1.0), 2: ProcessUsage(300 * MIB, 0.5)}
    gauge.look(LOOK_NS, [1, 2])
    assert gauge.room([1], [([2], 0)]) == Headroom(3, Cause.CPUS)
    assert gauge.room([1], [([2], 3)]) == Headroom(0, Cause.MEMORY)
    assert gauge.room([1], [([2], 2)]) == Headroom(2, Cause.CPUS)
