"""Invariants of an engine with limits of accounts, see `ringbatch.engine.collector.account_gate`.

They compare what the collector counts with the slots themselves. A collector that takes over lets
in what its predecessor left, so an account may then be above its limit until requests leave.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from simulation.engine import SLOTS, Engine
from simulation.machine import SECOND_NS

from ringbatch.engine.collector.account_gate import _COUNTERS, _WORDS
from ringbatch.engine.collector.account_limits import Limit
from ringbatch.engine.collector.collector import Collector
from ringbatch.shm.account import identity_of
from ringbatch.shm.account_limits import NO_LIMITS
from ringbatch.shm.counters import Counters
from ringbatch.shm.lane import Lane
from ringbatch.shm.slot import slot_of

LIMIT_REACHED: Final = "a limit was reached"
"""Kind of event: a request was refused for a limit of its account."""
_REFILLED_NS: Final = 600 * SECOND_NS
"""After so long, the buckets of all accounts are full, whatever they ran before."""


class LimitedAccounts:
    """Accounts of an engine, and what their clients know of its limits.

    Attributes:
        refill_ns: the time after which every account may ask again.

    Args:
        engine: the engine.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.refill_ns = 0 if engine.limits == NO_LIMITS else _REFILLED_NS
        self._refused: Counter[Limit] = Counter()
        """Refusals that clients have got."""
        self._collector: Collector | None = None
        self._before: Counter[int] = Counter()
        """Requests under way at the last look, by the account's identity."""
        self._left: dict[int, tuple[Lane, frozenset[int]]] = {}
        """Lane of each number, as its owner has it, and the requests of any former owner in it.

        Nobody knows any more which of them are parts.
        """

    def refused(self, text: bytes, headers: Iterable[tuple[str, str]]) -> None:
        """Note that a request is answered with status 429.

        Raises:
            AssertionError: it names no limit of the engine, or no wait.
        """
        limits = self._engine.limits
        bounds = {
            Limit.REQUESTS: limits.requests_per_s,
            Limit.MODEL_S: limits.model_s_per_s,
            Limit.IN_FLIGHT: limits.in_flight,
        }
        reached = [
            limit
            for limit, bound in bounds.items()
            if bound is not None and f" {bound:.15g} {_WORDS[limit]} ".encode() in text
        ]
        assert len(reached) == 1, f"a request is refused at no limit: {text!r}"
        assert int(dict(headers)["retry-after"]) > 0
        self._refused[reached[0]] += 1

    def check(self) -> None:
        """Compare the collector's counts with the slots, while time is about to pass.

        Raises:
            AssertionError: they differ, or an account has more in flight than it may.
        """
        if self._engine.limits == NO_LIMITS:
            return
        self._check_refusals()
        collector = self._engine.collector
        processes = self._engine.machine.processes
        if collector is None or any(p.name == "collector" and not p.asleep for p in processes):
            return
        limiter = collector.gate._limiter
        held, standings = limiter._held, limiter._standings
        assert held.keys() <= collector._in_flight.keys(), "what is answered counts as in flight"
        counted = Counter(map(id, held.values()))
        for standing in standings.values():
            assert standing.in_flight == counted.pop(id(standing), 0), "an account is counted wrong"
        assert not counted, "an account is forgotten that has requests in flight"
        under_way = self._under_way(collector)
        uncounted = [ref for ref in under_way if ref not in held]
        assert not uncounted, "a request that is in flight does not count"
        now = Counter(under_way.values())
        most = self._engine.limits.in_flight
        if most is not None and collector is self._collector:
            for identity, count in now.items():
                assert count <= max(most, self._before[identity]), (
                    f"account {identity} has {count} requests in flight, and may have {most}"
                )
        self._collector, self._before = collector, now

    def _under_way(self, collector: Collector) -> dict[int, int]:
        """Return the identities of the unanswered requests of frontends that live, by reference.

        Further parts of requests do not count.
        """
        lanes = {f.lane.index: f.lane for f in self._engine.frontends if f.lane is not None}
        for index, own in lanes.items():
            if index not in self._left or self._left[index][0] is not own:
                self._left[index] = (own, frozenset(own._expected))
        found = {}
        for ref in collector._slots.open_ones(list(collector._in_flight)):
            index, slot = divmod(slot_of(ref), SLOTS)
            lane = lanes.get(index)
            if lane is None or ref not in lane._expected or slot in lane._parts:
                continue
            if ref in self._left[index][1]:
                continue
            request = collector._slots.read(ref)
            assert request is not None, "a slot of an honest lane makes no sense"
            found[ref] = identity_of(request.account)
        return found

    def _check_refusals(self) -> None:
        """Assert that every refusal that a client has got was counted."""
        engine = self._engine
        counters = Counters(engine.raw, engine.segment.layout.collector_counters())
        for limit, count in self._refused.items():
            assert count <= counters[_COUNTERS[limit]], "a refusal is not counted"
