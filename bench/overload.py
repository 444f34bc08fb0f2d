"""What is left of a server's work when four times as much is asked of it as it can do.

An open loop at several rates around the capacity of a model that takes 20 ms for a batch of eight.
What counts is goodput: right answers within the deadline, each second.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from harness import Server
from open_loop import Answer, open_loop
from peers import MODELS, Ringbatch
from report import Report
from rounds import number, spread, table

CAP = 8
CAPACITY_PER_S = CAP / 0.02
TIMEOUT_S = 1.0
SETTLE_S = 1.0
"""Answers to requests due before are left out: the server learns its own speed."""


@dataclass(frozen=True)
class Run:
    """One rate, once. Times are in milliseconds; percentiles of none are 0."""

    rate_per_s: float
    goodput_per_s: float
    accepted_p50_ms: float
    accepted_p99_ms: float
    refused_p99_ms: float
    statuses: dict[int, int]


def summary(answers: Sequence[Answer], rate_per_s: float, seconds: float) -> Run:
    """What one run came to."""
    counted = [answer for answer in answers if answer.due_s >= SETTLE_S]
    good = [a for a in counted if a.right and a.took_s <= TIMEOUT_S]
    accepted = [a.took_s for a in counted if a.status in (200, 504)]
    refused = [a.took_s for a in counted if a.status == 503]
    return Run(
        rate_per_s=rate_per_s,
        goodput_per_s=len(good) / (seconds - SETTLE_S),
        accepted_p50_ms=percentile(accepted, 0.5) * 1e3,
        accepted_p99_ms=percentile(accepted, 0.99) * 1e3,
        refused_p99_ms=percentile(refused, 0.99) * 1e3,
        statuses=dict(Counter(a.status for a in counted)),
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share lies; 0 of none."""
    return sorted(values)[int(len(values) * share)] if values else 0.0


def measure(rate_per_s: float, seconds: float) -> Run:
    """Start a server and ask that much of it."""
    peer = Ringbatch(
        "sleep",
        MODELS / "sleep_20ms.py",
        frontends=1,
        settings={"max_batch_size": CAP, "timeout_s": TIMEOUT_S, "max_latency_ms": 100},
    )
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Server(peer.command(Path(folder))) as server,
    ):
        answers = open_loop(server.port, "/v1/models/sleep:predict", rate_per_s, seconds)
        server.require_alive()
        return summary(answers, rate_per_s, seconds)


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="length of one run")
    parser.add_argument("--loads", type=float, nargs="+", default=[0.5, 0.9, 1.0, 2.0, 4.0])
    options = parser.parse_args()
    report = Report("overload", vars(options))

    runs: dict[float, list[Run]] = {load: [] for load in options.loads}
    for turn in range(options.rounds):
        for load, found in runs.items():
            found.append(measure(load * CAPACITY_PER_S, options.seconds))
            report.run(round=turn, load=load, result=asdict(found[-1]))

    def median(load: float, key: str) -> float:
        return spread([getattr(run, key) for run in runs[load]]).median

    keys = ("goodput_per_s", "accepted_p50_ms", "accepted_p99_ms", "refused_p99_ms")
    report.say(
        table(
            ["asked / capacity", "goodput/s", "p50 ms", "p99 ms", "refusal p99 ms"],
            [[f"{load:g}", *(number(median(load, key)) for key in keys)] for load in runs],
        )
    )
    most = max(runs)
    peak = max(median(load, "goodput_per_s") for load in runs)
    share = median(most, "goodput_per_s") / peak
    report.limit(f"goodput at {most:g} times the capacity against the peak", share, at_least=0.95)
    report.limit("p99 of what was accepted, ms", median(most, "accepted_p99_ms"), at_most=1000)
    report.limit("p99 of refusals, ms", median(most, "refused_p99_ms"), at_most=10)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
