"""Goodput under overload: right answers in time, with up to four times the requests that fit.

An open loop at several rates around the capacity of a model that takes 20 ms for a batch of eight,
for several servers in turn; those that can be told give a request up after a second. What counts is
goodput: right answers within the deadline, by when they came, each second.

With `--leave-after`, ringbatch alone is measured, with clients that its timeout does not know: they
leave unseen after a while. With `--again` they are a closed loop, and whoever is refused or leaves
asks again at once.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from host import procfs
from host.server import Server
from load.impatient import LEFT, Attempt, Crowd, crowd
from load.open_loop import Answer, open_loop
from load.tensors import V1_JSON
from peers.frameworks import FRAMEWORKS, RINGBATCH, Framework, Setting
from peers.servers import MODELS, Ringbatch, install
from report.record import Report
from report.rounds import number, run_rounds, spread, table

CAP = 8
CAPACITY_PER_S = CAP / 0.02
TIMEOUT_S = 1.0
ACCEPTED = (200, 408, 504)
"""Statuses of requests that the server had accepted. The last two say that their time ran out, 408
with mosec."""
SETTLE_S = 1.0
"""Time at the start that does not count, in seconds: the server learns its own speed."""


@dataclass(frozen=True)
class Run:
    """Figures of one run at one rate. Times are in milliseconds; percentiles of none are 0."""

    rate_per_s: float
    goodput_per_s: float
    accepted_p50_ms: float
    accepted_p99_ms: float
    refused_p99_ms: float
    statuses: dict[int, int]


def summary(
    answers: Sequence[Answer], rate_per_s: float, seconds: float, patience_s: float = TIMEOUT_S
) -> Run:
    """Return rates and times of one run. An answer is good if its client still waits for it."""
    counted = [answer for answer in answers if answer.due_s >= SETTLE_S]
    good = [
        answer
        for answer in answers
        if answer.right
        and answer.took_s <= patience_s
        and SETTLE_S <= answer.due_s + answer.took_s < seconds
    ]
    accepted = [a.took_s for a in counted if a.status in ACCEPTED]
    refused = [a.took_s for a in counted if a.status not in ACCEPTED]
    return Run(
        rate_per_s=rate_per_s,
        goodput_per_s=len(good) / (seconds - SETTLE_S),
        accepted_p50_ms=percentile(accepted, 0.5) * 1e3,
        accepted_p99_ms=percentile(accepted, 0.99) * 1e3,
        refused_p99_ms=percentile(refused, 0.99) * 1e3,
        statuses=dict(Counter(a.status for a in counted)),
    )


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which that share lies; 0 of none."""
    return sorted(values)[int(len(values) * share)] if values else 0.0


