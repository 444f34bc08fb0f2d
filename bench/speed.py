"""Requests per second and latency of one small model behind ringbatch and behind its peers.

`wrk` drives each server from the same machine, with one thread in a closed loop. In every round the
benchmark starts every server anew, checks it, warms it up, and drives it at each number of
connections. One load repeats the same request; the other has a ``traceparent`` of its own in each,
as behind a mesh or a gateway.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from host.server import Server
from load import answers, generators
from peers.servers import PEERS, Peer, install
from report.peer_rounds import run_entries
from report.record import Report
from report.rounds import number, ratios, spread, table

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
MIN_OF_SAME_HEADS = 0.85
MIN_OF_MOSEC_WITH_OWN_HEADS = 1.6
PLACEMENT = """\
One connection: a server of one process is several times faster where the kernel puts it and wrk
on one core than where each wake-up crosses to another. Compare these figures with care."""
Runs = Mapping[str, Sequence[Mapping[Any, generators.WrkRun]]]
"""Peer name, then round, then load: its connections, or a `Load`."""


class Load(NamedTuple):
    """Load on a server.

    Attributes:
        connections: their number.
        own_heads: see `generators.Post`.
    """

    connections: int
    own_heads: bool = False

    def __str__(self) -> str:
        """Return the load's name in tables."""
        return f"{'own heads, ' if self.own_heads else ''}{self.connections}"

    @property
    def heads(self) -> str:
        """The kind of heads, as results name it."""
        return "own" if self.own_heads else "same"


def loads(connections: Sequence[int]) -> list[Load]:
    """Return the loads with these numbers of connections."""
    own = [Load(count, own_heads=True) for count in connections if count > 1]
    return [*map(Load, connections), *own]


def measure(peer: Peer, driven: Sequence[Load], seconds: float) -> dict[Load, generators.WrkRun]:
    """Start one server, check and warm it, and drive it with each load."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Server(peer.command(Path(folder))) as server,
    ):
        answers.check_crowd(server.port, peer.path)
        post = answers.matmul16_post(0, peer.path)
        generators.wrk(server.url, post, max(each.connections for each in driven), 1)
        found = {}
        for each in driven:
            answers.check_one(server.port, peer.path)
            asked = replace(post, own_heads=each.own_heads)
            found[each] = generators.wrk(server.url, asked, each.connections, seconds)
            server.require_alive()
        return found


def rate_table(runs: Runs, connections: Sequence[object]) -> str:
    """Return the table of requests per second: median and spread."""
    return table(
        ["req/s, median (min..max)", *(f"{count} conns" for count in connections)],
        [
            [name, *(str(spread(_field(found, count, "requests_per_s"))) for count in connections)]
            for name, found in runs.items()
        ],
    )


def latency_table(runs: Runs, connections: Sequence[object]) -> str:
    """Return the table of latencies: each percentile the median of the rounds."""

    def cell(found: Sequence[Mapping[Any, generators.WrkRun]], count: object) -> str:
        keys = ("p50_ms", "p99_ms", "p999_ms", "max_ms")
        return " / ".join(number(spread(_field(found, count, key)).median) for key in keys)

    return table(
        ["p50 / p99 / p99.9 / max, ms", *(f"{count} conns" for count in connections)],
        [[name, *(cell(found, count) for count in connections)] for name, found in runs.items()],
    )


def ratio_table(runs: Runs, connections: Sequence[object], base: str) -> str:
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


def hold_to_limits(report: Report, runs: Runs, driven: Sequence[Load]) -> None:
    """Compare ringbatch with what it promises against whichever of the peers have run."""
    ours = runs.get("ringbatch")
    if ours is None:
        return

    def ratio(other: str, each: Load, key: str) -> float:
        return ratios(_field(ours, each, key), _field(runs[other], each, key)).median

    for each in driven:
        for mosec in MOSECS:
            if mosec in runs and each.connections > 1:
                found = ratio(mosec, each, "requests_per_s")
                least = MIN_OF_MOSEC_WITH_OWN_HEADS if each.own_heads else 1.5
                report.limit(f"req/s against {mosec}, {each} connections", found, at_least=least)
            if mosec in runs and each.connections == 1:
                found = ratio(mosec, each, "p50_ms")
                report.limit(f"p50 against {mosec} at 1 connection", found, at_most=0.2)
        if "in-place" in runs and each.connections > 1:
            found = ratio("in-place", each, "requests_per_s")
            report.limit(f"req/s against in-place, {each} connections", found, at_least=0.75)
        if each.own_heads:
            own, same = (
                _field(ours, one, "requests_per_s") for one in (each, Load(each.connections))
            )
            report.limit(
                f"req/s, {each} connections against the same head",
                ratios(own, same).median,
                at_least=MIN_OF_SAME_HEADS,
            )


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one run")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 32, 128])
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=DEFAULT)
    options = parser.parse_args()

    generators.require_tools()
    absent = install({name: PEERS[name].environment for name in options.peers})
    names = [name for name in options.peers if name not in absent]
    chosen = [PEERS[name] for name in names]
    report = Report("speed", vars(options))
    report.without(absent)
    report.peer_versions(peer.environment for peer in chosen)
    report.put("notes", {peer.name: peer.note for peer in chosen})

    driven = loads(options.connections)

    def run(turn: int, name: str) -> dict[Load, generators.WrkRun]:
        found = measure(PEERS[name], driven, options.seconds)
        for each, one in found.items():
            report.run(round=turn, peer=name, heads=each.heads, result=asdict(one))
        return found

    runs = run_entries(report, names, options.rounds, run)
    report.print_text(rate_table(runs, driven))
    report.print_text(latency_table(runs, driven))
    for base in (*MOSECS, "in-place", "in-place-2"):
        if base in runs and len(runs) > 1:
            report.print_text(ratio_table(runs, driven, base))
    if 1 in options.connections:
        report.print_text(PLACEMENT)
    hold_to_limits(report, runs, driven)
    return report.finish()


def _field(
    rounds: Sequence[Mapping[Any, generators.WrkRun]], count: object, key: str
) -> list[float]:
    return [getattr(found[count], key) for found in rounds]


if __name__ == "__main__":
    raise SystemExit(main())
