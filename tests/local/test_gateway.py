"""The gateway and the service on it: who gets which answer when, and what is refused."""

import asyncio
import math
import struct
import time
from pathlib import Path

import orjson
import pytest
from frontend_harness import SECOND_NS, TIMEOUT_NS, FrontendHarness, predictions, typed, untyped

from ringbatch.frontend.codec.outcome import Answer
from ringbatch.frontend.codec.payload import LazyBytes, LazyPart
from ringbatch.frontend.request.calls import Call
from ringbatch.frontend.request.gateway import BUNCH, RESWEEP_NS, SWEEP_NS, Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.frontend.request.task import Task
from ringbatch.shm.batch_ids import BatchIds
from ringbatch.shm.bell import Bell
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.engine_port import BatchMark
from ringbatch.shm.errors import InvalidRequest, ModelNotReady
from ringbatch.shm.lane import Lane
from ringbatch.shm.slot import Reason, Status


class Gone(LazyBytes):
    """Bytes that were there when they were promised."""

    def __len__(self) -> int:
        return 8

    def read_into(self, memory: memoryview) -> None:
        memory[:4] = b"half"
        raise InvalidRequest("gone")


def test_what_cannot_be_read_into_its_slot_leaves_the_slot_free() -> None:
    harness = FrontendHarness(typed())
    model = harness.service.model(harness.name)
    for number in range(3 * harness.lane.capacity):
        task = Task(
            model, model.v1.rows, harness.replies.to(number), 0, TIMEOUT_NS, model.tallies[0]
        )
        with pytest.raises(InvalidRequest, match="gone"):
            task.send(harness.service.engine, LazyPart(1, Gone(), 0), 64)
    assert harness.lane.in_flight == 0
    harness.loop.turn()
    assert harness.submitted.take() == []


def test_answers_reach_their_own_callers_whatever_their_order() -> None:
    harness = FrontendHarness(untyped())
    for number in range(5):
        harness.predict(number, [f"value {number}"])
    harness.loop.turn()
    for request in reversed(harness.taken()):
        harness.answer([request])
    harness.gateway.collect()
    assert {n: predictions(harness, n) for n in range(5)} == {n: [f"value {n}"] for n in range(5)}
    assert harness.lane.in_flight == 0


def test_tensors_go_in_and_come_out() -> None:
    harness = FrontendHarness(typed())
    harness.predict(0, [[1, 2], [3, 4.5]])
    harness.loop.turn()
    harness.answer(harness.taken())
    harness.gateway.collect()
    assert predictions(harness, 0) == [[1, 2], [3, 4.5]]


def test_a_request_in_column_format_is_answered_in_it() -> None:
    harness = FrontendHarness(typed())
    body = b'{"inputs":{"x":[[1,2],[3,4.5]]}}'
    harness.service.predict(harness.name, body, harness.replies.to(0))
    harness.loop.turn()
    harness.answer(harness.taken())
    harness.gateway.collect()
    status, answer, _ = harness.replies.got[0]
    assert (status, answer["outputs"]) == (200, [[1, 2], [3, 4.5]])


@pytest.mark.parametrize("result", [b"", b"1234", bytes(16), struct.pack("<2f", 1, math.nan)])
def test_a_result_that_is_not_what_the_signature_says_fails_and_costs_no_slot(
    result: bytes,
) -> None:
    harness = FrontendHarness(typed())
    for number in range(3 * harness.lane.capacity):
        harness.predict(number, [[1, 2]])
        harness.loop.turn()
        (request,) = harness.taken()
        start = request.result_offset
        harness.segment.memory[start : start + len(result)] = result
        mark = BatchMark(number, 1, Reason.IDLE, 0)
        harness.port.answer(request.ref, Status.OK, len(result), mark, 0)
        harness.port.flush()
        harness.gateway.collect()
        assert harness.replies.got[number][0] == 500
    assert harness.lane.in_flight == 0


def test_requests_of_one_turn_are_submitted_together() -> None:
    harness = FrontendHarness(untyped())
    for number in range(5):
        harness.predict(number, [number])
    assert harness.wakes == 0
    harness.loop.turn()
    assert harness.wakes == 1
    assert len(harness.taken()) == 5


