"""gRPC calls a second with one, two and four frontends for gRPC, each on a fifth of a core.

So what the engine's other processes and `h2load` take stands in nobody's way on two cores, and what
is left to be seen is whether frontends stand in one another's. It takes control groups, so mostly
root.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict

import grpc_unary
from host.cpu_share import cpu_shares
from load import h2load
from report.record import Report
from report.rounds import ratios, run_rounds, spread, table

FRONTENDS = (1, 2, 4)
SHAPE = (32, 4)
"""Connections, and calls under way on each. The kernel spreads connections at random; with so many
calls, a frontend that got few connections has enough to do as well."""
AT_LEAST = 0.85
"""Least rate of several frontends, as a share of as many times the rate of one."""


def measure(frontends: int, share: float, seconds: float) -> grpc_unary.Run:
    """Return what so many frontends did."""
    with cpu_shares() as hold:

        def confine(speakers: Sequence[int]) -> None:
            if len(speakers) != frontends:
                raise RuntimeError(f"{frontends} frontends were asked for, {len(speakers)} found")
            for pid in speakers:
                hold([pid], share)

        (found,) = grpc_unary.measure(f"ringbatch-{frontends}", seconds, confine, [SHAPE]).values()
    return found


def frontends_cpu_us(run: grpc_unary.Run) -> float:
    """Return the CPU time that frontends took for a request, together."""
    return sum(cpu_us for title, cpu_us in run.cpu_us.items() if title.startswith("grpc frontend"))


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one run")
    parser.add_argument("--share", type=float, default=0.2, help="of a core, for each frontend")
    options = parser.parse_args()

    h2load.require()
    report = Report("grpc_scaling", vars(options))

    def run(turn: int, frontends: int) -> grpc_unary.Run:
        found = measure(frontends, options.share, options.seconds)
        report.run(round=turn, frontends=frontends, result=asdict(found))
        return found

    runs = run_rounds(FRONTENDS, options.rounds, run)
    rates = {
        frontends: [one.load.requests_per_s for one in found] for frontends, found in runs.items()
    }
    rows = [
        [
            str(frontends),
            str(spread(rates[frontends])),
            str(ratios(rates[frontends], rates[1])),
            str(spread([frontends_cpu_us(one) for one in runs[frontends]])),
        ]
        for frontends in FRONTENDS
    ]
    report.print_text(
        table(["frontends", "req/s, median (min..max)", "of one's", "CPU µs a request"], rows)
    )
    for frontends in FRONTENDS[1:]:
        report.limit(
            f"req/s of {frontends} frontends against one",
            ratios(rates[frontends], rates[1]).median,
            at_least=AT_LEAST * frontends,
        )
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
