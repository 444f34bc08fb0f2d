"""Order and admission of requests, simulated: the collector's own code on a virtual clock.

Each scenario is a list of arrivals in an open loop: Poisson, in bursts, over a day, of unequal
rows, beside a flood, of clients that leave unseen, of two classes, or recorded ones. Each policy
meets the same arrivals. An answer is good if it is 200 and its client still waits. The best that
any policy could do is the smaller of what is asked and of what full batches give.

A recorded file has a line for each request: seconds, then optionally its client's name and rows.
"""

import argparse
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from load.virtual_engine import SECOND_NS, VirtualEngine, VirtualModel
from report.record import Report
from report.rounds import number, table

from ringbatch.shm.account import PriorityClass, account_word, identity

CAP: Final = 16
BATCH_S: Final = 0.020
ROW_S: Final = 0.001
"""A batch takes `BATCH_S`, and `ROW_S` for each of its rows."""
FULL_S: Final = BATCH_S + CAP * ROW_S
CAPACITY: Final = CAP / FULL_S
"""Rows a second in full batches."""
PATIENCE_S: Final = 2.0
TIMEOUT_S: Final = 60.0
BOUND_S: Final = 1.5
"""`max_queue_wait_s` of the policy that bounds the wait: less than the clients' patience."""
TIMES: Final = 3.0
RATE_SHARE: Final = 0.97
GOOD_SHARE: Final = 0.9
BULK_SHARE: Final = 0.95
EXTRA_BATCHES: Final = 2.0
ALL: Final = "all"
_OK: Final = 200


class Arrival(NamedTuple):
    """A request.

    Attributes:
        at_s: when it comes.
        client: the name of its client, an account.
        rows: its instances.
        priority: its class.
        group: the name of the row of the table that counts it.
    """

    at_s: float
    client: str = ALL
    rows: int = 1
    priority: PriorityClass = PriorityClass.NORMAL
    group: str = ALL


class Policy(NamedTuple):
    """Settings of an engine.

    Attributes:
        fair: whether accounts and classes share the model.
        max_queue_wait_s: as the setting.
    """

    fair: bool
    max_queue_wait_s: float = 0.0


POLICIES: Final = {
    "first come": Policy(fair=False),
    "fair": Policy(fair=True),
    "fair, bounded": Policy(fair=True, max_queue_wait_s=BOUND_S),
}


@dataclass
class Tally:
    """Requests of one group, or of one client of it.

    Attributes:
        asked, good: rows.
        refused, late: rows without 200, and rows whose client had left.
        meanwhile: rows that were answered while requests still came.
        waits_s: of the good answers.
        longest_s: the longest wait for any answer.
    """

    asked: int = 0
    good: int = 0
    refused: int = 0
    late: int = 0
    meanwhile: int = 0
    waits_s: list[float] = field(default_factory=list)
    longest_s: float = 0.0

    def ended(self, rows: int, status: int, took_s: float, *, meanwhile: bool) -> None:
        """Count a request."""
        if status != _OK:
            self.refused += rows
            return
        self.meanwhile += rows * meanwhile
        self.longest_s = max(self.longest_s, took_s)
        if took_s > PATIENCE_S:
            self.late += rows
        else:
            self.good += rows
            self.waits_s.append(took_s)

    def percentile_s(self, share: float) -> float:
        """Return the wait that a share of the good answers did not exceed; NaN without any."""
        waits = sorted(self.waits_s)
        return waits[math.ceil(share * len(waits)) - 1] if waits else math.nan


@dataclass(frozen=True)
class Outcome:
    """Result of a policy.

    Attributes:
        groups: by name.
        clients: the tallies of all clients.
        seconds: of the arrivals.
    """

    groups: Mapping[str, Tally]
    clients: Sequence[Tally]
    seconds: float

    @property
    def of_best(self) -> float:
        """Good rows, as a share of the most that any policy could give.

        Full batches count until the last client has left.
        """
        asked = sum(tally.asked for tally in self.groups.values())
        good = sum(tally.good for tally in self.groups.values())
        return good / min(asked, CAPACITY * (self.seconds + PATIENCE_S))

    @property
    def fairness(self) -> float:
        """Jain's index of the shares of their requests that clients got; 1 is equal."""
        shares = [tally.good / tally.asked for tally in self.clients]
        squares = sum(share * share for share in shares)
        return sum(shares) ** 2 / (len(shares) * squares) if squares else math.nan


def poisson(
    chance: random.Random, rate_per_s: Callable[[float], float], seconds: float, most_per_s: float
) -> Iterator[float]:
    """Yield instants of a Poisson process of varying rate, by thinning (Lewis and Shedler, 1979).

    Args:
        chance: random numbers.
        rate_per_s: the rate at an instant, at most `most_per_s`.
        seconds: the end.
        most_per_s: see above.
    """
    at_s = chance.expovariate(most_per_s)
    while at_s < seconds:
        if chance.random() * most_per_s < rate_per_s(at_s):
            yield at_s
        at_s += chance.expovariate(most_per_s)


