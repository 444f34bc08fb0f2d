"""The worker of a model on a device, stepped: tasks in, two batches under way, answers in order.

Tests engine/worker/device_worker.py and engine/worker/device_runner.py.
"""

from typing import Any

import pytest
from device_worker_harness import BAD, RUN_NS, SHORT, Site, X, Y

from ringbatch.engine.devices.batch_run import SETS
from ringbatch.engine.ipc.messages import Report, ReportKind
from ringbatch.engine.models.model import Model, RestartWorker
from ringbatch.engine.worker.codec import Place
from ringbatch.engine.worker.device_codec import DeviceCodec
from ringbatch.engine.worker.device_worker import LOOK_AGAIN_S
from ringbatch.engine.worker.memory_cap import FIRST_PATIENCE
from ringbatch.engine.worker.worker import RETRY_S, WAITED_NS
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.snapshot.status import read

DONE, FAILED = ReportKind.DONE, ReportKind.FAILED
MODEL = Model((X,), (Y,), lambda: None, lambda: None)


def test_two_batches_are_under_way_and_end_in_their_order() -> None:
    site = Site()
    one, two, three = (site.hand_over(site.send(number)) for number in (1, 2, 3))
    assert site.worker.step() == 1
    assert (site.answers(), site.held(), len(site.run.under_way)) == ([[2]], [two, three], SETS)
    assert site.done() == [(DONE, one)]
    assert site.worker.wait_s() == 0
    site.go_on()
    assert [site.worker.step() for _ in range(3)] == [1, 1, 0]
    assert (site.answers(), site.held()) == ([[4], [6]], [])
    assert site.done() == [(DONE, two), (DONE, three)]
    assert site.begun == [1, 2, 2]
    counted = {"batches": 3, "rows": 3, "run_ns": 3 * RUN_NS}
    assert read(site.segment).workers[0] == counted


def test_a_lone_batch_is_looked_at_now_and_then_until_it_has_passed() -> None:
    site = Site()
    batch = site.hand_over(site.send(1))
    for _ in range(3):
        assert site.worker.step() == 0
        assert site.worker.wait_s() == LOOK_AGAIN_S
    assert (site.answers(), site.held()) == ([], [batch])
    site.go_on()
    assert site.worker.step() == 1
    assert (site.answers(), site.worker.wait_s()) == ([[2]], None)


def test_a_batch_that_comes_while_one_is_under_way_begins_beside_it() -> None:
    site = Site()
    site.hand_over(site.send(1))
    site.worker.step()
    site.hand_over(site.send(2))
    site.worker.step()
    assert site.begun == [1, 2]
    assert site.answers() == [[2]]


def test_without_a_task_a_step_does_nothing() -> None:
    site = Site()
    assert (site.worker.step(), site.worker.wait_s(), site.done()) == (0, None, [])


def test_a_batch_that_a_worker_may_have_died_of_is_alone_on_the_device() -> None:
    """The collector blames the batch that stands first in the ring of a dead worker."""
    site = Site()
    for number, reason in enumerate((Reason.FULL, Reason.RETRY, Reason.FULL)):
        site.hand_over(site.send(number), reason=reason)
    site.go_on()
    assert [site.worker.step() for _ in range(4)] == [1, 1, 1, 0]
    assert site.begun == [1, 1, 1]
    assert site.answers() == [[0], [2], [4]]


def test_a_step_of_a_chain_runs_alone() -> None:
    site = Site(place=lambda asked: place if asked == 7 else None)
    codec = Counting(site.segment.memory, MODEL)
    place = Place(codec, 0, True, lambda _request: 0)
    for number, asked in enumerate((0, 7, 7, 0, 0)):
        site.hand_over(site.send(number), asked=asked)
    site.go_on()
    assert [site.worker.step() for _ in range(5)] == [1, 1, 1, 1, 1]
    assert site.begun == [1, 1, 1, 1, 2]
    assert codec.checked == 2, "the chain's codec is for its own batches"
    assert sorted(site.answers()) == [[0], [2], [4], [6], [8]]


