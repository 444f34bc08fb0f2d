"""Gateway and its service: delivery of answers, and how turns are cut."""

import asyncio
import math
import struct
import time
from pathlib import Path

import pytest
from frontend_harness import FrontendHarness, predictions, typed, untyped

from ringbatch.frontend.codec.outcome import Answer
from ringbatch.frontend.request.gateway import BUNCH, RESWEEP_NS, SWEEP_NS, Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.shm.batch_ids import BatchIds
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.doorbell import Doorbell
from ringbatch.shm.engine_slots import BatchMark
from ringbatch.shm.lane import Lane
from ringbatch.shm.slot import Reason, Status


def test_answers_reach_their_own_callers_in_any_order() -> None:
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
def test_a_result_that_breaks_the_signature_fails_and_costs_no_slot(
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
        harness.engine_slots.answer(request.ref, Status.OK, len(result), mark, 0)
        harness.engine_slots.flush()
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


def test_a_long_turn_is_cut_once_half_of_all_in_flight_wait() -> None:
    harness = FrontendHarness(untyped(), slots=64)
    submitted = []
    for number in range(40):
        harness.predict(number, [number])
        submitted.append(harness.submitted.has_items)
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
    whole = harness.submitted.has_items
    harness.predict(1, ["next"])
    assert (whole, harness.submitted.has_items) == (False, True)
    harness.loop.turn()
    harness.answer(harness.taken())
    harness.gateway.collect()
    assert predictions(harness, 0) == list(range(3 * BUNCH))


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


def test_a_request_without_room_is_submitted_even_if_no_answer_comes_before() -> None:
    harness = FrontendHarness(untyped(), slots=2)
    for number in range(2):
        harness.predict(number, [number])
    found = [harness.engine_slots.read(ref) for ref, _ in harness.engine_slots.published()]
    harness.answer([request for request in found if request is not None])
    harness.loop.turn()
    harness.gateway.collect()
    assert sorted(harness.replies.got) == [0, 1]
    harness.predict(2, [2])
    harness.loop.turn()
    assert harness.lane.held_back
    assert not any(map(harness.engine_slots.is_open, harness.submitted.take()))
    harness.loop.advance(SWEEP_NS + 2_000_000)
    harness.answer(harness.taken())
    harness.gateway.collect()
    assert predictions(harness, 2) == [2]
    assert harness.count(LaneCounter.MISSED_WAKEUPS) == 0


def test_a_dead_owners_requests_come_back_even_if_nothing_is_submitted() -> None:
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


def test_a_reply_that_raises_costs_nobody_else_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = FrontendHarness(untyped(), slots=64)

    def broken(_answer: Answer) -> None:
        raise ZeroDivisionError

    harness.service.predict("echo", b'{"instances":[0]}', broken)
    harness.predict(1, [1])
    harness.loop.turn()
    harness.answer(harness.taken())
    # The request that triggers the look for answers is served all the same.
    for number in range(2, 2 * BUNCH):
        harness.predict(number, [number])
    assert predictions(harness, 1) == [1]
    harness.loop.turn()
    harness.answer(harness.taken())
    harness.gateway.collect()
    assert sorted(harness.replies.got) == list(range(1, 2 * BUNCH))
    assert "ZeroDivisionError" in caplog.text
    assert harness.lane.in_flight == 0


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
    harness.engine_slots.answer(request.ref, Status.OK, 3, BatchMark(1, 2, Reason.IDLE, 0), 0)
    harness.engine_slots.flush()
    harness.gateway.collect()
    assert harness.replies.got[0][0] == 500
    assert harness.lane.in_flight == 0


def test_a_ring_of_the_doorbell_brings_the_answer_to_the_loop(tmp_path: Path) -> None:
    async def test() -> None:
        harness = FrontendHarness(untyped())
        answered = asyncio.Event()
        path = tmp_path / "bell"
        Doorbell.create(str(path))
        doorbell = Doorbell.attach(str(path))
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
