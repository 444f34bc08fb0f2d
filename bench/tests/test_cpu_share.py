"""Tests of CPU quotas: the values written to cgroups to give a process a share of a core."""

import os
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
from host.cpu_share import NoControlGroups, as_equals, cpu_shares, limits, mounted


def test_the_hierarchy_of_cpu_time_is_found() -> None:
    mounts = (
        "proc /proc proc rw,relatime 0 0\n"
        "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n"
        "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n"
    )
    assert mounted(mounts) == Path("/sys/fs/cgroup/cpu,cpuacct")


@pytest.mark.parametrize(("controllers", "found"), [("cpu memory", True), ("memory", False)])
def test_one_hierarchy_counts_only_with_the_controller(
    tmp_path: Path, controllers: str, found: bool
) -> None:
    (tmp_path / "cgroup.subtree_control").write_text(f"{controllers}\n")
    mounts = f"cgroup2 {tmp_path} cgroup2 rw,nosuid 0 0\n"
    if found:
        assert mounted(mounts) == tmp_path
    else:
        with pytest.raises(NoControlGroups, match="no control groups"):
            mounted(mounts)


def test_a_share_is_a_quota_of_the_period() -> None:
    assert limits(0.2, unified=True) == {"cpu.max": "20000 100000"}
    assert limits(1.5, unified=False) == {
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "150000",
    }
    assert limits(0.05, unified=True, period_us=20_000) == {"cpu.max": "1000 20000"}


def test_processes_are_put_into_a_group_of_their_own(tmp_path: Path) -> None:
    """A group goes when the context ends; here its files, which the kernel removes, go by hand."""
    with ExitStack() as stack:
        hold = stack.enter_context(cpu_shares(tmp_path))
        hold([4711, 4712], 0.5)
        group = tmp_path / f"ringbatch-bench-{os.getpid()}-4711"
        assert (group / "cpu.cfs_quota_us").read_text() == "50000"
        assert (group / "cgroup.procs").read_text().split() == ["4711", "4712"]
        for file in group.iterdir():
            file.unlink()
    assert not group.exists()


def test_this_process_and_those_it_starts_are_in_one_group_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A group goes with its files, which here are no kernel's.
    monkeypatch.setattr(Path, "rmdir", shutil.rmtree)
    group, members = tmp_path / f"ringbatch-bench-{os.getpid()}", "cgroup.procs"
    with as_equals(tmp_path):
        assert (group / members).read_text() == f"{os.getpid()}\n"
        assert not (tmp_path / members).exists()
        with (group / members).open("a") as started:
            started.write("4711\n")
    assert (tmp_path / members).read_text() == f"{os.getpid()}\n4711\n"
    assert not group.exists()


def test_an_unprivileged_user_gets_the_reason(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(NoControlGroups, match="No such file"), cpu_shares(missing) as hold:
        hold([4711], 0.5)
    with pytest.raises(NoControlGroups, match="No such file"), as_equals(missing):
        pass