class Counting(DeviceCodec):
    """Codec that counts the batches whose results it checks."""

    checked = 0

    def check(self, returned: object, rows: list[int], spare: int = 0) -> Any:
        self.checked += 1
        return super().check(returned, rows, spare)


def test_requests_given_up_while_their_batch_waits_are_not_run() -> None:
    site = Site()
    first = site.hand_over(site.send(1))
    site.worker.step()
    late = site.send(2, deadline_ns=2 * WAITED_NS)
    gone, wanted = site.send(3), site.send(4)
    second = site.hand_over(late, gone, wanted)
    site.leave(gone)
    site.now_ns = 2 * WAITED_NS
    site.go_on()
    assert [site.worker.step(), site.worker.step()] == [1, 1]
    assert sorted(status for status, _ in site.collect().values()) == [
        Status.OK,
        Status.OK,
        Status.EXPIRED,
    ]
    assert site.device.ran == ["run of 1", "run of 1"]
    assert site.take_reports()[:2] == [
        Report(ReportKind.EXPIRED, second, 1),
        Report(ReportKind.CANCELLED, second, 1),
    ]
    assert first < second


def test_a_batch_given_up_altogether_ends_in_its_turn() -> None:
    site = Site()
    first = site.hand_over(site.send(1))
    site.worker.step()
    second = site.hand_over(site.send(2, deadline_ns=1))
    third = site.hand_over(site.send(3))
    site.now_ns = 2 * WAITED_NS
    assert site.worker.step() == 1
    assert site.done() == [(ReportKind.EXPIRED, second), (DONE, first)]
    site.go_on()
    assert [site.worker.step() for _ in range(3)] == [1, 1, 0]
    assert site.done() == [(DONE, second), (DONE, third)]
    assert read(site.segment).workers[0]["batches"] == 2


def test_a_request_that_is_given_up_under_way_is_answered_by_its_run() -> None:
    site = Site()
    gone = site.send(1)
    late = site.send(2, deadline_ns=1)
    site.hand_over(gone, late)
    site.worker.step()
    site.leave(gone)
    site.now_ns = 2 * WAITED_NS
    site.hand_over(site.send(3))
    site.worker.step()
    assert sorted(site.answers()) == [[4]]
    assert not site.slots.is_open(gone)


def test_a_batch_to_run_alone_is_checked_again_before_it_runs() -> None:
    site = Site()
    site.hand_over(site.send(1))
    gone, wanted = site.send(2), site.send(3)
    site.hand_over(gone, wanted, reason=Reason.RETRY)
    site.worker._take_up()
    site.leave(gone)
    site.now_ns = 2 * WAITED_NS
    assert [site.worker.step(), site.worker.step()] == [1, 1]
    assert sorted(site.answers()) == [[2], [6]]
    assert site.device.ran == ["run of 1", "run of 1"]


def test_a_batch_that_fails_as_it_begins_is_run_by_itself_and_fails_alone() -> None:
    site = Site(on_run=lambda rows: raise_for(rows == 2))
    good = site.hand_over(site.send(1))
    bad = site.hand_over(site.send(2, 3), rows=2)
    after = site.hand_over(site.send(4))
    site.go_on()
    assert [site.worker.step() for _ in range(3)] == [1, 1, 1]
    assert site.done() == [(DONE, good), (FAILED, bad), (DONE, after)]
    assert [len(numbers) for numbers in site.answers()] == [1, 0, 1]
    assert site.begun == [1, 2, 1, 1]


def test_a_failure_of_one_is_not_the_others() -> None:
    site = Site()
    bad, good = site.hand_over(site.send(BAD)), site.hand_over(site.send(2))
    site.go_on()
    assert [site.worker.step(), site.worker.step()] == [1, 1]
    assert site.done() == [
        (ReportKind.RUNS_AGAIN, bad),
        (FAILED, bad),
        (ReportKind.RUNS_AGAIN, good),
        (DONE, good),
    ]
    assert site.answers() == [[], [4]]


