"""gRPC calls a second: ringbatch, against bare servers of grpcio's that echo.

Measured between `h2load`, one thread, closed loop, and the answer on the same machine. With --pin,
which the limit is for, what speaks gRPC has a core of its own, and everything else, h2load
included, has the others: so both have one core for what speaking gRPC costs.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import grpc
import numpy as np
from host import procfs
from host.server import HOST, Command, Server, free_port
from load import answers, h2load
from peers.servers import MODELS, SERVICES, toml
from report.record import Report
from report.rounds import number, ratios, run_rounds, spread, table

from ringbatch.frontend.grpc.messages import inference

METHOD = "/inference.GRPCInferenceService/ModelInfer"
SHAPES = ((1, 1), (8, 4), (32, 1))
"""Connections, and calls under way on each."""
NOTES = {
    "echo": "bare grpc.aio on uvloop",
    "echo-threads": "bare grpc.server with 4 threads",
    "ringbatch": "1 frontend for gRPC, 1 worker, eager, cap 32",
    "ringbatch-2": "the same with 2 frontends for gRPC",
}
AT_MOST = 0.25
"""Limit of CPU time for a call, as a share of a bare echo's. Rates tell less: with two cores, the
client's is full first."""


@dataclass(frozen=True)
class Run:
    """Figures of one server at one load.

    Attributes:
        load: figures of h2load.
        cpu_us: CPU time a request, of each process by its title.
    """

    load: h2load.H2Run
    cpu_us: Mapping[str, float]


Runs = Mapping[str, Sequence[Mapping[str, Run]]]
"""Server, then round, then load."""
Confine = Callable[[Sequence[int]], None]
"""Does something to the processes that speak gRPC, once they are ready."""


def command(name: str, port: int, folder: Path) -> Command:
    """Return how to start a server that speaks gRPC on a port."""
    ready_port = free_port()
    if name.startswith("echo"):
        argv = [sys.executable, str(SERVICES / "grpc_echo.py")]
        argv += f"--port {port} --ready-port {ready_port}".split()
        argv += ["--threads"] * (name == "echo-threads")
        return Command(argv, ready_port, "/")
    file = folder / "ringbatch.toml"
    frontends = int(name.partition("-")[2] or 1)
    file.write_text(
        toml(
            {
                "server": {
                    "port": ready_port,
                    "frontends": 1,
                    "grpc_port": port,
                    "grpc_frontends": frontends,
                },
                "models.matmul16": {"path": str(MODELS / "matmul16.py"), "max_batch_size": 32},
            }
        )
    )
    argv = [sys.executable, "-m", "ringbatch.engine", "serve", "--config", str(file)]
    return Command(argv, ready_port, "/v2/health/ready")


def request() -> bytes:
    """Return the request for one instance of models/matmul16.py."""
    row = np.array([answers.matmul16_instance(0)], "<f4")
    message = inference("ModelInferRequest")(
        model_name="matmul16",
        inputs=[{"name": "x", "datatype": "FP32", "shape": row.shape}],
        raw_input_contents=[row.tobytes()],
    )
    data: bytes = message.SerializeToString()
    return data


def checked_answer(name: str, port: int, sent: bytes) -> bytes:
    """Return the answer to the request, after a look into it.

    Raises:
        WrongAnswer: it is not the right one.
    """
    with grpc.insecure_channel(f"{HOST}:{port}") as channel:
        received: bytes = channel.unary_unary(METHOD)(sent, timeout=30, wait_for_ready=True)
    if name.startswith("echo"):
        right = received == sent
    else:
        (raw,) = inference("ModelInferResponse").FromString(received).raw_output_contents
        right = np.allclose(np.frombuffer(raw, "<f4"), answers.matmul16_expected(0), atol=1e-5)
    if not right:
        raise answers.WrongAnswer(f"{name} answered {received!r}")
    return received


