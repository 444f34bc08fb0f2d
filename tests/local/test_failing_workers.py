"""Workers that fail every request are started anew: one after the other, with back-off."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import local_segment

from ringbatch.engine.config.settings import ModelConfig
from ringbatch.engine.models.model_file import ModelFile
from ringbatch.engine.process.respawn import CURED_NS, MOST_RENEWAL_NS, Renewals
from ringbatch.engine.process.role_events import FailsAll, Signature
from ringbatch.engine.supervisor.child_process import Child
from ringbatch.engine.supervisor.failing_workers import LOOK_NS, PATIENCE_NS, FailingWorkers
from ringbatch.engine.supervisor.managed_process import ManagedProcess
from ringbatch.engine.supervisor.model_versions import Forwarding, first_entries
from ringbatch.engine.supervisor.served_models import ServedModels
from ringbatch.engine.supervisor.worker_pool import WorkerPool
from ringbatch.shm.counters import Counters, RestartCase, WorkerCounter
from ringbatch.shm.descriptors import WorkerWords

S = 1_000_000_000
MINUTE = 60 * S
START = 1_000 * S
LOAD_NS = 3 * S
"""Time from a new process's start until it is ready."""
FOUND_NS = 2 * S
"""After so long a process says that its model fails."""


def _nobody(_again: bool) -> Any:
    raise AssertionError("nobody is started here")


class Process:
    """A worker's process, which only notes what it is sent."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.signals: list[signal.Signals] = []

    def kill(self, number: signal.Signals) -> None:
        self.signals.append(number)


class Site:
    """A model with some workers, all ready, and another with one.

    Attributes:
        now_ns: the time.
        ended: when each worker of the model was ended for failing, by number.
    """

    def __init__(self, workers: int = 2) -> None:
        models = tuple(
            ModelConfig(name=name, runtime="python", path=Path("/m.py"), workers=count)
            for name, count in (("m", workers), ("other", 1))
        )
        count = workers + 1
        signatures = dict.fromkeys(range(count), Signature((), ()))
        entries = first_entries(models, signatures, Forwarding())
        self.now_ns = START
        self.segment = local_segment(*entries)
        files = [ModelFile(model.path) for model in models]
        served = ServedModels(self.segment, entries, models, files)
        pool = WorkerPool()
        pool.workers = {n: ManagedProcess(f"worker {n}", _nobody, worker=n) for n in range(count)}
        self.processes = pool.workers
        self.counters = [
            Counters(self.segment.words, self.segment.layout.worker_counters(n))
            for n in range(count)
        ]
        self.care = FailingWorkers(self.segment, served, pool, lambda: self.now_ns)
        self.ended: dict[int, list[int]] = {n: [] for n in range(count)}
        for number in range(count):
            self.starts(number)

    def starts(self, number: int) -> None:
        """Start another process of a worker, and let it get ready."""
        managed = self.processes[number]
        managed.child = cast(Child, Process(number))
        managed.note_start(self.segment)
        managed.ready_ns = self.now_ns

    def dies(self, number: int) -> RestartCase:
        """End a worker's process."""
        managed = self.processes[number]
        managed.child = None
        managed.ended_ns = self.now_ns
        self.segment.worker_ended(number)
        managed.note_end(self.segment, killed=False)
        managed.ready_ns = 0
        managed.error = ""
        return managed.case

    def fails(self, number: int, *, answered: int = 0, batches: int = 8) -> None:
        """Let a worker's model fail from now on, after so many answered batches."""
        self.counters[number].add(WorkerCounter.BATCHES, answered + batches - 1)
        word = self.segment.layout.worker(number) + WorkerWords.FAILING
        self.segment.words[word] = batches
        self.care.on_fails_all(
            self.processes[number], FailsAll(batches, "it raised OSError", FOUND_NS)
        )

    def recovers(self, number: int) -> None:
        self.segment.words[self.segment.layout.worker(number) + WorkerWords.FAILING] = 0

    def step(self, passed_ns: int = 0) -> list[int]:
        """Look, so much later; who is ended."""
        self.now_ns += passed_ns
        self.care.step()
        found = []
        for number, managed in self.processes.items():
            process = cast(Process, managed.child)
            if process is not None and process.signals:
                assert process.signals.pop() is signal.SIGTERM
                assert managed.kill_ns is not None
                self.ended[number].append(self.now_ns)
                found.append(number)
        return found

    def until(self, end_ns: int) -> list[int]:
        """Take all looks that are due until then, and return when workers were ended."""
        found = []
        while self.care.next_ns is not None and self.care.next_ns <= end_ns:
            self.now_ns = max(self.now_ns, self.care.next_ns)
            if self.step():
                found.append(self.now_ns)
        self.now_ns = end_ns
        return found

    def renews(self, number: int) -> None:
        """Replace the process that was ended by one that is ready."""
        assert self.dies(number) is RestartCase.FAILING
        self.now_ns += LOAD_NS
        self.starts(number)