def test_a_second_batch_without_memory_runs_after_the_first_and_is_not_tried_again() -> None:
    site = Site(on_run=lambda rows: short_of_memory(rows == 2 and len(site.run.under_way) > 0))
    for first in (0, 10):
        for number in range(2):
            site.hand_over(site.send(first + number, number), rows=2)
        site.go_on()
        assert [site.worker.step(), site.worker.step()] == [1, 1]
    assert site.begun == [1, 2, 1, 1, 1], "the third knows that there is no room beside it"
    assert [numbers[0] for numbers in site.answers()] == [0, 2, 20, 22]
    assert site.runner._retry.allows(2), "alone there is"
    site.device.play = lambda _options: 0
    site.hand_over(site.send(1, 2), rows=2)
    assert (site.worker.step(), len(site.run.under_way)) == (0, 1)
    site.go_on()
    assert site.worker.step() == 1
    site.hand_over(site.send(1))
    site.hand_over(site.send(1))
    site.worker.step()
    assert site.begun[-2:] == [1, 2], "smaller ones are tried"


def test_a_batch_that_is_known_to_be_too_large_is_not_begun_whole() -> None:
    site = Site()
    tried: list[int] = []

    def has_room_for_two(rows: int) -> None:
        tried.append(rows)
        short_of_memory(rows > 2)

    site.on_run = has_room_for_two
    for number in (1, 2):
        tried.clear()
        site.hand_over(site.send(1, number), site.send(3, 4), rows=4)
        site.go_on()
        assert site.worker.step() == 1
        assert site.answers() == [[2, 2 * number], [6, 8]]
        # It begins, then it runs by itself and in halves, and then the cap is known.
        assert tried == ([4, 4, 2, 2] if number == 1 else [2, 2])


def test_the_cap_is_lifted_again_by_batches_that_fit() -> None:
    site = Site()
    site.runner._retry._cap.ran_out(4)
    assert not site.runner._retry.allows(3)
    site.go_on()
    for _ in range(FIRST_PATIENCE):
        site.hand_over(site.send(1, 2), rows=2)
        site.worker.step()
        site.collect()
    assert site.runner._retry.allows(4)


def test_a_batch_that_lacks_rows_runs_again_beside_another_under_way() -> None:
    """The other one fails late, which is not to be taken for the first one's failure."""
    site = Site()
    site.hand_over(site.send(SHORT), site.send(1))
    site.hand_over(site.send(BAD))
    site.go_on()
    site.worker._take_up()
    fault, site.device.fault = site.device.fault, None
    assert fault is not None
    site.run.under_way[1].behind.synchronize = Raising(fault)  # type: ignore[method-assign]
    site.worker.step()
    assert [status for status, _ in site.collect().values()] == [Status.WRONG_COUNT, Status.OK]
    site.worker.step()
    assert [status for status, _ in site.collect().values()] == [Status.MODEL_FAILED]
    assert site.device.ran == ["run of 2", *["run of 1"] * 4]
    assert read(site.segment).workers[0]["run_ns"] <= site.now_ns, "no time counts twice"


def test_times_are_those_of_a_batch_that_stood_behind_the_other() -> None:
    site = Site()
    site.hand_over(site.send(1))
    site.hand_over(site.send(2), rows=1)
    site.worker._take_up()
    site.now_ns = 50
    site.go_on()
    site.worker.step()
    (first,) = site.clients[0].collect().values()
    ended_ns = first.answer.ran_ns
    assert (first.answer.began_ns, first.answer.gathered_ns) == (0, 0)
    site.now_ns += 30
    site.worker.step()
    (second,) = site.clients[0].collect().values()
    answer = second.answer
    assert (answer.began_ns, answer.gathered_ns) == (ended_ns, ended_ns)
    assert answer.ran_ns == site.now_ns
    spent = [report.spent for report in site.take_reports()]
    assert [one.infer_ns for one in spent] == [ended_ns, site.now_ns - ended_ns]
    assert sum(one.infer_ns for one in spent) == read(site.segment).workers[0]["run_ns"]
    site.now_ns = began_ns = site.now_ns + 100
    site.hand_over(site.send(3))
    site.worker.step()
    (third,) = site.clients[0].collect().values()
    assert third.answer.began_ns == began_ns


