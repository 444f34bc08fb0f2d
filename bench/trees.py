"""Requests per second of models of trees behind ringbatch, FastAPI, mosec and LitServe.

Measured between `wrk`, one thread, closed loop, and the answer on the same machine; one row of 30
numbers a request, JSON, 300 trees, one thread a model. ringbatch runs the libraries that are
installed beside it; the peers have the same ones in one environment. FastAPI gets as many processes
that run the model as --processes says, and batches nothing.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import load
from answers import Client, WrongAnswer, lock_step
from harness import Command, Server, free_port
from load import Post
from peers import SERVICES, Environment, Ringbatch
from report import Report
from rounds import ratios, run_rounds
from speed import latency_table, rate_table, ratio_table

PATH = "/v1/models/trees:predict"
LIBRARIES = ("lightgbm", "catboost", "scikit-learn")
FILES = {
    "xgboost": "xgboost.ubj",
    "lightgbm": "lightgbm.txt",
    "catboost": "catboost.cbm",
    "histgb": "histgb.joblib",
    "forest": "forest.joblib",
}
KINDS = tuple(FILES)
GAINING = ("xgboost", "catboost", "histgb")
"""For which a batch costs far less than its rows do alone."""
SERVERS = ("ringbatch", "fastapi", "mosec", "litserve")
CLIENTS = 16


def environment() -> Environment:
    """That of the peers, with the libraries in the versions that ringbatch runs."""
    boosters = next((n for n in ("xgboost-cpu", "xgboost") if _installed(n)), "xgboost-cpu")
    pinned = [f"{name}=={metadata.version(name)}" for name in (boosters, *LIBRARIES)]
    servers = ("fastapi==0.165.0", "uvicorn[standard]==0.54.0", "mosec==0.9.8", "litserve==0.2.19")
    return Environment("trees", (*pinned, *servers, "orjson==3.13.0", "joblib"))


def _installed(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


def command(server: str, kind: str, models: Path, folder: Path, options: Any) -> Command:
    """How a server of one model is started."""
    file = models / FILES[kind]
    if server == "ringbatch":
        settings: dict[str, Any] = {"max_batch_size": 32, "threads": 1, "answers": ["label"]}
        if file.suffix == ".joblib":
            settings |= {"runtime": "sklearn", "trust_pickle": True}
        else:
            settings["runtime"] = kind
        return Ringbatch("trees", file, frontends=1, settings=settings).command(folder)
    port = free_port()
    python = str(options.python)
    env = {"BENCH_KIND": kind, "BENCH_FILE": str(file), "OMP_NUM_THREADS": "1"}
    if server == "fastapi":
        return Command(
            argv=[
                *(python, "-m", "uvicorn", "trees_fastapi:app", "--app-dir", str(SERVICES)),
                *f"--port {port} --workers {options.processes} --log-level error".split(),
            ],
            port=port,
            ready_path="/ready",
            env=env | {"PYTHONPATH": str(SERVICES)},
            start_timeout_s=120,
        )
    argv = [python, str(SERVICES / f"trees_{server}.py"), f"--port={port}"]
    if server == "mosec":
        argv += ["--address=127.0.0.1", "--log-level=error", f"--path={folder / 'sockets'}"]
    return Command(
        argv=argv,
        port=port,
        ready_path="/" if server == "mosec" else "/health",
        env=env,
        start_timeout_s=120,
        # At SIGTERM LitServe leaves its workers behind.
        stop_signal=signal.SIGINT if server == "litserve" else signal.SIGTERM,
    )


def check(port: int, rows: Sequence[Sequence[float]], labels: Sequence[int]) -> None:
    """Ask for different rows at once, and compare what is answered.

    Raises:
        WrongAnswer: an answer is not the label of its row.
    """

    def ask(client: Client, index: int, turn: int) -> None:
        place = (index + turn) % len(rows)
        (found,) = client.post(post(rows[place]))["predictions"]
        label = found["label"] if isinstance(found, dict) else found
        if int(label) != labels[place]:
            raise WrongAnswer(f"row {place}: expected {labels[place]}, found {found}")

    lock_step(port, CLIENTS, 2, ask)


def post(row: Sequence[float]) -> Post:
    """The request for the label of one row."""
    return Post(PATH, json.dumps({"instances": [row]}))


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
            what = f"req/s of {kind} against FastAPI at {count} connections"
            report.limit(what, ratios(ours, theirs).median, at_least=least)


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4, help="length of one run")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 32, 128])
    parser.add_argument("--models", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--peers", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--processes", type=int, default=2, help="of FastAPI")
    parser.add_argument("--python", type=Path, help="an interpreter that has the peers already")
    options = parser.parse_args()

    load.require_tools()
    peers = environment()
    if options.python is None:
        peers.ensure()
        options.python = peers.python
    report = Report("trees", {key: str(value) for key, value in vars(options).items()})
    with tempfile.TemporaryDirectory(prefix="bench-trees-") as made:
        models = Path(made)
        trainer = SERVICES / "trees_models.py"
        subprocess.run([options.python, trainer, models], check=True, stdout=sys.stderr)
        known = json.loads((models / "rows.json").read_text())
        rows = known["rows"]
        for kind in options.models:

            def run(turn: int, name: str, kind: str = kind) -> dict[int, load.WrkRun]:
                with (
                    tempfile.TemporaryDirectory(prefix="bench-") as folder,
                    Server(command(name, kind, models, Path(folder), options)) as server,
                ):
                    check(server.port, rows, known["labels"][kind])
                    load.wrk(server.url, post(rows[0]), max(options.connections), 1)
                    found = {}
                    for count in options.connections:
                        found[count] = load.wrk(server.url, post(rows[0]), count, options.seconds)
                        report.run(model=kind, round=turn, peer=name, result=asdict(found[count]))
                    return found

            runs = run_rounds(options.peers, options.rounds, run)
            report.say(f"\n{kind}, {rate_table(runs, options.connections)}")
            report.say(latency_table(runs, options.connections))
            if "fastapi" in runs and len(runs) > 1:
                report.say(ratio_table(runs, options.connections, "fastapi"))
            hold_to_limits(report, kind, runs, options.connections)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
