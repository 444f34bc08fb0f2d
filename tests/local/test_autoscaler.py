"""The number of workers follows the words of the segment, through live changes played by hand."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from segment_fixture import local_segment

from ringbatch.engine.config.settings import ModelConfig
from ringbatch.engine.models.model_file import ModelFile
from ringbatch.engine.process.role_events import Signature
from ringbatch.engine.process.usage import ProcessUsage
from ringbatch.engine.supervisor.autoscaler import LEAST_PLACES, LOOK_NS, PAUSE_NS, Autoscaler
from ringbatch.engine.supervisor.child_process import Child
from ringbatch.engine.supervisor.host_gauge import HostGauge
from ringbatch.engine.supervisor.managed_process import ManagedProcess
from ringbatch.engine.supervisor.model_changes import ModelChanges, Reply
from ringbatch.engine.supervisor.model_versions import Forwarding, first_entries
from ringbatch.engine.supervisor.scaling import AGAIN_NS
from ringbatch.engine.supervisor.served_models import ServedModels
from ringbatch.engine.supervisor.worker_pool import WorkerPool
from ringbatch.shm.counters import Counters, ModelCounter
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.host.control_socket import End, Report
from ringbatch.shm.model_counters import CounterBlocks
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.scalings import Cause, Scalings

MIB = 1 << 20
S = 1_000_000_000


class Process:
    """A worker's, of which only the id matters."""

    def __init__(self, number: int) -> None:
        self.pid = 100 + number


def _nobody(_again: bool) -> Any:
    raise AssertionError("nobody is started here")


class Changes:
    """Live changes that take as long as a test says.

    Attributes:
        held: whether something else of the model is being changed.
        asked: numbers of workers that were to run, one after the other.
    """

    def __init__(self, served: ServedModels) -> None:
        self.served = served
        self.held = False
        self.asked: list[int] = []
        self._underway: dict[int, tuple[int, Reply]] = {}

    def can_scale(self, reference: int) -> bool:
        return not self.held and reference not in self._underway

    def scale(self, reference: int, running: int, reply: Reply) -> None:
        self.asked.append(running)
        self._underway[reference] = running, reply

    def running(self, reference: int) -> int:
        """Return the number of workers that a model is to have soon."""
        return self._underway[reference][0]

    def end(self, reference: int, end: End) -> None:
        _, reply = self._underway.pop(reference)
        reply(Report(end, ()))


class Engine:
    """An engine that serves some models, all alike.

    Attributes:
        free_bytes: of memory, that the host has.
    """

    def __init__(self, count: int = 1, cpus: float = 8.0, **more: Any) -> None:
        settings: dict[str, Any] = {"workers": (1, 8), "scale_up_after_s": 1.0} | more
        models = tuple(
            ModelConfig(name=f"m{number}", runtime="python", path=Path("/m.py"), **settings)
            for number in range(count)
        )
        signatures = dict.fromkeys(range(8 * count), Signature((), ()))
        entries = first_entries(models, signatures, Forwarding())
        self.segment = local_segment(*entries, spare=8 * count)
        self.pool = WorkerPool()
        files = [ModelFile(model.path) for model in models]
        self.served = ServedModels(self.segment, entries, models, files)
        self.changes = Changes(self.served)
        self.free_bytes = 1 << 40
        self.now_ns = 0
        gauge = HostGauge(
            lambda _: ProcessUsage(100 * MIB, 0.0), lambda: self.free_bytes, lambda: cpus
        )
        self.scaler = Autoscaler(
            self.segment,
            cast(ModelChanges, self.changes),
            self.pool,
            gauge,
            lambda: self.now_ns,
        )
        accounts = CounterBlocks(self.segment.words, self.segment.layout)
        self._counters: list[Counters] = [accounts.of(spec.account) for spec in entries]
        for spec in entries:
            self._are(spec, spec.running)

    @property
    def block(self) -> Scalings:
        """Published state of the first model's scaling."""
        spec = self.served.entries[0]
        return Scalings(self.segment.words, self.segment.layout, spec.account)

    @property
    def running(self) -> list[int]:
        """Number of workers of each model."""
        return [spec.running for spec in self.served.entries]

    def signals(self) -> tuple[int, bool]:
        """Return the number of workers wanted, and whether the last could not be started."""
        return self.block.wanted, self.block.failed

    @property
    def underway(self) -> list[int]:
        """The models that are being scaled."""
        entries = enumerate(self.served.entries)
        return [number for number, s in entries if not self.changes.can_scale(s.reference)]

    def let_all_go(self) -> None:
        """Let time pass without requests until no model has a worker."""
        while any(self.running):
            self.for_s(1)
            for number in self.underway:
                self.finish(number)

    def for_s(self, seconds: float, wait_ms: float = 0.0, rows: int = 0) -> None:
        """Let so much time pass, while requests wait or come for each model."""
        until_ns = self.now_ns + int(seconds * S)
        while self.now_ns < until_ns:
            self.now_ns += LOOK_NS
            for number in range(len(self._counters)):
                self.wait(number, wait_ms)
                self.come(number, rows)
            self.scaler.step()

    def wait(self, number: int, wait_ms: float) -> None:
        """Predict a wait for a model."""
        first = self.segment.layout.model(number)
        self.segment.words[first + ModelWords.ANSWER_NS] = int(wait_ms * 1e6)

    def come(self, number: int, rows: int = 1) -> None:
        """Send requests for a model."""
        self._counters[number].add(ModelCounter.ROWS, rows)

    def finish(self, number: int = 0, *, failed: bool = False) -> None:
        """End the change of a model that is under way, as done or failed."""
        spec = self.served.entries[number]
        if not failed:
            self._are(spec, self.changes.running(spec.reference))
        self.changes.end(spec.reference, "failed" if failed else "done")

    def _are(self, spec: ModelSpec, workers: int) -> None:
        """Give a model so many workers, other ones than before."""
        for number in spec.workers:
            self.pool.workers.pop(number, None)
        first = 8 * spec.index
        numbers = tuple(range(first, first + workers + spec.spares))
        for number in numbers:
            managed = ManagedProcess(f"worker {number}", _nobody, worker=number)
            managed.child, managed.ready_ns = cast(Child, Process(number)), 1
            self.pool.workers[number] = managed
        now = replace(spec, workers=numbers)
        self.served.publish(
            tuple(now if s.reference == spec.reference else s for s in self.served.entries)
        )
        words, place = self.segment.words, self.segment.layout.model(spec.index)
        words[place + ModelWords.READY] = workers
        words[place + ModelWords.ROW_NS] = 10_000_000 // (32 * workers) if workers else 0


