"""Tests engine/worker/steps_runner.py, engine/worker/steps_worker.py and shm/joined.py: rows that
join and end between any two steps, with the real collector."""

import json
from dataclasses import replace

import pytest
from steps_harness import StepsHarness, in_steps

from ringbatch.engine.collector import takeover
from ringbatch.engine.ipc.messages import read_tasks
from ringbatch.engine.models.model import InvalidInput
from ringbatch.frontend.metrics.exposition import EngineMetrics
from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.joined import JoinedRows
from ringbatch.shm.parts import move_deadline
from ringbatch.shm.slot import Status
from ringbatch.shm.snapshot.status import read


def test_rows_join_and_end_between_steps() -> None:
    harness = StepsHarness()
    long = harness.send(5)
    harness.step(2)
    short = harness.send(2)
    harness.finish()
    assert harness.seen == {long: [0, 1, 2, 3, 4], short: [0, 1]}
    assert harness.model.steps == [[5], [5], [5, 2], [5, 2], [5]]
    assert {harness.status(long), harness.status(short)} == {Status.OK}
    assert harness.model.ended == [(2, "done"), (5, "done")]


def test_no_more_rows_join_than_there_are_places() -> None:
    harness = StepsHarness(in_steps(places=2))
    slots = [harness.send(count) for count in (3, 1, 2, 4)]
    harness.finish()
    assert harness.model.steps == [[3, 1], [3, 2], [3, 2], [4], [4], [4], [4]]
    assert [harness.seen[slot] for slot in slots] == [[0, 1, 2], [0], [0, 1], [0, 1, 2, 3]]


def test_rows_that_come_together_begin_together() -> None:
    harness = StepsHarness()
    for count in (1, 2, 3):
        harness.send(count)
    harness.finish()
    assert harness.model.begun == [[1, 2, 3]]


def test_a_client_that_wants_no_parts_gets_one_answer() -> None:
    harness = StepsHarness()
    slot = harness.send(3, in_parts=False)
    harness.finish()
    assert json.loads(harness.replies[slot].data) == [2]


def test_a_request_has_one_row() -> None:
    harness = StepsHarness()
    slot = harness.client.send(b"[1,2]", rows=2, in_parts=True)
    harness.seen[slot] = []
    harness.finish()
    assert harness.status(slot) is Status.INVALID
    assert harness.replies[slot].data == b"a request may hold 1 instances"


def test_a_cancelled_row_leaves_before_the_next_step() -> None:
    harness = StepsHarness()
    gone, stays = harness.send(9), harness.send(4)
    harness.step(2)
    harness.cancel(gone)
    harness.finish()
    assert gone not in harness.replies
    assert harness.model.steps == [[9, 4], [9, 4], [4], [4]]
    assert harness.model.ended[0] == (9, "cancelled")
    assert harness.seen[stays] == [0, 1, 2, 3]


def test_a_row_whose_deadline_has_come_leaves() -> None:
    harness = StepsHarness()
    slot = harness.send(1_000, deadline_ns=harness.now_ns + 100_000)
    harness.finish()
    assert harness.status(slot) is Status.EXPIRED
    assert harness.model.ended == [(1_000, "deadline")]
    assert harness.seen[slot] == [*range(len(harness.seen[slot]))]


def test_a_row_that_is_given_up_at_an_earlier_deadline_leaves_for_that() -> None:
    harness = StepsHarness()
    slot = harness.send(9)
    harness.step(2)
    # A frontend does so if its client has a limit for each part.
    move_deadline(harness.client.lane, slot, harness.now_ns)
    harness.cancel(slot)
    harness.step()
    assert harness.model.steps == [[9], [9]]
    assert harness.model.ended == [(9, "deadline")]