def test_a_long_turn_is_cut_where_half_of_what_is_in_flight_waits() -> None:
    harness = FrontendHarness(untyped(), slots=64)
    submitted = []
    for number in range(40):
        harness.predict(number, [number])
        submitted.append(harness.submitted.waiting)
        harness.answer(harness.taken())
    # Answers are passed on at the same occasion, so that little is in flight.
    assert submitted.count(True) == 4
    assert submitted.index(True) == BUNCH
    assert len(harness.replies.got) == 3 * BUNCH, "those of the last cut are still to be found"
    harness.loop.turn()
    harness.answer(harness.taken())
    harness.gateway.collect()
    assert {n: predictions(harness, n) for n in range(40)} == {n: [n] for n in range(40)}


def test_with_more_in_flight_a_turn_is_cut_later() -> None:
    harness = FrontendHarness(untyped(), slots=64)
    for number in range(48):
        harness.predict(number, [number])
    harness.loop.turn()
    before = harness.wakes
    harness.taken()
    for number in range(48, 60):
        harness.predict(number, [number])
    assert harness.wakes == before, "24 are half of what is in flight"


def test_no_turn_is_cut_inside_a_request_of_several_parts() -> None:
    harness = FrontendHarness(untyped(max_batch_size=1), slots=64)
    harness.predict(0, list(range(3 * BUNCH)))
    whole = harness.submitted.waiting
    harness.predict(1, ["next"])
    assert (whole, harness.submitted.waiting) == (False, True)
    harness.loop.turn()
    harness.answer(harness.taken())
    harness.gateway.collect()
    assert predictions(harness, 0) == list(range(3 * BUNCH))


def expecting(harness: FrontendHarness, answer_s: float, row_ns: int = 0) -> None:
    """The collector has published how long an answer takes."""
    first = harness.segment.layout.model(0)
    harness.segment.words[first + ModelWords.ROW_NS] = row_ns
    harness.segment.words[first + ModelWords.ANSWER_NS] = int(answer_s * SECOND_NS)


@pytest.mark.parametrize(("answer_s", "retry_after"), [(8.9, "1"), (10, "2"), (16, "8")])
def test_what_would_be_answered_too_late_is_refused_at_once(
    answer_s: float, retry_after: str
) -> None:
    harness = FrontendHarness(untyped(timeout_ns=10 * SECOND_NS))
    expecting(harness, answer_s)
    harness.predict(0, [0])
    status, body, headers = harness.replies.got[0]
    assert status == 503
    words = f"so many requests wait that an answer would take {answer_s:.1f} s"
    assert body == {"error": f"{words}, too long for timeout_s = 10"}
    assert headers["retry-after"] == retry_after
    assert harness.count(LaneCounter.REFUSED) == 1
    assert harness.lane.in_flight == 0


def test_what_can_be_answered_in_time_is_not_refused() -> None:
    harness = FrontendHarness(untyped(timeout_ns=10 * SECOND_NS))
    expecting(harness, 8.8)
    harness.predict(0, [0])
    assert harness.replies.got == {}


def test_what_the_collector_has_not_taken_yet_counts() -> None:
    harness = FrontendHarness(untyped(timeout_ns=10 * SECOND_NS))
    expecting(harness, 2, row_ns=2 * SECOND_NS)
    for number in range(5):
        harness.predict(number, [number])
    assert list(harness.replies.got) == [4], "8 s of rows on top of 2"
    harness.loop.turn()
    harness.predict(5, [5])
    assert list(harness.replies.got) == [4, 5], "submitted is not taken"
    harness.taken()
    harness.predict(6, [6])
    assert list(harness.replies.got) == [4, 5]


def test_a_burst_into_an_idle_engine_is_refused_where_it_would_be_too_late() -> None:
    harness = FrontendHarness(untyped(timeout_ns=10 * SECOND_NS))
    expecting(harness, 0, row_ns=3 * SECOND_NS)
    for number in range(5):
        harness.predict(number, [number])
    assert list(harness.replies.got) == [3, 4], "the fourth would wait for 9 s of others"


def test_one_request_alone_is_never_too_much_for_an_idle_engine() -> None:
    """Else one slow run could talk it out of ever finding out that the next is faster."""
    harness = FrontendHarness(untyped(timeout_ns=10 * SECOND_NS))
    expecting(harness, 0, row_ns=1000 * SECOND_NS)
    harness.predict(0, [0])
    assert harness.replies.got == {}


def test_a_turn_finds_answers_without_a_ring() -> None:
    harness = FrontendHarness(untyped())
    harness.predict(0, [0])
    harness.loop.turn()
    harness.answer(harness.taken())
    harness.predict(1, [1])
    harness.loop.turn()
    assert predictions(harness, 0) == [0]
    assert 1 not in harness.replies.got


