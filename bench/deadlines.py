"""Deadlines under the policy `fixed`, simulated: by which estimate of its run time a batch closes.

Requests come by chance, each with the same time limit, a multiple of the mean run. A batch closes
when it is full or when a later start would probably miss a deadline. Three estimates decide that.
They are the mean of recent runs, and the time of nearly all of them as the collector has it. The
third is the true time of the next run, if that does not depend on the batch.

A refusal is wrong if a later request of the same length was answered before the refused one's
deadline: queues are first come, first served.
"""

import argparse
import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from load.virtual_engine import SECOND_NS, VirtualEngine, VirtualModel
from report.record import Report
from report.rounds import number, table

from ringbatch.engine.collector.batch_time_average import SHARE
from ringbatch.engine.collector.run_reserve import RunReserve
from ringbatch.shm.host.platform import is_compiled

CAP: Final = 8
SHORT_MS: Final = 5.0
LONG_MS: Final = 50.0
LONG_SHARE: Final = 0.1
LONG: Final = 10
"""Length of a long request; others have the length 1."""
MAX_LATENCY_S: Final = 60.0
"""No batch closes because it has waited."""
LIMITS: Final = (3, 8)
"""Time limits of the requests, in mean runs."""
LOADS: Final = (0.1, 0.3, 0.7, 1.0, 2.0)
"""Loads as multiples of the engine's capacity."""
LEAST_OF_MEAN: Final = 0.99
MOST_LATE_OF_MEAN: Final = 0.6
_OK: Final = 200
_REFUSED: Final = 503
_TOLERANCE_NS: Final = 1_000


class Kind(NamedTuple):
    """A kind of run times.

    Attributes:
        run_ms: of a batch, by a random number, its rows and the length of its longest row.
        row_ms: mean of a row in full batches.
        mean_ms: of a full batch.
        lengths: whether requests have unequal lengths.
        buckets: as `length_buckets`.
        known: whether the time depends on the random number alone.
    """

    run_ms: Callable[[float, int, int], float]
    row_ms: float
    mean_ms: float
    lengths: bool = False
    buckets: tuple[int, ...] = ()
    known: bool = False


def _either(random_number: float, _rows: int, _length: int) -> float:
    return LONG_MS if random_number < LONG_SHARE else SHORT_MS


def _by_length(_random_number: float, _rows: int, length: int) -> float:
    return LONG_MS if length > 1 else SHORT_MS


_MEAN_MS: Final = SHORT_MS + (LONG_MS - SHORT_MS) * LONG_SHARE
_MIXED_MS: Final = LONG_MS - (LONG_MS - SHORT_MS) * (1 - LONG_SHARE) ** CAP
KINDS: Final[Mapping[str, Kind]] = {
    "by rows": Kind(lambda _number, rows, _length: 4 + 0.5 * rows, 1.0, 8.0),
    "around a mean": Kind(lambda number, _rows, _length: 6 + 4 * number, 1.0, 8.0, known=True),
    "one in ten long": Kind(_either, _MEAN_MS / CAP, _MEAN_MS, known=True),
    "long if one is": Kind(_by_length, _MIXED_MS / CAP, _MIXED_MS, lengths=True),
    "two buckets": Kind(_by_length, _MEAN_MS / CAP, _MEAN_MS, lengths=True, buckets=(1, LONG)),
}


class Runs:
    """Run times of one simulation, the same for each estimate.

    Args:
        kind: the distribution of run times.
        seed: of the random numbers.
    """

    def __init__(self, kind: Kind, seed: int) -> None:
        self._kind = kind
        self._chance = random.Random(seed)
        self._next = self._chance.random()

    def __call__(self, rows: int, length: int) -> int:
        """Return the time of the next run."""
        run_ns = self._run_ns(rows, length)
        self._next = self._chance.random()
        return run_ns

    @property
    def next_ns(self) -> int:
        """The time of the next run, of any batch."""
        return self._run_ns(1, 1)

    def _run_ns(self, rows: int, length: int) -> int:
        return round(self._kind.run_ms(self._next, rows, length) * 1e6)


class MeanEstimate(RunReserve):
    """Mean of recent runs, in place of the time of nearly all."""

    def __init__(self) -> None:
        super().__init__()
        self._mean_ns = 0

    def ran(self, took_ns: int, average_ns: int, now_ns: int, workers: int) -> int:
        """Record a batch, and return the mean."""
        self._mean_ns += (took_ns - self._mean_ns) // (SHARE if self._mean_ns else 1)
        return self._mean_ns


class TrueEstimate(RunReserve):
    """The next run's true time, in place of the time of nearly all."""

    def __init__(self, runs: Runs) -> None:
        super().__init__()
        self._runs = runs

    def ran(self, took_ns: int, average_ns: int, now_ns: int, workers: int) -> int:
        """Return the time of the next run."""
        return self._runs.next_ns


ESTIMATES: Final[Mapping[str, Callable[[Runs], RunReserve]]] = {
    "mean": lambda _runs: MeanEstimate(),
    "ringbatch": lambda _runs: RunReserve(),
    "true": TrueEstimate,
}


