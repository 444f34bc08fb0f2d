"""Comparison of two installations of ringbatch: before and after a change.

Each is named by its Python. Both are measured by turns with the figures of speed.py and client.py,
each in a process of its own, so that nothing of one is left for the other.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import client
import speed
from peers.servers import PEERS
from report.record import Report
from report.rounds import ratios, run_rounds, spread, table

LOADS = speed.loads((1, 32, 128))
MIN_RATIO = 0.98
TRIPS = 5_000
REQUESTS = 100_000

Figures = Mapping[str, float]
"""Figures by the name of the measurement; more is better."""


def figures(seconds: float) -> Figures:
    """Measure the installation that runs this program."""
    found = {
        f"requests/s, {each} connections": run.requests_per_s
        for each, run in speed.measure(PEERS["ringbatch"], LOADS, seconds).items()
    }
    with client.ringbatch(128) as asked:
        own = client.measure(asked, TRIPS, REQUESTS)
    return found | {
        "round trips/s of a client, p50": 1e6 / own.p50_us,
        "requests/s of a client in bulk": own.requests_per_s,
    }


def figures_of(python: str, seconds: float) -> Figures:
    """Measure the installation of an interpreter, in a process of its own."""
    command = [python, str(Path(__file__)), "--own", "--seconds", str(seconds)]
    completed = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: Figures = json.loads(completed.stdout.splitlines()[-1])
    return found


def show(runs: Mapping[str, Sequence[Figures]]) -> str:
    """Return the table of figures: median and spread of each, and of their ratio."""
    lines = []
    for figure in runs["before"][0]:
        before, after = ([found[figure] for found in runs[name]] for name in ("before", "after"))
        lines.append([figure, *map(str, (spread(before), spread(after), ratios(after, before)))])
    return table(["median (min..max)", "before", "after", "after / before"], lines)


def main() -> int:
    """Compare; the exit status is 1 where the later one is slower."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", nargs="?", help="the Python of the earlier installation")
    parser.add_argument("after", nargs="?", default=sys.executable, help="that of the later one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="each run of wrk")
    parser.add_argument("--own", action="store_true", help="measure this installation alone")
    options = parser.parse_args()
    if options.own:
        print(json.dumps(figures(options.seconds)))
        return 0
    if options.before is None:
        parser.error("name the Python of the earlier installation")

    report = Report("compare", vars(options))
    pythons = {"before": options.before, "after": options.after}

    def run(turn: int, name: str) -> Figures:
        found = figures_of(pythons[name], options.seconds)
        report.run(round=turn, entry=name, result=dict(found))
        return found

    runs = run_rounds(list(pythons), options.rounds, run)
    report.print_text(show(runs))
    for figure in runs["before"][0]:
        after, before = ([f[figure] for f in runs[name]] for name in ("after", "before"))
        report.limit(figure, ratios(after, before).median, at_least=MIN_RATIO)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
