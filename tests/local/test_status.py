"""The counters of an engine as others read them.

Tests shm/process_state.py.
"""

import os
import signal
import subprocess
from pwd import getpwuid

import pytest
from segment_fixture import local_segment, spec

from ringbatch.engine.report.status import describe, main, snapshot
from ringbatch.shm.counters import (
    CollectorCounter,
    Counters,
    LaneCounter,
    ModelCounter,
    RestartCase,
    WorkerCounter,
    rows_bucket,
)
from ringbatch.shm.descriptors import (
    HeaderWords,
    ModelCounterWords,
    ModelWords,
    WorkerState,
    WorkerWords,
)
from ringbatch.shm.engines import only
from ringbatch.shm.errors import StartupError
from ringbatch.shm.layout import PAGE, Layout
from ringbatch.shm.model_counters import CounterBlocks
from ringbatch.shm.scalings import Scalings
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Reason
from ringbatch.shm.snapshot.status import read

NO_PID = 2**22 + 1
"""Process id beyond those that Linux gives out."""


def counted() -> Segment:
    segment = local_segment(
        spec(0, name="a", workers=(0, 1)), spec(1, name="b", workers=(2,)), lanes=2
    )
    layout, words = segment.layout, segment.words
    words[layout.model(0) + ModelWords.READY] = 1
    words[layout.model(0) + ModelWords.ANSWER_NS] = 5_500_000
    model = CounterBlocks(words, layout).of(0)
    for counter, amount in {
        ModelCounter.REQUESTS: 8,
        ModelCounter.ROWS: 20,
        ModelCounter.EXPIRED: 1,
        ModelCounter.CANCELLED: 2,
        ModelCounterWords.BY_CLASS + 1: 16_000_000,
        ModelCounterWords.BY_CLASS + 2: 9_000_000,
        ModelCounter.FAILED: 1,
        ModelCounter.RETRIED: 4,
        ModelCounterWords.BATCHES_BY_REASON + Reason.FULL: 2,
        ModelCounterWords.BATCHES_BY_REASON + Reason.RETRY: 1,
        ModelCounterWords.REQUESTS_BY_WAIT: 8,
        ModelCounterWords.BATCHES_BY_RUN: 3,
        ModelCounterWords.BATCHES_BY_ROWS + rows_bucket(1): 1,
        ModelCounterWords.BATCHES_BY_ROWS + rows_bucket(16): 2,
    }.items():
        model.add(counter, amount)
    for lane, requests in ((0, 3), (1, 5)):
        Counters(words, layout.lane_counters(lane)).add(LaneCounter.REQUESTS, requests)
    Counters(words, layout.collector_counters()).add(CollectorCounter.WORKER_DEATHS, 2)
    Counters(words, layout.worker_counters(2)).add(WorkerCounter.BATCHES, 9)
    words[layout.worker(1) + WorkerWords.STATE] = WorkerState.LOADING
    words[layout.worker(2) + WorkerWords.STATE] = WorkerState.READY
    words[layout.worker(2) + WorkerWords.PID] = 4711
    return segment


def test_a_worker_that_is_stopped_says_so() -> None:
    segment = counted()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        pid = process.pid
        segment.words[segment.layout.worker(2) + WorkerWords.PID] = pid
        try:
            assert read(segment).states[2] == f"ready, process {pid}"
            os.kill(pid, signal.SIGSTOP)
            os.waitid(os.P_PID, pid, os.WSTOPPED)
            stopped = f"is stopped (kill -CONT {pid} lets it go on)"
            assert read(segment).states[2] == f"ready, process {pid}, {stopped}"
            os.kill(pid, signal.SIGCONT)
            os.waitid(os.P_PID, pid, os.WCONTINUED)
            assert read(segment).states[2] == f"ready, process {pid}"
        finally:
            process.kill()


