"""CPUs that may be used, and the threads that go with them."""

import os
from pathlib import Path

import pytest

from ringbatch.engine.placement import (
    THREAD_VARIABLES,
    cfs_quota,
    cpu_max,
    host,
    least_cpus,
    legacy_groups,
    on_cpus,
    thread_environment,
    threads,
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


def test_each_worker_gets_its_share_of_the_cpus() -> None:
    assert thread_environment(None, 4, {}) == dict.fromkeys(THREAD_VARIABLES, "4")


def test_a_variable_of_the_user_is_left_alone() -> None:
    added = thread_environment(None, 4, {"MKL_NUM_THREADS": "1", "HOME": "/"})
    assert added == {name: "4" for name in THREAD_VARIABLES if name != "MKL_NUM_THREADS"}


def test_with_omp_num_threads_set_the_libraries_follow_it() -> None:
    assert thread_environment(None, 4, {"OMP_NUM_THREADS": "3"}) == {}


def test_an_empty_variable_counts_as_unset() -> None:
    empty = dict.fromkeys(THREAD_VARIABLES, "")
    assert thread_environment(None, 4, empty) == dict.fromkeys(THREAD_VARIABLES, "4")


def test_configured_threads_win_over_the_environment() -> None:
    environment = {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "5"}
    assert thread_environment(6, 4, environment) == dict.fromkeys(THREAD_VARIABLES, "6")


@pytest.mark.parametrize(("text", "number"), [("3", 3), ("4,2", 4), (" 5 ", 5)])
def test_a_worker_has_the_threads_of_its_environment(text: str, number: int) -> None:
    assert threads({"OMP_NUM_THREADS": text}) == number


@pytest.mark.parametrize("environment", [{}, {"OMP_NUM_THREADS": "0"}, {"OMP_NUM_THREADS": "all"}])
def test_without_a_number_a_worker_has_a_thread_for_each_cpu(environment: dict[str, str]) -> None:
    assert threads(environment) == usable_cpus()


def test_a_host_has_the_cpus_of_its_nodes_that_may_be_used(tmp_path: Path) -> None:
    usable = sorted(os.sched_getaffinity(0))
    _write(tmp_path / "node0/cpulist", "0-4095\n")
    _write(tmp_path / "node10/cpulist", "9000-9001\n")
    _write(tmp_path / "node2/cpulist", "\n")
    found = host(tmp_path)
    assert found.cpus == tuple(usable)
    assert list(found.nodes.items()) == [(0, tuple(usable)), (2, ()), (10, ())]
    assert 1 <= found.quota <= len(usable)


def test_whoever_is_started_meanwhile_runs_on_these_cpus_alone() -> None:
    before = os.sched_getaffinity(0)
    with on_cpus([min(before)]):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before
    with on_cpus(None):
        assert os.sched_getaffinity(0) == before


def test_cpus_that_are_gone_are_mentioned_and_not_missed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = os.sched_getaffinity(0)
    with on_cpus([1000]):
        assert os.sched_getaffinity(0) == before
    assert "CPUs 1000 cannot be used any more" in caplog.text
