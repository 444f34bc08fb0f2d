"""Triton's own load generator, perf_analyzer, unmodified against an engine.

RINGBATCH_PERF_ANALYZER is the command that runs it; `.ci/run` says where it comes from. Before it
measures, it asks for a model's metadata, configuration and statistics, and afterwards it holds the
counts of these against its own: it ends with a failure where they do not agree.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest
from serve.grpc_stub import grpc_port
from serve.server import Server, Start

from ringbatch.shm.shm_objects import DIRECTORY

PROGRAM = os.environ.get("RINGBATCH_PERF_ANALYZER", "")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="RINGBATCH_PERF_ANALYZER is not set")

PREFIX = f"pa{os.getpid()}"
"""Prefix of the tensors' names, and so of the names of objects in shared memory."""
ADD = f"""
from ringbatch.engine import Tensor
inputs = [Tensor("{PREFIX}_a", "FP32", [16]), Tensor("{PREFIX}_b", "FP32", [16])]
outputs = [Tensor("{PREFIX}_sum", "FP32", [16]), Tensor("{PREFIX}_difference", "FP32", [16])]
def predict(a, b):
    return a + b, a - b
"""
MEMORY = "--shared-memory system"
MODES = {
    "http": "-i http",
    "http-json": "-i http --input-tensor-format json --output-tensor-format json",
    "http-many": "-i http -a --concurrency-range 1:5:4",
    "http-memory": f"-i http -b 4 {MEMORY} --output-shared-memory-size 4096",
    "grpc": "-i grpc",
    "grpc-rate": "-i grpc -a --request-rate-range 100",
    "grpc-memory": f"-i grpc {MEMORY}",
    "streams": "-i grpc --streaming -a --concurrency-range 4",
    "traced": "-i http --trace-level OFF",
}
THROUGHPUT = re.compile(r"throughput: ([0-9.]+) infer/sec")
INSIDE = re.compile(r"queue \d+ usec \+ compute input \d+ usec \+ compute infer \d+ usec")
"""Pattern of the times that perf_analyzer prints from the statistics."""


@pytest.fixture(scope="module")
def server(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    path: Path = tmp_path_factory.mktemp("models") / "add.py"
    path.write_text(ADD)
    return start_for_module(
        {"add": {"path": str(path), "max_batch_size": 8}},
        frontends=1,
        grpc_port=0,
        shared_memory_prefixes=[f"/{PREFIX}"],
    )


def measured(server: Server, mode: str) -> subprocess.CompletedProcess[str]:
    port = grpc_port(server) if "grpc" in mode else server.port
    # The steadiness of the throughput depends on this machine alone.
    window = "-p 300 -s 999 -r 10"
    command = f"{PROGRAM} -m add -u 127.0.0.1:{port} {window} {mode}".split()
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("mode", MODES)
def test_it_measures(server: Server, mode: str) -> None:
    done = measured(server, MODES[mode])
    assert done.returncode == 0, done.stdout + done.stderr
    throughputs = [float(found) for found in THROUGHPUT.findall(done.stdout)]
    assert throughputs, done.stdout
    assert min(throughputs) > 0
    assert INSIDE.search(done.stdout), done.stdout
    assert not list(DIRECTORY.glob(f"{PREFIX}*"))


def test_it_gets_a_reason_for_a_missing_feature(server: Server) -> None:
    done = measured(server, "-i http --trace-level TIMESTAMPS")
    assert done.returncode != 0
    assert "[server] trace_endpoint" in done.stdout + done.stderr