def test_a_row_that_is_given_up_in_its_worker_is_not_begun() -> None:
    harness = StepsHarness()
    gone, stays = harness.send(9), harness.send(2)
    harness.collect()
    # Its worker has it, and has not looked.
    assert harness.live() == 0
    harness.cancel(gone)
    harness.finish()
    assert harness.model.begun == [[2]]
    assert harness.seen == {stays: [0, 1]}
    harness.collect()
    assert harness.client.lane.in_flight == 0


def test_the_row_to_blame_fails_alone_where_steps_can_be_repeated() -> None:
    harness = StepsHarness(repeatable=True, fails_for={3})
    slots = {count: harness.send(count) for count in (2, 3, 4)}
    harness.finish()
    assert harness.status(slots[3]) is Status.MODEL_FAILED
    assert harness.seen[slots[2]] == [0, 1]
    assert harness.seen[slots[4]] == [0, 1, 2, 3]
    assert sorted(harness.model.ended) == [(2, "done"), (3, "failed"), (4, "done")]


def test_rows_without_a_part_begin_again_and_step_alone() -> None:
    harness = StepsHarness(fails_for={3})
    slots = {count: harness.send(count) for count in (2, 3, 4)}
    harness.finish()
    assert harness.status(slots[3]) is Status.MODEL_FAILED
    assert harness.seen[slots[2]] == [0, 1]
    assert harness.seen[slots[4]] == [0, 1, 2, 3]
    assert sorted(harness.model.ended) == [
        (2, "done"),
        (2, "failed"),
        (3, "failed"),
        (3, "failed"),
        (4, "done"),
        (4, "failed"),
    ]


def test_rows_that_begin_again_are_alone_until_they_are_past_the_step_that_failed() -> None:
    """Together they would come to it again, for as long as anybody waits."""
    harness = StepsHarness()
    steps = harness.model.steps

    def fail() -> None:
        harness.model.fails_for = {4} if len(steps) in (3, 6) else set()

    harness.model.on_step = fail
    slots = {count: harness.send(count, in_parts=False) for count in (4, 5)}
    harness.finish()
    assert harness.model.begun == [[4, 5], [4], [5]]
    assert steps == [[4, 5]] * 3 + [[4]] * 3 + [[5]] * 3 + [[5]] * 2
    assert harness.status(slots[4]) is Status.MODEL_FAILED
    assert json.loads(harness.replies[slots[5]].data) == [4]


def test_a_row_with_a_part_out_fails_with_the_step() -> None:
    """Nobody knows what its state is, and its client has begun to read."""
    harness = StepsHarness()
    early = harness.send(5)
    harness.step(2)
    harness.model.fails_for = {3}
    late, guilty = harness.send(2), harness.send(3)
    harness.finish()
    assert harness.status(early) is Status.MODEL_FAILED
    assert harness.seen[early] == [0, 1]
    assert harness.status(guilty) is Status.MODEL_FAILED
    assert harness.seen[late] == [0, 1]


def test_the_fault_of_one_row_is_no_word_for_another() -> None:
    harness = StepsHarness()
    early = harness.send(5)
    harness.step(2)
    harness.send(3)

    def refuse() -> None:
        if len(harness.model.steps[-1]) > 1:
            raise InvalidInput("3 is a secret")

    harness.model.on_step = refuse
    harness.finish()
    assert harness.status(early) is Status.MODEL_FAILED
    assert b"secret" not in bytes(harness.segment.memory)


def test_a_row_with_a_part_out_is_cut_off_by_the_step_if_it_can_be_resumed() -> None:
    """Its client's side sends it again, while others begin again and the one to blame fails."""
    harness = StepsHarness(in_steps(resumes=(("y", "so_far"),)))
    early = harness.send(5)
    harness.step(2)
    harness.model.fails_for = {3}
    late, guilty = harness.send(2), harness.send(3)
    harness.finish()
    assert harness.status(early) is Status.CUT_OFF
    assert harness.seen[early] == [0, 1]
    assert harness.status(guilty) is Status.MODEL_FAILED
    assert harness.seen[late] == [0, 1]


