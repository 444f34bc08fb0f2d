"""Result memory claimed for answers of unknown size."""

from collections.abc import Callable

import pytest
from frontend_harness import FrontendHarness, predictions, untyped
from tiers import first_of

from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.engine_slots import BatchMark, Request
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.tensor import Tensor

MIB = 1 << 20
MARK = BatchMark(1, 1, Reason.IDLE, 0)
SMALL = 100


def answer(harness: FrontendHarness, size_of: Callable[[Request], int]) -> int:
    """Answer everything that is there with a text of a size, until nothing more comes; how often
    a model would have run."""
    runs = 0
    harness.loop.turn()
    while requests := harness.taken():
        for request in requests:
            runs += 1
            size = size_of(request)
            fits = size <= request.result_capacity
            if fits:
                text = b'["%s"]' % (b"x" * (size - 4))
                start = request.result_offset
                harness.segment.memory[start : start + size] = text
            status = Status.OK if fits else Status.RESULT_TOO_LARGE
            harness.engine_slots.answer(request.ref, status, size, MARK, 0)
        harness.engine_slots.flush()
        harness.gateway.collect()
        harness.loop.turn()
    return runs


def statuses(harness: FrontendHarness) -> set[int]:
    found = {status for status, _, _ in harness.replies.got.values()}
    harness.replies.got.clear()
    return found


def test_one_large_answer_takes_room_from_nobody() -> None:
    harness = FrontendHarness(untyped(), slots=64, lane_bytes=32 * MIB)
    harness.predict(0, ["large"])
    assert answer(harness, lambda _: 10_000_000) == 2
    assert statuses(harness) == {200}
    runs = 0
    for _ in range(200):
        for number in range(16):
            harness.predict(number, ["tiny"])
        runs += answer(harness, lambda _: SMALL)
        assert statuses(harness) == {200}
    assert runs == 200 * 16
    assert harness.count(LaneCounter.REFUSED) == 0


def test_where_every_fourth_answer_is_large_the_others_find_room() -> None:
    harness = FrontendHarness(untyped(), slots=64, lane_bytes=32 * MIB)
    served = 0

    def size_of(_request: Request) -> int:
        nonlocal served
        served += 1
        return 5 * MIB if served % 4 == 0 else SMALL

    for _ in range(40):
        harness.predict(0, ["alone"])
        answer(harness, size_of)
        assert statuses(harness) == {200}
    for number in range(16):
        harness.predict(number, ["tiny"])
    answer(harness, lambda _: SMALL)
    assert statuses(harness) == {200}


def test_a_request_without_room_for_a_large_answer_is_refused_before_it_runs() -> None:
    harness = FrontendHarness(untyped(), slots=64, lane_bytes=32 * MIB)
    for _ in range(5):
        harness.predict(0, ["alone"])
        answer(harness, lambda _: 10_000_000)
        assert statuses(harness) == {200}
    for number in range(16):
        harness.predict(number, ["one"])
    refused = [number for number, (status, _, _) in harness.replies.got.items() if status == 503]
    assert len(refused) > 12
    harness.replies.got = {}
    assert answer(harness, lambda _: 10_000_000) == 16 - len(refused)
    assert statuses(harness) == {200}


def test_answers_as_long_as_their_requests_claim_nothing_from_shorter_ones() -> None:
    harness = FrontendHarness(untyped(), slots=64, lane_bytes=32 * MIB)
    for _ in range(20):
        harness.predict(0, ["x" * 3_000_000])
        harness.predict(1, ["tiny"])
        answer(harness, lambda request: 2 * request.request_bytes)
        assert statuses(harness) == {200}
    harness.predict(1, ["tiny"])
    harness.loop.turn()
    (request,) = harness.taken()
    assert request.result_capacity < 10_000


@pytest.mark.parametrize("mib", first_of([12, 15.9, 13.5, 12.75, 14, 15, 15.4], 2))
@pytest.mark.parametrize("request_mib", [0, 1, 16])
def test_an_idle_server_says_try_again_only_where_that_helps(
    mib: float, request_mib: float
) -> None:
    """However often it is asked, and whatever it has learned meanwhile."""
    harness = FrontendHarness(untyped(), slots=64, lane_bytes=32 * MIB)
    for _ in range(4):
        harness.predict(0, ["x" * max(int(request_mib * MIB) - 20, 0)])
        answer(harness, lambda _: int(mib * MIB))
        found = harness.replies.got[0]
        if request_mib + mib < 31.5:
            assert found[0] == 200
        else:
            assert found[0] == 500
            assert "lane_bytes" in found[1]["error"]
        harness.replies.got.clear()
        assert harness.lane.in_flight == 0


def test_the_largest_request_is_answered_where_its_answer_is_short() -> None:
    harness = FrontendHarness(untyped(), slots=64, lane_bytes=32 * MIB)
    harness.predict(0, ["x" * (16 * MIB - 4)])
    answer(harness, lambda _: SMALL)
    assert statuses(harness) == {200}


def test_learned_large_answers_refuse_no_small_request() -> None:
    harness = FrontendHarness(untyped(), slots=64, lane_bytes=32 * MIB)
    for _ in range(4):
        harness.predict(0, ["?"])
        answer(harness, lambda _: 29 * MIB)
        assert statuses(harness) == {200}


@pytest.mark.parametrize("values", first_of([1_600_000, 2_200_000, 1_800_000, 1_900_000], 2))
def test_a_tensor_whose_answer_has_no_room_is_refused_for_good(values: int) -> None:
    model = typed_of(values)
    harness = FrontendHarness(model, slots=64, lane_bytes=16 * MIB)
    body = b'{"instances":[[' + b",".join([b"0"] * values) + b"]]}"
    harness.service.predict(harness.name, body, harness.replies.to(0))
    harness.loop.turn()
    harness.answer(harness.taken())
    harness.gateway.collect()
    assert statuses(harness) <= {200, 413}
    assert harness.lane.in_flight == 0


def typed_of(values: int) -> ModelSpec:
    return untyped(
        "wide",
        inputs=(Tensor("x", "FP32", [values]),),
        outputs=(Tensor("y", "FP32", [values]),),
    )


@pytest.mark.parametrize("mib", [1, 3, 5, 7, 9])
def test_the_parts_of_a_request_have_room_together_or_never(mib: int) -> None:
    harness = FrontendHarness(untyped(max_batch_size=1), slots=64, lane_bytes=32 * MIB)
    for _ in range(3):
        harness.predict(0, ["a", "b", "c", "d"])
        answer(harness, lambda _: mib * MIB)
        found = harness.replies.got.pop(0)
        assert found[0] == (200 if 4 * mib < 28 else 500), found[1]
        assert harness.lane.in_flight == 0
    harness.predict(0, ["a"])
    answer(harness, lambda _: SMALL)
    assert len(predictions(harness, 0)) == 1
    assert harness.lane.in_flight == 0