def test_requests_of_one_batch_share_an_id_and_others_have_another() -> None:
    harness = FrontendHarness(untyped())
    for number in range(3):
        harness.predict(number, [number])
    harness.loop.turn()
    first, second, third = harness.taken()
    harness.answer([first, second])
    harness.answer([third])
    harness.gateway.collect()
    ids = [harness.replies.got[number][1]["batchId"] for number in range(3)]
    assert ids[0] == ids[1] != ids[2]


def test_batch_ids_are_version_4_uuids_without_repetition() -> None:
    ids = BatchIds(0xFEDC_BA98_7654_3210)
    texts = [ids.text(batch) for batch in range(1, 2000)]
    assert len(set(texts)) == len(texts)
    assert all(text[14] == "4" and text[19] in "89ab" and len(text) == 36 for text in texts)
    assert texts == [BatchIds(0xFEDC_BA98_7654_3210).text(batch) for batch in range(1, 2000)]
    assert texts[0] != BatchIds(1).text(1)


def test_a_request_is_given_up_at_its_deadline_and_its_late_answer_reaches_nobody() -> None:
    harness = FrontendHarness(untyped(timeout_ns=3 * SECOND_NS))
    harness.predict(0, ["slow"])
    harness.loop.turn()
    late = harness.taken()
    harness.loop.advance(3 * SECOND_NS - 1)
    assert harness.replies.got == {}
    harness.loop.advance(2_000_000)
    status, body, _ = harness.replies.got[0]
    assert (status, body) == (504, {"error": "no answer came within timeout_s = 3"})
    assert harness.count(LaneCounter.TIMEOUTS) == 1
    assert not harness.port.wanted(late[0].ref)

    assert harness.lane.in_flight == 1, "a worker may still write there"
    harness.predict(1, ["next"])
    harness.loop.turn()
    harness.answer(late)
    harness.gateway.collect()
    assert 1 not in harness.replies.got
    assert harness.count(LaneCounter.LATE_ANSWERS) == 1
    harness.answer(harness.taken())
    harness.gateway.collect()
    assert predictions(harness, 1) == ["next"]
    assert harness.lane.in_flight == 0


def test_one_expiring_request_leaves_the_others_waiting() -> None:
    harness = FrontendHarness(untyped(timeout_ns=3 * SECOND_NS))
    harness.predict(0, [0])
    harness.loop.advance(SECOND_NS)
    harness.predict(1, [1])
    harness.loop.turn()
    harness.loop.advance(2 * SECOND_NS + 2_000_000)
    assert list(harness.replies.got) == [0]
    harness.loop.advance(SECOND_NS)
    assert list(harness.replies.got) == [0, 1]


def test_nothing_is_armed_while_nothing_is_in_flight() -> None:
    harness = FrontendHarness(untyped())
    assert harness.loop.armed == []
    harness.predict(0, [0])
    harness.loop.turn()
    assert len(harness.loop.armed) == 1
    harness.answer(harness.taken())
    harness.gateway.collect()
    harness.loop.advance(2 * SWEEP_NS)
    assert harness.loop.armed == []


def test_an_answer_that_nobody_rang_for_is_found_and_counted() -> None:
    harness = FrontendHarness(untyped())
    harness.predict(0, ["lost"])
    harness.loop.turn()
    harness.answer(harness.taken())
    harness.loop.advance(SWEEP_NS + RESWEEP_NS + 3_000_000)
    assert predictions(harness, 0) == ["lost"]
    assert harness.count(LaneCounter.MISSED_WAKEUPS) == 1


def test_an_answer_whose_ring_is_under_way_is_not_counted_as_missed() -> None:
    harness = FrontendHarness(untyped())
    harness.predict(0, [0])
    harness.loop.turn()
    harness.answer(harness.taken())
    harness.loop.advance(SWEEP_NS + 2_000_000)
    harness.gateway.collect()
    harness.loop.advance(3 * SWEEP_NS)
    assert predictions(harness, 0) == [0]
    assert harness.count(LaneCounter.MISSED_WAKEUPS) == 0


