"""Cost of `ringbatch sidecar` in front of a model server, and its gain in front of a slow one.

Two parts. In front of a predictor of no cost: requests/s between `wrk` and the answer, against a
framework that runs the model itself. In front of one that takes 100 ms a call and four calls at
once: requests/s with the usual four batches under way, against one at a time.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from host.server import Command, Server, free_port
from load import answers, generators
from peers.servers import PEERS, SERVICES
from report.record import Report
from report.rounds import ratios, run_rounds
from speed import latency_table, rate_table, ratio_table

CAP = 32
WAIT_MS = 1
HOLD_MS = 100
AT_ONCE = 4
MOSECS = ("mosec", "mosec-json")
SIDECARS: Mapping[str, Sequence[str]] = {
    "sidecar": (),
    "sidecar-2": ("--frontends", "2"),
    "sidecar-eager": ("--policy", "eager"),
}
"""Entries in front of the predictor of no cost, and what they have beyond cap and wait."""
SLOW: Mapping[str, Sequence[str]] = {"four": (), "one": ("--workers", "1")}
"""Entries in front of the slow predictor."""
Runs = dict[str, list[dict[int, generators.WrkRun]]]


def predictor(*arguments: str) -> Command:
    """Return the command of services/predictor.py."""
    port = free_port()
    return Command(
        argv=[sys.executable, str(SERVICES / "predictor.py"), "--port", str(port), *arguments],
        port=port,
        ready_path="/",
    )


def sidecar(component_port: int, *arguments: str) -> Command:
    """Return the command of a sidecar with one frontend in front of that port."""
    port = free_port()
    flags = [
        *f"--host 127.0.0.1 --port {port} --component-port {component_port}".split(),
        *f"--max-batchsize {CAP} --max-latency {WAIT_MS} --frontends 1".split(),
        *("--log-level", "warning"),
    ]
    return Command(
        argv=[sys.executable, "-m", "ringbatch.engine", "sidecar", *flags, *arguments],
        port=port,
        ready_path="/v2/health/ready",
    )


def drive(
    server: Server, connections: Sequence[int], seconds: float, path: str
) -> dict[int, generators.WrkRun]:
    """Check a server, warm it up, and drive it at each number of connections."""
    answers.check_crowd(server.port, path)
    post = answers.matmul16_post(0, path)
    generators.wrk(server.url, post, max(connections), 1)
    found = {}
    for count in connections:
        answers.check_one(server.port, path)
        found[count] = generators.wrk(server.url, post, count, seconds)
        server.require_alive()
    return found


def measure(name: str, connections: Sequence[int], seconds: float) -> dict[int, generators.WrkRun]:
    """Measure an entry in front of, or in place of, the predictor of no cost."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        if name in PEERS:
            server = stack.enter_context(Server(PEERS[name].command(folder)))
            return drive(server, connections, seconds, PEERS[name].path)
        behind = stack.enter_context(Server(predictor()))
        server = stack.enter_context(Server(sidecar(behind.port, *SIDECARS[name])))
        return drive(server, connections, seconds, answers.MATMUL16_PATH)


def measure_slow(name: str, connections: int, seconds: float) -> dict[int, generators.WrkRun]:
    """Measure an entry in front of the slow predictor."""
    with ExitStack() as stack:
        slow = predictor("--hold-ms", str(HOLD_MS), "--at-once", str(AT_ONCE))
        behind = stack.enter_context(Server(slow))
        server = stack.enter_context(Server(sidecar(behind.port, *SLOW[name])))
        return drive(server, [connections], seconds, answers.MATMUL16_PATH)


def rates(runs: Runs, name: str, count: int) -> list[float]:
    """Return requests/s of an entry, round by round."""
    return [found[count].requests_per_s for found in runs[name]]


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one run")
    parser.add_argument("--connections", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--slow-connections", type=int, default=256)
    parser.add_argument(
        "--entries", nargs="+", choices=[*SIDECARS, *PEERS], default=[*SIDECARS, *MOSECS]
    )
    options = parser.parse_args()

    generators.require_tools()
    environments = {
        environment
        for name in options.entries
        if name in PEERS and (environment := PEERS[name].environment) is not None
    }
    for environment in environments:
        environment.ensure()
    report = Report("sidecar", vars(options))
    report.peer_versions(environments)

    def run(turn: int, name: str) -> dict[int, generators.WrkRun]:
        if name in SLOW:
            found = measure_slow(name, options.slow_connections, options.seconds)
        else:
            found = measure(name, options.connections, options.seconds)
        for one in found.values():
            report.run(round=turn, peer=name, result=asdict(one))
        return found

    runs: Runs = run_rounds(options.entries, options.rounds, run)
    report.print_text(rate_table(runs, options.connections))
    report.print_text(latency_table(runs, options.connections))
    for mosec in MOSECS:
        if mosec in runs and len(runs) > 1:
            report.print_text(ratio_table(runs, options.connections, mosec))
    slow: Runs = run_rounds(list(SLOW), options.rounds, run)
    report.print_text(rate_table(slow, [options.slow_connections]))
    for count in options.connections:
        for mosec in MOSECS:
            if "sidecar" in runs and mosec in runs:
                found = ratios(rates(runs, "sidecar", count), rates(runs, mosec, count)).median
                report.limit(f"req/s against {mosec} at {count} connections", found, at_least=0.8)
    count = options.slow_connections
    found = ratios(rates(slow, "four", count), rates(slow, "one", count)).median
    report.limit("req/s with four batches under way against one", found, at_least=3.9)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
