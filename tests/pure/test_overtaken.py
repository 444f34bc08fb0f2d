"""Overtaken accounts: their requests wait while later ones of other accounts have their turn."""

from collections.abc import Iterable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.collector.fair_order import FairOrder
from ringbatch.engine.collector.queues import Queues
from ringbatch.engine.collector.usage import Usage, without_repeats
from ringbatch.shm.account import PriorityClass, account_word
from ringbatch.shm.engine_slots import Request

A, B, C = 1, 2, 3
BULK_A = account_word(A, PriorityClass.BULK)
CAP = 4


def request(ref: int, account: int, deadline_ns: int = 1 << 62) -> Request:
    return Request(ref, 0, 1, 0, 0, 0, 0, 0, ref, deadline_ns, account)


def add(queues: Queues, *requests: Request, key: bytes = b"") -> None:
    deadline_ns = min(each.deadline_ns for each in requests)
    words = without_repeats([each.account for each in requests])
    queues.extend(key, requests, len(requests), deadline_ns, words)


def overtaken(accounts: Iterable[int], cap: int = 2) -> dict[int, int]:
    """Return when each request was first overtaken; a turn of `cap` requests takes 100 ns."""
    usage = Usage()
    order = FairOrder(usage, None, map(request, count(), accounts))
    now_ns = 0
    while order:
        now_ns += 100
        for _ in range(min(cap, len(order))):
            order.popleft()
        order.end_turn(now_ns)
    return usage.overtaken


CASES = {
    "one account alone": ([A] * 6, {}),
    "two that take turns as they came": ([A, B] * 3, {}),
    "a flood before a polite one": ([A, A, A, A, B], {1: 100, 2: 100, 3: 100}),
    "a flood that one in its own batch overtakes": ([A, A, B], {1: 100}),
    "the same account in another class": ([BULK_A, BULK_A, A, A], {0: 100, 1: 100}),
    "a later flood": ([A, B, A, A, A, B, B], {3: 200, 4: 200}),
}


@pytest.mark.parametrize(("accounts", "expected"), CASES.values(), ids=CASES)
def test_an_earlier_request_that_later_ones_pass_is_overtaken(
    accounts: list[int], expected: dict[int, int]
) -> None:
    assert overtaken(accounts) == expected


@given(st.lists(st.sampled_from([A, B, C, BULK_A]), min_size=1, max_size=40), st.integers(1, 5))
def test_it_is_overtaken_from_the_first_batch_with_a_later_request(
    accounts: list[int], cap: int
) -> None:
    order = FairOrder(Usage(), None, map(request, count(), accounts))
    refs = [order.popleft().ref for _ in accounts]
    turns = [refs[first : first + cap] for first in range(0, len(refs), cap)]
    expected = {}
    for number, turn in enumerate(turns):
        for ref in turn:
            before = [n for n in range(number) if max(turns[n]) > ref]
            if before:
                expected[ref] = 100 * (before[0] + 1)
    assert overtaken(accounts, cap) == expected


def test_a_long_wait_keeps_few_turns_and_makes_nobody_overtaken_sooner() -> None:
    usage = Usage()
    order = FairOrder(usage, None, [request(0, BULK_A)])
    waiting = [(0, 100)]
    for now_ns in range(100, 10_000):
        order.extend([request(now_ns, B)])
        # Bulk would have its turn by and by.
        usage.classes[PriorityClass.BULK].used = 1e9
        assert order.popleft().account == B
        order.end_turn(now_ns)
        assert len(order._overtakes) < 1024
        if now_ns % 1_000 == 0:
            waiting.append((now_ns, now_ns + 1))
            order.extend([request(now_ns * 100, BULK_A)])
    while order:
        order.popleft()
    for came_ns, overtaken_ns in waiting:
        late_ns = usage.overtaken[100 * came_ns] - overtaken_ns
        assert 0 <= late_ns <= (10_000 - overtaken_ns) / 8


def test_a_request_that_leaves_is_overtaken_by_a_later_one() -> None:
    usage = Usage()
    first = [request(0, A), request(1, A), request(2, B)]
    order = FairOrder(usage, None, first)
    assert [order.popleft().ref, order.popleft().ref] == [0, 2]
    order.end_turn(100)
    order.extend([request(3, A)])
    order.remove(3)
    assert not usage.overtaken
    order.remove(1)
    assert usage.overtaken == {1: 100}


def test_an_expired_request_is_overtaken_too_and_the_instant_stays_after_the_turns() -> None:
    queues = Queues()
    add(queues, *[request(ref, A, 900) for ref in range(6)], request(6, B))
    queue = queues.first(100)
    assert [each.ref for each in queues.take(queue, CAP)] == [0, 6, 1, 2]
    queues.end_turn(queue, 100)
    assert not queues.overtaken
    assert [each.ref for each in queues.expire(900)] == [3, 4, 5]
    assert not queues.rows
    assert queues.overtaken == {3: 100, 4: 100, 5: 100}


def test_the_account_in_turn_overtakes_with_another_queue() -> None:
    queues = Queues()
    add(queues, *[request(ref, A) for ref in range(6)], key=b"a")
    add(queues, request(6, B), key=b"b")
    taken = []
    for now_ns in (100, 200, 300):
        queue = queues.first(now_ns)
        taken.append([each.ref for each in queues.take(queue, CAP)])
        queues.end_turn(queue, now_ns)
    assert taken == [[0, 1, 2, 3], [6], [4, 5]]
    assert queues.overtaken == {4: 200, 5: 200}


def test_a_request_that_only_finds_room_in_a_batch_overtakes_nobody() -> None:
    queues = Queues()
    add(queues, request(0, A), key=b"a")
    add(queues, request(1, B), key=b"b")
    add(queues, request(2, A), key=b"b")
    add(queues, request(3, A), request(4, B), key=b"a")
    while queues.rows:
        queue = queues.first(100)
        queues.take(queue, CAP)
        queues.end_turn(queue, 100)
    assert not queues.overtaken


def test_a_queue_that_goes_out_of_turn_overtakes_nobody() -> None:
    """A full queue goes before one whose batch may still grow."""
    queues = Queues()
    add(queues, *[request(ref, A) for ref in range(10)], key=b"a")
    add(queues, request(10, B), key=b"b")
    for now_ns in (100, 200, 300):
        (queue,) = (each for each in queues if each.key == b"a")
        queues.first(now_ns)
        queues.take(queue, CAP)
        queues.end_turn(queue, now_ns)
    assert not queues.overtaken
