"""Slots of clients that left: what is cancelled before it is dispatched is given back at once."""

import pytest
from collector_harness import CollectorHarness, eager, fixed
from segment_fixture import FAR_NS

from ringbatch.engine.collector.models import NEXT_UP_TO_NS
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.slot import as_part, reference

CAP = 4
SLOTS = 8
LONG_NS = 2 * NEXT_UP_TO_NS
"""Length of a batch that is too long for a worker to be given the next one in advance."""


def busy() -> CollectorHarness:
    """A collector whose only worker runs a batch of one request, for as long as it likes."""
    harness = CollectorHarness(eager(max_batch_size=CAP), slots=SLOTS).begin()
    harness.send(0, lane=1)
    harness.step(1)
    return harness


def leave(harness: CollectorHarness, *slots: int) -> None:
    """Let clients leave and their frontend notice."""
    lane = harness.clients[0].lane
    for slot in slots:
        lane.cancel(slot)
    lane.submit()


def in_flight(harness: CollectorHarness) -> int:
    assert harness.clients[0].collect() == {}
    return harness.clients[0].lane.in_flight


def test_leavers_keep_nobody_out_while_all_workers_are_busy() -> None:
    harness = busy()
    slots = [harness.send(number) for number in range(SLOTS)]
    harness.step(2)
    assert harness.clients[0].lane.claim(1, 1, 0) is None
    leave(harness, *slots)
    harness.step(3)
    assert in_flight(harness) == 0
    harness.send(9)
    harness.workers[0].finish(harness.workers[0].task())
    harness.step(4)
    assert harness.running() == [9]


def test_only_the_waiting_requests_that_did_not_leave_run() -> None:
    harness = busy()
    slots = [harness.send(number) for number in range(SLOTS)]
    harness.step(2)
    leave(harness, slots[0], slots[3], slots[4])
    harness.step(3)
    assert in_flight(harness) == SLOTS - 3
    harness.workers[0].finish(harness.workers[0].task())
    harness.step(4)
    task = harness.workers[0].task()
    assert harness.payloads(task) == [1, 2, 5, 6], "a batch is as full as it can be"
    harness.workers[0].finish(task)
    harness.step(5)
    assert harness.running() == [7]


def test_the_estimate_for_the_next_request_is_without_them() -> None:
    harness = busy()
    harness.workers[0].finish(harness.workers[0].task())
    harness.step(LONG_NS)
    harness.send(0, lane=1)
    harness.step(LONG_NS + 1)
    word = harness.segment.layout.model(0) + ModelWords.ANSWER_NS
    before = harness.segment.words[word]
    slots = [harness.send(number) for number in range(SLOTS)]
    harness.step(LONG_NS + 2)
    assert harness.segment.words[word] > before
    leave(harness, *slots)
    harness.step(LONG_NS + 3)
    assert harness.segment.words[word] == before


@pytest.mark.parametrize("steps", [0, 1], ids=["not taken", "waits"])
def test_a_full_ring_holds_up_nobody(steps: int) -> None:
    """There is room for one word of each slot: for requests that were not taken, or for those that
    are cancelled, and not for both."""
    harness = busy()
    lane = harness.clients[0].lane
    slots = [harness.send(number) for number in range(SLOTS)]
    for now_ns in range(steps):
        harness.step(2 + now_ns)
    leave(harness, *slots)
    assert lane.held_back == (steps == 0)
    harness.step(4)
    assert in_flight(harness) == 0
    assert not lane.held_back


def test_a_request_cancelled_before_submission_takes_no_room_twice() -> None:
    harness = busy()
    lane = harness.clients[0].lane
    slots = []
    for _ in range(SLOTS):
        slot = lane.claim(1, 1, 0)
        assert slot is not None
        lane.publish(slot, 0, 1, 0, FAR_NS, 1)
        slots.append(slot)
    leave(harness, *slots)
    assert not lane.held_back
    harness.step(2)
    assert in_flight(harness) == 0


def test_a_request_counts_once_though_it_is_submitted_twice() -> None:
    harness = busy()
    before = harness.model().requests
    _, gone = harness.send(1), harness.send(2)
    harness.step(2)
    leave(harness, gone)
    harness.step(3)
    soon = harness.send(3)
    leave(harness, soon)
    harness.step(4)
    assert harness.clients[0].lane.counters[LaneCounter.REQUESTS] == 3
    assert harness.model().requests == before + 3
    assert harness.model().dropped == 2
    assert in_flight(harness) == 1