def test_what_found_no_room_is_submitted_though_no_answer_comes_before() -> None:
    harness = FrontendHarness(untyped(), slots=2)
    for number in range(2):
        harness.predict(number, [number])
    found = [harness.port.read(ref) for ref, _ in harness.port.published()]
    harness.answer([request for request in found if request is not None])
    harness.loop.turn()
    harness.gateway.collect()
    assert sorted(harness.replies.got) == [0, 1]
    harness.predict(2, [2])
    harness.loop.turn()
    assert harness.lane.held_back
    assert not any(map(harness.port.is_open, harness.submitted.take()))
    harness.loop.advance(SWEEP_NS + 2_000_000)
    harness.answer(harness.taken())
    harness.gateway.collect()
    assert predictions(harness, 2) == [2]
    assert harness.count(LaneCounter.MISSED_WAKEUPS) == 0


def test_what_a_dead_owner_left_comes_back_though_nothing_is_submitted() -> None:
    harness = FrontendHarness(untyped(), slots=2)
    for number in range(2):
        harness.predict(number, [number])
    harness.loop.turn()
    harness.loop.timers.clear()
    heir = Lane(harness.segment, 0, harness._wake)
    assert heir.held_back
    Gateway(heir, harness.loop, lambda: harness.loop.now_ns)  # type: ignore[arg-type]
    harness.submitted.take()
    harness.loop.advance(SWEEP_NS + 2_000_000)
    harness.answer(harness.taken())
    assert heir.collect() == []
    assert heir.in_flight == 0


def test_an_abandoned_call_is_cancelled_and_its_answer_reaches_nobody() -> None:
    harness = FrontendHarness(untyped())
    call = harness.predict(0, [0])
    assert call is not None
    harness.loop.turn()
    (request,) = harness.taken()
    call.abandon()
    call.abandon()
    assert not harness.port.wanted(request.ref)
    harness.answer([request])
    harness.gateway.collect()
    assert harness.replies.got == {}
    assert harness.lane.in_flight == 0


def test_a_call_abandoned_by_the_reply_before_it_gives_its_slot_back() -> None:
    harness = FrontendHarness(untyped())
    other: list[Call | None] = []

    def reply(_answer: Answer) -> None:
        assert other[0] is not None
        other[0].abandon()

    harness.service.predict("echo", b'{"instances":[0]}', reply)
    other.append(harness.predict(1, [1]))
    harness.loop.turn()
    harness.answer(harness.taken())
    harness.gateway.collect()
    assert harness.replies.got == {}
    assert harness.lane.in_flight == 0


def test_a_reply_that_raises_costs_nobody_else_an_answer() -> None:
    harness = FrontendHarness(untyped())

    def broken(_answer: Answer) -> None:
        raise ZeroDivisionError

    harness.service.predict("echo", b'{"instances":[0]}', broken)
    harness.predict(1, [1])
    harness.loop.turn()
    harness.answer(harness.taken())
    with pytest.raises(ZeroDivisionError):
        harness.gateway.collect()
    harness.loop.turn()
    assert predictions(harness, 1) == [1]
    assert harness.lane.in_flight == 0


def test_a_result_larger_than_its_room_is_asked_for_again_with_more() -> None:
    harness = FrontendHarness(untyped())
    harness.predict(0, ["x" * 3000])
    harness.loop.turn()
    (request,) = harness.taken()
    needed = request.result_capacity + 5000
    mark = BatchMark(1, 1, Reason.IDLE, 0)
    harness.port.answer(request.ref, Status.RESULT_TOO_LARGE, needed, mark, 0)
    harness.port.flush()
    harness.gateway.collect()
    assert harness.replies.got == {}
    harness.loop.turn()
    (again,) = harness.taken()
    assert again.result_capacity >= needed
    assert again.deadline_ns == request.deadline_ns
    assert harness.payload(again) == harness.payload(request)
    harness.answer([again])
    harness.gateway.collect()
    assert predictions(harness, 0) == ["x" * 3000]
    assert harness.lane.in_flight == 0


def test_a_result_larger_than_the_lane_fails_in_words() -> None:
    harness = FrontendHarness(untyped())
    harness.predict(0, [0])
    harness.loop.turn()
    (request,) = harness.taken()
    mark = BatchMark(1, 1, Reason.IDLE, 0)
    harness.port.answer(request.ref, Status.RESULT_TOO_LARGE, 1 << 30, mark, 0)
    harness.port.flush()
    harness.gateway.collect()
    status, body, headers = harness.replies.got[0]
    assert status == 500
    assert str(1 << 30) in body["error"]
    assert "x-batch-id" in headers
    assert harness.lane.in_flight == 0


def test_room_for_results_grows_with_what_was_seen() -> None:
    harness = FrontendHarness(untyped())
    model = harness.service.models["echo"]
    first = model.result_bytes(1, 100)
    for _ in range(2):
        model.learn(100, 20_000)
    assert model.result_bytes(1, 100) >= 20_000 > first
    for _ in range(20_000):
        model.learn(100, 10)
    assert model.result_bytes(1, 100) == first


