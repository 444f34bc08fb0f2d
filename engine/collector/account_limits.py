"""Limits of accounts: which request is refused, and for how long. Pure.

Requests a second and model seconds a second are token buckets. A bucket holds what one second
gives, and at least one request. It is kept as one number, the instant at which it is full again
(GCRA, the generic cell rate algorithm). A batch is charged for its run time when that is known, so
a bucket of model seconds may go below zero. It then refuses until it is above zero.

An account is at rest if it has nothing in flight and its buckets are full. Such an account needs no
memory: an account that is not known starts in the same state. Each new account has the two known
for longest examined, so memory is bounded by the accounts that are not at rest.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from math import ceil
from typing import Final, NamedTuple

from ringbatch.shm.account import IDENTITY_MASK, NOBODY
from ringbatch.shm.account_limits import NO_LIMITS, AccountLimits

SECOND_NS: Final = 1_000_000_000
_EXAMINED: Final = 2
"""Known accounts that are examined for each new one: more than one, so that they get fewer."""


class Limit(IntEnum):
    """The limits, in the order in which they are examined."""

    REQUESTS = 0
    MODEL_S = 1
    IN_FLIGHT = 2


class Refused(NamedTuple):
    """A refusal of a request.

    Attributes:
        limit: the limit that the account has reached.
        bound: its value.
        wait_ns: until a request of the account is let in, if no other comes before; 0 if that is
            not known, as for requests in flight.
    """

    limit: Limit
    bound: float
    wait_ns: int


class LimitTable:
    """The limits of all accounts.

    Args:
        each: of every account.
        own: of some, by identity; these win over `each`.
    """

    __slots__ = ("_each", "_own", "empty")

    def __init__(
        self, each: AccountLimits = NO_LIMITS, own: Mapping[int, AccountLimits] | None = None
    ) -> None:
        limited = {key: limits for key, limits in (own or {}).items() if limits != NO_LIMITS}
        self._each = each
        self._own = {key: limits.over(each) for key, limits in limited.items()}
        self.empty = each == NO_LIMITS and not limited
        """True if no account has a limit."""

    def of(self, identity: int) -> AccountLimits:
        """Return the limits of an account; nobody in particular has none."""
        return NO_LIMITS if identity == NOBODY else self._own.get(identity, self._each)


class _Standing:
    """Use of an account against its limits.

    Attributes:
        in_flight: its requests without an answer.
        requests_full_ns, model_full_ns: when its buckets are full again.
    """

    __slots__ = ("in_flight", "model_full_ns", "requests_full_ns")

    def __init__(self) -> None:
        self.in_flight = self.requests_full_ns = self.model_full_ns = 0

    def at_rest(self, now_ns: int) -> bool:
        """Return whether nothing is in flight and the buckets are full."""
        return not self.in_flight and max(self.requests_full_ns, self.model_full_ns) <= now_ns


class AccountLimiter:
    """The accounts that are not at rest, and their use.

    Attributes:
        table: the limits; may be replaced.
    """

    __slots__ = ("_held", "_standings", "table")

    def __init__(self, table: LimitTable) -> None:
        self.table = table
        self._standings: OrderedDict[int, _Standing] = OrderedDict()
        self._held: dict[int, _Standing] = {}
        """Account of each request in flight, by reference."""

    @property
    def accounts(self) -> int:
        """The number of known accounts."""
        return len(self._standings)

    def admit(self, ref: int, word: int, now_ns: int) -> Refused | None:
        """Let a request in, or return why it is refused.

        Args:
            ref: its reference.
            word: its account word.
            now_ns: the time.
        """
        identity = word & IDENTITY_MASK
        limits = self.table.of(identity)
        if limits is NO_LIMITS or ref in self._held:
            return None
        standing = self._standings.get(identity)
        if standing is not None and (refused := _refusal(standing, limits, now_ns)) is not None:
            return refused
        if standing is None:
            standing = self._begin(identity, now_ns)
        if limits.requests_per_s is not None:
            begun_ns = max(standing.requests_full_ns, now_ns)
            standing.requests_full_ns = begun_ns + interval_ns(limits.requests_per_s)
        self._hold(ref, standing)
        return None

    def hold(self, ref: int, word: int, now_ns: int) -> None:
        """Note that a request is in flight that an earlier collector has let in."""
        identity = word & IDENTITY_MASK
        if self.table.of(identity) is not NO_LIMITS and ref not in self._held:
            self._hold(ref, self._standings.get(identity) or self._begin(identity, now_ns))

    def leave(self, references: Iterable[int]) -> None:
        """Note that requests are in flight no longer."""
        for ref in references:
            standing = self._held.pop(ref, None)
            if standing is not None:
                standing.in_flight -= 1

    def charge(
        self, words: Sequence[int], costs: Sequence[float], ran_ns: int, now_ns: int
    ) -> None:
        """Charge the accounts of a batch for its run time, by their requests' shares in it.

        Args:
            words: the account words of the requests in it.
            costs: of each request; all above 0.
            ran_ns: the run time.
            now_ns: the time.
        """
        shares: dict[int, float] = {}
        for word, cost in zip(words, costs, strict=True):
            identity = word & IDENTITY_MASK
            shares[identity] = shares.get(identity, 0.0) + cost
        whole = sum(shares.values())
        for identity, share in shares.items():
            rate = self.table.of(identity).model_s_per_s
            if rate is not None:
                standing = self._standings.get(identity) or self._begin(identity, now_ns)
                begun_ns = max(standing.model_full_ns, now_ns)
                standing.model_full_ns = begun_ns + ceil(ran_ns * share / whole / rate)

    def _hold(self, ref: int, standing: _Standing) -> None:
        self._held[ref] = standing
        standing.in_flight += 1

    def _begin(self, identity: int, now_ns: int) -> _Standing:
        """Add an account; forget those examined that are at rest."""
        for _ in range(min(_EXAMINED, len(self._standings))):
            known, standing = self._standings.popitem(last=False)
            if not standing.at_rest(now_ns):
                self._standings[known] = standing
        begun = self._standings[identity] = _Standing()
        return begun


def interval_ns(per_s: float) -> int:
    """Return the time between two requests at a rate."""
    return ceil(SECOND_NS / per_s)


def _refusal(standing: _Standing, limits: AccountLimits, now_ns: int) -> Refused | None:
    """Return why a request of an account is refused: for the longest wait, if several limits are.

    A wait that is not known counts as the shortest.
    """
    found: Refused | None = None
    rate = limits.requests_per_s
    if rate is not None:
        step_ns = interval_ns(rate)
        wait_ns = standing.requests_full_ns + step_ns - max(SECOND_NS, step_ns) - now_ns
        if wait_ns > 0:
            found = Refused(Limit.REQUESTS, rate, wait_ns)
    rate = limits.model_s_per_s
    if rate is not None:
        wait_ns = standing.model_full_ns - SECOND_NS + 1 - now_ns
        if wait_ns > 0 and (found is None or wait_ns > found.wait_ns):
            found = Refused(Limit.MODEL_S, rate, wait_ns)
    most = limits.in_flight
    if found is None and most is not None and standing.in_flight >= most:
        found = Refused(Limit.IN_FLIGHT, most, 0)
    return found
