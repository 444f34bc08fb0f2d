"""The queues of a model against plain lists, which do the same slowly and plainly."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ringbatch.engine.collector.batching import Pending, fitting
from ringbatch.engine.collector.queue import Queue
from ringbatch.engine.collector.queues import Queues
from ringbatch.shm.account import NOBODY
from ringbatch.shm.engine_slots import Request

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
    queue.extend([added], added.rows, added.deadline_ns, (added.account,))


def add_of(queues: Queues, key: bytes, added: Request) -> None:
    queues.extend(key, [added], added.rows, added.deadline_ns, (added.account,))


def seen(queue: Queue, cap: int = CAP, *, others: bool = False, idle: bool = True) -> Pending:
    return queue.pending(cap, others=others, idle=idle)


class QueueMachine(RuleBasedStateMachine):
    """State machine of a queue, compared with a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue()
        self.model: list[Request] = []
        self.count = 0
        self.most_rows = CAP

    @initialize(most_rows=st.sampled_from([1, CAP]))
    def bound(self, most_rows: int) -> None:
        """In most queues, each request has one row."""
        self.most_rows = most_rows

    @rule(
        several=st.lists(st.tuples(st.integers(1, CAP), st.integers(0, 40)), min_size=1, max_size=4)
    )
    def extend(self, several: list[tuple[int, int]]) -> None:
        added = []
        for rows, deadline_ns in several:
            self.count += 1
            own_rows = min(rows, self.most_rows)
            added.append(request(self.count, own_rows, self.count, deadline_ns))
        deadlines_ns = [request.deadline_ns for request in added]
        rows = sum(request.rows for request in added)
        self.queue.extend(added, rows, min(deadlines_ns), (NOBODY,))
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
        assert sorted(self.queue.expire(now_ns)) == expected

    @rule(ref=st.integers(1, 60))
    def remove(self, ref: int) -> None:
        expected = next((r for r in self.model if r.ref == ref), None)
        self.model = [r for r in self.model if r is not expected]
        assert self.queue.remove(ref) is expected

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


class Counted(Request):
    """A request that counts how often it is looked at by reference."""

    looks = 0

    @property
    def ref(self) -> int:
        Counted.looks += 1
        return self[0]


@pytest.mark.parametrize("behind", [True, False], ids=["from behind", "from amid"])
def test_to_remove_one_after_the_other_costs_each_the_same_however_many_wait(behind: bool) -> None:
    Counted.looks = 0
    queue, count = Queue(), 500
    for ref in range(2 * count):
        add(queue, Counted(ref, *request(ref)[1:]))
    for turn in range(count):
        # Meanwhile others come and go.
        assert queue.remove(2 * count - 1 - turn if behind else count // 5 + turn) is not None
        add(queue, Counted(3 * count + turn, *request(0)[1:]))
        if turn % 10 == 0:
            queue.take(1)
    assert Counted.looks < 6 * count


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


def in_turn(queues: Queues, now_ns: int) -> list[int]:
    """The oldest requests of all queues, each time that of the first, which is taken."""
    found = []
    while queues:
        first = queues.first(now_ns)
        found.append(first.oldest.ref)
        queues.take(first, 1000)
    return found


def by_hundredths(request: Request) -> float:
    """Return the part of a batch that a request of so many rows takes."""
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
def test_the_longest_wait_in_relation_to_cost_goes_first(
    waits: list[tuple[int, int]], order: list[int]
) -> None:
    queues = Queues(share=by_hundredths)
    for ref, (rows, waited_ns) in enumerate(waits):
        add_of(queues, bytes([ref]), request(ref, rows, accepted_ns=1000 - waited_ns))
    assert in_turn(queues, 1000) == order


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 900)), min_size=2, max_size=8))
def test_no_request_overtakes_one_that_waited_three_times_as_long(
    waits: list[tuple[int, int]],
) -> None:
    queues = Queues(share=by_hundredths)
    for ref, (rows, waited_ns) in enumerate(waits):
        add_of(queues, bytes([ref]), request(ref, rows, accepted_ns=1000 - waited_ns))
    waited = [waits[ref][1] for ref in in_turn(queues, 1000)]
    for place, own in enumerate(waited):
        assert all(own * 3 + 1e-6 >= later for later in waited[place:])


def test_the_cost_of_the_oldest_is_asked_anew_once_it_is_another() -> None:
    queues = Queues(share=by_hundredths)
    for ref, rows in enumerate([1, 100]):
        add_of(queues, b"a", request(ref, rows, accepted_ns=0))
    add_of(queues, b"b", request(2, 50, accepted_ns=0))
    first = queues.first(1000)
    assert first.oldest.ref == 0
    queues.take(first, 1)
    assert in_turn(queues, 1000) == [2, 1]


