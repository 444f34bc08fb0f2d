"""Requests per second of V2 infer requests, binary and JSON, behind ringbatch and its peers.

Measured between `wrk`, one thread, closed loop, and the answer on the same machine. Every server
starts anew in every round, is checked, warmed up, and driven at each number of connections.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from host import procfs
from host.server import Command, Server
from load import generators, tensors
from load.tensors import IMAGE, MATMUL16, RAW, V2_BINARY, V2_JSON, Format, Subject
from peers.servers import MODELS, MOSEC, Environment, Ringbatch, install, mosec
from peers.triton import TRITON, Triton
from report.peer_rounds import run_entries
from report.record import Report
from report.rounds import ratios, spread, table
from speed import PLACEMENT, Runs, latency_table, rate_table, ratio_table


@dataclass(frozen=True)
class Entry:
    """Server in a comparison, and the format of its requests.

    Attributes:
        name: as it stands in tables and results.
        command: makes the command, given a folder for its files that outlives the server.
        form: format of its requests.
        environment: None where the server runs in this interpreter's own.
        note: a remark on its setting for readers of the table.
    """

    name: str
    command: Callable[[Path], Command]
    form: Format
    environment: Environment | None = None
    note: str = ""


@dataclass(frozen=True)
class Workload:
    """Workload: a request, and the servers that are compared by it.

    Attributes:
        connections: numbers of connections, one after another.
        entries: in the order in which they run within a round.
        limits: by (entry, connections), how many times its rate that of `ringbatch` has to be.
        best_per_s: the highest rate that any server can reach, where that is known.
        own_heads: see `generators.Post`.
    """

    name: str
    subject: Subject
    connections: Sequence[int]
    entries: Sequence[Entry]
    limits: Mapping[tuple[str, int], float]
    best_per_s: float | None = None
    own_heads: bool = False


@dataclass(frozen=True)
class Found:
    """Figures of a run of wrk, with the CPU time of all the server's processes for each answer.

    CPU time hardly depends on what else the machine does, where a rate does.
    """

    result: generators.WrkRun
    cpu_us: float


def ringbatch_entry(subject: Subject, form: Format, frontends: int) -> Entry:
    """Return ringbatch with its defaults, but for the setting of the batches."""
    server = Ringbatch(
        subject.name,
        MODELS / f"{subject.name}.py",
        frontends=frontends,
        settings={"max_batch_size": 32, "workers": 1, "policy": "eager"},
    )
    return Entry(
        "ringbatch" if frontends == 1 else f"ringbatch-{frontends}",
        server.command,
        form,
        note=f"{frontends} frontend{'s'[: frontends > 1]}, 1 worker, eager, cap 32",
    )


def triton_entry(name: str, subject: Subject, form: Format, queue_delay_us: int) -> Entry:
    """Return Triton with its Python backend."""
    return Entry(
        name,
        Triton(subject.name, subject.x, subject.y, queue_delay_us).command,
        form,
        TRITON,
        f"Python backend, 1 instance, cap 32, queue delay {queue_delay_us} µs",
    )


def mosec_entry(name: str, subject: Subject, form: Format, codec: str) -> Entry:
    """Return mosec with one of the codecs of services/mosec_v2.py."""
    return Entry(
        name,
        lambda folder: mosec(folder, "mosec_v2.py", BENCH_MODEL=subject.name, BENCH_CODEC=codec),
        form,
        MOSEC,
        f"1 worker, cap 32, 1 ms, {codec}",
    )


def binary_entries(subject: Subject) -> list[Entry]:
    """Return who is compared by requests in binary."""
    return [
        ringbatch_entry(subject, V2_BINARY, 1),
        triton_entry("triton", subject, V2_BINARY, 0),
        ringbatch_entry(subject, V2_BINARY, 2),
        triton_entry("triton-1ms", subject, V2_BINARY, 1000),
        mosec_entry("mosec-raw", subject, RAW, "raw"),
    ]


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "small",
            MATMUL16,
            (1, 32, 128),
            binary_entries(MATMUL16),
            {("triton", 32): 3.0},
        ),
        Workload(
            "large",
            IMAGE,
            (1, 32),
            binary_entries(IMAGE),
            {("triton", 32): 2.0},
        ),
        Workload(
            "json",
            MATMUL16,
            (32, 128),
            [
                ringbatch_entry(MATMUL16, V2_JSON, 1),
                mosec_entry("mosec", MATMUL16, V2_JSON, "orjson"),
                mosec_entry("mosec-json", MATMUL16, V2_JSON, "json"),
                ringbatch_entry(MATMUL16, V2_JSON, 2),
                triton_entry("triton", MATMUL16, V2_JSON, 0),
            ],
            {(name, count): 1.5 for name in ("mosec", "mosec-json") for count in (32, 128)},
        ),
    )
}
"""Workloads by name."""


def measure(workload: Workload, entry: Entry, seconds: float) -> dict[int, Found]:
    """Start one server, check and warm it, and drive it at each number of connections."""
    subject, form = workload.subject, entry.form
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Server(entry.command(Path(folder))) as server,
    ):
        tensors.check_crowd(server.port, subject, form)
        post = replace(tensors.post(subject, form, 0), own_heads=workload.own_heads)
        generators.wrk(server.url, post, max(workload.connections), 1)
        found = {}
        for count in workload.connections:
            tensors.check_one(server.port, subject, form)
            before = procfs.sample_tree(server.pid)
            run = generators.wrk(server.url, post, count, seconds)
            used = procfs.usage(before, procfs.sample_tree(server.pid), elapsed_s=1.0)
            server.require_alive()
            cpu_s = sum(process.cpu_fraction for process in used)
            found[count] = Found(run, 1e6 * cpu_s / run.requests)
        return found


def compare(
    report: Report, workload: Workload, chosen: Sequence[str], rounds: int, seconds: float
) -> Runs:
    """Measure the entries that are named in `chosen`, and print what they reached."""
    entries = {entry.name: entry for entry in workload.entries if entry.name in chosen}
    report.print_text(f"{workload.name}: one instance of {workload.subject.name} a request")

    def run(turn: int, name: str) -> dict[int, Found]:
        found = measure(workload, entries[name], seconds)
        for one in found.values():
            best = workload.best_per_s
            share = {"of_ideal": one.result.requests_per_s / best} if best else {}
            report.run(round=turn, workload=workload.name, peer=name, **asdict(one), **share)
        return found

    found = run_entries(report, list(entries), rounds, run)
    runs = {
        name: [{count: one.result for count, one in turn.items()} for turn in turns]
        for name, turns in found.items()
    }
    report.print_text(rate_table(runs, workload.connections))
    report.print_text(latency_table(runs, workload.connections))
    report.print_text(cpu_table(found, workload.connections))
    for base in dict.fromkeys(name for name, _ in workload.limits):
        if base in runs and len(runs) > 1:
            report.print_text(ratio_table(runs, workload.connections, base))
    return runs


def cpu_table(
    found: Mapping[str, Sequence[Mapping[int, Found]]], connections: Sequence[int]
) -> str:
    """Return the table of the servers' CPU time for each answer: median and spread."""
    return table(
        ["CPU µs a request, median (min..max)", *(f"{count} conns" for count in connections)],
        [
            [name, *(str(spread([turn[count].cpu_us for turn in turns])) for count in connections)]
            for name, turns in found.items()
        ],
    )