def test_a_row_that_goes_on_behind_its_last_part_ends_without_another() -> None:
    harness = StepsHarness(in_steps(resumes=(("y", "so_far"),)), done={4})
    slots = [harness.send(count) for count in (4, 2, 4)]
    whole = harness.send(4, in_parts=False)
    harness.finish()
    assert [harness.seen[slot] for slot in slots] == [[], [0, 1], []]
    assert [harness.status(slot) for slot in slots] == [Status.OK] * 3
    # It has no part that it could go on behind.
    assert harness.status(whole) is Status.MODEL_FAILED
    assert b"begin returned None" in harness.replies[whole].data


def test_none_is_a_state_as_any_other_where_nothing_is_resumed() -> None:
    harness = StepsHarness(done={4})
    harness.send(4)
    harness.step(2)
    assert harness.model.steps == [[None]]


def test_a_row_that_fails_alone_is_not_cut_off() -> None:
    """To run it again would come to the same."""
    harness = StepsHarness(in_steps(resumes=(("y", "so_far"),)))
    alone = harness.send(5)
    harness.step(2)
    harness.model.fails_for = {5}
    harness.finish()
    assert harness.status(alone) is Status.MODEL_FAILED


def test_a_step_that_has_returned_is_not_repeated() -> None:
    """The states have changed, and the parts of that step would be missing."""
    harness = StepsHarness(repeatable=True)
    slots = [harness.send(5) for _ in range(2)]
    harness.step(2)
    harness.model.is_short = True
    harness.step()
    harness.model.is_short = False
    harness.finish()
    assert {harness.status(slot) for slot in slots} == {Status.WRONG_COUNT}
    assert [harness.seen[slot] for slot in slots] == [[0, 1]] * 2
    assert len(harness.model.steps) == 3


def test_a_row_that_cannot_begin_fails_alone() -> None:
    harness = StepsHarness(refuses={7})
    slots = {count: harness.send(count) for count in (2, 7, 3)}
    harness.finish()
    assert harness.status(slots[7]) is Status.MODEL_FAILED
    assert harness.model.begun == [[2, 7, 3], [2], [7], [3]]
    assert harness.seen[slots[2]] == [0, 1]


def test_an_end_that_raises_costs_nobody_anything() -> None:
    harness = StepsHarness()
    harness.model.end = None  # type: ignore[method-assign, assignment]
    harness.start_worker(0)
    slots = [harness.send(count) for count in (1, 2)]
    harness.finish()
    assert [harness.status(slot) for slot in slots] == [Status.OK, Status.OK]


def test_places_of_rows_that_end_together_are_free_before_the_next_step() -> None:
    harness = StepsHarness(in_steps(places=60))
    for _ in range(60):
        harness.send(1)
    harness.finish()
    for _ in range(60):
        harness.send(2)
    harness.step()
    assert harness.model.steps[-1] == [2] * 60


def test_more_rows_may_end_with_one_step_than_the_ring_has_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for end in ("worker.worker", "collector.reports"):
        monkeypatch.setattr(f"ringbatch.engine.{end}.REPORT_WORDS", 1 << 8)
    harness = StepsHarness(in_steps(places=60))
    slots = [harness.send(1) for _ in range(60)]
    harness.finish()
    assert {harness.status(slot) for slot in slots} == {Status.OK}
    harness.step(3)
    again = [harness.send(2) for _ in range(60)]
    harness.finish()
    assert [harness.seen[slot] for slot in again] == [[0, 1]] * 60
    assert harness.model.steps[-1] == [2] * 60, "all places were free again"


def test_slots_name_their_worker_before_its_ring_lets_go() -> None:
    harness = StepsHarness()
    slots = [harness.send(3), harness.send(4)]
    harness.collect()
    worker = harness.workers[0]
    seen = []

    def begin(instances: list[int]) -> list[int]:
        held = takeover.held_by_all(harness.segment)[0]
        seen.append((read_tasks(worker._tasks.peek()), held))
        raise ValueError

    object.__setattr__(worker._stepped._steps, "begin", begin)
    worker.step()
    (ring, held), *_ = seen
    assert ring == []
    assert held is not None
    assert [ref & 0xFFFFFF for task in held for ref in task.references] == slots
    assert [task.mark.rows for task in held] == [1, 1]


