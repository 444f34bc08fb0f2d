"""Limits of the measurement on a GPU, its requests, and all of it without one."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest
from gpu import plan
from load.device_ways import Way
from load.made_rows import REGION, Row
from peers.device_servers import PEERS, in_base64, ringbatch
from report.gpu_limits import (
    Bare,
    Line,
    Run,
    lines,
    run_table,
    verdict_table,
    way_out_table,
)
from tiers import exhaustive

SCRIPT = Path(__file__).resolve().parents[1] / "gpu.py"
LOOP: Final = Bare((3, 2, 2), "float32", eager=100.0, pipelined=1000.0, lone_ms=1.0, bus=4000.0)
BARE: Final = {"resnet50": LOOP, "resnet50-uint8": replace(LOOP, pipelined=2000.0), "encoder": LOOP}
RUNS: Final = [
    Run("resnet50", Way.CLIENT, 1, 900.0, 1.2),
    Run("resnet50", Way.V2, 1, 600.0, 1.4, 7.0, 0.25, 1000.0),
    Run("resnet50", Way.GRPC, 1, 600.0, 9.0),
    Run("resnet50", Way.SHARED, 1, 850.0, 9.0),
    Run("resnet50-uint8", Way.V2, 1, 1700.0, 9.0),
    Run("resnet50-uint8", Way.GRPC, 1, 1700.0, 9.0),
    Run("encoder", Way.V2, 1, 40_000.0, 9.0),
    Run("encoder", Way.BULK, 1, 80_000.0),
]
PEERS_OF: Final = {"mosec": 300.0, "LitServe": 100.0}
STARTS: Final = {"resnet50": 8.0, "encoder": 99.0}


def found(
    runs: list[Run] = RUNS,
    bare: Mapping[str, Bare] = BARE,
    peers: Mapping[str, float] = PEERS_OF,
    starts: Mapping[str, float] = STARTS,
) -> dict[str, list[str]]:
    verdicts: dict[str, list[str]] = {}
    for line in lines(bare, runs, peers, starts):
        verdicts.setdefault(line.verdict, []).append(line.name)
    return verdicts


def test_figures_at_their_limits_are_held() -> None:
    verdicts = found()
    assert [*verdicts] == ["held"]
    assert len(verdicts["held"]) == 12


@pytest.mark.parametrize(
    ("place", "changes", "missed"),
    [
        (0, {"rows_per_s": 899.0}, "resnet50, Client: of the pipelined loop's rows/s"),
        (0, {"lone_p50_ms": 1.21}, "resnet50, Client: ms of a lone request beyond a graph"),
        (1, {"rows_per_s": 599.9}, "resnet50, V2 binary: of the pipelined loop's rows/s"),
        (1, {"lone_p50_ms": 1.41}, "resnet50, V2 binary: ms of a lone request beyond a graph"),
        (2, {"rows_per_s": 599.0}, "resnet50, gRPC: of the pipelined loop's rows/s"),
        (3, {"rows_per_s": 849.0}, "resnet50, shared memory: of the pipelined loop's rows/s"),
        (4, {"rows_per_s": 1699.0}, "resnet50-uint8, V2 binary: of the pipelined loop's rows/s"),
        (5, {"rows_per_s": 1699.0}, "resnet50-uint8, gRPC: of the pipelined loop's rows/s"),
        (6, {"rows_per_s": 39_999.0}, "encoder, V2 binary: rows/s"),
        (7, {"rows_per_s": 79_999.0}, "encoder, infer_many: rows/s"),
    ],
)
def test_each_limit_is_missed_alone(place: int, changes: dict[str, Any], missed: str) -> None:
    runs = [*RUNS]
    runs[place] = replace(runs[place], **changes)
    verdicts = found(runs)
    assert missed in verdicts.pop("NOT HELD")
    assert [*verdicts] == ["held"]


def test_the_faster_peer_and_the_start_are_held_to_limits() -> None:
    slower = {"mosec": 1.0, "LitServe": 300.1}
    assert found(peers=slower)["NOT HELD"] == ["resnet50, V2 binary: of the faster peer's rows/s"]
    late = {"resnet50": 8.1}
    assert found(starts=late)["NOT HELD"] == ["resnet50: seconds from start to ready"]


def test_two_workers_and_missing_runs_count_for_nothing() -> None:
    verdicts = found([replace(run, workers=2) for run in RUNS], {}, {}, {})
    assert [*verdicts] == ["not measured"]
    assert len(verdicts["not measured"]) == 12
    without_graphs = {name: replace(loop, pipelined=0.0) for name, loop in BARE.items()}
    assert len(found(bare=without_graphs)["not measured"]) == 6


def test_the_tables_have_ratios_and_verdicts() -> None:
    row = run_table(BARE, RUNS).splitlines()[3].split()
    figures = ["600.0", "6.00", "0.60", "1.4", "7", "0.25", "75%"]
    assert row == ["resnet50", "V2", "binary", "1", *figures]
    text = verdict_table([Line("a", 1.0, at_least=2.0), Line("b", None, at_most=1.0)])
    assert [line.split() for line in text.splitlines()[2:]] == [
        ["a", "1", ">=", "2", "NOT", "HELD"],
        ["b", "-", "<=", "1", "not", "measured"],
    ]


def test_the_ways_out_are_listed_for_programs_that_ran_on_a_gpu() -> None:
    assert way_out_table(BARE) == ""
    loop = replace(LOOP, block_ms=0.5, scattered_ms=2.5, straight_ms=0.75)
    text = way_out_table({**BARE, "image-to-image": loop})
    assert [line.split() for line in text.splitlines()[2:]] == [
        ["image-to-image", "0.5", "2.5", "0.75"]
    ]


@pytest.mark.parametrize(
    ("dtype", "name", "size"), [("float32", "FP32", 48), ("uint8", "UINT8", 12)]
)
def test_all_requests_hold_the_same_row(dtype: str, name: str, size: int) -> None:
    row = Row((3, 2, 2), dtype)
    (given,) = json.loads(row.in_json)["inputs"]
    binary, text_bytes = row.binary
    (named,) = json.loads(binary[:text_bytes])["inputs"]
    values = np.frombuffer(binary[text_bytes:], dtype)
    assert values.nbytes == named["parameters"]["binary_data_size"] == row.size == size
    assert given["shape"] == named["shape"] == [1, 3, 2, 2]
    assert given["datatype"] == named["datatype"] == name
    np.testing.assert_array_equal(np.array(given["data"], dtype), values)
    referring, all_bytes = row.by_reference
    (there,) = json.loads(referring)["inputs"]
    assert all_bytes == len(referring)
    assert there["parameters"] == {
        "shared_memory_region": REGION,
        "shared_memory_byte_size": size,
    }
    assert row.values(5).shape == (5, 3, 2, 2)
    assert len({*values.tolist()}) > 6


def test_large_rows_lie_in_shared_memory_and_small_ones_go_in_bulk() -> None:
    large, tiny = Row((3, 224, 224), "uint8"), Row((256,), "float32")
    ((_, ways),) = plan(large, first=False)
    assert (Way.SHARED in ways, Way.BULK in ways) == (True, False)
    one, two = plan(tiny, first=True)
    assert (one[0], Way.SHARED in one[1], Way.BULK in one[1]) == (1, False, True)
    assert two == (2, (Way.CLIENT, Way.V2))


def test_a_server_has_a_lane_for_each_client_and_graphs_on_a_device_alone() -> None:
    on_gpu = ringbatch("cuda:0", Path("m.pt2"), 4, 7, 9, 2)
    assert (on_gpu.server["client_lanes"], on_gpu.server["grpc_port"]) == (7, 9)
    assert (on_gpu.frontends, on_gpu.server["grpc_frontends"]) == (4, 4)
    assert on_gpu.settings["workers"] == 2
    assert on_gpu.settings["device"] == "cuda:0"
    assert on_gpu.settings["cuda_graphs"] == "required"
    assert on_gpu.settings["max_batch_size"] == 32
    on_cpu = ringbatch("cpu", Path("m.pt2"), 1, 1, 9, 1)
    assert "cuda_graphs" not in on_cpu.settings


def test_a_peer_without_its_package_names_the_packages_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert PEERS["mosec"].obstacle == (
        "mosec is not installed beside torch: pip install mosec==0.9.8"
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: 1)
    assert PEERS["LitServe"].obstacle == ""
    assert json.loads(in_base64(b"abc")) == {"row": "YWJj"}


def test_all_of_it_runs_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.setenv("RINGBATCH_BENCH_RESULTS", str(tmp_path))
    words = ["--device", "cpu", "--programs", "small", "small-uint8", "small-to-image"]
    words += ["--frontends", "1", "--generators", "1", "--connections", "4", "--bulk-rows", "64"]
    words += ["--seconds", "1.5"]
    done = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (file,) = tmp_path.glob("gpu-*.json")
    record = json.loads(file.read_text())
    runs = [(run["program"], run.get("workers"), run["way"]) for run in record["runs"]]
    for program, ways in (
        ("small", ("Client", "V2 binary", "gRPC", "shared memory")),
        ("small-uint8", ("Client", "V2 binary", "gRPC", "infer_many")),
        ("small-to-image", ("Client", "V2 binary", "gRPC", "shared memory")),
    ):
        assert (program, None, "bare") in runs
        assert [run for run in runs if run[:2] == (program, 1)] == [(program, 1, w) for w in ways]
    assert [run[2] for run in runs if run[:2] == ("small", 2)] == ["Client", "V2 binary"]
    assert all(run["rows_per_s"] > 0 for run in record["runs"] if run["way"] != "bare")
    for name in PEERS:
        assert (("small", None, name) in runs) != (name in record["absent"])
    assert "from start to ready" in done.stdout


def test_results_come_to_places_of_their_own_in_all_ways_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from peers import device_loop

    scattered: list[Any] = []
    straight: list[Any] = []

    def registered(array: Any) -> Any:
        """Return another memory for the device's own copies, to tell them from the CPU's."""
        scattered.append(torch.from_numpy(array))
        straight.append(torch.zeros_like(scattered[-1]))
        return straight[-1]

    runtime = SimpleNamespace(cudaHostRegister=lambda _address, _size, _flags: 0)
    on_cpu = SimpleNamespace(
        cuda=SimpleNamespace(cudart=lambda: runtime, synchronize=lambda: None),
        empty=lambda shape, pin_memory: torch.empty(shape),
        from_numpy=registered,
    )
    monkeypatch.setattr(device_loop, "torch", on_cpu)
    results = torch.randn(device_loop.BATCH, 3, 4, 4)
    figures = device_loop.way_out(results, 0.01)
    assert [*figures] == ["block_ms", "scattered_ms", "straight_ms"]
    assert min(figures.values()) > 0
    assert torch.equal(torch.stack(scattered), results)
    assert torch.equal(torch.stack(straight), results)
    more: dict[str, Any] = dict(figures)
    assert way_out_table({"a": replace(LOOP, **more)}) != ""


@exhaustive
def test_a_program_without_time_left_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGBATCH_BENCH_RESULTS", str(tmp_path))
    words = ["--programs", "resnet50", "--limit-s", "-1"]
    done = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr[-2000:]
    assert done.stdout.count("not measured") >= 24
    assert "-1 s are over" in done.stdout