def test_counts_are_read_under_their_names() -> None:
    status = read(counted())
    a = status.models["a"]
    assert (a.workers, a.ready, a.requests, a.rows) == (2, 1, 8, 20)
    assert (a.dropped, a.failed, a.retried) == (3, 1, 4)
    assert (a.wait_ms, a.run_ms) == (2.0, 3.0)
    assert a.batches == {"full": 2, "retry": 1}
    assert a.batch_rows == {"1": 1, "9-16": 2}
    assert status.frontends["requests"] == 8, "of all lanes together"
    assert status.collector["worker_deaths"] == 2
    assert [status.workers[number]["batches"] for number in range(3)] == [0, 0, 9]


def test_restarts_are_listed_by_case_and_a_failing_worker_by_its_error() -> None:
    segment = counted()
    account = segment.models[0].account
    block = Scalings(segment.words, segment.layout, account)
    block.open()
    for case in (RestartCase.KILLED, RestartCase.FAILING, RestartCase.KILLED):
        block.count_restart(case)
    segment.words[segment.layout.worker(2) + WorkerWords.FAILING] = 8
    lines = describe(read(segment)).splitlines()
    assert [line for line in lines if "restarts" in line] == [
        "  restarts by case:  killed 2, failing 1"
    ]
    assert any(
        line.startswith("worker 2 (ready, process 4711, fails every request)") for line in lines
    )


def test_a_model_that_nobody_asked_has_zeros_and_no_division() -> None:
    b = read(counted()).models["b"]
    assert (b.requests, b.wait_ms, b.run_ms, b.batches, b.batch_rows) == (0, 0.0, 0.0, {}, {})


def test_for_people_it_says_the_same_in_words() -> None:
    text = describe(read(counted()))
    for line in (
        "a: 1 of 2 workers ready",
        "  requests 8, instances 20, dropped 3, retried 4, failed batches 1",
        "  mean wait for a batch 2.000 ms, mean run of a batch 3.000 ms, "
        "a request sent now is answered in about 5.500 ms",
        "  mean wait for a batch 0.000 ms, mean run of a batch 0.000 ms, no requests wait",
        "  batches by reason: full 2, retry 1",
        "  batches by size:   1 1, 9-16 2",
        "  batches by reason: none",
        "worker 0 (not started): batches 0, instances 0, time in the model 0.000 s",
        "worker 1 (loading, process 0): batches 0, instances 0, time in the model 0.000 s",
        "worker 2 (ready, process 4711): batches 9, instances 0, time in the model 0.000 s",
    ):
        assert line in text.splitlines()


def test_where_no_engine_runs_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StartupError, match=f"supervisor has process id {NO_PID} is running"):
        snapshot(NO_PID)
    assert main(NO_PID) == 1
    assert f"process id {NO_PID} is running" in capsys.readouterr().err


def test_another_users_engine_is_named_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(lanes=1, slots=2, lane_bytes=PAGE, workers=1, models=1, model_table_bytes=PAGE)
    segment = Segment.create(layout, (spec(name="theirs"),))
    own = getpwuid(os.geteuid()).pw_name
    another = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: another)
    try:
        for pid in (os.getpid(), None):
            with pytest.raises(StartupError, match=rf"user {own}\b.* sudo -u"):
                only(pid)
    finally:
        segment.unlink()
        segment.detach()


def test_a_running_engines_segment_is_found_by_its_supervisor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    layout = Layout(lanes=1, slots=2, lane_bytes=PAGE, workers=1, models=1, model_table_bytes=PAGE)
    segment = Segment.create(layout, (spec(name="found"),))
    try:
        assert list(snapshot(os.getpid()).models) == ["found"]
        assert main(os.getpid()) == 0
        segment.words[HeaderWords.PORT] = 8080
        assert main(os.getpid()) == 0
    finally:
        segment.unlink()
        segment.detach()
    printed = capsys.readouterr().out
    heading = f"engine ringbatch, process {os.getpid()}"
    assert printed.startswith(f"{heading}, starting\nfound: 0 of 1 workers ready\n")
    assert f"\n{heading}, port 8080, starting\n" in printed
