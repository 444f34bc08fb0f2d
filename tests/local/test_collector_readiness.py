"""The state of a model without a worker, as the collector publishes it and treats what waits."""

import errno
from dataclasses import replace

import pytest
from collector_harness import CollectorHarness, eager, fixed

from ringbatch.engine.collector.model_pool import LOOK_NS
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.readiness import ModelState, refuses
from ringbatch.shm.scalings import Scalings
from ringbatch.shm.slot import Status


def state(harness: CollectorHarness, model: int = 0) -> ModelState:
    """Return the published state of a model, by which frontends take or refuse requests."""
    words, first = harness.segment.words, harness.segment.layout.model(model)
    found = ModelState(words[first + ModelWords.STATE])
    assert bool(words[first + ModelWords.TAKES]) == (not refuses(found))
    return found


def answered(harness: CollectorHarness) -> list[Status]:
    return [reply.answer.status for reply in harness.clients[0].collect().values()]


def by_load(*workers: int) -> ModelSpec:
    return replace(eager(), workers=workers, least=0, most=1)


@pytest.mark.parametrize("spec", [eager(), fixed(), by_load(0)], ids=["eager", "fixed", "by load"])
def test_waiting_requests_are_refused_once_successors_cannot_load_and_accepted_later(
    spec: ModelSpec,
) -> None:
    harness = CollectorHarness(spec)
    harness.step(0)
    assert state(harness) is ModelState.LOADING
    harness.begin()
    assert state(harness) is ModelState.SERVING
    harness.send(0)
    harness.step(1)
    harness.dies(0, 2)
    harness.step(3)
    harness.send(1)
    # One that fails is an accident.
    harness.dies(0, 4)
    harness.step(5)
    assert state(harness) is ModelState.RESTARTING
    assert harness.collector.in_flight == 2, "what it held, and what came"
    harness.dies(0, 6)
    harness.step(7)
    assert state(harness) is ModelState.CANNOT_LOAD
    assert answered(harness) == [Status.NO_WORKER] * 2
    # From a frontend that has not seen it yet.
    harness.send(2)
    harness.step(8)
    assert answered(harness) == [Status.NO_WORKER]
    harness.new_collector()
    harness.step(1_000)
    assert state(harness) is ModelState.CANNOT_LOAD
    harness.workers[0].ready()
    harness.step(1_001)
    assert state(harness) is ModelState.SERVING
    harness.send(3)
    harness.step(1_002)
    assert harness.running() == [3]


def test_the_supervisors_word_on_worker_starts_is_seen_without_a_wake_up() -> None:
    harness = CollectorHarness(eager()).begin()
    harness.dies(0, 0)
    harness.step(0)
    harness.send(1)
    harness.step(1)
    for _ in range(2):
        harness.segment.publish_worker_start(0, errno.EAGAIN)
    harness.step(LOOK_NS - 1)
    assert answered(harness) == []
    harness.step(LOOK_NS)
    assert answered(harness) == [Status.NO_WORKER]


def test_a_model_that_the_load_has_left_is_at_rest_wakes_or_cannot() -> None:
    harness = CollectorHarness(by_load(0)).begin()

    def enter(*workers: int) -> ModelState:
        harness.segment.model_table.publish((by_load(*workers),))
        harness.step(1)
        return state(harness)

    assert enter() is ModelState.AT_REST
    harness.send(0)
    assert enter(0) is ModelState.WAKING
    assert harness.collector.in_flight == 1
    block = Scalings(harness.segment.words, harness.segment.layout, 0)
    block.open()
    block.fail(again_ns=0)
    assert enter() is ModelState.CANNOT_WAKE
    assert answered(harness) == [Status.NO_WORKER]
    assert enter(0) is ModelState.CANNOT_WAKE
    harness.workers[0].ready()
    harness.step(2)
    assert state(harness) is ModelState.SERVING