def limits(workload: Workload, runs: Runs) -> Iterator[tuple[str, float, float]]:
    """Yield what `Report.limit` takes, for whichever of the peers have run."""

    def rates(name: str, count: int) -> list[float]:
        return [found[count].requests_per_s for found in runs[name]]

    for (name, count), least in workload.limits.items():
        if {"ringbatch", name} <= runs.keys():
            found = ratios(rates("ringbatch", count), rates(name, count)).median
            yield f"{workload.name}, req/s against {name} at {count} connections", found, least


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    every = {entry.name: entry for workload in WORKLOADS.values() for entry in workload.entries}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one run")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--peers", nargs="+", choices=every, default=list(every))
    options = parser.parse_args()

    generators.require_tools()
    workloads = [WORKLOADS[name] for name in options.workloads]
    chosen = [
        (workload, entry)
        for workload in workloads
        for entry in workload.entries
        if entry.name in options.peers
    ]
    absent = install({entry.name: entry.environment for _, entry in chosen})
    names = [name for name in options.peers if name not in absent]
    report = Report("v2", vars(options))
    report.without(absent)
    report.peer_versions(every[name].environment for name in names)
    report.put(
        "notes",
        {
            f"{workload.name}, {entry.name}": f"{entry.form.name}; {entry.note}"
            for workload, entry in chosen
        },
    )
    found = {
        workload.name: compare(report, workload, names, options.rounds, options.seconds)
        for workload in workloads
    }
    if any(1 in workload.connections for workload in workloads):
        report.print_text(PLACEMENT)
    for workload in workloads:
        for name, value, at_least in limits(workload, found[workload.name]):
            report.limit(name, value, at_least)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
