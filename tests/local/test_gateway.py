"""The gateway and the service on it: who gets which answer when, and what is refused."""

import asyncio
import math
import struct
import time
from pathlib import Path

import orjson
import pytest
from stage import SECOND_NS, TIMEOUT_NS, Stage, predictions, typed, untyped

from ringbatch.frontend.codec.batch_ids import BatchIds
from ringbatch.frontend.codec.outcome import Headers
from ringbatch.frontend.codec.payload import LazyBytes, LazyPart
from ringbatch.frontend.request.calls import Call, Task
from ringbatch.frontend.request.gateway import BUNCH, RESWEEP_NS, SWEEP_NS, Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.shm.bell import Bell
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.engine_port import BatchMark
from ringbatch.shm.errors import InvalidRequest, ModelNotReady
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import (
    MODEL_ANSWER_NS,
    MODEL_ROW_NS,
    MODEL_SERVED,
    WORD,
)
from ringbatch.shm.slot import Reason, Status


class Gone(LazyBytes):
    """Bytes that were there when they were promised."""

    def __len__(self) -> int:
        return 8

    def read_into(self, memory: memoryview) -> None:
        memory[:4] = b"half"
        raise InvalidRequest("gone")


def test_what_cannot_be_read_into_its_slot_leaves_the_slot_free() -> None:
    stage = Stage(typed())
    model = stage.service.model(stage.name)
    for number in range(3 * stage.lane.capacity):
        task = Task(model, False, stage.replies.to(number), 0, TIMEOUT_NS)
        with pytest.raises(InvalidRequest, match="gone"):
            task.send(stage.service.engine, LazyPart(1, Gone(), 0), 64)
    assert stage.lane.in_flight == 0
    stage.loop.turn()
    assert stage.submitted.take() == []


def test_answers_reach_their_own_callers_whatever_their_order() -> None:
    stage = Stage(untyped())
    for number in range(5):
        stage.predict(number, [f"value {number}"])
    stage.loop.turn()
    for request in reversed(stage.taken()):
        stage.answer([request])
    stage.gateway.collect()
    assert {n: predictions(stage, n) for n in range(5)} == {n: [f"value {n}"] for n in range(5)}
    assert stage.lane.in_flight == 0


def test_tensors_go_in_and_come_out() -> None:
    stage = Stage(typed())
    stage.predict(0, [[1, 2], [3, 4.5]])
    stage.loop.turn()
    stage.answer(stage.taken())
    stage.gateway.collect()
    assert predictions(stage, 0) == [[1, 2], [3, 4.5]]


def test_a_request_in_column_format_is_answered_in_it() -> None:
    stage = Stage(typed())
    body = b'{"inputs":{"x":[[1,2],[3,4.5]]}}'
    stage.service.predict(stage.name, body, stage.replies.to(0))
    stage.loop.turn()
    stage.answer(stage.taken())
    stage.gateway.collect()
    status, answer, _ = stage.replies.got[0]
    assert (status, answer["outputs"]) == (200, [[1, 2], [3, 4.5]])


@pytest.mark.parametrize("result", [b"", b"1234", bytes(16), struct.pack("<2f", 1, math.nan)])
def test_a_result_that_is_not_what_the_signature_says_fails_and_costs_no_slot(
    result: bytes,
) -> None:
    stage = Stage(typed())
    for number in range(3 * stage.lane.capacity):
        stage.predict(number, [[1, 2]])
        stage.loop.turn()
        (request,) = stage.taken()
        start = request.result_offset
        stage.segment.memory[start : start + len(result)] = result
        mark = BatchMark(number, 1, Reason.IDLE, 0)
        stage.port.answer(request.ref, Status.OK, len(result), mark, 0)
        stage.port.flush()
        stage.gateway.collect()
        assert stage.replies.got[number][0] == 500
    assert stage.lane.in_flight == 0


def test_requests_of_one_turn_are_announced_together() -> None:
    stage = Stage(untyped())
    for number in range(5):
        stage.predict(number, [number])
    assert stage.wakes == 0
    stage.loop.turn()
    assert stage.wakes == 1
    assert len(stage.taken()) == 5


