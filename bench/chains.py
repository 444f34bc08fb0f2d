"""What a chain of three models costs beside one model, all three asked in turn, and one function.

One engine serves three models that do next to nothing, the chain of them, and a model whose
`predict` calls the same three functions. The entries are asked in turn, round by round, by wrk;
CPU time is that of all of the engine's processes. A client that asks all three over HTTP, one
after the other, is taken to cost nothing itself: its requests take the time of the three together.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import load
from answers import Client, WrongAnswer
from harness import Server
from load import Post
from peers import Ringbatch
from procfs import sample_tree
from report import Report
from rounds import ratios, run_rounds, spread, table

MODELS: Final = ("one", "two", "three")
FUNCTION: Final = "function"
CHAIN: Final = "chain"
IN_TURN: Final = "in turn"
ENTRIES: Final = (MODELS[0], CHAIN, FUNCTION, IN_TURN)
MAX_RATIO: Final = 1.5
STEP: Final = """
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [16])]
outputs = [Tensor("y", "FP32", [16])]
def predict(x):
    return x * {factor}
"""
NUMBERS: Final = [number / 8 for number in range(16)]
BODY: Final = json.dumps({"instances": [NUMBERS]})


@dataclass(frozen=True)
class Figures:
    """What one entry did in one round, with so many connections."""

    requests_per_s: float
    cpu_us: float
    p50_ms: float
    p99_ms: float


def post(model: str) -> Post:
    """The request to a model."""
    return Post(f"/v1/models/{model}:predict", BODY)


def measured(server: Server, model: str, connections: int, seconds: int) -> Figures:
    """One model, asked for so long."""
    before = {pid: found.cpu_ns for pid, found in sample_tree(server.pid).items()}
    run = load.wrk(server.url, post(model), connections, seconds)
    after = sample_tree(server.pid)
    cpu_ns = sum(found.cpu_ns - before.get(pid, 0) for pid, found in after.items())
    return Figures(run.requests_per_s, cpu_ns / run.requests / 1e3, run.p50_ms, run.p99_ms)


def in_turn(server: Server, connections: int, seconds: int) -> Figures:
    """All three models, one after the other."""
    runs = [
        measured(server, model, connections, max(seconds // len(MODELS), 1)) for model in MODELS
    ]
    return Figures(
        1 / sum(1 / run.requests_per_s for run in runs),
        sum(run.cpu_us for run in runs),
        sum(run.p50_ms for run in runs),
        sum(run.p99_ms for run in runs),
    )


def check(server: Server) -> None:
    """Look at the answer of each.

    Raises:
        WrongAnswer: it is another.
    """
    factors = dict(zip((*MODELS, CHAIN, FUNCTION), (2, 3, 4, 24, 24), strict=True))
    client = Client(server.port)
    for model, factor in factors.items():
        found = client.post(post(model))["predictions"]
        if found != [[number * factor for number in NUMBERS]]:
            raise WrongAnswer(f"{model}: {found}")


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="length of one run")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 32, 128])
    options = parser.parse_args()

    load.require_tools()
    report = Report("chains", vars(options))
    with tempfile.TemporaryDirectory(prefix="bench-") as made:
        folder = Path(made)
        for factor, model in enumerate(MODELS, 2):
            (folder / f"{model}.py").write_text(STEP.format(factor=factor))
        (folder / f"{FUNCTION}.py").write_text(STEP.format(factor="2 * 3 * 4"))
        command = Ringbatch(FUNCTION, folder / f"{FUNCTION}.py").command(folder)
        with (folder / "ringbatch.toml").open("a") as config:
            for model in MODELS:
                config.write(f'[models.{model}]\npath = "{model}.py"\n')
            config.write(f"[models.{CHAIN}]\nsteps = {json.dumps(MODELS)}\n")
        with Server(command) as server:
            check(server)
            for count in options.connections:

                def run(turn: int, name: str, count: int = count) -> Figures:
                    if name == IN_TURN:
                        found = in_turn(server, count, options.seconds)
                    else:
                        found = measured(server, name, count, options.seconds)
                    report.run(round=turn, entry=name, connections=count, result=asdict(found))
                    return found

                for name in ENTRIES:
                    run(-1, name)
                say(report, count, run_rounds(ENTRIES, options.rounds, run))
    return report.finish()


def say(report: Report, connections: int, runs: Mapping[str, list[Figures]]) -> None:
    """The table of so many connections, and its limit."""
    report.say(f"\n{connections} connections")
    lines = []
    cpu = {name: [found.cpu_us for found in rounds] for name, rounds in runs.items()}
    for name, rounds in runs.items():
        rates = [found.requests_per_s for found in rounds]
        lines.append(
            [
                name,
                str(spread(rates)),
                str(spread(cpu[name])),
                str(spread([found.p50_ms for found in rounds])),
                str(spread([found.p99_ms for found in rounds])),
                str(ratios([f.requests_per_s for f in runs[CHAIN]], rates)),
                str(ratios(cpu[CHAIN], cpu[name])),
            ]
        )
    head = [
        "entry",
        "requests/s",
        "CPU us each",
        "p50 ms",
        "p99 ms",
        "chain / it",
        "CPU, chain / it",
    ]
    report.say(table(head, lines))
    if connections > 1:
        ratio = ratios(cpu[CHAIN], cpu[MODELS[0]]).median
        what = f"CPU of a chain of three against one model, {connections} connections"
        report.limit(what, ratio, at_most=MAX_RATIO)


if __name__ == "__main__":
    raise SystemExit(main())
