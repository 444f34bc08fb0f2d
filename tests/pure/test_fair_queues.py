"""Queues of one model whose requests are of several accounts."""

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pytest
from fair_shares_reference import PlainShares
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ringbatch.engine.collector.queue import Key, Queue
from ringbatch.engine.collector.queues import Queues
from ringbatch.engine.collector.usage import SEVERAL, without_repeats
from ringbatch.shm.account import PriorityClass, account_word
from ringbatch.shm.engine_slots import Request

A, B, C = 1, 2, 3
CAP = 4
FAR_NS = 1 << 62
_WORDS = (A, B, account_word(C, PriorityClass.INTERACTIVE), account_word(A, weight=3))


def request(ref: int, account: int, rows: int = 1, deadline_ns: int = FAR_NS) -> Request:
    return Request(ref, 0, rows, 0, 0, 0, 0, 0, ref, deadline_ns, account)


def add(queues: Queues, *requests: Request, key: bytes = b"") -> None:
    rows, deadline_ns = sum(r.rows for r in requests), min(r.deadline_ns for r in requests)
    words = without_repeats([r.account for r in requests])
    queues.extend(key, requests, rows, deadline_ns, words)


def refs(requests: Iterable[Request]) -> list[int]:
    return [each.ref for each in requests]


def batches(queues: Queues, cap: int = CAP) -> list[list[int]]:
    """Return the batches taken until no request waits."""
    found = []
    while queues.rows:
        found.append(refs(queues.take(queues.first(1_000), cap)))
    return found


def takes_turns(queues: Queues) -> bool:
    return queues._usage is not None


def test_the_requests_of_one_account_wait_as_ever() -> None:
    queues = Queues()
    for ref in range(10):
        add(queues, request(ref, A))
    assert refs(queues.take(queues.first(1_000), CAP)) == [0, 1, 2, 3]
    assert not takes_turns(queues)


def test_there_are_no_turns_while_a_batch_takes_everything() -> None:
    queues = Queues()
    for first in range(0, 40, CAP):
        add(queues, request(first, A), request(first + 1, B))
        add(queues, request(first + 2, B))
        assert refs(queues.take(queues.first(1_000), CAP)) == [first, first + 1, first + 2]
        assert not takes_turns(queues)


@pytest.mark.parametrize("together", [True, False])
def test_a_polite_account_is_in_the_next_batch(together: bool) -> None:
    queues = Queues()
    requests = [*[request(ref, A) for ref in range(10)], request(10, B)]
    if together:
        add(queues, *requests)
    else:
        for each in requests:
            add(queues, each)
    assert batches(queues) == [[0, 10, 1, 2], [3, 4, 5, 6], [7, 8, 9]]


def test_turns_end_once_nothing_waits() -> None:
    queues = Queues()
    add(queues, *[request(ref, ref % 2) for ref in range(10)])
    queues.take(queues.first(1_000), CAP)
    assert takes_turns(queues)
    queues.take(queues.first(1_000), 100)
    assert not takes_turns(queues)
    add(queues, *[request(ref, A) for ref in range(10)])
    queues.take(queues.first(1_000), CAP)
    assert not takes_turns(queues)


def test_requests_that_leave_unserved_end_the_turns_too() -> None:
    queues = Queues()
    add(queues, *[request(ref, ref % 2) for ref in range(10)], key=b"a")
    add(queues, request(10, B), key=b"b")
    queues.take(queues.first(1_000), CAP)
    left = [each for queue in queues for each in queue]
    for each in left:
        queues.remove(b"b" if each.ref == 10 else b"a", each.ref)
    assert not takes_turns(queues)
    assert not queues._keys


def test_the_oldest_request_is_the_one_that_came_first() -> None:
    queues = Queues()
    add(queues, *[request(ref, A) for ref in range(10)], request(10, B))
    queues.take(queues.first(1_000), 2)
    assert queues.first(1_000).oldest.ref == 1, "0 and 10 have left"
    assert queues.first(1_000).pending(CAP, others=False, idle=True).oldest_ns == 1


