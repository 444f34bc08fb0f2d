"""Engines behind HAProxy that say what share of the requests is right for them, played through in
made-up time: what that gains while one of them is slow, and that it costs nothing otherwise."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import pytest
from tiers import first_of

from ringbatch.engine.collector.backlog import estimate
from ringbatch.frontend.load.haproxy_weight import FULL, ModelLoad
from ringbatch.frontend.load.slowdown import Baseline, SlowdownFollower
from ringbatch.shm.cost_profile import Trial

MS: Final = 1_000_000
S: Final = 1_000_000_000
CAP: Final = 8
ASKED_EVERY_NS: Final = 100 * MS
SLOW_FROM_NS: Final = 2 * S
SECONDS: Final = 20


def run_ns(rows: int) -> int:
    """Return the time of a batch at full speed."""
    return (10 + rows) * MS


CAPACITY_PER_S: Final = CAP * S / run_ns(CAP)
BASELINE: Final = Baseline([[Trial(rows, 0, run_ns(rows)) for rows in (1, 2, 4, 8)]], padded=False)


@dataclass
class Engine:
    """Engine behind a balancer, whose only worker takes all waiting requests once it is idle."""

    factor: float = 1.0
    share: int = FULL
    under_way: int = 0
    served: int = 0
    turn: int = 0
    owed: int = 0
    waiting: list[int] = field(default_factory=list)
    batch: list[int] = field(default_factory=list)
    cycle_ns: int = 0
    runs: dict[int, tuple[int, int]] = field(default_factory=dict)
    follower: SlowdownFollower = field(default_factory=SlowdownFollower)

    def begin(self) -> int:
        """Start a batch; how long it takes."""
        self.batch, self.waiting = self.waiting[:CAP], self.waiting[CAP:]
        return int(self.factor * run_ns(len(self.batch)))

    def end(self, took_ns: int) -> list[int]:
        """A batch has run; when its requests came."""
        ended, self.batch = self.batch, []
        self.cycle_ns += (took_ns - self.cycle_ns) // (8 if self.cycle_ns else 1)
        batches, run_ns_before = self.runs.get(len(ended), (0, 0))
        self.runs[len(ended)] = batches + 1, run_ns_before + took_ns
        self.under_way -= len(ended)
        return ended

    def report_load(self, now_ns: int) -> None:
        """Answer an agent-check."""
        idle = int(not self.batch)
        answer_ns = estimate(len(self.waiting), CAP, idle, 1, self.cycle_ns).answer_ns
        batches = answer_ns / self.cycle_ns if self.cycle_ns else 0.0
        pace = self.follower.look(now_ns, BASELINE, dict(self.runs), batches)
        self.share = ModelLoad("m", "", 0, pace).percent


Choose = Callable[[list[Engine], random.Random], Engine]


def leastconn(engines: list[Engine], _source: random.Random) -> Engine:
    """Choose as HAProxy's leastconn does: an idle engine first, whatever its weight."""
    return min(engines, key=lambda e: ((e.under_way + 1) / e.share if e.under_way else 0.0, e.turn))


def random2(engines: list[Engine], source: random.Random) -> Engine:
    """The less busy, by weight, of two that are drawn by weight."""
    one, other = source.choices(engines, [engine.share for engine in engines], k=2)
    return other if other.under_way * one.share < one.under_way * other.share else one


def roundrobin(engines: list[Engine], _source: random.Random) -> Engine:
    """Return the next engine in turn, by weight."""
    for engine in engines:
        engine.owed += engine.share
    chosen = max(engines, key=lambda engine: engine.owed)
    chosen.owed -= sum(engine.share for engine in engines)
    return chosen


def p99_ms(
    choose: Choose, load: float, *, agent: bool, slow: float = 3.0, engines: int = 2
) -> float:
    """Return the 99th percentile of the latency after one engine has become slow.

    Args:
        choose: the balancer's choice of an engine.
        load: the share of what all engines could answer at full speed.
        agent: whether it asks the engines.
        slow: factor by which the first engine's batches take longer.
        engines: number of engines.
    """
    source, number = random.Random(7), count()
    all_engines = [Engine() for _ in range(engines)]
    events: list[tuple[int, int, str, int, int]] = []
    took_ns: list[int] = []

    def plan(at_ns: float, kind: str, engine: int = 0, began_ns: int = 0) -> None:
        heapq.heappush(events, (int(at_ns), next(number), kind, engine, began_ns))

    def begin(place: int, now_ns: int) -> None:
        plan(now_ns + all_engines[place].begin(), "ends", place, now_ns)

    plan(0, "arrives")
    plan(SLOW_FROM_NS, "is slow")
    for place in range(engines):
        plan(ASKED_EVERY_NS * place / engines, "is asked", place)
    while events:
        now_ns, turn, kind, place, began_ns = heapq.heappop(events)
        engine, goes_on = all_engines[place], now_ns < SECONDS * S
        if kind == "arrives" and goes_on:
            plan(now_ns + source.expovariate(load * engines * CAPACITY_PER_S / S), "arrives")
            chosen = choose(all_engines, source)
            chosen.turn = turn
            chosen.under_way += 1
            chosen.waiting.append(now_ns)
            if not chosen.batch:
                begin(all_engines.index(chosen), now_ns)
        elif kind == "ends":
            took_ns += [now_ns - ns for ns in engine.end(now_ns - began_ns) if ns >= SLOW_FROM_NS]
            if engine.waiting:
                begin(place, now_ns)
        elif kind == "is slow":
            engine.factor = slow
        elif kind == "is asked" and goes_on:
            if agent:
                engine.report_load(now_ns)
            plan(now_ns + ASKED_EVERY_NS, "is asked", place)
    took_ns.sort()
    return took_ns[len(took_ns) * 99 // 100] / MS


ALL: Final = [leastconn, random2, roundrobin]


@pytest.mark.parametrize("choose", ALL)
@pytest.mark.parametrize(("engines", "load"), first_of([(2, 0.4), (2, 0.25), (4, 0.5)], 1))
def test_a_slow_engine_costs_half_where_it_says_so(
    choose: Choose, engines: int, load: float
) -> None:
    without, with_agent = (
        p99_ms(choose, load, agent=agent, engines=engines) for agent in (False, True)
    )
    assert with_agent <= without / 2


@pytest.mark.parametrize("choose", ALL)
def test_a_slow_engine_that_is_needed_gets_its_share(choose: Choose) -> None:
    # One alone could not do it, and two can, with a sixth to spare.
    assert p99_ms(choose, 0.57, agent=True) < p99_ms(choose, 0.57, agent=False)


@pytest.mark.parametrize("choose", ALL)
@pytest.mark.parametrize("load", first_of([0.7, 0.5, 0.85], 1))
def test_where_none_is_slow_it_costs_next_to_nothing(choose: Choose, load: float) -> None:
    without, with_agent = (p99_ms(choose, load, agent=agent, slow=1.0) for agent in (False, True))
    assert with_agent <= 1.15 * without
