"""Wait of a polite client beside one that floods, and the rate that the flood keeps.

A model takes 10 ms for a batch of up to 32, and one frontend for each protocol serves it. The
polite client has one connection and sends its next request after each answer. The flood is another
account and has many such connections. They ask in every way of `load.ways`, with fair shares and
without. Then interactive requests come at a tenth of the model's capacity beside saturating bulk,
and bulk beside saturating interactive ones. Then a proxy passes on requests of two addresses, and
as many of addresses that are new with each request, 100,000 in a minute. At last, one collector
serves one account and another 100,000, step by step. Times count from the instant at which a
request was due.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from statistics import median

import numpy as np
from host import procfs
from host.server import HOST
from load.ways import CAP, JSON, MODEL, PROXY, V1_BODY, WAYS, Mark, Protocol, Served, Way, served
from report.record import Report
from report.rounds import number, ratios, run_rounds, table
from steps import ACCOUNTS, WAITING, beside_accounts

from ringbatch.bench.load.answers import post
from ringbatch.bench.load.arrivals import Arrivals, Kind
from ringbatch.bench.load.fleet import Fleet
from ringbatch.bench.load.outcome import Outcome
from ringbatch.bench.load.target import Target
from ringbatch.engine.collector.usage import CLASS_WEIGHTS
from ringbatch.shm.account import PriorityClass

TIMES = 3.0
"""The polite client's p99 may be as many times what it is alone."""
FLOOD_SHARE = 0.97
"""The flood's least rate, as a share of that without fair shares."""
BULK_SHARE = 0.95
"""Bulk's least rate, as a share of what interactive requests leave of its rate alone."""
BATCHES = 2
"""Interactive requests may wait so many batches longer beside bulk than alone."""
STEP = 1.05
"""A request may cost the collector as many times what it does with few accounts."""
INTERACTIVE_PER_S = 320
"""A tenth of what the model can answer."""
BULK_CONNECTIONS = 8
"""Connections of bulk requests, beside interactive requests that saturate the model."""
ROUNDS_OF_STEPS = 25
LEVEL_OF = 5
"""Rounds at the begin and at the end that are compared."""
SKIPPED = 0.2
"""First part of each run that does not count."""
GRACE_S = 10.0
FIGURES = ("per_s", "p50_ms", "p99_ms", "longest_ms")
TWO, NEW = "two", "new ones"
_FIRST_ADDRESS = int(IPv4Address("10.0.0.1"))
CLASS_WAY = Way(Protocol.V1, Mark.ADDRESS)


@dataclass(frozen=True)
class Load:
    """Answers to one client.

    Attributes:
        per_s: answers in each second, after the first part.
        p50_ms, p99_ms, longest_ms: until them.
        failed: requests of the whole run without the right answer.
    """

    per_s: float
    p50_ms: float
    p99_ms: float
    longest_ms: float
    failed: int


@dataclass(frozen=True)
class Beside:
    """The polite client beside the flood."""

    polite: Load
    flood: Load


@dataclass(frozen=True)
class Run:
    """Figures of one way to ask in one round: the polite client alone, and beside the flood."""

    alone: Load
    fair: Beside
    unfair: Beside


@dataclass(frozen=True)
class Classes:
    """Classes in one round, each alone and beside the other.

    Attributes:
        interactive, bulk: alone.
        beside_bulk, saturating: interactive requests at a tenth of the capacity, and bulk.
        longest_bulk: bulk beside saturating interactive requests.
    """

    interactive: Load
    bulk: Load
    beside_bulk: Load
    saturating: Load
    longest_bulk: Load


@dataclass(frozen=True)
class Use:
    """CPU time and memory of the collector for a load.

    Attributes:
        us: of CPU for an answered request.
        rss_bytes: resident at its end.
    """

    us: float
    rss_bytes: int


def summary(outcome: Outcome) -> Load:
    """Return the figures of the requests after the first part."""
    counted = outcome.answered & (outcome.due_ns >= outcome.seconds * SKIPPED * 1e9)
    took_ms = outcome.took_ns[counted] / 1e6
    failed = int((~outcome.answered).sum())
    if not len(took_ms):
        return Load(0.0, 0.0, 0.0, 0.0, failed)
    p50, p99 = np.percentile(took_ms, [50, 99])
    per_s = len(took_ms) / (outcome.seconds * (1 - SKIPPED))
    return Load(per_s, float(p50), float(p99), float(took_ms.max()), failed)