@dataclass
class Asked:
    """A request.

    Attributes:
        at_ns: when it came.
        due_ns: its deadline.
        length: of its row.
        status: its answer's.
        ended_ns: when it was answered.
    """

    at_ns: int
    due_ns: int
    length: int
    status: int = 0
    ended_ns: int = 0

    @property
    def good(self) -> bool:
        """True if it was answered in time."""
        return self.status == _OK and self.ended_ns <= self.due_ns + _TOLERANCE_NS


class Outcome(NamedTuple):
    """Shares of all requests: in time, wrongly refused, refused, and late or never run."""

    good: float
    wrong: float
    refused: float
    late: float


def outcome(asked: Iterable[Asked]) -> Outcome:
    """Return the outcome of requests, which are in order."""
    first_ends_ns: dict[int, float] = {}
    """Earliest good answer to a later request, by length."""
    good = wrong = refused = count = 0
    for one in reversed([*asked]):
        count += 1
        if one.good:
            good += 1
            first_ends_ns[one.length] = min(one.ended_ns, first_ends_ns.get(one.length, math.inf))
        elif one.status == _REFUSED:
            refused += 1
            wrong += first_ends_ns.get(one.length, math.inf) <= one.due_ns
    late = count - good - refused
    return Outcome(*(figure / count for figure in (good, wrong, refused, late)))


def simulate(
    kind: Kind, limit: float, load: float, estimate: str, requests: int, seed: int
) -> Outcome:
    """Serve requests that come by chance.

    Args:
        kind: of run times.
        limit: of each request's time, in mean runs.
        load: in capacities.
        estimate: the name of the estimate.
        requests: number of requests.
        seed: of arrivals and run times.
    """
    runs, chance = Runs(kind, seed), random.Random(seed + 1)
    model = VirtualModel(
        runs,
        CAP,
        policy="fixed",
        max_latency_s=MAX_LATENCY_S,
        lengths=kind.lengths,
        length_buckets=kind.buckets,
    )
    engine = VirtualEngine([model], slots=1 << 12)
    engine.reserve_by(ESTIMATES[estimate](runs))
    limit_ns = round(limit * kind.mean_ms * 1e6)
    asked = []

    def ask(length: int) -> None:
        now_ns = engine.time.now_ns
        one = Asked(now_ns, now_ns + limit_ns, length)

        def ended(status: int) -> None:
            one.status, one.ended_ns = status, engine.time.now_ns

        asked.append(one)
        engine.ask(ended, timeout_s=limit_ns / SECOND_NS, length=length)

    for _ in range(requests):
        after_ns = round(chance.expovariate(load / kind.row_ms) * 1e6)
        engine.time.run(engine.time.now_ns + after_ns)
        ask(LONG if kind.lengths and chance.random() < LONG_SHARE else 1)
    engine.time.run(engine.time.now_ns + limit_ns + SECOND_NS)
    return outcome(asked)


Found = Mapping[tuple[str, int, float, str], Outcome]
"""Outcomes by kind, limit, load and estimate."""


def show(found: Found) -> str:
    """Return the table."""
    head = ["run times", "limit, mean runs", "load", "estimate"]
    head += ["in time", "wrongly refused", "refused", "late"]
    rows = [
        [name, str(limit), str(load), estimate, *(f"{figure:.4f}" for figure in outcome)]
        for (name, limit, load, estimate), outcome in found.items()
    ]
    return table(head, rows)


def hold_to_limits(report: Report, found: Found) -> None:
    """Compare the estimates with each other."""
    shares = {
        case: outcome.good / found[(*case[:3], "mean")].good
        for case, outcome in found.items()
        if case[3] == "ringbatch"
    }
    least = min(shares, key=lambda case: shares[case])
    name = f"in time, ringbatch / mean, at the worst ({least[0]}, {least[1]}, {number(least[2])})"
    report.limit(name, shares[least], at_least=LEAST_OF_MEAN)
    for kind in ("by rows", "around a mean", "one in ten long"):
        late = {one: found[kind, LIMITS[-1], LOADS[0], one].late for one in ("mean", "ringbatch")}
        if late["mean"]:
            share = late["ringbatch"] / late["mean"]
            report.limit(f"late, ringbatch / mean, {kind}", share, at_most=MOST_LATE_OF_MEAN)


def main() -> int:
    """Run the simulations; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=4_000, help="in each simulation")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if is_compiled():
        raise SystemExit("it replaces an estimate, which only an installation as Python allows")
    report = Report("deadlines", vars(options))
    found: dict[tuple[str, int, float, str], Outcome] = {}
    for name, kind in KINDS.items():
        for limit in LIMITS:
            for load in LOADS:
                for estimate in ESTIMATES:
                    if estimate == "true" and not kind.known:
                        continue
                    case = name, limit, load, estimate
                    found[case] = simulate(
                        kind, limit, load, estimate, options.requests, options.seed
                    )
                    report.run(case=[*case], **found[case]._asdict())
    report.print_text(show(found))
    hold_to_limits(report, found)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
