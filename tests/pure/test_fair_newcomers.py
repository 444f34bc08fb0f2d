"""Newcomers, who wait together until one of them sends more: they change nothing of the order."""

import random
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import pytest
from fair_shares_reference import PlainShares
from simulation.mutation import Mutant
from tiers import only

from ringbatch.engine.collector.arrivals import Arrivals
from ringbatch.engine.collector.fair_order import FairOrder
from ringbatch.engine.collector.lines import MOST_TOGETHER, ClassTurns, Line, Newcomers
from ringbatch.engine.collector.overtakes import Overtakes
from ringbatch.engine.collector.usage import Usage
from ringbatch.shm.account import PriorityClass, account_word
from ringbatch.shm.engine_slots import Request

CAP: Final = 32
SEEDS: Final = range(32)
STEPS: Final = 20


def request(ref: int, account: int, rows: int = 1) -> Request:
    return Request(ref, 0, rows, 0, 0, 0, 0, 0, ref, 1 << 62, account)


def rows_of(request: Request) -> float:
    return request.rows


def entries(order: FairOrder) -> int:
    return sum(map(len, order._turns))


class Kind(NamedTuple):
    """Requests of a life by chance.

    Attributes:
        names: number of accounts.
        several: how many requests come at once.
        rows: of a request.
        classes: that they ask for.
        weights: of their accounts.
    """

    names: int = 1000
    several: tuple[int, ...] = (1, 2, 5, 9)
    rows: tuple[int, ...] = (1,)
    classes: tuple[PriorityClass, ...] = (PriorityClass.NORMAL,)
    weights: tuple[int, ...] = (1,)


KINDS: Final = (
    Kind(),
    Kind(names=12),
    Kind(names=3),
    Kind(several=(2, 2 * MOST_TOGETHER)),
    Kind(rows=(1, 1, 1, 2, 8)),
    Kind(classes=tuple(PriorityClass)),
    Kind(weights=(1, 1, 3)),
    Kind(30, rows=(1, 8), classes=tuple(PriorityClass), weights=(1, 3)),
)