def closed(fleet: Fleet, connections: int, seconds: float) -> Load:
    """Ask from connections that send their next request after each answer."""
    return summary(fleet.run(Arrivals(Kind.CLOSED, seconds), connections, GRACE_S))


def arriving(fleet: Fleet, seconds: float) -> Load:
    """Ask at `INTERACTIVE_PER_S`, at random instants."""
    arrivals = Arrivals(Kind.POISSON, seconds, INTERACTIVE_PER_S)
    return summary(fleet.run(arrivals, 4 * CAP, GRACE_S))


class Scenario:
    """Runs on servers with and without fair shares.

    Args:
        servers: by whether they have fair shares, and whether they ask for keys.
        connections: of the flood.
        seconds: of each run.
    """

    def __init__(
        self, servers: Mapping[tuple[bool, bool], Served], connections: int, seconds: float
    ) -> None:
        self._servers = servers
        self._connections, self._seconds = connections, seconds
        self._pool = ThreadPoolExecutor(1)

    def flooded(self, way: Way) -> Run:
        """Ask in one way, alone and beside a flood, with fair shares and without."""
        alone: list[Load] = []
        found = []
        for fair in (True, False):
            server = self._servers[fair, way.mark is Mark.KEY]
            with way.fleet(server, 0) as polite, way.fleet(server, 1) as flood:
                if fair:
                    alone.append(closed(polite, 1, self._seconds))
                flooding = self._pool.submit(closed, flood, self._connections, self._seconds)
                beside = closed(polite, 1, self._seconds)
                found.append(Beside(beside, flooding.result()))
        return Run(alone[0], *found)

    def classes(self) -> Classes:
        """Ask for interactive answers and for bulk, alone and at the same time."""
        server, seconds, many = self._servers[True, False], self._seconds, self._connections
        with (
            CLASS_WAY.fleet(server, 0, "interactive") as interactive,
            CLASS_WAY.fleet(server, 1, "bulk") as bulk,
        ):
            alone = arriving(interactive, seconds), closed(bulk, many, seconds)
            saturating = self._pool.submit(closed, bulk, many, seconds)
            beside = arriving(interactive, seconds)
            filled = saturating.result()
            starving = self._pool.submit(closed, interactive, many, seconds)
            longest = closed(bulk, BULK_CONNECTIONS, seconds)
            starving.result()
        return Classes(*alone, beside, filled, longest)


def batch_ms(found: Classes) -> float:
    """Return how long the model takes for a batch, with what comes between two."""
    return CAP / found.bulk.per_s * 1e3


def longest_ms(found: Classes, connections: int) -> float:
    """Return the longest wait of a bulk request that the rule allows.

    The requests of all connections may go before it, and those of the other classes by weight, as
    `tests/harness/fair_shares_ledger.py` has it. Then come the batch that runs as the request
    comes, the one that the worker already has, and its own.
    """
    own = CLASS_WEIGHTS[PriorityClass.BULK]
    others = sum(CLASS_WEIGHTS.values()) - own
    requests = connections - 1 + (connections + 1) * others / own + len(CLASS_WEIGHTS) - 1
    return (requests / CAP + 3) * batch_ms(found)


def hold_ways_to_limits(report: Report, found: Mapping[Way, Sequence[Run]]) -> None:
    """Compare the medians with the limits; no request may fail."""
    for way, runs in found.items():
        times = median(run.fair.polite.p99_ms / run.alone.p99_ms for run in runs)
        report.limit(f"{way}: polite p99 beside the flood / alone", times, at_most=TIMES)
        share = ratios(
            [run.fair.flood.per_s for run in runs], [run.unfair.flood.per_s for run in runs]
        ).median
        report.limit(f"{way}: rate of the flood, fair / not fair", share, at_least=FLOOD_SHARE)
    all_runs = [run for runs in found.values() for run in runs]
    loads = [load for run in all_runs for load in (run.alone, run.fair.polite, run.fair.flood)]
    report.limit("requests that failed", sum(load.failed for load in loads), at_most=0)


