"""Misfortunes in a life of an engine, with their rates: drawn by chance, or given by name."""

import random
from dataclasses import dataclass, fields, replace
from typing import Final

from simulation.machine import MICROSECOND_NS, MILLISECOND_NS

from ringbatch.shm.account_limits import NO_LIMITS, AccountLimits

_CROWDED_SHARE: Final = 0.08
_CHAINED_SHARE: Final = 0.25
_LOADS_SHARE: Final = 0.1
_FAILING_LOADS: Final = 0.8
_FAILING_LOADS_SHARE: Final = 0.3
_LIMITED_SHARE: Final = 0.25
_PARTS_SHARE: Final = 0.25
_STEPS_SHARE: Final = 0.25
_COSTS_SHARE: Final = 0.4
_LEADS_SHARE: Final = 0.25
_LEADS_NS: Final = (200 * MICROSECOND_NS, 2 * MILLISECOND_NS)
_CHANGES: Final = 0.4
_CHANGES_SHARE: Final = 0.3


@dataclass(frozen=True)
class Profile:
    """Misfortunes in a life, with their rates: chances at each pause of a process."""

    requests: int = 10
    stride: int = 12
    loads: bool = False
    """Processes give way before loads, too."""
    gap_ns: int = MILLISECOND_NS
    """Average time between two arrivals, roughly."""
    run_ns: int = 3 * MILLISECOND_NS
    """Time that the model runs, about."""
    kills_of_workers: float = 0.0
    kills_of_collectors: float = 0.0
    kills_of_frontends: float = 0.0
    stops_of_workers: float = 0.0
    stops_of_collectors: float = 0.0
    stops_of_frontends: float = 0.0
    failing_loads: float = 0.0
    """A chance at each start of a worker whose place had one that was ready."""
    lost_time: float = 0.0
    """Chances at each arrival, from here on."""
    cancels: float = 0.0
    short_deadlines: float = 0.0
    strange: float = 0.0
    """Requests that are no harmless ones."""
    fatal: float = 0.0
    """Requests that end or occupy their worker."""
    alike: float = 0.0
    """Requests of one instance each to the typed model."""
    hostile: float = 0.0
    chained: bool = False
    """True if there is a chain among the models."""
    in_parts: bool = False
    """True if a model answers in parts; not beside a chain."""
    in_steps: bool = False
    """True if a model works in steps; not beside a chain, nor beside a model that yields."""
    costs: bool = False
    """True if all live rows of a model in steps may cost no more than a limit."""
    lead_ns: int = 0
    """Time before the end of a batch at which a worker wants the next one, as one on a device does;
    not in steps, nor beside a model that yields."""
    changes: float = 0.0
    """A chance at each arrival that a worker may run another number of rows at once."""
    limits: AccountLimits = NO_LIMITS
    """Limits of every account."""

    @staticmethod
    def of(
        chance: random.Random,
        chains: random.Random,
        loads: random.Random,
        limits: random.Random,
        parts: random.Random,
        steps: random.Random,
        costs: random.Random,
        leads: random.Random,
    ) -> "Profile":
        """Return one of many profiles.

        Args:
            chance: decides what is not named below.
            chains: decides whether there is a chain.
            loads: decides whether loads fail.
            limits: decides whether accounts have limits.
            parts: decides whether a model answers in parts, where there is no chain.
            steps: decides whether a model works in steps, where there is neither.
            costs: decides whether its rows have costs.
            leads: decides whether workers want their next batch before the end of one.
        """
        chained = chains.random() < _CHAINED_SHARE
        in_parts = not chained and parts.random() < _PARTS_SHARE
        in_steps = not (chained or in_parts) and steps.random() < _STEPS_SHARE
        leads_early = not (in_parts or in_steps) and leads.random() < _LEADS_SHARE
        return replace(
            Profile._of(chance),
            lead_ns=leads.choice(_LEADS_NS) if leads_early else 0,
            chained=chained,
            in_parts=in_parts,
            in_steps=in_steps,
            costs=in_steps and costs.random() < _COSTS_SHARE,
            changes=_CHANGES * (in_steps and steps.random() < _CHANGES_SHARE),
            failing_loads=_FAILING_LOADS * (loads.random() < _FAILING_LOADS_SHARE),
            limits=_some_limits(limits) if limits.random() < _LIMITED_SHARE else NO_LIMITS,
        )

    @staticmethod
    def _of(chance: random.Random) -> "Profile":
        if chance.random() < _CROWDED_SHARE:
            return chance.choice(CROWDED)

        def sometimes(most: float, often: float = 0.35) -> float:
            return most * chance.random() if chance.random() < often else 0.0

        return Profile(
            requests=chance.randrange(1, 9),
            stride=chance.choice([3, 8, 20, 60]),
            loads=chance.random() < _LOADS_SHARE,
            gap_ns=chance.choice([50 * MICROSECOND_NS, MILLISECOND_NS, 20 * MILLISECOND_NS]),
            run_ns=chance.choice([100 * MICROSECOND_NS, 3 * MILLISECOND_NS, 60 * MILLISECOND_NS]),
            kills_of_workers=sometimes(0.3),
            kills_of_collectors=sometimes(0.3),
            kills_of_frontends=sometimes(0.2),
            stops_of_workers=sometimes(0.1, 0.2),
            stops_of_collectors=sometimes(0.1, 0.2),
            stops_of_frontends=sometimes(0.2, 0.2),
            lost_time=sometimes(0.03, 0.1),
            cancels=sometimes(0.4),
            short_deadlines=sometimes(0.6),
            strange=sometimes(0.5),
            fatal=sometimes(0.3, 0.25),
            hostile=sometimes(0.8, 0.2),
        )

    def calm(self) -> "Profile":
        """Return the profile without any misfortune, and with one request.

        Two requests that are cut into four each would need more slots than their model may have.
        """
        return replace(
            Profile(1, self.stride, self.loads),
            gap_ns=self.gap_ns,
            run_ns=self.run_ns,
            chained=self.chained,
            in_parts=self.in_parts,
            in_steps=self.in_steps,
            costs=self.costs,
            lead_ns=self.lead_ns,
        )

    def simpler(self) -> "list[Profile]":
        """Profiles with less in them, the simplest first."""
        usual = Profile(requests=self.requests)
        changed = [f.name for f in fields(self) if getattr(self, f.name) != getattr(usual, f.name)]
        found = [replace(self, **{name: getattr(usual, name)}) for name in changed]
        fewer = sorted({self.requests // 2, self.requests - 1} - {0, self.requests})
        return found + [replace(self, requests=count) for count in fewer]


def _some_limits(chance: random.Random) -> AccountLimits:
    """Return limits that a life may reach, at times several of them."""
    return AccountLimits(
        in_flight=chance.choice([None, 1, 1, 2]),
        requests_per_s=chance.choice([None, None, 4.0, 40.0]),
        model_s_per_s=chance.choice([None, None, 0.1, 1.0]),
    )


CROWDED: Final = (
    Profile(
        requests=60,
        stride=60,
        gap_ns=5 * MILLISECOND_NS,
        run_ns=MILLISECOND_NS // 10,
        kills_of_collectors=0.3,
        stops_of_frontends=0.3,
    ),
    Profile(
        requests=20,
        stride=8,
        run_ns=MILLISECOND_NS,
        kills_of_frontends=0.2,
        stops_of_collectors=0.3,
    ),
    Profile(requests=30, stride=3, gap_ns=200 * MICROSECOND_NS, run_ns=100 * MICROSECOND_NS),
    Profile(requests=16, stride=8, gap_ns=0, kills_of_workers=0.2, alike=1.0),
    Profile(requests=40, stride=20, run_ns=60 * MILLISECOND_NS, cancels=0.2, alike=0.85),
)
"""Profiles with many requests under way.

In the first two rings are full, of what is submitted twice; in the third nobody rests; in the
fourth workers die amid large batches; in the last one model takes all the slots that it may.
"""