def test_a_long_turn_is_cut_where_half_of_what_is_in_flight_waits() -> None:
    stage = Stage(untyped(), slots=64)
    announced = []
    for number in range(40):
        stage.predict(number, [number])
        announced.append(stage.submitted.waiting)
        stage.answer(stage.taken())
    # Answers are passed on at the same occasion, so that little is in flight.
    assert announced.count(True) == 4
    assert announced.index(True) == BUNCH
    assert len(stage.replies.got) == 3 * BUNCH, "those of the last cut are still to be found"
    stage.loop.turn()
    stage.answer(stage.taken())
    stage.gateway.collect()
    assert {n: predictions(stage, n) for n in range(40)} == {n: [n] for n in range(40)}


def test_with_more_in_flight_a_turn_is_cut_later() -> None:
    stage = Stage(untyped(), slots=64)
    for number in range(48):
        stage.predict(number, [number])
    stage.loop.turn()
    before = stage.wakes
    stage.taken()
    for number in range(48, 60):
        stage.predict(number, [number])
    assert stage.wakes == before, "24 are half of what is in flight"


def test_no_turn_is_cut_inside_a_request_of_several_parts() -> None:
    stage = Stage(untyped(max_batch_size=1), slots=64)
    stage.predict(0, list(range(3 * BUNCH)))
    whole = stage.submitted.waiting
    stage.predict(1, ["next"])
    assert (whole, stage.submitted.waiting) == (False, True)
    stage.loop.turn()
    stage.answer(stage.taken())
    stage.gateway.collect()
    assert predictions(stage, 0) == list(range(3 * BUNCH))


