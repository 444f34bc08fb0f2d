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
from typing import Final

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


def shared_account(accounts: Sequence[int]) -> int:
    """Return the word that all these account words are; `SEVERAL` if they differ."""
    first = accounts[0]
    return first if accounts.count(first) == len(accounts) else SEVERAL


class ClassUsage:
    """Use of a model by one class of requests.

    Attributes:
        weight: its share among the classes that wait.
        used: cost of its requests by weight; starts at the model's clock when the class does.
        clock: the largest `used` of any of its accounts.
        accounts: how many wait.
    """

    __slots__ = ("accounts", "clock", "used", "weight")

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.used = self.clock = 0.0
        self.accounts = 0


class AccountUsage:
    """Use of a model by one account with waiting requests.

    Attributes:
        word: of the account, see `ringbatch.shm.account`.
        priority: its class.
        weight: its share among the accounts of its class that wait.
        used: cost of its requests by weight.
        lines: the `ringbatch.engine.collector.fair_order.FairOrder` objects in which it waits.
    """

    __slots__ = ("lines", "priority", "used", "weight", "word")

    def __init__(self, word: int, priority: ClassUsage) -> None:
        self.word = word
        self.priority = priority
        self.weight = weight_of(word)
        self.used = priority.clock
        self.lines = 0


class Usage:
    """Counters of a model's classes, and of its accounts that wait.

    Attributes:
        classes: by their number in the word.
    """

    __slots__ = ("_accounts", "_clock", "classes")

    def __init__(self) -> None:
        self.classes = [ClassUsage(CLASS_WEIGHTS[each]) for each in PriorityClass]
        self._accounts: dict[int, AccountUsage] = {}
        self._clock = 0.0

    @property
    def accounts(self) -> int:
        """The number of accounts that wait."""
        return len(self._accounts)

    def begin(self, word: int) -> AccountUsage:
        """Return the account of a word, which begins to wait in one more place."""
        account = self._accounts.get(word)
        if account is None:
            priority = self.classes[class_of(word)]
            if not priority.accounts:
                priority.used = self._clock
            priority.accounts += 1
            account = self._accounts[word] = AccountUsage(word, priority)
        account.lines += 1
        return account

    def end(self, account: AccountUsage) -> None:
        """Note that an account waits in one place less; forget it if that was the last."""
        account.lines -= 1
        if not account.lines:
            account.priority.accounts -= 1
            del self._accounts[account.word]

    def charge(self, account: AccountUsage, cost: float) -> None:
        """Note that a request of an account goes into a batch."""
        priority = account.priority
        account.used += cost / account.weight
        priority.clock = max(priority.clock, account.used)
        priority.used += cost / priority.weight
        self._clock = max(self._clock, priority.used)
