"""The device that is a clock: it answers as its model does, and takes its time."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from models.device_clock import COPY_S, TimedDevice, run_s

from ringbatch.engine.devices.batch_run import BatchRun, Rows
from ringbatch.engine.runtimes import device_tensors, python
from ringbatch.shm.tensor import Tensor

MODEL = Path(__file__).parents[1] / "models" / "timed_device.py"
OPENING = """
import sys
from pathlib import Path
from ringbatch.engine.models.model import Options
from ringbatch.engine.runtimes.opening import open_model
options = Options(max_batch_size=2, threads=1, device="cuda:0")
print(open_model("python", Path(sys.argv[1]), options).device.name)
"""
X = Tensor("x", "FP32", [1])
MEMORY = np.arange(64, dtype="f4")


@pytest.fixture
def run() -> BatchRun:
    device = TimedDevice(lambda x: 2 * x)
    made = BatchRun(device, [X], MEMORY.data.cast("B"), 0)
    made.register()
    made.measure(4, time.monotonic_ns)
    return made


def test_rows_are_answered_from_where_they_stand(run: BatchRun) -> None:
    assert run.predict(Rows([40, 8], [4, 8], 3)).ravel().tolist() == [20, 4, 6]
    assert run.predict(np.ones((2, 1), "f4")).tolist() == [[2], [2]]


def test_graphs_answer_as_runs_do(run: BatchRun) -> None:
    for _ in range(2):
        run.predict(np.ones((2, 1), "f4"))
    run.capture(2)
    assert run.predict(Rows([40], [4], 1, spare=1)).ravel().tolist() == [20, 20]


def test_runs_follow_each_other(run: BatchRun) -> None:
    began_s = time.monotonic()
    first = run.begin(Rows([0], [4], 1))
    second = run.begin(Rows([4], [128], 32))
    assert run.finish(first).tolist() == [[0]]
    assert run.finish(second).shape == (32, 1)
    assert time.monotonic() - began_s >= run_s(1) + run_s(32)


def test_copies_of_a_batch_take_their_time_and_no_others(run: BatchRun) -> None:
    first = run.begin(Rows([0], [128], 32))
    second = run.begin(Rows([4], [4], 1))
    for begun, rows in ((first, 32), (second, 1)):
        run.finish(begun)
        assert run.copy_ns == pytest.approx(rows * COPY_S * 1e9, abs=1e6)


def test_copies_are_measured(run: BatchRun) -> None:
    assert run.copies_ns(32) >= 32 * COPY_S * 1e9


def test_the_model_file_is_on_it_and_replaces_nothing_here() -> None:
    argv = [sys.executable, "-c", OPENING, str(MODEL)]
    assert subprocess.run(argv, capture_output=True, text=True).stdout == "timed:0\n"
    assert vars(python)["with_tensors"] is device_tensors.with_tensors
