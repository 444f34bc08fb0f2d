"""Limits of the measurement on a GPU, its bodies, and all of it without one."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gpu import Bare, bodies, hold_to_limits
from load.ways import Protocol
from report.record import Report

SCRIPT = Path(__file__).resolve().parents[1] / "gpu.py"
FOUND = Bare((3, 2, 2), eager=100.0, pipelined=1000.0, lone_ms=1.0)
GOOD = {Protocol.CLIENT: (900.0, 1.2), Protocol.V2: (600.0, 1.4), Protocol.GRPC: (600.0, 9.0)}


@pytest.mark.parametrize(
    ("protocol", "figures", "missed"),
    [
        (Protocol.CLIENT, (900.0, 1.2), []),
        (Protocol.CLIENT, (899.0, 1.2), ["resnet50, rows/s by Client, of the pipelined loop's"]),
        (Protocol.V2, (599.0, 1.0), ["resnet50, rows/s by V2, of the pipelined loop's"]),
        (Protocol.GRPC, (599.0, 1.0), ["resnet50, rows/s by gRPC, of the pipelined loop's"]),
        (Protocol.V2, (600.0, 1.5), ["resnet50, ms of a lone request by V2 beyond a graph's"]),
    ],
)
def test_rates_and_lone_requests_are_held_to_the_bare_loops(
    protocol: Protocol, figures: tuple[float, float], missed: list[str]
) -> None:
    report = Report("gpu", {})
    hold_to_limits(report, "resnet50", FOUND, {**GOOD, protocol: figures})
    assert [limit.name for limit in report.limits if not limit.met] == missed


@pytest.mark.parametrize(("rate", "kept"), [(40_000.0, True), (39_999.0, False)])
def test_the_encoder_is_held_to_a_rate_over_http(rate: float, kept: bool) -> None:
    report = Report("gpu", {})
    hold_to_limits(report, "encoder", FOUND, {**GOOD, Protocol.V2: (rate, 1.0)})
    assert [limit.met for limit in report.limits] == [kept]


def test_both_bodies_hold_the_same_row() -> None:
    in_json, binary, head_bytes = bodies((3, 2, 2))
    (given,) = json.loads(in_json)["inputs"]
    (named,) = json.loads(binary[:head_bytes])["inputs"]
    values = np.frombuffer(binary[head_bytes:], "<f4")
    assert values.nbytes == named["parameters"]["binary_data_size"]
    assert given["shape"] == named["shape"] == [1, 3, 2, 2]
    np.testing.assert_array_equal(np.float32(given["data"]), values)


def test_all_of_it_runs_without_a_gpu() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    words = ["--device", "cpu", "--programs", "small", "--seconds", "0.5", "--frontends", "1"]
    words += ["--generators", "1", "--connections", "4"]
    done = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("small ")]
    rates = [float(cell.replace(",", "")) for cell in row[1:]]
    assert rates[1] == 0, "no loop over graphs"
    assert min(rates[0], *rates[2:]) > 0