def test_the_load_has_workers_started_and_let_go_each_with_a_reason() -> None:
    engine = Engine()
    engine.for_s(2, wait_ms=100)
    assert engine.changes.asked == [2]
    engine.finish()
    engine.for_s(70)
    assert engine.changes.asked == [2, 1]
    engine.finish()
    engine.for_s(70)
    assert engine.changes.asked == [2, 1]
    counts = {cause: count for cause, count in engine.block.counts().items() if count}
    assert counts == {Cause.LATE: 1, Cause.IDLE: 1}
    assert engine.block.wanted == 1


def test_it_looks_only_where_workers_are_a_range_and_no_more_often_than_said() -> None:
    fixed = Engine(workers=2)
    fixed.for_s(5, wait_ms=100)
    assert fixed.scaler.next_ns is None
    assert not fixed.changes.asked
    engine = Engine()
    engine.scaler.step()
    assert engine.scaler.next_ns == LOOK_NS
    engine.now_ns += 1
    engine.scaler.step()
    assert engine.scaler.next_ns == LOOK_NS


def test_no_change_begins_beside_one_under_way() -> None:
    engine = Engine()
    engine.changes.held = True
    engine.for_s(10, wait_ms=100)
    assert not engine.changes.asked
    engine.changes.held = False
    engine.for_s(0.25, wait_ms=100)
    assert engine.changes.asked == [2]


def test_a_failed_change_is_retried_later_and_logged() -> None:
    engine = Engine(workers=(0, 8))
    engine.for_s(70)
    engine.finish()
    assert engine.changes.asked == [0]
    engine.for_s(0.25, rows=1)
    assert engine.changes.asked == [0, 1]
    engine.finish(failed=True)
    engine.for_s(1)
    assert engine.signals() == (1, True)
    engine.for_s(AGAIN_NS / S - 1.25)
    assert engine.changes.asked == [0, 1]
    engine.for_s(1)
    assert engine.changes.asked == [0, 1, 1]
    engine.finish()
    engine.for_s(1)
    assert engine.signals() == (1, False)
    assert engine.block.counts()[Cause.FAILED] == 1


