"""CPUs that may be used, and the threads that go with them."""

import ctypes
import errno
import os
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from slices import shortened_ns, slice_ns

from ringbatch.engine.process import placement
from ringbatch.engine.process.placement import (
    THREAD_VARIABLES,
    host,
    on_cpus,
    shorten_slices,
    thread_environment,
    threads,
)
from ringbatch.shm.cpus import usable_cpus


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
    for node, cpus in (("node0", "0-4095\n"), ("node10", "9000-9001\n"), ("node2", "\n")):
        (tmp_path / node).mkdir()
        (tmp_path / node / "cpulist").write_text(cpus)
    found = host(tmp_path)
    assert found.cpus == tuple(usable)
    assert list(found.nodes.items()) == [(0, tuple(usable)), (2, ()), (10, ())]
    assert 1 <= found.quota <= len(usable)


def test_a_process_started_inside_runs_on_these_cpus_alone() -> None:
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
    assert "processes cannot be kept on CPUs 1000" in caplog.text


def test_a_sandbox_that_forbids_the_choice_of_cpus_keeps_no_process_from_starting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A filter of system calls may refuse sched_setaffinity, as systemd's ~@resources does."""

    def refuse(_pid: int, _cpus: Collection[int]) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    ran = []
    for cpus in (None, (0, 1), (1,)):
        with on_cpus(cpus):
            ran.append(cpus)
    assert ran == [None, (0, 1), (1,)]
    assert [record.getMessage() for record in caplog.records] == [
        "processes cannot be kept on CPUs 1: [Errno 1] Operation not permitted"
    ]


def test_slices_of_one_thread_are_shortened_where_the_kernel_can() -> None:
    found: list[int] = []

    def shorten() -> None:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        nice = os.getpriority(os.PRIO_PROCESS, 0) + 1
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        shorten_slices()
        found.append(slice_ns())
        assert os.sched_getscheduler(0) == os.SCHED_BATCH
        assert os.getpriority(os.PRIO_PROCESS, 0) == nice

    usual_ns = slice_ns()
    with ThreadPoolExecutor(1) as threads:
        threads.submit(shorten).result()
    assert found == [shortened_ns(usual_ns)]
    assert slice_ns() == usual_ns


def test_slices_stay_on_a_machine_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "_SCHED_SETATTR", {})
    monkeypatch.setattr(ctypes, "CDLL", lambda _: pytest.fail("the kernel is asked"))
    placement.shorten_slices()
