"""CPU time and delay of answers in parts, over each protocol that gives them.

Each client asks again once its answer has ended, for 20 parts that the model makes 2 ms apart, or
`--parts` and `--step-ms`. With `--in-steps` rows need not begin together, and the CPU time of the
model's own steps is measured alone and left out of the limit. Events go over a connection for each
client, or over one of HTTP/2 that all share, as they share the one of gRPC. A program with a
`Client` has a thread for each, or a coroutine. For comparison, the same clients ask for one answer
with all parts joined. Clients, frontends and the worker share the machine's cores.
"""

import argparse
import os
import runpy
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from host import procfs
from host.server import Server, free_port
from load.part_answers import (
    MODEL,
    PARTS,
    Answers,
    EventsOverHttp2,
    OverGrpc,
    OverHttp1,
    Times,
)
from load.part_clients import drive, drive_client, drive_coroutines
from peers.servers import MODELS, Ringbatch
from report.record import Report
from report.rounds import number, run_rounds, spread, table

EVENTS: Final = "events"
GRPC: Final = "grpc"
HTTP2: Final = "http2"
CLIENT: Final = "client"
COROUTINES: Final = "coroutines"
WHOLE: Final = "one-answer"
WAYS: Final = (EVENTS, GRPC, HTTP2, CLIENT, COROUTINES, WHOLE)
OWN_FRONTENDS: Final = (CLIENT, COROUTINES)
"""Ways in which the clients' program reads the shared memory itself."""
ROLES: Final = ("worker", "collector", "frontend")
OTHERS: Final = "others"
MOST_GAP_MS: Final = 100.0
"""The longest gap between two parts that may be, beyond the model's step."""
MOST_STEP_US: Final = 60.0
"""CPU time of a step that all roles may take beyond the model's own, and of each row: below."""
MOST_ROW_US: Final = {EVENTS: 15.0, **dict.fromkeys((GRPC, HTTP2, CLIENT, COROUTINES), 5.0)}
_MEASURED_STEPS: Final = 500


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of all do not exceed; 0 if there is none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


@dataclass(frozen=True)
class Run:
    """Figures of one run.

    Attributes:
        parts_per_s: parts that reached clients.
        answers_per_s: answers that ended.
        first_p50_ms, first_p99_ms: from the request to the first part, or to the answer.
        gap_p50_ms, gap_p99_ms, gap_most_ms: between two parts; 0 without any.
        cpu_us: CPU time for a part, by role, the model's sleep left out. A program with a `Client`
            is its own frontend.
        generator: cores that the clients took, unless they are such a program.
    """

    parts_per_s: float
    answers_per_s: float
    first_p50_ms: float
    first_p99_ms: float
    gap_p50_ms: float
    gap_p99_ms: float
    gap_most_ms: float
    cpu_us: Mapping[str, float]
    generator: float

    @property
    def engine_us(self) -> float:
        """CPU time of all roles for a part."""
        return sum(self.cpu_us.values())


def model_us(file: Path, rows: int) -> float:
    """Return the CPU time of the model's own step for each of that many rows."""
    model = runpy.run_path(str(file))
    states = model["begin"](range(rows))
    begun_s = time.process_time()
    for _ in range(_MEASURED_STEPS):
        model["step"](states)
    return 1e6 * (time.process_time() - begun_s) / _MEASURED_STEPS / rows


def role_of(title: str) -> str:
    """Return the role of a process of the engine."""
    return next((role for role in ROLES if role in title), OTHERS)


def cpu_us_by_role(usages: Sequence[procfs.ProcessUsage], parts_per_s: float) -> dict[str, float]:
    """Return the CPU time of each role for a part."""
    found = dict.fromkeys((*ROLES, OTHERS), 0.0)
    for usage in usages:
        found[role_of(usage.title)] += 1e6 * usage.cpu_fraction / parts_per_s
    return found


@dataclass(frozen=True)
class Served:
    """Running server.

    Attributes:
        server: with events, and with a `Client`'s lane.
        grpc_port: where it answers gRPC.
    """

    server: Server
    grpc_port: int

    def ask(self, way: str, clients: Sequence[Answers], seconds: float) -> None:
        """Keep clients asking for some time.

        Raises:
            WrongAnswer: an answer was not right.
        """
        port = self.server.port
        if way == CLIENT:
            drive_client(self.server.pid, clients, seconds)
        elif way == COROUTINES:
            drive_coroutines(self.server.pid, clients, seconds)
        elif way == GRPC:
            drive(self.grpc_port, [OverGrpc(clients)], seconds)
        elif way == HTTP2:
            drive(port, [EventsOverHttp2(clients)], seconds)
        else:
            drive(port, [OverHttp1(one, events=way == EVENTS) for one in clients], seconds)


