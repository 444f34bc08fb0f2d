"""A model that is loaded again and again while wrk asks it: what fails, and who gets an old answer.

Each copy of the model answers with a number of its own. `wrk` counts whatever is not answered with
2xx; what is right is asked over connections of our own: those that were open before the reload,
and new ones, each from the moment on at which the reload said that it was done.
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from pathlib import Path

from host.server import HOST, Server
from load.generators import JSON, Post, WrkRun, wrk
from peers.servers import Ringbatch
from report.record import Report
from report.rounds import number, table

NAME = "numbered"
PATH = f"/v1/models/{NAME}:predict"
MODEL = """
import numpy as np
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [16])]
outputs = [Tensor("number", "FP32", [1])]
def predict(x):
    return np.full((len(x), 1), {number}, np.float32)
"""
BODY = json.dumps({"instances": [[0.5] * 16]})
SPARE = 3.0
"""Length of the load, as a multiple of the expected duration of the reloads."""
SETTLE_S = 3.0


def write(path: Path, count: int) -> None:
    """Put that copy of the model in the place of the one before, in one step."""
    draft = path.with_suffix(".draft")
    draft.write_text(MODEL.format(number=count))
    os.replace(draft, path)


def reload(pid: int) -> float:
    """Return the seconds that ``ringbatch reload`` took.

    Raises:
        CalledProcessError: it failed.
    """
    began = time.monotonic()
    words = [sys.executable, "-m", "ringbatch.engine", "reload", "--pid", str(pid)]
    subprocess.run(words, check=True, capture_output=True)
    return time.monotonic() - began


def answer(connection: http.client.HTTPConnection) -> float:
    """Return the number in one answer; -1 if the request failed."""
    connection.request("POST", PATH, BODY, dict(JSON))
    response = connection.getresponse()
    data = response.read()
    return float(json.loads(data)["predictions"][0][0]) if response.status == 200 else -1.0


def wrong_answers(port: int, kept: list[http.client.HTTPConnection], count: int) -> int:
    """Return how many answers have another number, over connections kept and new."""
    new = [http.client.HTTPConnection(HOST, port, timeout=30) for _ in kept]
    try:
        return sum(answer(connection) != count for connection in (*kept, *new, *kept))
    finally:
        for connection in new:
            connection.close()


def main() -> int:
    """Run the scenario; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reloads", type=int, default=20)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--checks", type=int, default=20, help="connections that look for answers")
    parser.add_argument("--frontends", type=int, default=2)
    options = parser.parse_args()
    report = Report("reload", vars(options))

    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder, "numbered.py")
        write(path, 0)
        peer = Ringbatch(NAME, path, frontends=options.frontends)
        with Server(peer.command(Path(folder))) as server, ThreadPoolExecutor() as threads:

            def load(seconds: float) -> WrkRun:
                return wrk(server.url + PATH, Post(PATH, BODY), options.connections, seconds)

            kept = [
                http.client.HTTPConnection(HOST, server.port, timeout=30)
                for _ in range(options.checks)
            ]
            quiet = load(SETTLE_S)
            write(path, 1)
            seconds = ceil(options.reloads * SPARE * reload(server.pid) + SETTLE_S)
            loading = threads.submit(load, seconds)
            took, wrong = [], 0
            for count in range(2, options.reloads + 2):
                write(path, count)
                took.append(reload(server.pid))
                wrong += wrong_answers(server.port, kept, count)
                report.run(reload=count - 1, seconds=took[-1], wrong=wrong)
            under_load = 0 if loading.done() else len(took)
            busy = loading.result()
            for connection in kept:
                connection.close()
            server.require_alive()

    report.print_text(
        table(
            ["", "requests", "requests/s", "p50 ms", "p99 ms", "max ms"],
            [
                [name, str(run.requests), *map(number, _figures(run))]
                for name, run in (("no reload", quiet), ("reloads", busy))
            ],
        )
    )
    report.print_text(f"a reload took {number(min(took))} to {number(max(took))} s")
    report.limit("reloads under load", under_load, at_least=options.reloads)
    report.limit("answers of an old copy after the reload was done", wrong, at_most=0)
    return report.finish()


def _figures(run: WrkRun) -> tuple[float, float, float, float]:
    return run.requests_per_s, run.p50_ms, run.p99_ms, run.max_ms


if __name__ == "__main__":
    raise SystemExit(main())
