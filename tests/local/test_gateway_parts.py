"""Requests in several parts, and the room that their results have and are given."""

import pytest
from frontend_harness import SECOND_NS, FrontendHarness, predictions, typed, untyped

from ringbatch.shm.engine_slots import BatchMark
from ringbatch.shm.slot import Reason, Status


def test_a_result_larger_than_its_room_is_asked_for_again_with_more() -> None:
    harness = FrontendHarness(untyped())
    harness.predict(0, ["x" * 3000])
    harness.loop.turn()
    (request,) = harness.taken()
    needed = request.result_capacity + 5000
    mark = BatchMark(1, 1, Reason.IDLE, 0)
    harness.engine_slots.answer(request.ref, Status.RESULT_TOO_LARGE, needed, mark, 0)
    harness.engine_slots.flush()
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
    harness.engine_slots.answer(request.ref, Status.RESULT_TOO_LARGE, 1 << 30, mark, 0)
    harness.engine_slots.flush()
    harness.gateway.collect()
    status, body, headers = harness.replies.got[0]
    assert status == 500
    assert str(1 << 30) in body["error"]
    assert "x-batch-id" in headers
    assert harness.lane.in_flight == 0


def test_room_for_results_grows_with_the_sizes_seen() -> None:
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
        assert not harness.engine_slots.wanted(last.ref)
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
