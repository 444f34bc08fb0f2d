"""A model whose workers the load decides, as a queue in simulated time: what that alone does.

Arrivals are random with a rate that changes, batches close eagerly, and take a base and something
for each instance. The predicted wait is the collector's own estimate, and the decision is the
supervisor's own, looked at as often. Nothing else of the engine takes any time.
"""

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from ringbatch.engine.collector.backlog import estimate
from ringbatch.engine.supervisor.scaling import Decision, Measurements, Rules, Scaler

LOOK_S = 0.25
_NS = 1_000_000_000
_SERVICE_SHARE = 8

Rate = Callable[[float], float]
"""Requests a second, by the time in seconds."""


@dataclass(frozen=True)
class Model:
    """Simulated model: the times of its batches and of its workers' starts.

    Attributes:
        base_s: time of every batch.
        row_s: time of every instance in one.
        cap: instances in the largest batch.
        start_s: from the start of a worker until it is ready.
    """

    base_s: float = 0.05
    row_s: float = 0.0
    cap: int = 8
    start_s: float = 1.0

    @property
    def full_s(self) -> float:
        """Time of a full batch, in seconds."""
        return self.base_s + self.row_s * self.cap

    @property
    def per_s(self) -> float:
        """Instances a second, of one worker with full batches."""
        return self.cap / self.full_s


@dataclass
class Outcome:
    """Record of a simulation.

    Attributes:
        latencies: arrival and latency of each request.
        decisions: time of each decision, the workers before it, and the decision.
        workers: time of each look, and the ready workers.
    """

    latencies: list[tuple[float, float]] = field(default_factory=list)
    decisions: list[tuple[float, int, Decision]] = field(default_factory=list)
    workers: list[tuple[float, int]] = field(default_factory=list)


class Simulation:
    """Simulation of a model under the autoscaler, from its start on.

    Args:
        rate: rate of arrivals.
        peak: rate that it never exceeds.
        rules: rules of the decision.
        model: the model that workers run.
        seed: seed of the arrivals.
        start: workers at the start.
    """

    def __init__(
        self,
        rate: Rate,
        peak: float,
        rules: Rules,
        model: Model,
        seed: int = 1,
        start: int | None = None,
    ) -> None:
        self.outcome = Outcome()
        self._rate, self._peak, self._model = rate, peak, model
        self._chance = random.Random(seed)
        self._scaler = Scaler(rules)
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = 0
        self._queue: deque[float] = deque()
        self._running = self._ready = max(rules.fewest, 1) if start is None else start
        self._idle = self._ready
        self._leaving = 0
        self._changes = False
        self._rows = 0
        self._run_s = self._cycle_s = 0.0

    def run(self, until_s: float) -> Outcome:
        """Let it pass."""
        self._at(0.0, self._look)
        self._at(self._next_arrival(0.0), self._arrive)
        while self._events and self._events[0][0] <= until_s:
            now, _, act = heapq.heappop(self._events)
            act(now)
        return self.outcome

    def _at(self, when: float, act: Callable[[float], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, act))

    def _next_arrival(self, now: float) -> float:
        while True:
            now += self._chance.expovariate(self._peak)
            if self._chance.random() * self._peak <= self._rate(now) or now > 1e5:
                return now

    def _arrive(self, now: float) -> None:
        self._rows += 1
        self._queue.append(now)
        self._serve(now)
        self._at(self._next_arrival(now), self._arrive)

    def _serve(self, now: float) -> None:
        while self._queue and self._idle:
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), self._model.cap))]
            self._idle -= 1
            took = self._model.base_s + self._model.row_s * len(batch)
            self._at(now + took, partial(self._end, batch, took))

    def _end(self, batch: list[float], took: float, now: float) -> None:
        share = _SERVICE_SHARE if self._cycle_s else 1
        self._cycle_s += (took - self._cycle_s) / share
        self._run_s += took
        self.outcome.latencies += [(came, now - came) for came in batch]
        if self._leaving:
            self._leaving -= 1
        else:
            self._idle += 1
        self._serve(now)

    def _look(self, now: float) -> None:
        cycle_ns = int(self._cycle_s * _NS)
        backlog = estimate(len(self._queue), self._model.cap, self._idle, self._ready, cycle_ns)
        reading = Measurements(
            now_ns=int(now * _NS),
            wait_ns=backlog.answer_ns,
            cycle_ns=cycle_ns,
            full_ns=int(self._model.full_s * _NS),
            batch_rows=self._model.cap,
            rows=self._rows,
            run_ns=int(self._run_s * _NS),
            running=self._running,
            ready=self._ready,
            start_ns=int(self._model.start_s * _NS),
        )
        decision = self._scaler.step(reading)
        if decision is not None and not self._changes:
            self.outcome.decisions.append((now, self._running, decision))
            self._carry_out(now, decision)
        self.outcome.workers.append((now, self._ready))
        self._at(now + LOOK_S, self._look)

    def _carry_out(self, now: float, decision: Decision) -> None:
        more = decision.workers - self._running
        self._running = decision.workers
        if more > 0:
            self._changes = True
            self._at(now + self._model.start_s, partial(self._join, more, decision))
            return
        self._ready += more
        at_rest = min(self._idle, -more)
        self._idle -= at_rest
        self._leaving += -more - at_rest
        self._scaler.carried_out(decision, int(now * _NS))

    def _join(self, more: int, decision: Decision, now: float) -> None:
        self._changes = False
        self._ready += more
        self._idle += more
        self._scaler.carried_out(decision, int(now * _NS))
        self._serve(now)