def hold_classes_to_limits(report: Report, found: Sequence[Classes]) -> None:
    """Compare the medians of the classes with the limits; no request may fail."""
    more = [(each.beside_bulk.p99_ms - each.interactive.p99_ms) / batch_ms(each) for each in found]
    limit = "interactive p99, beside bulk - alone"
    report.limit(limit, median(more), at_most=BATCHES, unit="batches")
    left = [each.bulk.per_s - each.beside_bulk.per_s for each in found]
    shares = ratios([each.saturating.per_s for each in found], left)
    report.limit("rate of bulk / what is left of it", shares.median, at_least=BULK_SHARE)
    waits = [each.longest_bulk.longest_ms / longest_ms(each, BULK_CONNECTIONS) for each in found]
    report.limit("longest wait of bulk / stated bound", max(waits), at_most=1)
    loads = [load for each in found for load in vars(each).values()]
    report.limit("classes: requests that failed", sum(load.failed for load in loads), at_most=0)


def show_ways(found: Mapping[Way, Sequence[Run]]) -> str:
    """Return the table of medians of the ways."""
    rows = []
    for way, runs in found.items():
        figures = [
            median(run.alone.p99_ms for run in runs),
            median(run.fair.polite.p99_ms for run in runs),
            median(run.fair.polite.p99_ms / run.alone.p99_ms for run in runs),
            median(run.unfair.polite.p99_ms for run in runs),
            median(run.fair.flood.per_s for run in runs),
            median(run.fair.flood.per_s / run.unfair.flood.per_s for run in runs),
        ]
        rows.append([str(way), *map(number, figures)])
    head = ["way", "alone p99 ms", "beside p99 ms", "times", "not fair p99 ms"]
    return table([*head, "flood, requests/s", "share of not fair"], rows)


def show_classes(found: Sequence[Classes]) -> str:
    """Return the table of medians of the classes."""
    names = {
        "interactive, alone": "interactive",
        "interactive, beside bulk": "beside_bulk",
        "bulk, alone": "bulk",
        "bulk, beside interactive": "saturating",
        f"bulk of {BULK_CONNECTIONS} connections, beside saturating interactive": "longest_bulk",
    }
    rows = []
    for name, field in names.items():
        loads = [getattr(each, field) for each in found]
        figures = [median(getattr(load, key) for load in loads) for key in FIGURES]
        rows.append([name, *map(number, figures)])
    return table(["class", "requests/s", "p50 ms", "p99 ms", "longest ms"], rows)


def hold_steps_to_limit(report: Report) -> None:
    """Compare the collector's steps for accounts that never come back with those for few."""
    counts, rows = (1, 2, ACCOUNTS), []
    for waiting in (0, WAITING):
        found = beside_accounts(counts, ROUNDS_OF_STEPS, waiting)
        rows.append([f"{waiting} waiting", *(number(median(found[many])) for many in counts)])
        where = f"collector's step, {waiting} waiting"
        # Against the one account of the same round, so that a host's changes do not count.
        times = [many / one for many, one in zip(found[ACCOUNTS], found[1], strict=True)]
        level = median(times[-LEVEL_OF:]) / median(times[:LEVEL_OF])
        report.limit(f"{where}, last accounts / first", level, at_most=STEP)
        report.limit(f"{where}, {ACCOUNTS:,} accounts / 1", median(times), at_most=STEP)
        report.run(waiting=waiting, ns={f"{many} accounts": median(found[many]) for many in counts})
    head = [f"{many:,} accounts" for many in counts]
    report.print_text(table(["collector, ns for a request", *head], rows))


def passed_on(first: int, addresses: int, count: int) -> list[bytes]:
    """Return requests that a proxy passes on, of addresses from the given number on, in turn."""
    path = f"/v1/models/{MODEL}:predict"
    clients = [IPv4Address(_FIRST_ADDRESS + first + each % addresses) for each in range(count)]
    marks = [("X-Forwarded-For", str(client)) for client in clients]
    return [post(HOST, path, V1_BODY, [JSON, mark]) for mark in marks]


