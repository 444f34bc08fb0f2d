"""Use of one model by the accounts with waiting requests: a virtual clock. Pure.

The rule is self-clocked fair queueing (Golestani, 1994), on two floors: classes share the model,
and accounts share their class. Each account has a counter of what its requests have cost, divided
by its weight. The account goes next whose counter is the least once its oldest request is added.
The class has a clock: the largest counter that one of its accounts has reached.

An account that begins to wait starts at the clock. So idling saves nothing up, and a stream of
accounts that were never seen before starves nobody. No counter is ahead of the clock, so an account
that waits no more can be forgotten at once: memory is bounded by the requests that wait.
"""

from collections.abc import Sequence
from typing import Final, cast

from ringbatch.shm.account import PriorityClass, class_of, weight_of

SEVERAL: Final = -1
"""Stands for the account word of requests that have different ones."""
CLASS_WEIGHTS: Final = {
    PriorityClass.INTERACTIVE: 64,
    PriorityClass.NORMAL: 8,
    PriorityClass.BULK: 1,
}
"""Shares of a model. So bulk gets 1/73 of it beside the two others, and a class that uses less than
its share goes first."""


def without_repeats(words: Sequence[int]) -> Sequence[int]:
    """Return account words; only the first if they are all the same."""
    first = words[0]
    # Of several accounts, the last request is rarely from the account of the first.
    if first != words[-1] or words.count(first) < len(words):
        return words
    return words[:1]


def shared_account(words: Sequence[int]) -> int:
    """Return the account of words `without_repeats`; `SEVERAL` if there are several."""
    return words[0] if len(words) == 1 else SEVERAL


class ClassUsage:
    """Use of a model by one class of requests.

    Attributes:
        kind: the class.
        weight: its share among the classes that wait.
        used: cost of its requests by weight; starts at the model's clock when the class does.
        clock: the largest `used` of any of its accounts.
        accounts: how many wait.
        waiting: cost of the requests that wait.
        furthest: a counter that no account exceeds once all that waits now is served.
    """

    __slots__ = ("accounts", "clock", "furthest", "kind", "used", "waiting", "weight")

    def __init__(self, kind: PriorityClass) -> None:
        self.kind = kind
        self.weight = CLASS_WEIGHTS[kind]
        self.used = self.clock = self.waiting = self.furthest = 0.0
        self.accounts = 0


class AccountUsage:
    """Use of a model by one account with waiting requests, or by each of several that are alike.

    Attributes:
        word: of the account, see `ringbatch.shm.account`; of several, that of one.
        priority: its class.
        weight: its share among the accounts of its class that wait.
        used: cost of its requests by weight.
        waiting: cost of the requests that wait.
        lines: the `ringbatch.engine.collector.fair_order.FairOrder` objects in which it waits.
    """

    __slots__ = ("lines", "priority", "used", "waiting", "weight", "word")

    def __init__(self, word: int, priority: ClassUsage) -> None:
        self.word = word
        self.priority = priority
        self.weight = weight_of(word)
        self.used = priority.clock
        self.waiting = 0.0
        self.lines = 0