def measure(
    name: str, seconds: float, confine: Confine, shapes: Sequence[tuple[int, int]] = SHAPES
) -> dict[str, Run]:
    """Start one server, check it, and drive it at each load."""
    port, sent = free_port(), request()
    found = {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Server(command(name, port, Path(folder))) as server,
    ):
        family = procfs.sample_tree(server.pid).values()
        confine([one.pid for one in family if "grpc" in one.title])
        answer = checked_answer(name, port, sent)
        for connections, streams in shapes:
            before = procfs.sample_tree(server.pid)
            load = h2load.h2load(
                f"http://{HOST}:{port}{METHOD}",
                sent,
                len(h2load.framed(answer)),
                connections,
                streams,
                seconds,
            )
            after = procfs.sample_tree(server.pid)
            checked_answer(name, port, sent)
            found[f"{connections} x {streams}"] = Run(load, _cpu_us(before, after, load.requests))
    return found


def _give_a_core(speakers: Sequence[int]) -> None:
    """Move every thread of the processes that speak gRPC to the first core."""
    for speaker in speakers:
        for task in Path(f"/proc/{speaker}/task").iterdir():
            os.sched_setaffinity(int(task.name), {CORES[0]})


def _leave_alone(_speakers: Sequence[int]) -> None:
    """Let them run on all cores."""


def _cpu_us(
    before: Mapping[int, procfs.ProcessSample],
    after: Mapping[int, procfs.ProcessSample],
    requests: int,
) -> dict[str, float]:
    total = requests + h2load.WARM_UP_REQUESTS
    return {
        one.title.partition("ringbatch: ")[2] or "echo": (one.cpu_ns - before[pid].cpu_ns)
        / 1e3
        / total
        for pid, one in after.items()
        if pid in before and one.cpu_ns - before[pid].cpu_ns > 1e3 * total
    }


def rate_table(runs: Runs) -> str:
    """Return the table of requests per second: median and spread."""
    loads = [f"{connections} x {streams}" for connections, streams in SHAPES]
    rows = [
        [name, *(str(spread(_rates(found, load))) for load in loads)]
        for name, found in runs.items()
    ]
    return table(["req/s, median (min..max)", *loads], rows)


def cost_table(runs: Runs) -> str:
    """Return the table of CPU time a request at the load of many connections."""
    load = "{} x {}".format(*SHAPES[-1])
    costs = {name: [one[load].cpu_us for one in found] for name, found in runs.items()}
    rows = [
        [name, title, number(spread([cost.get(title, 0.0) for cost in found]).median)]
        for name, found in costs.items()
        for title in sorted(set[str]().union(*found))
    ]
    return table(["server", f"process, at {load}", "CPU µs a request"], rows)


def _rates(found: Sequence[Mapping[str, Run]], load: str) -> list[float]:
    return [one[load].load.requests_per_s for one in found]


CORES = sorted(os.sched_getaffinity(0))


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one run")
    parser.add_argument("--servers", nargs="+", choices=list(NOTES), default=list(NOTES))
    parser.add_argument("--pin", action=argparse.BooleanOptionalAction, default=len(CORES) > 1)
    options = parser.parse_args()

    h2load.require()
    report = Report("grpc_unary", vars(options))
    report.put("notes", NOTES)
    if options.pin:
        # What is started from here on inherits it.
        os.sched_setaffinity(0, set(CORES[1:]))

    def run(turn: int, name: str) -> dict[str, Run]:
        found = measure(name, options.seconds, _give_a_core if options.pin else _leave_alone)
        for load, one in found.items():
            report.run(round=turn, server=name, load=load, result=asdict(one))
        return found

    runs = run_rounds(options.servers, options.rounds, run)
    report.print_text(rate_table(runs))
    report.print_text(cost_table(runs))
    if options.pin and {"echo", "ringbatch"} <= runs.keys():
        # One call at a time is a question of how fast processes wake one another.
        for load in ("{} x {}".format(*shape) for shape in SHAPES if max(shape) > 1):
            own = [one[load].cpu_us["grpc frontend 0"] for one in runs["ringbatch"]]
            bare = [one[load].cpu_us["echo"] for one in runs["echo"]]
            found = ratios(own, bare).median
            report.limit(f"CPU time against a bare echo at {load}", found, at_most=AT_MOST)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