def use(server: Served, addresses: int, first: int, seconds: float) -> Use:
    """Ask at `ACCOUNTS` a minute, and return the CPU time and memory of the collector."""
    arrivals = Arrivals(Kind.POISSON, seconds, ACCOUNTS / 60)
    messages = passed_on(first, addresses, int(ACCOUNTS / 60 * seconds))
    with Fleet(1, Target(HOST, server.port, source=PROXY), messages) as fleet:
        before = procfs.sample_tree(server.pid)
        load = fleet.run(arrivals, CAP, GRACE_S)
        after = procfs.sample_tree(server.pid)
    found = procfs.usage(before, after, 1.0)
    (collector,) = [each for each in found if each.title.endswith("collector")]
    return Use(collector.cpu_fraction * 1e6 / int(load.answered.sum()), collector.rss_bytes)


def minute(report: Report, rounds: int, seconds: float) -> dict[str, list[Use]]:
    """Send requests of two addresses and of new ones by turns; a first round only warms up."""
    count = int(ACCOUNTS / 60 * seconds)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server = stack.enter_context(served(folder / "fair", fair=True, keys=False, proxy=False))

        def run(turn: int, name: str) -> Use:
            # New addresses of one run come in no other.
            found = use(server, 2 if name == TWO else count, turn * count, seconds)
            report.run(round=turn, what=f"a minute, {name}", result=found)
            return found

        found = run_rounds((TWO, NEW), rounds + 1, run)
    return {name: runs[1:] for name, runs in found.items()}


def hold_minute_to_limits(report: Report, found: Mapping[str, Sequence[Use]]) -> None:
    """Compare the collector's use for addresses that never come back with that for two."""
    times = ratios([each.us for each in found[NEW]], [each.us for each in found[TWO]]).median
    report.limit(f"collector, a minute of {ACCOUNTS:,} addresses / two", times, at_most=STEP)
    grown = found[NEW][-1].rss_bytes / found[NEW][0].rss_bytes
    report.limit("its memory, last / first", grown, at_most=STEP)
    rows = [[name, number(median(each.us for each in runs))] for name, runs in found.items()]
    report.print_text(table(["addresses", "collector, µs of CPU for a request"], rows))


PARTS = ("ways", "classes", "minute", "accounts")


def measure(report: Report, parts: Sequence[str], options: argparse.Namespace) -> None:
    """Run ways and classes by turns, print their tables, and hold them to their limits."""
    ways = [way for way in WAYS if "ways" in parts and not way.obstacle]
    if "ways" in parts:
        report.without({str(way): way.obstacle for way in WAYS if way.obstacle})
    turns: list[Way | None] = [*ways, *[None] * ("classes" in parts)]

    def run(turn: int, way: Way | None) -> Run | Classes:
        found = scenario.classes() if way is None else scenario.flooded(way)
        report.run(round=turn, what=str(way or "classes"), result=found)
        return found

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        servers: dict[tuple[bool, bool], Served] = {}
        for fair in (True, False)[: 1 + bool(ways)]:
            for keys in {way.mark is Mark.KEY for way in [*ways, CLASS_WAY]}:
                proxy = any(way.mark is Mark.FORWARDED for way in ways) and not keys
                running = served(folder / f"{fair}-{keys}", fair=fair, keys=keys, proxy=proxy)
                servers[fair, keys] = stack.enter_context(running)
        scenario = Scenario(servers, options.connections, options.seconds)
        found = run_rounds(turns, options.rounds, run)
    by_way = {
        way: [run for run in runs if isinstance(run, Run)] for way, runs in found.items() if way
    }
    classes = [run for run in found.get(None, ()) if isinstance(run, Classes)]
    if by_way:
        report.print_text(show_ways(by_way))
        hold_ways_to_limits(report, by_way)
    if classes:
        report.print_text(show_classes(classes))
        hold_classes_to_limits(report, classes)


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run")
    parser.add_argument("--connections", type=int, default=512, help="of the flood")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    report = Report("fairness", vars(options))
    if "minute" in options.parts:
        hold_minute_to_limits(report, minute(report, options.rounds, options.seconds))
    if "accounts" in options.parts:
        hold_steps_to_limit(report)
    if {"ways", "classes"} & {*options.parts}:
        measure(report, options.parts, options)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
