"""Cost of a chain of three models, compared with other ways to run them.

The others are one model, all three models asked in turn, one function, and Triton's ensemble.

One engine serves three models that do next to nothing, the chain of them, and a model whose
`predict` calls the same three functions. wrk asks the entries in turn, round by round. CPU time is
that of all of the engine's processes. A client that asks all three over HTTP, one after the other,
is taken to cost nothing itself: its requests take the time of the three together. Triton serves the
same three models behind its Python backend, and the ensemble of them. Triton and a chain of
ringbatch's are asked in V2's JSON.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from host.procfs import sample_tree
from host.server import Server
from load import generators
from load.answers import Client, WrongAnswer
from load.generators import Post
from peers.servers import PeerUnfit, Ringbatch
from peers.triton import TRITON, Triton, TritonEnsemble
from report.record import Report
from report.rounds import ratios, run_rounds, spread, table

MODELS: Final = ("one", "two", "three")
FUNCTION: Final = "function"
CHAIN: Final = "chain"
IN_TURN: Final = "in turn"
V2_CHAIN: Final = "chain, V2"
V2_ONE: Final = "one, V2"
ENSEMBLE: Final = "Triton's ensemble, V2"
TRITON_ONE: Final = "Triton's one, V2"
OWN: Final = (MODELS[0], CHAIN, FUNCTION, IN_TURN, V2_ONE, V2_CHAIN)
TRITONS: Final = (TRITON_ONE, ENSEMBLE)
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
V2_INPUT: Final = {"name": "x", "datatype": "FP32", "shape": [1, 16], "data": NUMBERS}
V2_BODY: Final = json.dumps({"inputs": [V2_INPUT]})


@dataclass(frozen=True)
class Figures:
    """Figures of one entry in one round, for one number of connections."""

    requests_per_s: float
    cpu_us: float
    p50_ms: float
    p99_ms: float


def post(model: str) -> Post:
    """Return a V1 request to a model."""
    return Post(f"/v1/models/{model}:predict", BODY)


def v2_post(model: str) -> Post:
    """Return a V2 request to a model."""
    return Post(f"/v2/models/{model}/infer", V2_BODY)


POSTS: Final = {
    **{model: post(model) for model in (*MODELS, CHAIN, FUNCTION)},
    V2_CHAIN: v2_post(CHAIN),
    V2_ONE: v2_post(MODELS[0]),
    TRITON_ONE: v2_post(MODELS[0]),
    ENSEMBLE: v2_post(CHAIN),
}
FACTORS: Final = {
    **dict(zip(MODELS, (2, 3, 4), strict=True)),
    **dict.fromkeys((V2_ONE, TRITON_ONE), 2),
    **dict.fromkeys((CHAIN, FUNCTION, V2_CHAIN, ENSEMBLE), 24),
}


def measured(server: Server, entry: str, connections: int, seconds: int) -> Figures:
    """Measure one model for that many seconds."""
    before = {pid: found.cpu_ns for pid, found in sample_tree(server.pid).items()}
    run = generators.wrk(server.url, POSTS[entry], connections, seconds)
    after = sample_tree(server.pid)
    cpu_ns = sum(found.cpu_ns - before.get(pid, 0) for pid, found in after.items())
    return Figures(run.requests_per_s, cpu_ns / run.requests / 1e3, run.p50_ms, run.p99_ms)


def in_turn(server: Server, connections: int, seconds: int) -> Figures:
    """Ask all three models, one after the other."""
    runs = [
        measured(server, model, connections, max(seconds // len(MODELS), 1)) for model in MODELS
    ]
    return Figures(
        1 / sum(1 / run.requests_per_s for run in runs),
        sum(run.cpu_us for run in runs),
        sum(run.p50_ms for run in runs),
        sum(run.p99_ms for run in runs),
    )


def check(server: Server, entries: Sequence[str]) -> None:
    """Look at the answer of each.

    Raises:
        WrongAnswer: it is another.
    """
    client = Client(server.port)
    for entry in entries:
        answer = client.post(POSTS[entry])
        found = answer["outputs"][0]["data"] if "outputs" in answer else answer["predictions"][0]
        if found != [number * FACTORS[entry] for number in NUMBERS]:
            raise WrongAnswer(f"{entry}: {found}")
    client.close()


def started(stack: ExitStack, folder: Path, report: Report) -> dict[str, Server]:
    """Return the started servers of all entries that are available."""
    for factor, model in enumerate(MODELS, 2):
        (folder / f"{model}.py").write_text(STEP.format(factor=factor))
    (folder / f"{FUNCTION}.py").write_text(STEP.format(factor="2 * 3 * 4"))
    command = Ringbatch(FUNCTION, folder / f"{FUNCTION}.py").command(folder)
    with (folder / "ringbatch.toml").open("a") as config:
        for model in MODELS:
            config.write(f'[models.{model}]\npath = "{model}.py"\n')
        config.write(f"[models.{CHAIN}]\nsteps = {json.dumps(MODELS)}\n")
    own = stack.enter_context(Server(command))
    check(own, [entry for entry in OWN if entry != IN_TURN])
    servers = dict.fromkeys(OWN, own)
    try:
        TRITON.ensure()
        ensemble = TritonEnsemble(CHAIN, [Triton(model, (16,), (16,)) for model in MODELS])
        triton = stack.enter_context(Server(ensemble.command(folder)))
    except PeerUnfit as error:
        report.without(dict.fromkeys(TRITONS, str(error)))
        return servers
    report.peer_versions([TRITON])
    check(triton, TRITONS)
    return servers | dict.fromkeys(TRITONS, triton)


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="length of one run")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 32, 128])
    options = parser.parse_args()

    generators.require_tools()
    report = Report("chains", vars(options))
    with tempfile.TemporaryDirectory(prefix="bench-") as made, ExitStack() as stack:
        servers = started(stack, Path(made), report)
        for count in options.connections:

            def asked(name: str, count: int = count) -> Figures:
                ask = in_turn if name == IN_TURN else partial(measured, entry=name)
                return ask(servers[name], connections=count, seconds=options.seconds)

            def run(turn: int, name: str, count: int = count) -> Figures:
                found = asked(name, count)
                report.run(round=turn, entry=name, connections=count, result=asdict(found))
                return found

            for name in servers:
                asked(name)
            print_tables(report, count, run_rounds(list(servers), options.rounds, run))
    return report.finish()


def print_tables(report: Report, connections: int, runs: Mapping[str, list[Figures]]) -> None:
    """Print the table for one number of connections, and hold it to its limit."""
    report.print_text(f"\n{connections} connections")
    lines = []
    chain_of = {name: V2_CHAIN if name.endswith("V2") else CHAIN for name in runs}
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
                str(ratios([f.requests_per_s for f in runs[chain_of[name]]], rates)),
                str(ratios(cpu[chain_of[name]], cpu[name])),
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
    report.print_text(table(head, lines))
    if connections > 1:
        ratio = ratios(cpu[CHAIN], cpu[MODELS[0]]).median
        name = f"CPU of a chain of three against one model, {connections} connections"
        report.limit(name, ratio, at_most=MAX_RATIO)
        if ENSEMBLE in runs:
            rivals = [[f.requests_per_s for f in runs[name]] for name in (V2_CHAIN, ENSEMBLE)]
            name = f"requests/s of a chain against Triton's ensemble, {connections} connections"
            report.limit(name, ratios(*rivals).median, at_least=1.0)


if __name__ == "__main__":
    raise SystemExit(main())
