"""Doctor's facts about hosts that are made up as folders."""

import os
import platform
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from ringbatch.engine.config.settings import Config, ModelConfig, ServerConfig
from ringbatch.engine.doctor.facts import CgroupLimit, ControlGroup, HugePages, Login, Memory
from ringbatch.engine.doctor.host_files import HostFiles
from ringbatch.engine.doctor.logins import login
from ringbatch.engine.doctor.needs import needs
from ringbatch.engine.doctor.software import packages
from ringbatch.engine.process.cpu_plan import Host
from ringbatch.shm.host.platform import SUPPORTED

HUGE: Final = str((1 << 63) - 4096)
"""Value of cgroup v1 for no limit."""


def host(root: Path, files: Mapping[str, str]) -> HostFiles:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return HostFiles(root)


def test_of_an_empty_host_nothing_is_known(tmp_path: Path) -> None:
    files = HostFiles(tmp_path)
    assert files.shared_memory() is None
    assert files.control_group() == ControlGroup()
    assert files.memory() is None
    assert files.huge_pages() is None
    assert files.cpu_times() is None
    assert files.listeners(80) == ()
    assert files.clock().source == ""
    kernel = files.kernel()
    assert (kernel.proc, kernel.sees_connections, kernel.backlog) == (False, False, None)
    processors = files.processors()
    assert processors.host.cpus == tuple(sorted(os.sched_getaffinity(0)))
    assert (processors.cores, processors.governors, processors.virtual) == (0, {}, False)


def test_the_tightest_of_a_unified_group_and_all_above_it_counts(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/a.slice"
    files = host(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a.slice/b.service\n",
            f"{group}/memory.max": "1000\n",
            f"{group}/memory.current": "900\n",
            f"{group}/memory.stat": "anon 500\ninactive_file 300\n",
            f"{group}/memory.high": "700\n",
            f"{group}/cpu.max": "400000 100000\n",
            f"{group}/pids.max": "50\n",
            f"{group}/pids.current": "20\n",
            f"{group}/b.service/memory.max": "900000\n",
            f"{group}/b.service/memory.current": "900\n",
            f"{group}/b.service/memory.high": "max\n",
            f"{group}/b.service/pids.max": "max\n",
            f"{group}/b.service/cpu.max": "150000 100000\n",
            f"{group}/b.service/cpu.stat": "usage_usec 7\nnr_periods 200\nnr_throttled 50\n",
        },
    )
    where = str(tmp_path / group)
    assert files.control_group() == ControlGroup(
        memory=CgroupLimit(limit=1000, left=400, group=where),
        memory_high=CgroupLimit(limit=700, left=100, group=where),
        tasks=CgroupLimit(limit=50, left=30, group=where),
        cpus=1.5,
        throttled=0.25,
    )


def test_groups_of_the_first_version_are_read_too(tmp_path: Path) -> None:
    own = "sys/fs/cgroup/memory/docker/x"
    files = host(
        tmp_path,
        {
            "proc/self/cgroup": "8:pids:/p\n4:memory:/docker/x\n1:cpu,cpuacct:/c\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": HUGE,
            f"{own}/memory.limit_in_bytes": "2000\n",
            f"{own}/memory.usage_in_bytes": "2500\n",
            f"{own}/memory.stat": "total_inactive_file 600\n",
            "sys/fs/cgroup/pids/p/pids.max": "9\n",
            "sys/fs/cgroup/pids/p/pids.current": "12\n",
            "sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/c/cpu.stat": "nr_periods 0\nnr_throttled 0\n",
        },
    )
    assert files.control_group() == ControlGroup(
        memory=CgroupLimit(limit=2000, left=100, group=str(tmp_path / own)),
        tasks=CgroupLimit(limit=9, left=0, group=str(tmp_path / "sys/fs/cgroup/pids/p")),
        cpus=0.5,
    )


