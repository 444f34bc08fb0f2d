"""ringbatch on a GPU, beside bare loops over the same device.

A residual network (602 KB a row) and an encoder (1 KB), as exported programs under FP16's
autocast, by one worker. They are asked over `Client`, V2 binary over HTTP and gRPC, and one request
at a time. The bare loops, of one thread, gather and run eagerly, or copy out of registered memory
and replay CUDA graphs. With `--device cpu` and `--programs small` it runs without a GPU, and holds
nothing to limits.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from host.server import HOST, Server, free_port
from load.ways import Protocol
from peers.servers import BENCH, Ringbatch
from report.record import Report
from report.rounds import number, table

from ringbatch.bench.load.answers import post
from ringbatch.bench.load.arrivals import Arrivals, Kind
from ringbatch.bench.load.fleet import Fleet
from ringbatch.bench.load.grpc_call import call_head, prefixed
from ringbatch.bench.load.infer_message import infer_request
from ringbatch.bench.load.target import Target, Wire

CAP: Final = 32
SIZES: Final = [1, 2, 4, 8, 16, 32]
GRACE_S: Final = 20.0
ENGINE: Final = "ringbatch-bench-gpu"
LOOP_LIMIT_S: Final = 300
LEAST: Final = {Protocol.CLIENT: 0.9, Protocol.V2: 0.6, Protocol.GRPC: 0.6}
"""Of the pipelined loop's rows/s, for the residual network."""
ENCODER_LEAST: Final = 40_000
LONE_MS: Final = {Protocol.CLIENT: 0.2, Protocol.V2: 0.4}
"""Milliseconds that the p50 of a lone request may take beyond a graph of one row."""


class NotAnswered(RuntimeError):
    """A request had no answer."""


@dataclass(frozen=True)
class Bare:
    """Figures of the bare loops.

    Attributes:
        shape: of a row.
        eager, pipelined: rows/s; the second is 0 without a GPU.
        lone_ms: a row through its graph, likewise.
    """

    shape: tuple[int, ...]
    eager: float
    pipelined: float = 0.0
    lone_ms: float = 0.0


def bare(program: str, device: str, file: Path, seconds: float) -> Bare:
    """Write a program and measure the bare loops over it, in a process of their own."""
    script = BENCH / "peers" / "device_loop.py"
    argv = [sys.executable, str(script), program, device, str(file), str(seconds)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LOOP_LIMIT_S)
    if done.returncode:
        raise RuntimeError(f"{script.name} failed: {done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    return Bare(
        tuple(found["shape"]),
        found["eager"],
        found.get("pipelined", 0.0),
        found.get("lone_ms", 0.0),
    )


def bodies(shape: Sequence[int]) -> tuple[bytes, bytes, int]:
    """Return a V2 body in JSON, the same in binary, and the bytes of the latter's JSON."""
    values = np.random.default_rng(1).standard_normal((1, *shape)).astype("<f4").round(3)
    named: dict[str, Any] = {"name": "x", "shape": list(values.shape), "datatype": "FP32"}
    in_json = json.dumps({"inputs": [{**named, "data": values.ravel().tolist()}]}).encode()
    size = {"parameters": {"binary_data_size": values.nbytes}}
    head = {"inputs": [{**named, **size}], "parameters": {"binary_data_output": True}}
    text = json.dumps(head).encode()
    return in_json, text + values.tobytes(), len(text)


@contextmanager
def fleet(
    protocol: Protocol, generators: int, shape: Sequence[int], server: Server, grpc_port: int
) -> Iterator[Fleet]:
    """Run generators that ask the model `m` for one row."""
    in_json, binary, head_bytes = bodies(shape)
    if protocol is Protocol.CLIENT:
        target = Target("", 0, Wire.CLIENT, server.pid, "m")
        made = Fleet(generators, target, [in_json])
    elif protocol is Protocol.GRPC:
        call = prefixed(infer_request("m", in_json))
        target = Target(HOST, grpc_port, Wire.GRPC)
        made = Fleet(generators, target, [call], call_head=call_head(HOST, []))
    else:
        headers = [
            ("Content-Type", "application/octet-stream"),
            ("Inference-Header-Content-Length", str(head_bytes)),
        ]
        message = post(HOST, "/v2/models/m/infer", binary, headers)
        made = Fleet(generators, Target(HOST, server.port), [message])
    with made:
        yield made