def test_a_new_collector_finds_the_live_rows() -> None:
    harness = StepsHarness(in_steps(places=2))
    slots = [harness.send(count) for count in (6, 2, 3)]
    harness.step()
    harness.new_collector()
    harness.finish()
    assert [harness.seen[slot] for slot in slots] == [[*range(6)], [0, 1], [0, 1, 2]]
    assert harness.model.steps == [[6, 2], [6, 2], [6, 3], [6, 3], [6, 3], [6]]
    assert harness.collector.in_flight == 0


def test_a_row_with_a_part_out_does_not_begin_again_when_its_collector_is_gone_too() -> None:
    harness = StepsHarness()
    slot = harness.send(5)
    harness.step(2)
    del harness.workers[0]
    harness.segment.worker_ended(0)
    takeover.reclaim(harness.segment, 0)
    harness.new_collector()
    harness.start_worker(0)
    harness.finish()
    assert harness.status(slot) is Status.CUT_OFF
    assert harness.seen[slot] == [0, 1]
    assert harness.model.begun == [[5]]


@pytest.mark.parametrize("steps", range(5))
def test_collectors_may_follow_one_another_at_any_time(steps: int) -> None:
    harness = StepsHarness(in_steps(places=2))
    slots = [harness.send(count) for count in (1, 2, 3, 4)]
    for _ in range(steps):
        harness.step()
        harness.new_collector()
    harness.finish()
    assert [harness.seen[slot] for slot in slots] == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]


def test_rows_of_a_dead_worker_run_elsewhere_where_nothing_of_them_is_out() -> None:
    harness = StepsHarness(in_steps(places=2, workers=(0, 1)))
    begun = harness.send(5)
    harness.step(2)
    whole = harness.send(3, in_parts=False)
    harness.step()
    holder = next(
        number for number in (0, 1) if harness.live(number) and 5 in _starts(harness, number)
    )
    other = 1 - holder
    assert _starts(harness, other) == {3}
    harness.kill(other)
    harness.finish()
    assert harness.seen[begun] == [*range(5)]
    assert json.loads(harness.replies[whole].data) == [2]


def test_a_row_with_a_part_out_is_cut_off_by_its_workers_death() -> None:
    harness = StepsHarness()
    begun, whole = harness.send(5), harness.send(3, in_parts=False)
    harness.step(2)
    harness.kill(0)
    harness.start_worker(0)
    harness.finish()
    assert harness.status(begun) is Status.CUT_OFF
    assert harness.seen[begun] == [0, 1]
    assert json.loads(harness.replies[whole].data) == [2]


def test_nothing_joins_requests_that_run_again() -> None:
    harness = StepsHarness(in_steps(places=4))
    first = [harness.send(3, in_parts=False) for _ in range(2)]
    harness.step()
    harness.kill(0)
    late = harness.send(2)
    harness.start_worker(0)
    before = len(harness.model.steps)
    harness.finish()
    assert [harness.status(slot) for slot in (*first, late)] == [Status.OK] * 3
    assert not any({2, 3} <= {*rows} for rows in harness.model.steps[before:])


def test_a_row_that_kills_every_worker_is_found_and_given_up() -> None:
    harness = StepsHarness(in_steps(places=8))
    slots = {count: harness.send(count, in_parts=False) for count in (2, 3, 4, 5)}
    for _ in range(100):
        if slots[4] in harness.replies:
            break
        harness.collect()
        worker = harness.workers[0]
        worker._take_tasks()
        if any(row.request.ref & 0xFFFFFF == slots[4] for row in worker._stepped._rows.values()):
            harness.kill(0)
            harness.start_worker(0)
        else:
            worker.step()
            harness.read()
    assert harness.status(slots[4]) is Status.WORKER_DIED
    harness.finish()
    assert {harness.status(slots[count]) for count in (2, 3, 5)} == {Status.OK}


