"""A collector whose model has a worker here, number 0, and two elsewhere, 1 and 2."""

from dataclasses import replace

import pytest
from collector_harness import CollectorHarness, eager

from ringbatch.shm.model_spec import ModelSpec

HERE_NS, ELSEWHERE_NS = 200, 300


def both(remote: tuple[int, ...] = (1, 2)) -> ModelSpec:
    return replace(eager(workers=(0, 1, 2)), remote=remote)


def given(harness: CollectorHarness) -> list[list[int]]:
    """Return the requests' numbers in each worker's untaken tasks."""
    return [
        [number for task in worker.tasks() for number in harness.payloads(task)]
        for worker in harness.workers[:3]
    ]


@pytest.fixture
def harness() -> CollectorHarness:
    """Collector that has run batches locally and remotely, locally in two thirds of the time."""
    found = CollectorHarness(both()).begin()
    found.send()
    found.send(1, lane=1)
    found.step(0)
    for number in (2, 3):
        found.send(number)
        found.step(0)
    worker = found.workers
    worker[0].finish(worker[0].task())
    found.step(HERE_NS)
    for far in (1, 2):
        held = worker[far].tasks()
        for task in held:
            worker[far].finish(task)
    found.step(ELSEWHERE_NS)
    for client in found.clients:
        client.collect()
    assert found.all_free()
    return found


def test_the_one_here_is_the_first() -> None:
    harness = CollectorHarness(both()).begin()
    for number in range(3):
        harness.send(number)
        harness.step(number)
    here, *elsewhere = given(harness)
    assert here == [0]
    assert sorted(elsewhere) == [[1], [2]]


def test_a_spare_here_goes_on_before_one_elsewhere_and_gets_the_first_batch() -> None:
    found = CollectorHarness(replace(eager(workers=(0, 1, 2, 3), spares=2), remote=(1, 2)))
    for number in (0, 3, 2, 1):
        found.workers[number].ready()
        found.step(0)
    found.dies(0, 1)
    found.send(7)
    found.step(1)
    assert found.running(3) == [7]
    found.workers[0].ready()
    found.step(2)
    found.dies(2, 3)
    found.send(8)
    found.step(3)
    assert found.running(0) == [8], "and not 1, which has waited longer"


def test_the_local_worker_comes_first_in_any_order_of_idling(harness: CollectorHarness) -> None:
    harness.send(7)
    harness.step(1000)
    assert given(harness) == [[7], [], []]


def test_a_batch_goes_elsewhere_where_the_one_here_has_just_begun(
    harness: CollectorHarness,
) -> None:
    harness.send(7)
    harness.step(1000)
    harness.send(8)
    # Here it would be answered after 350.
    harness.step(1050)
    here, *elsewhere = given(harness)
    assert here == [7]
    assert sorted(elsewhere) == [[], [8]]


def test_a_batch_waits_for_the_one_here_that_is_about_to_end(harness: CollectorHarness) -> None:
    harness.send(7)
    harness.step(1000)
    assert given(harness) == [[7], [], []]
    harness.send(8)
    until_ns = harness.step(1150)
    assert given(harness) == [[], [], []]
    assert until_ns == 1000 + HERE_NS + (ELSEWHERE_NS - HERE_NS)


def test_it_gets_the_batch_as_soon_as_it_ends(harness: CollectorHarness) -> None:
    harness.send(7)
    harness.step(1000)
    task = harness.workers[0].task()
    harness.send(8)
    harness.step(1150)
    harness.workers[0].finish(task)
    harness.step(1200)
    assert given(harness) == [[8], [], []]


def test_it_is_not_waited_for_for_ever(harness: CollectorHarness) -> None:
    harness.send(7)
    harness.step(1000)
    given(harness)
    harness.send(8)
    until_ns = harness.step(1150)
    assert until_ns is not None
    harness.step(until_ns - 1)
    assert given(harness) == [[], [], []]
    harness.step(until_ns)
    assert sorted(given(harness)) == [[], [], [8]]


def test_requests_beyond_one_batch_do_not_wait(harness: CollectorHarness) -> None:
    harness.send(7)
    harness.step(1000)
    given(harness)
    for number in range(5):
        harness.send(number)
    harness.step(1150)
    here, *elsewhere = given(harness)
    assert here == []
    assert sorted(elsewhere) == [[], [0, 1, 2, 3]]


def test_a_dead_workers_requests_wait_for_nobody(harness: CollectorHarness) -> None:
    harness.send(7)
    harness.step(1000)
    harness.send(8)
    harness.step(1050)
    dead = given(harness).index([8])
    harness.dies(dead, 1195, killed=True)
    harness.step(1195)
    assert given(harness)[3 - dead] == [8]


def test_those_here_serve_on_while_those_elsewhere_die(harness: CollectorHarness) -> None:
    for number in (1, 2):
        harness.dies(number, 900, killed=True)
    for number in range(3):
        harness.send(number)
        harness.step(1000 + number)
    assert harness.running() == [0]
    assert given(harness)[1:] == [[], []]


def test_another_collector_knows_which_workers_are_remote(harness: CollectorHarness) -> None:
    harness.new_collector()
    for number in range(3):
        harness.send(number)
        harness.step(10_000 + number)
    here, *elsewhere = given(harness)
    assert here == [0]
    assert sorted(elsewhere) == [[1], [2]]


def test_a_model_whose_workers_are_all_elsewhere_has_no_choice() -> None:
    harness = CollectorHarness(both(remote=(0, 1, 2))).begin()
    for number in range(3):
        harness.send(number)
        harness.step(number)
    assert sorted(given(harness)) == [[0], [1], [2]]


def test_status_marks_workers_that_drive_an_actor(harness: CollectorHarness) -> None:
    states = harness.status().states
    assert ["Ray" in states[number] for number in range(3)] == [False, True, True]