def test_the_queue_of_the_account_in_turn_goes_first() -> None:
    queues = Queues()
    for ref in range(10):
        add(queues, request(ref, A), key=b"long" if ref % 2 else b"short")
    add(queues, request(10, B), key=b"other")
    assert batches(queues) == [[0, 2, 4, 6], [10], [1, 3, 5, 7], [8], [9]]


def test_a_batch_of_one_signature_counts_in_all_queues() -> None:
    queues = Queues()
    add(queues, *[request(ref, A) for ref in range(8)], key=b"a")
    add(queues, *[request(ref, B) for ref in range(8, 16)], key=b"b")
    assert batches(queues) == [[0, 1, 2, 3], [8, 9, 10, 11], [4, 5, 6, 7], [12, 13, 14, 15]]


def in_threes(requests: Iterable[Request]) -> int:
    """A bound of three requests to a batch."""
    count = 0
    for _ in requests:
        if count == 3:
            break
        count += 1
    return count


def test_another_bound_than_rows_follows_the_turns() -> None:
    queues = Queues(in_threes)
    add(queues, *[request(ref, A) for ref in range(5)], request(5, B))
    assert batches(queues, 100) == [[0, 5, 1], [2, 3, 4]]


def test_costs_count_where_requests_have_costs() -> None:
    queues = Queues(share=lambda each: each.rows / 128)
    add(queues, *[request(ref, A, 64) for ref in range(4)])
    add(queues, *[request(ref, B, 8) for ref in range(4, 14)])
    assert refs(queues.take(queues.first(1_000), 128)) == [4, 5, 6, 7, 8, 9, 10, 0, 11]


def test_a_request_without_elements_still_counts() -> None:
    queues = Queues(share=lambda _: 0.0)
    add(queues, *[request(ref, A) for ref in range(4)])
    add(queues, *[request(ref, B) for ref in range(4, 8)])
    assert batches(queues) == [[0, 4, 1, 5], [2, 6, 3, 7]]


class FairQueuesMachine(RuleBasedStateMachine):
    """The queues of a model, against lists and a plain count of the use of each account."""

    keys = st.sampled_from([b"a", b"b", b"c"])
    words = st.sampled_from(_WORDS)

    def __init__(self) -> None:
        super().__init__()
        self.queues = Queues()
        self.lists: dict[Key, list[Request]] = {}
        self.shares: PlainShares | None = None
        self.count = 0

    @rule(
        key=keys,
        several=st.lists(
            st.tuples(words, st.integers(1, CAP), st.integers(0, 40)), min_size=1, max_size=5
        ),
    )
    def extend(self, key: bytes, several: list[tuple[int, int, int]]) -> None:
        requests = []
        for word, rows, deadline_ns in several:
            self.count += 1
            requests.append(request(self.count, word, rows, deadline_ns))
        add(self.queues, *requests, key=key)
        self.lists.setdefault(key, []).extend(requests)
        if self.shares is not None:
            self.shares.came(requests)

    def _waiting(self) -> list[Request]:
        return sorted(each for own in self.lists.values() for each in own)

    def _turns(self) -> PlainShares:
        if self.shares is None:
            self.shares = PlainShares()
            self.shares.came(self._waiting())
        return self.shares

    @precondition(lambda self: self.queues.rows)
    @rule(cap=st.integers(1, 3 * CAP))
    def take(self, cap: int) -> None:
        queue = self.queues.first(1_000)
        own = self.lists[queue.key]
        mixed = self.queues.word == SEVERAL
        if mixed and len(self.lists) > 1:
            assert self._turns().next_of(self._waiting()) in own
        if mixed and sum(each.rows for each in own) > cap:
            self._turns()
        self._expect(queue, own, cap)

    def _expect(self, queue: Queue, own: list[Request], cap: int) -> None:
        expected, left, rows = list[Request](), [*own], 0
        while left:
            following = left[0] if self.shares is None else self.shares.next_of(left)
            rows += following.rows
            if rows > cap and expected:
                break
            expected.append(following)
            left.remove(following)
            if self.shares is not None:
                self.shares.charge(following)
        assert self.queues.take(queue, cap) == expected
        self._keep(queue.key, left)

    def _keep(self, key: Key, left: list[Request]) -> None:
        self.lists[key] = left
        if not left:
            del self.lists[key]
        if self.shares is not None:
            self.shares.left(self._waiting())
            self.shares = self.shares if self.lists else None

    @rule(now_ns=st.integers(0, 45))
    def expire(self, now_ns: int) -> None:
        expected = [each for each in self._waiting() if each.deadline_ns <= now_ns]
        assert sorted(self.queues.expire(now_ns)) == expected
        for key in [*self.lists]:
            self._keep(key, [each for each in self.lists[key] if each.deadline_ns > now_ns])

    @rule(key=keys, ref=st.integers(1, 60))
    def remove(self, key: bytes, ref: int) -> None:
        own = self.lists.get(key, [])
        expected = next((each for each in own if each.ref == ref), None)
        assert self.queues.remove(key, ref) is expected
        if expected is not None:
            self._keep(key, [each for each in own if each is not expected])

    @rule()
    def empty(self) -> None:
        assert sorted(self.queues.empty()) == self._waiting()
        self.lists, self.shares = {}, None

    @invariant()
    def hold_waiting_requests_by_arrival(self) -> None:
        assert {queue.key: [*queue] for queue in self.queues} == self.lists
        assert self.queues.rows == sum(each.rows for each in self._waiting())

    @invariant()
    def they_know_the_accounts_that_wait_and_no_others(self) -> None:
        usage = self.queues._usage
        assert (usage is None) is (self.shares is None)
        if usage is not None and self.shares is not None:
            assert usage.accounts == len(self.shares.used)


