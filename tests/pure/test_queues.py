"""The queues of a model against plain lists, which do the same slowly and plainly."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ringbatch.engine.collector.batching import Pending, fitting
from ringbatch.engine.collector.queues import Queue, Queues
from ringbatch.shm.engine_port import Request

CAP = 8


def request(ref: int, rows: int = 1, accepted_ns: int = 0, deadline_ns: int = 100) -> Request:
    return Request(
        ref=ref,
        model=0,
        rows=rows,
        accepted_ns=accepted_ns,
        deadline_ns=deadline_ns,
        request_offset=0,
        request_bytes=0,
        key_bytes=0,
        result_offset=0,
        result_capacity=0,
    )


def add(queue: Queue, added: Request) -> None:
    queue.extend([added], added.rows, added.deadline_ns)


def add_of(queues: Queues, key: bytes, added: Request) -> None:
    queues.extend(key, [added], added.rows, added.deadline_ns)


def seen(queue: Queue, cap: int = CAP, *, others: bool = False, idle: bool = True) -> Pending:
    return queue.pending(cap, others=others, first=True, idle=idle)


class QueueMachine(RuleBasedStateMachine):
    """One queue, and the list that it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue()
        self.model: list[Request] = []
        self.count = 0

    @rule(
        several=st.lists(st.tuples(st.integers(1, CAP), st.integers(0, 40)), min_size=1, max_size=4)
    )
    def extend(self, several: list[tuple[int, int]]) -> None:
        added = []
        for rows, deadline_ns in several:
            self.count += 1
            added.append(request(self.count, rows, self.count, deadline_ns))
        deadlines_ns = [request.deadline_ns for request in added]
        self.queue.extend(added, sum(rows for rows, _ in several), min(deadlines_ns))
        self.model += added

    @precondition(lambda self: self.model)
    @rule(cap=st.integers(1, 2 * CAP))
    def take(self, cap: int) -> None:
        count = fitting([r.rows for r in self.model], cap)
        expected, self.model = self.model[:count], self.model[count:]
        assert self.queue.take(cap) == expected

    @rule(now_ns=st.integers(0, 45))
    def expire(self, now_ns: int) -> None:
        expected = [r for r in self.model if r.deadline_ns <= now_ns]
        self.model = [r for r in self.model if r.deadline_ns > now_ns]
        assert self.queue.expire(now_ns) == expected

    @precondition(lambda self: self.model)
    @rule(cap=st.integers(1, 3 * CAP), others=st.booleans())
    def look(self, cap: int, others: bool) -> None:
        found = seen(self.queue, cap, others=others)
        assert found.requests == len(self.model)
        assert found.rows == sum(r.rows for r in self.model)
        assert found.oldest_ns == self.model[0].accepted_ns
        assert found.others is others
        earliest_ns = min(r.deadline_ns for r in self.model)
        if found.rows < cap:
            assert found.deadline_ns == earliest_ns
        else:
            assert found.deadline_ns <= earliest_ns

    @invariant()
    def counts_are_those_of_the_list(self) -> None:
        assert len(self.queue) == len(self.model)
        assert self.queue.rows == sum(r.rows for r in self.model)

    @invariant()
    def nothing_expires_before_the_instant_it_names(self) -> None:
        assert all(self.queue.earliest_ns <= r.deadline_ns for r in self.model)


TestQueue = QueueMachine.TestCase


def test_nothing_expires_one_nanosecond_before_its_deadline() -> None:
    queue = Queue()
    add(queue, request(1, deadline_ns=100))
    assert queue.expire(99) == []
    assert [r.ref for r in queue.expire(100)] == [1]


def test_a_full_queue_does_not_look_for_its_earliest_deadline() -> None:
    queue = Queue()
    for ref, deadline_ns in enumerate([5, 90, 80, 70]):
        add(queue, request(ref, rows=4, deadline_ns=deadline_ns))
    queue.take(4)
    assert seen(queue, cap=4).deadline_ns == 5, "a lower bound is enough there"
    assert seen(queue, cap=16, idle=False).deadline_ns == 5, "and without an idle worker"
    assert seen(queue, cap=16).deadline_ns == 70


