"""Bounds on the runs at once, simulated: three models with two workers each, on two cores.

The collector's own code on a virtual clock, see `load.virtual_engine`. The cores serve all runs in
equal parts. While there are more runs than cores, each takes a share longer, the loss. Each model
gets a third of the load, in an open loop of Poisson arrivals. A request waits for twice the time
that it takes alone, and says so.

The engine has no such bound: it is put around the collector's decisions here. The run times are
known to it. Of the models that may begin, the one with the shortest run goes first.
"""

import argparse
import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from load.virtual_engine import SECOND_NS, VirtualEngine, VirtualModel
from report.record import Report
from report.rounds import number, table

from ringbatch.engine.collector.batching import Pending, Wait
from ringbatch.engine.collector.models import Model
from ringbatch.shm.slot import Reason

CAP: Final = 16
CORES: Final = 2
WORKERS: Final = 2
PATIENCE: Final = 2.0
"""Requests wait so many times their time alone."""
ALIKE: Final = 2.0
"""Runs up to so many times as long count, where a bound is by length."""
LENGTHS_MS: Final = ((20, 20, 20), (10, 10, 100), (10, 100, 100))
FIXED: Final = (0.9, 0.5, 0.1)
LOADS: Final = (0.7, 1.0, 1.5)
LOSSES: Final = (0.0, 0.05)
LEAST: Final = 0.95
MOST: Final = 1.2
ANSWERS: Final = 100
"""Answers after which a bound that climbs takes its next step."""
_LAST_NS: Final = SECOND_NS
"""Time by which the last requests have ended."""


class Subject(NamedTuple):
    """A model.

    Attributes:
        lone_s: the time that a request takes alone.
        fixed: the share of it that a batch takes once, whatever its rows.
    """

    lone_s: float
    fixed: float

    def run_ns(self, rows: int, _length: int = 1) -> int:
        """Return the time of a run alone on a core."""
        return round(self.lone_s * (self.fixed + (1 - self.fixed) * rows) * SECOND_NS)

    @property
    def capacity(self) -> float:
        """The requests a second that a core answers in full batches."""
        return CAP * SECOND_NS / self.run_ns(CAP)


class Policy(NamedTuple):
    """A bound.

    Attributes:
        most: runs at once.
        drops: whether requests are dropped that would be late even if they ran now, alone.
        by_length: whether a run counts only those runs that are not much longer than itself.
        climbs: whether the bound follows the answers a second, uphill.
    """

    most: int
    drops: bool = True
    by_length: bool = False
    climbs: bool = False


_ALL: Final = len(LENGTHS_MS[0]) * WORKERS
EAGER: Final = "eager"
BY_LENGTH: Final = "2 by length"
POLICIES: Final = {
    EAGER: Policy(_ALL, drops=False),
    "eager, drops": Policy(_ALL),
    "1": Policy(1),
    "2": Policy(2),
    "3": Policy(3),
    "climbs": Policy(3, climbs=True),
    BY_LENGTH: Policy(2, by_length=True),
}