def test_each_batch_has_its_own_padding_and_attempts() -> None:
    site = Site(sizes=[4])
    site.hand_over(site.send(1, 2, 3), rows=3)
    site.hand_over(site.send(BAD), site.send(4))
    site.go_on()
    assert [site.worker.step(), site.worker.step()] == [1, 1]
    done = [report.spent for report in site.take_reports() if report.kind in (DONE, FAILED)]
    assert [one.padded_rows for one in done] == [1 + 1, 2 + 2 + 3 + 3]
    # Copies are in the same word as runs.
    assert [one.further_runs for one in done] == [1, 3]


def test_a_lost_device_ends_the_worker_and_leaves_its_batches_in_the_ring() -> None:
    site = Site(on_run=lambda rows: lost_for(rows == 2))
    batches = [site.hand_over(site.send(1)), site.hand_over(site.send(2, 3), rows=2)]
    with pytest.raises(RestartWorker):
        site.worker.step()
    assert (site.held(), site.collect(), site.done()) == (batches, {}, [])


@pytest.mark.parametrize("error", [RestartWorker("gone"), RuntimeError("an error of CUDA")])
def test_a_look_that_fails_ends_the_worker_or_is_left_to_the_end_of_the_batch(error: Any) -> None:
    site = Site()
    site.hand_over(site.send(1))
    site.worker.step()
    site.run.under_way[0].behind.passed = Raising(error)  # type: ignore[method-assign]
    if isinstance(error, RestartWorker):
        with pytest.raises(RestartWorker):
            site.worker.step()
    else:
        assert site.worker.step() == 1
        assert site.answers() == [[2]]


def test_batches_under_way_are_finished_before_the_memory_goes() -> None:
    site = Site()
    one, two, three = (site.hand_over(site.send(number)) for number in (1, 2, 3))
    site.worker._take_up()
    site.worker.finish_begun()
    assert (site.answers(), site.held()) == ([[2], [4]], [three])
    assert site.done() == [(DONE, one), (DONE, two)]
    site.run.close()
    assert site.device.in_memory is None


def test_a_batch_given_up_is_no_end_of_those_behind_it() -> None:
    site = Site()
    gone = site.hand_over(site.send(1, deadline_ns=1))
    kept = site.hand_over(site.send(2))
    site.now_ns = 2 * WAITED_NS
    site.worker._take_up()
    site.worker.finish_begun()
    assert site.done()[-2:] == [(DONE, gone), (DONE, kept)]


def test_batches_that_fail_entirely_are_counted_until_one_does_not() -> None:
    site = Site(on_run=lambda rows: raise_for(rows == 2))
    counted = []
    for numbers in ([1], [BAD], [SHORT], [1], [BAD]):
        site.hand_over(site.send(*numbers))
        site.go_on()
        site.worker.step()
        counted.append(site.runner._failing.batches)
    assert counted == [0, 1, 2, 0, 1]


def test_a_batch_to_run_alone_is_left_to_another_worker_at_the_end() -> None:
    site = Site()
    site.hand_over(site.send(1))
    left = site.hand_over(site.send(2), reason=Reason.RETRY)
    site.worker._take_up()
    site.worker.finish_begun()
    assert (site.answers(), site.held()) == ([[2]], [left])


def test_answers_that_find_no_room_are_posted_by_a_later_step() -> None:
    site = Site(lane_slots=1)
    ref = site.send(1)
    site.go_on()
    for _ in range(site.segment.layout.completion_words + 1):
        site.hand_over(ref)
        site.worker.step()
    assert site.worker.wait_s() == RETRY_S
    assert site.answers() == [[2]]
    site.worker.step()
    assert site.worker.wait_s() is None


class Raising:
    """A call that raises."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __call__(self) -> Any:
        raise self.error


class Refusal(Exception):
    """Error raised by a model."""


def raise_for(condition: bool) -> None:
    if condition:
        raise Refusal


def lost_for(condition: bool) -> None:
    if condition:
        raise RestartWorker("the device is gone")


def short_of_memory(condition: bool) -> None:
    if condition:
        raise MemoryError("CUDA out of memory")