def measure(served: Served, way: str, clients: int, parts: int, seconds: float) -> Run:
    """Drive the server, and look at its processes before and after."""
    # A thread adds to an int in several steps: each client has its own.
    times = [Times() for _ in range(clients)]
    asking = [Answers(value, own, parts) for value, own in enumerate(times)]
    before = procfs.sample_tree(served.server.pid)
    own_s, begun_s = time.process_time(), time.monotonic()
    served.ask(way, asking, seconds)
    took_s, own_s = time.monotonic() - begun_s, time.process_time() - own_s
    usages = procfs.usage(before, procfs.sample_tree(served.server.pid), took_s)
    rate = sum(one.parts for one in times) / took_s
    cpu_us = cpu_us_by_role(usages, rate)
    if way in OWN_FRONTENDS:
        cpu_us["frontend"] += 1e6 * own_s / took_s / rate
    first = [time_ms for one in times for time_ms in one.first]
    gaps = [time_ms for one in times for time_ms in one.gaps]
    return Run(
        parts_per_s=rate,
        answers_per_s=sum(one.answers for one in times) / took_s,
        first_p50_ms=percentile(first, 0.5),
        first_p99_ms=percentile(first, 0.99),
        gap_p50_ms=percentile(gaps, 0.5),
        gap_p99_ms=percentile(gaps, 0.99),
        gap_most_ms=max(gaps, default=0.0),
        cpu_us=cpu_us,
        generator=0.0 if way in OWN_FRONTENDS else own_s / took_s,
    )


def row(clients: int, way: str, runs: Sequence[Run]) -> list[str]:
    """Return a row of the table: medians of the rounds, and the longest gap of all."""
    names = ("parts_per_s", "first_p50_ms", "first_p99_ms", "gap_p50_ms", "gap_p99_ms")
    found = [spread([getattr(run, name) for run in runs]).median for name in names]
    found.append(max(run.gap_most_ms for run in runs))
    gapless = way == WHOLE
    return [
        str(clients),
        way,
        *(
            "" if gapless and name.startswith("gap") else number(value)
            for name, value in zip((*names, "gap_most_ms"), found, strict=True)
        ),
    ]


def cost_row(clients: int, way: str, runs: Sequence[Run]) -> list[str]:
    """Return a row of the table of CPU time: medians of the rounds, in µs for a step of all rows.

    The last two are the CPU time of all roles for a part, and the cores of the clients.
    """
    roles = [spread([run.cpu_us[role] for run in runs]).median for role in (*ROLES, OTHERS)]
    engine_us = spread([run.engine_us for run in runs]).median
    steps = [clients * cpu_us for cpu_us in (*roles, engine_us)]
    generator = spread([run.generator for run in runs]).median
    return [str(clients), way, *(number(value) for value in (*steps, engine_us, generator))]


def hold_to_limits(
    report: Report, way: str, clients: int, step_ms: float, runs: Sequence[Run]
) -> None:
    """Compare the gaps of a load with what ringbatch promises."""
    longest = max(run.gap_most_ms for run in runs) - step_ms
    words = f"longest gap beyond the step, {way}, {clients} clients"
    report.limit(words, longest, at_most=MOST_GAP_MS, unit="ms")


def hold_steps_to_limit(
    report: Report, way: str, clients: int, own_us: float, runs: Sequence[Run]
) -> None:
    """Compare the CPU time of a step, beyond the model's own, with what it may be."""
    found_us = clients * (spread([run.engine_us for run in runs]).median - own_us)
    words = f"CPU time of a step of {clients} rows beyond the model's own, {way}"
    most_us = MOST_STEP_US + clients * MOST_ROW_US[way]
    report.limit(words, found_us, at_most=most_us, unit="µs")


def main() -> int:
    """Run the rounds; the exit status is 1 where gaps are too long, or steps cost too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--clients", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--step-ms", type=float, default=2.0, help="time of a part")
    parser.add_argument("--parts", type=int, default=PARTS, help="of an answer")
    parser.add_argument("--in-steps", action="store_true", help="by a model in steps")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    options = parser.parse_args()
    report = Report("streams", {key: str(value) for key, value in vars(options).items()})
    rows, costs = [], []
    with tempfile.TemporaryDirectory(prefix="bench-") as made:
        settings = {"max_batch_size": max(options.clients)}
        file = MODELS / ("parts_in_steps.py" if options.in_steps else "parts.py")
        grpc_port = free_port()
        more = {"grpc_port": grpc_port, "http2": True}
        engine = Ringbatch(MODEL, file, settings=settings, server=more)
        os.environ |= {"BENCH_STEP_MS": f"{options.step_ms:g}", "BENCH_PARTS": f"{options.parts}"}
        with Server(engine.command(Path(made))) as server:
            served = Served(server, grpc_port)
            for clients in options.clients:

                def run(_turn: int, way: str, clients: int = clients) -> Run:
                    found = measure(served, way, clients, options.parts, options.seconds)
                    report.run(way=way, clients=clients, **vars(found))
                    return found

                found = run_rounds(options.ways, options.rounds, run)
                rows += [row(clients, way, runs) for way, runs in found.items()]
                costs += [cost_row(clients, way, runs) for way, runs in found.items()]
                in_parts = {way: runs for way, runs in found.items() if way != WHOLE}
                for way, runs in in_parts.items():
                    hold_to_limits(report, way, clients, options.step_ms, runs)
                if options.in_steps:
                    own_us = model_us(file, clients)
                    report.print_text(f"the model's own step: {own_us:.2f} µs of CPU a row")
                    for way, runs in in_parts.items():
                        hold_steps_to_limit(report, way, clients, own_us, runs)
    heads = ["clients", "way", "parts/s", "first p50, ms", "first p99"]
    report.print_text(table([*heads, "gap p50", "gap p99", "longest"], rows))
    heads = ["clients", "way", *(f"{role}, µs a step" for role in (*ROLES, OTHERS)), "all"]
    report.print_text(table([*heads, "all, µs a part", "clients, cores"], costs))
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
