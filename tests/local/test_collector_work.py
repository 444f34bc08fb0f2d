"""Work of a collector's step: it does not grow with what is idle, waits or runs."""

from collections.abc import Callable
from typing import Any

import pytest
from bytecodes import SLACK, bytecodes, no_bytecodes
from collector_harness import CollectorHarness, eager, fixed

from ringbatch.shm.model_spec import ModelSpec

MANY = 128
pytestmark = no_bytecodes


def test_bytecodes_show_a_loop() -> None:
    assert bytecodes(lambda: [None for _ in range(MANY)]) > bytecodes(lambda: [None]) + MANY


def work(harness: CollectorHarness, now_ns: int) -> int:
    """Return the bytecodes that a step executes until the collector would sleep."""

    def turn() -> None:
        harness.step(now_ns)
        harness.collector.prepare_to_sleep()

    return bytecodes(turn)


def harness_of(*models: ModelSpec) -> CollectorHarness:
    return CollectorHarness(*models, slots=4 * MANY).begin()


def models(count: int, **more: Any) -> list[ModelSpec]:
    """Return models, of which the first and every second of the others have a worker."""
    first = eager(**more)
    others = [eager(index=n, name=f"m{n}", workers=(n,) * (n % 2), **more) for n in range(1, count)]
    return [first, *others]


def beside_idle_models(count: int) -> int:
    harness = harness_of(*models(count))
    harness.step(1)
    harness.send()
    done = work(harness, 2)
    harness.workers[0].finish(harness.workers[0].task())
    return done + work(harness, 3)


def beside_busy_models(count: int) -> int:
    """Return the work for a request beside models that run batches and have requests waiting."""
    harness = harness_of(*models(count, batch_timeout_ns=10_000))
    for _ in range(2):
        for number in range(1, count):
            harness.send(model=number, deadline_ns=5_000 + number, result_bytes=64)
        harness.step(1)
    harness.send()
    done = work(harness, 2)
    harness.workers[0].finish(harness.workers[0].task())
    return done + work(harness, 3)


def send_signature(harness: CollectorHarness, number: int, deadline_ns: int) -> None:
    key = number.to_bytes(8, "little")
    harness.clients[0].send(key, key_bytes=8, deadline_ns=deadline_ns, result_bytes=64)


def behind_a_busy_worker(signatures: int) -> int:
    harness = harness_of(eager())
    harness.send()
    harness.step(1)
    for number in range(signatures):
        send_signature(harness, number, 1_000 + number)
    harness.step(2)
    send_signature(harness, 0, 2_000)
    done = work(harness, 3)
    harness.workers[0].finish(harness.workers[0].task())
    done += work(harness, 4)
    return done + work(harness, 5)


def with_an_idle_worker(signatures: int) -> int:
    """Return the work for a request beside signatures that all wait for fuller batches."""
    harness = harness_of(fixed())
    for number in range(signatures):
        send_signature(harness, number, 10_000 + number)
    harness.step(2)
    send_signature(harness, 0, 2_000)
    return work(harness, 3)


def with_a_long_queue(requests: int) -> int:
    harness = harness_of(eager())
    harness.send()
    harness.step(1)
    for number in range(requests + 8):
        harness.send(deadline_ns=1_000 + number)
    harness.step(2)
    harness.send(deadline_ns=2_000)
    done = work(harness, 3)
    harness.workers[0].finish(harness.workers[0].task())
    return done + work(harness, 4)


def with_many_to_run_again(requests: int) -> int:
    """A worker has died of a batch, and the other is busy."""
    harness = harness_of(eager(workers=(0, 1), max_batch_size=MANY))
    for count in (1, requests):
        for number in range(count):
            harness.send(deadline_ns=1_000 + number)
        harness.step(1)
    harness.dies(0 if len(harness.workers[0].task().references) == requests else 1, 2)
    harness.step(2)
    harness.send(deadline_ns=2_000)
    return work(harness, 3)


def with_requests_that_expire_one_by_one(requests: int) -> int:
    harness = harness_of(eager())
    harness.send()
    harness.step(1)
    for number in range(requests + 8):
        harness.send(deadline_ns=1_000 + number)
    harness.step(2)
    harness.step(1_000)
    return work(harness, 1_001)


@pytest.mark.parametrize(
    "case",
    [
        beside_idle_models,
        beside_busy_models,
        behind_a_busy_worker,
        with_an_idle_worker,
        with_a_long_queue,
        with_many_to_run_again,
        with_requests_that_expire_one_by_one,
    ],
)
def test_a_steps_cost_does_not_grow_with_other_models_and_workers(
    case: Callable[[int], int],
) -> None:
    few, many = case(2), case(MANY)
    print(few, many)
    assert many < SLACK * few