def served(device: str, file: Path, frontends: int, grpc_port: int) -> Ringbatch:
    """Return the server of a program."""
    settings: dict[str, Any] = {"runtime": "torch", "max_batch_size": CAP, "autocast": "FP16"}
    if device != "cpu":
        settings |= {
            "device": device,
            "cuda_graphs": "required",
            "allowed_batch_sizes": SIZES,
        }
    more = {"grpc_port": grpc_port, "grpc_frontends": frontends}
    return Ringbatch("m", file, frontends, settings, more)


def measured(
    options: argparse.Namespace, report: Report, program: str, found: Bare, file: Path
) -> dict[Protocol, tuple[float, float]]:
    """Return the rows/s of a closed loop and the p50 of lone requests, in ms, by protocol."""
    grpc_port = free_port()
    rates: dict[Protocol, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory(prefix="rb-") as folder:
        ours = served(options.device, file, options.frontends, grpc_port)
        with Server(ours.command(Path(folder))) as server:
            for protocol in (Protocol.CLIENT, Protocol.V2, Protocol.GRPC):
                rate, p50_ms = asked(options, protocol, found.shape, server, grpc_port)
                report.run(program=program, way=protocol, rows_per_s=rate, lone_p50_ms=p50_ms)
                rates[protocol] = rate, p50_ms
    return rates


def asked(
    options: argparse.Namespace,
    protocol: Protocol,
    shape: Sequence[int],
    server: Server,
    grpc_port: int,
) -> tuple[float, float]:
    """Return the rows/s of a closed loop, and the p50 in ms of one request at a time."""
    arrivals = Arrivals(Kind.CLOSED, options.seconds)
    with fleet(protocol, options.generators, shape, server, grpc_port) as many:
        crowd = many.run(arrivals, options.connections, GRACE_S)
    with fleet(protocol, 1, shape, server, grpc_port) as one:
        lone = one.run(arrivals, 1, GRACE_S)
    for outcome in (crowd, lone):
        if not outcome.answered.all():
            raise NotAnswered(f"{protocol}: {outcome.counts()}, {outcome.problems}")
    return crowd.rate_per_s(), lone.times().quantile_ns(0.5) / 1e6


def hold_to_limits(
    report: Report, program: str, found: Bare, rates: dict[Protocol, tuple[float, float]]
) -> None:
    """Compare with the bare loops."""
    for protocol, (rate, p50_ms) in rates.items():
        if program == "encoder":
            if protocol is Protocol.V2:
                report.limit("encoder, rows/s over HTTP", rate, at_least=ENCODER_LEAST)
            continue
        share = rate / found.pipelined
        words = f"{program}, rows/s by {protocol}, of the pipelined loop's"
        report.limit(words, share, at_least=LEAST[protocol])
        if protocol in LONE_MS:
            words = f"{program}, ms of a lone request by {protocol} beyond a graph's"
            report.limit(words, p50_ms - found.lone_ms, at_most=LONE_MS[protocol])


def main() -> int:
    """Measure the programs; the exit status is 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--programs", nargs="+", default=["resnet50", "encoder"])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--frontends", type=int, default=4)
    parser.add_argument("--generators", type=int, default=4)
    parser.add_argument("--connections", type=int, default=64)
    options = parser.parse_args()
    report = Report("gpu", {key: str(value) for key, value in vars(options).items()})
    rows = []
    for program in options.programs:
        with tempfile.TemporaryDirectory(prefix="rb-") as folder:
            file = Path(folder) / "m.pt2"
            found = bare(program, options.device, file, options.seconds)
            report.run(program=program, way="bare", **vars(found))
            rates = measured(options, report, program, found, file)
        figures = [number(rate) for rate, _ in rates.values()]
        lone = [number(p50_ms) for _, p50_ms in rates.values()]
        rows.append([program, number(found.eager), number(found.pipelined), *figures, *lone])
        if options.device != "cpu":
            hold_to_limits(report, program, found, rates)
    ways = [str(protocol) for protocol in rates]
    header = ["program", "eager loop", "pipelined loop", *ways, *(f"{way}, ms" for way in ways)]
    report.print_text(table(header, rows))
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
