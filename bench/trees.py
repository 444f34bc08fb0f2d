"""Requests per second of models of trees behind ringbatch, FastAPI, mosec, LitServe and MLServer.

Measured between `wrk`, one thread, closed loop, and the answer on the same machine; one row of 30
numbers a request, JSON, 300 trees, one thread a model. FastAPI gets as many processes that run the
model as --processes says, and batches nothing; the others batch up to 32.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from host.server import Server
from load import generators
from load.answers import Client, WrongAnswer, lock_step
from peers.servers import SERVICES, install
from peers.trees import KINDS, SERVERS, command, environments, label, post
from report.record import Report
from report.rounds import ratios, run_rounds
from speed import latency_table, rate_table, ratio_table

GAINING = ("xgboost", "catboost", "histgb")
"""Kinds of models for which a batch costs far less than its rows do alone."""
CLIENTS = 16


def check(server: str, port: int, rows: Sequence[Sequence[float]], labels: Sequence[int]) -> None:
    """Ask for different rows at once, and compare what is answered.

    Raises:
        WrongAnswer: an answer is not the label of its row.
    """

    def ask(client: Client, index: int, turn: int) -> None:
        place = (index + turn) % len(rows)
        found = label(server, client.post(post(server, rows[place])))
        if found != labels[place]:
            raise WrongAnswer(f"row {place}: expected {labels[place]}, found {found}")

    lock_step(port, CLIENTS, 2, ask)


def hold_to_limits(
    report: Report, kind: str, runs: Mapping[str, Any], counts: Sequence[int]
) -> None:
    """Compare with FastAPI, where both have run."""
    if not {"ringbatch", "fastapi"} <= runs.keys():
        return
    for count in counts:
        ours, theirs = (
            [found[count].requests_per_s for found in runs[name]]
            for name in ("ringbatch", "fastapi")
        )
        least = 0.9 if count == 1 else 4.0
        if count == 1 or kind in GAINING:
            limit = f"req/s of {kind} against FastAPI at {count} connections"
            report.limit(limit, ratios(ours, theirs).median, at_least=least)


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4, help="length of one run")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 32, 128])
    parser.add_argument("--models", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--peers", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--processes", type=int, default=2, help="of FastAPI")
    options = parser.parse_args()

    generators.require_tools()
    made_for = environments()
    # It trains the models too.
    made_for["fastapi"].ensure()
    absent = install({name: made_for[name] for name in options.peers if name in made_for})
    names = [name for name in options.peers if name not in absent]
    report = Report("trees", {key: str(value) for key, value in vars(options).items()})
    report.without(absent)
    with tempfile.TemporaryDirectory(prefix="bench-trees-") as made:
        models = Path(made)
        trainer = SERVICES / "trees_models.py"
        subprocess.run([made_for["fastapi"].python, trainer, models], check=True, stdout=sys.stderr)
        known = json.loads((models / "rows.json").read_text())
        rows = known["rows"]
        for kind in options.models:
            file = models / known["files"][kind]

            def run(
                turn: int, name: str, kind: str = kind, file: Path = file
            ) -> dict[int, generators.WrkRun]:
                with (
                    tempfile.TemporaryDirectory(prefix="bench-") as folder,
                    Server(command(name, kind, file, Path(folder), options.processes)) as server,
                ):
                    check(name, server.port, rows, known["labels"][kind])
                    asked = post(name, rows[0])
                    generators.wrk(server.url, asked, max(options.connections), 1)
                    found = {}
                    for count in options.connections:
                        found[count] = generators.wrk(server.url, asked, count, options.seconds)
                        report.run(model=kind, round=turn, peer=name, result=asdict(found[count]))
                    return found

            runs = run_rounds(names, options.rounds, run)
            report.print_text(f"\n{kind}, {rate_table(runs, options.connections)}")
            report.print_text(latency_table(runs, options.connections))
            if "fastapi" in runs and len(runs) > 1:
                report.print_text(ratio_table(runs, options.connections, "fastapi"))
            hold_to_limits(report, kind, runs, options.connections)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
