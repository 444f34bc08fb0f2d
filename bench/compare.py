"""Comparison of two installations of ringbatch: before and after a change.

Each is named by its Python. An engine of each serves the same small model, and both engines live
side by side through all of the comparison. Short bursts of the same load go to one and to the
other, in an order that turns with each pair, and a ratio is formed within each pair. The median of
many such ratios resolves 1 % on a machine on which requests/s differ by 30 % from one second to the
next. Requests for each second of the engine's CPU time stand beside requests/s.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

import speed
from host import procfs
from host.children import tied
from host.server import Server
from load import answers, client_bursts, generators
from peers.servers import MODELS, Ringbatch
from report.record import Report
from report.rounds import PairedRatio, number, paired_ratio, table

LOADS = speed.loads((1, 32, 128))
MIN_RATIO = 0.99
MAX_ERROR = 0.01
"""Standard error of a median ratio; a comparison with a larger one has decided nothing."""
TRIPS = 2_000
REQUESTS = 40_000
CLIENT = "round trips/s of a client, p50", "requests/s of a client in bulk"

Figures = Mapping[str, float]
"""Figures of one burst by the name of the measurement; more is better."""


class Installation:
    """Engine of one installation, with a client of the same one.

    Args:
        python: the interpreter of the installation.
        stack: ends the engine and the client.
    """

    def __init__(self, python: str, stack: ExitStack) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        settings = {"max_batch_size": 128, "workers": 1}
        engine = Ringbatch(client_bursts.MODEL, MODELS / "matmul16.py", settings=settings)
        command = engine.command(folder)
        argv = [python, *command.argv[1:]]
        self._server = stack.enter_context(Server(replace(command, argv=argv)))
        self._post = answers.matmul16_post()
        answers.check_crowd(self._server.port, self._post.path)
        generators.wrk(self._server.url, self._post, 128, 1)
        self._client = stack.enter_context(_client(python, self._server.pid))

    def drive(self, load: speed.Load, seconds: int) -> Figures:
        """Run one burst of wrk."""
        before_ns = self._cpu_ns()
        post = replace(self._post, own_heads=load.own_heads)
        run = generators.wrk(self._server.url, post, load.connections, seconds)
        cpu_s = (self._cpu_ns() - before_ns) / 1e9
        self._server.require_alive()
        return {
            f"requests/s, {load} connections": run.requests_per_s,
            f"requests a CPU second, {load} connections": run.requests / cpu_s,
        }

    def ask(self) -> Figures:
        """Run one burst of the client."""
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        print("burst", file=self._client.stdin, flush=True)
        return dict(zip(CLIENT, json.loads(self._client.stdout.readline()), strict=True))

    def _cpu_ns(self) -> int:
        return sum(one.cpu_ns for one in procfs.sample_tree(self._server.pid).values())


@contextmanager
def _client(python: str, engine: int) -> Iterator[subprocess.Popen[str]]:
    """Yield a program that measures a client of an engine at each line."""
    argv = [python, client_bursts.__file__, *map(str, (engine, TRIPS, REQUESTS))]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=tied()
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process


def show(pairs: Sequence[Mapping[str, Figures]]) -> str:
    """Return the table of figures: the medians, and the ratio with its quartiles and its error."""
    lines = []
    for name, ratio in ratios(pairs).items():
        medians = [median(pair[entry][name] for pair in pairs) for entry in ("before", "after")]
        cells = f"{ratio.median:.3f}", f"{ratio.low:.3f}..{ratio.high:.3f}", f"{ratio.error:.3f}"
        lines.append([name, *map(number, medians), *cells])
    return table(["medians", "before", "after", "after / before", "quartiles", "error"], lines)


def ratios(pairs: Sequence[Mapping[str, Figures]]) -> dict[str, PairedRatio]:
    """Return after / before of each figure."""
    found = {}
    for name in pairs[0]["before"]:
        after, before = ([pair[entry][name] for pair in pairs] for entry in ("after", "before"))
        found[name] = paired_ratio(after, before)
    return found


def main() -> int:
    """Compare; the exit status is 1 if the later one is slower beyond the error of the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", help="the Python of the earlier installation")
    parser.add_argument("after", nargs="?", default=sys.executable, help="that of the later one")
    parser.add_argument("--pairs", type=int, default=60, help="of bursts, for each load")
    parser.add_argument("--seconds", type=int, default=1, help="of each burst of wrk")
    options = parser.parse_args()

    generators.require_tools()
    report = Report("compare", vars(options))
    with ExitStack() as stack:
        entries = {
            name: Installation(python, stack)
            for name, python in (("before", options.before), ("after", options.after))
        }

        def burst(load: speed.Load | None, name: str) -> Figures:
            engine = entries[name]
            return engine.drive(load, options.seconds) if load else engine.ask()

        for load in (*LOADS, None):
            pairs = []
            for turn in range(options.pairs):
                order = list(entries)[:: 1 if turn % 2 else -1]
                pairs.append({name: burst(load, name) for name in order})
                for name, found in pairs[-1].items():
                    report.run(round=turn, entry=name, result=dict(found))
            report.print_text(show(pairs))
            for name, ratio in ratios(pairs).items():
                best = ratio.median + 2 * ratio.error
                report.limit(f"{name}, after / before + 2 errors", best, at_least=MIN_RATIO)
                report.limit(f"{name}, error of the ratio", ratio.error, at_most=MAX_ERROR)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
