"""Tests shm/awaited.py: whether all of a worker's requests are still waited for."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lane_harness import SLOTS, Harness, ask

from ringbatch.shm.awaited import AwaitedRequests
from ringbatch.shm.lane import Lane
from ringbatch.shm.parts import move_deadline

DEADLINE_NS = 6
"""Deadline of the requests that `ask` makes."""
BEFORE_NS = DEADLINE_NS - 1

Happens = Callable[[Lane, int], object]
GIVES_UP: dict[str, Happens] = {
    "is cancelled": lambda lane, slot: lane.cancel(slot),
    "has an earlier deadline": lambda lane, slot: move_deadline(lane, slot, BEFORE_NS),
}


@pytest.mark.parametrize("count", [1, 2, SLOTS])
@pytest.mark.parametrize("happens", GIVES_UP.values(), ids=GIVES_UP)
def test_all_wait_until_one_gives_up(count: int, happens: Happens) -> None:
    for number in range(count):
        harness = Harness()
        slots = [ask(harness.lane) for _ in range(count)]
        harness.lane.submit()
        references = [request.ref for request in harness.requests()]
        awaited = AwaitedRequests(harness.segment)
        assert awaited.all_wait(references, BEFORE_NS)
        happens(harness.lane, slots[number])
        assert not awaited.all_wait(references, BEFORE_NS)
        others = [ref for ref in references if ref != references[number]]
        assert awaited.all_wait(others, BEFORE_NS), "the next question is of others"
        assert not awaited.all_wait(references, BEFORE_NS)


def test_a_deadline_has_come_at_its_instant() -> None:
    harness = Harness()
    ask(harness.lane)
    harness.lane.submit()
    (request,) = harness.requests()
    awaited = AwaitedRequests(harness.segment)
    assert awaited.all_wait([request.ref], BEFORE_NS)
    assert not awaited.all_wait([request.ref], DEADLINE_NS)


def test_nobody_has_given_up_where_there_is_nobody() -> None:
    assert AwaitedRequests(Harness().segment).all_wait([], DEADLINE_NS)


def test_a_later_request_in_the_slot_is_another() -> None:
    harness = Harness()
    slot = ask(harness.lane)
    harness.lane.submit()
    (request,) = harness.requests()
    awaited = AwaitedRequests(harness.segment)
    assert awaited.all_wait([request.ref], BEFORE_NS)
    harness.answer(request)
    harness.worker.flush()
    for answered in harness.lane.collect():
        harness.lane.release(answered)
    while ask(harness.lane) != slot:
        pass
    assert not awaited.all_wait([request.ref], BEFORE_NS)


@given(st.lists(st.tuples(st.integers(0, SLOTS - 1), st.booleans()), max_size=8))
def test_any_requests_are_judged_as_each_alone(asked: list[tuple[int, bool]]) -> None:
    harness = Harness()
    slots = [ask(harness.lane) for _ in range(SLOTS)]
    harness.lane.submit()
    references = [request.ref for request in harness.requests()]
    awaited = AwaitedRequests(harness.segment)
    for first, cancels in asked:
        if cancels:
            harness.lane.cancel(slots[first])
        some = references[first:]
        none_gone = not harness.worker.given_up(some, BEFORE_NS)
        assert awaited.all_wait(some, BEFORE_NS) is none_gone