def steady(chance: random.Random, load: float, seconds: float) -> Iterator[float]:
    """Yield instants of a Poisson process, at a multiple of the capacity."""
    return poisson(chance, lambda _at_s: load * CAPACITY, seconds, load * CAPACITY)


def at_load(load: float, chance: random.Random, seconds: float) -> list[Arrival]:
    """Return the arrivals of twenty clients that ask for a multiple of the capacity together."""
    return [
        Arrival(at_s, f"client {chance.randrange(20)}") for at_s in steady(chance, load, seconds)
    ]


def in_bursts(chance: random.Random, seconds: float) -> list[Arrival]:
    """Return arrivals at 3 times the capacity in each first quarter of 2 s, and none in between."""
    rate = 3 * CAPACITY
    at = poisson(chance, lambda at_s: rate if at_s % 2 < 0.5 else 0.0, seconds, rate)
    return [Arrival(at_s, f"client {chance.randrange(20)}") for at_s in at]


def over_a_day(chance: random.Random, seconds: float) -> list[Arrival]:
    """Return arrivals that rise to 1.4 times the capacity and fall to 0.2, four times."""

    def rate(at_s: float) -> float:
        return CAPACITY * (0.8 + 0.6 * math.sin(8 * math.pi * at_s / seconds))

    at = poisson(chance, rate, seconds, 1.4 * CAPACITY)
    return [Arrival(at_s, f"client {chance.randrange(20)}") for at_s in at]


def of_unequal_rows(chance: random.Random, seconds: float) -> list[Arrival]:
    """Return arrivals at 0.9 of the capacity, most of one row and few of many (Pareto)."""
    found, at_s = [], 0.0
    while at_s < seconds:
        rows = min(int(chance.paretovariate(1.2)), CAP)
        found.append(Arrival(at_s, f"client {chance.randrange(20)}", rows))
        at_s += chance.expovariate(0.9 * CAPACITY / rows)
    return found


def polite(chance: random.Random, seconds: float) -> list[Arrival]:
    """Return the arrivals of a client that asks for a twentieth of the capacity."""
    return [Arrival(at_s, "polite", group="polite") for at_s in steady(chance, 0.05, seconds)]


def beside_a_flood(chance: random.Random, seconds: float) -> list[Arrival]:
    """Return the arrivals of a polite client beside one that asks for twice the capacity."""
    flood = [Arrival(at_s, "flood", group="flood") for at_s in steady(chance, 2.0, seconds)]
    return sorted(polite(chance, seconds) + flood)


def interactive(chance: random.Random, seconds: float) -> list[Arrival]:
    """Return interactive arrivals for a tenth of the capacity."""
    of = partial(Arrival, priority=PriorityClass.INTERACTIVE, group="interactive")
    return [of(at_s, f"person {chance.randrange(20)}") for at_s in steady(chance, 0.1, seconds)]


def beside_bulk(chance: random.Random, seconds: float) -> list[Arrival]:
    """Return interactive arrivals beside bulk that asks for twice the capacity."""
    of = partial(Arrival, client="night job", priority=PriorityClass.BULK, group="bulk")
    return sorted(
        interactive(chance, seconds) + [of(at_s) for at_s in steady(chance, 2.0, seconds)]
    )


SCENARIOS: Final[Mapping[str, Callable[[random.Random, float], list[Arrival]]]] = {
    "half the capacity": partial(at_load, 0.5),
    "0.9 of it": partial(at_load, 0.9),
    "4 times, clients leave unseen": partial(at_load, 4.0),
    "bursts": in_bursts,
    "four days": over_a_day,
    "unequal rows": of_unequal_rows,
    "polite client": polite,
    "beside a flood": beside_a_flood,
    "interactive": interactive,
    "beside bulk": beside_bulk,
}


def recorded(path: Path) -> list[Arrival]:
    """Return the arrivals of a file; see the module.

    Raises:
        SystemExit: a line is wrong; the text names it.
    """
    found = []
    for line, text in enumerate(path.read_text().splitlines(), 1):
        words = text.split()
        try:
            rows = int(words[2]) if len(words) > 2 else 1
            arrival = Arrival(float(words[0]), words[1] if len(words) > 1 else ALL, rows)
        except (ValueError, IndexError):
            raise SystemExit(f"{path}: line {line}: not seconds, client and rows") from None
        if not 1 <= arrival.rows <= CAP or arrival.at_s < 0:
            raise SystemExit(f"{path}: line {line}: rows are from 1 to {CAP}, seconds from 0")
        found.append(arrival)
    return sorted(found)