@given(st.lists(st.tuples(st.sampled_from([b"", b"a", b"b"]), st.integers(0, 50)), min_size=1))
def test_queues_are_kept_apart_and_the_one_with_the_oldest_head_comes_first(
    arrivals: list[tuple[bytes, int]],
) -> None:
    queues = Queues()
    expected: dict[bytes, list[int]] = {}
    for ref, (key, accepted_ns) in enumerate(arrivals):
        add_of(queues, key, request(ref, accepted_ns=accepted_ns))
        expected.setdefault(key, []).append(ref)
    assert len(queues) == len(expected)
    heads = [next(iter(queue)).accepted_ns for queue in queues.in_turn(100)]
    assert heads == sorted(heads)
    found = [[r.ref for r in queue.take(1000)] for queue in queues]
    assert sorted(found) == sorted(expected.values())


def by_hundredths(request: Request) -> float:
    """The part of a batch that a request of so many rows takes."""
    return request.rows / 100


@pytest.mark.parametrize(
    ("waits", "order"),
    [
        ([(100, 10), (1, 10)], [1, 0]),
        ([(100, 29), (1, 10)], [1, 0]),
        ([(100, 30), (1, 10)], [0, 1]),
        ([(100, 20), (50, 14), (1, 6)], [1, 0, 2]),
        ([(7, 5), (7, 5), (7, 6)], [2, 0, 1]),
    ],
)
def test_who_has_waited_longest_by_what_it_costs_goes_first(
    waits: list[tuple[int, int]], order: list[int]
) -> None:
    queues = Queues(share=by_hundredths)
    for ref, (rows, waited_ns) in enumerate(waits):
        add_of(queues, bytes([ref]), request(ref, rows, accepted_ns=1000 - waited_ns))
    assert [next(iter(queue)).ref for queue in queues.in_turn(1000)] == order


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 900)), min_size=2, max_size=8))
def test_nobody_goes_before_whoever_has_waited_three_times_as_long(
    waits: list[tuple[int, int]],
) -> None:
    queues = Queues(share=by_hundredths)
    for ref, (rows, waited_ns) in enumerate(waits):
        add_of(queues, bytes([ref]), request(ref, rows, accepted_ns=1000 - waited_ns))
    waited = [1000 - next(iter(queue)).accepted_ns for queue in queues.in_turn(1000)]
    for place, own in enumerate(waited):
        assert all(own * 3 + 1e-6 >= later for later in waited[place:])


def test_what_the_oldest_costs_is_asked_anew_once_it_is_another() -> None:
    queues = Queues(share=by_hundredths)
    for ref, rows in enumerate([1, 100]):
        add_of(queues, b"a", request(ref, rows, accepted_ns=0))
    add_of(queues, b"b", request(2, 50, accepted_ns=0))
    first, second = queues.in_turn(1000)
    assert [next(iter(first)).ref, next(iter(second)).ref] == [0, 2]
    first.take(1)
    assert [next(iter(queue)).ref for queue in queues.in_turn(1000)] == [2, 1]


def test_a_signature_of_which_nothing_waits_is_forgotten() -> None:
    queues = Queues()
    for ref, key in enumerate([b"a", b"b"]):
        add_of(queues, key, request(ref, accepted_ns=ref))
    first, second = queues
    first.take(CAP)
    queues.drop_empty()
    assert list(queues) == [second]
    second.take(CAP)
    queues.drop_empty()
    assert len(queues) == 0


def test_a_queue_may_be_emptied_while_the_queues_are_gone_through() -> None:
    queues = Queues()
    for ref, key in enumerate([b"a", b"b", b"c"]):
        add_of(queues, key, request(ref, accepted_ns=ref))
    seen = []
    for queue in queues.in_turn(0):
        seen += [r.ref for r in queue.take(CAP)]
        queues.drop_empty()
    assert seen == [0, 1, 2]


def in_pairs(requests: Iterable[Request]) -> int:
    """A bound of two requests to a batch."""
    return min(sum(1 for _ in requests), 2)


def test_a_queue_is_full_where_a_further_request_would_not_fit() -> None:
    queue = Queue(in_pairs)
    for number, full in enumerate([False, False, True, True], start=1):
        add(queue, request(number))
        assert seen(queue).full is full


def test_another_bound_takes_fewer_than_the_rows_would() -> None:
    queue = Queues(in_pairs)
    for number in range(1, 6):
        add_of(queue, b"", request(number, rows=2))
    (only,) = queue
    assert [r.ref for r in only.take(CAP)] == [1, 2]
    assert only.rows == 6
    assert [r.ref for r in only.take(3)] == [3], "the rows bind as well"
    assert [r.ref for r in only.take(CAP)] == [4, 5]
    assert (len(only), only.rows) == (0, 0)