def test_the_first_versions_number_for_no_limit_is_none(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/memory/memory.limit_in_bytes"
    files = host(tmp_path, {"proc/self/cgroup": "4:memory:/\n", group: HUGE})
    assert files.control_group() == ControlGroup()


def test_dev_shm_is_found_with_its_file_system(tmp_path: Path) -> None:
    files = host(
        tmp_path,
        {
            "dev/shm/x": "",
            "proc/self/mounts": "o / ext4 rw\nt /dev/shm ramfs rw\nt /dev/shm tmpfs rw\n",
        },
    )
    found, room = files.shared_memory(), os.statvfs(tmp_path)
    assert found is not None
    assert (found.filesystem, found.writable) == ("tmpfs", True)
    assert found.size_bytes == room.f_blocks * room.f_frsize


def test_processors_are_found_with_nodes_cores_and_governors(tmp_path: Path) -> None:
    usable = sorted(os.sched_getaffinity(0))
    cpus = "sys/devices/system/cpu"
    files = host(
        tmp_path,
        {
            "proc/cpuinfo": "processor : 0\nflags\t\t: fpu hypervisor sse\n",
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpu.max": "100000 100000\n",
            "sys/devices/system/node/node0/cpulist": "0-4095\n",
            **{f"{cpus}/cpu{cpu}/cpufreq/scaling_governor": "schedutil\n" for cpu in usable},
            **{f"{cpus}/cpu{cpu}/cpufreq/scaling_driver": "acpi-cpufreq\n" for cpu in usable},
            **{f"{cpus}/cpu{cpu}/topology/thread_siblings_list": "0-4095\n" for cpu in usable},
        },
    )
    found = files.processors()
    assert found.host == Host(tuple(usable), {0: tuple(usable)}, 1)
    assert found.governors == {"schedutil": len(usable)}
    assert (found.driver, found.cores, found.virtual) == ("acpi-cpufreq", 1, True)


@pytest.mark.parametrize(
    ("files", "virtual"),
    [
        ({}, False),
        ({"proc/cpuinfo": "flags : fpu sse\n", "sys/class/dmi/id/sys_vendor": "QEMU\n"}, False),
        ({"proc/cpuinfo": "flags : fpu hypervisors\n"}, False),
        ({"proc/device-tree/hypervisor/compatible": "xen,xen-4.17\0"}, True),
        ({"sys/class/dmi/id/sys_vendor": "QEMU\n"}, True),
        ({"sys/class/dmi/id/product_name": "KVM Virtual Machine\n"}, True),
        ({"sys/class/dmi/id/sys_vendor": "Ampere(R)\n"}, False),
        (
            {
                "sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
                "sys/class/dmi/id/product_name": "c7g.4xlarge\n",
            },
            True,
        ),
        (
            {
                "sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
                "sys/class/dmi/id/product_name": "c7g.metal\n",
            },
            False,
        ),
    ],
)
def test_a_virtual_machine_is_known_without_flags_of_the_processor(
    tmp_path: Path, files: dict[str, str], virtual: bool
) -> None:
    on_arm = {"proc/cpuinfo": "processor : 0\nFeatures : fp asimd atomics\n"}
    assert host(tmp_path, {**on_arm, **files}).processors().virtual is virtual


@pytest.mark.parametrize(("machine", "needed"), [("aarch64", ""), ("riscv64", SUPPORTED)])
def test_the_needed_machine_in_place_of_another_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, needed: str
) -> None:
    uname = platform.uname()._replace(machine=machine)
    monkeypatch.setattr(platform, "uname", lambda: uname)
    found = HostFiles(tmp_path).kernel()
    assert (found.machine, found.needed) == (machine, needed)


def test_memory_huge_pages_and_times_are_read(tmp_path: Path) -> None:
    pages = "sys/kernel/mm/transparent_hugepage"
    files = host(
        tmp_path,
        {
            "proc/meminfo": "MemAvailable: 50 kB\nSwapTotal: 9 kB\nSwapFree: 2 kB\n",
            "proc/sys/vm/overcommit_memory": "2\n",
            f"{pages}/enabled": "always [madvise] never\n",
            f"{pages}/defrag": "always defer [defer+madvise] madvise never\n",
            "proc/stat": "cpu  1 2 3 10 20 6 7 8 0 0\ncpu0 1\n",
            "sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet\n",
        },
    )
    assert files.memory() == Memory(available_bytes=51200, swap_used_bytes=7168, overcommit=2)
    assert files.huge_pages() == HugePages(enabled="madvise", defrag="defer+madvise")
    assert files.cpu_times() == (57, 30, 8)
    assert files.clock().source == "hpet"
    assert files.clock().read_ns > 0


@pytest.mark.parametrize(
    ("option", "hidepid"),
    [
        ("rw", ""),
        ("rw,hidepid=0", ""),
        ("rw,hidepid=off", ""),
        ("hidepid=2", "2"),
        ("rw,hidepid=ptraceable", "ptraceable"),
    ],
)
def test_settings_of_the_kernel_are_read(tmp_path: Path, option: str, hidepid: str) -> None:
    files = host(
        tmp_path,
        {
            "proc/self/mounts": f"proc /proc proc {option} 0 0\n",
            "proc/self/coredump_filter": "0000003b\n",
            "proc/sys/kernel/core_pattern": "|/usr/lib/x %P\n",
            "proc/sys/net/core/somaxconn": "128\n",
            "proc/sys/net/ipv4/ip_local_port_range": "100\t200\n",
            "proc/net/tcp": "  sl\n",
        },
    )
    found = files.kernel()
    assert (found.proc, found.sees_connections, found.hidepid) == (True, True, hidepid)
    assert (found.backlog, found.outgoing_ports) == (128, (100, 200))
    assert (found.core_pattern, found.dumps_shared) == ("|/usr/lib/x %P", True)


