"""Cost of each framework, with three models: 16 floats, 784 floats, and one with a known best rate.

The first two models do no work. A further run sends 16 floats with a ``traceparent`` of its own in
each request.

`wrk` drives each server from the same machine, with one thread in a closed loop; JSON, one
instance a request, cap 32, one worker. The last model takes 5 ms a batch and 0.2 ms a row, so no
server can answer more than 32 in 11.4 ms. In every round the benchmark starts every server anew,
checks it, warms it up, and drives it at each number of connections.
"""

import argparse
from dataclasses import replace
from functools import partial

from load import generators
from load.tensors import AFFINE, MATMUL16, MATMUL784, NULL, Subject
from peers.frameworks import FRAMEWORKS, RINGBATCH, Setting
from peers.servers import install
from report.record import Report
from v2 import Entry, Workload, compare, limits

CAP = 32
BEST_AFFINE_PER_S = CAP / (0.005 + 0.0002 * CAP)
LEAST_OF_IDEAL = 0.9


def workload(
    name: str, subject: Subject, best_per_s: float | None = None, *, own_heads: bool = False
) -> Workload:
    """Measure every framework with one model."""
    setting = Setting({subject.name: subject.name}, cap=CAP)
    entries = [
        Entry(peer, partial(each.command, setting), each.form, each.environment, each.note)
        for peer, each in FRAMEWORKS.items()
    ]
    least = {("mosec", 32): 1.0}
    return Workload(name, subject, (1, 32, 128), entries, least, best_per_s, own_heads)


WORKLOADS = {
    each.name: each
    for each in (
        workload("null", NULL),
        workload("16 floats", MATMUL16),
        workload("16 floats, own heads", MATMUL16, own_heads=True),
        workload("784 floats", MATMUL784),
        workload("5 ms + 0.2 ms a row", AFFINE, BEST_AFFINE_PER_S),
    )
}


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one run")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 32, 128])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--peers", nargs="+", choices=FRAMEWORKS, default=list(FRAMEWORKS))
    options = parser.parse_args()

    generators.require_tools()
    absent = install({name: FRAMEWORKS[name].environment for name in options.peers})
    names = [name for name in options.peers if name not in absent]
    report = Report("frameworks", vars(options))
    report.without(absent)
    report.peer_versions(FRAMEWORKS[name].environment for name in names)
    report.put("notes", {name: FRAMEWORKS[name].note for name in names})
    for name in options.workloads:
        chosen = replace(WORKLOADS[name], connections=tuple(options.connections))
        runs = compare(report, chosen, names, options.rounds, options.seconds)
        for limit, value, at_least in limits(chosen, runs):
            report.limit(limit, value, at_least)
        most = max(options.connections)
        if chosen.best_per_s and RINGBATCH in runs and most > 2 * CAP:
            rates = [turn[most].requests_per_s / chosen.best_per_s for turn in runs[RINGBATCH]]
            report.limit(
                f"{name}: share of the best", sorted(rates)[len(rates) // 2], LEAST_OF_IDEAL
            )
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