TestFairQueues = FairQueuesMachine.TestCase


@given(st.lists(st.integers(1, CAP), min_size=1), st.integers(1, 2 * CAP), st.sampled_from(_WORDS))
def test_one_account_is_served_in_the_order_of_arrival(
    rows: Sequence[int], cap: int, word: int
) -> None:
    """The account's word makes no difference: batches are those of requests without an account."""

    def served(account: int) -> list[list[int]]:
        queues = Queues()
        for ref, own in enumerate(rows):
            add(queues, request(ref, account, own), key=b"ab"[ref % 2 :])
        return batches(queues, cap)

    assert served(word) == served(0)


RUN_NS = 10_000_000
SECONDS = 10


class Client(NamedTuple):
    """Client that sends its next request a moment after each answer."""

    account: int
    thinking_ns: int = 100_000


def served(clients: Sequence[Client], cap: int = 32) -> dict[int, list[int]]:
    """Return the latencies by account, with one batch given in advance of the running one."""
    queues, took_ns = Queues(), dict[int, list[int]]()
    coming = [(1000 * number, number) for number in range(len(clients))]
    ahead: list[Request] = []
    now_ns = 0
    while now_ns < SECONDS * 1_000_000_000:
        running, ahead = ahead, []
        if not running:
            now_ns = max(now_ns, coming[0][0])
        while coming and coming[0][0] <= now_ns:
            at_ns, number = heapq.heappop(coming)
            fields = (number, 0, 1, 0, 0, 0, 0, 0, at_ns, FAR_NS, clients[number].account)
            add(queues, Request(*fields))
        if not running:
            running = queues.take(queues.first(now_ns), cap)
        if queues.rows >= cap:
            ahead = queues.take(queues.first(now_ns), cap)
        now_ns += RUN_NS
        for each in running:
            took_ns.setdefault(each.account, []).append(now_ns - each.accepted_ns)
            heapq.heappush(coming, (now_ns + clients[each.ref].thinking_ns, each.ref))
    return took_ns


def p99_ms(took_ns: Sequence[int]) -> float:
    return sorted(took_ns)[int(0.99 * len(took_ns))] / 1e6


def test_a_polite_client_waits_three_times_as_long_beside_a_flood_and_no_longer() -> None:
    polite, flood = Client(A), [Client(B)] * 512
    alone = p99_ms(served([polite])[A])
    beside = served([polite, *flood])
    assert alone == RUN_NS / 1e6
    assert p99_ms(beside[A]) <= 3 * alone
    first_come = served([Client(B), *flood])
    assert p99_ms(first_come[B]) >= 16 * alone
    answers = [sum(map(len, found.values())) for found in (beside, first_come)]
    assert answers[0] == answers[1], "turns cost no throughput"
