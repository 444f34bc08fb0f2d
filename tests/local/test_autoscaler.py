"""The number of workers follows the words of the segment, through live changes played by hand."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from segment_fixture import local_segment

from ringbatch.engine.config.settings import ModelConfig
from ringbatch.engine.process.role_messages import Signature
from ringbatch.engine.process.usage import Usage
from ringbatch.engine.runtimes.model_file import ModelFile
from ringbatch.engine.supervisor.autoscaler import LOOK_NS, PAUSE_NS, Autoscaler
from ringbatch.engine.supervisor.child import Child
from ringbatch.engine.supervisor.host_gauge import HostGauge
from ringbatch.engine.supervisor.model_changes import ModelChanges
from ringbatch.engine.supervisor.model_versions import Forwarding, first_entries
from ringbatch.engine.supervisor.process_slot import ProcessSlot
from ringbatch.engine.supervisor.scaling import AGAIN_NS
from ringbatch.engine.supervisor.served_models import ServedModels
from ringbatch.engine.supervisor.worker_pool import WorkerPool
from ringbatch.shm.counters import Counters, ModelCounter
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.model_counters import Accounts
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
    """Live changes that take as long as one likes.

    Attributes:
        idle: whether nothing is being carried out.
        asked: numbers of workers that were to run, one after the other.
    """

    def __init__(self, served: ServedModels) -> None:
        self.served = served
        self.idle = True
        self.asked: list[int] = []

    def scale(self, _reference: int, running: int) -> None:
        self.asked.append(running)
        self.idle = False


class Engine:
    """An engine that serves one model.

    Attributes:
        free_bytes: of memory, that the host has.
    """

    def __init__(self, **more: Any) -> None:
        settings: dict[str, Any] = {"workers": (1, 8), "scale_up_after_s": 1.0} | more
        model = ModelConfig(name="m", runtime="python", path=Path("/m.py"), **settings)
        entries = first_entries((model,), dict.fromkeys(range(8), Signature((), ())), Forwarding())
        self.segment = local_segment(*entries, spare=16)
        self.pool = WorkerPool()
        self.served = ServedModels(self.segment, entries, (model,), [ModelFile(model.path)])
        self.changes = Changes(self.served)
        self.free_bytes = 1 << 40
        self.now_ns = 0
        gauge = HostGauge(lambda _: Usage(100 * MIB, 0.0), lambda: self.free_bytes, lambda: 8.0)
        self.scaler = Autoscaler(
            self.segment,
            cast(ModelChanges, self.changes),
            self.pool,
            gauge,
            lambda: self.now_ns,
        )
        self._counters: Counters = Accounts(self.segment.words, self.segment.layout).of(
            entries[0].account
        )
        self._are(len(entries[0].workers))

    @property
    def block(self) -> Scalings:
        """What is told of the model."""
        (spec,) = self.served.entries
        return Scalings(self.segment.words, self.segment.layout, spec.account)

    def told(self) -> tuple[int, bool]:
        """How many workers are wanted, and whether the last could not be started."""
        return self.block.wanted, self.block.failed

    def for_s(self, seconds: float, wait_ms: float = 0.0, rows: int = 0) -> None:
        """So much time passes, and requests wait or come."""
        until_ns = self.now_ns + int(seconds * S)
        first = self.segment.layout.model(0)
        while self.now_ns < until_ns:
            self.now_ns += LOOK_NS
            self.segment.words[first + ModelWords.ANSWER_NS] = int(wait_ms * 1e6)
            self._counters.add(ModelCounter.ROWS, rows)
            self.scaler.step()

    def finish(self, *, failed: bool = False) -> None:
        """What is carried out is done, or has failed."""
        self.changes.idle = True
        if not failed:
            self._are(self.changes.asked[-1])

    def _are(self, workers: int) -> None:
        (spec,) = self.served.entries
        numbers = tuple(range(workers + spec.spares))
        self.pool.workers = {n: ProcessSlot(f"worker {n}", _nobody, worker=n) for n in numbers}
        for number, slot in self.pool.workers.items():
            slot.child, slot.ready_ns = cast(Child, Process(number)), 1
        self.served.publish((replace(spec, workers=numbers),))
        words, first = self.segment.words, self.segment.layout.model(0)
        words[first + ModelWords.READY] = workers
        words[first + ModelWords.ROW_NS] = 10_000_000 // (32 * workers) if workers else 0


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


def test_nothing_is_begun_beside_what_is_being_carried_out() -> None:
    engine = Engine()
    engine.changes.idle = False
    engine.for_s(10, wait_ms=100)
    assert not engine.changes.asked
    engine.changes.idle = True
    engine.for_s(0.25, wait_ms=100)
    assert engine.changes.asked == [2]


def test_what_fails_is_tried_again_later_and_said_meanwhile() -> None:
    engine = Engine(workers=(0, 8))
    engine.for_s(70)
    engine.finish()
    assert engine.changes.asked == [0]
    engine.for_s(0.25, rows=1)
    assert engine.changes.asked == [0, 1]
    engine.finish(failed=True)
    engine.for_s(1)
    assert engine.told() == (1, True)
    engine.for_s(AGAIN_NS / S - 1)
    assert engine.changes.asked == [0, 1]
    engine.for_s(1)
    assert engine.changes.asked == [0, 1, 1]
    engine.finish()
    engine.for_s(1)
    assert engine.told() == (1, False)
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


def test_no_worker_goes_where_the_supervisor_knows_better_who_is_ready() -> None:
    engine = Engine(workers=(1, 8))
    engine.for_s(2, wait_ms=100)
    engine.finish()
    engine.pool.workers[0].ready_ns = 0
    engine.for_s(100)
    assert engine.changes.asked == [2]
    engine.pool.workers[0].ready_ns = 1
    engine.for_s(1)
    assert engine.changes.asked == [2, 1]


def test_what_is_configured_may_change_meanwhile() -> None:
    engine = Engine()
    engine.for_s(10)
    ((reference, model),) = engine.served.models.items()
    engine.served.models[reference] = replace(model, scale_up_after_s=30.0)
    engine.for_s(29, wait_ms=100)
    assert engine.changes.asked == []
    engine.for_s(2, wait_ms=100)
    assert engine.changes.asked == [2]


def test_after_what_nobody_expected_it_pauses() -> None:
    engine = Engine()
    engine.scaler.pause()
    engine.for_s(PAUSE_NS / S - 1, wait_ms=100)
    assert engine.changes.asked == []
    engine.for_s(3, wait_ms=100)
    assert engine.changes.asked == [2]


def test_who_inherits_a_place_inherits_no_counts() -> None:
    engine = Engine()
    engine.for_s(2, wait_ms=100)
    other = Scalings(engine.segment.words, engine.segment.layout, (1 << 16))
    assert (other.wanted, other.failed, sum(other.counts().values())) == (0, False, 0)
    other.open()
    assert sum(engine.block.counts().values()) == 0
    assert sum(other.counts().values()) == 0