def test_the_next_process_of_a_number_holds_nothing() -> None:
    """Or a later collector would believe that it runs the row, and nobody would."""
    harness = StepsHarness()
    slot = harness.send(3, in_parts=False)
    harness.step()
    assert JoinedRows(harness.segment).by_worker().keys() == {0}
    harness.kill(0)
    assert JoinedRows(harness.segment).by_worker() == {}
    harness.collector = harness.new_collector()
    harness.start_worker(0)
    harness.finish()
    assert harness.status(slot) is Status.OK


def test_a_later_request_in_a_slot_is_not_taken_for_held() -> None:
    harness = StepsHarness()
    slot = harness.send(1)
    harness.finish()
    joined = harness.segment.words[harness.segment.layout.slot(slot) + SlotWords.JOINED]
    assert joined
    while harness.send(1) != slot:
        harness.finish()
    assert JoinedRows(harness.segment).by_worker() == {}
    harness.new_collector()
    harness.finish()
    assert harness.status(slot) is Status.OK


def test_a_slot_whose_request_is_answered_is_left_alone_when_its_worker_dies() -> None:
    """Another worker may be about to hold the next request in it."""
    harness = StepsHarness()
    slot = harness.send(1)
    harness.finish()
    word = harness.segment.layout.slot(slot) + SlotWords.JOINED
    joined = harness.segment.words[word]
    harness.kill(0)
    assert harness.segment.words[word] == joined


def test_places_change_while_rows_are_live() -> None:
    harness = StepsHarness(in_steps(places=3))
    slots = [harness.send(4) for _ in range(3)]
    harness.step()
    harness.segment.model_table.publish((replace(harness.entry, places=1),))
    more = [harness.send(2) for _ in range(2)]
    harness.finish()
    assert [harness.seen[slot] for slot in (*slots, *more)] == [[*range(4)]] * 3 + [[0, 1]] * 2
    assert harness.model.steps[4:] == [[2]] * 4


def test_a_spare_stays_a_spare_when_the_table_changes() -> None:
    harness = StepsHarness(in_steps(places=2, workers=(0, 1), spares=1))
    spare = harness.collector._workers[1]
    assert spare in spare.model.roster.spares
    harness.segment.model_table.publish((replace(harness.entry, timeout_ns=1 << 60),))
    slots = [harness.send(2) for _ in range(3)]
    harness.finish()
    assert [harness.seen[slot] for slot in slots] == [[0, 1]] * 3
    assert spare in spare.model.roster.spares
    assert harness.models[1].steps == []


def test_rows_that_join_give_a_worker_that_hangs_no_more_time() -> None:
    timeout_ns = 1_000_000
    harness = StepsHarness(in_steps(places=4, batch_timeout_ns=timeout_ns))
    for _ in range(3):
        harness.send(2)
        harness.collect()
        harness.now_ns += timeout_ns // 2
    harness.collect()
    assert harness.ended == [0]


def test_live_rows_are_seen() -> None:
    harness = StepsHarness(in_steps(places=3))
    for _ in range(2):
        harness.send(3)
    harness.step()
    assert "2 of 3 rows live" in read(harness.segment).states[0]
    families = EngineMetrics(harness.segment, "1").collect({})
    lines = {family.name: family._lines for family in families}
    assert lines["ringbatch_model_live_rows"] == [
        'ringbatch_model_live_rows{model="m",version="1"} 2\n'
    ]
    assert lines["ringbatch_model_row_places"] == [
        'ringbatch_model_row_places{model="m",version="1"} 3\n'
    ]
    harness.finish()
    assert "0 of 3 rows live" in read(harness.segment).states[0]


def _starts(harness: StepsHarness, number: int) -> set[int]:
    return {row.state.start for row in harness.workers[number]._stepped._rows.values()}