class Bound:
    """A bound on the runs at once of an engine.

    Attributes:
        most: runs at once.

    Args:
        engine: the engine.
        subjects: its models.
        policy: see there.
    """

    def __init__(self, engine: VirtualEngine, subjects: Sequence[Subject], policy: Policy) -> None:
        self._policy = policy
        self.most = policy.most
        self._subjects = subjects
        self._time = engine.time
        self._collector = engine.collector
        self._dispatcher = engine.collector._dispatcher
        self._decide, self._serve_all = self._dispatcher._decide, self._dispatcher.serve_all
        self._step, self._rate = 1, 0.0
        self._answers, self._seconds, self._since_ns = 0, 0.0, engine.time.now_ns

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Apply the bound to the engine."""
        with (
            patch.object(self._dispatcher, "_decide", self._decide_within),
            patch.object(self._dispatcher, "serve_all", self._serve_in_order),
        ):
            yield

    def answered(self, subject: Subject) -> None:
        """Note an answer; now and then, take a step to where there were more of them."""
        self._answers += 1
        self._seconds += subject.lone_s
        if not self._policy.climbs or self._answers < ANSWERS:
            return
        rate = self._seconds / max(self._time.now_ns - self._since_ns, 1)
        if rate < self._rate or not 1 <= self.most + self._step <= _ALL:
            self._step = -self._step
        self.most += self._step
        self._rate, self._since_ns = rate, self._time.now_ns
        self._answers, self._seconds = 0, 0.0

    def _length_ns(self, model: Model, rows: int) -> int:
        return self._subjects[model.spec.index].run_ns(min(rows, CAP))

    def _free(self, model: Model) -> int:
        """Return how many runs of the requests that wait for a model may begin."""
        counts = math.inf
        if self._policy.by_length:
            counts = ALIKE * self._length_ns(model, model.queues.rows)
        runs = [
            self._length_ns(worker.model, worker.batches[0].mark.rows)
            for worker in self._collector._workers.values()
            if worker.batches
        ]
        return self.most - sum(run_ns <= counts for run_ns in runs)

    def _decide_within(self, model: Model, pending: Pending, now_ns: int) -> Reason | Wait:
        decision = self._decide(model, pending, now_ns)
        if isinstance(decision, Wait):
            return decision
        own_ns = self._length_ns(model, model.queues.rows)
        first = sum(
            bool(other.roster.idle and other.queues.rows)
            and self._length_ns(other, other.queues.rows) < own_ns
            and self._free(other) > 0
            for other in self._collector._models.values()
        )
        return decision if first < self._free(model) else Wait(pending.deadline_ns)

    def _serve_in_order(self, models: Mapping[int, Model], now_ns: int) -> None:
        """Look at all models, since the end of any run lets each of them go on."""
        if self._policy.drops:
            for model in models.values():
                if model.roster.idle and self._free(model) > 0:
                    self._drop_late(model, now_ns)
        self._collector._agenda.add_all(models)
        self._serve_all(models, now_ns)

    def _drop_late(self, model: Model, now_ns: int) -> None:
        late_ns = now_ns + self._length_ns(model, 1)
        for queue in [*model.queues]:
            for request in model.queues.expire_in(queue, late_ns):
                self._dispatcher._drop_expired(model, request, now_ns)


def arrivals(
    subjects: Sequence[Subject], load: float, requests: int, seed: int
) -> list[tuple[float, int]]:
    """Return instants, and the number of the model that is asked then.

    Args:
        subjects: the models.
        load: as a multiple of the capacity of all cores in full batches.
        requests: about how many.
        seed: of the random numbers.
    """
    found, chance = [], random.Random(seed)
    seconds = requests * len(subjects) / (load * CORES * sum(one.capacity for one in subjects))
    for place, subject in enumerate(subjects):
        rate_per_s = load * CORES * subject.capacity / len(subjects)
        at_s = chance.expovariate(rate_per_s)
        while at_s < seconds:
            found.append((at_s, place))
            at_s += chance.expovariate(rate_per_s)
    return sorted(found)


def simulate(
    subjects: Sequence[Subject],
    asked: Sequence[tuple[float, int]],
    policy: Policy,
    loss: float = 0.0,
) -> list[int]:
    """Return for each model how many requests are answered in time.

    Args:
        subjects: the models.
        asked: see `arrivals`.
        policy: the bound.
        loss: of the cores.
    """
    models = [
        VirtualModel(one.run_ns, CAP, WORKERS, timeout_s=PATIENCE * one.lone_s) for one in subjects
    ]
    engine = VirtualEngine(models, cores=CORES, loss=loss)
    bound = Bound(engine, subjects, policy)
    good = [0] * len(subjects)
    began_ns = engine.time.now_ns

    def ask(place: int) -> None:
        subject, asked_ns = subjects[place], engine.time.now_ns

        def ended(status: int) -> None:
            if status == 200:
                took_s = (engine.time.now_ns - asked_ns) / SECOND_NS
                good[place] += took_s <= PATIENCE * subject.lone_s
                bound.answered(subject)

        engine.ask(ended, model=place)

    with bound.applied():
        for at_s, place in asked:
            engine.time.run(began_ns + round(at_s * SECOND_NS))
            ask(place)
        engine.time.run(engine.time.now_ns + _LAST_NS)
    return good


def main() -> int:
    """Run all mixes, and print the shares of requests that are answered in time.

    The exit status is 1 when a limit is missed.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=800, help="about, in each run")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    report = Report("shared_cores", vars(options))
    rows: list[list[str]] = []
    ratios: dict[str, list[float]] = {name: [] for name in POLICIES}
    for fixed, lengths, load, loss in itertools.product(FIXED, LENGTHS_MS, LOADS, LOSSES):
        subjects = [Subject(length / 1000, fixed) for length in lengths]
        asked = arrivals(subjects, load, options.requests, options.seed)
        good = {name: sum(simulate(subjects, asked, p, loss)) for name, p in POLICIES.items()}
        for name, count in good.items():
            # One answer more, as eager dispatch may give none in time.
            ratios[name].append((count + 1) / (good[EAGER] + 1))
        mix = f"{' + '.join(map(str, lengths))} ms, {fixed:g} fixed"
        shares = {name: count / len(asked) for name, count in good.items()}
        report.run(mix=mix, load=load, loss=loss, **shares)
        rows.append([mix, f"{load:g}", f"{loss:g}", *map(number, shares.values())])
    report.print_text(table(["mix", "load", "loss", *POLICIES], rows))
    report.print_text(table(["of eager", "least", "median", "most"], _summary(ratios)))
    found = ratios[BY_LENGTH]
    report.limit("answers with a bound by length / eager, least", min(found), at_least=LEAST)
    report.limit("answers with a bound by length / eager, most", max(found), at_least=MOST)
    return report.finish()


def _summary(ratios: Mapping[str, Sequence[float]]) -> list[list[str]]:
    def figures(values: Sequence[float]) -> list[Any]:
        ordered = sorted(values)
        return [ordered[0], ordered[len(ordered) // 2], ordered[-1]]

    return [[name, *map(number, figures(values))] for name, values in ratios.items()]


if __name__ == "__main__":
    raise SystemExit(main())
