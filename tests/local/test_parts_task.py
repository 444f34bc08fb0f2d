"""Requests that get parts: each part is passed on, until the end or until there are enough."""

import orjson
import pytest
from frontend_harness import SECOND_NS
from parted_harness import END, Parted

from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.slot import Status


def test_parts_come_in_order_and_then_the_end() -> None:
    parted = Parted(enough=9)
    parted.part(1)
    parted.part(2)
    parted.collect()
    assert (parted.parts, parted.ends) == ([[1], [2]], [])
    parted.part(3)
    parted.answer()
    parted.collect()
    assert (parted.parts, parted.ends) == ([[1], [2], [3]], [END])
    assert parted.harness.lane.in_flight == 0
    assert parted.ends_counted() == (1, 1, 0)


def test_enough_parts_end_the_request_while_its_row_runs() -> None:
    parted = Parted(enough=2)
    for number in (1, 2, 3):
        parted.part(number)
    assert not parted.is_given_up()
    parted.collect()
    assert (parted.parts, parted.ends) == ([[1], [2]], [END])
    assert parted.is_given_up()
    parted.answer(Status.CANCELLED)
    parted.collect()
    assert (parted.parts, parted.ends) == ([[1], [2]], [END])
    assert parted.harness.lane.in_flight == 0
    assert parted.ends_counted() == (1, 1, 0)


def test_enough_parts_may_come_with_the_answer() -> None:
    parted = Parted(enough=1)
    parted.part(1)
    parted.part(2)
    parted.answer()
    parted.collect()
    assert (parted.parts, parted.ends) == ([[1]], [END])
    assert parted.harness.lane.in_flight == 0
    assert parted.ends_counted() == (1, 1, 0)


def test_who_has_had_enough_is_not_told_of_a_deadline() -> None:
    parted = Parted(enough=1)
    parted.part(1)
    parted.collect()
    parted.harness.loop.advance(1 << 40)
    assert parted.ends == [END]
    assert parted.call is not None
    parted.call.abandon()
    assert parted.ends_counted() == (1, 1, 0)


@pytest.mark.parametrize(
    ("limit_s", "stalled_s", "ends"), [(3, 2, False), (3, 3, True), (0, 99, False)]
)
def test_a_client_that_takes_nothing_loses_its_row(
    caplog: pytest.LogCaptureFixture, limit_s: int, stalled_s: int, ends: bool
) -> None:
    stalled = 0
    parted = Parted(stalled_s=lambda: stalled, stream_stall_ns=limit_s * SECOND_NS)
    parted.part(1)
    parted.collect()
    stalled = stalled_s
    parted.part(2)
    parted.collect()
    assert parted.is_given_up() is ends
    assert parted.harness.lane.counters[LaneCounter.STALLED] == ends
    if not ends:
        assert (parted.parts, parted.ends) == ([[1], [2]], [])
        return
    ((status, body, _),) = parted.ends
    words = "the client has taken nothing for stream_stall_s = 3, and parts wait"
    assert (status, orjson.loads(body)["error"]) == (503, words)
    assert parted.parts == [[1]]
    assert "model echo has ended: its client has taken nothing for 3 s" in caplog.text
    parted.answer(Status.CANCELLED)
    parted.collect()
    assert parted.harness.lane.in_flight == 0
    assert parted.ends_counted() == (0, 0, 1)


def test_an_answer_that_is_all_there_is_no_row_s_to_lose() -> None:
    parted = Parted(stalled_s=lambda: 99, stream_stall_ns=SECOND_NS)
    parted.part(1)
    parted.answer()
    parted.collect()
    assert (parted.parts, parted.ends) == ([[1]], [END])


def test_a_receiver_that_fails_fails_its_request(caplog: pytest.LogCaptureFixture) -> None:
    parted = Parted(enough=1, raises=ZeroDivisionError)
    parted.part(1)
    parted.collect()
    ((status, body, _),) = parted.ends
    assert (status, orjson.loads(body)["error"]) == (500, "internal error")
    assert "ZeroDivisionError" in caplog.text
    assert parted.is_given_up()
    parted.answer(Status.CANCELLED)
    parted.collect()
    assert parted.harness.lane.in_flight == 0
    assert parted.ends_counted() == (0, 0, 1)
