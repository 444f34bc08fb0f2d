"""Cost of a batch through a Ray actor, and ringbatch on Ray compared with Ray Serve.

A batch through the runtime ray is compared, by its size, with a bare actor call that carries the
same arrays, by turns in one process. Then ringbatch serves a model of 16 floats with one actor. Ray
Serve serves the same model with one replica and its own batching. Each runs on a cluster on this
host.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Final

# Before Ray is imported, which reads them.
os.environ.setdefault("RAY_USE_UVLOOP", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
import ray
from host.server import Command, Server, free_port
from load import answers, generators
from peers.servers import MODELS, SERVICES, Environment, Peer, Ringbatch, TomlValue
from ray.cluster_utils import Cluster
from report.record import Report
from report.rounds import ratios, run_rounds

from ringbatch.engine.models.model import Options
from ringbatch.engine.models.ray_place import RayPlace
from ringbatch.engine.runtimes.opening import open_model

ROWS: Final = 32
FLOATS: Final = {"16 floats": 16, "4,096 floats": 4096, "a picture of 602 KB": 150_528}
MOST_RATIO: Final = 1.2
LEAST_RATE_RATIO: Final = 20.0
RAY_SERVE: Final = Environment(
    "ray-serve", ("ray[serve]==2.60.0", "numpy==2.4.6", "orjson==3.13.0")
)
_WARM_UP_S: Final = 4.0
_CALLS: Final = 200
_LARGE_CALLS: Final = 30
_LARGE: Final = 10_000
_MODEL: Final = """
from ringbatch.engine import Tensor

inputs = [Tensor("x", "FP32", [-1])]
outputs = [Tensor("y", "FP32", [10])]


def predict(x):
    return x[:, :10]
"""

Call = Callable[[Any], object]


class Bare:
    """An actor with nothing of ringbatch's."""

    def predict(self, x: Any) -> Any:
        """Predict as the model does."""
        return x[:, :10]


@contextmanager
def cluster() -> Iterator[str]:
    """Start a cluster of one node, and yield its address."""
    head = {"num_cpus": 4, "object_store_memory": 512 << 20, "include_dashboard": False}
    found: Any = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield found.address
    finally:
        ray.shutdown()
        found.shutdown()


def place(address: str) -> RayPlace:
    """Return a place anywhere in a cluster."""
    return RayPlace(
        engine="bench",
        version="1",
        index=0,
        loader="python",
        threads=1,
        address=address,
        namespace="bench",
        cpus=1.0,
        gpus=0.0,
        resources=(),
        scheduling="default",
        placement_group="",
        keep_s=0.0,
        load_timeout_s=60.0,
    )


def median_ms(call: Call, x: Any, count: int) -> float:
    """Return the median of that many calls."""
    found = []
    for _ in range(count):
        began = time.perf_counter()
        call(x)
        found.append((time.perf_counter() - began) * 1e3)
    return median(found)


def compare_calls(report: Report, address: str, rounds: int) -> None:
    """Hold a batch of each size to a multiple of the bare call."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.py"
        path.write_text(_MODEL)
        options = Options(max_batch_size=ROWS, threads=1, name="m", ray=place(address))
        own_output = sys.stdout
        model = open_model("ray", path, options)
        sys.stdout = own_output
        model.load()
        actor: Any = ray.remote(Bare).options(num_cpus=1).remote()
        calls: dict[str, Call] = {
            "bare": lambda x: ray.get(actor.predict.remote(x)),
            "ringbatch": model.predict,
        }
        for name, floats in FLOATS.items():
            compare_size(report, name, floats, calls, rounds)
        model.release(True)


def compare_size(
    report: Report, name: str, floats: int, calls: Mapping[str, Call], rounds: int
) -> None:
    """Compare batches of one size."""
    x = np.ones((ROWS, floats), np.float32)
    count = _CALLS if floats < _LARGE else _LARGE_CALLS
    for call in calls.values():
        median_ms(call, x, count)

    def run(turn: int, side: str) -> float:
        found = median_ms(calls[side], x, count)
        report.run(round=turn, size=name, who=side, ms=round(found, 3))
        return found

    runs = run_rounds([*calls], rounds, run)
    found = ratios(runs["ringbatch"], runs["bare"]).median
    report.limit(f"{ROWS} x {name}, ringbatch / bare call", found, at_most=MOST_RATIO)


def peers(address: str) -> dict[str, Peer]:
    """Return the servers compared over HTTP, by name."""

    def ray_serve(_folder: Path) -> Command:
        port = free_port()
        script = str(SERVICES / "ray_serve_matmul16.py")
        argv = [str(RAY_SERVE.python), script, f"--port={port}"]
        return Command(argv, port, "/-/healthz", start_timeout_s=120.0, stop_timeout_s=60.0)

    settings: dict[str, TomlValue] = {
        "runtime": "ray",
        "ray_address": address,
        "ray_keep_s": 0,
    }
    ours = Ringbatch("matmul16", MODELS / "matmul16.py", frontends=1, settings=settings)
    return {
        "ringbatch on ray": Peer("ringbatch on ray", ours.command),
        "ray serve": Peer("ray serve", ray_serve, environment=RAY_SERVE),
    }


def compare_servers(
    report: Report, address: str, connections: Sequence[int], rounds: int, seconds: float
) -> None:
    """Hold requests/s to a multiple of Ray Serve's."""
    compared = peers(address)

    def run(turn: int, name: str) -> dict[int, generators.WrkRun]:
        found = measure(compared[name], connections, seconds)
        for one in found.values():
            report.run(round=turn, peer=name, result=asdict(one))
        return found

    runs = run_rounds([*compared], rounds, run)
    for count in connections:
        both = [[run[count].requests_per_s for run in found] for found in runs.values()]
        found = ratios(*both).median
        name = f"req/s against Ray Serve at {count} connections"
        report.limit(name, found, at_least=LEAST_RATE_RATIO)


def measure(peer: Peer, connections: Sequence[int], seconds: float) -> dict[int, generators.WrkRun]:
    """Start one server, warm it, and drive it at each number of connections."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Server(peer.command(Path(folder))) as server,
    ):
        post = answers.matmul16_post(0, peer.path)
        # The first answer of Ray Serve takes a second, and those to a crowd come late at first.
        answers.check_one(server.port, peer.path)
        generators.wrk(server.url, post, max(connections), _WARM_UP_S)
        found = {}
        for count in connections:
            answers.check_one(server.port, peer.path)
            found[count] = generators.wrk(server.url, post, count, seconds)
            server.require_alive()
        return found


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--call-rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one run")
    parser.add_argument("--connections", type=int, nargs="+", default=[32, 128])
    options = parser.parse_args()
    generators.require_tools()
    RAY_SERVE.ensure()
    report = Report("actors", vars(options))
    report.peer_versions([RAY_SERVE])
    with cluster() as address:
        compare_calls(report, address, options.call_rounds)
        compare_servers(report, address, options.connections, options.rounds, options.seconds)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
