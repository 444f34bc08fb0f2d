"""Requests that get parts: each part is passed on, until the end or until there are enough."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from frontend_harness import SECOND_NS, FrontendHarness, typed
from parted_harness import END, Parted

from ringbatch.frontend.codec.asked_events import EventsAsked
from ringbatch.frontend.request.calls import Reply, RequestHandle
from ringbatch.frontend.request.parts_task import InParts
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


def test_a_client_that_has_had_enough_hears_of_no_deadline() -> None:
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


V2_INPUT = '"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]'


@pytest.mark.parametrize("wish", ['"stream": true', '"parameters": {"stream": true}'])
@pytest.mark.parametrize("in_parts", [True, False])
def test_a_body_asks_for_events_where_the_model_has_some(wish: str, in_parts: bool) -> None:
    harness = FrontendHarness(typed(in_parts=in_parts))
    v1, v2 = (f"{{{given}, {wish}}}".encode() for given in ('"instances": [[1, 2]]', V2_INPUT))
    service, replies = harness.service, harness.replies
    v1_asks, v2_asks = in_parts and "parameters" not in wish, in_parts
    ways: list[tuple[bool, Callable[[Reply], RequestHandle | None]]] = [
        (v1_asks, lambda to: service.predict("double", v1, to)),
        (v2_asks, lambda to: service.infer("double", v2, None, to)),
    ]
    for number, (asks, start) in enumerate(ways):
        if asks:
            with pytest.raises(EventsAsked):
                start(replies.to(number))
            assert harness.lane.in_flight == 0
        else:
            assert start(replies.to(number)) is not None
            harness.loop.turn()
            harness.answer(harness.taken())
            harness.gateway.collect()
            assert replies.got[number][0] == 200
    # A request that wants parts gets them already.
    parts: InParts[Any] = InParts(lambda _answer: None, END)
    assert service.predict("double", v1, replies.to(8), in_parts=parts) is not None
    assert service.infer("double", v2, None, replies.to(9), in_parts=parts) is not None


def test_a_wish_that_is_none_is_refused_as_any_fault() -> None:
    harness = FrontendHarness(typed(in_parts=True))
    body = b'{"instances": [[1, 2]], "stream": "yes"}'
    parts: InParts[Any] = InParts(lambda _answer: None, END)
    for number, in_parts in enumerate([None, parts]):
        harness.service.predict("double", body, harness.replies.to(number), in_parts=in_parts)
        status, answer, _ = harness.replies.got[number]
        words = '`stream` of the request is "yes", not true or false'
        assert (status, answer) == (400, {"error": words})
