"""Requests that are given up: past their deadline, abandoned, closed."""

from frontend_harness import SECOND_NS, FrontendHarness, predictions, untyped

from ringbatch.frontend.codec.outcome import Answer
from ringbatch.frontend.request.calls import RequestHandle
from ringbatch.shm.counters import LaneCounter


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
    assert not harness.engine_slots.wanted(late[0].ref)

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


def test_an_abandoned_call_is_cancelled_and_its_answer_reaches_nobody() -> None:
    harness = FrontendHarness(untyped())
    call = harness.predict(0, [0])
    assert call is not None
    harness.loop.turn()
    (request,) = harness.taken()
    call.abandon()
    call.abandon()
    assert not harness.engine_slots.wanted(request.ref)
    harness.answer([request])
    harness.gateway.collect()
    assert harness.replies.got == {}
    assert harness.lane.in_flight == 0


def test_a_call_abandoned_by_the_reply_before_it_gives_its_slot_back() -> None:
    harness = FrontendHarness(untyped())
    other: list[RequestHandle | None] = []

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


def test_closing_cancels_requests_in_flight() -> None:
    harness = FrontendHarness(untyped())
    harness.predict(0, [0])
    harness.predict(1, [1])
    harness.loop.turn()
    first, second = harness.taken()
    harness.answer([first])
    harness.gateway.collect()
    assert harness.gateway.close() == 1
    assert not harness.engine_slots.wanted(second.ref)
    assert harness.loop.armed == []