def test_a_listener_is_found_by_its_open_socket(tmp_path: Path) -> None:
    listening = "0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 0 0 4711 1\n"
    connected = "1: 0100007F:1F90 0100007F:0050 01 0:0 0:0 0 0 0 4712 1\n"
    files = host(
        tmp_path,
        {
            "proc/net/tcp": f"  sl local\n{listening}{connected}",
            "proc/12/cmdline": "nginx: master\0-g\0",
            "proc/13/cmdline": "curl\0",
        },
    )
    for pid, inode in (("12", 4711), ("13", 4712)):
        folder = tmp_path / f"proc/{pid}/fd"
        folder.mkdir()
        for number in range(3):
            (folder / str(number)).touch()  # closed between the list and the look
        *_, seen_last = folder.iterdir()
        seen_last.unlink()
        seen_last.symlink_to(f"socket:[{inode}]")
    (tmp_path / "proc/14").mkdir()  # its descriptors are not to be seen
    assert files.listeners(8080) == ((12, "nginx: master -g"),)
    assert files.listeners(80) == ()


def test_requirements_are_read_as_wheels_have_them() -> None:
    found = packages(
        [
            "numpy>=2.0",
            "uvicorn <0.55,>=0.34",
            'no-such-package>=1.67.1; extra == "grpc"',
            'pytest>=8.0; extra == "test"',
            "ruff~=0.17; extra == 'lint'",
        ]
    )
    assert [(p.name, p.bounds, p.extra) for p in found] == [
        ("numpy", ">=2.0", ""),
        ("uvicorn", "<0.55,>=0.34", ""),
        ("no-such-package", ">=1.67.1", "grpc"),
    ]
    assert [p.version is None for p in found] == [False, False, True]


def test_every_process_thread_and_lane_is_counted() -> None:
    server = ServerConfig(frontends=3, grpc_port=0, grpc_frontends=2, control_port=0)
    models = (
        ModelConfig(name="a", path=Path("a.py"), workers=2, spares=1, threads=5),
        ModelConfig(name="b", path="http://127.0.0.1:1", runtime="http", workers=4),
    )
    found = needs(Config(server=server, models=models), Host((0, 1), {}, 2), None, {})
    # Supervisor, arbiter, collector, standby; 3 and 2 frontends; control; 3 and 4 workers.
    assert found.processes == 4 + 3 + 2 + 1 + 3 + 4
    assert [(worker.title, worker.threads) for worker in found.workers] == [("a/0", 5), ("a/1", 5)]
    lanes = 2 * 3 + 2 + server.client_lanes
    assert found.segment_bytes > lanes * (32 << 20)
    assert found.files >= lanes + 2 * 7
    assert not found.lowered


def test_nobody_logs_in_where_logind_is_not(tmp_path: Path) -> None:
    assert login(tmp_path, 1000) is None


@pytest.mark.parametrize(
    ("files", "removes"),
    [
        ({}, True),
        ({"etc/systemd/logind.conf": "[Login]\n#RemoveIPC=no\n"}, True),
        ({"etc/systemd/logind.conf": "[Login]\nRemoveIPC = No\n"}, False),
        ({"usr/lib/systemd/logind.conf": "RemoveIPC=no\n"}, False),
        (
            {
                "usr/lib/systemd/logind.conf": "RemoveIPC=no\n",
                "etc/systemd/logind.conf": "[Login]\n",
            },
            True,
        ),
        (
            {
                "etc/systemd/logind.conf": "RemoveIPC=yes\n",
                "usr/lib/systemd/logind.conf.d/50-a.conf": "RemoveIPC=no\n",
            },
            False,
        ),
        (
            {
                "usr/lib/systemd/logind.conf.d/90-a.conf": "RemoveIPC=no\n",
                "etc/systemd/logind.conf.d/90-a.conf": "RemoveIPC=yes\n",
            },
            True,
        ),
        (
            {
                "run/systemd/logind.conf.d/20-a.conf": "RemoveIPC=yes\n",
                "etc/systemd/logind.conf.d/10-a.conf": "RemoveIPC=no\n",
            },
            True,
        ),
    ],
)
def test_whether_logind_removes_files_is_read_as_it_reads_it(
    tmp_path: Path, files: Mapping[str, str], removes: bool
) -> None:
    host(tmp_path, {"run/systemd/users/.keep": "", **files})
    found = login(tmp_path, 1000)
    assert found is not None
    assert (found.removes, found.system, found.lingers) == (removes, False, False)


def test_system_users_and_lingering_ones_are_distinguished(tmp_path: Path) -> None:
    name = pwd.getpwuid(0).pw_name
    host(tmp_path, {"run/systemd/users/.keep": "", f"var/lib/systemd/linger/{name}": ""})
    assert login(tmp_path, 0) == Login(user=name, system=True, removes=True, lingers=True)
    unknown = login(tmp_path, 4_000_000)
    assert unknown == Login(user="4000000", system=False, removes=True, lingers=False)