class Usage:
    """Counters of a model's classes, and of its accounts that wait.

    Attributes:
        classes: by their number in the word.
        orders: how many orders of requests have had it so far.
        overtaken: for requests that have left, by reference, the instant from which on later
            requests of others went before them; its reader empties it.
    """

    __slots__ = ("_accounts", "_clock", "classes", "orders", "overtaken")

    def __init__(self) -> None:
        self.classes = [ClassUsage(each) for each in PriorityClass]
        self._accounts: dict[object, AccountUsage] = {}
        """By word. Where words come by the dozen they have the type `object`: mypyc copies each
        `int` that it takes out of a sequence."""
        self._clock = 0.0
        self.orders = 0
        self.overtaken: dict[int, int] = {}

    def note_overtaken(self, ref: int, since_ns: int) -> None:
        """Note from when on a request was overtaken; of several instants the first counts."""
        self.overtaken[ref] = min(since_ns, self.overtaken.get(ref, since_ns))

    @property
    def accounts(self) -> int:
        """The number of accounts that wait."""
        return len(self._accounts)

    @property
    def only_account(self) -> int | None:
        """The word of the account that waits if there is only one, else None."""
        return cast("int", next(iter(self._accounts))) if len(self._accounts) == 1 else None

    def find(self, word: int) -> AccountUsage | None:
        """Return the account of a word; None if it does not wait."""
        return self._accounts.get(word)

    def class_of(self, word: int) -> ClassUsage:
        """Return the class of a word."""
        return self.classes[class_of(word)]

    def begin(self, word: int) -> AccountUsage:
        """Return the account of a word, which begins to wait in one more place."""
        account = self._accounts.get(word)
        if account is None:
            priority = self.class_of(word)
            self._begin_in(priority, 1)
            account = self._accounts[word] = AccountUsage(word, priority)
        account.lines += 1
        return account

    def begin_together(
        self, words: Sequence[object], each: AccountUsage, others: Sequence[object]
    ) -> bool:
        """Note that accounts begin to wait that have the same counters, each with one request.

        Args:
            words: of the accounts.
            each: the counters of each.
            others: words of the accounts that have had the same counters before.

        Returns:
            False, with nothing done, if one of them waits, or comes twice.
        """
        accounts, before = self._accounts, len(self._accounts)
        for word in words:
            accounts.setdefault(word, each)
        if len(accounts) < before + len(words):
            for word in {*words}.difference(others):
                if accounts[word] is each:
                    del accounts[word]
            return False
        priority, cost = each.priority, each.waiting
        self._begin_in(priority, len(words))
        priority.waiting += cost * len(words)
        priority.furthest = max(priority.furthest, each.used + cost / each.weight)
        return True

    def part(self, word: int, each: AccountUsage) -> AccountUsage:
        """Return counters of its own for an account that has had the same as others."""
        account = self._accounts[word] = AccountUsage(word, each.priority)
        account.used, account.waiting, account.lines = each.used, each.waiting, each.lines
        return account

    def take_together(self, words: Sequence[object], each: AccountUsage) -> None:
        """Note that the only requests of accounts with the same counters go into a batch."""
        priority, cost, gone = each.priority, each.waiting, len(words)
        accounts = self._accounts
        for word in words:
            del accounts[word]
        priority.accounts -= gone
        priority.waiting -= cost * gone
        self._serve(priority, each.used + cost / each.weight, cost * gone)

    def _begin_in(self, priority: ClassUsage, accounts: int) -> None:
        """Note that accounts of a class begin to wait."""
        if not priority.accounts:
            priority.used = self._clock
            priority.waiting, priority.furthest = 0.0, priority.clock
        priority.accounts += accounts

    def end(self, account: AccountUsage) -> None:
        """Note that an account waits in one place less; forget it if that was the last."""
        account.lines -= 1
        if not account.lines:
            account.priority.accounts -= 1
            del self._accounts[account.word]

    def charge(self, account: AccountUsage, cost: float) -> None:
        """Note that a request of an account goes into a batch."""
        account.used += cost / account.weight
        self._serve(account.priority, account.used, cost)

    def _serve(self, priority: ClassUsage, reached: float, cost: float) -> None:
        """Charge a class, one of whose accounts has reached a counter."""
        if reached > priority.clock:
            priority.clock = reached
        priority.used += cost / priority.weight
        if priority.used > self._clock:
            self._clock = priority.used

    def came(self, account: AccountUsage, cost: float) -> None:
        """Note that a request of an account waits."""
        priority = account.priority
        account.waiting += cost
        priority.waiting += cost
        priority.furthest = max(priority.furthest, account.used + account.waiting / account.weight)

    def left(self, account: AccountUsage, cost: float) -> None:
        """Note that a request of an account waits no more."""
        account.waiting -= cost
        account.priority.waiting -= cost

    def share_before(self, word: int, cost: float) -> float:
        """Return the part of all that waits that goes before a new request, from 0 to 1.

        It errs on the side of too little, as if requests were taken in pieces of any size. So an
        account may be counted with one request too much. Within the class, the cost up to a counter
        is concave in that counter, because all accounts are served side by side. It thus lies above
        the straight line from the clock to the counter that the longest line of requests will
        reach. The classes are few, and are counted one by one.

        Args:
            word: of the request's account.
            cost: of the request.
        """
        priority, account = self.class_of(word), self._accounts.get(word)
        if account is None:
            reached = priority.clock + cost / weight_of(word)
        else:
            reached = account.used + (account.waiting + cost) / account.weight
        waiting, before = priority.waiting, 0.0
        if priority.accounts:
            span, whole = reached - priority.clock, priority.furthest - priority.clock
            if span >= whole:
                before = waiting
            elif span > 0.0:
                before = waiting * span / whole
        if priority.accounts == len(self._accounts):
            return before / waiting if waiting else 0.0
        begun = priority.used if priority.accounts else self._clock
        until = begun + (before + cost) / priority.weight
        total = 0.0
        for other in self.classes:
            if other.accounts:
                total += other.waiting
                if other is not priority:
                    before += min(max((until - other.used) * other.weight, 0.0), other.waiting)
        return min(before / total, 1.0) if total else 0.0