def expecting(stage: Stage, answer_s: float, row_ns: int = 0) -> None:
    """The collector has published how long an answer takes."""
    first = stage.segment.layout.model(0)
    stage.segment.words[(first + MODEL_ROW_NS) // WORD] = row_ns
    stage.segment.words[(first + MODEL_ANSWER_NS) // WORD] = int(answer_s * SECOND_NS)


@pytest.mark.parametrize(("answer_s", "retry_after"), [(8.9, "1"), (10, "2"), (16, "8")])
def test_what_would_be_answered_too_late_is_refused_at_once(
    answer_s: float, retry_after: str
) -> None:
    stage = Stage(untyped(timeout_ns=10 * SECOND_NS))
    expecting(stage, answer_s)
    stage.predict(0, [0])
    status, body, headers = stage.replies.got[0]
    assert status == 503
    assert body == {"error": f"so many requests wait that an answer would take {answer_s:.1f} s"}
    assert headers["retry-after"] == retry_after
    assert stage.count(LaneCounter.REFUSED) == 1
    assert stage.lane.in_flight == 0


def test_what_can_be_answered_in_time_is_not_refused() -> None:
    stage = Stage(untyped(timeout_ns=10 * SECOND_NS))
    expecting(stage, 8.8)
    stage.predict(0, [0])
    assert stage.replies.got == {}


def test_what_the_collector_has_not_taken_yet_counts() -> None:
    stage = Stage(untyped(timeout_ns=10 * SECOND_NS))
    expecting(stage, 2, row_ns=2 * SECOND_NS)
    for number in range(5):
        stage.predict(number, [number])
    assert list(stage.replies.got) == [4], "8 s of rows on top of 2"
    stage.loop.turn()
    stage.predict(5, [5])
    assert list(stage.replies.got) == [4, 5], "announced is not taken"
    stage.taken()
    stage.predict(6, [6])
    assert list(stage.replies.got) == [4, 5]


def test_a_burst_into_an_idle_engine_is_refused_where_it_would_be_too_late() -> None:
    stage = Stage(untyped(timeout_ns=10 * SECOND_NS))
    expecting(stage, 0, row_ns=3 * SECOND_NS)
    for number in range(5):
        stage.predict(number, [number])
    assert list(stage.replies.got) == [3, 4], "the fourth would wait for 9 s of others"


def test_one_request_alone_is_never_too_much_for_an_idle_engine() -> None:
    """Else one slow run could talk it out of ever finding out that the next is faster."""
    stage = Stage(untyped(timeout_ns=10 * SECOND_NS))
    expecting(stage, 0, row_ns=1000 * SECOND_NS)
    stage.predict(0, [0])
    assert stage.replies.got == {}


def test_a_turn_finds_answers_without_a_ring() -> None:
    stage = Stage(untyped())
    stage.predict(0, [0])
    stage.loop.turn()
    stage.answer(stage.taken())
    stage.predict(1, [1])
    stage.loop.turn()
    assert predictions(stage, 0) == [0]
    assert 1 not in stage.replies.got


def test_requests_of_one_batch_share_an_id_and_others_have_another() -> None:
    stage = Stage(untyped())
    for number in range(3):
        stage.predict(number, [number])
    stage.loop.turn()
    first, second, third = stage.taken()
    stage.answer([first, second])
    stage.answer([third])
    stage.gateway.collect()
    ids = [stage.replies.got[number][1]["batchId"] for number in range(3)]
    assert ids[0] == ids[1] != ids[2]


def test_batch_ids_are_version_4_uuids_without_repetition() -> None:
    ids = BatchIds(0xFEDC_BA98_7654_3210)
    texts = [ids.text(batch) for batch in range(1, 2000)]
    assert len(set(texts)) == len(texts)
    assert all(text[14] == "4" and text[19] in "89ab" and len(text) == 36 for text in texts)
    assert texts == [BatchIds(0xFEDC_BA98_7654_3210).text(batch) for batch in range(1, 2000)]
    assert texts[0] != BatchIds(1).text(1)


def test_a_request_is_given_up_at_its_deadline_and_its_late_answer_reaches_nobody() -> None:
    stage = Stage(untyped(timeout_ns=3 * SECOND_NS))
    stage.predict(0, ["slow"])
    stage.loop.turn()
    late = stage.taken()
    stage.loop.advance(3 * SECOND_NS - 1)
    assert stage.replies.got == {}
    stage.loop.advance(2_000_000)
    status, body, _ = stage.replies.got[0]
    assert (status, body) == (504, {"error": "no answer came within 3 s"})
    assert stage.count(LaneCounter.TIMEOUTS) == 1
    assert not stage.port.wanted(late[0].ref)

    assert stage.lane.in_flight == 1, "a worker may still write there"
    stage.predict(1, ["next"])
    stage.loop.turn()
    stage.answer(late)
    stage.gateway.collect()
    assert 1 not in stage.replies.got
    assert stage.count(LaneCounter.LATE_ANSWERS) == 1
    stage.answer(stage.taken())
    stage.gateway.collect()
    assert predictions(stage, 1) == ["next"]
    assert stage.lane.in_flight == 0


def test_one_expiring_request_leaves_the_others_waiting() -> None:
    stage = Stage(untyped(timeout_ns=3 * SECOND_NS))
    stage.predict(0, [0])
    stage.loop.advance(SECOND_NS)
    stage.predict(1, [1])
    stage.loop.turn()
    stage.loop.advance(2 * SECOND_NS + 2_000_000)
    assert list(stage.replies.got) == [0]
    stage.loop.advance(SECOND_NS)
    assert list(stage.replies.got) == [0, 1]


def test_nothing_is_armed_while_nothing_is_in_flight() -> None:
    stage = Stage(untyped())
    assert stage.loop.armed == []
    stage.predict(0, [0])
    stage.loop.turn()
    assert len(stage.loop.armed) == 1
    stage.answer(stage.taken())
    stage.gateway.collect()
    stage.loop.advance(2 * SWEEP_NS)
    assert stage.loop.armed == []


def test_an_answer_that_nobody_rang_for_is_found_and_counted() -> None:
    stage = Stage(untyped())
    stage.predict(0, ["lost"])
    stage.loop.turn()
    stage.answer(stage.taken())
    stage.loop.advance(SWEEP_NS + RESWEEP_NS + 3_000_000)
    assert predictions(stage, 0) == ["lost"]
    assert stage.count(LaneCounter.MISSED_WAKEUPS) == 1


def test_an_answer_whose_ring_is_under_way_is_not_counted_as_missed() -> None:
    stage = Stage(untyped())
    stage.predict(0, [0])
    stage.loop.turn()
    stage.answer(stage.taken())
    stage.loop.advance(SWEEP_NS + 2_000_000)
    stage.gateway.collect()
    stage.loop.advance(3 * SWEEP_NS)
    assert predictions(stage, 0) == [0]
    assert stage.count(LaneCounter.MISSED_WAKEUPS) == 0


def test_what_found_no_room_is_announced_though_no_answer_comes_before() -> None:
    stage = Stage(untyped(), slots=2)
    for number in range(2):
        stage.predict(number, [number])
    found = [stage.port.read(ref) for ref, _ in stage.port.published()]
    stage.answer([request for request in found if request is not None])
    stage.loop.turn()
    stage.gateway.collect()
    assert sorted(stage.replies.got) == [0, 1]
    stage.predict(2, [2])
    stage.loop.turn()
    assert stage.lane.held_back
    assert not any(map(stage.port.is_open, stage.submitted.take()))
    stage.loop.advance(SWEEP_NS + 2_000_000)
    stage.answer(stage.taken())
    stage.gateway.collect()
    assert predictions(stage, 2) == [2]
    assert stage.count(LaneCounter.MISSED_WAKEUPS) == 0


def test_what_a_dead_owner_left_comes_back_though_nothing_is_submitted() -> None:
    stage = Stage(untyped(), slots=2)
    for number in range(2):
        stage.predict(number, [number])
    stage.loop.turn()
    stage.loop.timers.clear()
    heir = Lane(stage.segment, 0, stage._wake)
    assert heir.held_back
    Gateway(heir, stage.loop, lambda: stage.loop.now_ns)  # type: ignore[arg-type]
    stage.submitted.take()
    stage.loop.advance(SWEEP_NS + 2_000_000)
    stage.answer(stage.taken())
    assert heir.collect() == []
    assert heir.in_flight == 0


def test_an_abandoned_call_is_cancelled_and_its_answer_reaches_nobody() -> None:
    stage = Stage(untyped())
    call = stage.predict(0, [0])
    assert call is not None
    stage.loop.turn()
    (request,) = stage.taken()
    call.abandon()
    call.abandon()
    assert not stage.port.wanted(request.ref)
    stage.answer([request])
    stage.gateway.collect()
    assert stage.replies.got == {}
    assert stage.lane.in_flight == 0


def test_a_call_abandoned_by_the_reply_before_it_gives_its_slot_back() -> None:
    stage = Stage(untyped())
    other: list[Call | None] = []

    def reply(_status: int, _body: bytes, _headers: Headers) -> None:
        assert other[0] is not None
        other[0].abandon()

    stage.service.predict("echo", b'{"instances":[0]}', reply)
    other.append(stage.predict(1, [1]))
    stage.loop.turn()
    stage.answer(stage.taken())
    stage.gateway.collect()
    assert stage.replies.got == {}
    assert stage.lane.in_flight == 0


def test_a_reply_that_raises_costs_nobody_else_an_answer() -> None:
    stage = Stage(untyped())

    def broken(_status: int, _body: bytes, _headers: Headers) -> None:
        raise ZeroDivisionError

    stage.service.predict("echo", b'{"instances":[0]}', broken)
    stage.predict(1, [1])
    stage.loop.turn()
    stage.answer(stage.taken())
    with pytest.raises(ZeroDivisionError):
        stage.gateway.collect()
    stage.loop.turn()
    assert predictions(stage, 1) == [1]
    assert stage.lane.in_flight == 0


def test_a_result_larger_than_its_room_is_asked_for_again_with_more() -> None:
    stage = Stage(untyped())
    stage.predict(0, ["x" * 3000])
    stage.loop.turn()
    (request,) = stage.taken()
    needed = request.result_capacity + 5000
    mark = BatchMark(1, 1, Reason.IDLE, 0)
    stage.port.answer(request.ref, Status.RESULT_TOO_LARGE, needed, mark, 0)
    stage.port.flush()
    stage.gateway.collect()
    assert stage.replies.got == {}
    stage.loop.turn()
    (again,) = stage.taken()
    assert again.result_capacity >= needed
    assert again.deadline_ns == request.deadline_ns
    assert stage.payload(again) == stage.payload(request)
    stage.answer([again])
    stage.gateway.collect()
    assert predictions(stage, 0) == ["x" * 3000]
    assert stage.lane.in_flight == 0


def test_a_result_larger_than_the_lane_fails_in_words() -> None:
    stage = Stage(untyped())
    stage.predict(0, [0])
    stage.loop.turn()
    (request,) = stage.taken()
    mark = BatchMark(1, 1, Reason.IDLE, 0)
    stage.port.answer(request.ref, Status.RESULT_TOO_LARGE, 1 << 30, mark, 0)
    stage.port.flush()
    stage.gateway.collect()
    status, body, headers = stage.replies.got[0]
    assert status == 500
    assert str(1 << 30) in body["error"]
    assert "x-batch-id" in headers
    assert stage.lane.in_flight == 0


def test_room_for_results_grows_with_what_was_seen() -> None:
    stage = Stage(untyped())
    model = stage.service.models["echo"]
    first = model.result_bytes(1, 100)
    for _ in range(2):
        model.learn(100, 20_000)
    assert model.result_bytes(1, 100) >= 20_000 > first
    for _ in range(20_000):
        model.learn(100, 10)
    assert model.result_bytes(1, 100) == first


def test_the_room_of_a_typed_model_holds_its_result_and_the_text_of_an_error() -> None:
    model = Stage(typed()).service.models["double"]
    assert model.result_bytes(1, 8) == 512
    assert model.result_bytes(1000, 8000) == 8000


def test_a_request_over_the_batch_cap_is_split_and_its_answers_are_joined_in_order() -> None:
    stage = Stage(typed())
    instances = [[n, -n] for n in range(10)]
    stage.predict(0, instances)
    stage.loop.turn()
    requests = stage.taken()
    assert [request.rows for request in requests] == [4, 4, 2]
    for request in reversed(requests):
        assert stage.replies.got == {}
        stage.answer([request])
        stage.gateway.collect()
    assert predictions(stage, 0) == instances
    assert stage.lane.in_flight == 0


@pytest.mark.parametrize("together", [True, False])
def test_the_first_part_that_fails_fails_the_whole_request_once(together: bool) -> None:
    stage = Stage(typed())
    stage.predict(0, [[n, n] for n in range(12)])
    stage.loop.turn()
    good, bad, last = stage.taken()
    stage.answer([good])
    stage.answer([bad], Status.MODEL_FAILED, "too bad")
    if not together:
        stage.gateway.collect()
        assert not stage.port.wanted(last.ref)
    stage.answer([last])
    stage.gateway.collect()
    status, body, _ = stage.replies.got[0]
    assert (status, body) == (500, {"error": "too bad"})
    assert stage.lane.in_flight == 0


def test_an_abandoned_split_request_gives_everything_back() -> None:
    stage = Stage(typed())
    call = stage.predict(0, [[n, n] for n in range(12)])
    assert call is not None
    stage.loop.turn()
    first, *rest = stage.taken()
    stage.answer([first])
    stage.gateway.collect()
    call.abandon()
    stage.answer(rest)
    stage.gateway.collect()
    assert stage.replies.got == {}
    assert stage.lane.in_flight == 0


def test_a_split_request_expires_as_one() -> None:
    stage = Stage(typed(timeout_ns=SECOND_NS))
    stage.predict(0, [[n, n] for n in range(12)])
    stage.loop.turn()
    requests = stage.taken()
    stage.loop.advance(SECOND_NS + 2_000_000)
    assert stage.replies.got[0][0] == 504
    stage.answer(requests)
    stage.gateway.collect()
    assert stage.lane.in_flight == 0


def test_a_full_lane_refuses_at_once_and_takes_again_later() -> None:
    stage = Stage(untyped(), slots=2)
    for number in range(3):
        stage.predict(number, [number])
    status, _, headers = stage.replies.got[2]
    assert (status, headers["retry-after"]) == (503, "1")
    assert stage.count(LaneCounter.REFUSED) == 1
    stage.loop.turn()
    stage.answer(stage.taken())
    stage.gateway.collect()
    stage.predict(3, [3])
    assert 3 not in stage.replies.got
    assert (predictions(stage, 0), predictions(stage, 1)) == ([0], [1])


def test_a_split_request_that_finds_no_room_leaves_nothing_behind() -> None:
    stage = Stage(typed(), slots=4)
    stage.predict(0, [[0, 0]])
    stage.predict(1, [[0, 0]])
    stage.predict(2, [[n, n] for n in range(12)])
    assert stage.replies.got[2][0] == 503
    stage.loop.turn()
    stage.answer(stage.taken())
    stage.gateway.collect()
    assert predictions(stage, 0) == predictions(stage, 1) == [[0, 0]]
    assert stage.lane.in_flight == 0


def test_more_parts_than_slots_are_refused_for_good() -> None:
    stage = Stage(typed(), slots=2)
    stage.predict(0, [[n, n] for n in range(12)])
    status, body, _ = stage.replies.got[0]
    assert status == 413
    assert "12 instances" in body["error"]


def test_a_request_larger_than_the_lane_is_refused_for_good() -> None:
    stage = Stage(untyped(), lane_bytes=8192)
    stage.predict(0, ["x" * 8000])
    assert stage.replies.got[0][0] == 413
    assert stage.lane.in_flight == 0


def test_an_unknown_model_is_answered_with_the_names_there_are() -> None:
    stage = Stage(untyped())
    assert stage.service.predict("nope", b"{}", stage.replies.to(0)) is None
    status, body, _ = stage.replies.got[0]
    assert (status, body) == (404, {"error": 'there is no model "nope"; there is: echo'})


def test_a_model_that_no_worker_ever_held_is_not_ready() -> None:
    stage = Stage(untyped())
    stage.ready(0)
    stage.segment.words[(stage.segment.layout.model(0) + MODEL_SERVED) // WORD] = 0
    stage.predict(0, [0])
    assert stage.replies.got[0][0] == 503
    assert stage.lane.in_flight == 0


def test_a_request_waits_for_the_worker_that_follows_a_dead_one() -> None:
    stage = Stage(untyped())
    stage.ready(0)
    with pytest.raises(ModelNotReady):
        stage.service.check("echo")
    stage.predict(0, [7])
    stage.loop.turn()
    (request,) = stage.taken()
    stage.answer([request])
    stage.gateway.collect()
    assert predictions(stage, 0) == [7]


@pytest.mark.parametrize("kserve_errors", [False, True])
def test_an_invalid_body_is_refused_without_taking_a_slot(kserve_errors: bool) -> None:
    stage = Stage(typed(kserve_errors=kserve_errors))
    replies: list[tuple[int, bytes, Headers]] = []
    call = stage.service.predict("double", b"nope", lambda *reply: replies.append(reply))
    assert call is None
    ((status, body, _),) = replies
    assert status == 400
    assert body == b"can't Unmarshal body\n" if kserve_errors else orjson.loads(body)["error"]
    assert stage.lane.in_flight == 0


def test_kserve_errors_turn_a_failed_batch_into_a_message() -> None:
    stage = Stage(untyped(kserve_errors=True))
    stage.predict(0, [0])
    stage.loop.turn()
    stage.answer(stage.taken(), Status.MODEL_FAILED, "busy")
    stage.gateway.collect()
    status, body, _ = stage.replies.got[0]
    assert (status, body) == (200, {"message": "busy", "batchId": "", "predictions": None})


def test_a_failed_request_names_its_batch() -> None:
    stage = Stage(untyped())
    stage.predict(0, [0])
    stage.predict(1, [1])
    stage.loop.turn()
    first, second = stage.taken()
    stage.batch = 6
    stage.answer([first], Status.MODEL_FAILED, "busy")
    stage.batch = 6
    stage.answer([second])
    stage.gateway.collect()
    status, body, headers = stage.replies.got[0]
    assert (status, body) == (500, {"error": "busy"})
    assert headers["x-batch-id"] == stage.replies.got[1][1]["batchId"]


def test_a_result_that_is_not_the_models_signature_is_the_models_failure() -> None:
    stage = Stage(untyped())
    stage.predict(0, [1, 2])
    stage.loop.turn()
    (request,) = stage.taken()
    start = request.result_offset
    stage.segment.memory[start : start + 3] = b"[1]"
    stage.port.answer(request.ref, Status.OK, 3, BatchMark(1, 2, Reason.IDLE, 0), 0)
    stage.port.flush()
    stage.gateway.collect()
    assert stage.replies.got[0][0] == 500
    assert stage.lane.in_flight == 0


def test_closing_cancels_what_is_in_flight() -> None:
    stage = Stage(untyped())
    stage.predict(0, [0])
    stage.gateway.close()
    (request,) = stage.taken()
    assert not stage.port.wanted(request.ref)
    assert stage.loop.armed == []


def test_a_ring_of_the_doorbell_brings_the_answer_to_the_loop(tmp_path: Path) -> None:
    async def test() -> None:
        stage = Stage(untyped())
        answered = asyncio.Event()
        path = tmp_path / "bell"
        Bell.create(str(path))
        doorbell = Bell.attach(str(path))
        gateway = Gateway(stage.lane, asyncio.get_running_loop())
        gateway.listen(doorbell)
        service = Service(stage.segment, gateway, time.monotonic_ns)
        for _ in range(20):
            answered.clear()
            service.predict("echo", b'{"instances":[1]}', lambda *_: answered.set())
            while not (requests := stage.taken()):
                await asyncio.sleep(0)
            stage.answer(requests)
            doorbell.wake()
            await answered.wait()
        gateway.close()
        assert stage.count(LaneCounter.MISSED_WAKEUPS) == 0
        assert stage.lane.in_flight == 0

    asyncio.run(test())