def measure(framework: Framework, rate_per_s: float, seconds: float) -> Run:
    """Start a server and ask that much of it."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Server(framework.command(SETTING, Path(folder))) as server,
    ):
        answers = open_loop(server.port, "/v1/models/sleep:predict", rate_per_s, seconds)
        server.require_alive()
        return summary(answers, rate_per_s, seconds)


def measure_leavers(patience_s: float, load: float, seconds: float, *, bounded: bool) -> Run:
    """Start ringbatch with a timeout of a minute, for clients that stop reading after a while.

    Args:
        patience_s: for how long they wait. Their connections stay open.
        load: the share of the capacity that is asked.
        seconds: length of the run.
        bounded: whether `max_queue_wait_s` is three quarters of their patience.
    """
    settings = {"max_batch_size": CAP, "timeout_s": 60.0}
    if bounded:
        settings["max_queue_wait_s"] = 0.75 * patience_s
    ours = Ringbatch("sleep", MODELS / "sleep_20ms.py", 1, settings)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Server(ours.command(Path(folder))) as server,
    ):
        rate_per_s = load * CAPACITY_PER_S
        answers = open_loop(server.port, "/v1/models/sleep:predict", rate_per_s, seconds)
        server.require_alive()
        return summary(answers, rate_per_s, seconds, patience_s)


@dataclass(frozen=True)
class CrowdRun:
    """Figures of one run with clients that ask again at once.

    Attributes:
        clients: their number.
        goodput_per_s: right answers within the clients' patience, counted from the attempt.
        first_goodput_per_s: the same, counted from the first attempt for the answer.
        refused_per_s: attempts that were refused.
        left_per_s: attempts that were waited for in vain.
        p99_ms: of right answers, from the attempt.
        refused_p99_ms: of refusals, from the attempt.
        busy: share of one core that the clients took.
        longest_turn_ms: the longest time in which the clients did not look at their connections.
        cpu: shares of one core that the server's processes took, by role.
    """

    clients: int
    goodput_per_s: float
    first_goodput_per_s: float
    refused_per_s: float
    left_per_s: float
    p99_ms: float
    refused_p99_ms: float
    busy: float
    longest_turn_ms: float
    cpu: Mapping[str, float]


def crowd_summary(
    found: Crowd, clients: int, seconds: float, patience_s: float, cpu: Mapping[str, float]
) -> CrowdRun:
    """Return the figures of one run, from when all clients are there and the server has settled."""
    begin_s = patience_s + SETTLE_S
    counted = [each for each in found.attempts if each.asked_s + each.took_s >= begin_s]
    right = [each for each in counted if each.right]
    refused = [each for each in counted if each.status not in (200, LEFT)]

    def rate_per_s(attempts: Sequence[Attempt]) -> float:
        return len(attempts) / (seconds - begin_s)

    return CrowdRun(
        clients=clients,
        goodput_per_s=rate_per_s([each for each in right if each.took_s <= patience_s]),
        first_goodput_per_s=rate_per_s(
            [each for each in right if each.asked_s + each.took_s - each.first_s <= patience_s]
        ),
        refused_per_s=rate_per_s(refused),
        left_per_s=rate_per_s([each for each in counted if each.status == LEFT]),
        p99_ms=percentile([each.took_s for each in right], 0.99) * 1e3,
        refused_p99_ms=percentile([each.took_s for each in refused], 0.99) * 1e3,
        busy=found.busy,
        longest_turn_ms=found.longest_turn_s * 1e3,
        cpu=cpu,
    )


class Case(NamedTuple):
    """A run with clients that ask again at once.

    Attributes:
        model: a module of bench/models.
        once: as for `crowd`.
        bound: `max_queue_wait_s` as a share of the clients' patience; 0 for none.
        load: the clients, as a multiple of those that a full model answers within their patience.
    """

    model: str
    once: bool
    bound: float
    load: float

    def __str__(self) -> str:
        patience = "for all attempts" if self.once else "for each attempt"
        return f"{self.model}, patience {patience}, bound {self.bound:g} of it"


def measure_crowd(case: Case, options: argparse.Namespace) -> CrowdRun:
    """Start ringbatch with a timeout of a minute, for clients that ask again at once."""
    patience_s, seconds = options.leave_after, options.seconds
    settings = {"max_batch_size": CROWD_CAP, "timeout_s": 60.0}
    if case.bound:
        settings["max_queue_wait_s"] = case.bound * patience_s
    ours = Ringbatch("model", MODELS / f"{case.model}.py", 2, settings)
    clients = round(case.load * CROWD_PER_S * patience_s)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Server(ours.command(Path(folder))) as server,
    ):
        before = procfs.sample_tree(server.pid)
        path = "/v1/models/model:predict"
        found = crowd(server.port, path, clients, patience_s, seconds, once=case.once)
        used = procfs.usage(before, procfs.sample_tree(server.pid), seconds)
        server.require_alive()
    cpu: dict[str, float] = {}
    for process in used:
        role = process.title.removeprefix("ringbatch: ").split()[0]
        cpu[role] = cpu.get(role, 0.0) + process.cpu_fraction
    return crowd_summary(found, clients, seconds, patience_s, cpu)


def crowds(report: Report, options: argparse.Namespace) -> int:
    """Compare ringbatch at several loads, for clients that ask again at once."""
    kinds = [(False, 0.0), *[(once, bound) for once in (False, True) for bound in options.bounds]]
    cases = [
        Case(model, once, bound, load)
        for model in CROWD_MODELS
        for once, bound in kinds
        for load in options.loads
    ]

    def run(turn: int, case: Case) -> CrowdRun:
        found = measure_crowd(case, options)
        report.run(round=turn, case=case._asdict(), result=asdict(found))
        return found

    runs = run_rounds(cases, options.rounds, run)
    report.print_text(show_crowds(runs))
    most = max(options.loads)
    # Clients and frontends leave a model that computes less than a core: no limit for it.
    model = CROWD_MODELS[0]
    own = {case: found for case, found in runs.items() if case.model == model}
    peak = max(median(found, "goodput_per_s") for found in own.values())
    for bound in options.bounds:
        kept = median(own[Case(model, False, bound, most)], "goodput_per_s") / peak
        title = f"{model}, bound {bound:g}: goodput of clients that ask again against the peak"
        report.limit(title, kept, at_least=0.9)
    return report.finish()


def show_crowds(runs: Mapping[Case, Sequence[CrowdRun]]) -> str:
    """Return the table of medians."""
    keys = (
        *("clients", "goodput_per_s", "first_goodput_per_s", "p99_ms"),
        *("refused_per_s", "refused_p99_ms", "left_per_s", "longest_turn_ms"),
    )
    head = ["", "load", *(key.replace("_", " ") for key in keys), "CPU"]
    rows = []
    for case, found in runs.items():
        last = found[-1]
        cpu = " ".join(f"{role} {share:.2f}" for role, share in sorted(last.cpu.items()))
        figures = [number(spread([getattr(run, key) for run in found]).median) for key in keys]
        rows.append([str(case), f"{case.load:g}", *figures, f"clients {last.busy:.2f} {cpu}"])
    return table(head, rows)


def leavers(report: Report, options: argparse.Namespace) -> int:
    """Compare ringbatch without and with a bound for clients that leave unseen."""
    entries = [(name, load) for name in ("no bound", "bounded") for load in options.loads]

    def run(turn: int, entry: tuple[str, float]) -> Run:
        name, load = entry
        bounded = name == "bounded"
        found = measure_leavers(options.leave_after, load, options.seconds, bounded=bounded)
        report.run(round=turn, entry=name, load=load, result=asdict(found))
        return found

    runs = run_rounds(entries, options.rounds, run)
    report.print_text(show(runs))
    peak = max(median(found, "goodput_per_s") for found in runs.values())
    share = median(runs["bounded", max(options.loads)], "goodput_per_s") / peak
    report.limit("goodput with a bound against the peak", share, at_least=0.9)
    return report.finish()


CROWD_CAP = 4
CROWD_PER_S = CROWD_CAP / 0.1
"""Capacity of the models for clients that ask again at once: a few hundred clients with 2 s of
patience ask for four times as much."""
CROWD_MODELS = ("sleep_100ms", "busy_100ms")
SETTING = Setting({"sleep": "sleep_20ms"}, cap=CAP, timeout_s=TIMEOUT_S)
ENTRIES = {name: each for name, each in FRAMEWORKS.items() if each.form is V1_JSON}
DEFAULT = [RINGBATCH, "mosec", "LitServe", "KServe's batcher", "Redis queue"]
KEYS = ("goodput_per_s", "accepted_p50_ms", "accepted_p99_ms", "refused_p99_ms")


def median(runs: Sequence[Run] | Sequence[CrowdRun], key: str) -> float:
    """Return the median of one figure."""
    return spread([getattr(run, key) for run in runs]).median


def show(runs: Mapping[tuple[str, float], Sequence[Run]]) -> str:
    """Return the table of medians."""
    return table(
        ["", "asked / capacity", "goodput/s", "p50 ms", "p99 ms", "refusal p99 ms"],
        [
            [name, f"{load:g}", *(number(median(found, key)) for key in KEYS)]
            for (name, load), found in runs.items()
        ],
    )


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="length of one run")
    parser.add_argument("--loads", type=float, nargs="+", default=[0.5, 1.0, 2.0, 4.0, 8.0])
    parser.add_argument("--entries", nargs="+", choices=ENTRIES, default=DEFAULT)
    parser.add_argument(
        "--leave-after",
        type=float,
        help="measure ringbatch alone, with clients that stop reading after so many seconds, "
        "without and with max_queue_wait_s",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="with --leave-after: clients of a closed loop, which ask again at once",
    )
    parser.add_argument(
        "--bounds",
        type=float,
        nargs="+",
        default=[0.75],
        help="with --again: max_queue_wait_s, as shares of the clients' patience",
    )
    options = parser.parse_args()
    if options.again and not options.leave_after:
        parser.error("--again needs --leave-after")
    if options.again:
        return crowds(Report("overload", vars(options)), options)
    if options.leave_after:
        return leavers(Report("overload", vars(options)), options)
    absent = install({name: ENTRIES[name].environment for name in options.entries})
    names = [name for name in options.entries if name not in absent]
    report = Report("overload", vars(options))
    report.without(absent)
    report.peer_versions(ENTRIES[name].environment for name in names)
    report.put("notes", {name: ENTRIES[name].note for name in names})
    entries = [(name, load) for name in names for load in options.loads]

    def run(turn: int, entry: tuple[str, float]) -> Run:
        name, load = entry
        found = measure(ENTRIES[name], load * CAPACITY_PER_S, options.seconds)
        report.run(round=turn, entry=name, load=load, result=asdict(found))
        return found

    runs = run_rounds(entries, options.rounds, run)
    report.print_text(show(runs))
    most = max(options.loads)

    def kept(name: str) -> float:
        peak = max(median(runs[name, load], "goodput_per_s") for load in options.loads)
        return median(runs[name, most], "goodput_per_s") / peak if peak else 0.0

    for name in names:
        report.print_text(f"{name}: {kept(name):.3f} of its peak at {most:g} times the capacity")
    if RINGBATCH in names:
        own = runs[RINGBATCH, most]
        limit = f"goodput at {most:g} times the capacity against the peak"
        report.limit(limit, kept(RINGBATCH), at_least=0.95)
        report.limit("p99 of what was accepted, ms", median(own, "accepted_p99_ms"), at_most=1000)
        report.limit("p99 of refusals, ms", median(own, "refused_p99_ms"), at_most=10)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