class QueuesMachine(RuleBasedStateMachine):
    """The queues of a model, and the lists that they should be; the ranks against a look at all."""

    keys = st.sampled_from([b"", b"a", b"b", b"c"])

    def __init__(self, *, by_cost: bool) -> None:
        super().__init__()
        self.by_cost = by_cost
        self.queues = Queues(share=by_hundredths if by_cost else None)
        self.model: dict[bytes, list[Request]] = {}
        """Requests of each queue, in the order in which the queues began."""
        self.count = 0

    @rule(key=keys, rows=st.integers(1, 100), accepted=st.integers(0, 30), left=st.integers(0, 40))
    def extend(self, key: bytes, rows: int, accepted: int, left: int) -> None:
        self.count += 1
        added = request(self.count, rows, accepted, accepted + left)
        add_of(self.queues, key, added)
        self.model.setdefault(key, []).append(added)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), cap=st.integers(1, 150))
    def take(self, data: st.DataObject, cap: int) -> None:
        queue = data.draw(st.sampled_from([*self.queues]))
        own = self.model[queue.key]
        count = fitting([r.rows for r in own], cap)
        assert self.queues.take(queue, cap) == own[:count]
        self._keep({id(r) for r in own[:count]})

    @rule(now_ns=st.integers(0, 70))
    def expire(self, now_ns: int) -> None:
        expected = [r for own in self.model.values() for r in own if r.deadline_ns <= now_ns]
        assert sorted(self.queues.expire(now_ns)) == sorted(expected)
        self._keep({id(r) for r in expected})

    @rule()
    def empty(self) -> None:
        assert self.queues.empty() == [r for own in self.model.values() for r in own]
        self.model.clear()

    def _keep(self, gone: set[int]) -> None:
        left = {key: [r for r in own if id(r) not in gone] for key, own in self.model.items()}
        self.model = {key: own for key, own in left.items() if own}

    def _ratio(self, own: list[Request], now_ns: int) -> float:
        cost = 0.5 + round(by_hundredths(own[0]) * 16) / 16 if self.by_cost else 0.5
        return max(now_ns - own[0].accepted_ns, 0) / cost

    @precondition(lambda self: self.model)
    @rule(now_ns=st.integers(0, 60))
    def look_for_the_first(self, now_ns: int) -> None:
        best = max(self.model, key=lambda key: self._ratio(self.model[key], now_ns))
        first = self.queues.first(now_ns)
        if now_ns >= 30:
            assert first.key == best
        elif self.by_cost:
            # Some may be accepted later than now, as never in an engine, and have waited as little.
            assert self._ratio([*first], now_ns) == self._ratio(self.model[best], now_ns)
        else:
            assert first.oldest.accepted_ns == min(o[0].accepted_ns for o in self.model.values())

    @precondition(lambda self: len(self.model) > 1)
    @rule()
    def look_for_the_oldest_and_the_most_urgent(self) -> None:
        oldest_ns = min(own[0].accepted_ns for own in self.model.values())
        assert self.queues.oldest().oldest.accepted_ns == oldest_ns
        deadline_ns = min(r.deadline_ns for own in self.model.values() for r in own)
        assert self.queues.most_urgent().earliest_ns == deadline_ns

    @precondition(lambda self: len(self.model) > 1)
    @rule()
    def look_at_grown_queues(self) -> None:
        grown = []
        while (queue := self.queues.take_grown()) is not None:
            grown.append(queue.key)
        assert len(set(grown)) == len(grown)
        assert set(grown) <= set(self.model)

    @precondition(lambda self: len(self.model) > 1)
    @rule(key=keys, rows=st.integers(1, 100))
    def grow_alone(self, key: bytes, rows: int) -> None:
        self.look_at_grown_queues()
        self.extend(key, rows, 0, 0)
        grown = self.queues.take_grown()
        assert grown is not None
        assert grown.key == key
        assert self.queues.take_grown() is None

    @invariant()
    def hold_the_modelled_requests(self) -> None:
        assert {queue.key: [*queue] for queue in self.queues} == self.model
        assert len(self.queues) == len(self.model)
        assert self.queues.rows == sum(r.rows for own in self.model.values() for r in own)

    @rule()
    def look_for_the_earliest(self) -> None:
        deadlines = [r.deadline_ns for own in self.model.values() for r in own]
        earliest_ns = self.queues.earliest_ns
        assert (earliest_ns is None) is (not deadlines)
        assert earliest_ns is None or earliest_ns <= min(deadlines)


class QueuesByAge(QueuesMachine):
    def __init__(self) -> None:
        super().__init__(by_cost=False)


class QueuesByCost(QueuesMachine):
    def __init__(self) -> None:
        super().__init__(by_cost=True)


TestQueuesByAge = QueuesByAge.TestCase
TestQueuesByCost = QueuesByCost.TestCase


def test_a_queue_that_empties_before_it_was_ranked_is_ranked_when_it_is_back() -> None:
    queues = Queues()
    for ref, key in enumerate([b"a", b"b"]):
        add_of(queues, key, request(ref))
    for queue in [*queues][::-1]:
        queues.take(queue, CAP)
    for ref, key in enumerate([b"a", b"b"]):
        add_of(queues, key, request(ref))
    assert in_turn(queues, 1000) == [0, 1]


def in_pairs(requests: Iterable[Request]) -> int:
    """A bound of two requests to a batch."""
    return min(sum(1 for _ in requests), 2)


def test_a_queue_is_full_where_a_further_request_would_not_fit() -> None:
    queue = Queue(in_pairs)
    for number, full in enumerate([False, False, True, True], start=1):
        add(queue, request(number))
        assert seen(queue).full is full


def test_another_bound_takes_fewer_than_the_rows_would() -> None:
    queues = Queues(in_pairs)
    for number in range(1, 6):
        add_of(queues, b"", request(number, rows=2))
    (only,) = queues
    assert [r.ref for r in queues.take(only, CAP)] == [1, 2]
    assert only.rows == 6
    assert [r.ref for r in queues.take(only, 3)] == [3], "the rows bind as well"
    assert [r.ref for r in queues.take(only, CAP)] == [4, 5]
    assert (len(queues), queues.rows) == (0, 0)
