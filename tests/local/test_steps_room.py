"""Tests engine/worker/steps_runner.py: rows whose parts find no room in their rings."""

from steps_harness import StepsHarness

from ringbatch.engine.worker.parts_runner import PATIENCE_NS
from ringbatch.shm.layout import ALIGNMENT
from ringbatch.shm.slot import Status


def test_a_row_without_room_pauses_and_the_others_go_on() -> None:
    harness = StepsHarness()
    slow = harness.send(40, result_bytes=512)
    quick = harness.send(30)
    seen = harness.seen.pop(slow)
    harness.step(30)
    assert harness.seen[quick] == [*range(30)]
    assert sum(40 in rows for rows in harness.model.steps) < 10
    harness.seen[slow] = seen
    harness.finish()
    assert harness.seen[slow] == [*range(40)]


def test_a_row_that_has_had_no_room_is_as_patient_the_next_time() -> None:
    harness = StepsHarness()
    slow = harness.send(40, result_bytes=512)
    seen = harness.seen.pop(slow)
    for _ in range(3):
        harness.step(10)
        assert harness.workers[0].wait_s(), "its parts wait"
        harness.now_ns += PATIENCE_NS * 2 // 3
        harness.seen[slow] = seen
        harness.step()
        assert slow not in harness.replies
        harness.seen.pop(slow)
    harness.seen[slow] = seen
    harness.finish()
    assert harness.seen[slow] == [*range(40)]


def test_a_part_of_more_than_half_of_its_ring_is_asked_for_again() -> None:
    """The next one might never find room, though this one does."""
    harness = StepsHarness()
    small = harness.send(3, result_bytes=2 * ALIGNMENT)
    enough = harness.send(3, result_bytes=4 * ALIGNMENT)
    harness.finish()
    assert harness.status(small) is Status.RESULT_TOO_LARGE
    assert harness.seen[small] == []
    assert harness.replies[small].answer.size == 4 * ALIGNMENT
    assert harness.seen[enough] == [0, 1, 2]


def test_no_part_overtakes_those_that_wait() -> None:
    harness = StepsHarness()
    slow = harness.send(40, result_bytes=512)
    harness.seen.pop(slow)
    harness.step(10)
    (row,) = harness.workers[0]._stepped._rows.values()
    assert row.stream is not None
    assert row.stream.waits
    assert harness.client.parts(slow), "there is room from here on"
    assert not row.stream.put_at_once(b"[99]")
    assert row.stream.write_waiting()
    assert b"[99]" not in harness.client.parts(slow)
    assert row.stream.put_at_once(b"[99]")
    assert harness.client.parts(slow) == [b"[99]"]


def test_a_row_that_leaves_while_its_parts_wait_holds_up_nothing() -> None:
    harness = StepsHarness()
    slow = harness.send(40, result_bytes=512)
    harness.seen.pop(slow)
    harness.step(10)
    harness.client.lane.cancel(slow)
    harness.client.lane.submit()
    harness.step()
    assert harness.model.ended == [(40, "cancelled")]
    assert not harness.workers[0]._stepped._held_up
    other = harness.send(3)
    harness.finish()
    assert harness.seen[other] == [0, 1, 2]


def test_a_frontend_that_takes_no_parts_is_given_up() -> None:
    harness = StepsHarness()
    slow = harness.send(40, result_bytes=512)
    harness.seen.pop(slow)
    harness.step(20)
    assert harness.workers[0].wait_s()
    harness.now_ns += PATIENCE_NS
    harness.step()
    assert harness.replies[slow].answer.status is Status.CORRUPT
    assert harness.model.ended == [(40, "failed")]
