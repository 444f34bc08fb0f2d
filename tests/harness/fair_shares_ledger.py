"""Bounds of fair shares, checked while requests come, are taken, and leave unserved.

Costs are rows. L is the largest request, and w(x) the weight of an account or class x. For a
request of account a in class k, Q is the rows of its account that wait when it comes, with its own.
Until it is taken,

- another account b of the class gets at most Q w(b) / w(a) + L rows;
- all others of the class together get at most n (Q w / w(a) + L). At most n of them wait at once,
  and none of the class weighs more than w. It does not help to come under a new name each time;
- another class j gets at most (R + Q + L) w(j) / w(k) + L, if the others of class k get R. A class
  is held back by the request that goes next in it, and another may come before that one.

While two accounts of a class both wait, W1 and W2 are the rows that they get in any part of that
time. W1 / w1 - W2 / w2 changes by at most L / w1 + L / w2. The same holds for two classes.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

from ringbatch.engine.collector.usage import CLASS_WEIGHTS
from ringbatch.shm.account import PriorityClass, class_of, weight_of
from ringbatch.shm.engine_slots import Request

_ROUNDING = 1e-6


class _Wait(NamedTuple):
    """A request that waits.

    Attributes:
        request: it.
        own_rows: Q of the module.
        taken: number of requests taken before it came.
        crowds: number of counts of its class's accounts before it came.
    """

    request: Request
    own_rows: int
    taken: int
    crowds: int


class _Crowd(NamedTuple):
    """The accounts of a class that wait at one time: their number, and the largest weight."""

    accounts: int
    heaviest: int


class _Pair:
    """Range of the difference by weight between what two get while both wait."""

    def __init__(self) -> None:
        self.difference = self.low = self.high = 0.0

    def add(self, cost: float) -> None:
        self.difference += cost
        self.low, self.high = min(self.low, self.difference), max(self.high, self.difference)


class Ledger:
    """Ledger of all requests that wait in one order.

    Args:
        largest: L of the module.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._waits: dict[int, _Wait] = {}
        self._rows = Counter[int]()
        """Waiting rows by account."""
        self._taken: list[Request] = []
        self._crowds: dict[PriorityClass, list[_Crowd]] = {kind: [] for kind in PriorityClass}
        self._accounts: dict[tuple[int, int], _Pair] = {}
        self._classes: dict[tuple[int, int], _Pair] = {}

    def comes(self, request: Request) -> None:
        """Let a request begin to wait."""
        word, kind = request.account, class_of(request.account)
        self._rows[word] += request.rows
        own = [each for each in self._rows if class_of(each) == kind]
        self._crowds[kind].append(_Crowd(len(own), max(map(weight_of, own))))
        self._pair()
        fields = (request, self._rows[word], len(self._taken), len(self._crowds[kind]) - 1)
        self._waits[request.ref] = _Wait(*fields)

    def is_taken(self, request: Request) -> None:
        """Take a request into a batch, and check its bounds and those of all pairs."""
        word, kind = request.account, class_of(request.account)
        self._check(self._waits[request.ref])
        self._taken.append(request)
        for accounts, pair in self._accounts.items():
            if word in accounts:
                cost = request.rows / weight_of(word)
                pair.add(cost if word == accounts[0] else -cost)
                most = sum(self._largest / weight_of(each) for each in accounts)
                assert pair.high - pair.low <= most + _ROUNDING, "two accounts drift apart"
        for classes, pair in self._classes.items():
            if kind in classes:
                cost = request.rows / CLASS_WEIGHTS[kind]
                pair.add(cost if kind == classes[0] else -cost)
                most = sum(self._largest / CLASS_WEIGHTS[PriorityClass(each)] for each in classes)
                assert pair.high - pair.low <= most + _ROUNDING, "two classes drift apart"
        self._forget(request)

    def leaves(self, request: Request) -> None:
        """Let a request leave unserved, and check its bounds."""
        self._check(self._waits[request.ref])
        self._forget(request)

    def _check(self, wait: _Wait) -> None:
        """Compare what others got while a request waited."""
        account, largest = wait.request.account, self._largest
        kind, share = class_of(account), wait.own_rows / weight_of(account)
        by_account, by_class = Counter[int](), Counter[PriorityClass]()
        for each in self._taken[wait.taken :]:
            if each.account != account:
                by_account[each.account] += each.rows
                by_class[class_of(each.account)] += each.rows
        for other, rows in by_account.items():
            if class_of(other) == kind:
                most = share * weight_of(other) + largest
                assert rows <= most + _ROUNDING, "one account starves another"
        crowds = self._crowds[kind][wait.crowds :]
        others, heaviest = max(c.accounts for c in crowds) - 1, max(c.heaviest for c in crowds)
        most = others * (share * heaviest + largest)
        assert by_class[kind] <= most + _ROUNDING, "many accounts starve one"
        of_class = by_class[kind] + wait.own_rows + largest
        for other_kind, weight in CLASS_WEIGHTS.items():
            if other_kind != kind:
                most = of_class * weight / CLASS_WEIGHTS[kind] + largest
                assert by_class[other_kind] <= most + _ROUNDING, "one class starves another"

    def _forget(self, request: Request) -> None:
        del self._waits[request.ref]
        self._rows[request.account] -= request.rows
        if not self._rows[request.account]:
            del self._rows[request.account]
            self._pair()

    def _pair(self) -> None:
        """Begin the pairs that both wait now, and forget those that no longer do."""
        words = [pair for pair in _pairs(self._rows) if class_of(pair[0]) == class_of(pair[1])]
        self._accounts = {pair: self._accounts.get(pair) or _Pair() for pair in words}
        kinds = _pairs({class_of(word) for word in self._rows})
        self._classes = {pair: self._classes.get(pair) or _Pair() for pair in kinds}


def _pairs(names: Iterable[int]) -> list[tuple[int, int]]:
    return [*combinations(sorted(names), 2)]