def simulate(arrivals: Sequence[Arrival], policy: Policy, seconds: float) -> Outcome:
    """Serve arrivals by a policy.

    Args:
        arrivals: in order.
        policy: the settings.
        seconds: of the arrivals.
    """

    def run_ns(rows: int, _length: int) -> int:
        return round((BATCH_S + rows * ROW_S) * SECOND_NS)

    bound_s = policy.max_queue_wait_s
    model = VirtualModel(run_ns, CAP, timeout_s=TIMEOUT_S, max_queue_wait_s=bound_s)
    engine = VirtualEngine([model])
    began_ns = engine.time.now_ns
    ends_ns = began_ns + round(seconds * SECOND_NS)
    groups: dict[str, Tally] = {}
    clients: dict[str, Tally] = {}

    def ask(arrival: Arrival) -> None:
        tallies = [
            groups.setdefault(arrival.group, Tally()),
            clients.setdefault(arrival.client, Tally()),
        ]
        asked_ns = engine.time.now_ns

        def ended(status: int) -> None:
            now_ns = engine.time.now_ns
            took_s, meanwhile = (now_ns - asked_ns) / SECOND_NS, now_ns <= ends_ns
            for tally in tallies:
                tally.ended(arrival.rows, status, took_s, meanwhile=meanwhile)

        for tally in tallies:
            tally.asked += arrival.rows
        account = account_word(identity("client", arrival.client.encode()), arrival.priority)
        engine.ask(ended, arrival.rows, account=account if policy.fair else 0)

    for arrival in arrivals:
        engine.time.run(began_ns + round(arrival.at_s * SECOND_NS))
        ask(arrival)
    engine.time.run(ends_ns + round((TIMEOUT_S + 1) * SECOND_NS))
    return Outcome(groups, [*clients.values()], seconds)


def show(found: Mapping[str, Mapping[str, Outcome]]) -> str:
    """Return the table of all scenarios and policies."""
    head = ["scenario", "policy", "group", "good rows/s", "refused", "late"]
    head += ["p50 s", "p99 s", "longest s", "of the best", "Jain"]
    rows = []
    for scenario, outcomes in found.items():
        for policy, outcome in outcomes.items():
            for group, tally in sorted(outcome.groups.items()):
                waits = [tally.percentile_s(0.5), tally.percentile_s(0.99), tally.longest_s]
                rates = [each / outcome.seconds for each in (tally.good, tally.refused, tally.late)]
                figures = [*rates, *waits, outcome.of_best, outcome.fairness]
                rows.append([scenario, policy, group, *map(number, figures)])
    return table(head, rows)


def hold_to_limits(report: Report, found: Mapping[str, Mapping[str, Outcome]]) -> None:
    """Compare the outcomes with what the documents say of shares, classes and bounds."""

    def of(scenario: str, group: str, policy: str = "fair") -> Tally:
        return found[scenario][policy].groups[group]

    def p99_s(scenario: str, group: str) -> float:
        return of(scenario, group).percentile_s(0.99)

    times = p99_s("beside a flood", "polite") / p99_s("polite client", "polite")
    report.limit("polite p99 beside a flood / alone", times, at_most=TIMES)
    flood = [of("beside a flood", "flood", policy).meanwhile for policy in ("fair", "first come")]
    report.limit("rate of the flood, fair / first come", flood[0] / flood[1], at_least=RATE_SHARE)
    good = found["4 times, clients leave unseen"]["fair, bounded"].of_best
    report.limit("good rows of clients that leave, of the best", good, at_least=GOOD_SHARE)
    extra_s = p99_s("beside bulk", "interactive") - p99_s("interactive", "interactive")
    report.limit("batches added to the interactive p99", extra_s / FULL_S, at_most=EXTRA_BATCHES)
    seconds = found["beside bulk"]["fair"].seconds
    left = CAPACITY * seconds - of("beside bulk", "interactive").meanwhile
    share = of("beside bulk", "bulk").meanwhile / left
    report.limit("rate of bulk / what interactive leaves", share, at_least=BULK_SHARE)


def main() -> int:
    """Run the scenarios; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the arrivals")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trace", type=Path, help="recorded arrivals, instead of the scenarios")
    options = parser.parse_args()
    report = Report("policies", vars(options))
    chosen: dict[str, list[Arrival]] = {}
    if options.trace:
        chosen["recorded"] = recorded(options.trace)
    else:
        for name, make in SCENARIOS.items():
            chosen[name] = make(random.Random(options.seed), options.seconds)
    found: dict[str, dict[str, Outcome]] = {}
    for name, arrivals in chosen.items():
        seconds = max(options.seconds, arrivals[-1].at_s) if options.trace else options.seconds
        found[name] = {one: simulate(arrivals, p, seconds) for one, p in POLICIES.items()}
        for one, outcome in found[name].items():
            report.run(scenario=name, policy=one, of_best=outcome.of_best, jain=outcome.fairness)
    report.print_text(show(found))
    if not options.trace:
        hold_to_limits(report, found)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