def test_the_room_of_a_typed_model_holds_its_result_and_the_text_of_an_error() -> None:
    model = FrontendHarness(typed()).service.models["double"]
    assert model.result_bytes(1, 8) == 512
    assert model.result_bytes(1000, 8000) == 8000


def test_a_request_over_the_batch_cap_is_split_and_its_answers_are_joined_in_order() -> None:
    harness = FrontendHarness(typed())
    instances = [[n, -n] for n in range(10)]
    harness.predict(0, instances)
    harness.loop.turn()
    requests = harness.taken()
    assert [request.rows for request in requests] == [4, 4, 2]
    for request in reversed(requests):
        assert harness.replies.got == {}
        harness.answer([request])
        harness.gateway.collect()
    assert predictions(harness, 0) == instances
    assert harness.lane.in_flight == 0


@pytest.mark.parametrize("together", [True, False])
def test_the_first_part_that_fails_fails_the_whole_request_once(together: bool) -> None:
    harness = FrontendHarness(typed())
    harness.predict(0, [[n, n] for n in range(12)])
    harness.loop.turn()
    good, bad, last = harness.taken()
    harness.answer([good])
    harness.answer([bad], Status.MODEL_FAILED, "too bad")
    if not together:
        harness.gateway.collect()
        assert not harness.port.wanted(last.ref)
    harness.answer([last])
    harness.gateway.collect()
    status, body, _ = harness.replies.got[0]
    assert (status, body) == (500, {"error": "too bad"})
    assert harness.lane.in_flight == 0


def test_an_abandoned_split_request_gives_everything_back() -> None:
    harness = FrontendHarness(typed())
    call = harness.predict(0, [[n, n] for n in range(12)])
    assert call is not None
    harness.loop.turn()
    first, *rest = harness.taken()
    harness.answer([first])
    harness.gateway.collect()
    call.abandon()
    harness.answer(rest)
    harness.gateway.collect()
    assert harness.replies.got == {}
    assert harness.lane.in_flight == 0


def test_a_split_request_expires_as_one() -> None:
    harness = FrontendHarness(typed(timeout_ns=SECOND_NS))
    harness.predict(0, [[n, n] for n in range(12)])
    harness.loop.turn()
    requests = harness.taken()
    harness.loop.advance(SECOND_NS + 2_000_000)
    assert harness.replies.got[0][0] == 504
    harness.answer(requests)
    harness.gateway.collect()
    assert harness.lane.in_flight == 0


def test_a_full_lane_refuses_at_once_and_takes_again_later() -> None:
    harness = FrontendHarness(untyped(), slots=2)
    for number in range(3):
        harness.predict(number, [number])
    status, _, headers = harness.replies.got[2]
    assert (status, headers["retry-after"]) == (503, "1")
    assert harness.count(LaneCounter.REFUSED) == 1
    harness.loop.turn()
    harness.answer(harness.taken())
    harness.gateway.collect()
    harness.predict(3, [3])
    assert 3 not in harness.replies.got
    assert (predictions(harness, 0), predictions(harness, 1)) == ([0], [1])


def test_a_split_request_that_finds_no_room_leaves_nothing_behind() -> None:
    harness = FrontendHarness(typed(), slots=4)
    harness.predict(0, [[0, 0]])
    harness.predict(1, [[0, 0]])
    harness.predict(2, [[n, n] for n in range(12)])
    assert harness.replies.got[2][0] == 503
    harness.loop.turn()
    harness.answer(harness.taken())
    harness.gateway.collect()
    assert predictions(harness, 0) == predictions(harness, 1) == [[0, 0]]
    assert harness.lane.in_flight == 0


def test_more_parts_than_slots_are_refused_for_good() -> None:
    harness = FrontendHarness(typed(), slots=2)
    harness.predict(0, [[n, n] for n in range(12)])
    status, body, _ = harness.replies.got[0]
    assert status == 413
    assert "12 instances" in body["error"]


def test_a_request_larger_than_the_lane_is_refused_for_good() -> None:
    harness = FrontendHarness(untyped(), lane_bytes=8192)
    harness.predict(0, ["x" * 8000])
    assert harness.replies.got[0][0] == 413
    assert harness.lane.in_flight == 0


