"""Engines that take each other's place while they are asked: what fails, and the longest wait.

`wrk` counts what is not answered with 2xx over HTTP, a process of its own each call over gRPC and
of a `Client`. The same load runs first with nothing else going on, as processes that start take the
same cores from those that answer. All processes share the cores as equals, in a control group,
where this user may make one and `--sessions` does not ask for the terminal's own rules (see
host/cpu_share.py).
"""

import argparse
import json
import multiprocessing
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from host.children import tied
from host.cpu_share import NoControlGroups, as_equals

MODEL = """
import numpy as np
from ringbatch.engine import Tensor
inputs = outputs = [Tensor("x", "FP32", [16])]
def predict(x):
    return x
"""
LUA = """
wrk.method = "POST"
wrk.body = [==[{body}]==]
wrk.headers["Content-Type"] = "application/json"
"""
CONFIGURATION = """
[server]
name = "{name}"
port = 0
grpc_port = 0
grpc_connection_age_s = 2
frontends = 2
[models.m]
path = "model.py"
"""
NAME = "bench-handover"
_SERVES = re.compile(r"serving m on http://(\S+)\nringbatch: serving gRPC on (\S+)\n")
_WITHIN_S = 120.0
LONGEST_MS = 50
X = np.ones((1, 16), np.float32)


class Asked(NamedTuple):
    """Calls of one process that asks without a pause.

    Attributes:
        calls: calls that ended.
        failures: texts of some failures.
        failed: number of failures.
        longest_ms: the longest call.
    """

    calls: int
    failures: list[str]
    failed: int
    longest_ms: float


def engine(folder: Path, command: str, stack: ExitStack) -> tuple[subprocess.Popen[bytes], str]:
    """Start an engine, and return it with its first lines, once it serves."""
    out = folder / f"{time.monotonic_ns()}.out"
    words = [sys.executable, "-m", "ringbatch.engine", command, "--config"]
    with out.open("wb") as file:
        process = subprocess.Popen(
            [*words, str(folder / "engine.toml")],
            stdout=file,
            stderr=subprocess.STDOUT,
            preexec_fn=tied(),
        )
    stack.callback(process.wait, _WITHIN_S)
    stack.callback(process.terminate)
    until = time.monotonic() + _WITHIN_S
    while not _SERVES.search(out.read_text()):
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(out.read_text())
        time.sleep(0.02)
    return process, out.read_text()


def over_grpc(address: str) -> Callable[[], object]:
    """Return a function that asks for one prediction over gRPC, and raises without one."""
    import grpc

    from ringbatch.frontend.grpc.messages import INFERENCE_SERVICE, inference

    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 16]}
    message = inference("ModelInferRequest")(
        model_name="m", inputs=[tensor], raw_input_contents=[X.tobytes()]
    )
    call = grpc.insecure_channel(address).unary_unary(f"/{INFERENCE_SERVICE}/ModelInfer")
    data = message.SerializeToString()
    return lambda: call(data)


def in_process(_address: str) -> Callable[[], object]:
    """Return a function that asks for one prediction through a `Client`."""
    from ringbatch.frontend import Client

    client = Client(NAME)
    return lambda: client.infer("m", X)


def nothing(_address: str) -> Callable[[], object]:
    """Return a function that sleeps for a millisecond: any longer time is the machine's doing."""
    return lambda: time.sleep(0.001)


def ask(begin: Callable[[str], Callable[[], object]], address: str, pipe: Connection) -> None:
    """Ask without a pause, until told to end; each time one is told, say what was seen."""
    once = begin(address)
    while True:
        failures: list[str] = []
        calls, failed, longest = 0, 0, 0.0
        while not pipe.poll():
            began = time.monotonic()
            try:
                once()
            except Exception as error:  # whatever it is, it is counted
                failed += 1
                failures = [*failures[:2], repr(error)]
            longest = max(longest, time.monotonic() - began)
            calls += 1
        end = pipe.recv()
        pipe.send(Asked(calls, failures, failed, longest * 1e3))
        if end:
            return


