"""Number of usable CPUs."""

from pathlib import Path

import pytest

from ringbatch.shm.cpus import (
    cfs_quota,
    cpu_max,
    least_cpus,
    legacy_groups,
    unified_groups,
    usable_cpus,
)


@pytest.mark.parametrize(
    ("affinity", "quotas", "cpus"),
    [
        pytest.param(8, [], 8, id="no-quota"),
        pytest.param(8, [2.0], 2, id="quota-below-affinity"),
        pytest.param(2, [6.0], 2, id="affinity-below-quota"),
        pytest.param(8, [1.5], 2, id="a-part-of-a-cpu-counts-as-one"),
        pytest.param(8, [0.1], 1, id="never-below-one"),
        pytest.param(8, [4.0, 2.0, 6.0], 2, id="the-least-of-all-groups-above"),
        pytest.param(0, [], 1, id="an-empty-mask-counts-as-one"),
    ],
)
def test_the_least_limit_decides(affinity: int, quotas: list[float], cpus: int) -> None:
    assert least_cpus(affinity, quotas) == cpus


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        ("max 100000\n", None),
        ("150000 100000\n", 1.5),
        ("100000 100000", 1.0),
        ("", None),
        ("100000", None),
        ("x y", None),
        ("5 0", None),
    ],
)
def test_cpu_max_of_cgroup_v2(text: str, quota: float | None) -> None:
    assert cpu_max(text) == quota


@pytest.mark.parametrize(
    ("quota", "period", "cpus"),
    [("-1\n", "100000\n", None), ("250000\n", "100000\n", 2.5), ("", "", None), ("0", "1", None)],
)
def test_quota_of_cgroup_v1(quota: str, period: str, cpus: float | None) -> None:
    assert cfs_quota(quota, period) == cpus


def test_quotas_of_all_groups_above_apply() -> None:
    membership = "0::/system.slice/ringbatch.service\n"
    assert unified_groups(membership) == [
        "system.slice/ringbatch.service",
        "system.slice",
        ".",
        "unified/system.slice/ringbatch.service",
        "unified/system.slice",
        "unified",
    ]
    assert legacy_groups(membership) == []


def test_the_cpu_controller_of_cgroup_v1_is_found_by_name() -> None:
    membership = "9:name=systemd:/x\n4:cpuset:/wrong\n2:cpu,cpuacct:/box\n0::/"
    assert legacy_groups(membership) == ["cpu/box", "cpu", "cpu,cpuacct/box", "cpu,cpuacct"]
    assert unified_groups(membership) == [".", "unified"]


@pytest.mark.parametrize("path", ["/../outside", "relative", "/a/../../b"])
def test_a_group_out_of_sight_counts_as_the_mount_itself(path: str) -> None:
    assert unified_groups(f"0::{path}") == [".", "unified"]


def test_a_path_with_colons_is_one_path() -> None:
    assert unified_groups("0::/a:b")[0] == "a:b"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_quota_of_a_parent_group_is_read(tmp_path: Path) -> None:
    membership = tmp_path / "membership"
    membership.write_text("0::/slice/service\n")
    _write(tmp_path / "cgroup/slice/service/cpu.max", "max 100000\n")
    _write(tmp_path / "cgroup/slice/cpu.max", "250000 100000\n")
    assert usable_cpus(16, tmp_path / "cgroup", membership) == 3


def test_quota_of_cgroup_v1_is_read_at_the_mount_of_a_container(tmp_path: Path) -> None:
    """Without a cgroup namespace the path is the host's, and only the mount itself is there."""
    membership = tmp_path / "membership"
    membership.write_text("3:cpu,cpuacct:/docker/4711\n")
    _write(tmp_path / "cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n")
    _write(tmp_path / "cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    assert usable_cpus(16, tmp_path / "cgroup", membership) == 4


def test_without_cgroups_the_affinity_decides(tmp_path: Path) -> None:
    assert usable_cpus(16, tmp_path, tmp_path / "none") == 16


def test_on_this_machine_there_is_at_least_one_cpu() -> None:
    assert usable_cpus() >= 1