def test_an_unknown_model_is_answered_with_the_names_there_are() -> None:
    harness = FrontendHarness(untyped())
    assert harness.service.predict("nope", b"{}", harness.replies.to(0)) is None
    status, body, _ = harness.replies.got[0]
    text = 'Request for unknown model: there is no model "nope"; there is: echo'
    assert (status, body) == (404, {"error": text})


def test_a_model_that_no_worker_ever_held_is_not_ready() -> None:
    harness = FrontendHarness(untyped())
    harness.ready(0)
    harness.segment.words[harness.segment.layout.model(0) + ModelWords.SERVED] = 0
    harness.predict(0, [0])
    assert harness.replies.got[0][0] == 503
    assert harness.lane.in_flight == 0


def test_a_request_waits_for_the_worker_that_follows_a_dead_one() -> None:
    harness = FrontendHarness(untyped())
    harness.ready(0)
    with pytest.raises(ModelNotReady):
        harness.service.check("echo")
    harness.predict(0, [7])
    harness.loop.turn()
    (request,) = harness.taken()
    harness.answer([request])
    harness.gateway.collect()
    assert predictions(harness, 0) == [7]


@pytest.mark.parametrize("kserve_errors", [False, True])
def test_an_invalid_body_is_refused_without_taking_a_slot(kserve_errors: bool) -> None:
    harness = FrontendHarness(typed(kserve_errors=kserve_errors))
    replies: list[Answer] = []
    call = harness.service.predict("double", b"nope", replies.append)
    assert call is None
    ((status, body, _),) = replies
    assert status == 400
    assert body == b"can't Unmarshal body\n" if kserve_errors else orjson.loads(body)["error"]
    assert harness.lane.in_flight == 0


def test_kserve_errors_turn_a_failed_batch_into_a_message() -> None:
    harness = FrontendHarness(untyped(kserve_errors=True))
    harness.predict(0, [0])
    harness.loop.turn()
    harness.answer(harness.taken(), Status.MODEL_FAILED, "busy")
    harness.gateway.collect()
    status, body, _ = harness.replies.got[0]
    assert (status, body) == (200, {"message": "busy", "batchId": "", "predictions": None})


def test_a_failed_request_names_its_batch() -> None:
    harness = FrontendHarness(untyped())
    harness.predict(0, [0])
    harness.predict(1, [1])
    harness.loop.turn()
    first, second = harness.taken()
    harness.batch = 6
    harness.answer([first], Status.MODEL_FAILED, "busy")
    harness.batch = 6
    harness.answer([second])
    harness.gateway.collect()
    status, body, headers = harness.replies.got[0]
    assert (status, body) == (500, {"error": "busy"})
    assert headers["x-batch-id"] == harness.replies.got[1][1]["batchId"]


def test_a_result_that_is_not_the_models_signature_is_the_models_failure() -> None:
    harness = FrontendHarness(untyped())
    harness.predict(0, [1, 2])
    harness.loop.turn()
    (request,) = harness.taken()
    start = request.result_offset
    harness.segment.memory[start : start + 3] = b"[1]"
    harness.port.answer(request.ref, Status.OK, 3, BatchMark(1, 2, Reason.IDLE, 0), 0)
    harness.port.flush()
    harness.gateway.collect()
    assert harness.replies.got[0][0] == 500
    assert harness.lane.in_flight == 0


def test_closing_cancels_what_is_in_flight() -> None:
    harness = FrontendHarness(untyped())
    harness.predict(0, [0])
    harness.gateway.close()
    (request,) = harness.taken()
    assert not harness.port.wanted(request.ref)
    assert harness.loop.armed == []


def test_a_ring_of_the_doorbell_brings_the_answer_to_the_loop(tmp_path: Path) -> None:
    async def test() -> None:
        harness = FrontendHarness(untyped())
        answered = asyncio.Event()
        path = tmp_path / "bell"
        Bell.create(str(path))
        doorbell = Bell.attach(str(path))
        gateway = Gateway(harness.lane, asyncio.get_running_loop())
        gateway.listen(doorbell)
        service = Service(harness.segment, gateway, time.monotonic_ns)
        for _ in range(20):
            answered.clear()
            service.predict("echo", b'{"instances":[1]}', lambda *_: answered.set())
            while not (requests := harness.taken()):
                await asyncio.sleep(0)
            harness.answer(requests)
            doorbell.wake()
            await answered.wait()
        gateway.close()
        assert harness.count(LaneCounter.MISSED_WAKEUPS) == 0
        assert harness.lane.in_flight == 0

    asyncio.run(test())
