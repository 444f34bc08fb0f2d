"""Delays of workers end early while requests wait for a model that no process holds."""

from pathlib import Path
from typing import Any, cast

from segment_fixture import local_segment

from ringbatch.engine.config.settings import ModelConfig
from ringbatch.engine.models.model_file import ModelFile
from ringbatch.engine.process.respawn import FIRST, LOADING_BUDGET, MOST_AWAITED_NS, Record
from ringbatch.engine.process.role_events import Signature
from ringbatch.engine.supervisor.child_process import Child
from ringbatch.engine.supervisor.early_restarts import LOOK_NS, EarlyRestarts
from ringbatch.engine.supervisor.managed_process import ManagedProcess
from ringbatch.engine.supervisor.model_versions import Forwarding, first_entries
from ringbatch.engine.supervisor.served_models import ServedModels
from ringbatch.engine.supervisor.worker_pool import WorkerPool
from ringbatch.shm.counters import Counters, RestartCase, WorkerCounter
from ringbatch.shm.descriptors import ModelWords, WorkerWords
from ringbatch.shm.scalings import Scalings

S = 1_000_000_000


def _nobody(_again: bool) -> Any:
    raise AssertionError("nobody is started here")


class Site:
    """Models a and b with two workers each, none of which runs.

    The workers of a have ended at 10 s and 11 s, and their delays are long.
    """

    def __init__(self) -> None:
        models = tuple(
            ModelConfig(name=name, runtime="python", path=Path("/m.py"), workers=2) for name in "ab"
        )
        entries = first_entries(models, dict.fromkeys(range(4), Signature((), ())), Forwarding())
        self.segment = local_segment(*entries)
        files = [ModelFile(model.path) for model in models]
        self.served = ServedModels(self.segment, entries, models, files)
        self.pool = WorkerPool()
        self.pool.workers = {n: ManagedProcess(f"worker {n}", _nobody, worker=n) for n in range(4)}
        self.now_ns = 12 * S
        for number in (0, 1):
            self.pool.workers[number].ended_ns = (10 + number) * S
            self.pool.workers[number].restart_ns = (40 + number) * S
        self.awaited = EarlyRestarts(self.segment, self.served, self.pool, lambda: self.now_ns)

    def requests_wait(self, model: int, *, wait: bool = True) -> None:
        self.segment.words[self.segment.layout.model(model) + ModelWords.AWAITED] = wait

    def step(self) -> list[int | None]:
        """Take a look, and return the planned start of each worker in seconds."""
        self.now_ns += LOOK_NS
        self.awaited.step()
        planned = [self.pool.workers[number].restart_ns for number in (0, 1)]
        return [None if at is None else at // S for at in planned]


def test_one_of_them_starts_within_a_second_of_its_end() -> None:
    site = Site()
    site.requests_wait(0)
    assert site.step() == [(10 * S + MOST_AWAITED_NS) // S, 41]
    assert site.awaited.next_ns == site.now_ns + LOOK_NS


def test_without_requests_delays_last() -> None:
    site = Site()
    site.requests_wait(1)
    assert site.step() == [40, 41]
    assert site.awaited.next_ns == site.now_ns + LOOK_NS


def test_while_another_process_starts_delays_last() -> None:
    site = Site()
    site.requests_wait(0)
    site.pool.workers[1].child = cast(Child, object())
    site.pool.workers[1].restart_ns = None
    assert site.step() == [40, None]


def test_a_shorter_delay_stays_as_it_is() -> None:
    site = Site()
    site.requests_wait(0)
    site.pool.workers[0].restart_ns = 10 * S + 1
    assert site.step() == [10, 41]


def test_it_looks_only_while_a_worker_has_a_delay() -> None:
    site = Site()
    site.step()
    for managed in site.pool.workers.values():
        managed.restart_ns = None
    site.step()
    assert site.awaited.next_ns is None


def test_it_looks_no_more_often_than_it_says() -> None:
    site = Site()
    site.step()
    site.requests_wait(0)
    site.awaited.step()
    assert site.pool.workers[0].restart_ns == 40 * S


def test_restarts_are_counted_for_the_model_by_their_case() -> None:
    site = Site()
    site.served.count_restart(1, RestartCase.KILLED)
    site.served.count_restart(0, RestartCase.KILLED)
    site.served.count_restart(2, RestartCase.LOADING)
    blocks = [
        Scalings(site.segment.words, site.segment.layout, spec.account)
        for spec in site.served.entries
    ]
    assert [{case: n for case, n in block.restarts().items() if n} for block in blocks] == [
        {RestartCase.KILLED: 2},
        {RestartCase.LOADING: 1},
    ]


def test_the_case_of_an_end_follows_from_the_progress_of_the_process() -> None:
    site = Site()
    managed = site.pool.workers[3]
    counters = Counters(site.segment.words, site.segment.layout.worker_counters(3))
    counters.add(WorkerCounter.BATCHES, 7)

    def ends(*, batches: int = 0, ready: bool = True, killed: bool = False) -> RestartCase:
        managed.note_start(site.segment)
        managed.ready_ns = int(ready)
        counters.add(WorkerCounter.BATCHES, batches)
        managed.note_end(site.segment, killed=killed)
        return managed.case

    assert ends(batches=1) is RestartCase.ANSWERED
    assert ends() is RestartCase.CRASHED
    assert ends(ready=False) is RestartCase.LOADING
    assert ends(killed=True) is RestartCase.KILLED
    assert ends(killed=True, ready=False) is RestartCase.KILLED_LOADING
    managed.error = "the actor is gone"
    assert ends(killed=True) is RestartCase.CRASHED
    assert ends(killed=True, ready=False) is RestartCase.LOADING


def test_a_process_of_our_own_loads_nothing() -> None:
    managed = ManagedProcess("standby", _nobody)
    managed.note_start(None)
    cases = []
    for killed in (False, True):
        managed.note_end(None, killed=killed)
        cases.append(managed.case)
    assert cases == [RestartCase.CRASHED, RestartCase.KILLED]


def test_a_kill_before_readiness_is_no_load_failure_unless_too_frequent() -> None:
    site = Site()
    managed = site.pool.workers[0]
    found = []
    for count in range(LOADING_BUDGET + 2):
        managed.record = Record(0, (site.now_ns,) * count)
        managed.ready_ns = 0
        managed.note_end(site.segment, killed=True)
        found.append(managed.by_chance)
    assert found == [True] * LOADING_BUDGET + [False] * 2
    managed.record = FIRST
    managed.note_end(site.segment, killed=False)
    assert not managed.by_chance


def test_an_end_by_chance_is_no_start_that_failed() -> None:
    site = Site()
    ends = site.segment.layout.worker(0) + WorkerWords.ENDS
    counts = []
    for by_chance in (False, True, True, False):
        site.segment.worker_ended(0, by_chance=by_chance)
        counts.append(site.segment.words[ends])
    assert counts == [1, 1, 1, 2]