class Life:
    """Life of a model's order, beside the plain rule; another order may begin half-way.

    Args:
        seed: of all that happens.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._kind = KINDS[seed % len(KINDS)]
        self._usage, self._shares = Usage(), PlainShares()
        self._orders = [FairOrder(self._usage, None, [])]
        self._lists: list[list[Request]] = [[]]
        self._most_orders = 1 + seed // len(KINDS) % 2
        self._count = 0

    def lead(self) -> None:
        """Let requests come, go and leave, and compare all that is seen of it."""
        for step in range(STEPS):
            if step == STEPS // 2 and self._most_orders > 1:
                self._orders.append(FairOrder(self._usage, rows_of, []))
                self._lists.append([])
            which = self._chance.randrange(len(self._orders))
            self._chance.choice([self._come, self._come, self._take, self._take, self._leave])(
                which
            )
            assert [[*order] for order in self._orders] == self._lists
            assert all(
                o[0] is own[0] for o, own in zip(self._orders, self._lists, strict=True) if own
            )
            self._check_usage()

    def _come(self, which: int) -> None:
        kind, requests = self._kind, list[Request]()
        for _ in range(self._chance.choice(kind.several)):
            self._count += 1
            choice = self._chance.choice
            word = account_word(
                choice(range(kind.names)), choice(kind.classes), choice(kind.weights)
            )
            requests.append(request(self._count, word, choice(kind.rows)))
        self._shares.came(requests)
        self._orders[which].extend(requests)
        self._lists[which] += requests

    def _take(self, which: int) -> None:
        cap = self._chance.choice([1, 4, CAP])
        expected, left = list[Request](), cap
        while self._lists[which]:
            following = self._shares.next_of(self._lists[which])
            if following.rows > left and expected:
                break
            expected.append(following)
            left -= following.rows
            self._shares.charge(following)
            self._forget(which, following)
        assert self._orders[which].take(cap) == (expected, cap - left)

    def _leave(self, which: int) -> None:
        if self._lists[which]:
            gone = self._chance.choice(self._lists[which])
            assert self._orders[which].remove(gone.ref) is gone
            assert self._orders[which].remove(gone.ref) is None
            self._forget(which, gone)

    def _forget(self, which: int, gone: Request) -> None:
        self._lists[which] = [each for each in self._lists[which] if each is not gone]
        self._shares.left([each for own in self._lists for each in own])

    def _check_usage(self) -> None:
        known = self._usage._accounts
        waiting = [each for own in self._lists for each in own]
        assert {word: account.used for word, account in known.items()} == self._shares.used
        for word, account in known.items():
            assert account.waiting == sum(each.rows for each in waiting if each.account == word)
            lines = sum(any(each.account == word for each in own) for own in self._lists)
            assert account.lines == lines
            assert account.used + account.waiting / account.weight <= account.priority.furthest
        for kind in self._usage.classes:
            own = [each for each in waiting if self._usage.class_of(each.account) is kind]
            assert kind.accounts == len({each.account for each in own})
            assert not own or kind.waiting == sum(each.rows for each in own)


def follow_the_plain_rule() -> None:
    for seed in SEEDS:
        Life(seed).lead()


def have_one_entry() -> None:
    """The accounts of a crowd come once, and as many wait as in several batches."""
    order = FairOrder(Usage(), None, [])
    for first in range(0, 30 * CAP, CAP):
        order.extend([request(ref, ref) for ref in range(first, first + CAP)])
        if first >= 10 * CAP:
            taken, _ = order.take(CAP)
            assert [each.ref for each in taken] == [*range(first - 10 * CAP, first - 9 * CAP)]
        assert entries(order) <= len(order) / CAP
        assert len(order._arrivals._blocks) <= len(order) / CAP
    assert len(order._lines) == 0


def come_one_by_one_to_one_entry() -> None:
    order = FairOrder(Usage(), None, [])
    for ref in range(3 * MOST_TOGETHER):
        order.extend([request(ref, ref)])
    assert entries(order) == 3


def come_anew_once_all_others_have_lines() -> None:
    order = FairOrder(Usage(), None, [request(1, 1)])
    order.extend([request(2, 1)])
    assert order.next_request().ref == 1
    order.extend([request(3, 2)])
    assert [each.ref for each in order.take(3)[0]] == [1, 3, 2]


def come_with_one_that_waits_already() -> None:
    order = FairOrder(Usage(), None, [request(ref, ref) for ref in (1, 2, 3)])
    order.extend([request(4, 4), request(5, 2)])
    assert [each.ref for each in order.take(5)[0]] == [1, 2, 3, 4, 5]
    order.extend([request(6, 1), request(7, 2)])
    assert [each.ref for each in order.take(2)[0]] == [6, 7]


def have_the_same_rows() -> None:
    """All requests have the same cost."""
    for together in (True, False):
        order = FairOrder(Usage(), lambda _: 1.0, [])
        requests = [request(1, 1), request(2, 2, 8), request(3, 3)]
        for several in [requests] if together else [[each] for each in requests]:
            order.extend(several)
        batches = [[each.ref for each in order.take(4)[0]] for _ in range(3)]
        assert batches == [[1], [2], [3]]


def have_the_same_cost() -> None:
    order = FairOrder(Usage(), lambda each: each.ref, [request(ref, ref) for ref in (3, 1, 2)])
    assert [each.ref for each in order.take(3)[0]] == [1, 2, 3]


def pay_for_all_of_their_class() -> None:
    """Bulk is served once, and one request later its class has as much as the other."""
    bulk = partial(account_word, priority=PriorityClass.BULK)
    order = FairOrder(Usage(), None, [request(1, bulk(1)), request(2, 2, 8)])
    assert [each.ref for each in order.take(1)[0]] == [1]
    order.extend([request(ref, ref) for ref in range(10, 19)])
    order.remove(2)
    assert len(order.take(8)[0]) == 8
    order.extend([request(20, bulk(20)), *[request(ref, ref) for ref in range(30, 50)]])
    assert [each.ref for each in order.take(8)[0]] == [18, *range(30, 36), 20]


def can_be_found_until_they_leave() -> None:
    order = FairOrder(Usage(), None, [request(ref, ref) for ref in range(100)])
    assert order.remove(1_000) is None
    order.take(10)
    assert order.remove(5) is None
    assert order.remove(10) is not None
    places = order._arrivals._places
    assert places is not None
    assert len(places) == len(order) == 89


def leave_few_places_behind() -> None:
    """An account in the middle of whose line others come and leave; its first request stays."""
    order = FairOrder(Usage(), None, [request(1, 1)])
    for ref in range(2, 2_000):
        order.extend([request(ref, 1), request(ref + 10_000, ref)])
        order.remove(ref)
        order.remove(ref + 10_000)
    (line,) = order._lines.values()
    assert line._later is not None
    assert len(line._later) < 100
    assert len(order._arrivals._blocks) <= 2


def are_overtaken() -> None:
    usage = Usage()
    bulk = [request(ref, account_word(ref, PriorityClass.BULK)) for ref in range(3)]
    order = FairOrder(usage, None, [*bulk, request(10, 10)])
    assert [each.ref for each in order.take(1)[0]] == [10]
    order.end_turn(100)
    order.extend([request(11, account_word(11, PriorityClass.BULK))])
    assert len(order.take(4)[0]) == 4
    assert usage.overtaken == dict.fromkeys(range(3), 100)


PROOFS: Final[tuple[Callable[[], None], ...]] = (
    follow_the_plain_rule,
    have_one_entry,
    come_one_by_one_to_one_entry,
    come_anew_once_all_others_have_lines,
    come_with_one_that_waits_already,
    have_the_same_rows,
    have_the_same_cost,
    pay_for_all_of_their_class,
    can_be_found_until_they_leave,
    leave_few_places_behind,
    are_overtaken,
)


@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: proof.__name__)
def test_newcomers(proof: Callable[[], None]) -> None:
    proof()


WRONG: Final = {
    "a later clock does not count": Mutant(
        Newcomers, "takes_in", "self.used == self.priority.clock", "True"
    ),
    "other rows do not count": Mutant(Newcomers, "takes_in", "rows == self.rows", "True"),
    "another class or weight does not count": Mutant(
        Newcomers, "takes_in", "same_share(word, self.word)", "True"
    ),
    "newcomers come to those that have gone": Mutant(Newcomers, "takes_in", "0 < len", "0 <= len"),
    "newcomers are as many as come": Mutant(
        Newcomers, "takes_in", "<= MOST_TOGETHER - count", "< 1 << 30"
    ),
    "a newcomer comes to nobody": Mutant(Newcomers, "takes_in", "0 < len", "9 < len"),
    "who parts has no turn": Mutant(Newcomers, "part", "self._turns.push(line)", "pass"),
    "who parts has no line": Mutant(Newcomers, "part", "self._lines[word] = line", "pass"),
    "who parts goes once more": Mutant(Newcomers, "part", "del self.words[which]", "pass"),
    "the last parts": Mutant(Newcomers, "part", "self.places.pop(which)", "self.places.pop()"),
    "who parts starts at the clock": Mutant(Usage, "part", "each.used, each", "account.used, each"),
    "who parts has nothing waiting": Mutant(Usage, "part", "each.waiting", "0.0"),
    "who parts waits nowhere": Mutant(Usage, "part", "each.lines", "0"),
    "a second request goes with the newcomers": Mutant(
        Usage, "begin_together", "len(accounts) < before + len(words)", "False"
    ),
    "a known account is a newcomer": Mutant(
        Usage, "begin_together", "accounts.setdefault(word, each)", "accounts[word] = each"
    ),
    "a known account is forgotten": Mutant(
        Usage, "begin_together", "accounts[word] is each", "True"
    ),
    "who has waited with the newcomers is forgotten": Mutant(
        Usage, "begin_together", ".difference(others)", ""
    ),
    "who comes twice at once is known for ever": Mutant(
        Usage, "begin_together", "del accounts[word]", "pass"
    ),
    "newcomers do not wait": Mutant(Usage, "begin_together", "priority.waiting += ", "_ = "),
    "newcomers do not count as the longest line": Mutant(
        Usage, "begin_together", "max(priority.furthest, ", "min(priority.furthest, "
    ),
    "newcomers that go still wait": Mutant(Usage, "take_together", "priority.waiting -= ", "_ = "),
    "newcomers that go still count": Mutant(
        Usage, "take_together", "priority.accounts -= ", "_ = "
    ),
    "newcomers go for nothing": Mutant(
        Usage, "take_together", "each.used + cost / each.weight", "each.used"
    ),
    "their class goes for the price of one": Mutant(
        Usage, "take_together", "each.weight, cost * gone", "each.weight, cost"
    ),
    "rows are not looked at": Mutant(FairOrder, "add", "rows == count", "True"),
    "all have the class of the first": Mutant(
        FairOrder, "_are_newcomers", "or same_share(min(words), max(words))", "or True"
    ),
    "all have the rows of the first": Mutant(
        FairOrder, "_are_newcomers", "each.rows == first.rows", "True"
    ),
    "all have the cost of the first": Mutant(
        FairOrder, "_are_newcomers", "self._cost(each) == cost", "True"
    ),
    "newcomers go before older lines": Mutant(
        ClassTurns, "undisturbed", "key <= newcomers.key", "False"
    ),
    "newcomers go before lines that came between them": Mutant(
        ClassTurns, "undisturbed", "bisect_left(newcomers.places, place)", "len(newcomers.places)"
    ),
    "newcomers go before other classes": Mutant(
        FairOrder, "_undisturbed", "newcomers.priority.accounts < self._usage.accounts", "False"
    ),
    "newcomers go one by one": Mutant(
        FairOrder, "_begin_together", "newest is None or not joins", "True"
    ),
    "newcomers keep the turn of one that parted": Mutant(
        ClassTurns, "first", "line.key > key or line.place > place", "line.key > key"
    ),
    "newcomers that have gone keep their turn": Mutant(
        ClassTurns, "went", "line.place == NOWHERE", "False"
    ),
    "an account of another order keeps its counter": Mutant(
        FairOrder, "_append", "known.part(word, usage)", "pass"
    ),
    "who has left from the middle of a line keeps a place": Mutant(
        Line, "leaves", "len(self._later) > _SLACK + 2 * self.count", "False"
    ),
    "the next of a line is one that has left": Mutant(
        Line, "advance", "arrivals.get(self.place)", "arrivals.oldest()"
    ),
    "a block stays": Mutant(Arrivals, "take", "del self._blocks[number]", "pass"),
    "a block of several stays": Mutant(
        Arrivals, "take_several", "del self._blocks[number]", "pass"
    ),
    "who has left can be found": Mutant(Arrivals, "take", "del self._places[request.ref]", "pass"),
    "who has gone can be found": Mutant(
        Arrivals, "take_several", "del self._places[request.ref]", "pass"
    ),
    "who came later cannot be found": Mutant(Arrivals, "add", "self._places.update", "id"),
    "newcomers overtake nobody": Mutant(
        FairOrder, "_take_together", "self._overtakes.goes(places[-1])", "pass"
    ),
    "newcomers are not overtaken": Mutant(
        FairOrder, "_take_together", "places[0] < self._overtakes.reached", "False"
    ),
    "an instant is that of the next batch": Mutant(Overtakes, "since_ns", "place + 1", "place + 9"),
}


def all_proofs_hold() -> None:
    for proof in PROOFS:
        proof()


@pytest.mark.parametrize(
    "wrong",
    only(
        WRONG,
        "who parts has no turn",
        "newcomers do not wait",
        "newcomers go one by one",
        "a known account is a newcomer",
    ),
)
def test_a_wrong_rule_is_found_out(wrong: Mutant) -> None:
    with wrong.applied(), pytest.raises((AssertionError, KeyError, IndexError, ValueError)):
        all_proofs_hold()