@dataclass(frozen=True)
class Scenario:
    """A load.

    Attributes:
        rate: requests a second, by the time in seconds.
        peak: the most of it.
        s: how long it lasts.
        from_s: when what is to be recovered from begins; None where nothing is sudden.
        turns: how often the load itself turns from rising to falling or back.
    """

    rate: Rate
    peak: float
    s: float
    from_s: float | None
    turns: int


def scenarios(unit: float, scale: float = 1.0) -> dict[str, Scenario]:
    """Return the loads to try.

    Args:
        unit: requests a second that one worker serves with some ease.
        scale: of time.
    """

    def step(now: float) -> float:
        return 8 * unit if 30 * scale <= now < 150 * scale else unit

    def sine(now: float) -> float:
        return unit * (4.5 - 3.5 * math.cos(2 * math.pi * now / (240 * scale)))

    def burst(now: float) -> float:
        return 8 * unit if 30 * scale <= now < 30 * scale + 3 else unit

    return {
        "steady": Scenario(lambda _: unit, unit, 300 * scale, None, 0),
        "step": Scenario(step, 8 * unit, 300 * scale, 30 * scale, 2),
        "sine": Scenario(sine, 8 * unit, 480 * scale, None, 4),
        "burst": Scenario(burst, 8 * unit, 120 * scale, 30 * scale, 2),
    }


@dataclass(frozen=True)
class Figures:
    """Summary of an outcome.

    Attributes:
        recovered_s: from when the load rose until requests took no longer than the target any more,
            until workers were let go again; None where nothing was sudden.
        most: workers at once.
        overshoot: workers beyond those that the load wants at its most, by the decision's own rule.
        changes: decisions carried out.
        turns: of the number of workers, beyond those of the load.
        p50_s, p99_s: of all requests.
        end: workers at the end.
    """

    recovered_s: float | None
    most: int
    overshoot: int
    changes: int
    turns: int
    p50_s: float
    p99_s: float
    end: int


def figures(outcome: Outcome, scenario: Scenario, target_s: float, wants: int) -> Figures:
    """Return the summary of an outcome.

    Args:
        outcome: of a run.
        scenario: the load.
        target_s: of the predicted wait.
        wants: workers that the load wants at its most.
    """
    recovered_s = None
    if (from_s := scenario.from_s) is not None:
        down = [at for at, _, d in outcome.decisions if d.cause.direction == "down"]
        until_s = next((at for at in down if at > from_s), scenario.s)
        late = [c for c, took in outcome.latencies if took > target_s and from_s <= c < until_s]
        recovered_s = max(late, default=from_s) - from_s
    took = sorted(latency for _, latency in outcome.latencies)
    most = max(count for _, count in outcome.workers)
    ways = [d.cause.direction for _, _, d in outcome.decisions]
    turns = sum(before != after for before, after in pairwise(ways))
    return Figures(
        recovered_s=recovered_s,
        most=most,
        overshoot=max(most - wants, 0),
        changes=len(ways),
        turns=max(turns - max(scenario.turns - 1, 0), 0),
        p50_s=took[len(took) // 2],
        p99_s=took[len(took) * 99 // 100],
        end=outcome.workers[-1][1],
    )