def test_the_first_time_it_is_ended_at_once() -> None:
    site = Site()
    site.fails(0)
    assert site.step() == [0]
    assert site.dies(0) is RestartCase.FAILING
    assert site.processes[0].renewal.earlier == Renewals(1, START)


def test_another_process_that_fails_as_well_is_ended_later_and_later() -> None:
    site = Site()
    delays = list[int]()
    for _ in range(8):
        site.fails(0)
        failed_ns = site.now_ns
        (ended_ns,) = site.until(failed_ns + 2 * MOST_RENEWAL_NS)
        delays.append((ended_ns - failed_ns + LOAD_NS * bool(delays)) // S)
        site.now_ns = ended_ns
        site.renews(0)
    assert delays == [0, 60, 120, 240, 480, 600, 600, 600]


def test_one_that_had_answered_for_a_minute_is_ended_at_once_each_time() -> None:
    site = Site()
    for _ in range(5):
        site.now_ns += CURED_NS + FOUND_NS
        site.fails(0, answered=100)
        assert site.step() == [0]
        site.renews(0)


def test_a_repeated_failure_report_changes_nothing() -> None:
    site = Site()
    site.processes[0].renewal.earlier = Renewals(1, site.now_ns)
    site.fails(0)
    planned_ns = site.processes[0].renewal.due_ns
    site.step(S)
    site.fails(0, answered=100)
    assert site.processes[0].renewal.due_ns == planned_ns
    assert site.until(START + MOST_RENEWAL_NS) == [planned_ns]
    site.fails(0)
    assert site.processes[0].renewal.due_ns is None, "it is being ended"


def test_one_that_had_answered_nothing_for_a_minute_is_not() -> None:
    site = Site()
    site.fails(0)
    assert site.step() == [0]
    site.renews(0)
    site.now_ns += 30 * S
    site.fails(0)
    assert site.step() == []


def test_a_worker_that_answers_again_is_not_ended() -> None:
    site = Site()
    site.processes[0].renewal.earlier = Renewals(1, site.now_ns)
    site.fails(0)
    assert site.step() == []
    site.recovers(0)
    assert site.until(site.now_ns + MOST_RENEWAL_NS) == []
    assert site.care.next_ns is None
    assert site.processes[0].renewal.earlier.times == 1


def test_workers_of_a_model_are_ended_one_after_the_other() -> None:
    site = Site()
    site.fails(0)
    site.fails(1)
    site.fails(2)
    assert site.step() == [0, 2], "of each model one"
    assert site.step(LOOK_NS) == []
    site.dies(0)
    assert site.step(LOOK_NS) == []
    site.starts(0)
    assert site.step(LOOK_NS) == [1]


def test_nobody_waits_for_ever_for_another_that_is_not_there() -> None:
    site = Site()
    site.dies(0)
    site.fails(1)
    assert site.until(site.now_ns + 2 * PATIENCE_NS) == [START + PATIENCE_NS]


def test_repeated_reports_do_not_lengthen_the_wait_for_another() -> None:
    site = Site()
    site.dies(0)
    site.fails(1)
    assert site.until(START + PATIENCE_NS // 2) == []
    site.fails(1)
    assert site.until(START + 2 * PATIENCE_NS) == [START + PATIENCE_NS]


def test_a_worker_that_another_takes_the_place_of_is_left_alone() -> None:
    site = Site()
    site.processes[0].let_go()
    site.fails(0)
    assert site.processes[0].renewal.due_ns is None
    assert site.step() == []


def test_a_worker_that_has_ended_meanwhile_is_forgotten() -> None:
    site = Site()
    site.processes[0].renewal.earlier = Renewals(1, site.now_ns)
    site.fails(0)
    assert site.dies(0) is RestartCase.ANSWERED
    assert site.until(site.now_ns + MOST_RENEWAL_NS) == []


class Life:
    """An hour of a model whose workers fail and recover as the draws say."""

    def __init__(self, draws: Iterator[tuple[int, int, bool, int]]) -> None:
        self.site = site = Site(workers=3)
        self.last_good_ns = [START] * 3
        self.failing_since_ns: list[int | None] = [None] * 3
        end_ns = START + 60 * MINUTE
        for passed_ns, number, good, answered in draws:
            if site.now_ns >= end_ns:
                break
            self._pass(passed_ns)
            managed = site.processes[number]
            if managed.child is None or managed.renewal.under_way:
                continue
            if good:
                site.recovers(number)
                self.failing_since_ns[number] = None
            elif self.failing_since_ns[number] is None:
                site.fails(number, answered=answered)
                self.failing_since_ns[number] = site.now_ns

    def _pass(self, passed_ns: int) -> None:
        """Let time pass, and replace ended workers."""
        site = self.site
        end_ns = site.now_ns + passed_ns
        while site.now_ns < end_ns:
            site.now_ns = min(end_ns, site.now_ns + LOOK_NS)
            ended = site.step()
            assert len(ended) <= 1, "one at a time"
            for number in ended:
                assert self.failing_since_ns[number] is not None, "it answers"
                self._check(number)
                self.failing_since_ns[number] = None
                site.renews(number)
            for number, since_ns in enumerate(self.failing_since_ns):
                limit_ns = MOST_RENEWAL_NS + PATIENCE_NS + 4 * LOAD_NS
                assert since_ns is None or site.now_ns - since_ns <= limit_ns, (
                    f"worker {number} fails for ever"
                )

    def _check(self, number: int) -> None:
        """Check that a worker is not ended twice within a minute."""
        times = self.site.ended[number]
        if len(times) > 1:
            assert times[-1] - times[-2] >= MINUTE


draws = st.lists(
    st.tuples(
        st.sampled_from([0, S, 10 * S, MINUTE + FOUND_NS, 3 * MINUTE, 11 * MINUTE]),
        st.integers(0, 2),
        st.sampled_from([False, False, False, True]),
        st.sampled_from([0, 100]),
    ),
    max_size=40,
)


@given(draws)
def test_nobody_is_restarted_in_circles_and_nobody_fails_for_ever(
    found: list[tuple[int, int, bool, int]],
) -> None:
    Life(iter(found))


@contextmanager
def broken(owner: type, method: str, instead: Any) -> Iterator[None]:
    with patch.object(owner, method, instead):
        yield


BROKEN: dict[str, tuple[type, str, Any]] = {
    "without back-off": (Renewals, "due_ns", lambda _self, now_ns: now_ns),
    "whether they still fail or not": (
        FailingWorkers,
        "_fails",
        lambda _self, managed: managed.child is not None,
    ),
    "all at once": (FailingWorkers, "_must_wait", lambda *_: False),
    "never again": (
        Renewals,
        "due_ns",
        lambda self, now_ns: now_ns if not self.times else 1 << 62,
    ),
}


def _drawn() -> list[list[tuple[int, int, bool, int]]]:
    """Lives that are enough to tell."""
    fails = [(0, number, False, 0) for number in (0, 1, 2)] + [(10 * S, 0, False, 0)]
    again = [(10 * S, 0, False, 0), (11 * MINUTE, 1, True, 0), (11 * MINUTE, 2, True, 0)]
    recovers = [(S, 0, False, 0), (S, 0, False, 0), (10 * S, 0, False, 0), (S, 0, True, 0)]
    return [fails * 2, again * 3, [*recovers, (11 * MINUTE, 1, True, 0)]]


@pytest.mark.parametrize("defect", BROKEN)
def test_a_wrong_rule_is_found_out(defect: str) -> None:
    def lives() -> None:
        for found in _drawn():
            Life(iter(found))

    lives()
    with broken(*BROKEN[defect]), pytest.raises(AssertionError):
        lives()