def test_a_request_that_a_worker_holds_is_left_to_it() -> None:
    harness = CollectorHarness(eager(max_batch_size=CAP), slots=SLOTS).begin()
    slot = harness.send(0)
    harness.step(1)
    leave(harness, slot)
    harness.step(2)
    assert in_flight(harness) == 1
    harness.workers[0].finish(harness.workers[0].task())
    harness.step(3)
    assert in_flight(harness) == 0


def test_a_cancelled_request_from_a_dead_worker_is_given_back() -> None:
    harness = CollectorHarness(eager(max_batch_size=CAP), slots=SLOTS).begin()
    slots = [harness.send(number) for number in range(3)]
    harness.step(1)
    leave(harness, slots[1])
    harness.step(2)
    assert in_flight(harness) == 3
    harness.dies(0, 3)
    harness.step(3)
    assert in_flight(harness) == 2, "no worker is there, and none has to be"
    leave(harness, slots[0])
    harness.step(4)
    assert in_flight(harness) == 1
    harness.workers[0].ready()
    harness.step(5)
    assert harness.running() == [2]


def test_one_that_left_is_still_suspected() -> None:
    """A request whose client has left stays suspected of the worker's death.

    The worker may have died of it, so that the other request of the batch is not taken for guilty.
    """
    harness = CollectorHarness(eager(max_batch_size=9), slots=16).begin()
    harness.measure(10_000_000_000)
    slots = [harness.send(number) for number in range(9)]
    harness.step(10_000_000_001)
    harness.dies(0, 10_000_000_002)
    harness.workers[0].ready()
    harness.step(10_000_000_003)
    assert harness.running() == [0, 1, 2], "some of them together"
    leave(harness, slots[1], slots[2])
    assert not harness.dies(0, 10_000_000_004), "explained by the only one that has not left"
    harness.step(10_000_000_005)
    assert in_flight(harness) == 7


def test_the_next_collector_gives_back_requests_cancelled_under_the_last() -> None:
    harness = busy()
    kept, *gone = [harness.send(number) for number in range(3)]
    harness.step(2)
    leave(harness, *gone)
    harness.new_collector()
    harness.step(3)
    assert in_flight(harness) == 1
    leave(harness, kept)
    harness.step(4)
    assert in_flight(harness) == 0


@pytest.mark.parametrize("submitted", [False, True])
def test_the_next_owner_of_a_lane_gets_its_slots_back_though_the_worker_is_busy(
    submitted: bool,
) -> None:
    harness = busy()
    if submitted:
        for number in range(SLOTS):
            harness.send(number)
        harness.step(2)
    else:
        lane = harness.clients[0].lane
        slot = lane.claim(1, 1, 0)
        assert slot is not None
        lane.publish(slot, 0, 1, 0, FAR_NS, 1)
    heir = type(harness.clients[0])(harness.segment, 0)
    harness.clients[0] = heir
    harness.step(3)
    assert in_flight(harness) == 0


def test_a_key_of_which_nobody_is_left_is_forgotten() -> None:
    harness = CollectorHarness(fixed(), slots=SLOTS).begin()
    slots = [harness.clients[0].send(bytes([number]) * 8, key_bytes=8) for number in range(SLOTS)]
    harness.step(1)
    (model,) = harness.collector._models.values()
    assert len(model.queues) == SLOTS
    leave(harness, *slots[1:])
    harness.step(2)
    assert [len(queue) for queue in model.queues] == [1]
    assert model.queues.rows == 1


def test_words_that_name_a_wanted_request_change_nothing() -> None:
    harness = busy()
    slot = harness.send(1)
    harness.step(2)
    ref = reference(1, slot)
    harness.submit_words(ref, as_part(ref))
    harness.step(3)
    assert in_flight(harness) == 1
    harness.workers[0].finish(harness.workers[0].task())
    harness.step(4)
    assert harness.running() == [1]


def test_the_collector_is_rung_though_it_wants_no_requests() -> None:
    rung: list[None] = []
    harness = busy()
    harness.clients[0] = client = type(harness.clients[0])(
        harness.segment, 0, lambda: rung.append(None)
    )
    assert harness.collector.prepare_to_sleep()
    slot = client.send(b"1")
    assert rung == [], "no worker is idle"
    client.lane.cancel(slot)
    client.lane.submit()
    assert len(rung) == 1
    client.send(b"2")
    assert len(rung) == 1
