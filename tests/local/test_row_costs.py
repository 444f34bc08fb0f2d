"""Tests engine/worker/join_limits.py in a worker: rows that wait until all that they cost fits."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steps_harness import NumberedCountdown, StepsHarness, in_steps

from ringbatch.engine.collector.backlog import estimate
from ringbatch.engine.models.model import InvalidInput
from ringbatch.engine.worker.parts_runner import PATIENCE_NS, PAUSE_S
from ringbatch.frontend.metrics.exposition import EngineMetrics
from ringbatch.shm.account import NOBODY
from ringbatch.shm.descriptors import WorkerWords
from ringbatch.shm.slot import Status
from ringbatch.shm.snapshot.status import read

MOST = 10


def costly(places: int = 8, workers: tuple[int, ...] = (0,), **more: Any) -> StepsHarness:
    """Return an engine whose rows cost as many as they have parts, and 10 of all live ones."""
    return StepsHarness(in_steps(places, workers), most_cost=MOST, **more)


def test_rows_begin_while_their_costs_fit() -> None:
    harness = costly()
    slots = [harness.send(count) for count in (4, 5, 2, 1)]
    harness.finish()
    assert harness.model.begun == [[4, 5], [2, 1]]
    assert harness.model.steps == [[4, 5]] * 4 + [[5, 2, 1], [2]]
    assert [harness.seen[slot] for slot in slots] == [[*range(n)] for n in (4, 5, 2, 1)]


def test_a_costly_row_holds_back_those_behind_it() -> None:
    """Else rows that cost little could go before it for ever."""
    harness = costly()
    harness.send(3)
    harness.step()
    large = harness.send(10)
    for _ in range(5):
        harness.send(1)
        harness.step()
    assert harness.starts() == [10]
    assert harness.model.begun == [[3], [10]]
    harness.finish()
    assert harness.seen[large] == [*range(10)]


def test_a_row_that_can_never_begin_is_refused() -> None:
    harness = costly()
    slots = {count: harness.send(count) for count in (2, 11, 10)}
    harness.finish()
    assert harness.status(slots[11]) is Status.INVALID
    words = b"model 'm': the request costs 11, and max_batch_cost is 10"
    assert harness.replies[slots[11]].data == words
    assert harness.seen[slots[2]] == [0, 1]
    assert harness.seen[slots[10]] == [*range(10)]
    assert harness.model.begun == [[2], [10]]


@pytest.mark.parametrize(
    ("cost", "status", "words"),
    [
        (InvalidInput("too long"), Status.INVALID, "too long"),
        (ValueError("x"), Status.MODEL_FAILED, "model 'm' raised ValueError"),
        (-1, Status.MODEL_FAILED, "cost returned -1, but it must be a number from 0 up"),
        ("much", Status.MODEL_FAILED, "cost returned 'much'"),
    ],
)
def test_an_invalid_cost_fails_its_row_alone(cost: Any, status: Status, words: str) -> None:
    harness = costly(costs={3: cost})
    slots = {count: harness.send(count) for count in (2, 3, 4)}
    harness.finish()
    assert harness.status(slots[3]) is status
    assert words in harness.replies[slots[3]].data.decode()
    assert harness.model.begun == [[2, 4]]
    assert harness.status(slots[2]) is harness.status(slots[4]) is Status.OK


def test_a_row_that_waits_may_be_cancelled_and_expire() -> None:
    harness = costly()
    live, gone = harness.send(8), harness.send(7)
    late = harness.send(6, deadline_ns=harness.now_ns + 100_000)
    small = harness.send(2)
    harness.step()
    assert harness.workers[0]._stepped.held == 4
    harness.cancel(gone)
    harness.step()
    harness.now_ns += 100_000
    harness.step()
    # It was behind both.
    assert harness.starts() == [8, 2]
    harness.finish()
    assert harness.status(late) is Status.EXPIRED
    assert harness.seen[live] == [*range(8)]
    assert harness.seen[small] == [0, 1]
    # What has not begun has no state to end.
    assert sorted(harness.model.ended) == [(2, "done"), (8, "done")]


def test_a_row_goes_where_there_is_most_room() -> None:
    harness = costly(workers=(0, 1), costs={19: 1, 15: 5, 12: 2, 11: 1})
    given = []
    for count in (19, 15, 12, 12, 11, 11):
        before = [*harness.starts(0)]
        harness.send(count)
        harness.step()
        given.append(int(harness.starts(0) == before))
    first = given[0]
    assert given == [first, 1 - first, *[first] * 4]


def test_a_row_that_costs_less_than_others_begins_beside_them() -> None:
    harness = costly()
    for count in (7, 3):
        harness.send(count)
        harness.step()
    assert harness.starts() == [7, 3]
    harness.finish()


def test_rows_beyond_the_room_wait_for_the_first_worker_that_has_it() -> None:
    harness = costly(workers=(0, 1), costs=dict.fromkeys((2, 3, 4, 9), 10))
    long = harness.send(9)
    harness.step()
    short = harness.send(4)
    harness.step()
    busy = next(number for number in (0, 1) if harness.starts(number) == [9])
    assert harness.starts(1 - busy) == [4]
    waiting = [harness.send(3), harness.send(2)]
    harness.step()
    # Neither has been given to a worker that is full.
    assert [harness.workers[number]._stepped.held for number in (0, 1)] == [1, 1]
    harness.step(3)
    assert short in harness.replies
    assert harness.starts(1 - busy) == [3]
    harness.finish()
    assert harness.models[1 - busy].begun[:2] == [[4], [3]]
    assert [harness.seen[slot] for slot in (long, *waiting)] == [[*range(n)] for n in (9, 3, 2)]


def test_none_comes_in_the_place_of_one_that_leaves_no_room() -> None:
    """However soon the collector looks."""
    harness = costly(costs={4: 5, 6: 6, 9: 5})
    for count in (4, 9, 6):
        harness.send(count)
    harness.step(3)
    assert harness.workers[0]._stepped.held == 3
    small = harness.send(1)
    harness.collect()
    harness.workers[0]._wake_collector = harness.collect
    harness.workers[0].step()
    assert harness.starts() == [9]
    assert harness.workers[0]._tasks.peek() == []
    harness.workers[0]._wake_collector = lambda: None
    harness.finish()
    assert harness.seen[small] == [0]


def test_a_retried_row_goes_to_a_worker_without_rows() -> None:
    """Even if another has more free places: it may kill the worker."""
    harness = costly(workers=(0, 1), costs={3: 0.5, 8: 9})
    small = harness.send(3)
    harness.step()
    large = harness.send(8, in_parts=False)
    harness.step()
    first = next(number for number in (0, 1) if harness.starts(number) == [3])
    workers = harness.collector._workers
    # By the word of a worker that has had large rows, few fit.
    workers[1 - first].most_rows = lambda: 1
    assert workers[first].free_places > 1
    harness.kill(1 - first)
    harness.start_worker(1 - first)
    harness.step()
    assert harness.starts(1 - first) == [8]
    harness.finish()
    assert harness.status(small) is harness.status(large) is Status.OK


def test_the_next_process_of_a_worker_begins_without_costs() -> None:
    harness = costly()
    harness.send(9, in_parts=False)
    harness.step()
    words, first = harness.segment.words, harness.segment.layout.worker(0)
    found = (WorkerWords.LIVE_ROWS, WorkerWords.MOST_ROWS, WorkerWords.LIVE_COST)
    assert [words[first + word] for word in found] == [1, 2, 9]
    harness.kill(0)
    harness.start_worker(0)
    assert [words[first + word] for word in found] == [0, 0, 0]
    harness.finish()


def test_the_time_that_a_row_would_take_counts_places_by_costs() -> None:
    harness = costly(costs={2: 10})
    for _ in range(3):
        harness.send(2)
    harness.finish()
    (model,) = harness.collector._models.values()
    assert model.times.cycle_ns
    assert (model.roster.row_places, model.spec.places) == (1, 8)
    assert model.expected(8) == estimate(8, 1, 1, 1, model.times.cycle_ns, 0, 0, NOBODY, 0)


def test_a_worker_that_holds_more_than_it_can_has_no_free_place() -> None:
    harness = costly(costs={1: 1, 9: 5})
    for _ in range(2):
        harness.send(9)
    harness.step()
    worker = harness.collector._workers[0]
    worker.most_rows = lambda: 1
    assert (len(worker.batches), worker.free_places, worker.has_place) == (2, 0, False)


def test_a_new_collector_knows_how_many_rows_a_worker_can_hold() -> None:
    harness = costly(costs={9: 10, 2: 10})
    harness.send(9)
    harness.step()
    waiting = [harness.send(2) for _ in range(3)]
    harness.new_collector()
    harness.step()
    assert harness.workers[0]._stepped.held == 1
    harness.finish()
    assert [harness.seen[slot] for slot in waiting] == [[0, 1]] * 3


def test_rows_that_wait_in_a_worker_that_dies_begin_elsewhere() -> None:
    harness = costly()
    live = harness.send(9)
    waiting = [harness.send(2), harness.send(3)]
    harness.step()
    assert harness.starts() == [9]
    harness.kill(0)
    harness.start_worker(0)
    harness.finish()
    assert harness.status(live) is Status.CUT_OFF
    assert [harness.seen[slot] for slot in waiting] == [[0, 1], [0, 1, 2]]


def test_a_worker_whose_rows_all_wait_does_not_spin() -> None:
    harness = costly(costs={40: 9})
    slow, other = harness.send(40, result_bytes=512), harness.send(3)
    seen = harness.seen.pop(slow)
    harness.step(20)
    assert harness.workers[0]._stepped.held == 2
    assert harness.workers[0].wait_s() == PAUSE_S
    harness.seen[slow] = seen
    harness.now_ns += PATIENCE_NS // 2
    harness.finish()
    assert harness.seen[other] == [0, 1, 2]


def test_only_so_many_rows_begin_between_two_steps() -> None:
    harness = StepsHarness(in_steps(places=8), most_joining=2)
    slots = [harness.send(3) for _ in range(5)]
    harness.finish()
    assert harness.model.begun == [[3, 3], [3, 3], [3]]
    assert [len(rows) for rows in harness.model.steps] == [2, 4, 5, 3, 1]
    assert [harness.seen[slot] for slot in slots] == [[0, 1, 2]] * 5


def test_costs_are_seen() -> None:
    harness = costly(costs={3: 2.5})
    harness.send(3)
    harness.step()
    assert "1 of 8 rows live, of cost 3" in read(harness.segment).states[0]
    families = EngineMetrics(harness.segment, "1").collect({})
    lines = {family.name: family._lines for family in families}
    assert lines["ringbatch_model_live_cost"] == [
        'ringbatch_model_live_cost{model="m",version="1"} 3\n'
    ]
    harness.finish()
    assert "0 of 8 rows live, of cost 0" in read(harness.segment).states[0]


def test_places_may_be_fewer_than_costs_allow() -> None:
    harness = costly(places=2, costs={1: 0.5})
    for _ in range(4):
        harness.send(1)
    harness.step()
    harness.segment.model_table.publish((replace(harness.entry, places=1),))
    more = [harness.send(2, in_parts=False) for _ in range(2)]
    harness.finish()
    assert [json.loads(harness.replies[slot].data) for slot in more] == [[1]] * 2
    assert harness.model.steps[-4:] == [[2]] * 4


@given(st.data())
def test_live_rows_never_cost_too_much_and_each_has_its_turn(data: st.DataObject) -> None:
    """Requests join, fail, are cancelled and die in any order."""
    workers = (0, 1)
    harness = costly(
        places=data.draw(st.integers(1, 5)),
        workers=workers,
        repeatable=data.draw(st.booleans()),
        refuses={7},
        most_joining=data.draw(st.sampled_from([0, 0, 1, 2])),
        make=data.draw(st.sampled_from([NumberedCountdown, type(costly().model)])),
    )
    for model in harness.models.values():

        def look(model: Any = model) -> None:
            assert sum(start for start in model.steps[-1]) <= MOST

        model.on_step = look
    slots: dict[int, None] = {}
    for _ in range(data.draw(st.integers(1, 15))):
        action = data.draw(st.sampled_from(["send", "send", "step", "fail", "cancel", "kill"]))
        if action == "send":
            slots[harness.send(data.draw(st.integers(1, 12)))] = None
        elif action == "cancel" and slots:
            slot, _ = slots.popitem()
            if slot not in harness.replies:
                harness.cancel(slot)
        elif action == "kill":
            number = data.draw(st.sampled_from(workers))
            harness.models[number].rows = {}  # type: ignore[attr-defined]
            harness.kill(number, killed=True)
            harness.start_worker(number)
        else:
            for model in harness.models.values():
                model.fails_for = {data.draw(st.integers(1, 7))} if action == "fail" else set()
            harness.step()
    for model in harness.models.values():
        model.fails_for = set()
    harness.finish()
    harness.step(2)
    assert [worker._stepped.held for worker in harness.workers.values()] == [0, 0]
