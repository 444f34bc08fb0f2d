"""gRPC calls a second with one, two and four frontends for gRPC, each on a fifth of a core.

So what the engine's other processes and `h2load` take stands in nobody's way on two cores, and what
is left to be seen is whether frontends stand in one another's. It takes control groups, so mostly
root.
"""

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

import grpc_unary
import h2load
import procfs
from cpu_share import cpu_shares
from harness import HOST, Server, free_port
from report import Report
from rounds import ratios, run_rounds, spread, table

FRONTENDS = (1, 2, 4)
CONNECTIONS, STREAMS = 32, 4
"""The kernel spreads connections at random; with so many under way on each, a frontend that got few
of them has enough to do as well."""
AT_LEAST = 0.85
"""Of so many times the rate of one."""


def measure(frontends: int, share: float, seconds: int) -> tuple[h2load.H2Run, float]:
    """Return what so many frontends did, and the CPU time of theirs for a request, in µs."""
    port, sent = free_port(), grpc_unary.request()
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        cpu_shares() as hold,
        Server(grpc_unary.ringbatch(port, frontends, Path(folder))) as server,
    ):
        speakers = grpc_unary.speakers(server.pid)
        if len(speakers) != frontends:
            raise RuntimeError(f"{frontends} frontends for gRPC were asked for: {speakers}")
        for pid in speakers:
            hold(pid, share)
        answer = grpc_unary.checked_answer("ringbatch", port, sent)
        url = f"http://{HOST}:{port}{grpc_unary.METHOD}"
        expected_bytes = len(h2load.framed(answer))

        def load(seconds: int) -> h2load.H2Run:
            return h2load.for_a_while(url, sent, expected_bytes, CONNECTIONS, STREAMS, seconds)

        load(1)
        before = procfs.sample_tree(server.pid)
        found = load(seconds)
        after = procfs.sample_tree(server.pid)
        grpc_unary.checked_answer("ringbatch", port, sent)
    cpu_ns = sum(after[pid].cpu_ns - before[pid].cpu_ns for pid in speakers)
    return found, cpu_ns / 1e3 / found.requests


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5, help="length of one run")
    parser.add_argument("--share", type=float, default=0.2, help="of a core, for each frontend")
    options = parser.parse_args()

    h2load.require()
    report = Report("grpc_scaling", vars(options))

    def run(turn: int, frontends: int) -> tuple[h2load.H2Run, float]:
        found, cpu_us = measure(frontends, options.share, options.seconds)
        report.run(round=turn, frontends=frontends, result=asdict(found), cpu_us=cpu_us)
        return found, cpu_us

    runs = run_rounds(FRONTENDS, options.rounds, run)
    rates = {
        frontends: [found.requests_per_s for found, _ in runs[frontends]] for frontends in runs
    }
    rows = [
        [
            str(frontends),
            str(spread(rates[frontends])),
            str(ratios(rates[frontends], rates[1])),
            str(spread([cpu_us for _, cpu_us in runs[frontends]])),
        ]
        for frontends in FRONTENDS
    ]
    report.say(
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