@contextmanager
def asking(address: str) -> Iterator[dict[str, Connection]]:
    """Start the processes that ask, and yield their pipes by name."""
    context = multiprocessing.get_context("spawn")
    ends, processes = {}, []
    for side, begin in (("grpc", over_grpc), ("client", in_process), ("machine", nothing)):
        ours, theirs = context.Pipe()
        processes.append(context.Process(target=ask, args=(begin, address, theirs), daemon=True))
        processes[-1].start()
        ends[side] = ours
    yield ends
    for process in processes:
        process.terminate()
        process.join()


def seen(ends: dict[str, Connection]) -> dict[str, Asked]:
    """Return the calls of each process since the last question."""
    for end in ends.values():
        end.send(False)
    return {side: end.recv() for side, end in ends.items()}


def wrk(url: str, folder: Path, connections: int) -> Callable[[], str]:
    """Begin; what ends it gives what it printed."""
    script = folder / "post.lua"
    script.write_text(LUA.format(body=json.dumps({"instances": [[1.0] * 16]})))
    words = ["wrk", "-t1", f"-c{connections}", "-d3600", "--timeout", "10", "-s", str(script), url]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=tied())

    def end() -> str:
        process.send_signal(signal.SIGINT)
        return process.communicate()[0]

    return end


def wrk_failures(text: str) -> dict[str, Any]:
    """Return the counts of `wrk` and its longest latency."""
    requests = re.search(r"(\d+) requests in", text)
    errors = re.search(r"connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    others = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    latency = re.search(r"Latency +\S+ +\S+ +([\d.]+)(us|ms|s)\b", text)
    assert requests is not None, text
    assert latency is not None, text
    failed = sum(map(int, errors.groups())) if errors else 0
    scale = {"us": 1e-3, "ms": 1.0, "s": 1e3}[latency[2]]
    return {
        "calls": int(requests[1]),
        "failed": failed + (int(others[1]) if others else 0),
        "longest_ms": float(latency[1]) * scale,
    }


def main() -> int:
    """Print what was seen without and with handovers; the exit status is 1 where a call failed, or
    took longer than the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--handovers", type=int, default=10, metavar="N")
    parser.add_argument("--connections", type=int, default=16, metavar="N")
    parser.add_argument("--sessions", action="store_true", help="make no control group")
    options = parser.parse_args()
    try:
        with nullcontext() if options.sessions else as_equals():
            return measure(options.handovers, options.connections)
    except NoControlGroups as error:
        print(f"no control group, so sessions share the cores: {error}")
        return measure(options.handovers, options.connections)


def measure(handovers: int, connections: int) -> int:
    """As `main`."""
    failed, longest_ms = 0, 0.0
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "model.py").write_text(MODEL)
        (folder / "engine.toml").write_text(CONFIGURATION.format(name=NAME))
        serving, output = engine(folder, "serve", stack)
        found = _SERVES.search(output)
        assert found is not None, output
        url = f"http://{found[1]}/v1/models/m:predict"
        ends = stack.enter_context(asking(found[2]))
        seen(ends)
        for turns in (0, handovers):
            seen(ends)
            end = wrk(url, folder, connections)
            if not turns:
                time.sleep(20)
            for _ in range(turns):
                before = serving
                serving, _output = engine(folder, "handover", stack)
                status = before.wait(_WITHIN_S)
                failed += status != 0
            lines = {"wrk": wrk_failures(end())} | {
                side: asked._asdict() for side, asked in seen(ends).items()
            }
            print(f"{turns} handovers", *(f"  {k}: {v}" for k, v in lines.items()), sep="\n")
            failed += sum(line["failed"] for line in lines.values())
            del lines["machine"]
            longest_ms = max(line["longest_ms"] for line in lines.values())
    print(f"failed: {failed}; longest with handovers: {longest_ms:.0f} ms, at most {LONGEST_MS}")
    return 1 if failed or longest_ms > LONGEST_MS else 0


if __name__ == "__main__":
    sys.exit(main())