def test_no_worker_is_started_for_which_there_is_no_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = Engine()
    engine.free_bytes = 50 * MIB
    with caplog.at_level(logging.WARNING, "ringbatch.supervisor"):
        engine.for_s(5, wait_ms=100)
    assert not engine.changes.asked
    assert engine.block.counts()[Cause.MEMORY] == 1
    assert engine.block.wanted == 2
    assert "1 of 1 to 8 workers run, and no more: there is no memory for more" in caplog.text
    engine.free_bytes = 500 * MIB
    engine.for_s(15, wait_ms=100)
    assert engine.changes.asked == [2]


def test_workers_elsewhere_are_started_where_there_is_no_memory_for_more_here() -> None:
    engine = Engine(workers=1, ray_workers=(0, 4))
    engine.free_bytes = 50 * MIB
    engine.for_s(2, wait_ms=100)
    assert engine.changes.asked == [2]
    # Those that drive actors take memory too, by the measure of one another.
    engine.finish()
    (spec,) = engine.served.entries
    engine.served.publish((replace(spec, remote=(1,)),))
    engine.for_s(10, wait_ms=100)
    assert engine.changes.asked == [2]
    assert engine.block.counts()[Cause.MEMORY] == 1


def test_no_worker_starts_while_readiness_is_only_the_supervisors_knowledge() -> None:
    engine = Engine(workers=(1, 8))
    engine.for_s(2, wait_ms=100)
    engine.finish()
    engine.pool.workers[0].ready_ns = 0
    engine.for_s(100)
    assert engine.changes.asked == [2]
    engine.pool.workers[0].ready_ns = 1
    engine.for_s(1)
    assert engine.changes.asked == [2, 1]


def test_the_configuration_may_change_in_between() -> None:
    engine = Engine()
    engine.for_s(10)
    ((reference, model),) = engine.served.models.items()
    engine.served.models[reference] = replace(model, scale_up_after_s=30.0)
    engine.for_s(29, wait_ms=100)
    assert engine.changes.asked == []
    engine.for_s(2, wait_ms=100)
    assert engine.changes.asked == [2]


def test_an_unexpected_failure_pauses_the_autoscaler() -> None:
    engine = Engine()
    engine.scaler.pause()
    engine.for_s(PAUSE_NS / S - 1, wait_ms=100)
    assert engine.changes.asked == []
    engine.for_s(3, wait_ms=100)
    assert engine.changes.asked == [2]


def test_a_reused_place_inherits_no_counts() -> None:
    engine = Engine()
    engine.for_s(2, wait_ms=100)
    other = Scalings(engine.segment.words, engine.segment.layout, (1 << 16))
    assert (other.wanted, other.failed, sum(other.counts().values())) == (0, False, 0)
    other.open()
    assert sum(engine.block.counts().values()) == 0
    assert sum(other.counts().values()) == 0


def test_as_many_are_started_at_once_as_the_cpus_allow_and_the_next_when_one_is_ready() -> None:
    engine = Engine(count=6, cpus=2.0, workers=(0, 1))
    engine.let_all_go()
    engine.changes.asked.clear()
    engine.come(5)
    engine.for_s(0.25)
    assert engine.changes.asked == [1]
    engine.for_s(0.25, rows=1)
    assert engine.changes.asked == [1] * LEAST_PLACES
    engine.for_s(1, rows=1)
    assert engine.changes.asked == [1] * LEAST_PLACES
    engine.finish(5)
    assert engine.scaler.next_ns == engine.now_ns, "it looks at once"
    engine.scaler.step()
    assert engine.changes.asked == [1] * (LEAST_PLACES + 1)
    assert engine.running == [0, 0, 0, 0, 0, 1]


def test_the_longest_waiting_model_is_next_at_any_place_in_the_file() -> None:
    engine = Engine(count=8, cpus=2.0, workers=(0, 1))
    engine.let_all_go()
    for number in (0, 1, 2, 3, 7, 6, 5, 4):
        engine.come(number)
        engine.for_s(0.25)
    assert engine.underway == [0, 1, 2, 3]
    for number in (3, 2, 1):
        engine.finish(number)
        engine.scaler.step()
    assert engine.underway == [0, 5, 6, 7]


def test_memory_that_the_workers_of_others_are_about_to_take_is_taken() -> None:
    engine = Engine(count=3)
    engine.free_bytes = 250 * MIB
    engine.for_s(2, wait_ms=500)
    assert engine.underway == [0, 1]


def test_a_model_that_waits_for_its_turn_shows_that_it_wants_workers() -> None:
    engine = Engine(count=5, cpus=1.0)
    engine.for_s(2, wait_ms=500)
    assert len(engine.changes.asked) == LEAST_PLACES
    spec = engine.served.entries[4]
    assert Scalings(engine.segment.words, engine.segment.layout, spec.account).wanted == 2
