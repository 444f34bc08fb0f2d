"""Rate that ringbatch keeps while it observes its requests: logs, times or records them.

In every round all servers start anew, side by side. Then `wrk` drives them in turn, a second each,
many times over. Idle servers cost nothing, and all meet the same noise.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from host.server import Server
from load import answers, generators
from peers.servers import PEERS
from report.record import Report
from report.rounds import interleave, ratios, spread, table
from speed import Load, loads

SILENT = "ringbatch-silent"
OBSERVED = ("ringbatch", "ringbatch-logging", "ringbatch-timing", "ringbatch-payloads")
"""Servers that observe their requests; `SILENT` does not."""
LEAST = 0.97
"""Least rate of a server that observes, as a share of the silent server's."""
SECONDS = 1
"""Length of a turn; `wrk` counts whole seconds."""
Rates = Mapping[str, Mapping[Load, float]]
"""Requests per second in one round, by peer and load."""


def measure(names: Sequence[str], driven: Sequence[Load], turns: int) -> Rates:
    """Start the servers, and return the mean rates of their turns."""
    with ExitStack() as stack:
        servers = {}
        for name in names:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
            servers[name] = stack.enter_context(Server(PEERS[name].command(folder)))
        post = answers.matmul16_post(0, PEERS[SILENT].path)
        for server in servers.values():
            answers.check_crowd(server.port, post.path)
            generators.wrk(server.url, post, max(each.connections for each in driven), SECONDS)
        found: dict[str, dict[Load, float]] = {name: {} for name in names}
        for each in driven:
            asked = replace(post, own_heads=each.own_heads)
            rates: dict[str, list[float]] = {name: [] for name in names}
            for _, name in interleave(names, turns):
                run = generators.wrk(servers[name].url, asked, each.connections, SECONDS)
                rates[name].append(run.requests_per_s)
            for name, several in rates.items():
                found[name][each] = fmean(several)
        for server in servers.values():
            server.require_alive()
        return found


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=8, help="of a second, in each round")
    parser.add_argument("--connections", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--peers", nargs="+", choices=OBSERVED, default=list(OBSERVED))
    options = parser.parse_args()
    generators.require_tools()
    names = [SILENT, *options.peers]
    report = Report("observed", vars(options))
    report.put("notes", {name: PEERS[name].note for name in names})
    driven = loads(options.connections)
    rounds: list[Rates] = []
    for turn in range(options.rounds):
        rounds.append(measure(names, driven, options.turns))
        for name, rates in rounds[-1].items():
            result = {str(each): rate for each, rate in rates.items()}
            report.run(round=turn, peer=name, result=result)

    def of(name: str, each: Load) -> list[float]:
        return [rates[name][each] for rates in rounds]

    head = ["req/s, median (min..max)", *(f"{each} conns" for each in driven)]
    rows = [[name, *(str(spread(of(name, each))) for each in driven)] for name in names]
    report.print_text(table(head, rows))
    kept = {(n, each): ratios(of(n, each), of(SILENT, each)) for n in names[1:] for each in driven}
    head[0] = f"relative to {SILENT}"
    report.print_text(table(head, [[n, *(str(kept[n, e]) for e in driven)] for n in names[1:]]))
    for (name, each), share in kept.items():
        report.limit(f"req/s of {name}, {each} connections", share.median, at_least=LEAST)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
