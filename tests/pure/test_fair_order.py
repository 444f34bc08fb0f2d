"""Fair shares: the order of requests of several accounts against a plain model of its rule.

`test_fair_bounds` has the properties of the rule.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice
from typing import Final

import pytest
from fair_shares_reference import PlainShares
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from simulation.mutation import Mutant
from tiers import only

from ringbatch.engine.collector.fair_order import FairOrder
from ringbatch.engine.collector.lines import ClassTurns, Line
from ringbatch.engine.collector.usage import CLASS_WEIGHTS, Usage
from ringbatch.shm.account import PriorityClass, account_word, class_of
from ringbatch.shm.engine_slots import Request

INTERACTIVE, NORMAL, BULK = PriorityClass.INTERACTIVE, PriorityClass.NORMAL, PriorityClass.BULK
A, B, C = 1, 2, 3
MOST_ROWS = 8


def request(ref: int, account: int = A, rows: int = 1) -> Request:
    return Request(ref, 0, rows, 0, 0, 0, 0, 0, ref, 1 << 62, account)


def rows_of(request: Request) -> float:
    return request.rows


def order_of(*requests: Request, usage: Usage | None = None) -> FairOrder:
    return FairOrder(usage or Usage(), None, requests)


def waiting(word: int, number: int, rows: int = 1, first: int = 0) -> list[Request]:
    """Return so many waiting requests of one account."""
    return [request(first + place, word, rows) for place in range(number)]


def taken(order: FairOrder) -> Iterator[Request]:
    """Requests as they are taken, until none is left."""
    while order:
        yield order.popleft()


def accounts(order: FairOrder) -> list[int]:
    return [request.account for request in taken(order)]


FLOOD = waiting(A, 6)
INTERACTIVE_B, BULK_B = account_word(B, INTERACTIVE), account_word(B, BULK)
HEAVY_B = account_word(B, weight=2)
CASES = {
    "one account alone": ([*FLOOD], [A] * 6),
    "a polite account": ([*FLOOD, request(9, B)], [A, B, A, A, A, A, A]),
    "two take turns": ([*FLOOD, *waiting(B, 3, first=10)], [A, B, A, B, A, B, A, A, A]),
    "rows count, not requests": (
        [*waiting(A, 2, rows=4), *waiting(B, 8, first=10)],
        [B, B, B, A, B, B, B, B, A, B],
    ),
    "each request counts with its own rows": (
        [request(0, A, 4), request(1, A), *waiting(B, 3, rows=2, first=10)],
        [B, A, B, A, B],
    ),
    "twice the weight, twice the rows": (
        [*FLOOD, *waiting(HEAVY_B, 6, first=10)],
        [HEAVY_B, A, HEAVY_B, HEAVY_B, A, HEAVY_B, HEAVY_B, A, HEAVY_B, A, A, A],
    ),
    "interactive goes first": (
        [*FLOOD, *waiting(INTERACTIVE_B, 2, first=10)],
        [INTERACTIVE_B, INTERACTIVE_B, *[A] * 6],
    ),
    "bulk gets one row in nine": (
        [*waiting(BULK_B, 2, first=10), *waiting(A, 9)],
        [*[A] * 7, BULK_B, A, A, BULK_B],
    ),
}


@pytest.mark.parametrize(("requests", "expected"), CASES.values(), ids=CASES)
def test_the_account_that_has_used_least_goes_next(
    requests: list[Request], expected: list[int]
) -> None:
    assert accounts(order_of(*requests)) == expected


def test_within_an_account_the_first_request_goes_first() -> None:
    order = order_of(*[request(ref, ref % 3) for ref in range(30)])
    by_account: dict[int, list[int]] = {}
    for each in taken(order):
        by_account.setdefault(each.account, []).append(each.ref)
    assert all(refs == sorted(refs) for refs in by_account.values())


words = st.builds(
    account_word, st.integers(0, 3), st.sampled_from(PriorityClass), st.integers(1, 3)
)
many_requests = st.lists(st.tuples(words, st.integers(1, MOST_ROWS)), max_size=30)


@given(st.lists(st.integers(1, MOST_ROWS), max_size=30), words)
def test_requests_of_one_account_keep_their_order(rows: list[int], word: int) -> None:
    requests = [request(ref, word, own) for ref, own in enumerate(rows)]
    assert [*taken(order_of(*requests))] == requests


@pytest.mark.parametrize("new_ones", [1, 3])
def test_new_accounts_wait_behind_those_that_are_there(new_ones: int) -> None:
    """More accounts come than are served, each for the first time and with one request."""
    usage, names = Usage(), count(100)
    order, turns = order_of(*waiting(A, 100), usage=usage), 0
    others = before = 0
    for _ in range(300):
        order.extend([request(1000 + name, name) for name in islice(names, new_ones)])
        if order.popleft().account == A:
            turns, others, before = turns + 1, usage.accounts - 1, 0
        else:
            before += 1
        assert before <= others or not turns
    assert turns >= 5


def test_an_idle_account_saves_nothing_up() -> None:
    order = order_of(*waiting(A, 100))
    for _ in range(50):
        order.popleft()
    order.extend(waiting(B, 50, first=1000))
    assert [each.account for each in islice(taken(order), 10)].count(B) == 5


def test_an_account_that_leaves_and_comes_back_is_not_ahead() -> None:
    order = order_of(*waiting(A, 100))
    found = []
    for ref in range(1000, 1030):
        order.extend([request(ref, B)])
        found += [order.popleft().account, order.popleft().account]
    assert found.count(B) == 30


def test_each_class_has_its_share_however_many_accounts_are_in_it() -> None:
    requests: list[Request] = []
    for name in range(30):
        kind = BULK if name == 0 else NORMAL if name < 3 else INTERACTIVE
        requests += waiting(account_word(name, kind), 1000, first=1000 * name)
    order = order_of(*requests)
    served = dict.fromkeys(PriorityClass, 0)
    for each in islice(taken(order), 10 * sum(CLASS_WEIGHTS.values())):
        served[class_of(each.account)] += 1
    for kind, weight in CLASS_WEIGHTS.items():
        assert abs(served[kind] - 10 * weight) <= 2


def test_a_number_that_names_no_class_is_normal() -> None:
    strange = 200 << 48 | B
    assert accounts(order_of(request(1, BULK_B), request(2, strange))) == [strange, BULK_B]


def test_an_account_is_forgotten_with_its_last_request() -> None:
    usage = Usage()
    order = order_of(usage=usage)
    for name in range(10_000):
        order.extend([request(2 * name, name), request(2 * name + 1, name)])
        if name % 2:
            order.popleft()
            order.popleft()
            order.popleft()
            order.popleft()
        else:
            order.extend([request(2 * name + 50_000, name)])
            order.remove(2 * name + 50_000)
        assert usage.accounts <= 2
    assert usage.accounts == 0


def test_accounts_that_leave_unserved_leave_nothing_behind() -> None:
    order = order_of(request(0, account_word(A, INTERACTIVE)), request(1, A))
    for ref in range(2, 10_000):
        order.extend([request(ref, ref)])
        order.remove(ref)
    assert sum(map(len, order._turns)) < 200


def test_requests_are_offered_until_their_rows_or_the_caller_stop() -> None:
    order, found = order_of(*waiting(A, 3, 2), *waiting(B, 3, 2, first=10)), list[Request]()
    offered = order.fitting(8, found)
    assert [next(offered).account for _ in range(3)] == [A, B, A]
    del offered
    assert [each.account for each in found] == [A, B], "the third did not fit"
    assert len(order) == 4
    assert [each.account for each in order.fitting(4, found)] == [A, B]
    assert len(found) == 4


def test_the_first_request_is_offered_however_many_rows_it_has() -> None:
    order, found = order_of(request(1, A, 9), request(2, B, 9)), list[Request]()
    assert len([*order.fitting(8, found)]) == 1
    assert len(found) == 1


def test_a_class_that_was_idle_saves_nothing_up() -> None:
    order = order_of(*waiting(A, 1000))
    for _ in range(500):
        order.popleft()
    order.extend(waiting(BULK_B, 500, first=2000))
    assert [each.account for each in islice(taken(order), 90)].count(BULK_B) == 10


def test_an_account_has_one_counter_in_all_orders_of_a_model() -> None:
    usage = Usage()
    first = order_of(*waiting(A, 10), *waiting(B, 4, first=10), usage=usage)
    second = order_of(*waiting(A, 10, first=20), *waiting(B, 4, first=40), usage=usage)
    assert [first.popleft().account for _ in range(2)] == [A, B]
    assert second.remove(20) is not None
    for _ in range(4):
        first.remove(next(iter(first)).ref)
    assert [second.popleft().account for _ in range(4)] == [A, B, A, B]
    assert accounts(first) == [A, B, A, B, A, B, A, A]


def test_an_account_that_waits_elsewhere_is_not_forgotten() -> None:
    usage = Usage()
    first = order_of(*waiting(A, 3), request(10, B), usage=usage)
    second = order_of(*waiting(A, 3, first=20), request(30, B), usage=usage)
    assert first.popleft().account == A
    second.remove(30)
    second.extend([request(31, B)])
    assert accounts(second) == [B, A, A, A]


PROOFS: Final[tuple[Callable[[], None], ...]] = (
    *[partial(test_the_account_that_has_used_least_goes_next, *case) for case in CASES.values()],
    test_each_class_has_its_share_however_many_accounts_are_in_it,
    partial(test_new_accounts_wait_behind_those_that_are_there, 3),
    test_an_idle_account_saves_nothing_up,
    test_a_class_that_was_idle_saves_nothing_up,
    test_an_account_has_one_counter_in_all_orders_of_a_model,
    test_an_account_that_waits_elsewhere_is_not_forgotten,
    test_an_account_is_forgotten_with_its_last_request,
    test_accounts_that_leave_unserved_leave_nothing_behind,
)
WRONG: Final = {
    "no account is forgotten": Mutant(Usage, "end", "del self._accounts[account.word]", "pass"),
    "an account is forgotten while it waits elsewhere": Mutant(
        Usage, "end", "if not account.lines:", "if self._accounts.get(account.word) is account:"
    ),
    "requests that another order took are not seen": Mutant(
        ClassTurns, "first", "line.key > key", "False"
    ),
    "lines that are gone stay": Mutant(ClassTurns, "push", "len(heap) > _SLACK", "False"),
    "a line that is gone keeps its turn": Mutant(Line, "leaves", "self.place = NOWHERE", "pass"),
    "a second request has no place": Mutant(Line, "append", "deque([place])", "deque()"),
    "the next request of a line has the cost of the first": Mutant(
        FairOrder, "_leave", "following.rows, self._cost_of(following)", "following.rows, cost"
    ),
    "the first class wins": Mutant(FairOrder, "_next", "key < least", "False"),
    "the account alone counts": Mutant(FairOrder, "_next", "priority.used + ", ""),
}


def test_every_proof_holds() -> None:
    for proof in PROOFS:
        proof()


@pytest.mark.parametrize(
    "wrong",
    only(WRONG, "no account is forgotten", "the first class wins", "the account alone counts"),
)
def test_a_wrong_rule_is_found_out(wrong: Mutant) -> None:
    with wrong.applied(), pytest.raises((AssertionError, KeyError, IndexError)):
        test_every_proof_holds()


class FairMachine(RuleBasedStateMachine):
    """State machine of two orders of one model, compared with a look at everything that waits."""

    def __init__(self) -> None:
        super().__init__()
        self.usage, self.shares = Usage(), PlainShares()
        self.orders = [FairOrder(self.usage, cost, []) for cost in (None, rows_of)]
        self.lists: list[list[Request]] = [[], []]
        self.count = 0

    @rule(which=st.integers(0, 1), several=many_requests)
    def extend(self, which: int, several: list[tuple[int, int]]) -> None:
        requests = []
        for word, rows in several:
            self.count += 1
            requests.append(request(self.count, word, rows))
        self.shares.came(requests)
        self.orders[which].extend(requests)
        self.lists[which] += requests

    @precondition(lambda self: any(self.lists))
    @rule(which=st.integers(0, 1), number=st.integers(1, 5))
    def take(self, which: int, number: int) -> None:
        for _ in range(min(number, len(self.lists[which]))):
            expected = self.shares.next_of(self.lists[which])
            assert self.orders[which].next_request() is expected
            assert self.orders[which].popleft() is expected
            self.shares.charge(expected)
            self._forget(which, expected)

    @precondition(lambda self: any(self.lists))
    @rule(which=st.integers(0, 1), cap=st.integers(1, 2 * MOST_ROWS))
    def take_a_batch(self, which: int, cap: int) -> None:
        expected, left = list[Request](), cap
        while self.lists[which]:
            following = self.shares.next_of(self.lists[which])
            if following.rows > left and expected:
                break
            expected.append(following)
            left -= following.rows
            self.shares.charge(following)
            self._forget(which, following)
        assert self.orders[which].take(cap) == (expected, cap - left)

    @rule(which=st.integers(0, 1), ref=st.integers(1, 60))
    def remove(self, which: int, ref: int) -> None:
        expected = next((r for r in self.lists[which] if r.ref == ref), None)
        assert self.orders[which].remove(ref) is expected
        if expected is not None:
            self._forget(which, expected)

    def _forget(self, which: int, gone: Request) -> None:
        self.lists[which] = [each for each in self.lists[which] if each is not gone]
        self.shares.left(self.lists[0] + self.lists[1])

    @invariant()
    def hold_waiting_requests_by_arrival(self) -> None:
        assert [[*order] for order in self.orders] == self.lists
        assert [len(order) for order in self.orders] == [*map(len, self.lists)]
        pairs = zip(self.orders, self.lists, strict=True)
        assert all(order[0] is own[0] for order, own in pairs if own)

    @invariant()
    def only_accounts_that_wait_are_known(self) -> None:
        assert self.usage.accounts == len(self.shares.used)


TestFairMachine = FairMachine.TestCase
