"""Requests per second and latency of one small model behind ringbatch and behind its peers.

Measured between `wrk`, one thread, closed loop, and the answer on the same machine. Every server
starts anew in every round, is checked, warmed up, and driven at each number of connections.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import answers
import load
from entries import run_entries
from harness import Server
from peers import PEERS, Peer, install
from report import Report
from rounds import number, ratios, spread, table

DEFAULT = [
    "ringbatch",
    "mosec",
    "mosec-json",
    "ringbatch-falcon",
    "in-place",
    "ringbatch-2",
    "in-place-2",
]
MOSECS = ("mosec", "mosec-json")
SILENT = "ringbatch-silent"
TELLING = ("ringbatch", "ringbatch-logging", "ringbatch-timing")
"""Which say more of requests than that one."""
MIN_TELLING = 0.97
PLACEMENT = """\
One connection: a server of one process is several times faster where the kernel puts it and wrk
on one core than where each wake-up crosses to another. Compare these figures with care."""
Runs = Mapping[str, Sequence[Mapping[int, load.WrkRun]]]
"""Peer name, then round, then connections."""


def measure(peer: Peer, connections: Sequence[int], seconds: float) -> dict[int, load.WrkRun]:
    """Start one server, check and warm it, and drive it at each number of connections."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Server(peer.command(Path(folder))) as server,
    ):
        answers.check_crowd(server.port, peer.path)
        post = answers.matmul16_post(0, peer.path)
        load.wrk(server.url, post, max(connections), 1)
        found = {}
        for count in connections:
            answers.check_one(server.port, peer.path)
            found[count] = load.wrk(server.url, post, count, seconds)
            server.require_alive()
        return found


def rate_table(runs: Runs, connections: Sequence[int]) -> str:
    """Return the table of requests per second: median and spread."""
    return table(
        ["req/s, median (min..max)", *(f"{count} conns" for count in connections)],
        [
            [name, *(str(spread(_field(found, count, "requests_per_s"))) for count in connections)]
            for name, found in runs.items()
        ],
    )


def latency_table(runs: Runs, connections: Sequence[int]) -> str:
    """Return the table of latencies: each percentile the median of the rounds."""

    def cell(found: Sequence[Mapping[int, load.WrkRun]], count: int) -> str:
        keys = ("p50_ms", "p99_ms", "p999_ms", "max_ms")
        return " / ".join(number(spread(_field(found, count, key)).median) for key in keys)

    return table(
        ["p50 / p99 / p99.9 / max, ms", *(f"{count} conns" for count in connections)],
        [[name, *(cell(found, count) for count in connections)] for name, found in runs.items()],
    )


def ratio_table(runs: Runs, connections: Sequence[int], base: str) -> str:
    """Return the table of requests per second and p50 relative to `base`, round by round."""
    header = [f"relative to {base}", *(f"req/s at {count}" for count in connections)]
    header += [f"p50 at {count}" for count in connections]
    rows = []
    for name, rounds in runs.items():
        if name != base:
            cells = [
                str(ratios(_field(rounds, count, key), _field(runs[base], count, key)))
                for key in ("requests_per_s", "p50_ms")
                for count in connections
            ]
            rows.append([name, *cells])
    return table(header, rows)


def hold_to_limits(report: Report, runs: Runs, connections: Sequence[int]) -> None:
    """Compare ringbatch with what it promises against whichever of the peers have run."""
    for name in TELLING if SILENT in runs else ():
        for count in connections if name in runs else ():
            silent, telling = (
                _field(runs[each], count, "requests_per_s") for each in (SILENT, name)
            )
            found = ratios(telling, silent).median
            report.limit(f"req/s of {name} at {count} connections", found, at_least=MIN_TELLING)
    ours = runs.get("ringbatch")
    if ours is None:
        return

    def ratio(other: str, count: int, key: str) -> float:
        return ratios(_field(ours, count, key), _field(runs[other], count, key)).median

    for count in connections:
        for mosec in MOSECS:
            if mosec in runs and count > 1:
                found = ratio(mosec, count, "requests_per_s")
                report.limit(f"req/s against {mosec} at {count} connections", found, at_least=1.5)
            if mosec in runs and count == 1:
                found = ratio(mosec, count, "p50_ms")
                report.limit(f"p50 against {mosec} at 1 connection", found, at_most=0.2)
        if "in-place" in runs and count > 1:
            found = ratio("in-place", count, "requests_per_s")
            report.limit(f"req/s against in-place at {count} connections", found, at_least=0.75)


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one run")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 32, 128])
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=DEFAULT)
    options = parser.parse_args()

    load.require_tools()
    absent = install({name: PEERS[name].environment for name in options.peers})
    names = [name for name in options.peers if name not in absent]
    chosen = [PEERS[name] for name in names]
    report = Report("speed", vars(options))
    report.without(absent)
    report.peer_versions(peer.environment for peer in chosen)
    report.put("notes", {peer.name: peer.note for peer in chosen})

    def run(turn: int, name: str) -> dict[int, load.WrkRun]:
        found = measure(PEERS[name], options.connections, options.seconds)
        for one in found.values():
            report.run(round=turn, peer=name, result=asdict(one))
        return found

    runs = run_entries(report, names, options.rounds, run)
    report.say(rate_table(runs, options.connections))
    report.say(latency_table(runs, options.connections))
    for base in (*MOSECS, "in-place", "in-place-2", SILENT):
        if base in runs and len(runs) > 1:
            report.say(ratio_table(runs, options.connections, base))
    if 1 in options.connections:
        report.say(PLACEMENT)
    hold_to_limits(report, runs, options.connections)
    return report.finish()


def _field(rounds: Sequence[Mapping[int, load.WrkRun]], count: int, key: str) -> list[float]:
    return [getattr(found[count], key) for found in rounds]


if __name__ == "__main__":
    raise SystemExit(main())
